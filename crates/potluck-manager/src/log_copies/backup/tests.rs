//! Tests that backups to files are added to, kept, and never taken for what they are not.

use super::*;
use crate::handles::Handles;
use crate::tasks::repair::tests::still;
use potluck_catalog::fixture::new_space;
use potluck_catalog::{Authority, Founding};
use potluck_core::policy::Policy;
use potluck_recovery::backups::{OWNER, backup, names};
use potluck_recovery::log::backup_file::{BackupReader, Next};
use potluck_recovery::log::block;
use potluck_recovery::state_dir::CATALOG;
use std::path::Path;
use tempfile::TempDir;

fn in_order(dir: &Path) -> Vec<String> {
    let mut found = names(dir).expect("listed");
    found.retain(|name| name != OWNER);
    found.sort();
    found
}

async fn make_space(manager: &Handles, name: &'static str) {
    let made =
        manager.catalog.create_space(new_space(name, Policy::default(), None), None, 0).await;
    made.expect("a space");
}

/// Returns the parts of the file at `path` that can be read, and whether they are all.
fn read(manager: &Handles, path: &Path) -> Result<(Vec<block::BlockPart>, bool), StateError> {
    let key = manager.authority.recovery_key()?;
    let ours = Authority::new(&manager.term.pool_name, &manager.authority.pool());
    let mut reader = BackupReader::open(path, Path::new("kit"), key, &ours)?;
    let mut parts = Vec::new();
    loop {
        match reader.next_block().expect("read") {
            Next::Block(header, _) => parts.push(header.part),
            Next::End => return Ok((parts, true)),
            Next::Unreadable(..) => return Ok((parts, false)),
        }
    }
}

#[test]
fn backups_take_a_twentieth_of_the_time_at_most() {
    let minute = Duration::from_secs(60);
    assert_eq!(next_pause(minute, Duration::from_secs(1)), minute);
    assert_eq!(next_pause(minute, Duration::from_secs(6)), Duration::from_secs(120));
}

#[tokio::test]
async fn backup_appends_to_the_newest_file_unless_it_was_modified() {
    use block::BlockPart::{BaseEnd, Log};
    let (_dir, manager) = still().await;
    let dir = manager.state.backups();
    let bytes = |number| fs::metadata(dir.join(name(number))).expect("there").len();
    make_space(&manager, "before").await;
    FileLog::from(&manager).round().await.expect("a base");
    let base = bytes(1);
    FileLog::from(&manager).round().await.expect("nothing changed");
    assert_eq!(bytes(1), base);
    make_space(&manager, "after").await;
    FileLog::from(&manager).round().await.expect("added");
    assert_eq!(in_order(&dir), [name(1)]);
    assert!(bytes(1) > base && bytes(1) < base + 4096, "{base} and then {}", bytes(1));
    let whole = read(&manager, &dir.join(name(1))).expect("a backup");
    assert_eq!(whole, (vec![BaseEnd, Log], true));
    let ahead = manager.catalog.log_ahead(LogCopy::InFile, 0).await.expect("read");
    assert_eq!(ahead.waiting(), 0, "it has all changes");

    // Another manager, on a copy of this catalog, has added to it.
    let mut theirs = fs::read(dir.join(name(1))).expect("read");
    theirs.extend_from_slice(b"theirs");
    fs::write(dir.join(name(1)), &theirs).expect("written");
    make_space(&manager, "later").await;
    FileLog::from(&manager).round().await.expect("a new one");
    assert_eq!(in_order(&dir), [1, 2].map(name));
    assert_eq!(fs::read(dir.join(name(1))).expect("read"), theirs);
    assert_eq!(read(&manager, &dir.join(name(2))).expect("a backup"), (vec![BaseEnd], true));
    // A backup that was lost is written again, and only the last few are kept.
    for number in 3..6 {
        fs::remove_file(dir.join(name(number - 1))).expect("removed");
        fs::write(dir.join(name(number - 1)), b"").expect("written");
        FileLog::from(&manager).round().await.expect("a new one");
    }
    assert_eq!(in_order(&dir), [3, 4, 5].map(name));
}

#[tokio::test]
async fn unremovable_backup_does_not_pile_up_new_ones() {
    let (_dir, manager) = still().await;
    let dir = manager.state.backups();
    // A directory of that name is no file that can be removed.
    fs::create_dir_all(dir.join(name(1))).expect("made");
    for number in 2..5 {
        fs::write(dir.join(name(number)), b"").expect("written");
    }
    for _ in 0..3 {
        FileLog::from(&manager).round().await.expect("a base, and then nothing new");
    }
    assert_eq!(in_order(&dir), [1, 3, 4, 5].map(name));
}

