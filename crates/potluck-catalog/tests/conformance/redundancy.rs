//! Redundancy: what a commit counts as kept, and what repair writes down of it.

use crate::stage::{MADE, Stage};
use potluck_catalog::fixture::chunk;
use potluck_catalog::fixture::coded;
use potluck_catalog::fixture::file;
use potluck_catalog::fixture::path;
use potluck_catalog::fixture::register;
use potluck_catalog::{Computed, Encoded, Error, PreparedFile, Refused, ToldCopies};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, Incarnation};
use potluck_core::policy::{AckLevel, Mirror, Override, Redundancy};
use potluck_pool::Giving;

const DATA: &[(u64, &[u32])] = &[(1, &[1]), (2, &[2])];

fn copies(at: &str, chunks: &[u64], donors: &[u32], copies: u32) -> PreparedFile {
    let mut file = file(at, chunks, donors);
    file.version.copies = copies;
    file
}

impl Stage {
    /// Returns when a file came to have all its redundancy, in milliseconds of wall time.
    async fn safe(&self, at: &str) -> Option<i64> {
        self.file(at).await.0.safe_wall_ms
    }

    /// Commits a file that must be accepted, and returns whether it is below its policy.
    async fn below(&mut self, file: PreparedFile) -> bool {
        let (files, _) = self.store(vec![file]).await;
        files[0].as_ref().expect("accepted").below_policy
    }
}

/// Returns a 2+1 file of three data chunks: a whole group, and one of a single data chunk.
fn three(parity_of_first: &'static [u32]) -> PreparedFile {
    let chunks = [DATA, &[(3, &[1]), (11, parity_of_first), (12, &[2])]].concat();
    coded("pot://lab/a", "2+1", 3, &chunks)
}

#[tokio::test]
async fn parity_counts_references_and_its_holders_like_data() {
    let mut stage = Stage::new().await;
    stage.put(three(&[3])).await;
    assert_eq!(stage.safe("pot://lab/a").await, Some(2), "all its redundancy is there");
    let all = [1, 2, 3, 11, 12];
    assert_eq!(stage.refs(all).await, [Some(1); 5]);
    let page = stage.catalog.open_files(path("pot://lab/a"), false, None).await.expect("opened");
    assert_eq!(page.files[0].parity.0, [chunk(11), chunk(12)]);
    assert_eq!(page.files[0].parity_holders, [[DonorId(3)], [DonorId(2)]]);
    let held = stage.file("pot://lab/a").await.1.pieces;
    assert_eq!(held.len(), 5);
    assert!(held.iter().all(|piece| (piece.len, piece.holders.len()) == (1000, 1)));

    // The file is replaced by a version that shares one of its data chunks, and then removed.
    stage.put(coded("pot://lab/a", "2+1", 2, &[(1, &[]), (4, &[2]), (13, &[3])])).await;
    assert_eq!(stage.refs(all).await, [1, 0, 0, 0, 0].map(Some));
    stage.remove("pot://lab/a", 50).await;
    assert_eq!(stage.refs([1, 4, 13]).await, [Some(0); 3]);
}

