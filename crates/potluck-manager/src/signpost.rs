//! Where this manager is, for those who look for it: signed by the pool's authority, and shown to the
//! donors that do not find it.

use crate::init::update_admin_address;
use crate::kit;
use crate::service::Service;
use futures_util::StreamExt;
use futures_util::stream;
use potluck_core::ids::DonorId;
use potluck_wire::addresses::Addresses;
use potluck_wire::own_addresses::{Watch, from_this_machine};
use potluck_wire::race::first_of;
use potluck_wire::whereabouts::ask;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// After a start donors have so long to come by themselves.
const FIRST: Duration = Duration::from_secs(5);
/// Those that have not come are visited so often.
const AGAIN: Duration = Duration::from_secs(30);
/// Donors visited side by side.
const AT_ONCE: usize = 16;

/// When the machine gets other addresses, has what others are told, and what is kept for later, follow.
pub async fn follow_addresses(service: Arc<Service>, mut watch: Watch, listen: SocketAddr) {
    let here = from_this_machine(listen).into();
    loop {
        let told = watch.moved().await;
        tracing::info!("the machine's addresses changed: the manager is reached at {told}");
        service.signpost.move_to(told.clone());
        let (ours, with_here) = (Arc::clone(&service), told.and(&here));
        let kept = service.env.offload.run(move || {
            update_admin_address(&ours.state, &with_here)?;
            kit::keep(&ours.state, &ours.pool_name, &told, &*ours.env.entropy)
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
