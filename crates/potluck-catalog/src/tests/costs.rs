//! Tests that measure the costs of operations, print them, and bound them loosely so that a regression shows.

use crate::Error;
use crate::chunks::{
    followed,
    followed::ToFollow,
    placements, referrers,
    units::{Met, PageLimit, SomeUnits},
    unused_chunks,
};
use crate::fixture::{Fixture, chunk, coded, donors_there, file, path};
use crate::members::grants;
use crate::operations::{
    checkpoints::{self, NewCheckpoint},
    commits::commit::PreparedFile,
    names::{self, directories},
    series::steps,
    spaces::policy_changes,
    upkeep::reaping,
};
use crate::pool_records::spaces;
use crate::sql::Tx;
use crate::tests::NO_CONDITIONS;
use crate::versions::open;
use crate::when::When;
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::{ChunkId, DonorId, MemberId};
use potluck_core::policy::{Override, Redundancy, SeriesRule};
use potluck_core::rights::{Grantee, Right};
use potluck_pool::PoolView;
use potluck_pool::redundancy::Findings;
use potluck_wire::control::Holding;
use std::collections::BTreeMap;
use std::time::Duration;

fn batch(number: u64, files: u64) -> Vec<PreparedFile> {
    let one =
        |n| file(&format!("pot://lab/d{number}/file-{n:05}"), &[number * 100_000 + n], &[1, 2]);
    (0..files).map(one).collect()
}

/// The number of batches that are timed together, because the clock below is coarse.
const TIMES: u32 = 10;

/// Returns the CPU time of this thread, which does not depend on how busy the machine is.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[test]
fn a_thousand_small_files_commit_and_open_fast() {
    let mut fixture = Fixture::new();
    for number in 0..20 {
        fixture.commit(batch(number, 1000));
    }
    let batches: Vec<_> = (100..100 + TIMES).map(|number| batch(number.into(), 1000)).collect();
    let began = cpu();
    for files in batches {
        assert!(fixture.commit(files).iter().all(Result::is_ok));
    }
    let committed = (cpu() - began) / TIMES;

    // Readers read in one snapshot; without, each statement would take its own locks.
    let snapshot = fixture.db.begin().expect("a snapshot");
    let began = cpu();
    for number in 100..100 + TIMES {
        let page = open::open(&snapshot, &path(&format!("pot://lab/d{number}")), true, None);
        assert_eq!(page.expect("opened").files.len(), 1000);
    }
    let opened = (cpu() - began) / TIMES;

    let holdings: Vec<_> =
        (0..1000).map(|n| Holding { name: chunk(500_000 + n), len: 1000 }).collect();
    let began = cpu();
    for _ in 0..TIMES {
        placements::compare(&snapshot, DonorId(1), &holdings).expect("compared");
    }
    let compared = (cpu() - began) / TIMES;

    println!(
        "1000 files of one chunk, two copies: commit {committed:?}, open {opened:?}; 1000 holdings compared {compared:?}"
    );
    assert!(committed.as_millis() < 500 && opened.as_millis() < 500, "far over budget");
}

#[test]
fn rights_lookup_cost_is_independent_of_grants() {
    let fixture = Fixture::new();
    let asked = || {
        let began = cpu();
        for _ in 0..2000 {
            let rights = grants::of_member(&fixture.db, MemberId(7), "lab").expect("read");
            assert!(rights.allow(Right::Read) && !rights.allow(Right::Write));
        }
        cpu() - began
    };
    let grant = |number| {
        let rights = [Right::Read].into_iter().collect();
        let to = Grantee::Member(MemberId(number));
        grants::set(&fixture.db, "lab", &to, rights).expect("granted");
    };
    let tx = fixture.db.begin().expect("a transaction");
    grant(7);
    let few = asked();
    (0..20_000).for_each(grant);
    let many = asked();
    drop(tx);
    println!("2000 questions about rights: {few:?}, and {many:?} with 20,000 grants in the space");
    assert!(many < 4 * few + Duration::from_millis(50), "{many:?} after {few:?}");
}

