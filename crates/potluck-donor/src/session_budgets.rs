//! The byte budgets of write sessions: the bytes that each has stored here, over all its tickets and connections.
//!
//! Each heartbeat asks which sessions are over. The entry of a session that is over is removed at once; its id is
//! remembered for as long as a ticket of it may still be good, so that renewed and old tickets give no new budget. When
//! there are too many such ids the oldest is forgotten, and a session without an entry then needs a ticket that was
//! issued after the forgotten one had ended. So a member who opens and ends very many sessions does not keep others
//! from writing: at worst they have to renew their tickets.
//!
//! Members who keep very many sessions open do not either: a member may have as many entries as are left, so that each
//! has fewer the more members have many, and whoever has few is let in.

use potluck_core::ids::{MemberId, SessionId};
use potluck_wire::ticket::{Grant, TICKET_LIFE};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};

/// The most sessions that are not over and have an entry here: they take some 8 MiB. One member has a few thousand.
const MOST: usize = 131_072;
/// The most sessions that are over and remembered: enough for some two hundred that end each second while their tickets
/// may be good.
const MOST_OVER: usize = 131_072;
/// The least number of bytes that a put takes from the budget. Each chunk takes a file here and a row of the catalog
/// until it is reclaimed, so the smallest put must cost something, too.
const LEAST_PAID: u64 = 512;
/// The most sessions that one heartbeat asks about; the next heartbeats ask about further ones.
const ASKED: usize = 8192;

/// The bytes that write sessions have stored here.
#[derive(Debug, Default)]
pub(crate) struct SessionTickets {
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    /// The sessions that stored something here.
    spent: BTreeMap<SessionId, Spent>,
    /// The number of these sessions of each member; `None` stands for the manager.
    of_members: BTreeMap<Option<MemberId>, usize>,
    /// The session that was last asked about.
    asked: Option<SessionId>,
    over: Over,
    /// The bytes that sessions have stored since the process began.
    stored: u64,
    /// The bytes of puts that are under way.
    under_way: u64,
    /// What the manager said of the room promised here.
    promised: PromisedHere,
}

/// The stored bytes that the manager has promised to all sessions here.
#[derive(Debug, Clone, Copy, Default)]
struct PromisedHere {
    bytes: u64,
    /// The value of [`Sessions::stored`] when that was asked for: what was stored since is promised no more.
    asked_at: u64,
}

/// The bytes that a session has stored.
#[derive(Debug)]
struct Spent {
    bytes: u64,
    member: Option<MemberId>,
}

impl Sessions {
    /// Returns the bytes that are promised and not stored, as far as is known.
    fn promised_now(&self) -> u64 {
        let since = self.stored - self.promised.asked_at;
        self.promised.bytes.saturating_sub(since).saturating_sub(self.under_way)
    }

    /// Returns whether a member may have one more entry: it has fewer than are left.
    fn has_room_for(&self, member: Option<MemberId>) -> bool {
        let own = self.of_members.get(&member).copied().unwrap_or_default();
        own < MOST.saturating_sub(self.spent.len())
    }

    /// Notes how many bytes a member's session has stored.
    fn note(&mut self, session: SessionId, member: Option<MemberId>, bytes: u64) {
        match self.spent.entry(session) {
            Entry::Occupied(mut spent) => spent.get_mut().bytes = bytes,
            Entry::Vacant(empty) => {
                empty.insert(Spent { bytes, member });
                *self.of_members.entry(member).or_default() += 1;
            }
        }
    }

