//! Tests that a damaged catalog is refused, or that operations go around the damage, and that no wrong file is given
//! out.

use crate::OpenError;
use crate::chunks::units::{self, Met};
use crate::fixture::{Fixture, chunk, coded, file, path};
use crate::names::walk::Walk;
use crate::operations::{
    history,
    names::{self, directories},
    spaces::policy_changes,
    upkeep::reaping,
};
use crate::pool_records::spaces;
use crate::versions::open;
use crate::when::When;
use crate::{Error, PageLimit, engine};
use potluck_core::attributes::EntryAttributes;
use potluck_core::ids::VersionId;
use potluck_core::kept_place::KeptPlace;
use potluck_core::policy::Override;
use std::fs;
use std::os::unix::fs::FileExt;

#[test]
fn a_damaged_catalog_is_refused_and_never_served_d4() {
    let mut fixture = Fixture::new();
    for n in 0..200 {
        fixture.put(file(&format!("pot://lab/{n}"), &[n], &[1]));
    }
    fixture.db.raw().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("checkpointed");
    let source = fixture.file();
    let bytes = fs::read(&source).expect("read");
    let damaged = fixture.dir.path().join("damaged.db");
    let pages = bytes.len() / 4096;
    let mut refused = 0;
    for page in 0..pages {
        let mut changed = bytes.clone();
        changed[page * 4096..][..4096].fill(0xA5);
        fs::write(&damaged, &changed).expect("written");
        if let Err(why) = engine::open_existing(&damaged) {
            assert!(matches!(why, OpenError::Damaged { .. }), "page {page}: {why}");
            refused += 1;
        }
        for beside in ["damaged.db-wal", "damaged.db-shm"] {
            let _ = fs::remove_file(fixture.dir.path().join(beside));
        }
    }
    assert_eq!(refused, pages, "every page matters");
}

/// The time to open a catalog does not grow with its size, because a large one is checked while it is in use.
#[test]
fn large_catalog_opens_at_once_and_is_checked_in_the_background_d4() {
    let mut fixture = Fixture::new();
    for n in 0..200 {
        fixture.put(file(&format!("pot://lab/{n}"), &[n], &[1]));
    }
    assert!(engine::is_checked_first(&fixture.file()), "it is small");
    let large =
        "INSERT INTO recipe_pages (version, page, blob) VALUES (1000000, 0, zeroblob(80000000))";
    assert_eq!(fixture.db.raw().execute(large, []).expect("inserted"), 1);
    fixture.db.raw().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("checkpointed");
    assert!(!engine::is_checked_first(&fixture.file()));
    assert_eq!(engine::check_open(&fixture.file()).expect("read"), None, "it is sound");
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'entries'";
    let page: u32 = fixture.db.raw().query_row(root, [], |row| row.get(0)).expect("a page");
    let path = fixture.file();
    let file = fs::File::options().write(true).open(&path).expect("opened");
    file.write_all_at(&[0xA5; 4096], u64::from(page - 1) * 4096).expect("damaged");
    let Fixture { dir, db, .. } = fixture;
    drop(db);
    engine::open_existing(&path).expect("it is opened without a look at all of it");
    match engine::check_open(&path) {
        Ok(found) => assert!(found.is_some_and(|found| found.contains("entries"))),
        Err(why) => assert!(matches!(why, Error::Damaged(_)), "{why}"),
    }
    // However often the manager is started again, the damaged catalog is refused.
    let again = engine::open_existing(&path).map(drop);
    assert!(matches!(again, Err(OpenError::Damaged { .. })), "{again:?}");
    drop(dir);
}

