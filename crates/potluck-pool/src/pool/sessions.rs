//! Write sessions: how they begin, grow, end and are resumed.

use super::Pool;
use super::planning::{PlanRequest, Planned, Writer};
use crate::offered::OfferedChunks;
use crate::write_session::{
    MANAGER, MEMBERS_SLACK, NewSession, NoSession, OpenSession, ResumedSession, SessionAtDonor,
    Ticketed, TooManyOffered,
};
use potluck_core::chunk::ChunkName;
use potluck_core::chunk_file::disk_bytes_of_chunks;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use potluck_core::placement::striping::Striping;
use potluck_core::placement::{Plan, Refusal};
use potluck_core::policy::{Mirror, Policy};
use potluck_wire::control::Holding;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// The plaintext bytes promised at first to a session of unknown size, or a chunk (of an erasure code, the data of a
/// group) if that is more: most files are small, and many may be written at a time. The writer asks for more as it
/// goes.
pub(super) const STARTING_BYTES: u64 = 4 << 20;
/// The amount from which a starting amount that does not fit is not halved again: where [`STARTING_BYTES`] do not fit,
/// half of it is tried, and so on, until no more than this was tried.
pub(super) const LEAST_STARTING_BYTES: u64 = 64 << 10;

/// The time within which a call that was let in is answered, or nobody waits for its answer any more.
const LONGEST_CALL: Duration = Duration::from_secs(30);

/// The most sessions of one member at once: a few processes on each of a thousand machines that share an identity.
const MOST_SESSIONS: usize = 4096;

/// The most chunks that one call may offer: they are looked up under the lock of the pool, and written in one job of
/// the catalog.
const MOST_OFFERED_AT_ONCE: usize = 16_384;
/// The most chunks that the sessions of one member may have offered and not committed. Each takes some 150 bytes of
/// memory and a part of a row of the catalog for as long as its session lasts, whatever was promised to it. What its
/// ended sessions left counts, too, until it may be reclaimed.
const MOST_OPEN_NAMES: usize = 1 << 20;

impl Pool {
    /// Opens a session and promises it `bytes` of plaintext: a starting amount for `None`, and nothing, which needs
    /// no donor, for `Some(0)`.
    pub fn open_session(
        &mut self,
        new: NewSession,
        bytes: Option<u64>,
        now: Tick,
    ) -> Result<Ticketed, Refusal> {
        let (member, policy, guessed) = (new.member, &new.policy, bytes.is_none());
        let writer = Writer { member, peer: new.peer, link: new.link };
        let (planned, bytes) = match bytes {
            Some(0) => (Planned { plan: no_plan(policy), striping: Striping::default() }, 0),
            Some(bytes) => {
                let bytes = stored(policy, bytes);
                let files = Some(bytes.saturating_mul(data_chunks(policy)));
                let ask = PlanRequest { writer, policy, bytes, files, avoid: &[], whole: false };
                let plan = |pool: &Self| pool.plan(&ask, now);
                (self.taking_guesses_back(member, None, plan)?, bytes)
            }
            None => self.taking_guesses_back(member, None, |pool| {
                pool.starting_plan(writer, policy, now)
            })?,
        };
        let Planned { plan, striping } = planned;
        let bytes = bytes.saturating_mul(data_chunks(&new.policy));
        self.ledger.reserve(new.id, plan.promised());
        let id = new.id;
        let opened = OpenSession::new(new, plan, bytes, now);
        let session = OpenSession { guessed, striping, ..opened };
        let ticketed = session.ticketed();
        self.insert_session(id, session);
        Ok(ticketed)
    }

    fn insert_session(&mut self, id: SessionId, session: OpenSession) {
        self.sessions_of.entry(session.member).or_default().insert(id);
        if session.room.is_some() {
            self.rooms.insert(id);
        }
        self.sessions.insert(id, session);
    }

    /// Returns whether a member has as many sessions as it may. Sessions that ended and are not accounted for yet
    /// count too: each takes room, memory and rows of the catalog until then.
    pub fn has_most_sessions(&self, member: MemberId) -> bool {
        self.sessions_of.get(&member).is_some_and(|own| own.len() >= MOST_SESSIONS)
    }

