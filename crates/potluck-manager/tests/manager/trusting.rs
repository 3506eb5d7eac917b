use crate::crew::Crew;
use crate::lab::chunk;
use potluck_wire::control::{CopyFault, Fsck, Report, Trust};

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_denies_what_two_others_saw_is_not_trusted() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    let liar = crew.members[0].id();
    let report = Report { chunk: chunk(1), donor: liar, fault: CopyFault::WrongBytes };
    crew.user.call(&report).await.expect("reported");
    crew.send_heartbeat().await;
    crew.send_heartbeat().await;
    crew.send_heartbeat().await;
    assert_eq!(crew.status().await.donors[0].quarantined, None, "one witness is not believed");
    crew.lab.user().await.call(&report).await.expect("reported");
    let why = crew
        .until("quarantined", async |crew: &Crew| crew.status().await.donors[0].quarantined.clone())
        .await;
    assert!(why.contains("members got wrong bytes of chunks that it calls sound"), "{why}");
    crew.until("made again", async |crew: &Crew| {
        (crew.repair().await.made >= 1 && crew.tolerates(1).await.is_some()).then_some(())
    })
    .await;
    assert!(crew.members[2].holds.contains(&chunk(1)));
    // All it had is elsewhere, and deleted there: nothing is left to test.
    crew.until("empty", async |crew: &Crew| crew.members[0].holds.is_empty().then_some(())).await;
    crew.lab.admin().call(&Trust { donor: liar }).await.expect("trusted");
    assert_eq!(crew.status().await.donors[0].quarantined, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_liar_is_found_by_audits_and_fails_its_test_when_it_is_to_be_trusted_again() {
    let mut crew =
        Crew::with(4, |config| config.audit_every = std::time::Duration::from_millis(300)).await;
    crew.copies("pot://lab/a", &[1, 2, 3, 4], &[0, 1, 2, 3]).await;
    let liar = crew.members[0].id();
    crew.members.iter_mut().for_each(|member| member.liar = Some(liar));
    let why = crew
        .until("quarantined", async |crew: &Crew| crew.status().await.donors[0].quarantined.clone())
        .await;
    assert!(why.contains("members got wrong bytes of chunks that it calls sound"), "{why}");
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

    // Its memory was replaced.
    crew.members.iter_mut().for_each(|member| member.liar = None);
    crew.lab.admin().call(&Trust { donor: liar }).await.expect("begun");
    let why = crew.status().await.donors[0].quarantined.clone().expect("not yet");
    assert!(why.contains("0 of 4 chunks right"), "{why}");
    crew.until("found right by others", async |crew: &Crew| {
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
    // Another member's word is another's.
    crew.lab.user().await.call(&report(1)).await.expect("reported");
    assert!(crew.repair().await.not_known.is_some());
}
