//! The byte budgets of tickets: what each ticket has stored, over all connections that show it.

use potluck_wire::ticket::Grant;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// Tickets remembered at once, some 4 MiB of them: a pool that opens twenty write sessions a second,
/// each good for an hour.
const MOST: usize = 65_536;

/// The bytes that tickets have stored here, until they expire.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    spent: Mutex<BTreeMap<[u8; 16], Spent>>,
}

#[derive(Debug)]
struct Spent {
    bytes: u64,
    expires: u64,
}

impl Tickets {
    fn spent(&self) -> MutexGuard<'_, BTreeMap<[u8; 16], Spent>> {
        self.spent.lock().expect("no holder panics")
    }

    /// Takes `bytes` of what `grant` may store; `None` when that is used up. `now` is the manager's
    /// clock. A ticket that is not remembered for lack of room is refused, not given a new budget.
    pub fn spend(&self, grant: &Grant, bytes: u32, now: u64) -> Option<Spending<'_>> {
        let bytes = u64::from(bytes);
        let mut spent = self.spent();
        if spent.len() >= MOST && !spent.contains_key(&grant.id) {
            spent.retain(|_, ticket| ticket.expires > now);
            if spent.len() >= MOST {
                return None;
            }
        }
        let ticket = spent.entry(grant.id).or_insert(Spent { bytes: 0, expires: grant.expires });
        // A ticket that was narrowed further may end earlier; it is remembered until the last of its kind
        // ends.
        ticket.expires = ticket.expires.max(grant.expires);
        if bytes > grant.bytes.saturating_sub(ticket.bytes) {
            return None;
        }
        ticket.bytes += bytes;
        Some(Spending { tickets: self, id: grant.id, bytes })
    }
}

/// Bytes taken from a budget; given back when dropped, unless they were stored.
#[derive(Debug)]
pub(crate) struct Spending<'a> {
    tickets: &'a Tickets,
    id: [u8; 16],
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
            && let Some(ticket) = self.tickets.spent().get_mut(&self.id)
        {
            ticket.bytes -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::ticket::{Ops, Secret};

    fn grant(id: u32, bytes: u64, expires: u64) -> Grant {
        let mut raw = [0; 16];
        raw[..4].copy_from_slice(&id.to_le_bytes());
        let secret = Secret::from_bytes([0; 32]);
        Grant { id: raw, ops: Ops::PUT, bytes, expires, session: None, secret }
    }

    #[test]
    fn a_budget_is_spent_once_over_all_connections() {
        let tickets = Tickets::default();
        let grant = grant(1, 10, 100);
        tickets.spend(&grant, 6, 0).expect("within").keep();
        assert!(tickets.spend(&grant, 5, 0).is_none());
        drop(tickets.spend(&grant, 4, 0).expect("the rest"));
        tickets.spend(&grant, 4, 0).expect("given back").keep();
        assert!(tickets.spend(&grant, 1, 0).is_none());
    }

    #[test]
    fn room_for_tickets_comes_from_expired_ones_only() {
        let tickets = Tickets::default();
        for id in 0..MOST as u32 {
            tickets.spend(&grant(id, 1, 100), 1, 0).expect("room").keep();
        }
        assert!(tickets.spend(&grant(u32::MAX, 1, 100), 1, 99).is_none());
        assert!(tickets.spend(&grant(0, 1, 100), 1, 99).is_none(), "no second budget");
        assert!(tickets.spend(&grant(u32::MAX, 1, 200), 1, 100).is_some());
    }
}