/// Promise D4 leaves 5 s for a start with a million files; this measures the catalog's share of them. A million files
/// take minutes to write, so that many are asked for by hand:
/// `POTLUCK_TEST_FILES=1000000 cargo test --release -p potluck-catalog --lib many_files -- --nocapture`.
#[test]
fn many_files_open_in_time_d4() {
    let asked = std::env::var("POTLUCK_TEST_FILES").ok().and_then(|files| files.parse().ok());
    let thousands = asked.unwrap_or(20_000_u64) / 1000;
    let mut fixture = Fixture::new();
    let began = cpu();
    for number in 0..thousands {
        fixture.commit(batch(number, 1000));
    }
    let written = cpu() - began;
    let size = std::fs::metadata(fixture.file()).map_or(0, |file| file.len());
    let began = cpu();
    let fixture = fixture.reopen();
    let checked = cpu() - began;
    let began = cpu();
    let stats = crate::chunks::stats::count(&fixture.db, &Default::default()).expect("counted");
    let counted = cpu() - began;
    assert_eq!(stats.files, thousands * 1000);
    let began = cpu();
    let mut after = ChunkId::FIRST;
    while let Some(last) =
        placements::counted_at(&fixture.db, DonorId(1), after, 65_536).expect("read").last()
    {
        after = *last;
    }
    let swept = cpu() - began;
    println!(
        "{thousands} thousand files, two copies, {size} bytes: written in {written:?}, opened and checked in {checked:?}, counted in {counted:?}, a donor's copies walked in {swept:?}"
    );
    assert!(checked.as_secs() < 5);
}

/// Scans everything as a manager does, but without pauses. Returns the findings and the CPU time.
fn scanned(fixture: &Fixture, donors: u32) -> (Findings, Duration) {
    scanned_as(fixture, donors_there(donors).view(Duration::ZERO))
}

fn scanned_as(fixture: &Fixture, view: PoolView) -> (Findings, Duration) {
    let began = cpu();
    let findings = fixture.scan(Findings::new(view));
    (findings, cpu() - began)
}

/// `POTLUCK_TEST_CHUNKS=1000000 cargo test --release -p potluck-catalog --lib scan -- --nocapture` asks for another
/// number.
#[test]
fn a_scan_looks_at_many_chunks_in_little_time() {
    let asked = std::env::var("POTLUCK_TEST_CHUNKS").ok().and_then(|chunks| chunks.parse().ok());
    let files = asked.unwrap_or(20_000_u64) / 100;
    let mut copied = Fixture::new();
    let mut group = Fixture::new();
    for n in 0..files {
        let chunks: Vec<u64> = (n * 100..n * 100 + 100).collect();
        let mut twice = file(&format!("pot://lab/{n:06}"), &chunks, &[1, 2]);
        twice.version.copies = 2;
        copied.put(twice);
        // 4+2: data on donors 1 to 4 in turn, the parity of each group on two more.
        let on: [&[u32]; 6] = [&[1], &[2], &[3], &[4], &[5], &[6]];
        let data = (0..64).map(|at| (n * 100 + at, on[at as usize % 4]));
        let parity = (0..32).map(|at| (n * 100 + 64 + at, on[4 + at as usize % 2]));
        let chunks: Vec<_> = data.chain(parity).collect();
        group.put(coded(&format!("pot://lab/{n:06}"), "4+2", 64, &chunks));
    }
    let (found, of_copies) = scanned(&copied, 6);
    assert_eq!((found.spaces[0].health.files, found.queue.len()), (files, 0));
    let (found, of_groups) = scanned(&group, 6);
    assert_eq!((found.spaces[0].health.files, found.queue.len()), (files, 0));
    // One of two donors is not there, so every chunk lacks a copy.
    let (found, of_losses) = scanned(&copied, 1);
    assert_eq!(found.lacking, [files * 100]);
    println!(
        "{files} files of 100 chunks scanned: two copies {of_copies:?}, 4+2 {of_groups:?}, with a donor lost {of_losses:?}"
    );
    assert!(of_copies.as_secs() < 5 && of_groups.as_secs() < 5, "far over budget");
}

