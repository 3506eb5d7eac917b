use crate::commit::{PreparedFile, Refused};
use crate::conversions::{self, Encoded};
use crate::fixture::{Fixture, Outcomes, chunk, coded, file, path};
use crate::placements::{self, Told};
use crate::{Error, chunks, dir_policies, entries, gc, names, open, units, versions};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::{Mirror, Override};
use potluck_pool::Giving;
use std::time::Duration;

const WHEN: names::When = names::When { pool_ms: 50, wall_ms: 0 };
const DATA: &[(u64, &[u32])] = &[(1, &[1]), (2, &[2])];

fn refused(outcomes: Outcomes) -> Error {
    match outcomes.into_iter().next() {
        Some(Err(Refused::Here(why))) => why,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn copies(at: &str, chunks: &[u64], donors: &[u32], copies: u32) -> PreparedFile {
    let mut file = file(at, chunks, donors);
    file.version.copies = copies;
    file
}

fn safe(fixture: &Fixture, version: VersionId) -> Option<i64> {
    versions::get(&fixture.db, version).expect("there").safe_wall_ms
}

/// A 2+1 file of three data chunks: a whole group, and one of a single data chunk.
fn three(parity_of_first: &'static [u32]) -> PreparedFile {
    let chunks = [DATA, &[(3, &[1]), (11, parity_of_first), (12, &[2])]].concat();
    coded("pot://lab/a", "2+1", 3, &chunks)
}

#[test]
fn parity_counts_references_and_its_holders_like_data() {
    let mut fixture = Fixture::new();
    let version = fixture.put(three(&[3]));
    assert_eq!(safe(&fixture, version), Some(0), "all its redundancy is there");
    let all = [1, 2, 3, 11, 12];
    assert!(all.iter().all(|n| fixture.refs(&chunk(*n)) == Some(1)));
    let page = open::open(&fixture.db, &path("pot://lab/a"), false, None).expect("opened");
    assert_eq!(page.files[0].parity.0, [chunk(11), chunk(12)]);
    assert_eq!(page.files[0].parity_holders, [[DonorId(3)], [DonorId(2)]]);
    let version = versions::get(&fixture.db, version).expect("there");
    let held = units::layout(&fixture.db, &version).expect("read").pieces;
    assert_eq!(held.len(), 5);
    assert!(held.iter().all(|piece| (piece.len, piece.holders.len()) == (1000, 1)));

    // Replaced by a version that shares one of its data chunks, then removed.
    fixture.put(coded("pot://lab/a", "2+1", 2, &[(1, &[]), (4, &[2]), (13, &[3])]));
    assert_eq!(all.map(|n| fixture.refs(&chunk(n))), [1, 0, 0, 0, 0].map(Some));
    names::remove(&fixture.db, &path("pot://lab/a"), false, WHEN).expect("removed");
    assert!([1, 4, 13].iter().all(|n| fixture.refs(&chunk(*n)) == Some(0)));
}

#[test]
fn every_chunk_of_a_group_needs_a_donor_of_its_own_d3() {
    let mut fixture = Fixture::new();
    let not_apart = |index| Error::NotApart {
        path: path("pot://lab/a"),
        index,
        ec: "2+1".parse().expect("a code"),
    };
    assert_eq!(refused(fixture.commit(vec![three(&[2])])), not_apart(3));
    assert_eq!(fixture.refs(&chunk(1)), None, "a refused file leaves no trace");
    // Two holders of the parity are no help while both are another chunk's only donor.
    assert_eq!(refused(fixture.commit(vec![three(&[1, 2])])), not_apart(3));
    // A second holder of a data chunk gives way to the parity.
    let chunks: &[(u64, &[u32])] = &[(1, &[1, 4]), (2, &[2]), (11, &[1])];
    fixture.put(coded("pot://lab/b", "2+1", 2, chunks));
    // A chunk that is twice in a group needs two donors, whichever place they are named at.
    let twice: &[(u64, &[u32])] = &[(7, &[5]), (7, &[5]), (8, &[6])];
    let why = refused(fixture.commit(vec![coded("pot://lab/c", "2+1", 2, twice)]));
    assert!(matches!(why, Error::NotApart { index: 1, .. }), "{why}");
    let twice: &[(u64, &[u32])] = &[(7, &[5, 9]), (7, &[]), (8, &[6])];
    fixture.put(coded("pot://lab/c", "2+1", 2, twice));
    let nowhere: &[(u64, &[u32])] = &[(21, &[5]), (22, &[9]), (23, &[])];
    let why = refused(fixture.commit(vec![coded("pot://lab/d", "2+1", 2, nowhere)]));
    assert!(matches!(why, Error::NotApart { index: 2, .. }), "{why}");
}

#[test]
fn copies_count_by_distinct_donors_known_and_proven_d3() {
    let mut fixture = Fixture::new();
    let why = refused(fixture.commit(vec![copies("pot://lab/a", &[1, 2], &[1, 1], 2)]));
    let path = path("pot://lab/a");
    assert_eq!(why, Error::TooFewCopies { path, index: 0, have: 1, need: 2 });
    assert!(why.to_string().contains("on 1 of the 2 distinct donors"), "{why}");
    let first = fixture.put(copies("pot://lab/a", &[1, 2], &[1], 1));
    assert_eq!(safe(&fixture, first), Some(0));
    // Copies that the pool holds count towards what is asked.
    fixture.put(copies("pot://lab/b", &[1, 2], &[2], 2));
    let lost = Told { removed: vec![chunk(1)], ..Told::default() };
    placements::tell(&fixture.db, DonorId(2), &lost, 0).expect("told");
    let why = refused(fixture.commit(vec![copies("pot://lab/c", &[1], &[], 2)]));
    assert!(matches!(why, Error::TooFewCopies { have: 1, .. }), "a lost copy counts no more");
}

#[test]
fn an_asynchronous_write_opens_an_unsafe_window_and_needs_one_holder_of_each_chunk() {
    let mut fixture = Fixture::new();
    for mirror in [Mirror::ClientAsync, Mirror::ServerAsync] {
        fixture.mirror = mirror;
        let version = fixture.put(copies("pot://lab/a", &[1], &[1], 2));
        assert_eq!(safe(&fixture, version), None);
        // Groups are written synchronously, whatever the protocol of copies.
        let crowded = coded("pot://lab/b", "2+1", 2, &[(21, &[1]), (22, &[1]), (23, &[1])]);
        let why = refused(fixture.commit(vec![crowded]));
        assert!(matches!(why, Error::NotApart { .. }), "{why}");
        let apart = coded("pot://lab/b", "2+1", 2, &[(1, &[1]), (2, &[2]), (3, &[3])]);
        let version = fixture.put(apart);
        assert_eq!(safe(&fixture, version), Some(0));
        let whole = fixture.put(copies("pot://lab/c", &[5], &[1, 2], 2));
        assert_eq!(safe(&fixture, whole), Some(0), "all was there already");
        let why = refused(fixture.commit(vec![copies("pot://lab/d", &[6], &[], 2)]));
        assert!(matches!(why, Error::NotAcknowledged { .. }));
    }
    fixture.mirror = Mirror::ServerSync;
    let why = refused(fixture.commit(vec![copies("pot://lab/e", &[7], &[1], 2)]));
    assert!(matches!(why, Error::TooFewCopies { .. }));
}

#[test]
fn a_write_is_committed_below_its_policy_while_one_more_donor_may_die() {
    let mut fixture = Fixture::new();
    let three = |donors: &[u32]| copies("pot://lab/a", &[1], donors, 3);
    // A group of two data chunks and three of parity, on so many donors, and one of a single chunk.
    let group = |parity: [&'static [u32]; 3]| {
        let chunks = [DATA, &[(3, parity[0]), (4, parity[1]), (5, parity[2])]].concat();
        coded("pot://lab/b", "2+3", 2, &chunks)
    };
    let below = |fixture: &mut Fixture, file| {
        fixture.store_at(vec![file], 0)[0].as_ref().expect("accepted").below_policy
    };
    assert!(matches!(refused(fixture.commit(vec![three(&[1])])), Error::TooFewCopies { .. }));
    assert!(below(&mut fixture, three(&[1, 2])));
    let version = fixture.put(three(&[1, 2]));
    assert_eq!(safe(&fixture, version), None, "repair is to make the rest");
    let why = refused(fixture.commit(vec![group([&[], &[], &[1]])]));
    assert!(matches!(why, Error::NotApart { .. }), "{why}");
    assert!(below(&mut fixture, group([&[], &[3], &[]])));
    assert!(!below(&mut fixture, group([&[3], &[4], &[5]])));

    fixture.asked.strict = Some(true);
    let why = refused(fixture.commit(vec![copies("pot://lab/c", &[6], &[1, 2], 3)]));
    assert!(matches!(why, Error::NotStrict { .. }), "{why}");
    assert!(!below(&mut fixture, three(&[1, 2, 3])));
}

#[test]
fn a_donor_that_died_since_it_acknowledged_a_chunk_does_not_count_at_the_commit_d3() {
    let mut fixture = Fixture::new();
    fixture.put(copies("pot://lab/known", &[9], &[2, 3], 2));
    fixture.pool.hung_up(DonorId(2), Tick::ZERO);
    let two = |donors: &[u32]| copies("pot://lab/a", &[1], donors, 2);
    let gone = |why: &Error| matches!(why, Error::HoldersAway { .. });
    let why = refused(fixture.commit(vec![two(&[1, 2])]));
    assert!(gone(&why), "one copy is left: {why}");
    let why = refused(fixture.commit(vec![copies("pot://lab/a", &[9], &[], 2)]));
    assert!(gone(&why), "what the pool knew is at a donor that died, too: {why}");
    assert!(fixture.commit(vec![two(&[1, 2, 3])])[0].is_ok(), "sent to another");

    let three = |donors: &[u32]| copies("pot://lab/b", &[12], donors, 3);
    let stored = fixture.store_at(vec![three(&[1, 2, 4])], 0).remove(0).expect("accepted");
    assert!(stored.below_policy, "two of three copies survive one more death");
    let group = |more: &[&[u32]]| {
        let chunks: Vec<(u64, &[u32])> = (21..).zip(more.iter().copied()).collect();
        coded("pot://lab/c", "2+1", 2, &chunks)
    };
    let why = refused(fixture.commit(vec![group(&[&[1], &[2], &[3]])]));
    assert!(gone(&why), "{why}");
    assert!(fixture.commit(vec![group(&[&[1], &[2, 4], &[3]])])[0].is_ok());

    fixture.mirror = Mirror::ClientAsync;
    fixture.put(copies("pot://lab/d", &[31], &[1, 2], 2));
    let why = refused(fixture.commit(vec![copies("pot://lab/d", &[32], &[2], 2)]));
    assert!(gone(&why), "nobody has it: {why}");
}

#[test]
fn a_strict_directory_in_a_tree_wants_all_redundancy_whatever_the_trees_root_says() {
    let mut fixture = Fixture::new();
    let strict = entries::make_dirs(&fixture.db, &path("pot://lab/tree/strict"), 0).expect("made");
    let over = Override { strict: Some(true), ..Override::default() };
    dir_policies::set(&fixture.db, strict, &over).expect("set");
    let two = |at: &str| copies(at, &[1], &[1, 2], 3);
    let (below, deep) = ("pot://lab/tree/a", "pot://lab/tree/strict/new/b");
    let outcomes = fixture.commit(vec![two(below), two(deep)]);
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    let why = refused(
        outcomes[1..]
            .iter()
            .map(|outcome| match outcome {
                Err(Refused::Here(why)) => Err(Refused::Here(why.clone())),
                other => panic!("{other:?}"),
            })
            .collect(),
    );
    assert!(matches!(why, Error::NotStrict { .. }), "{why}");
    fixture.asked.strict = Some(false);
    assert!(fixture.commit(vec![two(deep)])[0].is_ok(), "its command asked for less");
}

#[test]
fn copies_count_as_their_donors_stand_d3() {
    let mut fixture = Fixture::new();
    fixture.put(copies("pot://lab/known", &[1], &[1], 1));
    let giving = |at_once| Giving { start: 0, at_once, lose: [].into(), since: Tick::ZERO };
    let counted = |fixture: &mut Fixture, chunk, by: &[u32]| {
        fixture.commit(vec![copies("pot://lab/a", &[chunk], by, 1)])[0].is_ok()
    };
    let both = |fixture: &mut Fixture| (counted(fixture, 1, &[]), counted(fixture, 2, &[1]));
    assert_eq!(both(&mut fixture), (true, true), "what the pool knows, and a receipt");

    fixture.pool.quarantine(DonorId(1), Some("it lies".into()));
    assert_eq!(both(&mut fixture), (false, false), "a donor that is not trusted");
    fixture.put(copies("pot://lab/a", &[1], &[2], 1)); // what is damaged is mended by sending it
    fixture.pool.quarantine(DonorId(1), None);

    fixture.pool.give_back(DonorId(1), Some(giving(true)));
    assert!(!counted(&mut fixture, 3, &[1]), "deleted without waiting");
    fixture.pool.give_back(DonorId(1), Some(giving(false)));
    assert!(counted(&mut fixture, 3, &[1]), "kept until it is elsewhere");
}

#[test]
fn a_donor_that_is_silent_for_a_moment_counts_and_one_that_is_given_up_only_by_receipt_d3() {
    let mut fixture = Fixture::new();
    let name = chunk(1);
    let at = |seconds: u64| {
        let view = fixture.pool.view(Duration::from_secs(seconds));
        (view.keeps(DonorId(1), &name), view.proves(DonorId(1), &name))
    };
    assert_eq!((at(5), at(11)), ((true, true), (false, true)));
    fixture.pool.remove_donor(DonorId(1));
    let view = fixture.pool.view(Tick::ZERO);
    assert!(!view.keeps(DonorId(1), &name) && !view.proves(DonorId(1), &name));
}

#[test]
fn parity_that_no_version_waits_for_is_reclaimed_d2() {
    let mut fixture = Fixture::new();
    let version = fixture.put(copies("pot://lab/a", &[1, 2], &[1, 2], 2));
    let encoded = Encoded {
        version,
        ec: "2+1".parse().expect("a code"),
        group: 0,
        parity: vec![(chunk(11), 1000)],
        holders: vec![DonorId(3), DonorId(4)],
    };
    assert_eq!(encoded.uncounted(&fixture.db), Ok(vec![(DonorId(3), 1), (DonorId(4), 1)]));
    // The version's goal changed while its parity was computed.
    conversions::learn(&fixture.db, &encoded, 50).expect("learnt");
    assert_eq!(encoded.uncounted(&fixture.db), Ok(vec![(DonorId(3), 0), (DonorId(4), 0)]));
    let first = gc::Waiting::FIRST;
    let unused = gc::unused(&fixture.db, 50, first, 10).expect("read");
    assert_eq!(unused.iter().map(|(_, name)| *name).collect::<Vec<_>>(), [chunk(11)]);
    gc::condemn(&fixture.db, &[chunk(11)], 50).expect("condemned");
    let condemned = gc::condemned(&fixture.db, chunks::ChunkId(0), 10).expect("read");
    assert_eq!(condemned[0].donors, [DonorId(3), DonorId(4)]);

    // A chunk that a version has is only counted at one more donor.
    let more = Encoded { parity: vec![(chunk(1), 1000)], ..encoded };
    conversions::discard(&fixture.db, &more, 60).expect("noted");
    assert_eq!(fixture.refs(&chunk(1)), Some(1));
    let held = units::layout(&fixture.db, &versions::get(&fixture.db, version).expect("there"));
    assert_eq!(held.expect("read").pieces[0].holders.len(), 4);
}

#[test]
fn the_time_of_safety_begins_anew_after_a_loss() {
    let mut fixture = Fixture::new();
    let version = fixture.put(copies("pot://lab/a", &[1], &[1, 2], 2));
    assert_eq!(safe(&fixture, version), Some(0));
    conversions::open(&fixture.db, &[version]).expect("noted");
    assert_eq!(safe(&fixture, version), None);
    conversions::safe(&fixture.db, &[version], 70).expect("noted");
    assert_eq!(safe(&fixture, version), Some(70));
}

#[test]
fn a_file_that_is_safe_and_to_be_changed_is_looked_at_too() {
    let mut fixture = Fixture::new();
    let plain = fixture.put(copies("pot://lab/plain", &[1], &[1], 1));
    fixture.asked.copies = Some(1);
    let more = fixture.put(copies("pot://lab/more", &[2], &[1, 2], 2));
    assert_eq!(safe(&fixture, more), Some(0), "what it is to have it has");
    let any = |version| conversions::any_open(&fixture.db, [version]);
    assert_eq!((any(plain), any(more)), (Ok(false), Ok(true)));
}