#[test]
fn recipe_with_a_wrong_digest_is_withheld_d4() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1, 2], &[1]));
    fixture.put(file("pot://lab/b", &[3], &[1]));
    // A flip inside a value, which leaves the file's structure sound.
    let (version, mut page): (i64, Vec<u8>) = fixture
        .db
        .raw()
        .query_row("SELECT version, blob FROM recipe_pages ORDER BY version LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("a page");
    page[8..40].copy_from_slice(&chunk(3).0);
    fixture
        .db
        .raw()
        .execute("UPDATE recipe_pages SET blob = ?2 WHERE version = ?1", (version, &page))
        .expect("flipped");
    let opened = open::open(&fixture.db, &path("pot://lab/a"), false, None);
    assert!(matches!(opened, Err(Error::Damaged(_))), "{opened:?}");
    open::open(&fixture.db, &path("pot://lab/b"), false, None).expect("the other is sound");
}

#[test]
fn a_catalog_of_a_newer_release_is_left_alone_u1() {
    let fixture = Fixture::new();
    fixture.db.raw().pragma_update(None, "user_version", 99).expect("set");
    assert!(matches!(
        engine::open_existing(&fixture.file()),
        Err(OpenError::TooNew { found: 99, .. })
    ));
    let missing = fixture.dir.path().join("none.db");
    assert!(matches!(engine::open_existing(&missing), Err(OpenError::Missing(_))));
}

#[test]
fn a_damaged_file_keeps_nobody_from_the_files_behind_it_l1() {
    let mut fixture = Fixture::new();
    for (n, name) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
        fixture.put(file(&format!("pot://lab/{name}"), &[n as u64], &[1]));
    }
    let change = |sql: &str| assert_eq!(fixture.db.raw().execute(sql, []).expect(sql), 1, "{sql}");
    let version = |name| format!("(SELECT version FROM entries WHERE name = '{name}')");
    fixture.db.raw().execute_batch("PRAGMA foreign_keys = OFF").expect("off");
    change(&format!("UPDATE recipe_pages SET blob = x'00' WHERE version = {}", version("a")));
    change(&format!("DELETE FROM versions WHERE id = {}", version("b")));
    change(&format!("UPDATE versions SET goal = '?' WHERE id = {}", version("d")));
    change(&format!("UPDATE versions SET digest = x'00' WHERE id = {}", version("e")));
    let space = spaces::all(&fixture.db).expect("read").remove(0);
    let limit = PageLimit { chunks: 100, entries: 100 };
    let page = units::page(&fixture.db, space.root, None, limit).expect("read");
    let damaged = |(path, met)| (path, matches!(met, Met::Damaged(_)));
    let met: Vec<(String, bool)> = page.files.into_iter().map(damaged).collect();
    let expected = [("a", true), ("b", true), ("c", false), ("d", true), ("e", true), ("f", false)];
    assert_eq!(met, expected.map(|(name, damaged)| (name.to_string(), damaged)));
    // Listing files tells of the damage.
    let mut walk = Walk::new(&fixture.db, space.root, true, Some("a")).expect("begun");
    assert!(matches!(walk.next_item(), Err(Error::Damaged(_))));
}