#[tokio::test]
async fn every_chunk_of_a_group_needs_a_donor_of_its_own_d3() {
    let mut stage = Stage::new().await;
    let not_apart = |index| Error::NotApart {
        path: path("pot://lab/a"),
        index,
        ec: "2+1".parse().expect("a code"),
    };
    assert_eq!(stage.refused(three(&[2])).await, not_apart(3));
    assert_eq!(stage.refs([1]).await, [None], "a refused file leaves no trace");
    // Two holders of the parity are no help while both are another chunk's only donor.
    assert_eq!(stage.refused(three(&[1, 2])).await, not_apart(3));
    // A second holder of a data chunk gives way to the parity.
    let chunks: &[(u64, &[u32])] = &[(1, &[1, 4]), (2, &[2]), (11, &[1])];
    stage.put(coded("pot://lab/b", "2+1", 2, chunks)).await;
    // A chunk that is twice in a group needs two donors, at whichever of its places they are named.
    let twice: &[(u64, &[u32])] = &[(7, &[5]), (7, &[5]), (8, &[6])];
    let why = stage.refused(coded("pot://lab/c", "2+1", 2, twice)).await;
    assert!(matches!(why, Error::NotApart { index: 1, .. }), "{why}");
    let twice: &[(u64, &[u32])] = &[(7, &[5, 9]), (7, &[]), (8, &[6])];
    stage.put(coded("pot://lab/c", "2+1", 2, twice)).await;
    let nowhere: &[(u64, &[u32])] = &[(21, &[5]), (22, &[9]), (23, &[])];
    let why = stage.refused(coded("pot://lab/d", "2+1", 2, nowhere)).await;
    assert!(matches!(why, Error::NotApart { index: 2, .. }), "{why}");
}

#[tokio::test]
async fn copies_count_by_distinct_donors_known_and_proven_d3() {
    let mut stage = Stage::new().await;
    let why = stage.refused(copies("pot://lab/a", &[1, 2], &[1, 1], 2)).await;
    let at = path("pot://lab/a");
    assert_eq!(why, Error::TooFewCopies { path: at, index: 0, have: 1, need: 2 });
    assert!(why.to_string().contains("on 1 of the 2 distinct donors"), "{why}");
    stage.put(copies("pot://lab/a", &[1, 2], &[1], 1)).await;
    assert_eq!(stage.safe("pot://lab/a").await, Some(2));
    // Copies that the pool holds count towards what is asked.
    stage.put(copies("pot://lab/b", &[1, 2], &[2], 2)).await;
    stage.tell(2, ToldCopies { removed: vec![chunk(1)], ..ToldCopies::default() }, 0).await;
    let why = stage.refused(copies("pot://lab/c", &[1], &[], 2)).await;
    assert!(matches!(why, Error::TooFewCopies { have: 1, .. }), "a lost copy counts no more");
}

#[tokio::test]
async fn only_copies_at_the_promised_ack_level_count() {
    let mut stage = Stage::new().await;
    stage.put(copies("pot://lab/known", &[1], &[1], 1)).await;
    stage.ack = AckLevel::Disk;
    for in_memory in [copies("pot://lab/a", &[1], &[], 1), copies("pot://lab/a", &[2], &[1], 1)] {
        let why = stage.refused(in_memory).await;
        assert!(matches!(why, Error::NotAcknowledged { .. }), "{why}");
    }
    let mut synced = copies("pot://lab/a", &[1, 2], &[1], 1);
    synced.chunks.iter_mut().for_each(|chunk| chunk.holders = vec![(DonorId(1), AckLevel::Disk)]);
    stage.put(synced).await;
    stage.put(copies("pot://lab/b", &[1, 2], &[], 1)).await;
}

/// A donor may be started again between the check of the receipts and the commit.
#[tokio::test]
async fn receipts_of_an_earlier_incarnation_are_not_recorded_d3() {
    let mut stage = Stage::new().await;
    (stage.asked.may_lower, stage.mirror) = (true, Mirror::ClientAsync);
    stage.asked.over.mirror = Some(stage.mirror);
    stage.begun_at = Some(stage.donors.losses());
    let again = Incarnation(2);
    stage.donors.register(DonorId(1), &register(again), Default::default(), Tick::ZERO);
    stage.donors.inventory_done(DonorId(1), again);
    let why = stage.refused(copies("pot://lab/a", &[1], &[1], 1)).await;
    assert!(matches!(why, Error::NotAcknowledged { .. }), "{why}");
    // One holder of each chunk is enough for this; the other copy is still to be made.
    stage.put(copies("pot://lab/b", &[2], &[1, 2], 2)).await;
    assert_eq!(stage.safe("pot://lab/b").await, None);
    assert_eq!([stage.counted(1).await, stage.counted(2).await], [(0, 0), (1, 0)]);
}

