//! Tests that a catalog which is made of the log knows what of its files is in holes.

use super::{Target, WHEN, base, drain, told};
use crate::fixture::{Fixture, last_part, path, sparse};
use crate::names::lists;
use crate::operations::{names, upkeep::reaping};
use crate::pool_records::spaces;
use crate::sql::Tx;
use potluck_core::recipe::PART_CHUNKS;

/// The bytes of a chunk of a file in parts.
const CHUNK: u64 = 64 << 10;

/// Returns the bytes that the space of the fixture uses, and how much of a file is in holes.
fn used(db: &Tx, file: &str) -> (i64, u64) {
    let holes = lists::stat(db, &path(file)).expect("there").entry.holes;
    (spaces::named(db, "lab").expect("a space").sums.bytes, holes)
}

#[test]
fn restore_keeps_holes_and_excludes_them_from_usage() {
    let mut f = Fixture::new();
    let first = drain(&f.db);
    f.put(sparse("pot://lab/sparse", &[1, 2], 1 << 40, &[1]));
    f.put(sparse("pot://lab/hole", &[], 1 << 50, &[]));
    let large = 2 * PART_CHUNKS as u64;
    for file in last_part("pot://lab/large", 0, 50_000..50_000 + large + 10, &[1]) {
        f.put(file);
    }
    let expected = 2000 + 10 * CHUNK as i64;
    let (mut of_changes, mut of_base) = (Target::new(), Target::new());
    of_base.apply(&base(&f).0);
    of_changes.apply(&first);
    of_changes.apply(&drain(&f.db));
    for db in [&f.db as &Tx, &of_changes.db, &of_base.db] {
        assert_eq!(told(db), told(&f.db));
        assert_eq!(used(db, "pot://lab/sparse"), (expected, 1 << 40));
        assert_eq!(used(db, "pot://lab/hole"), (expected, 1 << 50));
        assert_eq!(used(db, "pot://lab/large"), (expected, large * CHUNK));
    }
    for db in [&f.db as &Tx, &of_changes.db, &of_base.db] {
        for name in ["sparse", "hole", "large"] {
            names::remove(db, &path(&format!("pot://lab/{name}")), false, WHEN).expect("removed");
        }
        while reaping::reap(db, 10, 0, 1000).expect("reaped") {}
        assert_eq!(spaces::named(db, "lab").expect("a space").sums, spaces::Sums::default());
    }
}
