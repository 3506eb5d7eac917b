//! Tests that a catalog which was exported and replayed is equal to the original.

mod checkpoints;
mod holes;
mod positions;
mod random_changes;
mod reservations;
mod sealing_again;

use crate::engine::{self, Database};
use crate::fixture::{Fixture, chunk, coded, file, in_parts, new_space, path};
use crate::history::{kept_rows, snapshots};
use crate::log::{
    changes,
    export::{self, CatalogSnapshot},
    log_position::{Advance, LogCopy, Position},
    records::Record,
    restored,
};
use crate::members::{self, grants, groups, quotas, stored_member::StoredMember};
use crate::names::{
    dir_policies,
    entries::{self, DirId, EntryPlace},
    walk::{Walk, What},
};
use crate::operations::{
    self, GroupEdit,
    commits::commit::PreparedFile,
    members::NewMember,
    names::{self, directories},
    upkeep::reaping,
};
use crate::pool_records::{donors, meta, notes, sessions, spaces};
use crate::rebuild::replay::Replay;
use crate::sql::{Tx, params};
use crate::versions::{self, parts};
use crate::when::{WhatIsKept, When};
use crate::{Durability, Error};
use positions::position;
use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::Digest;
use potluck_core::ids::{MemberId, SnapshotId, VersionId};
use potluck_core::kept_place::is_reserved;
use potluck_core::policy::Policy;
use potluck_core::recipe::PART_CHUNKS;
use potluck_core::rights::{Grantee, Right, Rights};
use potluck_core::seal::SpaceKey;
use potluck_wire::control::Condition;
use potluck_wire::token::Role;
use tempfile::TempDir;

const WHEN: When = When {
    pool_ms: 5,
    wall_ms: 6,
    by: None,
    keeps: WhatIsKept::AsPoliciesSay,
    durability: Durability::Disk,
};
const MADE: EntryAttributes = EntryAttributes::of_dir(6);

/// An empty catalog onto which records are replayed.
struct Target {
    _dir: TempDir,
    db: Database,
    replay: Replay,
}

impl Target {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("catalog.db");
        meta::create(&file, "test pool").expect("created");
        let db = engine::open_existing(&file).expect("opened");
        Self { _dir: dir, db, replay: Replay::default() }
    }

    fn apply(&mut self, records: &[Record]) {
        for record in records {
            let text = serde_json::to_string(record).expect("written");
            let record = serde_json::from_str(&text).expect("a record");
            self.replay.apply(&self.db, record).expect("applied");
        }
    }
}

/// Exports all changes after the row `after`, in pages of 1000 rows as a copy of the log does that has fallen behind.
fn changes_after(db: &Tx, mut after: i64) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some(more) = export::changes(db, after, 1000).expect("exported") {
        records.extend(more.records);
        after = more.last.0;
    }
    records
}

/// Exports all changes, and has the catalog forget them.
fn drain(db: &Tx) -> Vec<Record> {
    let records = changes_after(db, 0);
    changes::forget(db, changes::last(db).expect("read")).expect("forgotten");
    records
}

fn base(fixture: &Fixture) -> (Vec<Record>, i64) {
    let mut snapshot = CatalogSnapshot::begin(&fixture.file()).expect("begun");
    let mut all = Vec::new();
    loop {
        let more = snapshot.next_records().expect("read");
        if more.is_empty() {
            return (all, snapshot.last.0);
        }
        all.extend(more);
    }
}

