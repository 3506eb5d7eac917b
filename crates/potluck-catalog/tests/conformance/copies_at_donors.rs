//! Tests which copies are counted at donors, and how their reports change that.

use crate::stage::Stage;
use potluck_catalog::ChunkAsker;
use potluck_catalog::HeldAt;
use potluck_catalog::ToldCopies;
use potluck_catalog::fixture::chunk;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::path;
use potluck_catalog::fixture::register;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{ChunkId, DonorId, Incarnation};
use potluck_core::policy::AckLevel;
use potluck_wire::control::Holding;
use std::collections::BTreeMap;
use std::sync::Arc;

const DONORS: [DonorId; 2] = [DonorId(1), DonorId(2)];

fn listed(n: u64) -> Holding {
    Holding { name: chunk(n), len: 1000 }
}

/// Returns the donors to which a reader of the first chunk of this file is sent.
async fn holders(stage: &Stage, at: &str) -> Vec<DonorId> {
    let page = stage.catalog.open_files(path(at), false, None).await.expect("opened");
    page.files[0].holders[0].clone()
}

/// Returns the donors that have a chunk at a level.
async fn holders_at(stage: &Stage, n: u64, ack: AckLevel) -> Vec<DonorId> {
    let names = Arc::new(vec![chunk(n)]);
    let found = stage.catalog.offer(stage.session, Vec::new(), names, ack, ChunkAsker::ALL).await;
    found.expect("offered").remove(0).donors
}

#[tokio::test]
async fn unlisted_copy_is_missing_but_recorded_d5() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1, 2], &[1])).await;
    let unlisted = async |listed: Vec<ChunkId>| {
        let page = stage.catalog.unlisted_at(DonorId(1), listed.into(), ChunkId::FIRST, 10);
        page.await.expect("read")
    };
    let (Some(last), names) = unlisted(Vec::new()).await else { panic!("it has two chunks") };
    assert_eq!(names.len(), 2);
    // The donor lists what it has, and the first is not among it.
    assert_eq!(unlisted(vec![last]).await, (Some(last), names[..1].to_vec()));
    let names = &names[..1];
    let (donor, incarnation) = (DonorId(1), Incarnation(2));
    stage.donors.register(donor, &register(incarnation), Default::default(), Tick::ZERO);
    let unlisted = stage.donors.unlisted(donor, incarnation, names);
    let refuted = unlisted.clone();
    assert_eq!(stage.catalog.mark_missing(donor, unlisted).await, Ok(Some(1)));
    assert_eq!(stage.counted(1).await, (1, 1));
    assert!(stage.unused(1000).await.is_empty(), "the chunk itself is not touched");

    // A copy that is listed again counts again.
    let again = vec![Holding { name: names[0], len: 1000 }, listed(77)];
    let compared = stage.catalog.compare(donor, again).await.expect("compared");
    assert_eq!((compared.known.len(), compared.uncounted.len()), (1, 1));
    assert_eq!(compared.unknown, [listed(77)]);
    stage.tell(1, ToldCopies { added: compared.uncounted, ..ToldCopies::default() }, 0).await;
    assert_eq!(stage.counted(1).await, (2, 0));

    // A receipt that came after a copy was found to be unlisted refutes that it is missing.
    stage.donors.acknowledged([(donor, incarnation, &names[0])].into_iter());
    assert_eq!(stage.catalog.mark_missing(donor, refuted).await, Ok(None));
    assert_eq!(stage.counted(1).await, (2, 0));
}

#[tokio::test]
async fn copies_that_a_donor_invents_are_no_losses() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1])).await;
    stage.put(file("pot://lab/b", &[2], &[2])).await;
    let told = async || {
        let spoiled = vec![chunk(1), chunk(2), chunk(77)];
        let told = ToldCopies { spoiled, ..ToldCopies::default() };
        stage.catalog.tell(DonorId(1), told, 0).await.expect("told").spoiled
    };
    assert_eq!(told().await, [chunk(1)], "neither another donor's, nor nobody's");
    assert_eq!(told().await, [], "nor one that did not count any more");
}

#[tokio::test]
async fn inventory_is_compared_with_counted_copies_before_name_lookups() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1, 2, 3], &[1])).await;
    stage.put(file("pot://lab/b", &[4], &[2])).await;
    stage.tell(1, ToldCopies { spoiled: vec![chunk(3)], ..ToldCopies::default() }, 0).await;
    let part = async |most| {
        let counted = stage.catalog.counted_at(DonorId(1), most).await.expect("read");
        let (known, others) = counted.part([1, 2, 3, 4, 77].map(listed).into());
        assert_eq!(known.len(), counted.count());
        (known, others)
    };
    let (known, others) = part(10).await;
    assert_eq!(others, [3, 4, 77].map(listed), "spoiled, of another donor, and unknown");
    let looked_up = stage.catalog.compare(DonorId(1), [1, 2].map(listed).into()).await;
    assert_eq!(looked_up.expect("compared").known, known, "the same chunks by name");
    assert_eq!(part(0).await.1.len(), 5, "no more is read than may be kept");
}

#[tokio::test]
async fn a_donors_word_changes_the_count_of_its_own_copies_only() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1, 2])).await;
    stage.tell(1, ToldCopies { spoiled: vec![chunk(1)], ..ToldCopies::default() }, 0).await;
    assert_eq!(holders_at(&stage, 1, AckLevel::Memory).await, [DonorId(2)]);
    stage.tell(1, ToldCopies { sound: vec![chunk(1)], ..ToldCopies::default() }, 0).await;
    assert_eq!(holders_at(&stage, 1, AckLevel::Memory).await, DONORS);
    // The chunk was deleted and written again within one second.
    let both =
        ToldCopies { removed: vec![chunk(1)], added: vec![listed(1)], ..ToldCopies::default() };
    stage.tell(1, both, 0).await;
    assert_eq!(holders(&stage, "pot://lab/a").await, DONORS);
}

