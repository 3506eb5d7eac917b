//! Answers the calls about room that is reserved for files below a path (promise F4).

use super::Answer;
use crate::access::Access;
use crate::callers::{CallingMember, KnownMembers};
use crate::failure;
use crate::handles::handles;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::sessions::WriteSessions;
use crate::shared_pool::SharedPool;
use crate::waiting_for_donors::WaitingForDonors;
use potluck_catalog::{AdmittedWrite, Catalog, StoredSession};
use potluck_core::ids::{MemberId, SessionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::AskedPolicy;
use potluck_core::reserved_room::{LONGEST_RESERVATION, ReservedRoom};
use potluck_core::rights::Right;
use potluck_core::size::format_size;
use potluck_pool::{NewSession, OpenReservation, Pool, ReservesTooMuch};
use potluck_wire::control::{
    Condition, Done, RoomRelease, RoomReservation, RoomReservationList, RoomReservations,
    RoomReserve,
};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::sync::Arc;

handles! {
    /// The handles for answering calls about reserved room.
    pub struct ReservationCalls {
        env: Env,
        term: Arc<OwnTerm>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        members: Arc<KnownMembers>,
        wait_until: WaitingForDonors,
        sessions: WriteSessions,
        access: Access,
    }
}

impl Answer<RoomReserve> for ReservationCalls {
    async fn answer(
        self,
        call: RoomReserve,
        caller: CallingMember,
    ) -> Result<RoomReservation, Failure> {
        let RoomReserve { path, bytes, for_ms } = call;
        let who = caller.member()?;
        self.access.need(&caller, Right::Write, &path).await?;
        if bytes == 0 || for_ms == 0 || u128::from(for_ms) > LONGEST_RESERVATION.as_millis() {
            let days = LONGEST_RESERVATION.as_secs() / (24 * 3600);
            let what = format!("room is reserved for a byte at least, and for {days} days at most");
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("say for how long, such as --for 4h"));
        }
        let admission = self.catalog.admit_write(path.clone(), Condition::Always, bytes).await?;
        let AdmittedWrite { space, limits, .. } = admission;
        self.wait_until.donors_reported(Pool::expects_reports).await;
        let policy = space.policy;
        let redundancy = policy.redundancy();
        let data = policy.ec.map_or(1, |ec| ec.data() as u64);
        let stored = (bytes / data).saturating_mul(u64::from(redundancy.donors()));
        let room = ReservedRoom { path, bytes, until_ms: self.time.without_leaps_ms() + for_ms };
        let new = NewSession {
            id: SessionId::in_term(self.term.start, self.env.entropy.u64()),
            member: who.member,
            space: space.id,
            policy,
            asked: AskedPolicy::default(),
            room: Some(room.clone()),
            peer: None,
            link: None,
        };
        let opened = {
            let (mut pool, now) = (self.pool.lock(), self.time.tick());
            limits.admit_beside(|spaces| pool.promised_in(spaces, None), bytes, 0)?;
            if who.role != Role::Admin {
                pool.may_reserve(who.member, stored, now).map_err(too_much)?;
            }
            let opened = pool.open_session(new.clone(), Some(bytes), now);
            opened.map_err(|why| failure::of_placement(why, redundancy, &pool, now))?
        };
        let kept = StoredSession {
            id: new.id,
            member: new.member,
            space: new.space,
            policy: new.policy,
            asked: new.asked,
            plan: opened.plan,
            bytes: opened.bytes,
            ended: false,
            room: new.room,
            draws_on: None,
            key: None,
            counted: 0,
        };
        if let Err(why) = self.catalog.open_session(kept).await {
            self.pool.lock().take_back(&new.id);
            return Err(why.into());
        }
        let opened = OpenReservation { member: who.member, space: space.id, left: bytes, room };
        Ok(self.told(new.id, opened, who.member))
    }
}

fn too_much(why: ReservesTooMuch) -> Failure {
    match why {
        ReservesTooMuch::Reservations(has) => {
            let what = format!("you have {has} reservations already");
            Failure::new(ErrorKind::Conflict, code::TOO_MUCH_RESERVED, what)
                .hint("release some: `potluck reserve ls`")
        }
        ReservesTooMuch::Bytes(most) => {
            let most = format_size(most);
            let what = format!("you would have more reserved than half of what is free, {most}");
            Failure::new(ErrorKind::NoSpace, code::TOO_MUCH_RESERVED, what)
                .hint("sizes count with all copies; reserve less, or ask an admin")
        }
    }
}

impl ReservationCalls {
    /// Returns a reservation as `caller` is told of it.
    fn told(
        &self,
        id: SessionId,
        reservation: OpenReservation,
        caller: MemberId,
    ) -> RoomReservation {
        let OpenReservation { member, room, left, .. } = reservation;
        let ReservedRoom { path, bytes, until_ms } = room;
        let until_wall_ms = self
            .time
            .wall_ms()
            .saturating_add_unsigned(until_ms.saturating_sub(self.time.without_leaps_ms()));
        let by = self.members.names(&[member]).pop().unwrap_or_default();
        RoomReservation { id, path, bytes, left, until_wall_ms, by, is_own: member == caller }
    }
}

impl Answer<RoomReservationList> for ReservationCalls {
    async fn answer(
        self,
        call: RoomReservationList,
        caller: CallingMember,
    ) -> Result<RoomReservations, Failure> {
        let (seen, own) = (self.access.seen(&caller).await?, caller.member()?.member);
        let is_asked = |at: &PoolPath| {
            call.path.as_ref().is_none_or(|path| path.is_inside(at) || at.is_inside(path))
        };
        let all = self.pool.lock().reservations();
        let shown = all.into_iter().filter(|(_, it)| {
            let path = &it.room.path;
            is_asked(path) && seen.rights(path.space()).allow(Right::List)
        });
        let mut reservations: Vec<_> = shown.map(|(id, it)| self.told(id, it, own)).collect();
        reservations.sort_by_key(|reservation| reservation.until_wall_ms);
        Ok(RoomReservations { reservations })
    }
}

impl Answer<RoomRelease> for ReservationCalls {
    async fn answer(self, call: RoomRelease, caller: CallingMember) -> Result<Done, Failure> {
        let all = self.pool.lock().reservations();
        let Some((id, found)) = all.into_iter().find(|(id, _)| *id == call.id) else {
            return Ok(Done {});
        };
        if found.member != caller.member()?.member {
            self.access.need(&caller, Right::Manage, &found.room.path).await?;
        }
        self.sessions.end(id).await?;
        Ok(Done {})
    }
}
