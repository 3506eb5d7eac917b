//! Commit: written files become visible, in one transaction.
//!
//! What can be checked without the catalog was checked before ([`PreparedFile`]); here each file
//! is first checked against the catalog and only then written, so that a refused file leaves no
//! trace and the others of its batch go on.

use super::acknowledged::{self, Standing};
use super::chunks::{Book, InUseAgain};
use super::dir_policies;
use super::entries::{self, DirId, Place};
use super::error::Error;
use super::journal::{self, Op};
use super::schema::Counter;
use super::sessions;
use super::spaces::{self, Space, Sums};
use super::versions::{self, Version};
use crate::pool::Standings;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, SessionId, SpaceId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Mirror, Redundancy};
use potluck_wire::control::Condition;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;

/// A file whose recipe, sizes, digest and receipts are what they should be.
#[derive(Debug, Clone)]
pub struct PreparedFile {
    /// Where it becomes visible; inside the session's space.
    pub path: PoolPath,
    /// What becomes visible there; its number is given at the commit.
    pub version: Version,
    /// The content, if it lives in the catalog.
    pub inline: Option<Vec<u8>>,
    /// Otherwise its recipe as it is kept.
    pub pages: Vec<Vec<u8>>,
    /// Its chunks in order, then its parity; all were offered in the session.
    pub chunks: Vec<PreparedChunk>,
    /// When it may replace what is there.
    pub condition: Condition,
}

/// A chunk of a file.
#[derive(Debug, Clone)]
pub struct PreparedChunk {
    /// Its name.
    pub name: ChunkName,
    /// Stored bytes.
    pub len: u32,
    /// Donors whose receipts were valid, and at which level.
    pub holders: Vec<(DonorId, AckLevel)>,
}

/// A batch of files of one session.
#[derive(Debug)]
pub struct Batch<F> {
    /// The session.
    pub session: SessionId,
    /// The session's space.
    pub space: SpaceId,
    /// Counts the session's commits.
    pub number: u32,
    /// Whether all copies must be there already.
    pub mirror: Mirror,
    /// The redundancy that the session's command asked for, whatever directories say.
    pub asked: Option<Redundancy>,
    /// The files; those refused before keep their place.
    pub files: Vec<Result<PreparedFile, F>>,
    /// Whether the session ends with it.
    pub done: bool,
}

/// What came of a batch.
#[derive(Debug)]
pub enum Outcome<F> {
    /// It was committed before; the reply that was given then.
    Repeated(String),
    /// For each file its version, or why it was refused.
    Fresh {
        /// In the order of the batch's files.
        files: Vec<Result<VersionId, Refused<F>>>,
        /// Chunks that nobody used before.
        again: InUseAgain,
    },
}

/// Why a file of a batch was refused.
#[derive(Debug)]
pub enum Refused<F> {
    /// Before the catalog was asked.
    Before(F),
    /// By the catalog.
    Here(Error),
}

/// Commits a batch, unless it was committed before.
///
/// Copies count as their donors stand in `standings`, which must be of this moment. `reply` writes
/// down what the caller will be told, to repeat it when it is lost.
pub fn commit<F>(
    db: &Connection,
    batch: Batch<F>,
    standings: &Standings,
    now_ms: u64,
    wall_ms: i64,
    reply: impl FnOnce(&[Result<VersionId, Refused<F>>]) -> Result<String, Error>,
) -> Result<Outcome<F>, Error> {
    if let Some(text) = repeated(db, &batch.session, batch.number)? {
        return Ok(Outcome::Repeated(text));
    }
    if !sessions::is_open(db, &batch.session)? {
        return Err(Error::NoSession);
    }
    let first = Counter::Version.take(db, batch.files.len() as u64)?;
    let space = spaces::numbered(db, batch.space)?;
    let mut work = Work {
        db,
        standings,
        wall_ms,
        mirror: batch.mirror,
        asked: batch.asked,
        space: space.as_ref(),
        book: Book::new(db, now_ms),
        dirs: HashMap::new(),
        sums: Sums::default(),
        visible: Vec::new(),
    };
    let mut outcomes = Vec::with_capacity(batch.files.len());
    for (id, file) in (first..).zip(batch.files) {
        let outcome = match file {
            Err(refused) => Err(Refused::Before(refused)),
            Ok(file) => match work.file(VersionId(id as u64), file) {
                Ok(version) => Ok(version),
                Err(why) if is_refusal(&why) => Err(Refused::Here(why)),
                Err(why) => return Err(why),
            },
        };
        outcomes.push(outcome);
    }
    let sums = work.sums;
    let visible = std::mem::take(&mut work.visible);
    let again = work.book.close()?;
    spaces::add_sums(db, batch.space, sums)?;
    if !visible.is_empty() {
        journal::append(db, &Op::Files(visible))?;
    }
    if batch.done {
        sessions::end(db, &batch.session)?;
    }
    db.prepare_cached(
        "INSERT INTO commits (session, batch, at_ms, reply) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![batch.session.0, batch.number, now_ms as i64, reply(&outcomes)?])?;
    Ok(Outcome::Fresh { files: outcomes, again })
}

/// The reply of a batch that was committed before.
pub fn repeated(db: &Connection, session: &SessionId, batch: u32) -> Result<Option<String>, Error> {
    let found = db
        .prepare_cached("SELECT reply FROM commits WHERE session = ?1 AND batch = ?2")?
        .query_row(params![session.0, batch], |row| row.get(0));
    Ok(found.optional()?)
}

/// Whether `why` is about one file, which had no effect yet; anything else undoes the batch.
fn is_refusal(why: &Error) -> bool {
    matches!(
        why,
        Error::NoSpaceNamed(_)
            | Error::Exists(_)
            | Error::WrongVersion { .. }
            | Error::HasContent { .. }
            | Error::NotADirectory(_)
            | Error::IsADirectory(_)
            | Error::OutsideSpaces(_)
            | Error::NotAcknowledged { .. }
            | Error::TooFewCopies { .. }
            | Error::NotApart { .. }
            | Error::WrongLength { .. }
    )
}

/// Whether what is at a path may be replaced.
pub fn check_condition(
    db: &Connection,
    path: &PoolPath,
    condition: Condition,
    found: Option<VersionId>,
) -> Result<(), Error> {
    match condition {
        Condition::Always => Ok(()),
        Condition::IfAbsent if found.is_none() => Ok(()),
        Condition::IfAbsent => Err(Error::Exists(path.clone())),
        Condition::IfVersion(expected) if found == Some(expected) => Ok(()),
        Condition::IfVersion(expected) => {
            Err(Error::WrongVersion { path: path.clone(), expected, found })
        }
        Condition::IfEmpty => {
            let bytes =
                found.map_or(Ok(0), |version| versions::get(db, version).map(|v| v.size))?;
            if bytes > 0 { Err(Error::HasContent { path: path.clone(), bytes }) } else { Ok(()) }
        }
    }
}

struct Work<'db> {
    db: &'db Connection,
    standings: &'db Standings,
    wall_ms: i64,
    mirror: Mirror,
    asked: Option<Redundancy>,
    space: Option<&'db Space>,
    book: Book<'db>,
    /// Directories of this batch's files, so that a thousand files of one are looked up once.
    dirs: HashMap<Vec<String>, (DirId, Redundancy)>,
    sums: Sums,
    /// What became visible, for the journal.
    visible: Vec<(PoolPath, VersionId)>,
}

