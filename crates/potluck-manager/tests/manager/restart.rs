//! Tests that the state of a pool survives the manager's process.

use crate::garbage::remove;
use crate::granting::{path, policy_set, reserve_bytes};
use crate::lab::{
    Donor, LEN, Lab, chunk, commit, eventually, file, offer, refused, reserve, write,
};
use potluck_core::attributes::Permissions;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::Incarnation;
use potluck_core::policy::{Override, SeriesRule};
use potluck_core::quota::Quota;
use potluck_wire::control::{
    MakeDir, Open, Outcome, PolicySet, QuotaSet, Renew, RenewLeases, SeriesPurge, Status,
};
use potluck_wire::error::{ErrorKind, code};
use potluck_wire::ticket::TicketTime;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_write_session_goes_on_after_a_restart_d4() {
    let mut lab = Lab::new().await;
    let ada = lab.join(potluck_wire::token::Role::User, "ada").await;
    let (user, mut donor) = (lab.caller(&ada), lab.donor("basement").await);
    let reserved = reserve(&user, 1 << 20).await.expect("reserved");
    let session = reserved.session;
    offer(&user, session, &[1]).await;
    let before = lab.admin().call(&Status {}).await.expect("status");

    lab.stop().await;
    lab.start().await;
    let user = lab.caller(&ada);
    user.call(&Renew { session, refused: Vec::new(), traffic: Vec::new() })
        .await
        .expect("still open");
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert_eq!(status.epoch.0, before.epoch.0 + 1);
    assert_eq!((status.sessions, status.donors[0].promised), (1, before.donors[0].promised));

    // The receipt cannot be checked before its donor has registered, so the client is to come
    // again.
    let batch = || vec![file(&session, "pot://lab/a", &[1], &[&donor])];
    let early = commit(&user, session, 0, batch(), true).await.expect_err("too early");
    assert_eq!((early.kind, early.code.as_str()), (ErrorKind::Retry, code::NOT_ACKNOWLEDGED));
    donor.caller = lab.caller(&donor.identity);
    assert!(donor.send_heartbeat(donor.heartbeat(1)).await.register);
    donor.report(&[chunk(1)]).await;
    let batch = vec![file(&session, "pot://lab/a", &[1], &[&donor])];
    let done = commit(&user, session, 0, batch, true).await.expect("committed");
    assert!(matches!(done.files[0], Outcome::Stored { .. }));

    // A ticket of the former term is good with the same key, and the pool's time has not gone back.
    let ticket = reserved.donors[0].ticket.as_ref().expect("a ticket");
    donor.incarnation = Incarnation(2);
    let said = donor.send_heartbeat(donor.heartbeat(2)).await;
    let time = TicketTime { now: said.now_ms, void_before: said.void_before };
    ticket.public.grant(&donor.key, donor.id, time).expect("still good");
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_session_reserves_only_its_uncommitted_bytes() {
    let mut lab = Lab::new().await;
    let ada = lab.join(potluck_wire::token::Role::User, "ada").await;
    let (user, mut donor) = (lab.caller(&ada), lab.donor("basement").await);
    let len = u64::from(LEN);
    let quota = Quota { bytes: Some(12 * len), files: None };
    lab.admin()
        .call(&QuotaSet { of: "pot://lab".into(), change: quota.into() })
        .await
        .expect("set");
    let session = reserve_bytes(&user, "pot://lab", 10 * len).await.expect("fits").session;
    let chunks: Vec<u64> = (1..=9).collect();
    offer(&user, session, &chunks).await;
    let one = |n: &u64| file(&session, &format!("pot://lab/{n}"), &[*n], &[&donor]);
    let batch = chunks.iter().map(one).collect();
    let told = commit(&user, session, 0, batch, false).await.expect("committed").files;
    assert!(told.iter().all(|told| matches!(told, Outcome::Stored { .. })), "{told:?}");

    lab.stop().await;
    lab.start().await;
    let user = lab.caller(&ada);
    donor.caller = lab.caller(&donor.identity);
    let names: Vec<_> = chunks.iter().copied().map(chunk).collect();
    donor.report(&names).await;
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert_eq!((status.sessions, status.donors[0].promised), (1, len));
    let over = reserve_bytes(&user, "pot://lab/b", 2 * len + 1).await.expect_err("one is promised");
    assert_eq!(over.code, code::OVER_QUOTA);
    reserve_bytes(&user, "pot://lab/b", 2 * len).await.expect("beside nine and one");
}

#[tokio::test(flavor = "multi_thread")]
async fn series_purge_waits_after_restart_for_read_leases() {
    let mut lab = Lab::new().await;
    let dir = path("pot://lab/run");
    let (permissions, owner) = (Permissions::DIR, None);
    let make = MakeDir { path: dir.clone(), parents: false, permissions, owner };
    lab.admin().call(&make).await.expect("made");
    let series = SeriesRule { keep_last: Some(1), ..SeriesRule::default() };
    let policy = Override { series, ..Override::default() };
    lab.admin().call(&PolicySet { policy, ..policy_set("pot://lab/run") }).await.expect("set");
    let purge = |dry_run| SeriesPurge { dir: dir.clone(), dry_run };
    lab.admin().call(&purge(false)).await.expect("at its first start it knows all readers");
    lab.stop().await;
    lab.start().await;
    let early = refused(&lab.admin(), &purge(false)).await;
    assert_eq!((early.kind, early.code.as_str()), (ErrorKind::Retry, code::STUCK));
    lab.admin().call(&purge(true)).await.expect("it only tells");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pools_time_never_goes_back_c1() {
    let mut lab = Lab::new().await;
    let mut last = 0;
    for _ in 0..3 {
        let donor = lab.donor("basement").await;
        let now_ms = donor.send_heartbeat(donor.heartbeat(0)).await.now_ms;
        assert!(now_ms > last, "{now_ms} after {last}");
        last = now_ms;
        lab.stop().await;
        lab.start().await;
    }
}

/// Returns the chunks that a donor is told to delete, as soon as there are some.
async fn first_tombstones(donor: &Donor) -> Vec<(ChunkName, u64)> {
    eventually("a tombstone", async || {
        let found = donor.tombstones(9).await;
        (!found.is_empty()).then_some(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_reclaim_goes_on_and_takes_nothing_else_d5() {
    let mut lab = Lab::new().await;
    let ada = lab.join(potluck_wire::token::Role::User, "ada").await;
    let (user, mut donor) = (lab.caller(&ada), lab.donor("basement").await);
    write(&user, "pot://lab/keep", 1, &donor).await;
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[2]).await;
    lab.stop().await;
    lab.start().await;
    let user = lab.caller(&ada);
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[chunk(1), chunk(2)]).await;
    user.call(&potluck_wire::control::Abort { session, keep: false }).await.expect("aborted");
    assert_eq!(first_tombstones(&donor).await, [(chunk(2), 9)]);
    let open = Open {
        path: "pot://lab/keep".parse().expect("path"),
        recursive: false,
        after: None,
        leased: false,
    };
    user.call(&open).await.expect("kept");
    let stranger =
        refused(&lab.user().await, &Renew { session, refused: Vec::new(), traffic: Vec::new() })
            .await;
    assert_eq!(stranger.code, code::NO_SESSION);
}

#[tokio::test(flavor = "multi_thread")]
async fn unlinked_version_is_kept_until_leases_are_renewed_after_restart_a5() {
    let mut lab = Lab::new().await;
    let ada = lab.join(potluck_wire::token::Role::User, "ada").await;
    let (user, mut donor) = (lab.caller(&ada), lab.donor("basement").await);
    write(&user, "pot://lab/read", 1, &donor).await;
    let open = Open { path: path("pot://lab/read"), recursive: false, after: None, leased: true };
    let version = user.call(&open).await.expect("opened").files[0].version;
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[2]).await;
    lab.stop().await;
    lab.start().await;
    let user = lab.caller(&ada);
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[chunk(1), chunk(2)]).await;
    remove(&lab, "pot://lab/read").await;
    user.call(&potluck_wire::control::Abort { session, keep: false }).await.expect("aborted");
    // What nobody can have open is reclaimed meanwhile.
    assert_eq!(first_tombstones(&donor).await, [(chunk(2), 9)]);
    let renew = RenewLeases {
        space: "lab".into(),
        versions: vec![version],
        donors: Vec::new(),
        read_from: vec![],
        traffic: Vec::new(),
    };
    assert_eq!(user.call(&renew).await.expect("renewed").gone, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_not_reported_unreadable_before_donors_can_register_l1() {
    let mut lab = Lab::with(|config| config.repair_grace = Duration::from_secs(15)).await;
    let (user, mut donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    lab.stop().await;
    lab.start().await;
    let lab_space = async |lab: &Lab| {
        let spaces = lab.admin().call(&Status {}).await.expect("status").spaces;
        spaces.into_iter().find(|space| space.name == "lab").expect("the space")
    };
    loop {
        let status = lab.admin().call(&Status {}).await.expect("status");
        if status.uptime_seconds >= 2 {
            break;
        }
        let space = status.spaces.iter().find(|space| space.name == "lab").expect("the space");
        assert_eq!((space.scanned, space.unreadable), (false, 0), "{space:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[chunk(1)]).await;
    let space = eventually("a scan", async || {
        donor.send_heartbeat(donor.heartbeat(1)).await;
        Some(lab_space(&lab).await).filter(|space| space.scanned)
    });
    let space = space.await;
    assert_eq!((space.unreadable, space.lost), (0, 0));

    // A donor that never comes is not waited for longer than the grace, and may come yet.
    lab.stop().await;
    lab.config.repair_grace = Duration::from_secs(3);
    lab.start().await;
    let space = eventually("a scan without it", async || {
        Some(lab_space(&lab).await).filter(|space| space.scanned)
    });
    let space = space.await;
    assert_eq!((space.unreadable, space.lost), (1, 0), "{space:?}");
}