#[tokio::test]
async fn async_write_needs_one_holder_and_opens_an_unsafe_window() {
    let mut stage = Stage::new().await;
    stage.asked.may_lower = true;
    for mirror in [Mirror::ClientAsync, Mirror::ServerAsync] {
        (stage.mirror, stage.asked.over.mirror) = (mirror, Some(mirror));
        stage.put(copies("pot://lab/a", &[1], &[1], 2)).await;
        assert_eq!(stage.safe("pot://lab/a").await, None);
        // Groups are written synchronously, whatever the protocol of copies.
        let crowded = coded("pot://lab/b", "2+1", 2, &[(21, &[1]), (22, &[1]), (23, &[1])]);
        let why = stage.refused(crowded).await;
        assert!(matches!(why, Error::NotApart { .. }), "{why}");
        stage.put(coded("pot://lab/b", "2+1", 2, &[(1, &[1]), (2, &[2]), (3, &[3])])).await;
        assert_eq!(stage.safe("pot://lab/b").await, Some(2));
        stage.put(copies("pot://lab/c", &[5], &[1, 2], 2)).await;
        assert_eq!(stage.safe("pot://lab/c").await, Some(2), "all was there already");
        let why = stage.refused(copies("pot://lab/d", &[6], &[], 2)).await;
        assert!(matches!(why, Error::NotAcknowledged { .. }));
    }
    stage.mirror = Mirror::ServerSync;
    let why = stage.refused(copies("pot://lab/e", &[7], &[1], 2)).await;
    assert!(matches!(why, Error::TooFewCopies { .. }));
}

#[tokio::test]
async fn write_commits_below_policy_while_one_more_death_is_safe() {
    let mut stage = Stage::new().await;
    let three = |donors: &[u32]| copies("pot://lab/a", &[1], donors, 3);
    // The group has two data chunks and three of parity, which is on the donors that are named.
    let group = |parity: [&'static [u32]; 3]| {
        let chunks = [DATA, &[(3, parity[0]), (4, parity[1]), (5, parity[2])]].concat();
        coded("pot://lab/b", "2+3", 2, &chunks)
    };
    assert!(matches!(stage.refused(three(&[1])).await, Error::TooFewCopies { .. }));
    assert!(stage.below(three(&[1, 2])).await);
    assert_eq!(stage.safe("pot://lab/a").await, None, "repair is to make the rest");
    let why = stage.refused(group([&[], &[], &[1]])).await;
    assert!(matches!(why, Error::NotApart { .. }), "{why}");
    assert!(stage.below(group([&[], &[3], &[]])).await);
    assert!(!stage.below(group([&[3], &[4], &[5]])).await);

    stage.asked.over.strict = Some(true);
    let why = stage.refused(copies("pot://lab/c", &[6], &[1, 2], 3)).await;
    assert!(matches!(why, Error::NotStrict { .. }), "{why}");
    assert!(!stage.below(three(&[1, 2, 3])).await);
}

