//! A checkpoint of the catalog as a file: a whole copy of one moment, taken while writes go on.

use super::checksum;
use crate::catalog::{Error, schema};
use crate::error::ManagerError;
use crate::state_dir::{CATALOG, holding};
use potluck_core::chunk::Digest;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Checkpoints kept in a directory.
const KEPT: usize = 3;
/// The file that says whose checkpoints a directory has: two pools would remove each other's.
/// Hidden, so that who sorts the names finds the newest checkpoint last.
const OWNER: &str = ".pool";
/// What SQLite puts beside a database while it writes it.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];

/// The name of the checkpoint with a number.
fn name(sequence: u64) -> String {
    format!("catalog-{sequence:012}.db")
}

/// The number of the checkpoint with a name.
fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("catalog-")?.strip_suffix(".db")?;
    // No checkpoint's number is longer; a counter beyond would end.
    (digits.len() <= 15).then(|| digits.parse().ok()).flatten()
}

/// Whether a name is what a checkpoint had on its way, or SQLite put beside that. A backup that a
/// person makes in the same directory has another.
fn is_left_over(name: &str) -> bool {
    name.split_once(".part").is_some_and(|(whose, _)| {
        let whose = whose.strip_suffix(".db").unwrap_or(whose);
        number(&format!("{whose}.db")).is_some()
    })
}

/// Makes `dir` ready for a checkpoint of the pool whose authority is `pool`; gives the highest
/// number there, 0 if there is none. The next must be higher: a rebuilt catalog counts anew, and
/// what it takes must neither replace nor look older than what was taken before.
///
/// Removes what copies that were interrupted left: it may be what fills the disk.
pub fn begin(dir: &Path, pool: &Digest) -> Result<u64, ManagerError> {
    let io = |source| ManagerError::Io { path: dir.into(), source };
    fs::create_dir_all(dir).map_err(io)?;
    let owner = dir.join(OWNER);
    let claimed = is_claimed(&owner, pool).map_err(io)?;
    let mut highest = 0;
    for name in names(dir).map_err(io)? {
        if is_left_over(&name) {
            remove_if_there(&dir.join(&name)).map_err(io)?;
        }
        highest = highest.max(number(&name).unwrap_or(0));
    }
    if !claimed {
        fs::write(owner, pool.to_string()).map_err(io)?;
    }
    Ok(highest)
}

/// Whether the directory is this pool's already. Errors: it is another's.
fn is_claimed(owner: &Path, pool: &Digest) -> io::Result<bool> {
    match fs::read_to_string(owner) {
        Ok(whose) if whose.trim() == pool.to_string() => Ok(true),
        // Nothing was written, as when the disk was full.
        Ok(whose) if whose.trim().is_empty() => Ok(false),
        Ok(_) => {
            Err(io::Error::other("it has checkpoints of another pool: choose another directory"))
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why),
    }
}

/// Copies the catalog at `catalog` to `dir` as the checkpoint `sequence`, and removes all but the
/// last few up to it there; gives the new file.
///
/// Older ones go only when the new one has been read back and is durable.
pub fn take(catalog: &Path, dir: &Path, sequence: u64) -> Result<PathBuf, ManagerError> {
    let path = dir.join(name(sequence));
    copy(catalog, &path)?;
    prune(dir, sequence).map_err(|source| ManagerError::Io { path: dir.into(), source })?;
    Ok(path)
}

/// Copies the catalog at `catalog` to the file `to`, whole or not at all: temp, copy, check, checksum,
/// fsync, rename, fsync of the directory.
pub fn copy(catalog: &Path, to: &Path) -> Result<(), ManagerError> {
    let io = |source| ManagerError::Io { path: to.into(), source };
    let temp = Temp::beside(to).map_err(io)?;
    copy_pages(catalog, &temp.path).map_err(|why| not_copied(to, why))?;
    checksum::append(&temp.path).map_err(io)?;
    temp.becomes(to).map_err(io)?;
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)
}

