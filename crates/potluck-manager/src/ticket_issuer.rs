//! Issues tickets for donors, and describes donors to the clients that use the tickets.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId};
use potluck_pool::{DonorContact, Pool, Ticketed};
use potluck_wire::control::{DonorAccess, Source};
use potluck_wire::env::Env;
use potluck_wire::ticket::{Caveat, Ops, TICKET_LIFE, Ticket};
use std::time::Duration;

handles! {
    /// The handles for issuing tickets.
    pub struct TicketIssuer {
        env: Env,
        time: PoolTime,
    }
}

/// The validity of a ticket to fetch for an order. An order is carried out within a minute or given anew.
const FETCH_FOR: Duration = Duration::from_secs(300);

/// Returns the contacts of `donors`, without those that were removed from the pool.
pub fn contacts(
    pool: &Pool,
    donors: impl IntoIterator<Item = DonorId>,
    now: Tick,
) -> Vec<DonorContact> {
    donors.into_iter().filter_map(|donor| pool.contact(donor, now)).collect()
}

impl TicketIssuer {
    /// Returns the caveats of a ticket that is valid for `time` from now on.
    fn lasting(&self, time: Duration) -> [Caveat; 2] {
        let now = self.time.now_ms();
        [Caveat::Issued(now), Caveat::Expires(now + time.as_millis() as u64)]
    }

    /// Makes tickets that let a session write to `donors` and read from them.
    pub fn for_writing(
        &self,
        session: SessionId,
        ticketed: &Ticketed,
        donors: Vec<DonorContact>,
    ) -> Vec<DonorAccess> {
        let [issued, expires] = self.lasting(TICKET_LIFE);
        let (budgets, promises) = (ticketed.budgets(), ticketed.promises());
        let caveats = |donor| {
            [
                Caveat::Donor(donor),
                Caveat::Ops(Ops::PUT.and(Ops::GET)),
                Caveat::Bytes(budgets.get(&donor).copied().unwrap_or_default()),
                Caveat::Promised(promises.get(&donor).copied().unwrap_or_default()),
                issued,
                expires,
                Caveat::Session(session),
                Caveat::Member(ticketed.member),
            ]
        };
        donors.into_iter().map(|contact| self.access(contact, caveats)).collect()
    }

    /// Returns a donor as a source from which others may fetch; `None` while the donor is not live or its key is not
    /// known.
    pub fn source(&self, contact: DonorContact) -> Option<Source> {
        let key = contact.signer.filter(|_| contact.live)?.key;
        let [issued, expires] = self.lasting(FETCH_FOR);
        let caveats = [Caveat::Donor(contact.donor), Caveat::Ops(Ops::GET), issued, expires];
        let ticket = Ticket::issue(&key, &*self.env.entropy, &caveats);
        Some(Source { donor: contact.donor, addresses: contact.addresses, ticket })
    }

    /// Makes tickets that let a member read from `donors`.
    pub fn for_reading(&self, member: MemberId, donors: Vec<DonorContact>) -> Vec<DonorAccess> {
        let [issued, expires] = self.lasting(TICKET_LIFE);
        let (ops, member) = (Caveat::Ops(Ops::GET), Caveat::Member(member));
        let caveats = |donor| [Caveat::Donor(donor), ops, issued, expires, member];
        donors.into_iter().map(|contact| self.access(contact, caveats)).collect()
    }

    fn access<const N: usize>(
        &self,
        contact: DonorContact,
        caveats: impl Fn(DonorId) -> [Caveat; N],
    ) -> DonorAccess {
        let issue = |key| Ticket::issue(key, &*self.env.entropy, &caveats(contact.donor));
        DonorAccess {
            donor: contact.donor,
            ticket: contact.signer.as_ref().map(|signer| issue(&signer.key)),
            incarnation: contact.signer.map(|signer| signer.incarnation),
            name: contact.name,
            addresses: contact.addresses,
            live: contact.live,
            load: contact.load,
            rates: contact.rates,
            limits: contact.limits,
            domain: contact.domain,
        }
    }
}
