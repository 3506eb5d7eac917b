//! The index of a file tree: a SQLite database with the digests of what its files consist of.
//!
//! It lies in the tree's directory and names files relative to it, so that it moves with the device; or elsewhere, for
//! a tree that cannot be written to. Parts are found by the first eight bytes of their digest. Whoever reads a part
//! compares all of it.

use crate::parts::FilePart;
use potluck_core::chunk::Digest;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The name of an index in the directory of its tree.
pub const INDEX_NAME: &str = ".potluck-lookaside";
/// The format of the database. An index of another format is made anew.
const FORMAT: i64 = 1;
/// The most places at which a part is looked for.
const MOST_PLACES: usize = 4;
/// The time for which another process may have the database locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
    CREATE TABLE about (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE files (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        path BLOB NOT NULL UNIQUE,
        size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        digest BLOB,
        round INTEGER NOT NULL
    );
    CREATE TABLE parts (
        key INTEGER NOT NULL,
        file INTEGER NOT NULL,
        start INTEGER NOT NULL,
        len INTEGER NOT NULL,
        PRIMARY KEY (key, file, start, len)
    ) WITHOUT ROWID;
";

/// The error of an index that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// There is no index.
    #[error("there is no index at {0}")]
    Missing(PathBuf),
    /// The file is no index of this version.
    #[error("{0} is no lookaside index of this version")]
    Foreign(PathBuf),
    /// The database failed.
    #[error("the index at {place} failed: {why}")]
    Database {
        /// The path of the index.
        place: PathBuf,
        /// What SQLite says of it.
        why: rusqlite::Error,
    },
    /// The tree cannot be read.
    #[error("cannot read {place}: {why}")]
    Tree {
        /// The path of what cannot be read.
        place: PathBuf,
        /// What the system says of it.
        why: io::Error,
    },
}

/// The facts about an index as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct IndexFacts {
    /// The number of files.
    pub files: u64,
    /// The number of bytes of all files.
    pub bytes: u64,
}

/// The facts by which a file counts as unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// The size in bytes.
    pub size: u64,
    /// The modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// The inode's number.
    pub inode: u64,
}

impl FileStamp {
    /// Returns the stamp of a file.
    pub fn of(file: &Metadata) -> Self {
        let mtime_ns = file.mtime().saturating_mul(1_000_000_000).saturating_add(file.mtime_nsec());
        Self { size: file.len(), mtime_ns, inode: file.ino() }
    }
}

/// The outcome of looking for a part in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    /// The part was there.
    Found(Vec<u8>),
    /// The index does not have it.
    Missing,
    /// The index has it, and the files were changed or removed since, or cannot be read.
    Stale,
}

/// An index of a file tree.
#[derive(Debug)]
pub struct LookasideIndex {
    place: PathBuf,
    tree: PathBuf,
    database: Mutex<Connection>,
}

fn key_of(digest: &Digest) -> i64 {
    i64::from_le_bytes(*digest.0.first_chunk().expect("a digest has 32 bytes"))
}