/// Returns all that a catalog records, as text: names, versions, recipes, parity, policies, members, references and
/// sums.
fn told(db: &Tx) -> Vec<String> {
    let mut told = Vec::new();
    let taken = snapshots::all(db).expect("snapshots").into_iter();
    let taken: Vec<SnapshotId> = taken.map(|taken| taken.number).collect();
    for space in spaces::all(db).expect("spaces") {
        let key = space.keys.clone();
        let (sums, maker) = (space.sums, space.made_by);
        told.push(format!("{} {:?} {key:?} {sums:?} {maker:?}", space.name, space.policy));
        let entry = entries::lookup(db, DirId::ROOT, &space.name).expect("read").expect("there");
        told.push(format!("{:?}", entry.attributes));
        told.push(format!("{:?}", grants::in_space(db, &space.name).expect("grants")));
        let mut walk = Walk::new(db, space.root, true, None).expect("a walk");
        while let Some(item) = walk.next_item().expect("read") {
            // Snapshots show neither what is kept nor other snapshots.
            let is_shown = !item.path.split('/').any(is_reserved);
            let since = taken.iter().find(|number| is_shown && **number >= item.since);
            let at = format!("{}/{} {since:?} {}", space.name, item.path, item.pinned);
            match item.what {
                What::Dir(dir) => {
                    told.push(format!("{at} {:?}", dir_policies::get(db, dir).expect("read")));
                    let mut attributes = item.attributes;
                    if item.path.split('/').next_back().is_some_and(is_reserved) {
                        // Nobody sees these.
                        (attributes.mtime, attributes.changed) = Default::default();
                    }
                    told.push(format!("{at} {attributes:?}"));
                }
                What::Link(target) => {
                    told.push(format!("{at} {target} {:?}", item.attributes));
                }
                What::File(version) if version.parts > 0 => {
                    told.push(format!("{at} {version:?}"));
                    for part in parts::of(db, version.id).expect("parts") {
                        let part = versions::get(db, part).expect("a part");
                        let recipe = versions::recipe_of(db, &part).expect("a recipe");
                        told.push(format!("{at} {part:?} {recipe:?}"));
                    }
                }
                What::File(version) => told.push(format!(
                    "{at} {version:?} {:?} {:?} {:?}",
                    versions::recipe_of(db, &version).expect("a recipe"),
                    versions::parity(db, &version).expect("parity"),
                    versions::inline(db, version.id).expect("content"),
                )),
            }
        }
    }
    told.extend(told_of_history(db));
    told.push(format!("{:?}", groups::all(db).expect("groups")));
    told.push(format!("{:?}", quotas::all(db).expect("quotas")));
    told.extend(members::all(db).expect("members").iter().map(|member| format!("{member:?}")));
    told.extend(donors::all(db).expect("donors").iter().map(|donor| format!("{donor:?}")));
    for key in notes::LOGGED {
        told.push(format!("{key}: {:?}", notes::get(db, key).expect("read")));
    }
    let mut select = db
        .prepare("SELECT hex(name), len, refs FROM chunks WHERE refs > 0 ORDER BY name")
        .expect("a query");
    let rows = select.query_map(params![], |row| {
        Ok((row.get::<String>(0)?, row.get::<i64>(1)?, row.get::<i64>(2)?))
    });
    told.extend(rows.expect("rows").map(|row| format!("{:?}", row.expect("a row"))));
    told
}

/// Returns the rows of kept entries and the snapshots with their entries, as text.
fn told_of_history(db: &Tx) -> Vec<String> {
    let mut told = Vec::new();
    for number in 0..1000 {
        let Some(row) = kept_rows::get(db, VersionId(number)).expect("read") else { continue };
        let dir = entries::path_of(db, row.dir).expect("read");
        told.push(format!("{dir:?} {:?}", kept_rows::HistoryRow { dir: DirId::ROOT, ..row }));
    }
    for taken in snapshots::all(db).expect("read") {
        told.push(format!("{taken:?}"));
        let at = entries::existing_dir(db, &taken.at).expect("there");
        let mut walk = Walk::new(db, at, true, None).expect("a walk");
        while let Some(item) = walk.next_item().expect("read") {
            told.push(match item.what {
                What::File(version) => format!("{} {:?}", item.path, version.id),
                What::Link(target) => format!("{} {target} {:?}", item.path, item.attributes),
                What::Dir(_) => item.path,
            });
        }
    }
    told
}

fn member(db: &Tx, name: &str) -> StoredMember {
    let (joined_wall_ms, invited_by) = (1_700_000_000_000, Some(MemberId(1)));
    let new = NewMember { role: Role::Donor, name, joined_wall_ms, invited_by };
    operations::members::add(db, new, |_| Ok(Digest::of(name.as_bytes()))).expect("a member")
}

fn small(at: &str, content: &[u8]) -> PreparedFile {
    let mut file = file(at, &[], &[]);
    file.version.size = content.len() as u64;
    file.version.inline = true;
    file.inline = Some(content.to_vec());
    file
}

#[test]
fn after_a_gap_what_fits_is_taken_and_the_rest_is_counted() {
    let (mut fixture, mut target) = (Fixture::new(), Target::new());
    target.apply(&drain(&fixture.db));
    operations::spaces::create(&fixture.db, &new_space("lost", Policy::default(), None), 0)
        .expect("a space");
    drain(&fixture.db); // and nobody has it
    directories::make_dir(&fixture.db, &path("pot://lost/dir"), false, MADE).expect("made");
    fixture.put(file("pot://lab/kept", &[1], &[1]));
    target.apply(&drain(&fixture.db));
    assert_eq!(target.replay.left_out, 2, "the directory, and when the one above was modified");
    assert!(entries::resolve(&target.db, &path("pot://lab/kept")).expect("resolved").is_some());
    let lost = entries::resolve(&target.db, &path("pot://lost/dir"));
    assert_eq!(lost, Err(Error::NoSpaceNamed("lost".into())));
}

