//! The catalog's file: making it, opening it, refusing one that is damaged or too new.

use super::error::Error;
use super::open_error::OpenError;
use potluck_core::ids::Epoch;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The format this release reads and writes. Until 1.0 no catalog of another is read.
const FORMAT: i64 = 1;
const SCHEMA: &str = include_str!("schema.sql");
/// "POTL", so that `file` and people recognise a catalog.
const APPLICATION: i64 = 0x504f_544c;

/// Numbers the catalog counts for itself.
#[derive(Debug, Clone, Copy)]
pub enum Counter {
    /// The next [`potluck_core::ids::VersionId`].
    Version,
    /// The next directory.
    Dir,
}

impl Counter {
    fn key(self) -> &'static str {
        match self {
            Self::Version => "next_version",
            Self::Dir => "next_dir",
        }
    }

    /// Counts on from beyond `last`, if it is not there already.
    pub fn pass(self, db: &Connection, last: i64) -> Result<(), Error> {
        db.prepare_cached("UPDATE meta SET value = max(value, ?2 + 1) WHERE key = ?1")?
            .execute(params![self.key(), last])?;
        Ok(())
    }

    /// Takes `n` numbers and gives the first.
    pub fn take(self, db: &Connection, n: u64) -> Result<i64, Error> {
        let after: i64 = db
            .prepare_cached("UPDATE meta SET value = value + ?2 WHERE key = ?1 RETURNING value")?
            .query_row(params![self.key(), n as i64], |row| row.get(0))?;
        Ok(after - n as i64)
    }
}

const EPOCH: &str = "epoch";
const POOL_TIME: &str = "pool_time_ms";

/// Makes an empty catalog for the pool called `pool`, unless one is there.
pub fn create(path: &Path, pool: &str) -> Result<(), OpenError> {
    let db = open(path)?;
    let format = user_version(&db).map_err(damaged(path))?;
    if format != 0 {
        return check_format(path, format);
    }
    let make = || -> Result<(), Error> {
        let tx = db.unchecked_transaction()?;
        tx.execute_batch(SCHEMA)?;
        tx.execute("INSERT INTO pool (name) VALUES (?1)", [pool])?;
        for (key, value) in [(Counter::Version.key(), 1), (Counter::Dir.key(), 1), (EPOCH, 0)] {
            tx.execute("INSERT INTO meta (key, value) VALUES (?1, ?2)", params![key, value])?;
        }
        tx.pragma_update(None, "application_id", APPLICATION)?;
        tx.pragma_update(None, "user_version", FORMAT)?;
        tx.commit()?;
        Ok(())
    };
    make().map_err(damaged(path))
}

/// Opens the catalog at `path` for writing, after checking that it is sound (promise D4: a
/// damaged catalog is never served).
pub fn open_existing(path: &Path) -> Result<Connection, OpenError> {
    open_checked(path, "PRAGMA quick_check(1)")
}

/// Opens the catalog at `path` as [`open_existing`] does, and compares its indexes with the rows too:
/// a restore has just made it, and what it made is looked at once as a whole.
pub fn open_whole(path: &Path) -> Result<Connection, OpenError> {
    open_checked(path, "PRAGMA integrity_check(1)")
}

fn open_checked(path: &Path, check: &str) -> Result<Connection, OpenError> {
    if !path.exists() {
        let root = path.parent().unwrap_or(path);
        return Err(OpenError::Missing(root.into()));
    }
    let db = open(path)?;
    let format = user_version(&db).map_err(damaged(path))?;
    check_format(path, format)?;
    let sound: String =
        db.query_row(check, [], |row| row.get(0)).map_err(|why| damaged(path)(why.into()))?;
    if sound != "ok" {
        return Err(OpenError::Damaged { path: path.into(), detail: sound });
    }
    Ok(db)
}

/// A connection that only reads.
pub fn open_reader(path: &Path) -> Result<Connection, Error> {
    let db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.set_prepared_statement_cache_capacity(64);
    db.execute_batch(
        "PRAGMA query_only = ON; PRAGMA cache_size = -8192;
         PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA busy_timeout = 5000;",
    )?;
    Ok(db)
}

fn open(path: &Path) -> Result<Connection, OpenError> {
    prepare(path).map_err(|source| OpenError::Io { path: path.into(), source })?;
    let open = || -> Result<Connection, Error> {
        let db = Connection::open(path)?;
        db.set_prepared_statement_cache_capacity(128);
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;
             PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA busy_timeout = 5000;
             PRAGMA wal_autocheckpoint = 4000;",
        )?;
        Ok(db)
    };
    open().map_err(damaged(path))
}

/// Makes the file if there is none, for its owner only, for it holds the keys of sealed spaces. What
/// SQLite puts beside it has the same mode.
fn prepare(path: &Path) -> io::Result<()> {
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(why) => Err(why),
    }
}

fn user_version(db: &Connection) -> Result<i64, Error> {
    Ok(db.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

fn check_format(path: &Path, found: i64) -> Result<(), OpenError> {
    match found {
        FORMAT => Ok(()),
        found if found > FORMAT => Err(OpenError::TooNew { path: path.into(), found }),
        found => Err(OpenError::Damaged {
            path: path.into(),
            detail: format!("its format is {found}, which no release wrote"),
        }),
    }
}

fn damaged(path: &Path) -> impl Fn(Error) -> OpenError {
    move |why| OpenError::of(path, why)
}

/// Begins a manager's life: the next epoch.
pub fn next_epoch(db: &Connection) -> Result<Epoch, Error> {
    let epoch: i64 = db.query_row(
        "UPDATE meta SET value = value + 1 WHERE key = ?1 RETURNING value",
        [EPOCH],
        |row| row.get(0),
    )?;
    Ok(Epoch(epoch as u64))
}

/// The epoch of the manager's life, or what it was raised to since.
pub fn epoch(db: &Connection) -> Result<Epoch, Error> {
    let mut select = db.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    let epoch: i64 = select.query_row([EPOCH], |row| row.get(0))?;
    Ok(Epoch(epoch as u64))
}

/// Makes the epoch a later one than `above`, unless it is; gives what it is.
pub fn raise_epoch(db: &Connection, above: Epoch) -> Result<Epoch, Error> {
    let epoch: i64 = db.query_row(
        "UPDATE meta SET value = max(value, ?2 + 1) WHERE key = ?1 RETURNING value",
        params![EPOCH, above.0 as i64],
        |row| row.get(0),
    )?;
    Ok(Epoch(epoch as u64))
}

/// What the pool is called.
pub fn pool_name(db: &Connection) -> Result<String, Error> {
    Ok(db.query_row("SELECT name FROM pool", [], |row| row.get(0))?)
}

/// The pool's time as last saved.
pub fn saved_pool_time(db: &Connection) -> Result<Option<u64>, Error> {
    let saved: Option<i64> = db
        .query_row("SELECT value FROM meta WHERE key = ?1", [POOL_TIME], |row| row.get(0))
        .optional()?;
    Ok(saved.map(|ms| ms as u64))
}

/// Saves the pool's time.
pub fn save_pool_time(db: &Connection, now_ms: u64) -> Result<(), Error> {
    db.prepare_cached(
        "INSERT INTO meta (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)",
    )?
    .execute(params![POOL_TIME, now_ms as i64])?;
    Ok(())
}
