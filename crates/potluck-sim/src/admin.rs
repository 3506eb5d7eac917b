//! The admin's process: it makes the space, invites donors and clients, and then watches the status.

use crate::cast::Who;
use crate::client::SPACE;
use crate::content::CHUNK;
use crate::host::Host;
use crate::plan::Plan;
use crate::stage::Stage;
use potluck_core::policy::{Policy, Redundancy, Width};
use potluck_core::rights::{EVERYONE, Right};
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Call, Invite, PoolStatus, ScrubNow, SpaceCreate, SpaceGrant, Status, Trust,
};
use potluck_wire::identity::Identity;
use potluck_wire::token::Role;
use std::path::PathBuf;
use std::time::Duration;

/// The rate at which every disk is scrubbed, in bytes per second: what a run stores takes a few seconds.
const SCRUB_RATE: u64 = 64 << 20;

/// Returns the policy of the space.
pub fn policy(plan: &Plan) -> Policy {
    let (copies, ec) = match plan.redundancy {
        Redundancy::Copies(copies) => (copies, None),
        Redundancy::Ec(ec) => (1, Some(ec)),
    };
    Policy {
        chunk_size: CHUNK,
        stripe_width: Width::Donors(4),
        copies,
        ec,
        ack: plan.ack,
        sealed: plan.sealed,
        ..Policy::default()
    }
}

/// Runs for the whole scenario. `identity` is the directory where a new pool leaves the first admin's identity.
pub async fn live(stage: Stage, host: Host, identity: PathBuf, policy: Policy) -> turmoil::Result {
    while !Identity::exists(&identity) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    host.become_member(&Identity::load(&identity)?.certificate);
    let caller = host.caller();
    insist(&stage, &caller, &SpaceCreate { name: SPACE.into(), policy }).await;
    let rights = [Right::Read, Right::Write].into_iter().collect();
    let grant = SpaceGrant { space: SPACE.into(), who: EVERYONE.into(), rights };
    insist(&stage, &caller, &grant).await;
    for who in Who::donors().chain(Who::clients()) {
        let role = if matches!(who, Who::Donor(_)) { Role::Donor } else { Role::User };
        let invited = insist(&stage, &caller, &Invite { role, ttl_seconds: 600, name: None }).await;
        stage.invitations.lock().expect("no holder panics").insert(who, invited.secret);
    }
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let status = caller.call(&Status {}).await;
        if let Ok(status) = &status {
            let bad = status.donors.iter().filter(|donor| donor.bad > 0);
            stage.board().named.extend(bad.map(|donor| donor.name.clone()));
            heal(&stage, &caller, status).await;
        }
        // Without an answer the status is unknown.
        stage.board().status = status.ok();
    }
}

/// Trusts all quarantined donors again and orders a scrub of every disk, once, when the driver asks for it.
async fn heal(stage: &Stage, caller: &Caller, status: &PoolStatus) {
    let wanted = {
        let board = stage.board();
        board.healing && board.scrubbed.is_none()
    };
    if !wanted {
        return;
    }
    for donor in status.donors.iter().filter(|donor| donor.quarantined.is_some()) {
        insist(stage, caller, &Trust { donor: donor.donor }).await;
    }
    insist(stage, caller, &ScrubNow { donor: None, rate: SCRUB_RATE }).await;
    let rounds = status.donors.iter().map(|donor| (donor.donor, donor.scrub.rounds));
    stage.board().scrubbed = Some(rounds.collect());
}

/// Repeats a call until the manager answers it.
async fn insist<C: Call>(stage: &Stage, caller: &Caller, request: &C) -> C::Reply {
    loop {
        match caller.call(request).await {
            Ok(reply) => return reply,
            Err(why) => stage.trace.say(Who::Admin, format_args!("{}: {why}", C::NAME)),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
