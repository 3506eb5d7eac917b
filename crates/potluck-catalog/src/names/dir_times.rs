//! When directories were modified: as their entries come, go and change their names.

use crate::error::Error;
use crate::log::{changes, records::Record};
use crate::names::entries::{self, DirId};
use crate::sql::Tx;
use potluck_core::attributes::FileTime;
use potluck_core::path::PoolPath;

/// Notes that the directory `dir` at `path` was modified, because entries came or went. A replay knows no time:
/// records of their own tell when directories were modified.
pub(crate) fn touched(db: &Tx, path: &PoolPath, dir: DirId, now: FileTime) -> Result<(), Error> {
    if now == FileTime::default() || path.is_system() {
        return Ok(());
    }
    match entries::touch(db, dir, now)? {
        Some(attributes) => {
            changes::tell(db, Record::PathAttributes { path: path.clone(), attributes })
        }
        None => Ok(()),
    }
}
