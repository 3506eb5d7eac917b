//! Donors as the manager sees them: liveness, inventories, addresses, and a disk that is missing.

use crate::lab::{Donor, Lab, chunk, eventually, write};
use potluck_core::ids::Incarnation;
use potluck_wire::control::{
    Alarm, DiskFault, DonorState, Holding, Inventory, Register, Stat, Status,
};
use potluck_wire::error::ErrorKind;
use potluck_wire::packed::Packed;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_donor_becomes_a_suspect_and_comes_back() {
    let lab = Lab::with(|config| config.suspect_after = Duration::from_secs(1)).await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let path = "pot://lab/a".parse().expect("path");
    let stat = Stat { path, chunks: false, unjudged: false, room: false, after: None };
    let copies = async || user.call(&stat).await.expect("stat").live_copies;
    let state = async || lab.admin().call(&Status {}).await.expect("status").donors[0].state;
    eventually("a copy while it is heard", async || {
        donor.send_heartbeat(donor.heartbeat(1)).await;
        (copies().await == 1).then_some(())
    })
    .await;
    eventually("a suspect", async || (state().await == DonorState::Suspect).then_some(())).await;
    assert_eq!(copies().await, 0);
    eventually("a donor again", async || {
        donor.send_heartbeat(donor.heartbeat(1)).await;
        (state().await == DonorState::Live).then_some(())
    })
    .await;
}