/// If the log ends between the record that a file was replaced again and the record of its new content, the file stays
/// as it was, and the replay counts it as left out.
#[test]
fn frequently_replaced_file_survives_any_log_end() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/x", &[1], &[1]));
    let (base, last) = base(&fixture);
    changes::forget(&fixture.db, last).expect("forgotten");
    fixture.put(file("pot://lab/x", &[2], &[1]));
    fixture.put(file("pot://lab/new/y", &[3], &[1]));
    fixture.put(file("pot://lab/x", &[4], &[1]));
    let later = drain(&fixture.db);
    let until = later.iter().position(|record| matches!(record, Record::Passed { .. }));
    let (before, rest) = later.split_at(until.expect("one that passed") + 1);
    let there = |db: &Tx, at| entries::resolve(db, &path(at)).expect("resolved").is_some();

    let mut cut = Target::new();
    cut.apply(&base);
    cut.apply(before);
    assert!(there(&cut.db, "pot://lab/x"), "as it was");
    assert_eq!(cut.replay.finish(&cut.db), Ok(1));

    let mut whole = Target::new();
    whole.apply(&base);
    whole.apply(before);
    whole.apply(rest);
    assert_eq!(told(&whole.db), told(&fixture.db));
    assert_eq!(whole.replay.finish(&whole.db), Ok(0));
}

#[test]
fn a_long_recipe_comes_back_whole_from_short_records() {
    let (mut fixture, mut target) = (Fixture::new(), Target::new());
    let chunks: Vec<u64> = (0..70_000).collect();
    fixture.put(file("pot://lab/large", &chunks, &[1]));
    let records = drain(&fixture.db);
    let len = |record| serde_json::to_string(record).expect("written").len();
    assert!(records.len() > 10 && records.iter().all(|record| len(record) < 1 << 20));
    target.apply(&records);
    assert_eq!(told(&target.db), told(&fixture.db));
}

#[test]
fn numbers_of_the_lost_term_are_not_given_again() {
    let (mut fixture, mut target) = (Fixture::new(), Target::new());
    let version = fixture.put(file("pot://lab/a", &[1], &[1]));
    let known = member(&fixture.db, "donor-1");
    target.apply(&drain(&fixture.db));
    target.replay.finish(&target.db).expect("finished");
    restored::settle(&target.db, "a test").expect("settled");
    let next = meta::Counter::Version.take(&target.db, 1).expect("a number");
    assert!(VersionId(next as u64) > VersionId(version.0 + 1000));
    assert!(member(&target.db, "donor-2").id.0 > known.id.0 + 100);
    assert_eq!(versions::get(&target.db, version).expect("there").id, version);
    assert!(crate::chunks::get(&target.db, &chunk(1)).expect("read").is_some());
}

#[test]
fn a_damaged_file_is_left_out_and_keeps_no_other_from_the_log() {
    let mut fixture = Fixture::new();
    let lost = [
        fixture.put(file("pot://lab/b", &[2], &[1])),
        fixture.put(coded("pot://lab/c", "2+1", 2, &[(3, &[1]), (4, &[2]), (11, &[3])])),
        fixture.put(file("pot://lab/d", &[6], &[1])),
    ];
    for at in ["pot://lab/a", "pot://lab/e"] {
        fixture.put(file(at, &[1], &[1]));
    }
    for (version, change) in lost.iter().zip(["digest = x'00'", "parity = x'00'", "copies = 'x'"]) {
        let update = format!("UPDATE versions SET {change} WHERE id = {}", version.0);
        fixture.db.raw().execute_batch(&update).expect("damaged");
    }
    let lost = ["pot://lab/b", "pot://lab/c", "pot://lab/d"];
    let there = |db: &Tx, at| entries::resolve(db, &path(at)).expect("resolved").is_some();
    let (records, _) = base(&fixture);
    for records in [records, drain(&fixture.db)] {
        let mut target = Target::new();
        operations::spaces::create(&target.db, &new_space("lab", Policy::default(), None), 0)
            .expect("a space");
        target.apply(&records);
        assert_eq!(target.replay.left_out, 0);
        assert!(there(&target.db, "pot://lab/a") && there(&target.db, "pot://lab/e"));
        assert!(lost.iter().all(|at| !there(&target.db, at)));
    }
}

#[test]
fn a_base_that_a_freeze_overtook_is_not_noted_d5() {
    let fixture = Fixture::new();
    let db = &fixture.db;
    let epoch = meta::next_epoch(db).expect("begun");
    let note = |before: Option<&Position>, epoch| {
        let (before, after) = (before.cloned(), position(1, 1, 0));
        Advance { copy: LogCopy::OnDonors, before, after, epoch }.note(db)
    };
    assert_eq!(note(None, epoch), Ok(()), "the first generation");
    let there = position(1, 1, 0);
    assert_eq!(note(Some(&there), epoch), Ok(()));
    assert_eq!(note(None, epoch), Err(Error::NoSession), "another came between");
    Position::clear(db, LogCopy::OnDonors).expect("cleared");
    assert_eq!(note(Some(&there), epoch), Err(Error::NoSession), "a freeze");
    meta::raise_epoch(db, epoch).expect("raised");
    assert_eq!(note(None, epoch), Err(Error::NoSession), "one before the first");
}