#[tokio::test]
async fn donor_dead_since_its_ack_does_not_count_at_commit_d3() {
    let mut stage = Stage::new().await;
    stage.put(copies("pot://lab/known", &[9], &[2, 3], 2)).await;
    stage.donors.hung_up(DonorId(2), Tick::ZERO);
    let two = |donors: &[u32]| copies("pot://lab/a", &[1], donors, 2);
    let gone = |why: &Error| matches!(why, Error::HoldersAway { .. });
    let why = stage.refused(two(&[1, 2])).await;
    assert!(gone(&why), "one copy is left: {why}");
    let why = stage.refused(copies("pot://lab/a", &[9], &[], 2)).await;
    assert!(gone(&why), "what the pool knew is at a donor that died, too: {why}");
    assert!(stage.commit(vec![two(&[1, 2, 3])]).await[0].is_ok(), "sent to another");

    let three = |donors: &[u32]| copies("pot://lab/b", &[12], donors, 3);
    assert!(stage.below(three(&[1, 2, 4])).await, "two of three copies survive one more death");
    let group = |more: &[&[u32]]| {
        let chunks: Vec<(u64, &[u32])> = (21..).zip(more.iter().copied()).collect();
        coded("pot://lab/c", "2+1", 2, &chunks)
    };
    let why = stage.refused(group(&[&[1], &[2], &[3]])).await;
    assert!(gone(&why), "{why}");
    assert!(stage.commit(vec![group(&[&[1], &[2, 4], &[3]])]).await[0].is_ok());

    stage.asked.may_lower = true;
    for mirror in [Mirror::ClientAsync, Mirror::ServerAsync] {
        (stage.mirror, stage.asked.over.mirror) = (mirror, Some(mirror));
        stage.put(copies("pot://lab/d", &[31], &[1, 2], 2)).await;
        let why = stage.refused(copies("pot://lab/d", &[32], &[2], 2)).await;
        assert!(gone(&why), "{mirror}: nobody has it: {why}");
    }
}

#[tokio::test]
async fn strict_subdirectory_requires_full_redundancy() {
    let mut stage = Stage::new().await;
    let strict = path("pot://lab/tree/strict");
    stage.catalog.make_directory(strict.clone(), true, MADE).await.expect("made");
    let over = Override { strict: Some(true), ..Override::default() };
    stage.catalog.set_policy(strict, over).await.expect("set");
    let two = |at: &str| copies(at, &[1], &[1, 2], 3);
    let (below, deep) = ("pot://lab/tree/a", "pot://lab/tree/strict/new/b");
    let outcomes = stage.commit(vec![two(below), two(deep)]).await;
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    let refused = matches!(outcomes[1], Err(Refused::Here(Error::NotStrict { .. })));
    assert!(refused, "{outcomes:?}");
    stage.asked.over.strict = Some(false);
    let outcomes = stage.commit(vec![two(deep)]).await;
    assert!(matches!(outcomes[0], Err(Refused::Here(Error::LessSafe(_)))), "{outcomes:?}");
    stage.asked.may_lower = true;
    assert!(stage.commit(vec![two(deep)]).await[0].is_ok(), "its command asked for less");
}

#[tokio::test]
async fn strict_directory_refuses_files_written_with_less_redundancy() {
    let mut stage = Stage::new().await;
    let strict = path("pot://lab/strict");
    stage.catalog.make_directory(strict.clone(), true, MADE).await.expect("made");
    let over = Override { strict: Some(true), copies: Some(3), ..Override::default() };
    stage.catalog.set_policy(strict, over).await.expect("set");
    let at = "pot://lab/strict/a";
    let why = stage.refused(copies(at, &[1], &[1, 2], 2)).await;
    let asks = Redundancy::Copies(3);
    assert_eq!(why, Error::NotStrict { path: path(at), redundancy: asks });
    stage.put(copies("pot://lab/beside", &[1], &[1, 2], 2)).await;
    stage.put(copies(at, &[1], &[1, 2, 3], 3)).await;
    // A command that may ask for less has what it asks for.
    (stage.asked.may_lower, stage.asked.over.copies) = (true, Some(2));
    stage.put(copies(at, &[1], &[1, 2], 2)).await;
}

