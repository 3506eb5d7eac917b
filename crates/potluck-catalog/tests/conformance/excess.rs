//! Copies in excess and redundancy that is given up: what a scan finds, and which of that may still go when the
//! scan is done.

use crate::stage::Stage;
use potluck_catalog::fixture::chunk;
use potluck_catalog::fixture::coded;
use potluck_catalog::fixture::donors_there;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::path;
use potluck_catalog::{DonorNote, fixture::arrives};
use potluck_catalog::{Goal, ToldCopies};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::{Override, Policy, Redundancy};
use potluck_pool::Giving;
use potluck_pool::redundancy::{Excess, Findings};
use potluck_wire::control::Holding;
use std::collections::BTreeMap;
use std::time::Duration;

type Agreed = BTreeMap<(ChunkName, DonorId), Excess>;

fn giving(at_once: bool, lose: &[VersionId]) -> Option<Giving> {
    let since = Tick::ZERO;
    Some(Giving { start: 0, at_once, lose: lose.into(), since })
}

impl Stage {
    /// Commits a file of the chunk `n`, which is to be kept in `copies` copies and is at the donors `on`.
    async fn put_copies(&mut self, at: &str, n: u64, on: &[u32], copies: u32) -> VersionId {
        let mut file = file(at, &[n], on);
        file.version.copies = copies;
        self.put(file).await
    }

    /// Returns the copies that every file can do without, as a scan of now finds them.
    async fn agreed(&self) -> Agreed {
        let found = self.scan(self.donors.view(Tick::ZERO)).await.excess;
        found.into_iter().filter(|(_, excess)| excess.is_agreed()).collect()
    }

    async fn mark(&self, agreed: Agreed) -> Vec<(ChunkName, DonorId)> {
        let donors = self.donors.snapshot(Tick::ZERO);
        let marked = self.catalog.mark_excess(donors, agreed.into_iter().collect()).await;
        marked.expect("marked")
    }

    /// Returns the donors of those copies that may still go. Each is marked by itself, and then stays after all.
    async fn still(&self, agreed: &Agreed) -> Vec<u32> {
        let mut still = Vec::new();
        for (copy, excess) in agreed {
            for (name, donor) in self.mark([(*copy, excess.clone())].into()).await {
                still.push(donor.0);
                self.tell(donor.0, ToldCopies { sound: vec![name], ..ToldCopies::default() }, 0)
                    .await;
            }
        }
        still
    }

    /// Gives the file at a path another redundancy as its goal.
    async fn aim(&self, at: &str, redundancy: Redundancy) {
        let over = match redundancy {
            Redundancy::Copies(copies) => Override { copies: Some(copies), ..Override::default() },
            Redundancy::Ec(ec) => Override { ec: Some(ec), ..Override::default() },
        };
        let policy = Policy::default().with(&over).expect("a policy");
        let page = self.catalog.follow_policy(path(at), policy, None, Some(5)).await;
        assert_eq!(page.expect("followed").files, 1);
    }
}

#[tokio::test]
async fn a_copy_goes_only_for_those_who_were_asked() {
    let mut stage = Stage::new().await;
    stage.put_copies("pot://lab/a", 1, &[1, 2], 1).await;
    let agreed = stage.agreed().await;
    assert_eq!(stage.still(&agreed).await, [2]);
    // There are as many references as before, but of another version, whose writer was told of two copies.
    stage.put_copies("pot://lab/a", 1, &[], 2).await;
    assert_eq!(stage.refs([1]).await, [Some(1)]);
    assert!(stage.still(&agreed).await.is_empty());
}

#[tokio::test]
async fn a_copy_stays_when_what_was_asked_for_changed() {
    let mut stage = Stage::new().await;
    stage.put_copies("pot://lab/a", 1, &[1, 2], 1).await;
    let agreed = stage.agreed().await;
    stage.aim("pot://lab/a", Redundancy::Copies(2)).await;
    assert!(stage.still(&agreed).await.is_empty());
}

