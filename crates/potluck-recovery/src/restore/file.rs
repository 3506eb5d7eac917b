//! Restores a pool from the copy of its metadata log in a backup file.

use super::staging::Staging;
use super::{Replayed, Restore, Restored};
use crate::error::StateError;
use crate::log::backup_file::{BackupReader, Next};
use crate::log::block::{self, BlockPart};
use crate::state_dir::StateDir;
use potluck_catalog::OpenError;
use potluck_core::ids::Epoch;
use std::fs::File;
use std::path::Path;

/// Restores from the backup in the file `from`.
///
/// Errors: the state directory is not empty, the kit or the backup cannot be read, the base of the backup is damaged
/// or cut off, a record cannot be read, or the disk fails. A failed restore leaves no state directory that a manager
/// starts on, and the next restore into it begins anew. Blocks after the base that cannot be read are no error: the
/// report says how many bytes were left out.
pub fn restore_file(ask: &Restore, from: &Path) -> Result<Restored, StateError> {
    // The file is opened before anything is made, so that a wrong name does not begin a restore.
    File::open(from).map_err(StateDir::io(from.into()))?;
    let staging = Staging::begin(ask)?;
    let key = staging.kit.recovery_key();
    let mut reader = BackupReader::open(from, &ask.kit, key, &staging.authority())?;
    let (mut rebuild, mut log) = (staging.rebuild()?, Replayed::default());
    let (mut epoch, mut is_whole) = (Epoch(0), false);
    loop {
        let damaged = |why: &str| StateError::BadBackup { path: from.into(), detail: why.into() };
        match reader.next_block().map_err(StateDir::io(from.into()))? {
            Next::Block(header, text) => {
                let applied = rebuild.apply(block::records(&text));
                applied.map_err(|why| OpenError::of(from, why))?;
                (epoch, log.until_ms) = (epoch.max(header.epoch), Some(header.wall_ms));
                log.blocks += 1;
                log.gaps.inherited |= header.may_lack;
                is_whole |= header.part == BlockPart::BaseEnd;
            }
            Next::End if is_whole => break,
            Next::End => return Err(damaged("it is cut off")),
            Next::Unreadable(bytes, _) if is_whole => {
                log.unread_bytes = bytes;
                break;
            }
            Next::Unreadable(_, why) => return Err(damaged(why)),
        }
    }
    // Donors may have what was written after the file: the new catalog counts less than their log until an admin says
    // so.
    staging.finish(&ask.advertise, rebuild, epoch, log, true)
}
