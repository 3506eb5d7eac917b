//! The byte budgets of write sessions: what each has stored here, over all its tickets and connections.
//!
//! A session that stores nothing for a while is *quiet*, and the manager is asked whether it is over. One that
//! is over stores nothing more: it is remembered as such for as long as a ticket of it may still be good, and then
//! forgotten. So there are as many entries as sessions that write here, and renewed tickets give no new budget.

use potluck_core::ids::SessionId;
use potluck_wire::ticket::{Grant, TICKET_LIFE};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Sessions remembered at once, some 8 MiB of them: more than a hundred that begin each second.
const MOST: usize = 131_072;
/// A session is asked about after so long without a put.
const QUIET: Duration = Duration::from_secs(60);
/// A shorter chunk is paid like one of so many bytes, so that the smallest put costs something, too: it takes a
/// file here and a row of the catalog until it is reclaimed.
const LEAST_PAID: u64 = 512;
/// Sessions that one heartbeat asks about; what is more is asked about by the next.
const ASKED: usize = 1024;

/// What write sessions have stored here.
#[derive(Debug, Default)]
pub(crate) struct SessionTickets {
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    spent: BTreeMap<SessionId, Spent>,
    /// When each of them is looked at again, in the manager's milliseconds.
    due: BTreeSet<(u64, SessionId)>,
}

#[derive(Debug)]
struct Spent {
    bytes: u64,
    /// The session stores nothing more.
    over: bool,
    /// When it is to be asked about, or forgotten if it is over.
    until: u64,
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

impl SessionTickets {
    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().expect("no holder panics")
    }

    /// Takes `bytes` of what `grant` lets its session store; `None` when that is used up. `now` is the
    /// manager's clock. A session that is not remembered for lack of room is refused, not given a new budget.
    pub fn spend(
        &self,
        grant: &Grant,
        session: SessionId,
        bytes: u32,
        now: u64,
    ) -> Option<Spending<'_>> {
        let bytes = u64::from(bytes).max(LEAST_PAID);
        let Sessions { spent: sessions, due } = &mut *self.sessions();
        let spent = match sessions.get(&session) {
            Some(spent) if spent.over => return None,
            Some(spent) => spent.bytes,
            None if sessions.len() >= MOST => return None,
            None => 0,
        };
        if bytes > grant.bytes.saturating_sub(spent) {
            return None;
        }
        let until = now.saturating_add(millis(QUIET));
        if sessions.insert(session, Spent { bytes: spent + bytes, over: false, until }).is_none() {
            due.insert((until, session));
        }
        Some(Spending { tickets: self, session, bytes })
    }

    /// Forgets sessions that have been over for long; gives some of those that are to be asked about.
    pub fn quiet(&self, now: u64) -> Vec<SessionId> {
        let Sessions { spent: sessions, due } = &mut *self.sessions();
        let mut quiet = Vec::new();
        while quiet.len() < ASKED
            && let Some((at, session)) = due.first().copied().filter(|(at, _)| *at <= now)
        {
            due.remove(&(at, session));
            match sessions.get(&session) {
                Some(spent) if spent.until > now => {
                    due.insert((spent.until, session));
                }
                Some(spent) if !spent.over => {
                    quiet.push(session);
                    due.insert((now.saturating_add(millis(QUIET)), session));
                }
                _ => drop(sessions.remove(&session)),
            }
        }
        quiet
    }

    /// The manager answered that these are over.
    pub fn end(&self, over: &[SessionId], now: u64) {
        let mut sessions = self.sessions();
        for session in over {
            if let Some(spent) = sessions.spent.get_mut(session).filter(|spent| !spent.over) {
                (spent.over, spent.until) = (true, now.saturating_add(millis(TICKET_LIFE)));
            }
        }
    }
}

/// Bytes taken from a budget; given back when dropped, unless they were stored.
#[derive(Debug)]
pub(crate) struct Spending<'a> {
    tickets: &'a SessionTickets,
    session: SessionId,
    bytes: u64,
}

