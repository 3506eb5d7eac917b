//! What a commit and an open cost; printed, and bounded loosely so that a regression shows.

use super::files::{Fixture, file, path};
use crate::catalog::commit::PreparedFile;
use crate::catalog::{open, placements};
use potluck_core::clock::{Clock, SystemClock};
use potluck_wire::control::Holding;

fn batch(number: u64, files: u64) -> Vec<PreparedFile> {
    let one = |n| file(&format!("pot://lab/d{number}/file-{n:05}"), &[number * 100_000 + n], &[1, 2]);
    (0..files).map(one).collect()
}

#[test]
fn a_thousand_small_files_commit_and_open_fast() {
    let mut fixture = Fixture::new();
    let clock = SystemClock::default();
    for number in 0..20 {
        fixture.commit(batch(number, 1000));
    }
    let files = batch(99, 1000);
    let began = clock.now();
    let outcomes = fixture.commit(files);
    let committed = clock.now() - began;
    assert!(outcomes.iter().all(Result::is_ok));

    let began = clock.now();
    let page = open::open(&fixture.db, &path("pot://lab/d99"), true, None).expect("opened");
    let opened = clock.now() - began;
    assert_eq!(page.files.len(), 1000);

    let holdings: Vec<_> = (0..1000)
        .map(|n| Holding { name: super::chunk(500_000 + n), len: 1000 })
        .collect();
    let began = clock.now();
    placements::compare(&fixture.db, potluck_core::ids::DonorId(1), &holdings).expect("compared");
    let compared = clock.now() - began;

    println!("1000 files of one chunk, two copies: commit {committed:?}, open {opened:?}; 1000 holdings compared {compared:?}");
    assert!(committed.as_millis() < 500 && opened.as_millis() < 500, "far over budget");
}
