//! Donors that lie are found out and quarantined, and members that complain of donors are heard within bounds.

use crate::crew::Crew;
use crate::lab::{Lab, bytes, chunk, reserve};
use crate::serving::serve;
use potluck_core::chunk::ChunkName;
use potluck_core::owner_limits::DiskState;
use potluck_wire::control::{CopyFault, DiskFault, Fsck, Report, Status, Trust};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A member that serves the first chunks of these tests, or other bytes while it lies.
struct Served {
    lies: Arc<AtomicBool>,
    gets: Arc<AtomicUsize>,
}

impl Served {
    async fn at(crew: &mut Crew, member: usize, lies: bool) -> Self {
        let served = Self { lies: Arc::new(lies.into()), gets: Arc::default() };
        let (lies, gets) = (Arc::clone(&served.lies), Arc::clone(&served.gets));
        let send = move |name: &ChunkName| {
            gets.fetch_add(1, Ordering::Relaxed);
            let n = (1..=4).find(|n| chunk(*n) == *name)?;
            Some(bytes(if lies.load(Ordering::Relaxed) { n + 1 } else { n }))
        };
        let member = &mut crew.members[member];
        member.donor.port = serve(&member.donor, send).await;
        let holds: Vec<_> = member.holds.iter().copied().collect();
        member.donor.report(&holds).await;
        served
    }
}

