use crate::crew::Crew;
use crate::lab::chunk;
use potluck_wire::control::{CopyFault, Report, Trust};

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_denies_what_two_others_saw_is_not_trusted() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    let liar = crew.members[0].id();
    let report = Report { chunk: chunk(1), donor: liar, fault: CopyFault::WrongBytes };
    crew.user.call(&report).await.expect("reported");
    crew.beat().await;
    crew.beat().await;
    crew.beat().await;
    assert_eq!(crew.status().await.donors[0].quarantined, None, "one witness is not believed");
    crew.lab.user().await.call(&report).await.expect("reported");
    let why = crew
        .until("quarantined", async |crew: &Crew| crew.status().await.donors[0].quarantined.clone())
        .await;
    assert!(why.contains("2 members"), "{why}");
    crew.until("made again", async |crew: &Crew| {
        (crew.repair().await.made == 1 && crew.tolerates(1).await.is_some()).then_some(())
    })
    .await;
    assert!(crew.members[2].holds.contains(&chunk(1)));
    crew.lab.admin().call(&Trust { donor: liar }).await.expect("trusted");
    assert_eq!(crew.status().await.donors[0].quarantined, None);
}
