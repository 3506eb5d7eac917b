//! Reservations of room for files below a path. A reservation is a session to which bytes are promised and that writes
//! nothing; sessions that write below the path are promised bytes out of it, and give back what they did not need.

use super::Pool;
use crate::write_session::{OpenSession, Ticketed};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use potluck_core::path::PoolPath;
use potluck_core::placement::{Plan, Section};
use potluck_core::reserved_room::ReservedRoom;
use std::collections::{BTreeMap, BTreeSet};

/// The most reservations that one member may have at once.
const MOST_RESERVATIONS: usize = 64;
/// The part of the free room, one in so many, that the reservations of one member may take: to reserve costs nothing,
/// and nobody is to keep all others from writing by it.
const MEMBERS_PART: u64 = 2;

/// A reservation as it is now.
#[derive(Debug, Clone)]
pub struct OpenReservation {
    /// The member who reserved the room.
    pub member: MemberId,
    /// The space of the path.
    pub space: SpaceId,
    /// The room that was asked for.
    pub room: ReservedRoom,
    /// The bytes of files that still fit, in plaintext.
    pub left: u64,
}

/// The reason why a member may not reserve room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservesTooMuch {
    /// The member has this many reservations, the most that it may have.
    Reservations(usize),
    /// The member may have only this many stored bytes reserved in all.
    Bytes(u64),
}

impl Pool {
    /// Checks whether a member may reserve this many more stored bytes, redundancy included.
    pub fn may_reserve(
        &self,
        member: MemberId,
        stored: u64,
        now: Tick,
    ) -> Result<(), ReservesTooMuch> {
        let own: Vec<SessionId> =
            self.rooms().filter(|(_, it)| it.member == member).map(|(id, _)| id).collect();
        if own.len() >= MOST_RESERVATIONS {
            return Err(ReservesTooMuch::Reservations(own.len()));
        }
        let has: u64 = own.iter().map(|id| self.ledger.held(*id).values().sum::<u64>()).sum();
        let free = self.room(&BTreeSet::new(), now).saturating_add(has);
        match has.saturating_add(stored) > free / MEMBERS_PART {
            true => Err(ReservesTooMuch::Bytes(free / MEMBERS_PART)),
            false => Ok(()),
        }
    }

    /// Returns all reservations.
    pub fn reservations(&self) -> Vec<(SessionId, OpenReservation)> {
        let all = self.rooms().map(|(id, session)| {
            let OpenSession { member, space, .. } = *session;
            let room = session.room.clone().expect("a reservation has room");
            (id, OpenReservation { member, space, left: self.left(id, session), room })
        });
        all.collect()
    }

    /// Returns all reservations but `own`, the one whose room is being taken.
    pub fn reservations_beside(&self, own: Option<SessionId>) -> Vec<OpenReservation> {
        let others = self.reservations().into_iter().filter(|(id, _)| Some(*id) != own);
        others.map(|(_, reservation)| reservation).collect()
    }

    /// Returns the reservation that a session draws on, with the plan and the bytes that the reservation has now, for a
    /// manager that is started again.
    pub fn reservation_plan(&self, of: &SessionId) -> Option<(SessionId, Plan, u64)> {
        let id = self.sessions.get(of)?.draws_on?;
        let reservation = self.sessions.get(&id).filter(|session| !session.ending)?;
        let held = self.ledger.held(id).into_iter().filter(|(_, bytes)| *bytes > 0);
        let Plan { chunk_size, .. } = reservation.plan;
        let section = |(donor, bytes): (DonorId, u64)| {
            let chunks = bytes.div_ceil(u64::from(chunk_size).max(1));
            Section { donors: vec![donor], chunks, bytes }
        };
        let plan =
            Plan { stripe_size: 1, sections: held.map(section).collect(), copies: 1, chunk_size };
        Some((id, plan, reservation.bytes))
    }

    /// Returns the reservation whose room a session takes.
    pub fn draws_on(&self, session: &SessionId) -> Option<SessionId> {
        self.sessions.get(session)?.draws_on
    }

    /// Returns how many bytes of files have room reserved in these spaces, without the reservation `beside` whose
    /// room is being taken.
    pub fn reserved_in(&self, spaces: &BTreeSet<SpaceId>, beside: Option<SessionId>) -> u64 {
        let others =
            self.rooms().filter(|(id, it)| Some(*id) != beside && spaces.contains(&it.space));
        others.map(|(id, session)| self.left(id, session)).fold(0, u64::saturating_add)
    }

