//! The modification times of directories, which change when entries come, go or change their names.

use crate::error::Error;
use crate::log::{changes, records::Record};
use crate::names::entries::{self, DirId};
use crate::sql::Tx;
use potluck_core::attributes::FileTime;
use potluck_core::path::PoolPath;

/// Notes that the directory `dir` at `path` was modified at `now`, because entries came or went. Nothing is noted in
/// the pool's own metadata, or without a time: a replay has none, and separate records tell when directories were
/// modified.
pub(crate) fn touched(db: &Tx, path: &PoolPath, dir: DirId, now: FileTime) -> Result<(), Error> {
    if now == FileTime::default() || path.is_system() {
        return Ok(());
    }
    match entries::touch(db, dir, now)? {
        true => changes::tell(db, Record::DirModified { path: path.clone(), mtime_ns: now }),
        false => Ok(()),
    }
}
