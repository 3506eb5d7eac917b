use crate::chunks::{self, ChunkId, ChunkState};
use crate::commit::Outcome;
use crate::fixture::{Fixture, chunk, file, path};
use crate::placements::{self, Told};
use crate::{gc, names, sessions, stats, trash};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, SessionId};
use potluck_core::policy::AckLevel;
use potluck_wire::control::Holding;

const DONORS: [DonorId; 2] = [DonorId(1), DonorId(2)];

fn told_removed(fixture: &Fixture, donor: DonorId, name: ChunkName) {
    let told = Told { removed: vec![name], ..Told::default() };
    placements::tell(&fixture.db, donor, &told, 500).expect("told");
}

fn unused(fixture: &Fixture, before_ms: u64) -> Vec<ChunkName> {
    let first = (i64::MIN, ChunkId(0));
    let page = gc::unused(&fixture.db, before_ms, first, 100).expect("read");
    page.into_iter().map(|(_, name)| name).collect()
}

fn state(fixture: &Fixture, name: &ChunkName) -> Option<ChunkState> {
    chunks::get(&fixture.db, name).expect("read").map(|row| row.state)
}

#[test]
fn d2_what_an_aborted_session_wrote_is_reclaimed_from_all_its_donors() {
    let mut fixture = Fixture::new();
    let names: Vec<_> = (0..3).map(chunk).collect();
    sessions::offer(&fixture.db, &fixture.session, &names).expect("offered");
    fixture.put(file("pot://lab/a", &[0], &[1]));
    sessions::end(&fixture.db, &fixture.session).expect("ended");
    while !sessions::account(&fixture.db, &fixture.session, &DONORS, 100).expect("step") {}

    assert!(sessions::all(&fixture.db).expect("read").is_empty());
    let unused = unused(&fixture, 100);
    assert_eq!(unused.len(), 2, "the committed chunk is none of them");
    gc::condemn(&fixture.db, &unused, 100).expect("condemned");
    let page = gc::condemned(&fixture.db, ChunkId(0), 10).expect("read");
    assert!(page.iter().all(|chunk| chunk.donors == DONORS), "each donor may have each");

    for donor in DONORS {
        assert_eq!(state(&fixture, &unused[0]), Some(ChunkState::Condemned));
        told_removed(&fixture, donor, unused[0]);
    }
    assert_eq!(state(&fixture, &unused[0]), Some(ChunkState::Gone));
    assert_eq!(stats::count(&fixture.db).expect("counted").condemned, 1);
}

#[test]
fn i2_what_an_ended_session_perhaps_stored_is_asked_for_once_it_is_used() {
    let fixture = Fixture::new();
    let other = SessionId([77; 16]);
    sessions::offer(&fixture.db, &other, &[chunk(1)]).expect("offered");
    while !sessions::account(&fixture.db, &other, &DONORS, 0).expect("step") {}

    let file = || vec![file("pot://lab/a", &[1], &[1])];
    match fixture.commit_batch(0, file(), false, 0).expect("committed") {
        Outcome::Fresh { again, .. } => {
            let rest = DONORS.into_iter().filter(|donor| *donor != DonorId(1));
            let asked: Vec<_> = rest.map(|donor| (donor, chunk(1))).collect();
            assert_eq!(again.assumed, asked, "who gave a receipt need not be asked");
        }
        Outcome::Repeated(_) => panic!("not repeated"),
    }
    // Only the first use asks.
    match fixture.commit_batch(1, file(), false, 0).expect("committed") {
        Outcome::Fresh { again, .. } => assert!(again.assumed.is_empty()),
        Outcome::Repeated(_) => panic!("not repeated"),
    }
}

#[test]
fn d2_a_late_write_of_an_ended_session_is_reclaimed_too() {
    let fixture = Fixture::new();
    sessions::offer(&fixture.db, &fixture.session, &[chunk(1)]).expect("offered");
    sessions::end(&fixture.db, &fixture.session).expect("ended");
    while !sessions::account(&fixture.db, &fixture.session, &DONORS, 0).expect("step") {}
    gc::condemn(&fixture.db, &[chunk(1)], 0).expect("condemned");
    DONORS.into_iter().for_each(|donor| told_removed(&fixture, donor, chunk(1)));
    assert_eq!(state(&fixture, &chunk(1)), Some(ChunkState::Gone));

    let arrived = Holding { name: chunk(1), len: 1000 };
    let compared = placements::compare(&fixture.db, DonorId(1), &[arrived]).expect("compared");
    assert!(compared.unknown.is_empty(), "still remembered");
    let told = Told { added: compared.uncounted, ..Told::default() };
    placements::tell(&fixture.db, DonorId(1), &told, 600).expect("told");
    let page = gc::condemned(&fixture.db, ChunkId(0), 10).expect("read");
    assert_eq!(page[0].donors, [DonorId(1)]);

    told_removed(&fixture, DonorId(1), chunk(1));
    gc::prune_gone(&fixture.db, 499).expect("pruned");
    assert_eq!(state(&fixture, &chunk(1)), Some(ChunkState::Gone), "not long enough ago");
    gc::prune_gone(&fixture.db, 500).expect("pruned");
    assert_eq!(state(&fixture, &chunk(1)), None);
}

