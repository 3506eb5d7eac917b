//! Single facts, as texts by key, that must outlive the manager's process.

use crate::error::Error;
use crate::sql::{Tx, params};
use potluck_core::ids::DonorId;
use std::collections::BTreeSet;

/// The fingerprint of the pool's authority.
pub const AUTHORITY: &str = "authority";
/// An admin's pause of repair.
pub const REPAIR_PAUSED: &str = "repair_paused";
/// The donors whose loss has paused repair, as a JSON list.
pub const REPAIR_TRIPPED: &str = "repair_tripped";
/// The donors that are gone and that an admin does not wait for, as a JSON list.
pub const REPAIR_DECLARED_DEAD: &str = "repair_declared_dead";
/// The position of the metadata log on donors, as JSON; none while no generation is begun.
pub const LOG_ON_DONORS: &str = "log_on_donors";
/// The position of the metadata log in a file, as JSON; none while no generation is begun.
pub const LOG_IN_FILE: &str = "log_in_file";
/// The terms of managers that led to this catalog, as a JSON list.
pub const TERMS: &str = "terms";
/// The reason of the GC freeze, while there is one.
pub const GC_FROZEN: &str = "gc_frozen";
/// The milliseconds by which the pool's time leapt at all starts of managers together.
pub const TIME_LEAPT: &str = "pool_time_leapt_ms";

/// The mark of a catalog that may lack changes which another log has, until an admin accepts it: it was restored from a
/// log with gaps or from a file, or it is older than one that ran before.
pub const MAY_LACK: &str = "may_lack";

/// The position on donors that the log had when the mark [`MAY_LACK`] was set, as JSON.
pub const LOG_LEFT: &str = "log_left";

/// The notes about pauses of repair, which the log has and a restore brings back.
pub const LOGGED: [&str; 3] = [REPAIR_PAUSED, REPAIR_TRIPPED, REPAIR_DECLARED_DEAD];

/// Returns the key of the note of the versions that may be lost when a donor's owner takes its space back at once, a
/// JSON list.
pub fn may_lose(donor: DonorId) -> String {
    format!("may_lose_{donor}")
}

/// Returns a fact, if it was noted.
pub(crate) fn get(db: &Tx, key: &str) -> Result<Option<String>, Error> {
    let mut select = db.prepare("SELECT value FROM notes WHERE key = ?1")?;
    select.query_one(params![key], |row| row.get(0))
}

/// Notes a fact; replaces what was noted under its key.
pub(crate) fn set(db: &Tx, key: &str, value: &str) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO notes (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    )?
    .execute(params![key, value])?;
    Ok(())
}

/// Returns the donors that were noted under a key; none if there is no note or it cannot be read.
pub(crate) fn donors(db: &Tx, key: &str) -> Result<BTreeSet<DonorId>, Error> {
    let noted = get(db, key)?.and_then(|donors| serde_json::from_str(&donors).ok());
    Ok(noted.unwrap_or_default())
}

/// Returns the note of these donors; `None` if there are none.
pub(crate) fn of_donors(donors: &BTreeSet<DonorId>) -> Result<Option<String>, Error> {
    let text = (!donors.is_empty()).then(|| serde_json::to_string(donors));
    text.transpose().map_err(|why| Error::Bug(why.to_string()))
}

/// Returns the milliseconds by which the pool's time leapt at all starts of managers together.
pub(crate) fn time_leapt_ms(db: &Tx) -> Result<u64, Error> {
    let noted = get(db, TIME_LEAPT)?.and_then(|noted| noted.parse().ok());
    Ok(noted.unwrap_or_default())
}

/// Returns a moment of the pool's time without the leaps of that. By it is measured for how long something is kept, is not
/// used or stays open, so that restarts of the manager do not shorten it.
pub(crate) fn without_leaps(db: &Tx, pool_ms: u64) -> Result<u64, Error> {
    Ok(pool_ms.saturating_sub(time_leapt_ms(db)?))
}

/// Removes the note with this key.
pub(crate) fn clear(db: &Tx, key: &str) -> Result<(), Error> {
    db.prepare("DELETE FROM notes WHERE key = ?1")?.execute(params![key])?;
    Ok(())
}
