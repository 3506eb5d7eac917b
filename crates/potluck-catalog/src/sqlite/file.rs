//! The catalog's file: making it, opening it, refusing one that is damaged or too new.

use super::tx::Tx;
use crate::leases::Leases;
use crate::sql::params;
use crate::{Error, OpenError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The format that this release reads and writes. Before 1.0 no release reads the format of another.
const FORMAT: i64 = 14;
const SCHEMA: &str = include_str!("schema.sql");
/// The most bytes of a catalog that is checked before it is served, which takes some tenths of a second. A larger one
/// is checked while it is served, so that it does not delay the start, unless it was found damaged before.
const CHECKED_WHEN_OPENED: u64 = 64 << 20;
/// The pages of the write-ahead log from which on it is moved into the file.
pub(super) const LONG_LOG: i32 = 4000;
/// The mark "POTL", by which `file` and people recognise a catalog.
const APPLICATION: i64 = 0x504f_544c;

/// The ending of the name of an empty file beside a catalog that was found damaged while it was open: such a catalog
/// is checked before it is opened again.
const FOUND_DAMAGED: &str = "-damaged";

/// Returns the files that the catalog at `path` may be in: its own, and those that may lie beside it.
pub fn files_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    ["", "-journal", "-wal", "-shm", FOUND_DAMAGED].into_iter().map(|suffix| beside(path, suffix))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut file = path.as_os_str().to_owned();
    file.push(suffix);
    file.into()
}

/// Returns whether a catalog is at `path`, or was begun there.
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// An open connection to a catalog, for one user at a time. A statement outside of a [`Transaction`] is a transaction
/// of its own, except on a connection that [`open_snapshot`] opened.
pub struct Database(pub(crate) Tx);

/// The number of a statement's steps between two looks at whether it is to end: some ten microseconds.
const STEPS: i32 = 4000;

impl Database {
    /// Has statements of this connection end with an error once `is_over` is set.
    pub(super) fn end_statements_when(
        &mut self,
        is_over: Option<Arc<AtomicBool>>,
    ) -> Result<(), Error> {
        let look = is_over.map(|is_over| move || is_over.load(Ordering::Relaxed));
        Ok(self.0.connection.progress_handler(STEPS, look)?)
    }

    fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Returns this connection with leases that are shared with others.
    pub(super) fn with_leases(mut self, leases: Arc<Leases>) -> Self {
        self.0.leases = leases;
        self
    }

    /// Begins a transaction, which is rolled back unless it is committed. It sees one moment of the catalog from its
    /// first statement on.
    pub fn begin(&self) -> Result<Transaction<'_>, Error> {
        self.begin_as("BEGIN")
    }

    /// Begins a transaction that is going to write.
    pub(super) fn begin_to_write(&self) -> Result<Transaction<'_>, Error> {
        self.begin_as("BEGIN IMMEDIATE")
    }

    fn begin_as(&self, sql: &str) -> Result<Transaction<'_>, Error> {
        self.connection().prepare_cached(sql)?.execute([])?;
        Ok(Transaction(self))
    }

    /// Sets whether commits reach the disk before they return.
    pub(super) fn sync_commits(&self, sync: bool) -> Result<(), Error> {
        let level = if sync { "FULL" } else { "NORMAL" };
        Ok(self.connection().pragma_update(None, "synchronous", level)?)
    }

    /// Leaves it to the system when commits reach the disk, for a file that is not needed after a crash.
    pub fn never_sync(&self) -> Result<(), Error> {
        Ok(self.connection().pragma_update(None, "synchronous", "OFF")?)
    }

    /// Returns the bytes of the pages in use. Those that deleted rows left free do not count; the file is never made
    /// smaller, so it may be much larger.
    pub fn bytes(&self) -> Result<u64, Error> {
        let read = |pragma| -> Result<i64, Error> {
            Ok(self.connection().pragma_query_value(None, pragma, |row| row.get(0))?)
        };
        let used = read("page_count")?.saturating_sub(read("freelist_count")?);
        Ok(used.saturating_mul(read("page_size")?).max(0) as u64)
    }

    /// Moves the write-ahead log into the file. It waits for readers of the log no longer than the busy timeout, and
    /// then leaves some of the log beside the file, without an error.
    pub(super) fn move_log_into_file(&self) -> Result<(), Error> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        Ok(self.connection().query_row(checkpoint, [], |_| Ok(()))?)
    }

    /// Moves the write-ahead log into the file as far as no reader needs it any more. It waits for nobody, and does
    /// nothing while another connection moves the log.
    pub(super) fn move_some_of_log(&self) -> Result<(), Error> {
        let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
        Ok(self.connection().query_row(checkpoint, [], |_| Ok(()))?)
    }

    /// Closes a catalog, and leaves it as one file.
    pub fn close(self) -> Result<(), Error> {
        self.connection().pragma_update(None, "journal_mode", "DELETE")?;
        self.0.connection.close().map_err(|(_, why)| why.into())
    }
}

impl Deref for Database {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.0
    }
}

/// A transaction under way.
pub struct Transaction<'db>(&'db Database);

impl Transaction<'_> {
    /// Commits all changes of the transaction.
    pub fn commit(self) -> Result<(), Error> {
        self.0.connection().prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Deref for Transaction<'_> {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // A transaction is over when it was committed, and after some errors.
        if !self.0.is_over() {
            let _ = self.0.connection().execute_batch("ROLLBACK");
        }
    }
}