#[tokio::test]
async fn a_file_that_is_met_twice_does_not_stand_in_for_another() {
    let mut stage = Stage::new().await;
    stage.put_copies("pot://lab/a", 1, &[1, 2], 1).await;
    stage.put_copies("pot://lab/b", 1, &[], 2).await;
    let (version, layout) = stage.file("pot://lab/a").await;
    let mut findings = Findings::new(stage.donors.view(Tick::ZERO));
    for _ in 0..2 {
        findings.add(&version, ChunkKind::Data, &layout);
    }
    let excess = &findings.excess[&(chunk(1), DonorId(2))];
    assert_eq!(excess.uses(), excess.refs, "as many as there are");
    assert!(!excess.is_agreed());
    // A file that uses a chunk twice is met once.
    stage.put(file("pot://lab/b", &[2, 2], &[1, 2])).await;
    assert!(stage.agreed().await.contains_key(&(chunk(2), DonorId(2))));
}

#[tokio::test]
async fn a_copy_stays_when_what_is_relied_on_instead_counts_no_more() {
    let mut stage = Stage::new().await;
    stage.put_copies("pot://lab/a", 1, &[1, 2], 1).await;
    let agreed = stage.agreed().await;
    stage.donors.give_back(DonorId(1), giving(true, &[]));
    assert!(stage.still(&agreed).await.is_empty(), "its owner takes the space");
    stage.donors.give_back(DonorId(1), None);
    stage.donors.quarantine(DonorId(1), Some("it lies".into()));
    assert!(stage.still(&agreed).await.is_empty(), "it is not trusted");
    stage.donors.quarantine(DonorId(1), None);
    assert_eq!(stage.still(&agreed).await, [2]);
}

#[tokio::test]
async fn leaving_copy_counts_again_after_put_or_verify_only_d5() {
    let mut stage = Stage::new().await;
    stage.put_copies("pot://lab/a", 1, &[1, 2], 1).await;
    let listed = Holding { name: chunk(1), len: 1000 };
    let copy = (chunk(1), DonorId(2));
    let counts = async || {
        let known = stage.catalog.chunks(vec![chunk(1)]).await.expect("read").remove(0);
        known.holders.contains(&DonorId(2))
    };
    for again in [
        ToldCopies { sound: vec![chunk(1)], ..ToldCopies::default() },
        ToldCopies { added: vec![listed], ..ToldCopies::default() },
    ] {
        let leaving = async || {
            let (_, layout) = stage.file("pot://lab/a").await;
            layout.pieces[0].holders.iter().filter(|(_, leaving)| *leaving).count()
        };
        assert_eq!(stage.mark(stage.agreed().await).await, [copy]);
        let compared = stage.catalog.compare(DonorId(2), vec![listed]).await.expect("compared");
        assert_eq!((compared.uncounted, compared.leaving), (vec![], vec![listed]));
        assert_eq!(
            (leaving().await, counts().await),
            (1, false),
            "readers may have been sent there"
        );
        stage.tell(2, again, 0).await;
        assert_eq!((leaving().await, counts().await), (0, true));
    }
}

#[tokio::test]
async fn immediate_give_back_loses_only_listed_files() {
    let mut stage = Stage::new().await;
    let listed = stage.put_copies("pot://lab/listed", 1, &[1], 1).await;
    // One file becomes visible only after the list was made, and of another both owners leave.
    let late = stage.put_copies("pot://lab/late", 2, &[1], 1).await;
    stage.put_copies("pot://lab/both", 3, &[1, 2], 2).await;
    // A file that can be read without these donors waits for nobody.
    stage.put_copies("pot://lab/safe", 4, &[1, 5], 2).await;
    stage.donors.give_back(DonorId(1), giving(true, &[listed]));
    stage.donors.give_back(DonorId(2), giving(true, &[]));

    let agreed = stage.agreed().await;
    let mut names: Vec<_> = agreed.keys().map(|(name, donor)| (*name, donor.0)).collect();
    names.sort_unstable();
    let mut expected = [(chunk(1), 1), (chunk(4), 1)];
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(stage.still(&agreed).await, [1, 1]);
    let moving = stage.scan(stage.donors.view(Tick::ZERO)).await.moving;
    assert_eq!((moving[&DonorId(1)].chunks, moving[&DonorId(2)].chunks), (2, 1), "moved first");

    // If a listed file shares a chunk with another file, the chunk does not go: the other file is not listed.
    stage.put_copies("pot://lab/shares", 1, &[1, 6], 1).await;
    stage.tell(6, ToldCopies { removed: vec![chunk(1)], ..ToldCopies::default() }, 0).await;
    assert!(!stage.agreed().await.contains_key(&(chunk(1), DonorId(1))));
    // With another list, only the chunk goes that can be read without this donor. Once the leaving is called off,
    // none does.
    stage.donors.give_back(DonorId(1), giving(true, &[late]));
    assert_eq!(stage.still(&agreed).await, [1], "only what can be read without it");
    stage.donors.give_back(DonorId(1), None);
    assert!(stage.still(&agreed).await.is_empty());
}

