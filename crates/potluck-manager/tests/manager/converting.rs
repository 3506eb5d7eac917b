//! Files that change from copies to an erasure code, and back.

use crate::crew::{Crew, parity_of};
use crate::lab::chunk;
use potluck_core::policy::Override;
use potluck_wire::control::PolicySet;

async fn set(crew: &Crew, policy: Override) {
    let path = "pot://lab".parse().expect("path");
    let set = PolicySet { path, policy, new_files_only: false, dry_run: false };
    assert_eq!(crew.lab.admin().call(&set).await.expect("set").files, 1);
}

/// Returns how many more deaths the file survives, by what members really hold.
fn survives(crew: &Crew) -> usize {
    crew.holders(&chunk(1)).len().saturating_sub(1)
}

#[tokio::test(flavor = "multi_thread")]
async fn conversion_is_never_less_safe() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    let ec = "2+1".parse().expect("a code");
    let parity = parity_of(&[chunk(1)], ec)[0];
    set(&crew, Override { ec: Some(ec), ..Override::default() }).await;
    crew.until("coded", async |crew: &Crew| {
        let health = crew.health("pot://lab/a/1").await;
        if health.changing_to.is_some() {
            assert!(survives(crew) >= 1, "the copies stay until the code is there");
        }
        health.changing_to.is_none().then_some(())
    })
    .await;
    crew.until("trimmed to one of each, apart", async |crew: &Crew| {
        let at: Vec<_> = [chunk(1), parity].iter().map(|n| crew.holders(n)).collect();
        let apart = at[0] != at[1];
        (at.iter().all(|at| at.len() == 1)).then(|| assert!(apart, "{at:?}"))
    })
    .await;
    crew.until("whole", async |crew: &Crew| crew.tolerates(1).await).await;

    set(&crew, Override { copies: Some(3), ..Override::default() }).await;
    crew.until("copied", async |crew: &Crew| {
        crew.health("pot://lab/a/1").await.changing_to.is_none().then_some(())
    })
    .await;
    assert!(survives(&crew) >= 2);
    crew.until("parity is reclaimed", async |crew: &Crew| {
        crew.holders(&parity).is_empty().then_some(())
    })
    .await;
    crew.until("whole", async |crew: &Crew| crew.tolerates(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_parity_is_discarded_without_delay() {
    let mut crew = Crew::new(4).await;
    crew.copies("pot://lab/a", &[1], &[0, 1]).await;
    let ec = "2+1".parse().expect("a code");
    let wrong = parity_of(&[], ec)[0];
    crew.members[0].lies = true;
    set(&crew, Override { ec: Some(ec), ..Override::default() }).await;
    crew.until("coded", async |crew: &Crew| {
        crew.health("pot://lab/a/1").await.changing_to.is_none().then_some(())
    })
    .await;
    assert!(crew.members[0].made() > 0, "it was asked");
    crew.until("the wrong parity is reclaimed", async |crew: &Crew| {
        crew.holders(&wrong).is_empty().then_some(())
    })
    .await;
}