/// `POTLUCK_TEST_CHUNKS=1000000 cargo test --release -p potluck-catalog --lib one_donor -- --nocapture` asks for
/// another number.
#[test]
fn following_a_donor_costs_its_files_only() {
    let asked = std::env::var("POTLUCK_TEST_CHUNKS").ok().and_then(|chunks| chunks.parse().ok());
    let files = asked.unwrap_or(20_000_u64) / 10;
    let donors = 100;
    let mut fixture = Fixture::new();
    fixture.pool = donors_there(donors);
    let began = cpu();
    let one = |n: u64| {
        let first = n as u32 % donors;
        let chunks: Vec<u64> = (n * 10..n * 10 + 10).collect();
        let on = [first + 1, (first + 1 + n as u32 / donors) % donors + 1];
        let mut twice = file(&format!("pot://lab/{n:06}"), &chunks, &on[..]);
        twice.version.copies = if on[0] == on[1] { 1 } else { 2 };
        twice
    };
    for numbers in (0..files).collect::<Vec<_>>().chunks(1000) {
        fixture.commit(numbers.iter().map(|n| one(*n)).collect());
    }
    let stored = cpu() - began;
    let (mut found, of_all) = scanned(&fixture, donors);
    assert_eq!((found.spaces[0].health.files, found.queue.len()), (files, 0));

    let last = found.remember().expect("nothing is to be remembered");
    let gone = DonorId(1);
    let view = donors_there(donors).view(Duration::ZERO).without(&[gone].into());
    assert_eq!(last.changed(&view), [gone].into());
    let began = cpu();
    let snapshot = fixture.db.begin().expect("a snapshot");
    let (mut files_at, mut copies, mut after) =
        (BTreeMap::<_, SomeUnits>::new(), 0, Some(ChunkId::FIRST));
    while let Some(from) = after {
        let page = referrers::of_copies_at(&snapshot, gone, from, 512).expect("read");
        for (version, name) in page.uses {
            files_at.entry(version).or_default().names.push(name);
            copies += 1;
        }
        after = page.next;
    }
    let versions: Vec<ToFollow> = files_at
        .into_iter()
        .map(|(version, units)| ToFollow { version, units: Some(units) })
        .collect();
    let space = spaces::all(&snapshot).expect("read").remove(0);
    let known = (space.id, space.name.clone(), Redundancy::Copies(2));
    let mut findings = Findings::resume(view.clone(), last, [known]);
    let mut rest = &versions[..];
    while !rest.is_empty() {
        let limit = PageLimit { chunks: 2048, entries: 2048 };
        let (page, looked_at) = followed::some(&snapshot, rest, limit).expect("read");
        for followed in page {
            assert!(findings.enter_again(followed.space));
            let Met::File(version, layout) = followed.met else { panic!("it is sound") };
            findings.add_again(&version, space.chunk_kind(), &layout);
        }
        rest = &rest[looked_at..];
    }
    findings.conclude();
    let of_one = cpu() - began;
    drop(snapshot);
    let (walked, _) = scanned_as(&fixture, view);
    assert_eq!(findings.spaces[0].health, walked.spaces[0].health);
    assert_eq!(findings.lacking, walked.lacking);
    println!(
        "{} chunks at {donors} donors stored in {stored:?}; walked over in {of_all:?}; one donor's {copies} copies, of {} files, looked at in {of_one:?}",
        files * 10,
        versions.len()
    );
    assert!(versions.len() as u64 <= files / 20, "{} files", versions.len());
    assert!(of_one * 5 < of_all, "{of_one:?} against {of_all:?}");
}

/// Runs each step in a transaction of its own, as the writer does. Returns their number and the time of the longest.
fn steps(fixture: &Fixture, step: impl Fn(&Tx) -> Result<bool, Error>) -> (u32, Duration) {
    let (mut count, mut longest) = (0, Duration::ZERO);
    loop {
        let began = cpu();
        let tx = fixture.db.begin().expect("a transaction");
        let more = step(&tx).expect("a step");
        tx.commit().expect("committed");
        (count, longest) = (count + 1, longest.max(cpu() - began));
        if !more {
            return (count, longest);
        }
    }
}