/// A move measures the paths below before its transaction, and a longer one may be put there in between.
#[test]
fn log_skips_only_entries_with_overlong_paths() {
    let mut fixture = Fixture::new();
    fixture.commit(vec![small("pot://lab/a/one", b"1"), small("pot://lab/z", b"2")]);
    let db = &*fixture.db;
    let long = format!("pot://lab{}", format!("/{}", "d".repeat(199)).repeat(20));
    directories::make_dir(db, &path(&long), true, MADE).expect("made");
    let deep = entries::existing_dir(db, &path(&long)).expect("there");
    let one = entries::existing(db, &path("pot://lab/a/one")).expect("there");
    let EntryPlace::File(one) = one.place else { panic!("a file") };
    entries::put_file(db, deep, &"f".repeat(200), one).expect("put");
    let (records, _) = base(&fixture);
    let files = records.iter().filter_map(|record| match record {
        Record::File { path, .. } => Some(path.to_string()),
        _ => None,
    });
    assert_eq!(files.collect::<Vec<_>>(), ["pot://lab/a/one", "pot://lab/z"]);
    assert!(
        records
            .iter()
            .any(|record| matches!(record, Record::Dir { path, .. } if path.to_string() == long))
    );
}

/// Returns the bytes of the longest record.
fn longest(records: &[Record]) -> usize {
    let bytes = |record: &Record| serde_json::to_string(record).expect("written").len();
    records.iter().map(bytes).max().unwrap_or(0)
}

#[test]
fn a_file_in_parts_is_logged_part_by_part_and_comes_back_d4() {
    let chunks = 0..5 * PART_CHUNKS as u64 + 10;
    let mut f = Fixture::new();
    let mut files = in_parts("pot://lab/large", 0, chunks.clone(), &[1]);
    let whole = files.pop().expect("the whole");
    let mut target = Target::new();
    target.apply(&changes_after(&f.db, 0));
    // The log has parts before their file is complete, and parts of another file that is never finished.
    for part in in_parts("pot://lab/never", 1, 0..1500, &[1]).into_iter().take(2) {
        f.put(part);
    }
    f.put(files[3].clone());
    let seen = changes::last(&f.db).expect("a number");
    target.apply(&changes_after(&f.db, 0)[..]);
    for part in files {
        f.put(part);
    }
    // A base that begins now has the parts that are there.
    let mut base = CatalogSnapshot::begin(&f.file()).expect("begun");
    f.put(whole);
    f.put(file("pot://lab/small", &[20_000, 20_001], &[1]));
    let after = changes_after(&f.db, seen);
    assert!(longest(&after) < 60_000, "{}", longest(&after));
    target.apply(&after);

    let mut from_base = Target::new();
    let mut pieces = 0;
    loop {
        let records = base.next_records().expect("read");
        if records.is_empty() {
            break;
        }
        pieces += records.len();
        from_base.apply(&records);
    }
    assert!(pieces > 12, "{pieces}");
    from_base.apply(&changes_after(&f.db, base.last.0));

    sessions::end(&f.db, &f.session).expect("ended");
    while reaping::reap(&f.db, 10, 0, 0).expect("reaped") {}
    let expected = told(&f.db);
    for Target { db, replay, _dir } in [target, from_base] {
        assert_eq!(replay.finish(&db).expect("finished"), 0);
        assert_eq!(told(&db), expected);
        names::remove(&db, &path("pot://lab/large"), false, WHEN).expect("removed");
        while reaping::reap(&db, 10, 0, 1000).expect("reaped") {}
        let left: i64 = db
            .query_row("SELECT count(*) FROM chunks WHERE refs > 0", params![], |row| row.get(0))
            .expect("counted");
        assert_eq!(left, 2);
    }
}

#[test]
fn free_pages_do_not_count_as_base_size() {
    let fixture = Fixture::new();
    let bytes = || CatalogSnapshot::begin(&fixture.file()).and_then(|at| at.bytes()).expect("read");
    let before = bytes();
    let run = |sql| fixture.db.raw().execute_batch(sql).expect("done");
    run("CREATE TABLE large (bytes); INSERT INTO large VALUES (zeroblob(1000000));");
    let large = bytes();
    assert!(large > before + 1_000_000, "{large}");
    run("DELETE FROM large");
    assert!(bytes() < before + 100_000, "{}", bytes());
}
