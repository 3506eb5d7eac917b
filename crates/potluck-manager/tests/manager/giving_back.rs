use crate::crew::Crew;
use crate::lab::{LEN, chunk};
use potluck_wire::control::{GiveBack, GiveBackStatus, GivingBack};
use std::time::Duration;

fn give_back(crew: &Crew, at: usize) -> GiveBack {
    let donor = Some(crew.members[at].id());
    GiveBack { donor, bytes: None, now: false, dry_run: false, cancel: false }
}

async fn progress(crew: &Crew, at: usize) -> GivingBack {
    let status = GiveBackStatus { donor: Some(crew.members[at].id()) };
    crew.lab.admin().call(&status).await.expect("status")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_donor_that_gives_all_back_is_safe_to_remove_only_when_it_is() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/a", &[1, 2, 3], &[0, 1]).await;
    crew.copies("pot://lab/single", &[4], &[0]).await;
    crew.members[0].holds.insert(chunk(99)); // unclaimed: not the pool's to delete
    let begun = crew.lab.admin().call(&give_back(&crew, 0)).await.expect("begun");
    assert!(begun.active && begun.all && !begun.safe_to_remove);
    crew.until("safe to remove", async |crew: &Crew| {
        let now = progress(crew, 0).await;
        if now.safe_to_remove {
            assert!(now.done && now.to_move == 0);
            return Some(());
        }
        for n in 1..5 {
            assert!(!crew.holders(&chunk(n)).is_empty(), "never nowhere");
        }
        None
    })
    .await;
    assert_eq!(crew.members[0].holds.iter().collect::<Vec<_>>(), [&chunk(99)]);
    for n in 1..4 {
        assert_eq!(crew.holders(&chunk(n)).len(), 2);
    }
    assert_eq!(crew.holders(&chunk(4)).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn giving_some_back_moves_about_so_much_and_can_be_called_off() {
    let mut crew = Crew::new(3).await;
    let chunks: Vec<u64> = (0..40).collect();
    crew.copies("pot://lab/a", &chunks, &[0, 1]).await;
    crew.beat().await;
    let some = GiveBack { bytes: Some(10 * u64::from(LEN)), ..give_back(&crew, 0) };
    crew.lab.admin().call(&some).await.expect("begun");
    let held = crew
        .until("given back", async |crew: &Crew| {
            let now = progress(crew, 0).await;
            now.done.then_some(now.held)
        })
        .await;
    assert!(held <= 30 * u64::from(LEN) && held >= 28 * u64::from(LEN), "{held}");
    assert!(!progress(&crew, 0).await.safe_to_remove);
    let cancel = GiveBack { cancel: true, ..give_back(&crew, 0) };
    crew.lab.admin().call(&cancel).await.expect("called off");
    assert!(!progress(&crew, 0).await.active);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_lost_is_said_before_it_is() {
    let mut crew = Crew::new(3).await;
    crew.copies("pot://lab/single", &[1], &[0]).await;
    crew.copies("pot://lab/double", &[2], &[0, 1]).await;
    let dry = GiveBack { dry_run: true, now: true, ..give_back(&crew, 0) };
    let told = crew.lab.admin().call(&dry).await.expect("told");
    assert_eq!((told.lost, told.lost_files), (vec!["pot://lab/single/1".to_string()], 1));
    crew.work(Duration::from_millis(1500)).await;
    assert_eq!(crew.members[0].holds.len(), 2, "only said");
    let now = GiveBack { now: true, ..give_back(&crew, 0) };
    let own = crew.members[0].donor.caller.call(&GiveBack { donor: None, ..now }).await;
    assert_eq!(own.expect("begun").lost_files, 1);
    crew.until("all is gone", async |crew: &Crew| crew.members[0].holds.is_empty().then_some(()))
        .await;
    let other = give_back(&crew, 1);
    let refused = crew.members[0].donor.caller.call(&other).await.expect_err("not its own");
    assert_eq!(refused.kind, potluck_wire::error::ErrorKind::Auth);
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_an_owner_in_need_gets_spare_copies_at_once() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/triple", &[1, 2, 3, 4], &[0, 1, 2]).await;
    crew.until("surveyed", async |crew: &Crew| crew.tolerates(2).await).await;
    // A fifth of what it holds: at least one copy goes, and none is missed.
    crew.members[0].excess = 4 * u64::from(LEN);
    crew.until("deleted", async |crew: &Crew| crew.members[0].holds.is_empty().then_some(())).await;
    crew.members[0].excess = 0;
    crew.until("made again", async |crew: &Crew| crew.tolerates(2).await).await;
}