/// The steps are as large as those that the manager asks for, so that removing many files holds up no commit.
#[test]
fn background_steps_hold_the_writer_briefly() {
    let mut fixture = Fixture::new();
    let files = 20_000;
    for number in 0..files / 1000 {
        fixture.commit(batch(number, 1000));
    }
    let when = When { pool_ms: 5, wall_ms: 5, ..When::default() };
    for number in 0..files / 1000 {
        names::remove(&fixture.db, &path(&format!("pot://lab/d{number}")), true, when)
            .expect("removed");
    }
    let (count, reaped) = steps(&fixture, |db| reaping::reap(db, 2000, 0, 5));
    assert!(u64::from(count) >= files / 1000, "{count} steps");
    let gone = "UPDATE chunks SET state = 2, zero_since_ms = 5 WHERE refs = 0";
    assert_eq!(fixture.db.raw().execute(gone, []).expect("marked") as u64, files);
    let (count, pruned) = steps(&fixture, |db| unused_chunks::prune_gone(db, 5, 2000));
    assert_eq!(u64::from(count), files / 2000 + 1);
    println!("steps of 2000 rows: taken apart in {reaped:?}, chunks forgotten in {pruned:?}");
    assert!(reaped < Duration::from_millis(500) && pruned < Duration::from_millis(500));
}

/// Returns the number of copies that a donor may have lost because it was started again, and of the steps in which they
/// were found.
fn looked_for(fixture: &Fixture, donor: u32) -> (usize, usize) {
    let snapshot = fixture.db.begin().expect("a snapshot");
    let (mut found, mut taken, mut rest) = (0, 0, Some(ChunkId::FIRST));
    while let Some(from) = rest {
        let step = unused_chunks::in_memory(&snapshot, DonorId(donor), from, 1).expect("read");
        (found, taken, rest) = (found + step.chunks.len(), taken + 1, step.next);
    }
    (found, taken)
}

/// The steps are counted: each is a look into two indexes.
#[test]
fn doubting_a_donor_costs_its_unused_copies_only() {
    let mut fixture = Fixture::new();
    // Each commit numbers its chunks after those of the last.
    let mut commit = |dir: &str, numbers: std::ops::Range<u64>, donors: &[u32]| {
        let one = |n: u64| file(&format!("pot://lab/{dir}/{n}"), &[n], donors);
        assert!(fixture.commit(numbers.map(one).collect()).iter().all(Result::is_ok));
    };
    commit("removed", 0..1000, &[1]);
    commit("removed", 1000..1005, &[1, 2]);
    commit("stays", 2000..3000, &[2]);
    commit("removed", 3000..4000, &[1]);
    assert_eq!(looked_for(&fixture, 2), (0, 1), "no chunk is unused yet");
    let when = When { pool_ms: 5, wall_ms: 5, ..When::default() };
    names::remove(&fixture.db, &path("pot://lab/removed"), true, when).expect("removed");
    steps(&fixture, |db| reaping::reap(db, 2000, 0, 5));
    assert_eq!(looked_for(&fixture, 1), (2005, 2006));
    assert_eq!(looked_for(&fixture, 2), (5, 7), "its used copies are one leap, and so are others'");
    assert_eq!(looked_for(&fixture, 3), (0, 1), "it has no copies");
}

/// The number of times that a commit is repeated to measure its cost.
const REPEATED: u32 = 50;

