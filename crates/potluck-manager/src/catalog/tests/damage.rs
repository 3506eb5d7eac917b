use super::files::{Fixture, chunk, file, path};
use crate::catalog::{Error, open, schema};
use crate::error::ManagerError;
use std::fs;

#[test]
fn d4_a_damaged_catalog_is_refused_and_never_served() {
    let mut fixture = Fixture::new();
    for n in 0..200 {
        fixture.put(file(&format!("pot://lab/{n}"), &[n], &[1]));
    }
    fixture.db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("checkpointed");
    let source = fixture.file();
    let bytes = fs::read(&source).expect("read");
    let damaged = fixture.dir.path().join("damaged.db");
    let pages = bytes.len() / 4096;
    let mut refused = 0;
    for page in 0..pages {
        let mut changed = bytes.clone();
        changed[page * 4096..][..4096].fill(0xA5);
        fs::write(&damaged, &changed).expect("written");
        if let Err(why) = schema::open_existing(&damaged) {
            assert!(matches!(why, ManagerError::Damaged { .. }), "page {page}: {why}");
            assert!(!why.failure().hint.is_empty());
            refused += 1;
        }
        for beside in ["damaged.db-wal", "damaged.db-shm"] {
            let _ = fs::remove_file(fixture.dir.path().join(beside));
        }
    }
    assert_eq!(refused, pages, "every page matters");
}

#[test]
fn d4_a_recipe_that_does_not_give_the_files_digest_is_not_handed_out() {
    let mut fixture = Fixture::new();
    fixture.put(file("pot://lab/a", &[1, 2], &[1]));
    fixture.put(file("pot://lab/b", &[3], &[1]));
    // A flip inside a value, which leaves the file's structure sound.
    let (version, mut page): (i64, Vec<u8>) = fixture
        .db
        .query_row("SELECT version, blob FROM recipe_pages ORDER BY version LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .expect("a page");
    page[8..40].copy_from_slice(&chunk(3).0);
    fixture
        .db
        .execute("UPDATE recipe_pages SET blob = ?2 WHERE version = ?1", (version, &page))
        .expect("flipped");
    let opened = open::open(&fixture.db, &path("pot://lab/a"), false, None);
    assert!(matches!(opened, Err(Error::Damaged(_))), "{opened:?}");
    open::open(&fixture.db, &path("pot://lab/b"), false, None).expect("the other is sound");
}

#[test]
fn u1_a_catalog_of_a_newer_release_is_left_alone() {
    let fixture = Fixture::new();
    fixture.db.pragma_update(None, "user_version", 99).expect("set");
    assert!(matches!(
        schema::open_existing(&fixture.file()),
        Err(ManagerError::TooNew { found: 99, .. })
    ));
    let missing = fixture.dir.path().join("none.db");
    assert!(matches!(schema::open_existing(&missing), Err(ManagerError::NotInitialised(_))));
}