    /// Resumes a session of an earlier term of the manager; its lease starts anew. Unless it was ending, it is promised
    /// again what it had for files that are not visible yet.
    pub fn resume_session(
        &mut self,
        stored: NewSession,
        resumed: ResumedSession,
        offered: &[ChunkName],
        now: Tick,
    ) {
        let ResumedSession { plan, bytes, counted, draws_on, ending } = resumed;
        if !ending {
            self.ledger.reserve(stored.id, plan.promised());
        }
        let mut cut = 0;
        if stored.room.is_none() && bytes > 0 {
            let promised = u128::from(self.ledger.held_in_all(&stored.id));
            let over = promised * u128::from(bytes.saturating_sub(counted)) / u128::from(bytes);
            cut = over as u64;
            self.ledger.cut(stored.id, cut);
        }
        self.offered.resume(stored.id, offered);
        let id = stored.id;
        let opened = OpenSession::new(stored, plan, bytes, now);
        let unpaid = bytes.saturating_sub(counted);
        let session = OpenSession { began: None, ending, draws_on, counted, unpaid, cut, ..opened };
        self.insert_session(id, session);
    }

    /// Promises `bytes` of plaintext more, of which donors take `most`. Returns the new part of the plan, with all its
    /// redundancy if it is to be `whole`.
    pub(crate) fn grow_session(
        &mut self,
        id: &SessionId,
        (bytes, most): (u64, u64),
        (avoid, whole): (&[DonorId], bool),
        now: Tick,
    ) -> Result<Plan, Refusal> {
        let Some(session) = self.sessions.get(id) else { return Err(Refusal::NoDonors) };
        let (member, policy) = (session.member, session.policy.clone());
        let writer = Writer { member, peer: session.peer, link: session.link };
        let (stored, draws_on) = (stored(&policy, bytes), session.draws_on);
        let stripe = &session.plan.stripe() - &avoid.iter().copied().collect();
        let ask = PlanRequest { writer, policy: &policy, bytes: stored, files: None, avoid, whole };
        let plan = self.drawing(draws_on, |pool| {
            let plan = |pool: &Self| match pool.plan_within(&stripe, &ask, now) {
                Some(planned) => Ok(planned.plan),
                None => pool.plan(&ask, now).map(|planned| planned.plan),
            };
            pool.taking_guesses_back(member, Some(*id), plan)
        })?;
        self.ledger.grow(*id, plan.promised());
        if let Some(session) = self.sessions.get_mut(id) {
            session.guessed = false;
            session.plan.extend(plan.clone());
            let stored = stored.saturating_mul(data_chunks(&policy));
            session.bytes = session.bytes.saturating_add(stored);
            session.pay(bytes, most);
        }
        Ok(plan)
    }