fn not_copied(to: &Path, why: Error) -> ManagerError {
    match why {
        // Of the two disks it is the one that is written.
        Error::DiskFull => {
            ManagerError::Io { path: to.into(), source: io::ErrorKind::StorageFull.into() }
        }
        why => ManagerError::Catalog {
            path: to.into(),
            detail: format!("it could not be copied: {why}"),
        },
    }
}

/// A file under way to its name; gone with all that is beside it if it does not get there, so that
/// a copy that fills the disk does not keep it full.
struct Temp {
    path: PathBuf,
    arrived: bool,
}

impl Temp {
    /// Makes one for the file `to`. What has its name already is somebody's, and stays.
    fn beside(to: &Path) -> io::Result<Self> {
        for n in 0..100 {
            let path = suffixed(to, &format!(".part{n}"));
            // The catalog holds the keys of sealed spaces.
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Self { path, arrived: false }),
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
                Err(why) => return Err(why),
            }
        }
        Err(io::Error::other("interrupted copies lie beside it: remove them"))
    }

    fn becomes(mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.arrived = true;
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if self.arrived {
            return;
        }
        let beside = BESIDE.iter().map(|suffix| suffixed(&self.path, suffix));
        for path in beside.chain([self.path.clone()]) {
            if let Err(why) = remove_if_there(&path) {
                tracing::warn!(path = %path.display(), %why, "a part of a copy stays");
            }
        }
    }
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Copies the catalog of the manager's state directory `state` to the file `to`, whether a manager
/// runs there or not.
///
/// Errors: `to` lies in a manager's state directory, where it would take a file's place that a manager
/// goes on writing under no name, or would be lost with what it is a copy of.
pub fn backup(state: &Path, to: &Path) -> Result<(), ManagerError> {
    let catalog = state.join(CATALOG);
    if !catalog.exists() {
        return Err(ManagerError::NotInitialised(state.into()));
    }
    let io = |source| ManagerError::Io { path: to.into(), source };
    if let Some(state) = holding(to).map_err(io)? {
        return Err(ManagerError::InState { file: to.into(), state });
    }
    if is_part_of(&catalog, to) {
        return Err(ManagerError::InState { file: to.into(), state: state.into() });
    }
    copy(&catalog, to)
}

/// Whether `file` is the catalog or what lies beside it, wherever a link has put them.
fn is_part_of(catalog: &Path, file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else { return false };
    let beside = BESIDE.iter().map(|suffix| suffixed(catalog, suffix));
    let mut parts = beside.chain([catalog.into()]).filter_map(|part| part.canonicalize().ok());
    parts.any(|part| part == file)
}

fn copy_pages(catalog: &Path, to: &Path) -> Result<(), Error> {
    let source = schema::open_reader(catalog)?;
    let mut target = Connection::open(to)?;
    // All pages in one step, from one snapshot: in WAL mode writers go on meanwhile.
    let done = Backup::new(&source, &mut target)?.step(-1)?;
    if done != StepResult::Done {
        return Err(Error::Sql("the catalog was busy".into()));
    }
    // One file, with nothing beside it.
    target.pragma_update(None, "journal_mode", "DELETE")?;
    let sound: String = target.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound == "ok" { Ok(()) } else { Err(Error::Damaged(sound)) }
}

