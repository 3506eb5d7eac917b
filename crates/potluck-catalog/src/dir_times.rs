//! When directories were modified: as their entries come, go and change their names.

use super::changes::{self, ChangeOp};
use super::entries::{self, DirId};
use super::error::Error;
use crate::sql::Tx;
use potluck_core::attributes::FileTime;
use potluck_core::path::PoolPath;

/// Entries came to the directory `dir` at `path`, or went: it was modified. A replay knows no time, and records of
/// their own tell of these.
pub(crate) fn touched(db: &Tx, path: &PoolPath, dir: DirId, now: FileTime) -> Result<(), Error> {
    if now == FileTime::default() || path.is_system() {
        return Ok(());
    }
    match entries::touch(db, dir, now)? {
        Some(attributes) => {
            changes::append(db, &ChangeOp::PathAttributes(path.clone(), attributes))
        }
        None => Ok(()),
    }
}
