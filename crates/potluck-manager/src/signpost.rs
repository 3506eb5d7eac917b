//! Where this manager is, for those who look for it: signed by the pool's authority, and shown to the
//! donors that do not find it.

use crate::ca::Ca;
use crate::init::update_admin_address;
use crate::kit;
use crate::service::Service;
use futures_util::StreamExt;
use futures_util::stream;
use potluck_core::ids::{DonorId, Epoch};
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{Alarm, AlarmKind};
use potluck_wire::own_addresses::{Watch, from_this_machine};
use potluck_wire::race::first_of;
use potluck_wire::whereabouts::{Issue, SignedWhereabouts, Whereabouts, ask};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// After a start donors have so long to come by themselves.
const FIRST: Duration = Duration::from_secs(5);
/// Those that have not come are visited so often.
const AGAIN: Duration = Duration::from_secs(30);
/// Donors visited side by side.
const AT_ONCE: usize = 16;

/// Where this manager is, and whether another one has its place.
#[derive(Debug)]
pub struct Signpost {
    told: Mutex<Told>,
    signed: Mutex<Option<(Issue, SignedWhereabouts)>>,
    superseded: Mutex<Option<Whereabouts>>,
    /// Wakes who tells the donors.
    moved: Notify,
}

/// What is to be signed.
#[derive(Debug)]
struct Told {
    /// How often the addresses changed.
    moves: u64,
    addresses: Addresses,
}

impl Signpost {
    /// Of a manager at these addresses.
    pub fn new(told: Addresses) -> Self {
        let told = Mutex::new(Told { moves: 0, addresses: told });
        let (signed, superseded, moved) = Default::default();
        Self { told, signed, superseded, moved }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("no holder panics")
    }

    /// The manager is reached elsewhere from now on.
    fn move_to(&self, addresses: Addresses) {
        {
            let mut told = self.told();
            *told = Told { moves: told.moves + 1, addresses };
        }
        self.moved.notify_one();
    }

    /// Which of a manager's whereabouts hold in this epoch.
    pub fn issue(&self, epoch: Epoch) -> Issue {
        Issue { epoch, moves: self.told().moves }
    }

    /// Where members are told that it is.
    pub fn addresses(&self) -> Addresses {
        self.told().addresses.clone()
    }

    /// What it shows in this epoch; `None` when it cannot be signed.
    pub fn shown(&self, ca: &Ca, epoch: Epoch) -> Option<SignedWhereabouts> {
        let said = {
            let told = self.told();
            let issue = Issue { epoch, moves: told.moves };
            Whereabouts { issue, addresses: told.addresses.clone() }
        };
        let mut signed = self.signed.lock().expect("no holder panics");
        if let Some((_, shown)) = signed.as_ref().filter(|(of, _)| *of == said.issue) {
            return Some(shown.clone());
        }
        match ca.sign_whereabouts(&said) {
            Ok(shown) => Some(signed.insert((said.issue, shown)).1.clone()),
            Err(why) => {
                tracing::error!(%why, "where the manager is cannot be signed");
                None
            }
        }
    }

    /// The alarm that another manager of the pool has this one's place.
    pub fn alarm(&self) -> Option<Alarm> {
        let superseded = self.superseded.lock().expect("no holder panics");
        let other = superseded.as_ref()?;
        let what = format!(
            "another manager of this pool, at {}, started later than this one, and donors follow it",
            other.addresses
        );
        let advice = "stop one of the two for good: this one, if it was restored elsewhere";
        Some(Alarm::new(AlarmKind::OtherManager, what, advice))
    }
}

impl Service {
    /// Where this manager is, signed.
    pub fn whereabouts(&self) -> Option<SignedWhereabouts> {
        self.signpost.shown(&self.ca, self.epoch())
    }

    /// Which of a manager's whereabouts hold.
    pub fn issue(&self) -> Issue {
        self.signpost.issue(self.epoch())
    }
}

/// When the machine gets other addresses, has what others are told, and what is kept for later, follow.
pub async fn follow_addresses(service: Arc<Service>, mut watch: Watch, listen: SocketAddr) {
    let here = from_this_machine(listen).into();
    loop {
        let told = watch.moved().await;
        tracing::info!("the machine's addresses changed: the manager is reached at {told}");
        service.signpost.move_to(told.clone());
        let (keeper, with_here) = (Arc::clone(&service), told.and(&here));
        let kept = service.env.offload.run(move || {
            update_admin_address(&keeper.state, &with_here)?;
            kit::keep(&keeper.state, &keeper.pool_name, &told, &*keeper.env.entropy)
        });
        if let Err(why) = kept.await {
            tracing::error!("cannot keep the manager's new addresses: {why}");
        }
    }
}

/// Visits the donors that do not come by themselves, and all when the manager has moved, until dropped.
pub async fn run(service: Arc<Service>) {
    let moved = &service.signpost.moved;
    let mut wait = FIRST;
    loop {
        let donors: Vec<_> = tokio::select! {
            () = moved.notified() => service.pool().located().collect(),
            () = tokio::time::sleep(wait) => service.pool().missing(service.time.tick()),
        };
        wait = AGAIN;
        stream::iter(donors)
            .for_each_concurrent(AT_ONCE, |(donor, at)| visit(&service, donor, at))
            .await;
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
    if let Some(later) = knows.filter(|knows| knows.issue.epoch > service.epoch()) {
        let mut superseded = service.signpost.superseded.lock().expect("no holder panics");
        if superseded.as_ref() != Some(&later) {
            tracing::error!(%donor, other = %later.addresses, "another manager of this pool started later");
        }
        *superseded = Some(later);
    }
}
