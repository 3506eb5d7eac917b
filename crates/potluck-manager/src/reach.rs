//! Whether donors are reached where others are told that they are. One that reports each second may
//! still be behind a firewall, or tell addresses that only it can use: nobody could store or read
//! there, and nobody would know why.
//!
//! Every address is tried with a ticket that no other donor takes, so that another machine that has
//! the same address elsewhere is not taken for it.

use crate::service::Service;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use http::StatusCode;
use potluck_pool::Contact;
use potluck_wire::addresses::Address;
use potluck_wire::race::Unreached;
use potluck_wire::ticket::{Caveat, Ops, Ticket};
use potluck_wire::upgrade::{OpenError, open_at};
use std::sync::Arc;
use std::time::Duration;

/// Donors tried side by side: some of them make the manager wait for seconds.
const AT_ONCE: usize = 16;
/// From one look for donors that are due to the next.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the ticket is good with which a donor is tried.
const TICKET: Duration = Duration::from_secs(60);

/// Tries donors until dropped.
pub async fn run(service: Arc<Service>) {
    loop {
        let due = service.pool().due_for_a_try(service.time.tick());
        stream::iter(due).for_each_concurrent(AT_ONCE, |donor| try_donor(&service, donor)).await;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A connection of a member ended. When a donor's last word came over it, and the donor is nowhere to be
/// reached, it died, and nobody is told for seconds that all is well: this costs one try, and
/// nothing while nobody dies.
pub async fn connection_ended(service: &Service, connection: u64) {
    let now = service.time.tick();
    let Some((contact, heard)) = service.pool().speaks_over(connection, now) else { return };
    if let Some((reached, _)) = try_at_all(service, &contact).await
        && reached.is_empty()
    {
        service.pool().hung_up(contact.donor, heard);
    }
}

async fn try_donor(service: &Service, contact: Contact) {
    let Some((reached, why)) = try_at_all(service, &contact).await else { return };
    service.pool().tried(contact.donor, &contact.addresses, &reached, why, service.time.tick());
}

/// The addresses at which a donor is reached, and why not at the others; `None` where nobody could
/// prove to be it.
async fn try_at_all(service: &Service, contact: &Contact) -> Option<(Vec<Address>, String)> {
    let key = contact.key.as_ref()?;
    let expires = service.time.now_ms() + TICKET.as_millis() as u64;
    let caveats = [Caveat::Donor(contact.donor), Caveat::Ops(Ops::GET), Caveat::Expires(expires)];
    let (net, entropy) = (&*service.env.net, &*service.env.entropy);
    let ticket = Ticket::issue(key, entropy, &caveats);
    let tries = contact.addresses.iter().map(|address| async {
        (address.clone(), open_at(net, entropy, address.clone(), &ticket).await)
    });
    let (mut reached, mut failed): (Vec<Address>, Vec<_>) = Default::default();
    for (address, opened) in join_all(tries).await {
        match opened {
            // A donor that starts does not know its number yet, and one that stops has forgotten it.
            Ok(_) | Err(OpenError::Refused(StatusCode::SERVICE_UNAVAILABLE)) => {
                reached.push(address);
            }
            Err(OpenError::Refused(_)) => failed.push((address, "another donor answers".into())),
            Err(OpenError::Io(why)) => failed.push((address, why.to_string())),
            Err(why) => failed.push((address, why.to_string())),
        }
    }
    Some((reached, Unreached::<String>(failed).to_string()))
}
