//! The length of the write-ahead log.

use super::LogMover;
use crate::sql::params;
use crate::sqlite::{create, open_existing};

/// The pages from which on the log of the test is long.
const LONG: i32 = 100;
/// The number of commits, each of eight pages and more.
const COMMITS: i64 = 500;

#[test]
fn continuous_commits_keep_the_write_ahead_log_short() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("catalog.db");
    create(&path, |_| Ok(())).expect("made");
    let mut db = open_existing(&path).expect("opened");
    let mover = LogMover::start(&path, &mut db, LONG).expect("started");
    db.execute_batch("CREATE TABLE filled (bytes BLOB)").expect("made");
    for _ in 0..COMMITS {
        db.execute("INSERT INTO filled VALUES (zeroblob(32768))", params![]).expect("committed");
    }
    mover.stop(&mut db).expect("stopped");
    let log = dir.path().join("catalog.db-wal").metadata().expect("a log").len();
    assert!(log < COMMITS as u64 * 32_768 / 3, "{log} bytes");
    drop(db);
    let db = open_existing(&path).expect("sound");
    let count = "SELECT count(*) FROM filled";
    assert_eq!(db.query_row(count, params![], |row| row.get::<i64>(0)), Ok(COMMITS));
}
