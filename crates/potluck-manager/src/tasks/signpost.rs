//! Signs this manager's whereabouts with the pool's authority, and shows them to the donors that do not find the
//! manager.

use crate::handles::handles;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use futures_util::StreamExt;
use futures_util::stream;
use potluck_core::ids::DonorId;
use potluck_recovery::admin::update_admin_address;
use potluck_recovery::kit;
use potluck_recovery::pool_authority::PoolAuthority;
use potluck_recovery::state_dir::StateDir;
use potluck_recovery::whereabouts::Signpost;
use potluck_wire::addresses::Addresses;
use potluck_wire::env::Env;
use potluck_wire::own_addresses::{AddressWatch, from_this_machine};
use potluck_wire::race::first_of;
use potluck_wire::whereabouts::{Issue, SignedWhereabouts, ask};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

handles! {
    /// The handles for telling where the manager is.
    pub struct Signposts {
        env: Env,
        time: PoolTime,
        term: Arc<OwnTerm>,
        pool: SharedPool,
        authority: Arc<PoolAuthority>,
        signpost: Arc<Signpost>,
        state: Arc<StateDir>,
        whereabouts: OwnWhereabouts,
    }
}

handles! {
    /// The handles for signing where the manager is.
    pub struct OwnWhereabouts {
        term: Arc<OwnTerm>,
        authority: Arc<PoolAuthority>,
        signpost: Arc<Signpost>,
    }
}

impl OwnWhereabouts {
    /// Returns the signed whereabouts of this manager; `None` if they cannot be signed.
    pub fn signed(&self) -> Option<SignedWhereabouts> {
        self.signpost.shown(self.term.epoch(), |said| self.authority.sign_whereabouts(said))
    }

    /// Returns the issue of this manager's whereabouts that holds now.
    pub fn issue(&self) -> Issue {
        self.signpost.issue(self.term.epoch())
    }
}

/// The time after a start in which donors may report by themselves, before the first visit.
const FIRST: Duration = Duration::from_secs(5);
/// The time between two visits to donors that have not reported.
const AGAIN: Duration = Duration::from_secs(30);
/// The number of donors that are visited at once.
const AT_ONCE: usize = 16;

impl Signposts {
    /// Follows the addresses of the machine: when they change, the manager's signed whereabouts, the first admin's
    /// identity and the recovery kit get the new ones.
    pub async fn follow_addresses(self, mut watch: AddressWatch, listen: SocketAddr) {
        let here = from_this_machine(listen).into();
        loop {
            let told = watch.moved().await;
            tracing::info!("the machine's addresses changed: the manager is reached at {told}");
            self.signpost.move_to(told.clone());
            let (ours, with_here) = (self.clone(), told.and(&here));
            let kept = self.env.offload.run(move || {
                update_admin_address(&ours.state, &with_here)?;
                kit::keep(&ours.state, &ours.term.pool_name, &told, &*ours.env.entropy)
            });
            if let Err(why) = kept.await {
                tracing::error!("cannot keep the manager's new addresses: {why}");
            }
        }
    }

    /// Visits the donors that do not report by themselves, and all when the manager has moved, until it is dropped.
    pub async fn run(self) {
        let mut wait = FIRST;
        loop {
            let donors: Vec<_> = tokio::select! {
                () = self.signpost.moves() => self.pool.lock().located().collect(),
                () = tokio::time::sleep(wait) => self.pool.lock().missing(self.time.tick()),
            };
            wait = AGAIN;
            stream::iter(donors)
                .for_each_concurrent(AT_ONCE, |(donor, at)| self.visit(donor, at))
                .await;
        }
    }

    async fn visit(&self, donor: DonorId, addresses: Addresses) {
        let Some(shown) = self.whereabouts.signed() else { return };
        let net = &*self.env.net;
        let shown = &shown;
        let asked =
            first_of(&addresses, |at| async move { ask(net, &at, Some(shown)).await }).await;
        let Ok((at, answer)) = asked else { return };
        tracing::debug!(%donor, %at, "was told where the manager is");
        let knows = self.authority.verified(&answer);
        if let Some(later) = knows.filter(|knows| knows.issue.epoch > self.term.epoch()) {
            let at = later.addresses.clone();
            if self.signpost.note_superseded(later) {
                tracing::error!(%donor, other = %at, "another manager of this pool started later");
            }
        }
    }
}