/// Makes an empty catalog, unless one is there, with the rows that `begin` writes. One of another format is an error.
pub fn create(path: &Path, begin: impl FnOnce(&Tx) -> Result<(), Error>) -> Result<(), OpenError> {
    let db = open(path)?;
    let format = user_version(&db).map_err(damaged(path))?;
    if format != 0 {
        return check_format(path, format);
    }
    let make = || -> Result<(), Error> {
        let tx = db.begin()?;
        tx.execute_batch(SCHEMA)?;
        begin(&tx)?;
        db.connection().pragma_update(None, "application_id", APPLICATION)?;
        db.connection().pragma_update(None, "user_version", FORMAT)?;
        tx.commit()
    };
    make().map_err(damaged(path))
}

/// Opens the catalog at `path` for writing, after checking that it is sound (promise D4). A large one is opened
/// unchecked, and [`check_open`] checks it later, unless that found it damaged before.
pub fn open_existing(path: &Path) -> Result<Database, OpenError> {
    let checks = is_checked_first(path);
    let db = open_checked(path, checks.then_some("PRAGMA quick_check(1)"))?;
    if checks {
        let _ = fs::remove_file(beside(path, FOUND_DAMAGED)); // it was mended, or was never there
    }
    Ok(db)
}

/// Returns whether the catalog at `path` is checked before it is opened: it is small, or was found damaged before.
pub fn is_checked_first(path: &Path) -> bool {
    let bytes = |file: PathBuf| file.metadata().map_or(0, |about| about.len());
    beside(path, FOUND_DAMAGED).exists()
        || files_of(path).map(bytes).sum::<u64>() <= CHECKED_WHEN_OPENED
}

/// Checks a catalog that is in use, one table after the other, so that no long read keeps the write-ahead log from
/// being moved. Returns the damage, if any, and marks a damaged catalog to be checked before it is opened again.
pub fn check_open(path: &Path) -> Result<Option<String>, Error> {
    let found = damaged_table(path);
    if matches!(found, Ok(Some(_)) | Err(Error::Damaged(_)))
        && let Err(why) = File::create(beside(path, FOUND_DAMAGED))
    {
        tracing::warn!(%why, "the next start will not know that the catalog is damaged");
    }
    found
}

fn damaged_table(path: &Path) -> Result<Option<String>, Error> {
    let db = open_reader(path)?;
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let mut tables = db.prepare(tables)?;
    let tables =
        tables.query_map(params![], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    for table in tables {
        let check = format!("PRAGMA quick_check('{table}')");
        let sound: String = db.connection().query_row(&check, [], |row| row.get(0))?;
        if sound != "ok" {
            return Ok(Some(format!("{table}: {sound}")));
        }
    }
    Ok(None)
}

/// Opens the catalog at `path` after a full check, which also compares its indexes with its rows. A restore that has
/// just made a catalog opens it this way once.
pub fn open_whole(path: &Path) -> Result<Database, OpenError> {
    open_checked(path, Some("PRAGMA integrity_check(1)"))
}

fn open_checked(path: &Path, check: Option<&str>) -> Result<Database, OpenError> {
    if !exists(path) {
        let root = path.parent().unwrap_or(path);
        return Err(OpenError::Missing(root.into()));
    }
    let db = open(path)?;
    let format = user_version(&db).map_err(damaged(path))?;
    check_format(path, format)?;
    let Some(check) = check else { return Ok(db) };
    let sound: Result<String, _> = db.connection().query_row(check, [], |row| row.get(0));
    let sound = sound.map_err(|why| damaged(path)(why.into()))?;
    if sound != "ok" {
        return Err(OpenError::Damaged { path: path.into(), detail: sound });
    }
    Ok(db)
}

/// Opens a catalog only to read it.
pub fn open_reader(path: &Path) -> Result<Database, Error> {
    let db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.set_prepared_statement_cache_capacity(64);
    keep_plans(&db)?;
    db.execute_batch(
        "PRAGMA query_only = ON; PRAGMA cache_size = -8192;
         PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA busy_timeout = 5000;",
    )?;
    Ok(Database(Tx::new(db)))
}

/// Opens a catalog only to read it, as it is at the first read.
pub fn open_snapshot(path: &Path) -> Result<Database, Error> {
    let db = open_reader(path)?;
    db.execute_batch("BEGIN")?;
    Ok(db)
}

fn open(path: &Path) -> Result<Database, OpenError> {
    prepare(path).map_err(|source| OpenError::Io { path: path.into(), source })?;
    let open = || -> Result<Database, Error> {
        let db = Connection::open(path)?;
        db.set_prepared_statement_cache_capacity(128);
        keep_plans(&db)?;
        db.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;
             PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA busy_timeout = 5000;
             PRAGMA wal_autocheckpoint = {LONG_LOG};",
        ))?;
        Ok(Database(Tx::new(db)))
    };
    open().map_err(damaged(path))
}

/// Keeps the plan of a cached statement whatever is bound to it. Otherwise SQLite parses and plans a statement with a
/// range again whenever its bounds change, to use statistics that this catalog does not gather.
fn keep_plans(db: &Connection) -> Result<(), rusqlite::Error> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// Makes the file if there is none, readable by its owner only, because it holds the keys of sealed spaces. SQLite
/// gives the files beside it the same mode.
fn prepare(path: &Path) -> io::Result<()> {
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(why) => Err(why),
    }
}

fn user_version(db: &Database) -> Result<i64, Error> {
    Ok(db.connection().query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

fn check_format(path: &Path, found: i64) -> Result<(), OpenError> {
    match found {
        FORMAT => Ok(()),
        found if found > FORMAT => Err(OpenError::TooNew { path: path.into(), found }),
        found => Err(OpenError::Damaged {
            path: path.into(),
            detail: format!("its format is {found}, and this version reads {FORMAT}"),
        }),
    }
}

fn damaged(path: &Path) -> impl Fn(Error) -> OpenError {
    move |why| OpenError::of(path, why)
}
