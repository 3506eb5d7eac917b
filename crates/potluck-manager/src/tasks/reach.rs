//! Tries whether donors are reached at the addresses that others are told. A donor that reports each second may still
//! be behind a firewall, or announce addresses that only it can use: no member could store or read there, and none
//! would know why.
//!
//! Every address is tried with a ticket that no other donor accepts, so that another machine with the same address in
//! another network is not taken for the donor.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use http::StatusCode;
use potluck_pool::DonorContact;
use potluck_wire::addresses::Address;
use potluck_wire::env::Env;
use potluck_wire::race::NoneReached;
use potluck_wire::ticket::{Caveat, Ops, Ticket};
use potluck_wire::upgrade::{UpgradeError, open_at};
use std::time::Duration;

handles! {
    /// The handles for trying donors.
    pub struct Reach {
        env: Env,
        time: PoolTime,
        pool: SharedPool,
    }
}

/// The number of donors that are tried at once: some of them make the manager wait for seconds.
const AT_ONCE: usize = 16;
/// The pause before the next look for donors that are due to be tried.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The validity of the ticket with which a donor is tried.
const TICKET: Duration = Duration::from_secs(60);

impl Reach {
    /// Tries donors until dropped.
    pub async fn run(self) {
        loop {
            let due = self.pool.lock().due_for_a_try(self.time.tick());
            stream::iter(due).for_each_concurrent(AT_ONCE, |donor| self.try_donor(donor)).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Tries the donor whose last call came over a connection that ended. If it is reached at no address, it counts as
    /// silent at once, so that the pool is not called well for the seconds until its heartbeats are missed.
    pub async fn connection_ended(&self, connection: u64) {
        let now = self.time.tick();
        let Some((contact, heard)) = self.pool.lock().speaks_over(connection, now) else { return };
        if let Some((reached, _)) = self.try_at_all(&contact).await
            && reached.is_empty()
        {
            self.pool.lock().hung_up(contact.donor, heard);
        }
    }

    async fn try_donor(&self, contact: DonorContact) {
        let Some((reached, why)) = self.try_at_all(&contact).await else { return };
        self.pool.lock().tried(contact.donor, &contact.addresses, &reached, why, self.time.tick());
    }

    /// Returns the addresses at which a donor is reached, and why it is not reached at the others; `None` if the
    /// manager does not know the donor's key, by which a machine proves to be that donor.
    async fn try_at_all(&self, contact: &DonorContact) -> Option<(Vec<Address>, String)> {
        let key = &contact.signer.as_ref()?.key;
        let now = self.time.now_ms();
        let caveats = [
            Caveat::Donor(contact.donor),
            Caveat::Ops(Ops::GET),
            Caveat::Issued(now),
            Caveat::Expires(now + TICKET.as_millis() as u64),
        ];
        let (net, entropy) = (&*self.env.net, &*self.env.entropy);
        let ticket = Ticket::issue(key, entropy, &caveats);
        let tries = contact.addresses.iter().map(|address| async {
            (address.clone(), open_at(net, entropy, address.clone(), &ticket).await)
        });
        let (mut reached, mut failed): (Vec<Address>, Vec<_>) = Default::default();
        for (address, opened) in join_all(tries).await {
            match opened {
                // A donor that starts does not know its number yet, and one that stops has forgotten it.
                Ok(_) | Err(UpgradeError::Refused(StatusCode::SERVICE_UNAVAILABLE)) => {
                    reached.push(address);
                }
                Err(UpgradeError::Refused(_)) => {
                    failed.push((address, "another donor answers".into()))
                }
                Err(UpgradeError::Io(why)) => failed.push((address, why.to_string())),
                Err(why) => failed.push((address, why.to_string())),
            }
        }
        Some((reached, NoneReached::<String>(failed).to_string()))
    }
}