#[test]
fn d5_nothing_in_use_is_condemned_and_a_new_use_ends_the_wait() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1]));
    gc::condemn(&fixture.db, &[chunk(1)], u64::MAX >> 1).expect("asked");
    assert_eq!(state(&fixture, &chunk(1)), Some(ChunkState::Here));

    let when = |pool_ms| names::When { pool_ms, wall_ms: 0 };
    names::remove(&fixture.db, &path("pot://lab/a"), false, when(10)).expect("removed");
    fixture.put(file("pot://lab/b", &[1], &[]));
    assert!(unused(&fixture, 1000).is_empty());
    // Unused again only since 900: a decision made for an earlier moment does not hold.
    names::remove(&fixture.db, &path("pot://lab/b"), false, when(900)).expect("removed");
    gc::condemn(&fixture.db, &[chunk(1)], 100).expect("asked");
    assert_eq!(state(&fixture, &chunk(1)), Some(ChunkState::Here));
}

#[test]
fn d5_a_copy_that_is_not_listed_is_counted_as_missing_and_kept_in_the_books() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1, 2], &[1]));
    let counted = placements::counted_at(&fixture.db, DonorId(1), ChunkId(0), 10).expect("read");
    assert_eq!(counted.len(), 2);
    let (lost, name) =
        (counted[0], placements::names_of(&fixture.db, &counted[..1]).expect("read")[0]);
    placements::missing(&fixture.db, DonorId(1), lost).expect("marked");
    let copies = stats::count(&fixture.db).expect("counted").donors[&DonorId(1)];
    assert_eq!((copies.here, copies.bad), (1, 1));
    assert_eq!(fixture.refs(&name), Some(1), "the chunk itself is not touched");

    // Listed again, it counts again.
    let listed = [Holding { name, len: 1000 }, Holding { name: chunk(77), len: 5 }];
    let compared = placements::compare(&fixture.db, DonorId(1), &listed).expect("compared");
    assert_eq!((compared.known.len(), compared.uncounted.len()), (1, 1));
    assert_eq!(
        compared.unknown.iter().map(|holding| holding.name).collect::<Vec<_>>(),
        [chunk(77)]
    );
    let told = Told { added: compared.uncounted, ..Told::default() };
    placements::tell(&fixture.db, DonorId(1), &told, 0).expect("told");
    let copies = stats::count(&fixture.db).expect("counted").donors[&DonorId(1)];
    assert_eq!((copies.here, copies.bad), (2, 0));
}

#[test]
fn d5_a_copy_on_its_way_out_counts_again_when_it_was_put_or_looked_at_and_not_when_listed() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1]));
    let row = chunks::get(&fixture.db, &chunk(1)).expect("read").expect("there");
    let counted = || placements::holders(&fixture.db, row.id).expect("read").len();
    let listed = Holding { name: chunk(1), len: 1000 };
    let tell = |told: Told| placements::tell(&fixture.db, DonorId(1), &told, 0);
    for again in [
        Told { sound: vec![chunk(1)], ..Told::default() },
        Told { added: vec![listed], ..Told::default() },
    ] {
        placements::mark_leaving(&fixture.db, &chunk(1), DonorId(1)).expect("marked");
        let compared = placements::compare(&fixture.db, DonorId(1), &[listed]).expect("compared");
        assert_eq!((compared.uncounted, compared.leaving), (vec![], vec![listed]));
        assert_eq!(counted(), 0);
        tell(again).expect("told");
        assert_eq!(counted(), 1);
    }
}

#[test]
fn a_donors_word_changes_the_count_of_its_own_copies_only() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1, 2]));
    let row = chunks::get(&fixture.db, &chunk(1)).expect("read").expect("there");
    let holders = |fixture: &Fixture| placements::holders(&fixture.db, row.id).expect("read");

    let spoiled = Told { spoiled: vec![chunk(1)], ..Told::default() };
    placements::tell(&fixture.db, DonorId(1), &spoiled, 0).expect("told");
    assert_eq!(holders(&fixture), [DonorId(2)]);
    let sound = Told { sound: vec![chunk(1)], ..Told::default() };
    placements::tell(&fixture.db, DonorId(1), &sound, 0).expect("told");
    assert_eq!(holders(&fixture), DONORS);
    // Deleted and written again within one second.
    let both = Told {
        removed: vec![chunk(1)],
        added: vec![Holding { name: chunk(1), len: 1000 }],
        ..Told::default()
    };
    placements::tell(&fixture.db, DonorId(1), &both, 0).expect("told");
    assert_eq!(holders(&fixture), DONORS);
}