impl Work<'_> {
    fn file(&mut self, id: VersionId, file: PreparedFile) -> Result<VersionId, Error> {
        let space = self.space.ok_or_else(|| Error::NoSpaceNamed(file.path.space().into()))?;
        if space.name != file.path.space() {
            return Err(Error::NoSpaceNamed(file.path.space().into()));
        }
        let Some((name, above)) = file.path.names().split_last() else {
            return Err(Error::OutsideSpaces(file.path));
        };
        let known_dir = self.dirs.get(above).copied();
        let found = match known_dir {
            Some((dir, _)) => entries::lookup(self.db, dir, name)?,
            None => entries::resolve(self.db, &file.path)?,
        };
        let replaced = match found.map(|found| found.place) {
            Some(Place::Dir(_)) => return Err(Error::IsADirectory(file.path)),
            Some(Place::File(version)) => Some(version),
            None => None,
        };
        check_condition(self.db, &file.path, file.condition, replaced)?;
        let standing = acknowledged::check(&mut self.book, &file, self.mirror, self.standings)?;

        // From here on the file is accepted.
        let (dir, keeping) = match known_dir {
            Some(known) => known,
            None => self.make_dir(&file.path, above)?,
        };
        for chunk in &file.chunks {
            self.book.add(&chunk.name, chunk.len, &chunk.holders)?;
        }
        let parity: Vec<ChunkName> = file
            .chunks
            .get(file.version.chunks as usize..)
            .unwrap_or_default()
            .iter()
            .map(|chunk| chunk.name)
            .collect();
        // A session writes all its files as its root says, and policies change while it is open:
        // what is written otherwise than its directory says becomes that, and is unsafe until
        // then.
        let has = file.version.redundancy();
        let asks = self.asked.unwrap_or(keeping);
        let goal = (file.version.chunks > 0 && asks != has).then_some(asks);
        let enough = goal.is_none_or(|goal| goal.tolerates() <= has.tolerates());
        let safe_wall_ms = (standing == Standing::Safe && enough).then_some(self.wall_ms);
        let version = Version { id, safe_wall_ms, goal, ..file.version };
        versions::insert(self.db, &version, file.inline.as_deref(), &file.pages, &parity)?;
        if goal.is_some() {
            versions::set_goal(self.db, id, goal)?;
        }
        entries::insert(self.db, dir, name, Place::File(id), version.mtime_ms)?;
        self.sums.add(version.size as i64);
        if let Some(replaced) = replaced {
            let (old, chunks) = versions::delete(self.db, replaced)?;
            self.book.remove(&chunks)?;
            self.sums.sub(old.size as i64);
        }
        self.visible.push((file.path, id));
        Ok(id)
    }

    /// The directory of a file, made if it is not there, and what is to keep files in it.
    fn make_dir(
        &mut self,
        path: &PoolPath,
        above: &[String],
    ) -> Result<(DirId, Redundancy), Error> {
        let parent = path.parent().ok_or_else(|| Error::OutsideSpaces(path.clone()))?;
        let dir = entries::make_dirs(self.db, &parent, self.wall_ms)?;
        let known = (dir, dir_policies::effective(self.db, &parent)?.redundancy());
        self.dirs.insert(above.to_vec(), known);
        Ok(known)
    }
}

/// Forgets replies that nobody asks for any more.
pub fn prune_replies(db: &Connection, before_ms: u64) -> Result<(), Error> {
    db.execute("DELETE FROM commits WHERE at_ms < ?1", [before_ms as i64])?;
    Ok(())
}