    /// Removes the entry of a session.
    fn remove(&mut self, session: &SessionId) {
        let Some(Spent { member, .. }) = self.spent.remove(session) else { return };
        if let Entry::Occupied(mut count) = self.of_members.entry(member) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The sessions that are over, for as long as a ticket of theirs may still be good.
#[derive(Debug, Default)]
struct Over {
    sessions: BTreeSet<SessionId>,
    /// The sessions that are over, each with the time of the manager in milliseconds at which that was heard, oldest
    /// first.
    in_order: VecDeque<(u64, SessionId)>,
    /// The end of the latest session that was forgotten too early, in milliseconds of the manager. Tickets that were
    /// issued up to then may be of a forgotten session.
    forgotten: Option<u64>,
}

impl Over {
    fn add(&mut self, session: SessionId, now: u64) {
        if !self.sessions.insert(session) {
            return;
        }
        self.in_order.push_back((now, session));
        if self.in_order.len() > MOST_OVER
            && let Some((at, first)) = self.in_order.pop_front()
        {
            self.sessions.remove(&first);
            self.forgotten = Some(at);
        }
    }

    /// Forgets the sessions whose tickets have all expired.
    fn forget(&mut self, now: u64) {
        let good = now.saturating_sub(TICKET_LIFE.as_millis() as u64);
        while let Some((_, first)) = self.in_order.pop_front_if(|(at, _)| *at < good) {
            self.sessions.remove(&first);
        }
    }

    /// Returns whether a ticket may belong to a session that is over.
    fn may_have(&self, grant: &Grant, session: &SessionId) -> bool {
        self.sessions.contains(session) || self.forgotten.is_some_and(|at| grant.issued <= at)
    }
}

impl SessionTickets {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().expect("no holder panics")
    }

    /// Takes `bytes` from the budget that `grant` gives its session. Returns `None` if too little is left, if the
    /// session is over or may be one that was forgotten, or if there is no room for one more session of its member.
    pub fn spend(&self, grant: &Grant, session: SessionId, bytes: u32) -> Option<Spending<'_>> {
        let bytes = u64::from(bytes).max(LEAST_PAID);
        let mut sessions = self.sessions();
        let spent = match sessions.spent.get(&session) {
            Some(spent) => spent.bytes,
            None if !sessions.has_room_for(grant.member) => return None,
            None if sessions.over.may_have(grant, &session) => return None,
            None => 0,
        };
        if bytes > grant.bytes.saturating_sub(spent) {
            return None;
        }
        sessions.note(session, grant.member, spent + bytes);
        let promised_to_others = match grant.promised.checked_sub(spent) {
            Some(own) if own >= bytes => 0,
            own => sessions.promised_now().saturating_sub(own.unwrap_or(0)),
        };
        sessions.under_way += bytes;
        Some(Spending { tickets: self, session, bytes, promised_to_others })
    }

    /// Returns how many bytes sessions have stored, for the next [`SessionTickets::promise`].
    pub fn stored(&self) -> u64 {
        self.sessions().stored
    }

    /// Notes that the manager said how many bytes are promised to all sessions here, of which it had heard nothing that was
    /// stored after `asked_at`.
    pub fn promise(&self, bytes: u64, asked_at: u64) {
        self.sessions().promised = PromisedHere { bytes, asked_at };
    }

    /// Returns whether a session is known to be over, so that its tickets count for nothing.
    pub fn is_over(&self, session: &SessionId) -> bool {
        self.sessions().over.sessions.contains(session)
    }

    /// Returns the sessions that the next heartbeat asks about: each in its turn, at most `ASKED`.
    pub fn to_ask(&self) -> Vec<SessionId> {
        let Sessions { spent, asked, .. } = &mut *self.sessions();
        let after = asked.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = spent.range((after, Bound::Unbounded));
        let first =
            spent.range((Bound::Unbounded, asked.map_or(Bound::Unbounded, Bound::Included)));
        let turns = rest.chain(first.take_while(|_| asked.is_some())).map(|(session, _)| *session);
        let turns: Vec<SessionId> = turns.take(ASKED).collect();
        *asked = turns.last().copied();
        turns
    }

    /// Notes that the manager said at `now` (its own time in milliseconds) that these sessions are over.
    pub fn end(&self, ended: &[SessionId], now: u64) {
        let mut sessions = self.sessions();
        sessions.over.forget(now);
        for session in ended {
            sessions.remove(session);
            sessions.over.add(*session, now);
        }
    }
}

/// Bytes that were taken from a budget; they are given back when this is dropped before [`Spending::keep`].
#[derive(Debug)]
pub(crate) struct Spending<'a> {
    tickets: &'a SessionTickets,
    session: SessionId,
    bytes: u64,
    promised_to_others: u64,
}