#[test]
fn checkpoint_commit_cost_is_independent_of_size() {
    let mut fixture = Fixture::new();
    let took = |fixture: &mut Fixture, id: u8, files: u64, style| {
        let number = u64::from(id);
        let (id, target) = (CheckpointId([id; 16]), path(&format!("pot://lab/step-{number}")));
        let new = NewCheckpoint { id, target, style, made_by: MemberId(1), idle_ms: 1000 };
        let when = When { pool_ms: 1, wall_ms: 1, ..When::default() };
        let open = checkpoints::begin(&fixture.db, &new, when).expect("begun");
        for part in 0..files.div_ceil(1000) {
            let one =
                |n: u64| file(&format!("{}/d/{n:05}", open.staging), &[number * 100_000 + n], &[1]);
            fixture.commit((part * 1000..files.min(part * 1000 + 1000)).map(one).collect());
        }
        // The clock is coarse, so the commit is made many times, each time in a transaction that is rolled back.
        let began = cpu();
        for _ in 0..REPEATED {
            let tx = fixture.db.begin().expect("a transaction");
            checkpoints::commit(&tx, ("lab", &id), NO_CONDITIONS, when).expect("committed");
        }
        (cpu() - began) / REPEATED
    };
    let one = took(&mut fixture, 1, 1, CommitStyle::Replace);
    let many = took(&mut fixture, 2, 10_000, CommitStyle::Replace);
    // In a directory that is there each entry is put by itself.
    directories::make_dir(
        &fixture.db,
        &path("pot://lab/step-3/d"),
        true,
        EntryAttributes::of_dir(1),
    )
    .expect("made");
    let merged = took(&mut fixture, 3, 4000, CommitStyle::Merge);
    println!(
        "commit of a checkpoint of 1 file {one:?}, of 10000 {many:?}; 4000 files merged {merged:?}"
    );
    // A commit that replaces files is measured the same way.
    let over = |fixture: &mut Fixture, number: u64, files: u64| {
        for part in 0..files.div_ceil(1000) {
            let at = |n: u64| format!("pot://lab/step-{number}/d/{n:05}");
            let one = |n: u64| file(&at(n), &[5_000_000 + number * 100_000 + n], &[1]);
            fixture.commit((part * 1000..files.min(part * 1000 + 1000)).map(one).collect());
        }
        took(fixture, number as u8, files, CommitStyle::Merge)
    };
    let replaced = over(&mut fixture, 4, 2000);
    println!("2000 files merged over others {replaced:?}");
    let keeps = Override { keep_versions: Some("10".parse().expect("ten")), ..Override::default() };
    policy_changes::set(&fixture.db, &path("pot://lab"), &keeps).expect("set");
    let kept = over(&mut fixture, 5, 2000);
    println!("2000 files merged over others, which are kept {kept:?}");
    assert!(many < Duration::from_millis(3), "{many:?} for what moves one entry");
    assert!(merged < Duration::from_millis(500), "far over budget");
}

#[test]
fn series_purge_cost_is_independent_of_length() {
    let fixture = Fixture::new();
    let of = |name: &str, steps: usize| {
        let at = path(&format!("pot://lab/{name}"));
        for number in 0..steps {
            let step = at.join(&format!("{number:05}")).expect("a path");
            directories::make_dir(&fixture.db, &step, true, EntryAttributes::of_dir(number as i64))
                .expect("made");
        }
        let series = SeriesRule { keep_last: Some(1), ..SeriesRule::default() };
        let rule = Override { series, ..Override::default() };
        policy_changes::set(&fixture.db, &at, &rule).expect("set");
        let when = When { pool_ms: 1, wall_ms: 1, ..When::default() };
        let mut looked_at = steps::look(&fixture.db, &at, Vec::new(), when).expect("looked at");
        let steps = std::mem::take(&mut looked_at.steps);
        let began = cpu();
        for _ in 0..REPEATED {
            let tx = fixture.db.begin().expect("a transaction");
            let purged = steps::purge(&tx, &looked_at, &steps[steps.len() - 8..], when);
            assert_eq!(purged.expect("purged").len(), 8);
        }
        (cpu() - began) / REPEATED
    };
    let (short, long) = (of("short", 10), of("long", 15_000));
    println!("8 steps are purged of 10 in {short:?}, of 15000 in {long:?}");
    assert!(long < 4 * short + Duration::from_millis(1), "{long:?} where {short:?} is enough");
}

#[test]
fn directories_below_one_another_cost_the_same_each() {
    let fixture = Fixture::new();
    let make = |name: &str, depth: usize| {
        let deep = format!("pot://lab/{name}{}", "/d".repeat(depth));
        let began = cpu();
        directories::make_dir(&fixture.db, &path(&deep), true, EntryAttributes::of_dir(1))
            .expect("made");
        cpu() - began
    };
    make("first", 10); // Statements are prepared.
    let (shallow, deep) = (make("shallow", 250), make("deep", 2000));
    println!("250 directories below one another in {shallow:?}, 2000 in {deep:?}");
    assert!(deep < shallow * 30, "2000 took {deep:?}, 250 took {shallow:?}");
}
