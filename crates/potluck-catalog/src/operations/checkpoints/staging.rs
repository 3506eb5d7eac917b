//! Checks at paths that lead through staging directories, and the use of checkpoints that they note.

use crate::checkpoints::{
    checkpoint_rows::{check_not_kept, find},
    open_checkpoint::OpenCheckpoint,
};
use crate::error::Error;
use crate::log::{apply, records::Record};
use crate::pool_records::notes;
use crate::sql::Tx;
use potluck_core::checkpoint::{CheckpointId, StagedPlace};
use potluck_core::path::PoolPath;

/// The precision, in milliseconds, with which the last use of a checkpoint is recorded: not each of a thousand commits
/// writes it down.
const USED_WITHIN_MS: u64 = 60_000;

/// Returns the checkpoint `id` of a space, which must be open.
fn open(db: &Tx, space: &str, id: &CheckpointId) -> Result<OpenCheckpoint, Error> {
    let kept = find(db, space, id)?.ok_or(Error::NoCheckpoint(*id))?;
    kept.open(db)?.ok_or(Error::NoCheckpoint(*id))
}

/// Notes that a checkpoint was used at this time, if the last use that is noted is a minute old, and returns it as it
/// is then.
pub(crate) fn used(db: &Tx, open: OpenCheckpoint, pool_ms: u64) -> Result<OpenCheckpoint, Error> {
    let now_ms = notes::without_leaps(db, pool_ms)?;
    if now_ms.saturating_sub(open.used_ms) < USED_WITHIN_MS {
        return Ok(open);
    }
    let open = OpenCheckpoint { used_ms: now_ms, ..open };
    apply::write(db, Record::Checkpoint(open.clone()))?;
    Ok(open)
}

/// Refuses a change in the place of old versions and snapshots, at or below a staging directory whose checkpoint is not
/// open, and at a staging name inside another. The checkpoint counts as used at `now_ms`, if that is given. For any
/// other path no row is read.
pub(crate) fn check_writable(db: &Tx, path: &PoolPath, now_ms: Option<u64>) -> Result<(), Error> {
    check_not_kept(path)?;
    let Some(place) = StagedPlace::of(path) else { return Ok(()) };
    let open = open(db, path.space(), &place.id)?;
    if open.staging != place.staging {
        return Err(Error::NoCheckpoint(place.id));
    }
    // A name that looks like a staging directory's and is none would be hidden from everybody.
    let nested = place.below.iter().find_map(|name| CheckpointId::of_staging_name(name));
    if let Some(other) = nested {
        return Err(Error::NoCheckpoint(other));
    }
    now_ms.map_or(Ok(()), |now_ms| used(db, open, now_ms).map(drop))
}

/// Refuses to move or remove a staging directory itself, which the end of its checkpoint does, and whatever
/// [`check_writable`] refuses.
pub(crate) fn check_removable(db: &Tx, path: &PoolPath) -> Result<(), Error> {
    match StagedPlace::of(path) {
        Some(place) if place.below.is_empty() => Err(Error::StagingPlace(path.clone())),
        _ => check_writable(db, path, None),
    }
}