/// Removes all but the last few checkpoints up to number `newest`, which stays.
fn prune(dir: &Path, newest: u64) -> io::Result<()> {
    let mut taken: Vec<u64> = names(dir)?.iter().filter_map(|name| number(name)).collect();
    taken.retain(|number| *number <= newest);
    taken.sort_unstable();
    let old = taken.len().saturating_sub(KEPT);
    taken[..old].iter().try_for_each(|number| remove_if_there(&dir.join(name(*number))))
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn lab() -> (TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let (catalog, taken) = (dir.path().join("catalog.db"), dir.path().join("taken"));
        schema::create(&catalog, "lab").expect("a catalog");
        fs::create_dir(&taken).expect("a directory");
        (dir, catalog, taken)
    }

    fn in_order(dir: &Path) -> Vec<String> {
        let mut found = names(dir).expect("listed");
        found.retain(|name| name != OWNER);
        found.sort();
        found
    }

    #[test]
    fn a_catalog_that_counts_anew_goes_on_after_what_is_there_and_never_removes_its_own() {
        let (_dir, catalog, taken) = lab();
        let pool = Digest::of(b"authority");
        (98..=100).for_each(|n| fs::write(taken.join(name(n)), "old").expect("written"));
        assert_eq!(begin(&taken, &pool).expect("ready"), 100);
        let path = take(&catalog, &taken, 1).expect("also without looking");
        assert!(path.exists());
        assert_eq!(in_order(&taken), [1, 98, 99, 100].map(name), "higher ones are not its own");
        take(&catalog, &taken, 101).expect("taken");
        assert_eq!(in_order(&taken), [99, 100, 101].map(name));
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing_and_one_that_was_killed_is_swept() {
        let (dir, catalog, taken) = lab();
        let broken = dir.path().join("broken.db");
        fs::write(&broken, [0xA5; 9000]).expect("written");
        take(&broken, &taken, 1).expect_err("no catalog");
        assert_eq!(in_order(&taken), [""; 0]);
        for left in ["catalog-000000000007.part", "catalog-000000000007.db.part0-journal"] {
            fs::write(taken.join(left), "much").expect("written");
        }
        begin(&taken, &Digest::of(b"authority")).expect("ready");
        assert_eq!(in_order(&taken), [""; 0]);
        take(&catalog, &taken, 8).expect("taken");
        assert_eq!(in_order(&taken), [name(8)]);
    }

    #[test]
    fn a_copy_removes_nothing_that_was_there() {
        let (dir, catalog, _taken) = lab();
        let near = ["data.part", "data.db.part", "data.db.part0"].map(|name| dir.path().join(name));
        near.iter().for_each(|path| fs::write(path, "somebody's").expect("written"));
        copy(&catalog, &dir.path().join("data.db")).expect("copied");
        for path in near {
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("somebody's"), "{path:?}");
        }
        assert!(!dir.path().join("data.db.part1").exists());
    }

    #[test]
    fn a_backup_never_takes_the_place_of_a_file_of_a_managers_state() {
        let (dir, _, taken) = lab();
        let ours = |state: &str| {
            let state = dir.path().join(state);
            fs::create_dir_all(state.join("ca")).expect("made");
            schema::create(&state.join(CATALOG), "lab").expect("a catalog");
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
            let refused = backup(&state, &target).expect_err("refused");
            assert!(matches!(refused, ManagerError::InState { .. }), "{target:?}: {refused}");
            assert_eq!(seen(&target), before, "{target:?}");
        }
        // A catalog that lies on another disk than its directory.
        let (away, moved) = (taken.join("moved.db"), ours("moved"));
        fs::rename(moved.join(CATALOG), &away).expect("moved");
        std::os::unix::fs::symlink(&away, moved.join(CATALOG)).expect("linked");
        let refused = backup(&moved, &away).expect_err("refused");
        assert!(matches!(refused, ManagerError::InState { .. }), "{refused}");
        backup(&state, &taken.join("fine.db")).expect("copied");
    }

    #[test]
    fn a_full_disk_is_called_the_one_that_is_written() {
        let told = not_copied(Path::new("/mnt/usb/copy.db"), Error::DiskFull).to_string();
        assert!(told.starts_with("/mnt/usb/copy.db: no s"), "{told}");
        assert!(!told.contains("catalog"), "{told}");
    }

    #[test]
    fn two_pools_do_not_share_a_directory() {
        let (_dir, _catalog, taken) = lab();
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        begin(&taken, &one).expect("its own");
        begin(&taken, &one).expect("its own still");
        let refused = begin(&taken, &other).expect_err("another's").to_string();
        assert!(refused.contains("another pool"), "{refused}");
    }

    #[test]
    fn a_backup_that_a_person_makes_among_checkpoints_is_not_swept() {
        let (_dir, _catalog, taken) = lab();
        let theirs = ["catalog-before-the-move.db.part0", "catalog-x.part", "other.db.part0"];
        theirs.iter().for_each(|name| fs::write(taken.join(name), "half").expect("written"));
        begin(&taken, &Digest::of(b"authority")).expect("ready");
        assert_eq!(in_order(&taken), theirs);
    }
}
