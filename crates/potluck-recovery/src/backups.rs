//! Backups of the catalog in files: those that a manager keeps in a directory, and one that a person asks for.

use crate::ca::Ca;
use crate::error::StateError;
use crate::kit;
use crate::log::backup_file::write_base;
use crate::log::block::{Base, Sealer};
use crate::state_dir::{CA, CATALOG, holding};
use potluck_catalog::Catalog;
use potluck_core::chunk::Digest;
use potluck_core::entropy::SystemEntropy;
use potluck_wire::private_dir;
use std::fs;
use std::io;
use std::path::Path;

/// The number of backups kept in a directory.
const KEPT: usize = 3;
/// The file that says to which pool the backups in a directory belong: two pools would remove each other's. It is
/// hidden, so that the newest backup is the last of the sorted names.
pub const OWNER: &str = ".pool";

/// Returns the name of the backup with a number.
pub fn name(number: u64) -> String {
    format!("catalog-{number:012}.log")
}

/// Returns the number of the backup with a name; `None` if no backup has such a name.
pub fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("catalog-")?.strip_suffix(".log")?;
    // No backup's number has more digits; a counter could not go on from a longer one.
    (digits.len() <= 15).then(|| digits.parse().ok()).flatten()
}

/// Returns whether a name is that of an unfinished backup of the manager's own. A backup that a person makes in the
/// same directory has another name.
fn is_left_over(name: &str) -> bool {
    name.split_once(".part").is_some_and(|(whose, _)| number(whose).is_some())
}

/// Makes `dir` ready for backups of the pool whose authority is `pool`; returns the highest number there,
/// 0 if there is none. The next must be higher: a backup of a restored catalog must neither replace nor
/// look older than those that were written before.
///
/// Removes unfinished backups, which may fill the disk.
///
/// Errors: the directory has backups of another pool, or cannot be read or written.
pub fn begin(dir: &Path, pool: &Digest) -> Result<u64, StateError> {
    let io = |source| StateError::Io { path: dir.into(), source };
    private_dir::make(dir).map_err(io)?;
    let owner = dir.join(OWNER);
    let claimed = is_claimed(&owner, pool).map_err(io)?;
    let mut highest = 0;
    for name in names(dir).map_err(io)? {
        if is_left_over(&name) {
            fs::remove_file(dir.join(&name)).map_err(io)?;
        }
        highest = highest.max(number(&name).unwrap_or(0));
    }
    if !claimed {
        fs::write(owner, pool.to_string()).map_err(io)?;
    }
    Ok(highest)
}

/// Returns whether the file `owner` says that its directory is this pool's. Errors: it is another pool's.
fn is_claimed(owner: &Path, pool: &Digest) -> io::Result<bool> {
    match fs::read_to_string(owner) {
        Ok(whose) if whose.trim() == pool.to_string() => Ok(true),
        // Nothing was written to the file, as when the disk was full.
        Ok(whose) if whose.trim().is_empty() => Ok(false),
        Ok(_) => Err(io::Error::other("it has backups of another pool: choose another directory")),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why),
    }
}

/// Removes all but the last few backups, as far as that succeeds.
pub fn prune(dir: &Path) -> io::Result<()> {
    let mut taken: Vec<u64> = names(dir)?.iter().filter_map(|name| number(name)).collect();
    taken.sort_unstable();
    let old = &taken[..taken.len().saturating_sub(KEPT)];
    let mut removed = Ok(());
    for number in old {
        removed = fs::remove_file(dir.join(name(*number))).and(removed);
    }
    removed
}

/// Lists the names in a directory.
pub fn names(dir: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    fs::read_dir(dir)?.map(name).collect()
}

/// Writes the catalog of the manager's state directory `state` to the file `to`, whether a manager runs
/// there or not. The file says that it was made at the wall time `wall_ms`.
///
/// Errors: `state` has no catalog; or `to` lies in a manager's state directory, where it would replace a
/// file that the manager still writes, or would be lost together with the catalog.
pub fn backup(state: &Path, to: &Path, wall_ms: i64) -> Result<(), StateError> {
    let catalog = state.join(CATALOG);
    if !Catalog::is_at(&catalog) {
        return Err(StateError::NotInitialised(state.into()));
    }
    let io = |source| StateError::Io { path: to.into(), source };
    if let Some(state) = holding(to).map_err(io)? {
        return Err(StateError::InState { file: to.into(), state });
    }
    if is_part_of(&catalog, to) {
        return Err(StateError::InState { file: to.into(), state: state.into() });
    }
    let ca = state.join(CA);
    let (key, pool) = (kit::load_key(&ca)?, Ca::load(&ca)?.pool());
    let base = Base::begin(&catalog)?;
    let (name, epoch) = (base.pool_name()?, base.epoch);
    let sealer = Sealer::of_file(key, pool, epoch, wall_ms, None);
    write_base(base, to, &name, sealer, &SystemEntropy).map(drop)
}

/// Returns whether `file` is the catalog or a file that the catalog's engine keeps beside it, also through links.
fn is_part_of(catalog: &Path, file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else { return false };
    Catalog::stored_in(catalog).any(|part| part.canonicalize().is_ok_and(|part| part == file))
}