    /// Plans for a session of a member. If there is no room, plans again without what was promised to other sessions of
    /// the member by guess, not because they asked for it: a session may be kept open for files that are yet to come. As
    /// long as there is room, they write all the same.
    fn taking_guesses_back<T>(
        &mut self,
        member: MemberId,
        but: Option<SessionId>,
        plan: impl Fn(&Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let planned = plan(self);
        if !matches!(planned, Err(Refusal::NoSpace { .. })) {
            return planned;
        }
        let is_guess = |(id, session): &(SessionId, &OpenSession)| {
            let is_free = session.goes_on() && session.draws_on.is_none();
            session.guessed && is_free && Some(*id) != but
        };
        let guesses = self.own_sessions(member).filter(is_guess);
        let guesses =
            guesses.map(|(id, session)| (id, session.untold(&self.ledger.held(id)).collect()));
        let guesses: Vec<(SessionId, BTreeMap<DonorId, u64>)> = guesses.collect();
        if guesses.is_empty() {
            return planned;
        }
        for (id, untold) in guesses {
            self.ledger.reserve(id, untold);
            self.sessions.entry(id).and_modify(|session| session.cut = u64::MAX);
        }
        plan(self)
    }

    /// Notes that a session brought receipts that these donors did not give, or gave under another key. That counts
    /// against donors that had their keys before the session began, and only in sessions whose clients get the receipts
    /// from the donors themselves.
    pub fn note_false_receipts(&mut self, id: &SessionId, donors: &BTreeSet<DonorId>, now: Tick) {
        let Some(session) = self.sessions.get(id).filter(|it| !it.policy.mirror.is_server()) else {
            return;
        };
        for donor in donors {
            let keyed = self.donors.registration(*donor).map(|registration| registration.keyed);
            if keyed.zip(session.began).is_some_and(|(keyed, began)| keyed < began) {
                self.false_receipts.note(session.member, *donor, now);
            }
        }
    }

    /// Returns the donors of which a member's sessions brought false receipts, which these sessions avoid.
    pub fn distrusted_by(&self, member: MemberId, now: Tick) -> BTreeSet<DonorId> {
        self.false_receipts.seen_by(member, now)
    }

    /// Returns the members whose sessions brought false receipts of a donor.
    pub fn distrusting(&self, donor: DonorId, now: Tick) -> Vec<MemberId> {
        self.false_receipts.witnesses(donor, now)
    }

    /// Notes that one of a session's own calls arrived from `member`: the lease is renewed, and does not end before
    /// [`Pool::leave`]. A session that was parked goes on.
    pub fn enter(
        &mut self,
        id: &SessionId,
        member: MemberId,
        now: Tick,
    ) -> Result<Ticketed, NoSession> {
        let session = self.sessions.get_mut(id).ok_or(NoSession)?;
        if session.ending || session.member != member || session.room.is_some() {
            return Err(NoSession);
        }
        session.heard = now;
        session.busy += 1;
        let ticketed = session.ticketed();
        if self.unpark(id) {
            self.keep_to_share(id, now);
        }
        Ok(ticketed)
    }

    /// Notes from which address a session's calls come.
    pub fn calls_from(&mut self, id: &SessionId, peer: IpAddr) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.peer = Some(peer);
        }
    }

    /// Notes that a call of a session is answered.
    pub fn leave(&mut self, id: &SessionId, now: Tick) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.busy = session.busy.saturating_sub(1);
            session.heard = now;
        }
    }

    /// Allows more to donors that refused a session's tickets because they had taken all that they might, as long as
    /// anything is left of what the session and its member may have. The client's word is taken for it.
    pub fn allow_more(&mut self, id: &SessionId, donors: &[DonorId]) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let taken = self.slack_taken.entry(session.member).or_default();
        for donor in donors {
            *taken += session.allow_more(*donor, MEMBERS_SLACK.saturating_sub(*taken));
        }
    }

    /// Returns the facts of a session that its tickets are made of.
    pub fn ticketed(&self, id: &SessionId) -> Option<Ticketed> {
        self.sessions.get(id).map(OpenSession::ticketed)
    }

    /// Notes chunks that a session is going to write: they are no garbage until it ends. Returns those that it had
    /// not offered before; none for an unknown session.
    ///
    /// Errors: they are more than one call may offer, than the session may write, or than its member may have open;
    /// none of them is protected then.
    pub fn offer(
        &mut self,
        id: &SessionId,
        names: &[ChunkName],
    ) -> Result<Vec<ChunkName>, TooManyOffered> {
        let Some(session) = self.sessions.get(id) else { return Ok(Vec::new()) };
        if names.len() > MOST_OFFERED_AT_ONCE {
            return Err(TooManyOffered::AtOnce);
        }
        let before = self.offered.count_by(id);
        let new = names.iter().filter(|name| !self.offered.is_offered_by(id, name)).count();
        if (before + new) as u64 > session.ticketed().most_names() {
            return Err(TooManyOffered::Reserved);
        }
        let member = session.member;
        let of_member = self.open_names.get(&member).copied().unwrap_or_default();
        let left = self.left_names.get(&member).map_or(0, |left| left.count(session.heard));
        if of_member + new + left as usize > MOST_OPEN_NAMES {
            return Err(TooManyOffered::OfMember);
        }
        Ok(self.offering(member, id, |offered| offered.add(*id, names)))
    }

    /// Changes what a session has offered, and with it how many chunks its member has open.
    fn offering<T>(
        &mut self,
        member: MemberId,
        id: &SessionId,
        change: impl FnOnce(&mut OfferedChunks) -> T,
    ) -> T {
        let before = self.offered.open_by(id);
        let changed = change(&mut self.offered);
        let after = self.offered.open_by(id);
        let open = self.open_names.entry(member).or_default();
        *open = (*open + after).saturating_sub(before);
        if *open == 0 {
            self.open_names.remove(&member);
        }
        changed
    }

    /// Withdraws offers of chunks that are in use from now on, which protects them.
    pub fn withdraw_offers(&mut self, id: &SessionId, names: &BTreeSet<ChunkName>) {
        let Some(member) = self.sessions.get(id).map(|session| session.member) else { return };
        self.offering(member, id, |offered| offered.withdraw(id, names));
    }

    /// Notes that a session committed a file of these chunks, which stay offered: their writer may use them for
    /// other files.
    pub fn offers_committed(&mut self, id: &SessionId, names: &BTreeSet<ChunkName>) {
        let Some(member) = self.sessions.get(id).map(|session| session.member) else { return };
        self.offering(member, id, |offered| offered.committed(id, names.iter()));
    }

    /// Notes that a session committed files of so many bytes, and the bytes that each donor `acknowledged`.
    pub fn note_committed(
        &mut self,
        id: &SessionId,
        bytes: u64,
        acknowledged: impl Iterator<Item = (DonorId, u64)>,
    ) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.committed = session.committed.saturating_add(bytes);
            for (donor, bytes) in acknowledged {
                let sum = session.acknowledged.entry(donor).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
    }

    /// Notes that so many bytes of a session's files are visible now: they count as stored, and no longer as
    /// promised.
    pub fn note_visible(&mut self, id: &SessionId, bytes: u64) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.visible = session.visible.saturating_add(bytes);
        }
    }

    /// Returns whether a session offered a chunk.
    pub fn is_offered_by(&self, id: &SessionId, name: &ChunkName) -> bool {
        self.offered.is_offered_by(id, name)
    }

    /// Returns whether a session's member may be told that the pool has a chunk which no visible file uses: that member
    /// alone can have stored it, or the session knows of it. Others send it, so that nobody is told what a file had that
    /// was removed, or an upload that ended.
    pub fn tells_of_unused(&self, id: &SessionId, name: &ChunkName) -> bool {
        let is_own = |member| self.uncommitted.is_stored_by(name, member);
        self.member_of(id).is_some_and(is_own) || self.knows_of(id, name)
    }

    /// Returns the member whose sessions alone offered a chunk.
    pub(super) fn offered_only_by(&self, name: &ChunkName) -> Option<MemberId> {
        let mut members = self.offered.sessions(name).map(|session| self.member_of(&session));
        let first = members.next()??;
        members.all(|other| other == Some(first)).then_some(first)
    }

    /// Returns whether a session committed a file that has the chunk, or was told that the pool has it.
    pub fn knows_of(&self, id: &SessionId, name: &ChunkName) -> bool {
        self.offered.knows_of(id, name)
    }

    /// Notes that a session was told that the pool has these chunks: it does not send them, and a file that it makes of
    /// them is as good when no other file uses them any more by then.
    pub fn told<'a>(&mut self, id: &SessionId, names: impl Iterator<Item = &'a ChunkName>) {
        names.for_each(|name| self.offered.told(id, name));
    }

    /// Returns the session to which a chunk of `len` stored bytes counts that no file uses, if any offered it, and how
    /// many bytes count: those of as many of the `copies` as files of the session have.
    pub fn kept_for(&self, name: &ChunkName, len: u32, copies: usize) -> Option<(SessionId, u64)> {
        let id = self.offered.one_of(name)?;
        let most = self.sessions.get(&id)?.policy.redundancy().donors();
        Some((id, u64::from(len) * (copies as u64).min(most.into())))
    }

    /// Returns the sessions that keep more than they may store, and than the slack of a member, of chunks that no file
    /// uses and that would be reclaimed if no session had offered them. `kept` has the stored bytes of these chunks.
    pub fn keep_too_much(&self, kept: &BTreeMap<SessionId, u64>) -> Vec<SessionId> {
        let keeps_too_much = |(id, bytes): &(&SessionId, &u64)| {
            let session = self.sessions.get(*id).filter(|it| !it.ending && it.member != MANAGER);
            let most = |it: &OpenSession| it.ticketed().most_stored().saturating_add(MEMBERS_SLACK);
            session.is_some_and(|session| **bytes > most(session))
        };
        kept.iter().filter(keeps_too_much).map(|(id, _)| *id).collect()
    }

    /// Returns the open sessions whose lease has ended.
    pub fn expired(&self, now: Tick) -> Vec<SessionId> {
        let lease = self.limits.lease;
        let over = |session: &OpenSession| {
            !session.ending
                && session.room.is_none()
                && session.parked.is_none()
                && session.busy == 0
                && now.saturating_sub(session.heard) > lease
        };
        self.sessions.iter().filter(|(_, session)| over(session)).map(|(id, _)| *id).collect()
    }

    /// Returns whether a session is open and not parked. A call that was let in may find it otherwise, if another call
    /// ended or interrupted the session in between.
    pub fn goes_on(&self, id: &SessionId) -> bool {
        self.sessions.get(id).is_some_and(OpenSession::goes_on)
    }

    /// Returns the member that opened a session.
    pub fn member_of(&self, session: &SessionId) -> Option<MemberId> {
        self.sessions.get(session).map(|session| session.member)
    }

    /// Returns the sessions of a member that are not ending.
    pub fn sessions_of(&self, member: MemberId) -> Vec<SessionId> {
        let own = self.own_sessions(member).filter(|(_, session)| !session.ending);
        own.map(|(id, _)| id).collect()
    }

    /// Returns all sessions of a member.
    pub(super) fn own_sessions(
        &self,
        member: MemberId,
    ) -> impl Iterator<Item = (SessionId, &OpenSession)> {
        let own = self.sessions_of.get(&member).into_iter().flatten();
        own.filter_map(move |id| Some((*id, self.sessions.get(id)?)))
    }

    /// Returns the open sessions, each with its member and its space.
    pub fn writers(&self) -> Vec<(SessionId, MemberId, SpaceId)> {
        let open = self.sessions.iter().filter(|(_, session)| !session.ending);
        open.map(|(id, session)| (*id, session.member, session.space)).collect()
    }

    /// Returns those of `sessions` that are over and for which donors make no more copies, and also all that were cut
    /// off a moment ago, whether they were asked about or not.
    pub fn over(&self, sessions: &[SessionId], now: Tick) -> Vec<SessionId> {
        let is_open = |id: &SessionId| {
            self.sessions.get(id).is_some_and(|session| !session.ending)
                || self.ended_sessions.is_copying(id, now)
        };
        let mut over = self.ended_sessions.to_tell(now);
        over.extend(sessions.iter().filter(|id| !is_open(id)));
        over
    }

    /// Notes that a session is about to end because its member may not write any more: all donors are told, so that
    /// its tickets are void within seconds.
    pub fn cut_off(&mut self, id: &SessionId, now: Tick) {
        self.ended_sessions.cut_off(*id, now);
    }

    /// Notes that a session has committed all that it will. If donors make its copies afterwards, they may still send
    /// each other what it stored.
    pub fn session_is_done(&mut self, id: &SessionId, now: Tick) {
        let copies_later = |it: &OpenSession| {
            it.policy.mirror == Mirror::ServerAsync && !it.acknowledged.is_empty()
        };
        if self.sessions.get(id).is_some_and(copies_later) {
            self.ended_sessions.may_still_copy(*id, now);
        }
    }

    /// Voids all tickets issued until now, because some member's rights end. Members that still have their rights ask
    /// for new ones. `now_ms` is the time by which tickets are issued.
    pub fn void_tickets(&mut self, now_ms: u64) {
        self.rights_ended_ms = Some(now_ms);
    }

    /// Returns the time, by the manager's clock in milliseconds, before which all tickets are void. Tickets of calls
    /// that were being answered while rights ended are void too, once those calls are over.
    pub fn tickets_void_before(&self, now_ms: u64) -> u64 {
        let Some(ended) = self.rights_ended_ms else { return 0 };
        let calls_over = ended.saturating_add(LONGEST_CALL.as_millis() as u64);
        if now_ms > calls_over { calls_over } else { ended + 1 }
    }

    /// Begins the end of a session: its promises are free, its calls are refused. Its chunks stay
    /// protected until [`Pool::forget_session`], when the catalog has accounted for them.
    pub fn end_session(&mut self, id: &SessionId) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.ending = true;
            let (draws_on, most) = (session.draws_on, session.not_needed());
            let unused = self.ledger.release(*id);
            // Bytes that donors have stored and not yet told of are no room for others. The next heartbeats say anew
            // how much room there is.
            for (donor, untold) in session.untold(&unused) {
                if let Some(registration) = self.donors.registration_mut(donor) {
                    let untold = disk_bytes_of_chunks(untold, session.policy.chunk_size);
                    registration.room = registration.room.saturating_sub(untold);
                }
            }
            self.give_to_reservation(draws_on, unused, most);
        }
    }

    /// Takes back a session that was just opened and could not be kept, with all that was promised to it: what it
    /// drew from a reservation is there again.
    pub fn take_back(&mut self, id: &SessionId) {
        self.end_session(id);
        self.forget_session(id);
    }

    /// Returns the sessions that are ending.
    pub fn ending(&self) -> Vec<SessionId> {
        let ending = self.sessions.iter().filter(|(_, session)| session.ending);
        ending.map(|(id, _)| *id).collect()
    }

    /// Forgets a session. Returns, by donor, the copies that donors told of and whose chunks no session is writing now.
    pub fn forget_session(&mut self, id: &SessionId) -> BTreeMap<DonorId, Vec<Holding>> {
        let Some(session) = self.sessions.remove(id) else { return BTreeMap::new() };
        let member = session.member;
        if let Entry::Occupied(mut taken) = self.slack_taken.entry(member) {
            *taken.get_mut() = taken.get().saturating_sub(session.slack);
            if *taken.get() == 0 {
                taken.remove();
            }
        }
        self.rooms.remove(id);
        if let Entry::Occupied(mut own) = self.sessions_of.entry(member) {
            own.get_mut().remove(id);
            if own.get().is_empty() {
                own.remove();
            }
        }
        self.ledger.release(*id);
        let left = self.offered.open_by(id) as u64;
        if left > 0 {
            self.left_names.entry(member).or_default().add(left, session.heard);
        }
        let names = self.offering(member, id, |offered| offered.forget(id));
        self.uncommitted.forget_session(id, names.iter(), |name| self.offered.one_of(name))
    }

    /// Returns the sessions that may still write at one of these donors, the oldest first.
    pub fn writing_at(&self, donors: &BTreeSet<DonorId>, now: Tick) -> Vec<SessionAtDonor> {
        let writing = self.sessions.values().filter(|session| {
            session.parked.is_none()
                && session.room.is_none()
                && !session.plan.donors().is_disjoint(donors)
        });
        let at_donor = |session: &OpenSession| SessionAtDonor {
            member: session.member,
            age: session.began.map(|began| now.saturating_sub(began)),
            silent: match session.busy {
                0 => now.saturating_sub(session.heard),
                _ => Duration::ZERO,
            },
        };
        let mut writing: Vec<_> = writing.map(at_donor).collect();
        // A session of an earlier term of the manager is older than those of this one.
        writing.sort_by_key(|session| Reverse(session.age.unwrap_or(Duration::MAX)));
        writing
    }

    /// Returns the number of open sessions, without those that are parked and without reservations.
    pub fn open_sessions(&self) -> usize {
        let is_writing = |session: &OpenSession| session.parked.is_none() && session.room.is_none();
        let open = |session: &&OpenSession| !session.ending && is_writing(session);
        self.sessions.values().filter(open).count()
    }
}

/// Returns the stored bytes of one copy of `plain` bytes in chunks, or, of an erasure code, those at one position of
/// their groups.
pub(super) fn stored(policy: &Policy, plain: u64) -> u64 {
    let (full, left) = (plain / group(policy), plain % group(policy));
    let last = match (policy.ec, left) {
        (_, 0) => 0,
        (Some(ec), left) => ec.shard_len(left, policy.chunk_size),
        (None, left) => left as u32,
    };
    full.saturating_mul(policy.chunk_size.into()).saturating_add(last.into())
}

/// Returns the plaintext bytes of a slot of the plan: a chunk, or the data of a group.
pub(super) fn group(policy: &Policy) -> u64 {
    u64::from(policy.chunk_size) * data_chunks(policy)
}

/// Returns how many chunks of a slot of the plan are data and no redundancy.
fn data_chunks(policy: &Policy) -> u64 {
    policy.ec.map_or(1, |ec| ec.data() as u64)
}

fn no_plan(policy: &Policy) -> Plan {
    let chunk_size = policy.chunk_size;
    Plan { stripe_size: 1, sections: Vec::new(), copies: policy.redundancy().donors(), chunk_size }
}
