//! Where this manager is, for those who look for it: signed by the pool's authority, and shown to the
//! donors that do not find it.

use crate::ca::Ca;
use crate::hold;
use crate::service::Service;
use futures_util::StreamExt;
use futures_util::stream;
use potluck_core::ids::{DonorId, Epoch};
use potluck_wire::addresses::{Address, Addresses};
use potluck_wire::race::first_of;
use potluck_wire::whereabouts::{SignedWhereabouts, Whereabouts, ask};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// After a start donors have so long to come by themselves.
const FIRST: Duration = Duration::from_secs(5);
/// Those that have not come are visited so often.
const AGAIN: Duration = Duration::from_secs(30);
/// Donors visited side by side.
const AT_ONCE: usize = 16;

/// Where this manager is, and whether another one has its place.
#[derive(Debug)]
pub struct Signpost {
    told: Addresses,
    signed: Mutex<Option<(Epoch, SignedWhereabouts)>>,
    superseded: Mutex<Option<Whereabouts>>,
}

impl Signpost {
    /// Of a manager at these addresses.
    pub fn new(told: Addresses) -> Self {
        Self { told, signed: Mutex::default(), superseded: Mutex::default() }
    }

    /// What it shows in this epoch; `None` when it cannot be signed.
    fn shown(&self, ca: &Ca, epoch: Epoch) -> Option<SignedWhereabouts> {
        let mut signed = self.signed.lock().expect("no holder panics");
        if let Some((_, shown)) = signed.as_ref().filter(|(of, _)| *of == epoch) {
            return Some(shown.clone());
        }
        let said = Whereabouts { epoch, addresses: self.told.clone() };
        match ca.sign_whereabouts(&said) {
            Ok(shown) => Some(signed.insert((epoch, shown)).1.clone()),
            Err(why) => {
                tracing::error!(%why, "where the manager is cannot be signed");
                None
            }
        }
    }

    /// The alarm that another manager of the pool has this one's place.
    pub fn alarm(&self) -> Option<String> {
        let superseded = self.superseded.lock().expect("no holder panics");
        let other = superseded.as_ref()?;
        Some(format!(
            "another manager of this pool, at {}, started later than this one, and donors follow \
             it. Stop one of the two for good: this one, if it was restored elsewhere",
            other.addresses
        ))
    }
}

impl Service {
    /// Where this manager is, signed.
    pub fn whereabouts(&self) -> Option<SignedWhereabouts> {
        self.signpost.shown(&self.ca, self.epoch())
    }
}

/// Visits the donors that do not come by themselves, until dropped.
pub async fn run(service: Arc<Service>) {
    tokio::time::sleep(FIRST).await;
    loop {
        let missing = service.pool().missing();
        stream::iter(missing)
            .for_each_concurrent(AT_ONCE, |(donor, at)| visit(&service, donor, at))
            .await;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Shows the donor at `address` where a manager is that collects what donors have. Such a one begins
/// with the first epoch; it goes beyond the one that the donor knows, and shows itself again.
pub async fn call_in(service: &Service, address: &Address) {
    for _ in 0..2 {
        let Some(shown) = service.whereabouts() else { return };
        let asked = ask(&*service.env.net, address, Some(&shown)).await;
        let answer =
            asked.map_err(|why| tracing::debug!(%address, "cannot be visited: {why}")).ok();
        let knows = answer.and_then(|answer| answer.verified(service.ca.certificate()));
        match knows.filter(|knows| knows.addresses != service.signpost.told) {
            Some(other) => {
                if let Err(why) = hold::learn(service, other.epoch).await {
                    return tracing::warn!("what {address} knows cannot be noted: {why}");
                }
            }
            None => return,
        }
    }
}

async fn visit(service: &Service, donor: DonorId, addresses: Addresses) {
    let Some(shown) = service.whereabouts() else { return };
    let net = &*service.env.net;
    let shown = &shown;
    let asked = first_of(&addresses, |at| async move { ask(net, &at, Some(shown)).await }).await;
    let Ok((at, answer)) = asked else { return };
    tracing::debug!(%donor, %at, "was told where the manager is");
    let knows = answer.verified(service.ca.certificate());
    if let Some(later) = knows.filter(|knows| knows.epoch > service.epoch()) {
        let mut superseded = service.signpost.superseded.lock().expect("no holder panics");
        if superseded.as_ref() != Some(&later) {
            tracing::error!(%donor, other = %later.addresses, "another manager of this pool started later");
        }
        *superseded = Some(later);
    }
}
