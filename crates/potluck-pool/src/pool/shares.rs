//! Shares of the pool's room: bytes promised to sessions count in quotas until their files are there, and the sessions
//! of one member keep no more than a part of the free room from others.

use super::Pool;
use super::sessions::STARTING_BYTES;
use crate::write_session::{MANAGER, NewSession, OpenSession, QuotaRoom, Ticketed};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use potluck_core::path::PoolPath;
use potluck_core::placement::{Plan, Refusal};
use std::collections::BTreeSet;

/// The part of the free room, one in so many, that the sessions of one member may keep from others, by what was
/// promised to them and what they stored of which there are no files yet: a promise costs nothing. Beyond it they
/// still write, as long as there is room.
const MEMBERS_PART: u64 = 2;

impl Pool {
    /// Opens a session that writes at `path`, as [`Pool::open_session`] does, out of what is reserved there. Room is
    /// kept from others only for those of its `bytes` that quotas leave.
    pub fn open_session_at(
        &mut self,
        path: &PoolPath,
        new: NewSession,
        bytes: Option<u64>,
        quotas: QuotaRoom,
        now: Tick,
    ) -> Result<Ticketed, Refusal> {
        let (id, draws_on, most) = (new.id, self.reservation_at(path), quotas.left);
        let bytes = bytes.or((most < STARTING_BYTES).then_some(most));
        let mut ticketed = self.drawing(draws_on, |pool| pool.open_session(new, bytes, now))?;
        let asked = bytes.unwrap_or(ticketed.bytes);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.draws_on = draws_on;
            session.counted = asked.min(most);
            session.asked_for = 0;
            session.pay(asked, quotas.whole);
            ticketed = session.ticketed();
        }
        self.keep_within(&id, &ticketed.plan, asked, most, now);
        Ok(ticketed)
    }

    /// Promises bytes more to a session, as [`Pool::grow_session`] does. It gets places even beyond what quotas leave,
    /// in exchange for places that failed and for files that replace others: no room is kept from others for these
    /// places, and donors take no more for them than the whole quotas let the session have.
    ///
    /// Errors: also [`Refusal::NoDonors`] if the session does not go on ([`Pool::goes_on`]). Nobody would give back what
    /// was promised to it.
    pub fn grow_session_within(
        &mut self,
        id: &SessionId,
        bytes: u64,
        quotas: QuotaRoom,
        places: (&[DonorId], bool),
        now: Tick,
    ) -> Result<Plan, Refusal> {
        let Some(session) = self.sessions.get(id).filter(|it| it.goes_on()) else {
            return Err(Refusal::NoDonors);
        };
        let (most, counted) = (quotas.left, session.counted);
        let asked = bytes.min(most.max(counted).max(STARTING_BYTES));
        // What was promised to the session before is none of what the quotas leave.
        let whole = quotas.whole.saturating_add(session.counted());
        let paid = whole.saturating_sub(session.paid_and_hidden());
        let plan = self.grow_session(id, (asked, paid), places, now)?;
        if let Some(session) = self.sessions.get_mut(id) {
            session.counted = session.counted.saturating_add(asked.min(most));
        }
        self.keep_within(id, &plan, asked, most, now);
        Ok(plan)
    }

    /// Returns how many bytes of files are promised to sessions that write in these spaces and are not visible yet,
    /// with those for which room is reserved there, but without the reservation `beside` whose room is being taken.
    pub fn promised_in(&self, spaces: &BTreeSet<SpaceId>, beside: Option<SessionId>) -> u64 {
        let counts = |session: &&OpenSession| {
            let is_open = !session.ending && session.parked.is_none() && session.room.is_none();
            is_open && spaces.contains(&session.space)
        };
        let counting = self.sessions.values().filter(counts);
        let bytes = counting.map(OpenSession::counted);
        bytes.fold(self.reserved_in(spaces, beside), u64::saturating_add)
    }

    /// Returns how many bytes of a session's files count in quotas and are not visible yet.
    pub fn counted(&self, id: &SessionId) -> u64 {
        self.sessions.get(id).map_or(0, OpenSession::counted)
    }

    /// Lets others have the room of those of `asked` bytes that are above `most`; `placed` is the plan that was
    /// promised for all of `asked`.
    fn keep_within(&mut self, id: &SessionId, placed: &Plan, asked: u64, most: u64, now: Tick) {
        let over = asked.saturating_sub(most);
        if over > 0 {
            let placed = placed.promised().values().fold(0, |sum: u64, it| sum.saturating_add(*it));
            let over = u128::from(placed) * u128::from(over) / u128::from(asked);
            self.cut(id, over as u64);
        }
        self.keep_to_share(id, now);
    }

    /// Lets others have the room that a session is promised beyond its member's share.
    pub(super) fn keep_to_share(&mut self, id: &SessionId, now: Tick) {
        let Some(session) = self.sessions.get(id).filter(|it| it.draws_on.is_none()) else {
            return;
        };
        if session.member == MANAGER {
            return;
        }
        let held = self.held_by(session.member);
        let free = self.room(&BTreeSet::new(), now).saturating_add(held);
        let beyond = held.saturating_sub(free / MEMBERS_PART);
        if beyond > 0 {
            self.cut(id, beyond);
        }
    }

    /// Takes so many of the bytes promised to a session back.
    pub(super) fn cut(&mut self, id: &SessionId, bytes: u64) {
        self.ledger.cut(*id, bytes);
        if let Some(session) = self.sessions.get_mut(id) {
            session.cut = session.cut.saturating_add(bytes);
        }
    }

    /// Returns how many stored bytes are promised to sessions at a donor and not told of by it.
    pub fn promised_at(&self, donor: DonorId) -> u64 {
        self.ledger.promised(donor)
    }

    /// Returns how many stored bytes a member's sessions keep from others: those promised and not written, and those
    /// that donors told of and no file has yet, without reservations and the sessions that draw on them.
    fn held_by(&self, member: MemberId) -> u64 {
        let own = self.own_sessions(member);
        let own = own.filter(|(_, it)| it.room.is_none() && it.draws_on.is_none());
        let held = |id: &SessionId| {
            self.ledger.held_in_all(id).saturating_add(self.uncommitted.bytes_of(id))
        };
        own.fold(0, |sum: u64, (id, _)| sum.saturating_add(held(&id)))
    }
}
