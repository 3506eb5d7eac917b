//! The facts that the catalog keeps about itself: the pool's name, its time, its epoch, and counters.

use crate::engine;
use crate::error::Error;
use crate::open_error::OpenError;
use crate::sql::{Tx, params};
use potluck_core::ids::Epoch;
use std::path::Path;

/// The counters from which the catalog takes numbers.
#[derive(Debug, Clone, Copy)]
pub enum Counter {
    /// The number of the next version ([`potluck_core::ids::VersionId`]).
    Version,
    /// The number of the next directory.
    Dir,
    /// The number of the next snapshot.
    Snapshot,
    /// The number of the next key of a space ([`potluck_core::ids::KeyNumber`]).
    Key,
}

impl Counter {
    fn key(self) -> &'static str {
        match self {
            Self::Version => "next_version",
            Self::Dir => "next_dir",
            Self::Snapshot => "next_snapshot",
            Self::Key => "next_key",
        }
    }

    /// Raises the counter above `last`, unless it is above already.
    pub(crate) fn pass(self, db: &Tx, last: i64) -> Result<(), Error> {
        db.prepare("UPDATE meta SET value = ?2 + 1 WHERE key = ?1 AND value <= ?2")?
            .execute(params![self.key(), last])?;
        Ok(())
    }

    /// Takes `n` numbers, and returns the first.
    pub(crate) fn take(self, db: &Tx, n: u64) -> Result<i64, Error> {
        let after: i64 = db
            .prepare("UPDATE meta SET value = value + ?2 WHERE key = ?1 RETURNING value")?
            .query_row(params![self.key(), n as i64], |row| row.get(0))?;
        Ok(after - n as i64)
    }
}

/// Returns the number that a counter gives next.
pub(crate) fn counted(db: &Tx, counter: Counter) -> Result<i64, Error> {
    let mut select = db.prepare("SELECT value FROM meta WHERE key = ?1")?;
    select.query_row(params![counter.key()], |row| row.get(0))
}

const EPOCH: &str = "epoch";
const POOL_TIME: &str = "pool_time_ms";

/// Makes an empty catalog at `path` for the pool called `pool`, unless one is there.
pub(crate) fn create(path: &Path, pool: &str) -> Result<(), OpenError> {
    engine::create(path, |db| begin(db, pool))
}

/// Writes down the facts that an empty catalog begins with.
fn begin(db: &Tx, pool: &str) -> Result<(), Error> {
    db.execute("INSERT INTO pool (name) VALUES (?1)", params![pool])?;
    for (key, value) in [
        (Counter::Version.key(), 1),
        (Counter::Dir.key(), 1),
        (Counter::Snapshot.key(), 1),
        (Counter::Key.key(), 1),
        (EPOCH, 0),
    ] {
        db.execute("INSERT INTO meta (key, value) VALUES (?1, ?2)", params![key, value as i64])?;
    }
    Ok(())
}

/// Begins a manager's term with the next epoch.
pub(crate) fn next_epoch(db: &Tx) -> Result<Epoch, Error> {
    let epoch: i64 = db.query_row(
        "UPDATE meta SET value = value + 1 WHERE key = ?1 RETURNING value",
        params![EPOCH],
        |row| row.get(0),
    )?;
    Ok(Epoch(epoch as u64))
}

/// Returns the epoch: that of the manager's term, or the one to which it was raised since.
pub(crate) fn epoch(db: &Tx) -> Result<Epoch, Error> {
    let mut select = db.prepare("SELECT value FROM meta WHERE key = ?1")?;
    let epoch: i64 = select.query_row(params![EPOCH], |row| row.get(0))?;
    Ok(Epoch(epoch as u64))
}

/// Raises the epoch above `above`, unless it is above already, and returns it.
pub(crate) fn raise_epoch(db: &Tx, above: Epoch) -> Result<Epoch, Error> {
    let epoch: i64 = db.query_row(
        "UPDATE meta SET value = CASE WHEN value > ?2 THEN value ELSE ?2 + 1 END WHERE key = ?1
         RETURNING value",
        params![EPOCH, above.0 as i64],
        |row| row.get(0),
    )?;
    Ok(Epoch(epoch as u64))
}

/// Returns the name of the pool.
pub(crate) fn pool_name(db: &Tx) -> Result<String, Error> {
    db.query_row("SELECT name FROM pool", params![], |row| row.get(0))
}

/// Returns the pool's time as last saved, in milliseconds; `None` if it never was.
pub(crate) fn saved_pool_time(db: &Tx) -> Result<Option<u64>, Error> {
    let mut select = db.prepare("SELECT value FROM meta WHERE key = ?1")?;
    let saved: Option<i64> = select.query_one(params![POOL_TIME], |row| row.get(0))?;
    Ok(saved.map(|ms| ms as u64))
}

/// Saves the pool's time, in milliseconds, unless a later one is saved.
pub(crate) fn save_pool_time(db: &Tx, now_ms: u64) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO meta (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value
         WHERE meta.value < excluded.value",
    )?
    .execute(params![POOL_TIME, now_ms as i64])?;
    Ok(())
}
