//! Whether a member may be told that the pool has a chunk.
//!
//! Whoever is told that a chunk is there, or has a file committed of a chunk that was never sent, learns that somebody
//! stores these very bytes. So only chunks of spaces that the member may read are told of, and those of the session
//! itself. Others are sent, and the donors that have them store nothing twice.

use crate::chunks::{self, ChunkRow, ChunkState, placements, referrers};
use crate::error::Error;
use crate::members::grants::SeenSpaces;
use crate::names::entries::{self, DirId, EntryPlace};
use crate::sql::{Tx, params};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, SessionId, VersionId};
use potluck_core::policy::AckLevel;
use potluck_core::rights::Right;
use std::collections::HashMap;

/// The most versions of one chunk that are looked at: a chunk of zeros may be in a million files. A member who may read
/// none of these is not told of the chunk, and sends it.
const MOST_VERSIONS: usize = 64;

/// Who asks about chunks.
#[derive(Debug, Clone)]
pub struct ChunkAsker {
    /// The spaces that the member sees, with the member's rights.
    pub seen: SeenSpaces,
    /// The write session for which the member asks, if any.
    pub session: Option<SessionId>,
}

impl ChunkAsker {
    /// Somebody who is told of all chunks.
    pub const ALL: Self = Self { seen: SeenSpaces::ALL, session: None };
}

/// Finds out of which chunks an asker is told. What was found of versions and directories is kept, because neighbouring
/// chunks are mostly of one file, and files of one directory.
pub(crate) struct SeenChunks<'db> {
    db: &'db Tx,
    asker: &'db ChunkAsker,
    versions: HashMap<VersionId, bool>,
    dirs: HashMap<DirId, bool>,
}

impl<'db> SeenChunks<'db> {
    pub(crate) fn new(db: &'db Tx, asker: &'db ChunkAsker) -> Self {
        Self { db, asker, versions: HashMap::new(), dirs: HashMap::new() }
    }

    /// Returns whether a file of the chunk is in a space that the asker may read, or a part of a file that the session
    /// is writing has the chunk.
    pub(crate) fn sees(&mut self, chunk: &ChunkRow) -> Result<bool, Error> {
        if self.asker.seen.are_all() {
            return Ok(true);
        }
        for version in referrers::some_of(self.db, chunk, MOST_VERSIONS)? {
            if self.sees_version(version)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn sees_version(&mut self, version: VersionId) -> Result<bool, Error> {
        if let Some(known) = self.versions.get(&version) {
            return Ok(*known);
        }
        let sees = match entries::holder_of(self.db, &EntryPlace::File(version))? {
            Some((dir, _)) => self.sees_below(dir)?,
            None => self.sees_part(version)? || self.sees_in_snapshot(version)?,
        };
        self.versions.insert(version, sees);
        Ok(sees)
    }

    fn sees_part(&self, version: VersionId) -> Result<bool, Error> {
        let whole: Option<(String, Option<[u8; 16]>)> = self
            .db
            .prepare(
                "SELECT s.name, w.session FROM parts p JOIN wholes w ON w.id = p.whole
                 JOIN spaces s ON s.id = w.space WHERE p.part = ?1",
            )?
            .query_one(params![version.0 as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(match whole {
            None => false,
            Some((_, Some(session))) => self.asker.session == Some(SessionId(session)),
            Some((space, None)) => self.asker.seen.rights(&space).allow(Right::Read),
        })
    }

    fn sees_in_snapshot(&mut self, version: VersionId) -> Result<bool, Error> {
        let dir: Option<i64> = self
            .db
            .prepare("SELECT parent FROM bygone WHERE version = ?1 LIMIT 1")?
            .query_one(params![version.0 as i64], |row| row.get(0))?;
        dir.map_or(Ok(false), |dir| self.sees_below(DirId::now(dir)))
    }

    /// Returns whether the asker may read in the space of a directory.
    fn sees_below(&mut self, dir: DirId) -> Result<bool, Error> {
        let (mut passed, mut at) = (Vec::new(), dir);
        let sees = loop {
            if let Some(known) = self.dirs.get(&at) {
                break *known;
            }
            passed.push(at);
            match entries::holder_of(self.db, &EntryPlace::Dir(at))? {
                None => break false,
                Some((DirId::ROOT, space)) => {
                    break self.asker.seen.rights(&space).allow(Right::Read);
                }
                Some((above, _)) => at = above,
            }
        };
        self.dirs.extend(passed.into_iter().map(|dir| (dir, sees)));
        Ok(sees)
    }
}

/// The answer to whether a chunk is known.
#[derive(Debug, Clone, Default)]
pub struct KnownChunk {
    /// True if a file uses the chunk.
    pub used: bool,
    /// True if only files that the asker may not read use the chunk: nothing else is told then.
    pub is_hidden: bool,
    /// The donors that have acknowledged the chunk at the level that was asked for.
    pub donors: Vec<DonorId>,
}

/// Looks up each of `names`, with the donors that have them at level `ack` or better. A chunk that is on its way out is
/// reported as not known, and one that the asker is not told of as hidden.
pub(crate) fn look_up(
    db: &Tx,
    names: &[ChunkName],
    ack: AckLevel,
    asker: &ChunkAsker,
) -> Result<Vec<KnownChunk>, Error> {
    let mut seen = SeenChunks::new(db, asker);
    let look_up = |name: &ChunkName| match chunks::get(db, name)? {
        Some(chunk) if chunk.refs > 0 && !seen.sees(&chunk)? => {
            Ok(KnownChunk { is_hidden: true, ..KnownChunk::default() })
        }
        Some(chunk) if chunk.refs > 0 || chunk.state == ChunkState::Here => Ok(KnownChunk {
            is_hidden: false,
            used: chunk.refs > 0,
            donors: placements::holders_at(db, chunk.id, ack)?,
        }),
        _ => Ok(KnownChunk::default()),
    };
    names.iter().map(look_up).collect()
}