#[tokio::test]
async fn a_group_loses_at_once_only_what_it_can_be_read_without() {
    let mut stage = Stage::new().await;
    let parts: &[(u64, &[u32])] = &[(1, &[1]), (2, &[2]), (11, &[3])];
    stage.put(coded("pot://lab/a", "2+1", 2, parts)).await;
    stage.donors.give_back(DonorId(1), giving(true, &[]));
    let agreed = stage.agreed().await;
    assert_eq!(stage.still(&agreed).await, [1], "the two others give it back");
    stage.donors.quarantine(DonorId(3), Some("it lies".into()));
    assert!(stage.still(&agreed).await.is_empty());
    stage.donors.quarantine(DonorId(3), None);
    stage.donors.give_back(DonorId(2), giving(true, &[]));
    assert!(stage.still(&agreed).await.is_empty() && stage.agreed().await.is_empty());
}

#[tokio::test]
async fn agreed_losses_are_remembered_until_cancelled() {
    let stage = Stage::new().await;
    let lose = vec![VersionId(3), VersionId(u64::from(u32::MAX) + 7)];
    let goal = Goal { start: 9, at_once: true, lose };
    stage
        .catalog
        .note_donor(DonorId(1), DonorNote::GivesBack(Some(goal.clone())))
        .await
        .expect("kept");
    let stage = stage.reopen().await;
    let known = async || stage.catalog.donors().await.expect("read").remove(0).giving;
    assert_eq!(known().await, Some(goal));
    stage.catalog.note_donor(DonorId(1), DonorNote::GivesBack(None)).await.expect("called off");
    assert_eq!(known().await, None);
    let again = Goal { at_once: true, ..Goal::default() };
    stage
        .catalog
        .note_donor(DonorId(1), DonorNote::GivesBack(Some(again.clone())))
        .await
        .expect("kept");
    assert_eq!(known().await, Some(again), "the first list is forgotten");
}

#[tokio::test]
async fn old_redundancy_is_dropped_only_beside_the_new() {
    let mut stage = Stage::new().await;
    let parts: &[(u64, &[u32])] = &[(1, &[1, 4]), (2, &[2, 5]), (11, &[3])];
    let version = stage.put(coded("pot://lab/a", "2+1", 2, parts)).await;
    let goal = Redundancy::Copies(2);
    stage.aim("pot://lab/a", goal).await;
    let found = stage.scan(stage.donors.view(Tick::ZERO)).await.arrived;
    assert_eq!(found, [(version, goal)]);
    // Donor 4 falls silent meanwhile.
    let later = Duration::from_secs(5);
    let mut donors = donors_there(5);
    [1, 2, 3, 5].iter().for_each(|donor| arrives(&mut donors, *donor, later));
    let arrived = stage.catalog.arrive(donors.snapshot(later), found.clone(), 0).await;
    assert_eq!(arrived, Ok((1, 0)));
    assert_eq!(stage.file("pot://lab/a").await.0.goal, Some(goal));
    let silent = stage.scan(donors.view(later)).await;
    assert!(silent.arrived.is_empty(), "nor is it looked at again and again");
    let arrived = stage.catalog.arrive(stage.donors.snapshot(Tick::ZERO), found, 0).await;
    assert_eq!(arrived, Ok((1, 1)));
    assert_eq!(stage.file("pot://lab/a").await.0.redundancy(), goal);
    assert_eq!(stage.refs([11]).await, [Some(0)]);
}