/// A donor whose process died must not be shown as live for seconds.
#[tokio::test(flavor = "multi_thread")]
async fn dead_process_is_noticed_at_once() {
    let lab = Lab::new().await; // silence makes nobody a suspect here
    let (mut alive, mut dead) = (lab.donor("attic").await, lab.donor("basement").await);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    dead.port = listener.local_addr().expect("its address").port();
    drop(listener);
    dead.report(&[]).await;
    alive.send_heartbeat(alive.heartbeat(1)).await;
    dead.send_heartbeat(dead.heartbeat(1)).await;
    let states = async || {
        let donors = lab.admin().call(&Status {}).await.expect("status").donors;
        donors.iter().map(|donor| donor.state).collect::<Vec<_>>()
    };
    assert_eq!(states().await, [DonorState::Live, DonorState::Live]);
    // Both connections end, and at the port of one donor somebody still answers.
    alive.caller = lab.caller(&alive.identity);
    dead.caller = lab.caller(&dead.identity);
    let missed = [DonorState::Live, DonorState::Suspect];
    eventually("it to be missed", async || (states().await == missed).then_some(())).await;
    dead.send_heartbeat(dead.heartbeat(1)).await;
    assert_eq!(states().await, [DonorState::Live, DonorState::Live], "it was not dead");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_lost_chunks_is_found_out_by_its_inventory_d6() {
    let lab = Lab::new().await;
    let (user, mut donor) = (lab.user().await, lab.donor("basement").await);
    for n in 0..3 {
        write(&user, &format!("pot://lab/{n}"), n, &donor).await;
    }
    donor.incarnation = Incarnation(2);
    let unknown = donor.send_heartbeat(donor.heartbeat(0)).await;
    assert!(unknown.register && unknown.chunk_orders.is_empty());

    // The donor's disk was set back: one chunk is missing, and a foreign one is there.
    donor.report(&[chunk(0), chunk(2), chunk(50)]).await;
    let status = lab.admin().call(&Status {}).await.expect("status");
    let seen = &status.donors[0];
    assert_eq!((seen.chunks, seen.bad, seen.unclaimed), (2, 1, 1));
    let path = "pot://lab/1".parse().expect("path");
    let stat = Stat { path, chunks: false, unjudged: false, room: false, after: None };
    assert_eq!(user.call(&stat).await.expect("stat").live_copies, 0);

    // The chunk is found again, and counts.
    let mut found = donor.heartbeat(3);
    found.added = Packed(vec![Holding { name: chunk(1), len: crate::lab::LEN }.into()]);
    donor.send_heartbeat(found).await;
    assert_eq!(user.call(&stat).await.expect("stat").live_copies, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn inventories_arrive_in_pages_and_in_order() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    for n in 0..4 {
        write(&user, &format!("pot://lab/{n}"), n, &donor).await;
    }
    donor.register().await;
    let page = |page, n: u64, last| Inventory {
        incarnation: donor.incarnation,
        page,
        holdings: Packed(vec![Holding { name: chunk(n), len: crate::lab::LEN }]),
        last,
    };
    let early = donor.caller.call(&page(1, 1, true)).await.expect_err("out of order");
    assert_eq!(early.kind, ErrorKind::Conflict);
    donor.caller.call(&page(0, 0, false)).await.expect("first");
    donor.caller.call(&page(1, 1, false)).await.expect("second");
    donor.caller.call(&page(1, 1, false)).await.expect("its reply was lost");
    donor.caller.call(&page(2, 2, true)).await.expect("last");
    donor.caller.call(&page(2, 2, true)).await.expect("its reply was lost");
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert_eq!((status.donors[0].chunks, status.donors[0].bad), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_is_listed_where_it_says_and_where_it_calls_from() {
    let lab = Lab::new().await;
    let donor = lab.donor("basement").await;
    for (said, port, expected) in [
        ("", Some(7701), Some("127.0.0.1:7701")),
        ("box.lan:80", None, Some("box.lan:80")),
        ("box.lan:80", Some(7701), Some("box.lan:80")), // others cannot use where it calls from
        ("box.lan:80,10.0.0.1:80", None, Some("box.lan:80, 10.0.0.1:80")),
        ("", None, None),
        ("", Some(0), None),
    ] {
        let register = Register {
            incarnation: donor.incarnation,
            key: donor.key.clone(),
            addresses: said.parse().unwrap_or_default(),
            port,
            version: "0.1.0".into(),
            disk: Default::default(),
            room: 0,
            label: None,
            grace_ms: None,
            heard: Default::default(),
            heard_changes: 0,
            heard_proof: None,
            disk_fault: None,
            new_store: false,
            registered_before: false,
            does: Default::default(),
        };
        let answer = donor.caller.call(&register).await;
        assert_eq!(answer.is_ok(), expected.is_some(), "{said} {port:?}");
        if let Some(expected) = expected {
            let status = lab.admin().call(&Status {}).await.expect("status");
            assert_eq!(status.donors[0].addresses.to_string(), expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn donor_without_its_disk_counts_as_silent_with_an_alarm_s3() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let path = "pot://lab/a".parse().expect("path");
    let stat = Stat { path, chunks: false, unjudged: false, room: false, after: None };
    let mut heartbeat = donor.heartbeat(1);
    heartbeat.disk_fault = Some(DiskFault { missing: true, why: "pulled".into() });
    donor.send_heartbeat(heartbeat.clone()).await;
    assert_eq!(user.call(&stat).await.expect("stat").live_copies, 0, "at once");
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert_eq!(status.donors[0].state, DonorState::Suspect);
    let named = |alarm: &Alarm| alarm.to_string().contains("basement lends is gone (pulled)");
    assert!(status.alarms.iter().any(named), "{:?}", status.alarms);

    // The donor comes back with what it holds.
    donor.report(&[chunk(1)]).await;
    assert_eq!(user.call(&stat).await.expect("stat").live_copies, 1);
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert!(!status.alarms.iter().any(named), "{:?}", status.alarms);

    // A donor whose disk takes no writes can still be read.
    heartbeat.disk_fault = Some(DiskFault { missing: false, why: "EIO".into() });
    donor.send_heartbeat(heartbeat).await;
    assert_eq!(user.call(&stat).await.expect("stat").live_copies, 1);
    let status = lab.admin().call(&Status {}).await.expect("status");
    let advice = |alarm: &Alarm| alarm.to_string().contains("drain basement");
    assert!(status.alarms.iter().any(advice), "{:?}", status.alarms);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_inventory_marks_missing_copies_only_l1() {
    let lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    for n in 0..3 {
        write(&user, &format!("pot://lab/{n}"), n, &donor).await;
    }
    let live = async |n: u64| {
        let path = format!("pot://lab/{n}").parse().expect("path");
        let stat = Stat { path, chunks: false, unjudged: false, room: false, after: None };
        user.call(&stat).await.expect("stat").live_copies
    };
    let page = |page, of: &[u64], last| {
        let held = of.iter().map(|n| Holding { name: chunk(*n), len: crate::lab::LEN });
        Inventory { incarnation: donor.incarnation, page, holdings: Packed(held.collect()), last }
    };
    donor.caller.call(&page(0, &[], false)).await.expect("begun");
    // This chunk is stored and committed after its bucket was listed, and before that page arrives.
    write(&user, "pot://lab/3", 3, &donor).await;
    assert_eq!((live(0).await, live(3).await), (1, 1));
    donor.caller.call(&page(1, &[0, 2], true)).await.expect("listed");
    let counted = [live(0).await, live(1).await, live(2).await, live(3).await];
    assert_eq!(counted, [1, 0, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_inventories_are_bounded() {
    let lab = Lab::new().await;
    let mut donors = Vec::new();
    for number in 0..9 {
        donors.push(lab.donor(&format!("donor-{number}")).await);
    }
    let page = |donor: &Donor, page, last| {
        let (incarnation, holdings) = (donor.incarnation, Packed::default());
        let (caller, page) =
            (donor.caller.clone(), Inventory { incarnation, page, holdings, last });
        async move { caller.call(&page).await }
    };
    let (late, first) = donors.split_last().expect("nine of them");
    for donor in first {
        page(donor, 0, false).await.expect("begun");
    }
    let refused = page(late, 0, false).await.expect_err("eight list");
    assert_eq!(refused.kind, ErrorKind::Retry, "{refused}");
    page(&first[0], 1, true).await.expect("listed");
    page(late, 0, false).await.expect("it has its turn now");
    page(late, 1, true).await.expect("listed");
}