impl Spending<'_> {
    /// Returns how many bytes of the donor's room must be left to other sessions, to which they are promised: none while
    /// the session stores what was promised to itself.
    pub fn promised_to_others(&self) -> u64 {
        self.promised_to_others
    }

    /// Notes that the bytes were stored, so that they are not given back.
    pub fn keep(mut self) {
        let mut sessions = self.tickets.sessions();
        sessions.stored += self.bytes;
        sessions.under_way -= self.bytes;
        drop(sessions);
        self.bytes = 0;
    }
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut sessions = self.tickets.sessions();
        sessions.under_way -= self.bytes;
        if let Some(spent) = sessions.spent.get_mut(&self.session) {
            // The session's entry may have been removed and made anew while a put was under way, so it may have less
            // than is given back.
            spent.bytes = spent.bytes.saturating_sub(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::ticket::{Ops, Secret};

    fn session(number: u64) -> SessionId {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&number.to_le_bytes());
        SessionId(raw)
    }

    fn grant(bytes: u64) -> Grant {
        issued(bytes, 0)
    }

    fn issued(bytes: u64, issued: u64) -> Grant {
        let secret = Secret::from_bytes([0; 32]);
        let (session, member, expires) = (None, None, u64::MAX);
        let promised = u64::MAX;
        Grant { ops: Ops::PUT, bytes, promised, issued, expires, session, member, secret }
    }

    fn of(member: u32, grant: Grant) -> Grant {
        Grant { member: Some(MemberId(member)), ..grant }
    }

    const KIB: u64 = 1024;

    #[test]
    fn session_budget_spans_connections_and_renewals() {
        let (tickets, one) = (SessionTickets::default(), session(1));
        let spend = |budget: u64, kib: u32| tickets.spend(&grant(budget * KIB), one, kib << 10);
        spend(10, 6).expect("within").keep();
        assert!(spend(10, 5).is_none());
        drop(spend(10, 4).expect("the rest"));
        spend(10, 4).expect("given back").keep();
        assert!(spend(10, 1).is_none(), "a renewed ticket has the same budget");
        spend(12, 2).expect("the session was promised more").keep();
        assert!(tickets.spend(&grant(10), session(2), 1).is_none(), "the shortest costs more");
        assert!(tickets.spend(&grant(LEAST_PAID), session(2), 1).is_some());
    }

    #[test]
    fn session_beyond_its_promise_leaves_the_room_of_others() {
        let (tickets, one) = (SessionTickets::default(), session(1));
        let spend = |kib: u32| {
            let grant = Grant { promised: 10 * KIB, ..grant(100 * KIB) };
            let spending = tickets.spend(&grant, one, kib << 10).expect("within its budget");
            let left = spending.promised_to_others();
            spending.keep();
            left
        };
        tickets.promise(50 * KIB, tickets.stored());
        assert_eq!(spend(6), 0, "it was promised that much");
        assert_eq!(spend(4), 0);
        assert_eq!(spend(1), 40 * KIB, "others were promised the rest");
        tickets.promise(40 * KIB, tickets.stored());
        let under_way = tickets.spend(&grant(20 * KIB), session(2), 15 << 10).expect("room");
        assert_eq!(spend(1), 25 * KIB, "some of it is being stored");
        drop(under_way);
        tickets.promise(0, tickets.stored());
        assert_eq!(spend(1), 0, "their room came back");
    }

    #[test]
    fn ended_session_budget_is_dropped_and_its_tickets_void() {
        let tickets = SessionTickets::default();
        let (ended, open) = (session(1), session(2));
        for session in [ended, open] {
            tickets.spend(&grant(10 * KIB), session, 1 << 10).expect("within").keep();
        }
        assert_eq!(tickets.to_ask(), [ended, open]);
        let now = 1000;
        tickets.end(&[ended], now);
        assert_eq!(tickets.to_ask(), [open]);
        assert!(tickets.is_over(&ended) && !tickets.is_over(&open));
        let later = issued(10 * KIB, now + 1);
        assert!(tickets.spend(&later, ended, 1).is_none(), "however young its ticket is");
        assert!(tickets.spend(&grant(10 * KIB), open, 10 << 10).is_none(), "no new budget");
        assert!(tickets.spend(&grant(10 * KIB), open, 9 << 10).is_some());
        tickets.end(&[], now + TICKET_LIFE.as_millis() as u64 + 1);
        let sessions = tickets.sessions();
        assert!(sessions.over.sessions.is_empty() && sessions.over.in_order.is_empty());
    }

    #[test]
    fn each_session_is_asked_about_in_its_turn() {
        let tickets = SessionTickets::default();
        let all = ASKED as u64 + 10;
        for number in 0..all {
            tickets.spend(&grant(KIB), session(number), 1).expect("room").keep();
        }
        let (first, second) = (tickets.to_ask(), tickets.to_ask());
        assert_eq!((first.len(), second.len()), (ASKED, ASKED));
        let asked: BTreeSet<_> = first.into_iter().chain(second).collect();
        assert_eq!(asked.len() as u64, all);
    }

    #[test]
    fn room_comes_from_sessions_that_are_over_only() {
        let tickets = SessionTickets::default();
        let grant = grant(LEAST_PAID);
        for number in 0..MOST as u64 / 2 {
            tickets.spend(&grant, session(number), 1).expect("room").keep();
        }
        assert!(tickets.spend(&grant, session(u64::MAX), 1).is_none(), "the others are for others");
        assert!(tickets.spend(&grant, session(0), 1).is_none(), "no second budget");
        tickets.end(&[session(0)], 0);
        assert!(tickets.spend(&grant, session(u64::MAX), 1).is_some());
    }

    #[test]
    fn members_with_many_sessions_do_not_evict_those_of_others() {
        /// The sessions that a manager lets a member have.
        const OF_MEMBER: u64 = 4096;
        let tickets = SessionTickets::default();
        let opens = |member: u32, number: u64| {
            let session = session(u64::from(member) << 32 | number);
            let spending = tickets.spend(&of(member, grant(LEAST_PAID)), session, 1);
            spending.map(Spending::keep).is_some()
        };
        // Of so many members each has fewer than it asks for, and they have more than half of all.
        for number in 0..OF_MEMBER {
            for member in 0..60 {
                opens(member, number);
            }
        }
        let few = |sessions: usize| sessions < OF_MEMBER as usize;
        assert!(tickets.sessions().of_members.values().all(|sessions| few(*sessions)));
        assert!(tickets.sessions().spent.len() > MOST / 2);
        for member in 1000..1100 {
            assert!((0..10).all(|number| opens(member, number)), "member {member}");
        }
        // What ended is there for all.
        tickets.end(&tickets.to_ask(), 0);
        assert!(opens(0, OF_MEMBER + 1), "it has had its share of fewer");
        let sessions = tickets.sessions();
        let sum: usize = sessions.of_members.values().sum();
        assert_eq!(sum, sessions.spent.len());
    }

    #[test]
    fn fifty_sessions_a_second_survive_a_member_opening_600() {
        /// The sessions that an honest member opens each second, and the seconds for which each is open. A session
        /// whose ticket is refused renews it, as clients do.
        const RATE: u64 = 50;
        const OPEN_FOR: u64 = 20;
        /// The sessions that the other member opens each second, for an hour of the day. Each stores a byte and ends.
        const HOSTILE: u64 = 600;
        const HOUR: std::ops::Range<u64> = 7200..10_800;
        let tickets = SessionTickets::default();
        let number =
            |session: &SessionId| u64::from_le_bytes(session.0[..8].try_into().expect("8 bytes"));
        let hostile = |second: u64| {
            let numbers = if HOUR.contains(&second) { 0..HOSTILE } else { 0..0 };
            numbers.map(move |it| u64::MAX - second * HOSTILE - it)
        };
        let (mut renewed, mut most) = (0, 0);
        for second in 0..24 * 3600 {
            let now = second * 1000;
            for number in hostile(second) {
                let spending = tickets.spend(&issued(1 << 20, now), session(number), 1);
                spending.expect("a new ticket").keep();
            }
            for number in second * RATE..(second + 1) * RATE {
                // This session first stores something here long after its ticket was issued.
                let old = issued(1 << 20, now.saturating_sub(300_000));
                let spending = tickets.spend(&old, session(number), 1 << 16).or_else(|| {
                    renewed += 1;
                    tickets.spend(&issued(1 << 20, now), session(number), 1 << 16)
                });
                spending.expect("never refused").keep();
            }
            let is_over = |session: &SessionId| {
                let number = number(session);
                number > u64::MAX / 2 || number / RATE + OPEN_FOR < second
            };
            let over: Vec<_> = tickets.to_ask().into_iter().filter(is_over).collect();
            tickets.end(&over, now);
            let sessions = tickets.sessions();
            most = most.max(sessions.spent.len());
            assert!(sessions.over.sessions.len() <= MOST_OVER);
        }
        assert!(most as u64 <= RATE * (OPEN_FOR + 2) + HOSTILE, "{most} entries");
        // Tickets have to be renewed only while sessions of the hostile member are remembered.
        assert!(renewed <= RATE * (3600 + 600), "{renewed} tickets");
    }
}