#[test]
fn a_copy_that_was_only_in_memory_is_not_held_for_a_write_to_disk() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1, 2]));
    let row = chunks::get(&fixture.db, &chunk(1)).expect("read").expect("there");
    let at_disk = |fixture: &Fixture| {
        placements::holders_at(&fixture.db, row.id, AckLevel::Disk).expect("read")
    };
    assert_eq!(at_disk(&fixture), []);

    let mut synced = file("pot://lab/b", &[1], &[2]);
    synced.chunks[0].holders = vec![(DonorId(2), AckLevel::Disk)];
    fixture.put(synced);
    fixture.put(file("pot://lab/c", &[1], &[2]));
    assert_eq!(at_disk(&fixture), [DonorId(2)], "a lower level takes nothing back");

    // Lost, and back: nobody synced what came back.
    let removed = Told { removed: vec![chunk(1)], ..Told::default() };
    placements::tell(&fixture.db, DonorId(2), &removed, 0).expect("told");
    let added = Told { added: vec![Holding { name: chunk(1), len: 1000 }], ..Told::default() };
    placements::tell(&fixture.db, DonorId(2), &added, 0).expect("told");
    assert_eq!(at_disk(&fixture), []);
    assert_eq!(placements::holders(&fixture.db, row.id).expect("read").len(), 2);
}

#[test]
fn a_removed_tree_is_taken_apart_in_small_steps() {
    let mut fixture = Fixture::new();
    for n in 0..30 {
        fixture.put(file(&format!("pot://lab/t/d{}/f{n}", n % 3), &[n], &[1]));
    }
    let when = names::When { pool_ms: 5, wall_ms: 0 };
    let removed = names::remove(&fixture.db, &path("pot://lab/t"), true, when).expect("removed");
    assert_eq!((removed.files, removed.bytes), (30, 30_000));
    assert_eq!(fixture.refs(&chunk(3)), Some(1), "not yet");
    let mut steps = 0;
    while trash::reap(&fixture.db, 4, 6).expect("reaped") {
        steps += 1;
    }
    assert!(steps > 7);
    assert!(!trash::any(&fixture.db).expect("read"));
    assert_eq!(unused(&fixture, 6).len(), 30);
    let left: i64 = fixture
        .db
        .query_row(
            "SELECT (SELECT count(*) FROM versions) + (SELECT count(*) FROM entries)",
            [],
            |row| row.get(0),
        )
        .expect("counted");
    assert_eq!(left, 1, "only the space's own entry");
}

#[test]
fn chunks_that_must_wait_do_not_hold_up_those_behind_them() {
    let fixture = Fixture::new();
    let names: Vec<_> = (0..10).map(chunk).collect();
    for (at, name) in (1_u64..).zip(&names) {
        chunks::insert_unused(&fixture.db, name, 0, at / 3).expect("inserted");
    }
    let (mut after, mut seen) = ((i64::MIN, ChunkId(0)), Vec::new());
    loop {
        let page = gc::unused(&fixture.db, 100, after, 4).expect("read");
        let Some((last, _)) = page.last() else { break };
        after = *last;
        seen.extend(page.into_iter().map(|(_, name)| name));
    }
    assert_eq!(seen, names);
}

#[test]
fn only_a_copy_that_counted_and_that_a_file_uses_is_a_loss() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1], &[1, 2]));
    chunks::insert_unused(&fixture.db, &chunk(9), 0, 0).expect("inserted");
    placements::tell(
        &fixture.db,
        DonorId(1),
        &Told { sound: vec![chunk(9)], ..Told::default() },
        0,
    )
    .expect("told");
    let lost = |n, donor| {
        let removed = Told { removed: vec![chunk(n)], ..Told::default() };
        placements::tell(&fixture.db, DonorId(donor), &removed, 0).expect("told")
    };
    assert!(!lost(9, 1), "garbage");
    placements::mark_leaving(&fixture.db, &chunk(1), DonorId(2)).expect("marked");
    assert!(!lost(1, 2), "ordered");
    assert!(!lost(1, 3), "never there");
    assert!(lost(1, 1));
    assert!(!lost(1, 1), "said again");
}