impl Spending<'_> {
    /// The bytes were stored.
    pub fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        if self.bytes > 0
            && let Some(spent) = self.tickets.sessions().spent.get_mut(&self.session)
        {
            // It may have been forgotten, and begun anew, while a put lay still.
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
        let secret = Secret::from_bytes([0; 32]);
        Grant { ops: Ops::PUT, bytes, issued: 0, expires: u64::MAX, session: None, secret }
    }

    const KIB: u64 = 1024;

    #[test]
    fn a_budget_is_spent_once_over_all_connections_and_renewed_tickets() {
        let (tickets, one) = (SessionTickets::default(), session(1));
        let spend = |budget: u64, kib: u32| tickets.spend(&grant(budget * KIB), one, kib << 10, 0);
        spend(10, 6).expect("within").keep();
        assert!(spend(10, 5).is_none());
        drop(spend(10, 4).expect("the rest"));
        spend(10, 4).expect("given back").keep();
        assert!(spend(10, 1).is_none(), "a renewed ticket has the same budget");
        spend(12, 2).expect("the session was promised more").keep();
        assert!(tickets.spend(&grant(10), session(2), 1, 0).is_none(), "the shortest costs more");
        assert!(tickets.spend(&grant(LEAST_PAID), session(2), 1, 0).is_some());
    }

    #[test]
    fn a_session_that_is_over_stores_nothing_more_and_is_forgotten_when_no_ticket_is_good() {
        let tickets = SessionTickets::default();
        let (ended, open) = (session(1), session(2));
        let grant = grant(10 * KIB);
        for session in [ended, open] {
            tickets.spend(&grant, session, 1 << 10, 0).expect("within").keep();
        }
        assert!(tickets.quiet(millis(QUIET) - 1).is_empty());
        let now = millis(QUIET);
        assert_eq!(tickets.quiet(now), [ended, open]);
        tickets.end(&[ended], now);
        assert!(tickets.quiet(now).is_empty(), "asked about again later");
        assert!(tickets.spend(&grant, ended, 1, now).is_none());
        assert!(tickets.spend(&grant, open, 10 << 10, now).is_none(), "no new budget");
        assert!(tickets.spend(&grant, open, 9 << 10, now).is_some());
        (1..=11).for_each(|round| drop(tickets.quiet(now + round * millis(QUIET))));
        assert_eq!(tickets.sessions().spent.keys().collect::<Vec<_>>(), [&open]);
    }

    #[test]
    fn room_comes_from_sessions_that_are_over_only() {
        let tickets = SessionTickets::default();
        let grant = grant(LEAST_PAID);
        for number in 0..MOST as u64 {
            tickets.spend(&grant, session(number), 1, 0).expect("room").keep();
        }
        assert!(tickets.spend(&grant, session(u64::MAX), 1, 0).is_none());
        assert!(tickets.spend(&grant, session(0), 1, 0).is_none(), "no second budget");
        tickets.end(&[session(0)], 0);
        while !tickets.quiet(2 * millis(TICKET_LIFE)).is_empty() {}
        assert!(tickets.spend(&grant, session(u64::MAX), 1, 0).is_some());
    }

    #[test]
    fn fifty_sessions_a_second_for_a_day_are_never_refused() {
        const RATE: u64 = 50;
        /// Seconds for which each session is open.
        const OPEN_FOR: u64 = 20;
        let tickets = SessionTickets::default();
        let mut most = 0;
        for second in 0..24 * 3600 {
            let now = second * 1000;
            for number in second * RATE..(second + 1) * RATE {
                let spending = tickets.spend(&grant(1 << 20), session(number), 1 << 16, now);
                spending.expect("never refused").keep();
            }
            let asked = tickets.quiet(now);
            let begun = |session: &SessionId| {
                u64::from_le_bytes(session.0[..8].try_into().expect("8 bytes")) / RATE
            };
            let over: Vec<_> =
                asked.into_iter().filter(|session| begun(session) + OPEN_FOR < second).collect();
            tickets.end(&over, now);
            most = most.max(tickets.sessions().spent.len());
        }
        let lasts = millis(QUIET + TICKET_LIFE) / 1000 + 2;
        assert!(most as u64 <= RATE * lasts, "{most} entries");
        assert!(most < MOST / 2);
    }
}