#[tokio::test]
async fn no_bit_of_a_backup_can_change_unnoticed_d4() {
    let (_dir, manager) = still().await;
    FileLog::from(&manager).round().await.expect("a base");
    make_space(&manager, "lab").await;
    FileLog::from(&manager).round().await.expect("added");
    let path = manager.state.backups().join(name(1));
    let written = fs::read(&path).expect("read");
    let is_noticed = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("written");
        read(&manager, &path).map_or(true, |(_, all)| !all)
    };
    // The heading, which is read without any key, only says what the rest is.
    let heading = written.iter().position(|byte| *byte == b'\n').expect("a heading");
    for offset in heading..written.len() {
        let mut flipped = written.clone();
        flipped[offset] ^= 1 << (offset % 8);
        assert!(is_noticed(&flipped), "a bit of byte {offset} of {}", written.len());
    }
    for cut in [1, 3, 40, written.len() / 2] {
        assert!(is_noticed(&written[..written.len() - cut]), "{cut} bytes cut off");
    }
    assert!(!is_noticed(&written));
}

fn lab() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let taken = dir.path().join("taken");
    fs::create_dir(&taken).expect("a directory");
    (dir, taken)
}

#[tokio::test]
async fn failed_backup_changes_nothing() {
    let (_dir, manager) = still().await;
    let (dir, taken) = lab();
    let state = manager.state.root();
    let near = ["data.part", "data.log.part", "data.log.part0"].map(|name| taken.join(name));
    near.iter().for_each(|path| fs::write(path, "somebody's").expect("written"));
    backup(state, &taken.join("data.log"), 7).expect("written");
    fs::create_dir(taken.join("directory")).expect("made");
    backup(state, &taken.join("directory"), 7).expect_err("not over a directory");
    for path in near {
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("somebody's"), "{path:?}");
    }
    let mut there = in_order(&taken);
    there.retain(|name| !name.contains(".part"));
    assert_eq!(there, ["data.log", "directory"]);
    assert!(!taken.join("data.log.part1").exists() && !taken.join("directory.part0").exists());
    drop(dir);
}

#[test]
fn backup_sweeps_its_own_temporary_files_only() {
    let (_dir, taken) = lab();
    let theirs = ["catalog-before-the-move.log.part0", "catalog-x.part", "other.log.part0"];
    theirs.iter().for_each(|name| fs::write(taken.join(name), "half").expect("written"));
    fs::write(taken.join("catalog-000000000007.log.part0"), "much").expect("written");
    assert_eq!(begin(&taken, &Digest::of(b"authority")).expect("ready"), 0);
    assert_eq!(in_order(&taken), theirs);
}

#[test]
fn two_pools_do_not_share_a_directory() {
    let (_dir, taken) = lab();
    let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
    begin(&taken, &one).expect("its own");
    begin(&taken, &one).expect("its own still");
    let refused = begin(&taken, &other).expect_err("another's").to_string();
    assert!(refused.contains("another pool"), "{refused}");
}

#[tokio::test]
async fn a_backup_never_takes_the_place_of_a_file_of_a_managers_state() {
    let (dir, taken) = lab();
    let (_dir, manager) = still().await;
    let ours = |state: &str| {
        let state = dir.path().join(state);
        fs::create_dir_all(state.join("ca")).expect("made");
        Founding::begin(&state.join(CATALOG), "lab").expect("a catalog");
        fs::write(state.join("recovery.kit"), "a kit").expect("written");
        fs::write(state.join("ca/ca.key"), "a key").expect("written");
        state
    };
    let (state, other) = (ours("state"), ours("other"));
    let link = |to: &Path, name: &str| {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(to, &link).expect("linked");
        link
    };
    let targets = [
        state.join(CATALOG),
        state.join("catalog.db-wal"),
        state.join("recovery.kit"),
        state.join("ca/ca.key"),
        state.join("ca/../new.db"),
        other.join(CATALOG),
        link(&state, "directory").join(CATALOG),
        link(&state.join(CATALOG), "file.db"),
        link(&state.join("not-yet.db"), "dangling.db"),
    ];
    let seen = |path: &Path| fs::read(path).ok();
    for target in targets {
        let before = seen(&target);
        let refused = backup(&state, &target, 7).expect_err("refused");
        assert!(matches!(refused, StateError::InState { .. }), "{target:?}: {refused}");
        assert_eq!(seen(&target), before, "{target:?}");
    }
    // A catalog may lie on another disk than its directory, behind a link.
    let (away, moved) = (taken.join("moved.db"), ours("moved"));
    fs::rename(moved.join(CATALOG), &away).expect("moved");
    std::os::unix::fs::symlink(&away, moved.join(CATALOG)).expect("linked");
    let refused = backup(&moved, &away, 7).expect_err("refused");
    assert!(matches!(refused, StateError::InState { .. }), "{refused}");
    backup(manager.state.root(), &taken.join("fine.log"), 7).expect("written");
}