#[tokio::test]
async fn memory_copy_does_not_satisfy_ack_disk() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1, 2])).await;
    assert_eq!(holders_at(&stage, 1, AckLevel::Disk).await, []);
    let mut synced = file("pot://lab/b", &[1], &[2]);
    synced.chunks[0].holders = vec![(DonorId(2), AckLevel::Disk)];
    stage.put(synced).await;
    stage.put(file("pot://lab/c", &[1], &[2])).await;
    let kept = holders_at(&stage, 1, AckLevel::Disk).await;
    assert_eq!(kept, [DonorId(2)], "a lower level takes nothing back");

    // The copy was lost and is back, and nobody synced what came back.
    stage.tell(2, ToldCopies { removed: vec![chunk(1)], ..ToldCopies::default() }, 0).await;
    stage.tell(2, ToldCopies { added: vec![listed(1)], ..ToldCopies::default() }, 0).await;
    assert_eq!(holders_at(&stage, 1, AckLevel::Disk).await, []);
    assert_eq!(holders_at(&stage, 1, AckLevel::Memory).await, DONORS);
    stage.tell(2, ToldCopies { on_disk: vec![chunk(1)], ..ToldCopies::default() }, 0).await;
    assert_eq!(holders_at(&stage, 1, AckLevel::Disk).await, [DonorId(2)]);
}

#[tokio::test]
async fn only_a_copy_that_counted_and_that_a_file_uses_is_a_loss() {
    let mut stage = Stage::new().await;
    stage.put(file("pot://lab/a", &[1], &[1, 2])).await;
    stage.tell(1, ToldCopies { unused: vec![listed(9)], ..ToldCopies::default() }, 0).await;
    let lost = async |n, donor| {
        let removed = ToldCopies { removed: vec![chunk(n)], ..ToldCopies::default() };
        stage.tell(donor, removed, 0).await
    };
    assert!(!lost(9, 1).await, "garbage");
    assert!(!lost(1, 3).await, "never there");
    assert!(lost(1, 1).await);
    assert!(!lost(1, 1).await, "said again");
}

#[tokio::test]
async fn donor_copies_are_counted_and_sampled_with_other_holders() {
    let mut stage = Stage::new().await;
    let numbers: Vec<u64> = (1..=40).collect();
    stage.put(file("pot://lab/a", &numbers, &[1])).await;
    stage.put(file("pot://lab/b", &numbers[..20], &[2])).await;
    stage.put(file("pot://lab/c", &[77], &[3])).await;
    let catalog = &stage.catalog;
    let held = catalog.held_at(DonorId(1)).await.expect("read");
    let mut expected = vec![0; held.bytes_by_part.len()];
    numbers.iter().for_each(|n| expected[chunk(*n).part() as usize] += 1000);
    assert_eq!(held, HeldAt { used_chunks: 40, bytes_by_part: expected });

    for random in [0, 1, u64::MAX / 2, u64::MAX] {
        let drawn = catalog.sample(DonorId(1), 1, random).await.expect("read").remove(0);
        assert!(drawn.len == 1000 && numbers.iter().any(|n| chunk(*n) == drawn.name), "{drawn:?}");
    }
    let sample = catalog.sample(DonorId(1), 10, 3).await.expect("read");
    let mut names: Vec<_> = sample.iter().map(|drawn| drawn.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 10, "none twice");
    assert!(catalog.sample(DonorId(9), 1, 5).await.expect("read").is_empty(), "it has nothing");
}

#[tokio::test]
async fn daily_audit_sample_detects_five_percent_loss_r2() {
    /// The number of challenges of one donor in a day: a tenth of all donors is challenged each minute.
    const CHALLENGES: i32 = 24 * 60 / 10;
    const DRAWS: u64 = 8000;
    let mut stage = Stage::new().await;
    // Each file has twenty chunks at one donor, and a tenth of the files is at donor 1.
    let mut held = Vec::new();
    for first in (0..4000).step_by(20) {
        let numbers: Vec<u64> = (first..first + 20).collect();
        let is_ours = chunk(first).0[0].is_multiple_of(10);
        let donor = if is_ours { 1 } else { 2 };
        held.extend(numbers.iter().filter(|_| is_ours).map(|n| chunk(*n)));
        stage.put(file(&format!("pot://lab/{first}"), &numbers, &[donor])).await;
    }
    let mut drawn: BTreeMap<ChunkName, u64> = BTreeMap::new();
    for number in 0..DRAWS {
        let random = chunk(1_000_000 + number).0;
        let random = u64::from_le_bytes(random[..8].try_into().expect("8 bytes"));
        let one = stage.catalog.sample(DonorId(1), 1, random).await.expect("read").remove(0);
        *drawn.entry(one.name).or_default() += 1;
    }
    assert!(held.iter().all(|name| drawn.contains_key(name)), "every copy may be drawn");
    // This is the chance that a donor is missed for a day, averaged over donors that each lost another twentieth of
    // their copies.
    let donors = 20;
    let missed = (0..donors).map(|first| {
        let lost = held.iter().skip(first).step_by(20);
        let hits: u64 = lost.map(|name| drawn[name]).sum();
        (1.0 - hits as f64 / DRAWS as f64).powi(CHALLENGES)
    });
    let missed = missed.sum::<f64>() / donors as f64;
    assert!(missed <= 0.001, "missed with a chance of {missed}");
}