    /// Returns the reservations that end now.
    pub fn reservations_over(&self, now_ms: u64) -> Vec<SessionId> {
        let is_over = |session: &OpenSession| {
            session.room.as_ref().is_some_and(|room| room.until_ms <= now_ms)
        };
        self.rooms().filter(|(_, session)| is_over(session)).map(|(id, _)| id).collect()
    }

    fn rooms(&self) -> impl Iterator<Item = (SessionId, &OpenSession)> {
        let all = self.rooms.iter().filter_map(move |id| Some((*id, self.sessions.get(id)?)));
        all.filter(|(_, session)| !session.ending)
    }

    /// Returns the reservation nearest above a path that is not used up.
    pub fn reservation_at(&self, path: &PoolPath) -> Option<SessionId> {
        let above = self.rooms().filter_map(|(id, session)| {
            let room = session.room.as_ref()?;
            (path.is_inside(&room.path) && self.left(id, session) > 0).then_some((room, id))
        });
        above.max_by_key(|(room, _)| room.path.names().len()).map(|(_, id)| id)
    }

    fn left(&self, id: SessionId, session: &OpenSession) -> u64 {
        let held: u64 = self.ledger.held(id).values().sum();
        let shards = u64::from(session.policy.redundancy().donors());
        let data = session.policy.ec.map_or(1, |ec| ec.data() as u64);
        let asked = session.room.as_ref().map_or(0, |room| room.bytes);
        (held / shards.max(1)).saturating_mul(data).min(asked)
    }

    /// Places something in the room of a reservation, which then has so much less.
    pub(super) fn drawing<T: Placed, E>(
        &mut self,
        reservation: Option<SessionId>,
        place: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(id) = reservation else { return place(self) };
        let held = self.ledger.release(id);
        let placed = place(self);
        let rest = match &placed {
            Ok(placed) => without(held, placed.promised()),
            Err(_) => held,
        };
        self.ledger.reserve(id, rest);
        placed
    }

    /// Gives the bytes that a session did not need back to the reservation that they came from. These are `most` bytes
    /// at most, since donors have not yet told of all that they stored.
    pub(super) fn give_to_reservation(
        &mut self,
        reservation: Option<SessionId>,
        mut unused: BTreeMap<DonorId, u64>,
        most: u64,
    ) {
        let Some(id) = reservation else { return };
        let Some(session) = self.sessions.get(&id).filter(|session| !session.ending) else {
            return;
        };
        let had: u64 = session.plan.promised().values().sum();
        let mut lacks = had.saturating_sub(self.ledger.held(id).values().sum()).min(most);
        for bytes in unused.values_mut() {
            *bytes = lacks.min(*bytes);
            lacks -= *bytes;
        }
        self.ledger.grow(id, unused);
    }
}

/// A plan or session to which bytes of donors were promised.
pub(super) trait Placed {
    /// Returns the promised bytes of each donor.
    fn promised(&self) -> BTreeMap<DonorId, u64>;
}

impl Placed for Plan {
    fn promised(&self) -> BTreeMap<DonorId, u64> {
        Plan::promised(self)
    }
}

impl Placed for Ticketed {
    fn promised(&self) -> BTreeMap<DonorId, u64> {
        self.plan.promised()
    }
}

/// Returns what is left of `held` after so much was promised from it: bytes are taken from the same donors first, then
/// from those that have most.
fn without(
    mut held: BTreeMap<DonorId, u64>,
    promised: BTreeMap<DonorId, u64>,
) -> BTreeMap<DonorId, u64> {
    let mut elsewhere = 0_u64;
    for (donor, bytes) in promised {
        let taken = held.get_mut(&donor).map_or(0, |has| {
            let taken = bytes.min(*has);
            *has -= taken;
            taken
        });
        elsewhere = elsewhere.saturating_add(bytes - taken);
    }
    while elsewhere > 0
        && let Some(has) = held.values_mut().max().filter(|has| **has > 0)
    {
        let taken = elsewhere.min(*has);
        *has -= taken;
        elsewhere -= taken;
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_a_reservation_takes_from_the_largest_shares() {
        let bytes = |of: &[(u32, u64)]| of.iter().map(|(id, n)| (DonorId(*id), *n)).collect();
        let held = || bytes(&[(1, 100), (2, 50)]);
        assert_eq!(without(held(), bytes(&[(1, 30), (2, 20)])), bytes(&[(1, 70), (2, 30)]));
        assert_eq!(without(held(), bytes(&[(3, 30)])), bytes(&[(1, 70), (2, 50)]));
        assert_eq!(without(held(), bytes(&[(2, 60), (3, 95)])), bytes(&[(1, 0), (2, 0)]));
    }
}
