//! Directories that are made, and the times at which they are modified because entries come, go or change their names.

use crate::error::Error;
use crate::log::{apply, records::Record};
use crate::members::quotas;
use crate::names::entries::{self, DirId, split};
use crate::pool_records::spaces::{self, Sums};
use crate::sql::Tx;
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::path::PoolPath;

/// Makes a directory. With `parents`, missing directories above it are made too, and a directory that is there already
/// is no error, whatever its attributes.
pub(crate) fn make_dir(
    db: &Tx,
    path: &PoolPath,
    parents: bool,
    attributes: EntryAttributes,
) -> Result<(), Error> {
    if !parents || path.space().is_empty() {
        let (above, name) = split(path)?;
        if entries::lookup(db, entries::existing_dir(db, &above)?, name)?.is_some() {
            return Err(Error::Exists(path.clone()));
        }
    }
    admit_dirs(db, path, entries::missing_dirs(db, path)?)?;
    make_dirs(db, path, attributes, attributes.mtime).map(drop)
}

/// Refuses to add so many directories to the space of a path where a quota leaves no room for them.
pub(crate) fn admit_dirs(db: &Tx, path: &PoolPath, dirs: u64) -> Result<(), Error> {
    quotas::admit(db, spaces::named(db, path.space())?.id, Sums::of_dirs(dirs))
}

/// Returns the directory at `path`, which is made with those above it where they are missing. The lowest directory that
/// was there before is modified at `now`.
pub(crate) fn make_dirs(
    db: &Tx,
    path: &PoolPath,
    attributes: EntryAttributes,
    now: FileTime,
) -> Result<DirId, Error> {
    let missing = entries::missing_dirs(db, path)?;
    if missing > 0 {
        let (path, made_above) = (path.clone(), missing - 1);
        let above = path.ancestor(path.names().len() - missing as usize);
        apply::write(db, Record::Dir { path, made_above, attributes })?;
        touched(db, &above, now)?;
    }
    entries::existing_dir(db, path)
}

/// Notes that the directory at `path` was modified at `now`, because entries came or went. Nothing is noted in the pool's
/// own metadata.
pub(crate) fn touched(db: &Tx, path: &PoolPath, now: FileTime) -> Result<(), Error> {
    match path.is_system() {
        true => Ok(()),
        false => apply::write(db, Record::DirModified { path: path.clone(), mtime_ns: now }),
    }
}