#[tokio::test]
async fn copies_count_as_their_donors_stand_d3() {
    let mut stage = Stage::new().await;
    stage.put(copies("pot://lab/known", &[1], &[1], 1)).await;
    let giving = |at_once| Giving { start: 0, at_once, lose: [].into(), since: Tick::ZERO };
    let counted = async |stage: &mut Stage, chunk, by: &[u32]| {
        stage.commit(vec![copies("pot://lab/a", &[chunk], by, 1)]).await[0].is_ok()
    };
    let both =
        async |stage: &mut Stage| (counted(stage, 1, &[]).await, counted(stage, 2, &[1]).await);
    assert_eq!(both(&mut stage).await, (true, true), "what the pool knows, and a receipt");

    stage.donors.quarantine(DonorId(1), Some("it lies".into()));
    assert_eq!(both(&mut stage).await, (false, false), "a donor that is not trusted");
    stage.put(copies("pot://lab/a", &[1], &[2], 1)).await; // what is damaged is mended by sending it
    stage.donors.quarantine(DonorId(1), None);

    stage.donors.give_back(DonorId(1), Some(giving(true)));
    assert!(!counted(&mut stage, 3, &[1]).await, "deleted without waiting");
    stage.donors.give_back(DonorId(1), Some(giving(false)));
    assert!(counted(&mut stage, 3, &[1]).await, "kept until it is elsewhere");
}

#[tokio::test]
async fn parity_that_no_version_waits_for_is_reclaimed_d2() {
    let mut stage = Stage::new().await;
    let version = stage.put(copies("pot://lab/a", &[1, 2], &[1, 2], 2)).await;
    let encoded = Encoded {
        version,
        ec: "2+1".parse().expect("a code"),
        group: 0,
        parity: vec![(chunk(11), 1000)],
        holders: vec![DonorId(3), DonorId(4)],
    };
    // The version's goal changed while its parity was computed.
    let learn = async || {
        let computed = vec![Computed::Believed(encoded.clone())];
        stage.catalog.learn_parity(computed, 50).await.expect("learnt").claimed
    };
    assert_eq!(learn().await, [(DonorId(3), 1), (DonorId(4), 1)]);
    assert_eq!(learn().await, [(DonorId(3), 0), (DonorId(4), 0)], "counted by now");
    assert_eq!(stage.unused(50).await, [chunk(11)]);
    stage.catalog.condemn(vec![chunk(11)], 50).await.expect("condemned");
    assert_eq!(stage.condemned().await, [(chunk(11), vec![DonorId(3), DonorId(4)])]);

    // A chunk that a version already has is only counted at more donors.
    let more = Encoded { parity: vec![(chunk(1), 1000)], ..encoded };
    let doubtful = vec![Computed::Doubtful(more)];
    stage.catalog.learn_parity(doubtful, 60).await.expect("noted");
    assert_eq!(stage.refs([1]).await, [Some(1)]);
    assert_eq!(stage.file("pot://lab/a").await.1.pieces[0].holders.len(), 4);
}

#[tokio::test]
async fn the_time_of_safety_begins_anew_after_a_loss() {
    let mut stage = Stage::new().await;
    let version = stage.put(copies("pot://lab/a", &[1], &[1, 2], 2)).await;
    assert_eq!(stage.safe("pot://lab/a").await, Some(2));
    stage.catalog.set_safe(vec![version], Vec::new(), 60).await.expect("noted");
    assert_eq!(stage.safe("pot://lab/a").await, None);
    for later in [70, 80] {
        stage.catalog.set_safe(Vec::new(), vec![version], later).await.expect("noted");
    }
    assert_eq!(stage.safe("pot://lab/a").await, Some(70), "since the first look that found it so");
}

#[tokio::test]
async fn a_file_that_is_safe_and_to_be_changed_is_looked_at_too() {
    let mut stage = Stage::new().await;
    let (_, open) = stage.store(vec![copies("pot://lab/plain", &[1], &[1], 1)]).await;
    assert!(!open);
    stage.asked.over.copies = Some(1);
    let (_, open) = stage.store(vec![copies("pot://lab/more", &[2], &[1, 2], 2)]).await;
    assert_eq!(stage.safe("pot://lab/more").await, Some(2), "what it is to have it has");
    assert!(open);
}