impl LookasideIndex {
    /// Opens the index at `place`, a database or the directory of a tree that has one, to look parts up.
    ///
    /// Errors: there is none, or it is of another version.
    pub fn open(place: &Path) -> Result<Self, IndexError> {
        let place = if place.is_dir() { place.join(INDEX_NAME) } else { place.to_owned() };
        if !place.exists() {
            return Err(IndexError::Missing(place));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(&place, flags);
        Self::of(place.clone(), database.map_err(|why| failed(&place, why))?)
    }

    /// Opens the index of `tree` at `place` to bring it up to date, or makes it.
    pub(crate) fn open_to_write(tree: &Path, place: &Path) -> Result<Self, IndexError> {
        let made = |why| failed(place, why);
        let is_new = std::fs::metadata(place).map_or(true, |file| file.len() == 0);
        let database = Connection::open(place).map_err(made)?;
        if is_new {
            let is_beside = place.parent() == Some(tree);
            let relative = if is_beside { Path::new("") } else { tree };
            database.execute_batch(SCHEMA).map_err(made)?;
            let about = [("format", FORMAT.to_le_bytes().to_vec()), ("tree", bytes_of(relative))];
            for (name, value) in about {
                let insert = "INSERT INTO about (name, value) VALUES (?1, ?2)";
                database.execute(insert, params![name, value]).map_err(made)?;
            }
        }
        let index = Self::of(place.to_owned(), database)?;
        match index.tree == tree {
            true => Ok(index),
            false => Err(IndexError::Foreign(place.to_owned())),
        }
    }

    fn of(place: PathBuf, database: Connection) -> Result<Self, IndexError> {
        let about = |name: &str| {
            let select = "SELECT value FROM about WHERE name = ?1";
            database.query_row(select, [name], |row| row.get::<_, Vec<u8>>(0)).optional()
        };
        let found = database
            .busy_timeout(BUSY_TIMEOUT)
            .and_then(|()| Ok((about("format")?, about("tree")?)));
        let (format, tree) = found.map_err(|why| match why.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::Unknown) => {
                IndexError::Foreign(place.clone())
            }
            _ => failed(&place, why),
        })?;
        if format.as_deref() != Some(&FORMAT.to_le_bytes()) {
            return Err(IndexError::Foreign(place));
        }
        let tree = tree.map(|tree| path_of(&tree)).unwrap_or_default();
        let above = place.parent().unwrap_or(Path::new("/"));
        let tree = if tree.as_os_str().is_empty() { above.to_owned() } else { tree };
        Ok(Self { place, tree, database: Mutex::new(database) })
    }

    /// Returns the path of the database.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the directory of the tree.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    pub(crate) fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().expect("no holder panics")
    }

    /// Returns the facts about the index.
    pub fn facts(&self) -> Result<IndexFacts, IndexError> {
        let select = "SELECT count(*), coalesce(sum(size), 0) FROM files WHERE digest IS NOT NULL";
        let facts = self.database().query_row(select, [], |row| {
            let [files, bytes] = [row.get::<_, i64>(0)?, row.get(1)?].map(|number| number as u64);
            Ok(IndexFacts { files, bytes })
        });
        facts.map_err(|why| failed(&self.place, why))
    }

    /// Reads the part with this digest and length, if a file has it now: `is_right` says of bytes whether they are it.
    pub(crate) fn read(
        &self,
        digest: &Digest,
        len: u32,
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Looked {
        let places = self.places(digest, len).unwrap_or_else(|why| {
            tracing::warn!("{}", failed(&self.place, why));
            Vec::new()
        });
        if places.is_empty() {
            return Looked::Missing;
        }
        let mut bytes = vec![0; len as usize];
        // Neither the time nor the number of a file counts here: a device may have been copied, and the digest decides.
        let is_there = places.iter().any(|(path, start)| {
            let read = open_file(&self.tree, path);
            read.and_then(|file| file.read_exact_at(&mut bytes, *start)).is_ok() && is_right(&bytes)
        });
        if is_there { Looked::Found(bytes) } else { Looked::Stale }
    }

    fn places(&self, digest: &Digest, len: u32) -> rusqlite::Result<Vec<(PathBuf, u64)>> {
        let database = self.database();
        let mut select = database.prepare_cached(
            "SELECT path, start FROM parts JOIN files ON number = file WHERE key = ?1 AND len = ?2 LIMIT ?3",
        )?;
        let rows = select.query_map(params![key_of(digest), len, MOST_PLACES as i64], |row| {
            Ok((path_of(&row.get::<_, Vec<u8>>(0)?), row.get::<_, i64>(1)? as u64))
        })?;
        rows.collect()
    }

    /// Returns whether the index has the file as it is, and notes that it was there in this round.
    pub(crate) fn is_known(
        &self,
        path: &Path,
        stamp: &FileStamp,
        round: i64,
    ) -> rusqlite::Result<bool> {
        let database = self.database();
        let mut update = database.prepare_cached(
            "UPDATE files SET round = ?1 WHERE path = ?2 AND size = ?3 AND mtime_ns = ?4 AND inode = ?5
             AND digest IS NOT NULL",
        )?;
        let FileStamp { size, mtime_ns, inode } = *stamp;
        let known = params![round, bytes_of(path), size as i64, mtime_ns, inode as i64];
        Ok(update.execute(known)? > 0)
    }

    /// Begins the row of a file that is being hashed, in the place of an earlier one; returns its number.
    pub(crate) fn begin_file(
        &self,
        path: &Path,
        stamp: &FileStamp,
        round: i64,
    ) -> rusqlite::Result<i64> {
        let database = self.database();
        database.prepare_cached("DELETE FROM files WHERE path = ?1")?.execute([bytes_of(path)])?;
        let mut insert = database.prepare_cached(
            "INSERT INTO files (path, size, mtime_ns, inode, round) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let FileStamp { size, mtime_ns, inode } = *stamp;
        insert.insert(params![bytes_of(path), size as i64, mtime_ns, inode as i64, round])
    }

    /// Adds parts of a file.
    pub(crate) fn add_parts(&self, file: i64, parts: &[FilePart]) -> rusqlite::Result<()> {
        let database = self.database();
        let mut insert = database.prepare_cached(
            "INSERT OR IGNORE INTO parts (key, file, start, len) VALUES (?1, ?2, ?3, ?4)",
        )?;
        for part in parts {
            insert.execute(params![key_of(&part.digest), file, part.offset as i64, part.len])?;
        }
        Ok(())
    }

    /// Notes that all parts of a file are there.
    pub(crate) fn end_file(&self, file: i64, digest: &Digest) -> rusqlite::Result<()> {
        let database = self.database();
        let mut update =
            database.prepare_cached("UPDATE files SET digest = ?1 WHERE number = ?2")?;
        update.execute(params![digest.0, file]).map(drop)
    }

    /// Returns the number of the next round, in which all files that are there are met.
    pub(crate) fn next_round(&self) -> rusqlite::Result<i64> {
        let select = "SELECT coalesce(max(round), 0) + 1 FROM files";
        self.database().query_row(select, [], |row| row.get(0))
    }

    /// Removes the files that were not met in a round, and the parts of files that are not there; returns how many
    /// files that were.
    pub(crate) fn forget_all_but(&self, round: i64) -> rusqlite::Result<u64> {
        let database = self.database();
        let gone = database.execute("DELETE FROM files WHERE round <> ?1", [round])?;
        database.execute("DELETE FROM parts WHERE file NOT IN (SELECT number FROM files)", [])?;
        Ok(gone as u64)
    }
}

/// Opens a regular file of a tree. An index that somebody else made may name anything.
///
/// Errors: the path leads out of the tree, or to something else.
fn open_file(tree: &Path, path: &Path) -> io::Result<File> {
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(tree.join(path), flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

pub(crate) fn failed(place: &Path, why: rusqlite::Error) -> IndexError {
    IndexError::Database { place: place.to_owned(), why }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn path_of(bytes: &[u8]) -> PathBuf {
    Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned()
}