async fn quarantined(crew: &mut Crew) -> String {
    let why = async |crew: &Crew| crew.status().await.donors[0].quarantined.clone();
    crew.until("quarantined", why).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_denies_what_the_manager_finds_is_not_trusted() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    Served::at(&mut crew, 0, true).await;
    let liar = crew.members[0].id();
    let report = Report { chunk: chunk(1), donor: liar, fault: CopyFault::WrongBytes };
    crew.user.call(&report).await.expect("reported");
    let why = quarantined(&mut crew).await;
    assert!(why.contains("or none, and it does not call it bad"), "{why}");
    crew.until("made again", async |crew: &Crew| {
        (crew.repair().await.made >= 1 && crew.tolerates(1).await.is_some()).then_some(())
    })
    .await;
    // All that the donor had is elsewhere and was deleted there, so nothing is left to test.
    crew.until("empty", async |crew: &Crew| crew.members[0].holds.is_empty().then_some(())).await;
    crew.lab.admin().call(&Trust { donor: liar }).await.expect("trusted");
    assert_eq!(crew.status().await.donors[0].quarantined, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_the_manager_does_not_reach_is_not_quarantined_on_what_members_say() {
    let mut crew = Crew::new(1).await;
    crew.copies("pot://lab/a", &[1], &[0]).await;
    let donor = crew.members[0].id();
    for _ in 0..5 {
        let report = Report { chunk: chunk(1), donor, fault: CopyFault::WrongBytes };
        crew.lab.user().await.call(&report).await.expect("reported");
    }
    crew.work(Duration::from_secs(2)).await;
    assert!(crew.members[0].verified.contains(&chunk(1)), "it was told to look");
    assert_eq!(crew.status().await.donors[0].quarantined, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_donor_says_of_itself_neither_overflows_sums_nor_forges_lines() {
    let lab = Lab::new().await;
    let (honest, liar) = (lab.donor("honest").await, lab.donor("liar").await);
    honest.send_heartbeat(honest.heartbeat(1)).await;
    let mut heartbeat = liar.heartbeat(1);
    let most = u64::MAX;
    (heartbeat.room, heartbeat.excess, heartbeat.lends) = (most, most, Some(most));
    heartbeat.disk = DiskState { total: most, available: most, lent_used: most };
    (heartbeat.scrub.done, heartbeat.scrub.of, heartbeat.scrub.spoiled) = (most, most, most);
    let why = format!("\x1b[2J\r\nhealthy: every file is safe{}", "x".repeat(100_000));
    heartbeat.settings_fault = Some(why.clone());
    heartbeat.disk_fault = Some(DiskFault { missing: false, why });
    liar.send_heartbeat(heartbeat).await;
    let status = lab.admin().call(&Status {}).await.expect("no sum overflowed");
    let told = serde_json::to_string(&status).expect("plain data");
    assert!(!told.contains("\\u001b") && !told.contains("\\n"), "{told:.500}");
    assert!(told.len() < 50_000, "{} bytes", told.len());
    reserve(&lab.user().await, 1 << 20).await.expect("there is room at the honest one");
}

/// The good donor stays trusted, however many users lie about it.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_lie_about_a_good_donor_cannot_have_it_quarantined() {
    let mut crew = Crew::with(2, |config| config.audit_every = Duration::from_millis(200)).await;
    crew.copies("pot://lab/a", &[1, 2, 3, 4], &[0, 1]).await;
    let good = crew.members[0].id();
    let served = Served::at(&mut crew, 0, false).await;
    for n in 1..=4 {
        let report = Report { chunk: chunk(n), donor: good, fault: CopyFault::WrongBytes };
        for liar in [&crew.user, &crew.lab.user().await, &crew.lab.user().await] {
            liar.call(&report).await.expect("reported");
        }
        crew.work(Duration::from_secs(1)).await;
    }
    assert_eq!(crew.status().await.donors[0].quarantined, None);
    assert!(crew.members[0].verified.contains(&chunk(1)), "it was told to look");
    assert!(served.gets.load(Ordering::Relaxed) > 0, "the manager looked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_liar_is_found_by_audits_and_fails_its_test_when_it_is_to_be_trusted_again() {
    let mut crew = Crew::with(4, |config| config.audit_every = Duration::from_millis(300)).await;
    crew.copies("pot://lab/a", &[1, 2, 3, 4], &[0, 1, 2, 3]).await;
    let served = Served::at(&mut crew, 0, true).await;
    for honest in 1..4 {
        Served::at(&mut crew, honest, false).await;
    }
    let liar = crew.members[0].id();
    let why = quarantined(&mut crew).await;
    assert!(why.contains("or none, and it does not call it bad"), "{why}");
    assert!(!crew.members[0].verified.is_empty(), "it was told to look first");
    let honest = &crew.status().await.donors[1..];
    assert!(honest.iter().all(|donor| donor.quarantined.is_none()), "{honest:?}");
    crew.until("missed", async |crew: &Crew| {
        (crew.health("pot://lab/a/1").await.tolerates == Some(2)).then_some(())
    })
    .await;
    crew.lab.admin().call(&Trust { donor: liar }).await.expect("begun");
    let why = crew
        .until("found out again", async |crew: &Crew| {
            let why = crew.status().await.donors[0].quarantined.clone().expect("all the time");
            why.contains("when it was tested, it sent other bytes").then_some(why)
        })
        .await;
    crew.lab.stop().await;
    crew.restart().await;
    assert_eq!(crew.status().await.donors[0].quarantined, Some(why), "kept");

    // The donor's memory was replaced, and it lies no more.
    served.lies.store(false, Ordering::Relaxed);
    crew.lab.admin().call(&Trust { donor: liar }).await.expect("begun");
    let why = crew.status().await.donors[0].quarantined.clone().expect("not yet");
    assert!(why.contains("0 of 4 chunks right"), "{why}");
    crew.until("found right by the manager", async |crew: &Crew| {
        crew.status().await.donors[0].quarantined.is_none().then_some(())
    })
    .await;
    crew.until("whole", async |crew: &Crew| crew.tolerates(3).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_reports_on_and_on_does_not_keep_the_verdict_from_being_known() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/a", &[1, 2, 3, 4], &[0, 1]).await;
    let known = async |crew: &Crew| crew.repair().await.not_known.is_none().then_some(());
    crew.until("all was looked at", known).await;
    let donor = crew.members[0].id();
    let report = |n| Report { chunk: chunk(n), donor, fault: CopyFault::Missing };
    crew.user.call(&report(1)).await.expect("reported");
    let why = crew.repair().await.not_known.expect("in doubt");
    assert!(why.contains("a reader met a bad copy"), "{why}");
    crew.until("looked at again", known).await;
    let fsck = Fsck { path: "pot://lab".parse().expect("path"), incomplete: true, after: None };
    for n in 2..5 {
        crew.user.call(&report(n)).await.expect("reported");
        assert_eq!(crew.repair().await.not_known, None, "once in a while is enough");
        // The file itself is not called safe before its donor has looked.
        let report = crew.user.call(&fsck).await.expect("a report");
        assert_eq!((report.in_doubt, report.found.len()), (1, 0), "{report:?}");
        crew.until("its donor to have looked", async |crew: &Crew| {
            let report = crew.user.call(&fsck).await.expect("a report");
            (report.in_doubt == 0).then_some(())
        })
        .await;
    }
    // Another member's report counts by itself.
    crew.lab.user().await.call(&report(1)).await.expect("reported");
    assert!(crew.repair().await.not_known.is_some());
}