#[test]
fn damaged_record_blocks_no_removal_and_no_trash_cleanup() {
    let mut fixture = Fixture::new();
    let names = ["a", "b", "c", "d", "e"];
    for (n, name) in names.into_iter().enumerate() {
        fixture.put(file(&format!("pot://lab/tree/{name}"), &[n as u64], &[1]));
        fixture.put(file(&format!("pot://lab/alone/{name}"), &[10 + n as u64], &[1]));
        fixture.put(file(&format!("pot://lab/over/{name}"), &[20 + n as u64], &[1]));
    }
    let code = &[(30, &[1][..]), (31, &[2]), (32, &[3])];
    for dir in ["tree", "alone", "over"] {
        fixture.put(coded(&format!("pot://lab/{dir}/ec"), "2+1", 2, code));
    }
    let change = |sql: &str| assert_eq!(fixture.db.raw().execute(sql, []).expect(sql), 3, "{sql}");
    let versions = |name| format!("(SELECT version FROM entries WHERE name = '{name}')");
    change(&format!("UPDATE recipe_pages SET blob = x'00' WHERE version IN {}", versions("a")));
    change(&format!("DELETE FROM versions WHERE id IN {}", versions("b")));
    change(&format!("UPDATE versions SET goal = '?' WHERE id IN {}", versions("c")));
    change(&format!("UPDATE versions SET parity = x'00' WHERE id IN {}", versions("ec")));
    change("DELETE FROM chunks WHERE id IN (13, 14, 15)"); // those of “e”
    let when = When { pool_ms: 1, ..When::default() };
    let remove = |at: &str| names::remove(&fixture.db, &path(at), true, when).expect(at);
    for name in names.into_iter().chain(["ec"]) {
        let at = path(&format!("pot://lab/alone/{name}"));
        assert_eq!(names::count(&fixture.db, &at).expect("counted").files, 1);
        remove(&format!("pot://lab/alone/{name}"));
    }
    assert_eq!(names::count(&fixture.db, &path("pot://lab/tree")).expect("counted").files, 6);
    remove("pot://lab/tree");
    while reaping::reap(&fixture.db, 100, 0, 2).expect("a step") {}
    for name in names.into_iter().chain(["ec"]) {
        fixture.put(file(&format!("pot://lab/over/{name}"), &[40], &[1]));
    }
    let held = spaces::named(&fixture.db, "lab").expect("there").sums;
    assert_eq!(held.files, 6, "those that were put last");
    let refs = "SELECT refs FROM chunks WHERE name = ?1";
    let refs = |n: u64| fixture.db.raw().query_row(refs, [chunk(n).0], |row| row.get::<_, i64>(0));
    assert_eq!([3, 13, 23].map(|n| refs(n).expect("a row")), [0; 3], "of a sound record");
    assert_eq!(refs(0).expect("a row"), 1, "nobody knows that it is not used");
}

#[test]
fn damaged_kept_version_does_not_block_expiry_of_later_ones() {
    let mut fixture = Fixture::new();
    let keeps = Override { trash: Some("1h".parse().expect("a time")), ..Override::default() };
    policy_changes::set(&fixture.db, &path("pot://lab"), &keeps).expect("set");
    let long = "d".repeat(200);
    let deep = (0..19).fold("pot://lab".to_owned(), |path, _| format!("{path}/{long}"));
    directories::make_dir(&fixture.db, &path(&deep), true, EntryAttributes::of_dir(1))
        .expect("made");
    for (n, dir) in ["damaged", "moved", "sound"].into_iter().enumerate() {
        fixture.put(file(&format!("pot://lab/{dir}/f"), &[n as u64], &[1]));
        let when = When { pool_ms: n as u64, ..When::default() };
        names::remove(&fixture.db, &path(&format!("pot://lab/{dir}/f")), false, when).expect(dir);
    }
    let damage = "UPDATE entries SET version = NULL WHERE parent IN (
                      SELECT h.dir FROM entries h JOIN entries e ON e.dir = h.parent
                      WHERE e.name = 'damaged')";
    assert_eq!(fixture.db.raw().execute(damage, []).expect("damaged"), 1);
    // The directory is moved to a place where the path of what is kept in it is too long.
    let to = path(&format!("{deep}/{}", "e".repeat(255)));
    assert!(KeptPlace { dir: to.clone(), number: VersionId(1) }.path().is_err());
    names::move_entry(&fixture.db, &path("pot://lab/moved"), &to, false, When::default())
        .expect("moved");
    let hour = 3_600_000;
    for _ in 0..3 {
        history::expire(&fixture.db, 1, hour + 2).expect("a step");
    }
    let kept = "SELECT count(*) FROM kept";
    let kept: i64 = fixture.db.raw().query_row(kept, [], |row| row.get(0)).expect("counted");
    assert_eq!(kept, 1, "the damaged one, which is tried again later");
    assert!(!history::any_due(&fixture.db, hour + 2).expect("read"));
    assert_eq!(spaces::named(&fixture.db, "lab").expect("there").sums.files, 1);
}
