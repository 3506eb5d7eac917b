//! Chunks and their reference counts.
//!
//! A reference is one occurrence of a chunk in one version's recipe: commits add each, removals
//! subtract each. A [`ReferenceCounts`] collects the changes of one transaction, so that every chunk's row is
//! read once and written once.

pub(crate) mod counted_copies;
pub(crate) mod excess;
pub(crate) mod followed;
pub(crate) mod placements;
pub(crate) mod referrers;
pub(crate) mod seen_chunks;
pub(crate) mod stats;
pub(crate) mod units;
pub(crate) mod unlisted;
pub(crate) mod unused_chunks;

use crate::chunks::referrers::Change;
use crate::error::Error;
use crate::sql::{Tx, params};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{ChunkId, DonorId, VersionId};
use potluck_core::policy::AckLevel;
use potluck_pool::InUseAgain;
use std::collections::{BTreeSet, HashMap};

/// The state of a chunk on its way out, as the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i64)]
pub enum ChunkState {
    /// The chunk is in use, or waits to be used.
    Here = 0,
    /// The chunk may be deleted anywhere at any time: its placements prove nothing.
    Condemned = 1,
    /// No donor has it any more.
    Gone = 2,
}

/// The row of a chunk in the table of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRow {
    /// The number by which other rows name the chunk.
    pub id: ChunkId,
    /// The length of the chunk in stored bytes. It is 0 if it is not known, because only a session that ended named the
    /// chunk, and by the word of a donor alone where no file uses the chunk.
    pub len: u32,
    /// The number of times that recipes name the chunk.
    pub refs: i64,
    /// The state of the chunk on its way out: in use, condemned, or gone.
    pub state: ChunkState,
    /// The column that says which versions refer to the chunk ([`referrers`]).
    pub referrer: Option<i64>,
}

/// Returns the row of a chunk; `None` if the catalog does not know it.
pub(crate) fn get(db: &Tx, name: &ChunkName) -> Result<Option<ChunkRow>, Error> {
    let found = db
        .prepare("SELECT id, len, refs, state, referrer FROM chunks WHERE name = ?1")?
        .query_one(params![name.0], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<i64>(3)?, row.get(4)?))
        })?;
    found
        .map(|(id, len, refs, state, referrer)| {
            let state = match state {
                0 => ChunkState::Here,
                1 => ChunkState::Condemned,
                2 => ChunkState::Gone,
                other => return Err(Error::Damaged(format!("chunk {id} has state {other}"))),
            };
            Ok(ChunkRow { id: ChunkId::from_catalog(id), len, refs, state, referrer })
        })
        .transpose()
}

/// Returns names packed one behind the other.
pub(crate) fn packed(names: &[ChunkName]) -> Vec<u8> {
    names.iter().flat_map(|name| name.0).collect()
}

/// Takes apart the names that [`packed`] put one behind the other.
pub(crate) fn unpacked(blob: &[u8]) -> Vec<ChunkName> {
    blob.as_chunks::<32>().0.iter().map(|name| ChunkName(*name)).collect()
}

/// A chunk with the donors whose copies count, and those whose copies are leaving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogChunk {
    /// The name of the chunk.
    pub name: ChunkName,
    /// The length of the chunk in stored bytes. It is 0 if it is not known, because only a session that ended named the
    /// chunk, and by the word of a donor alone where no file uses the chunk.
    pub len: u32,
    /// True if files or parts of files use the chunk.
    pub is_used: bool,
    /// True if the chunk may be deleted anywhere at any time.
    pub is_condemned: bool,
    /// The donors whose copies count.
    pub holders: Vec<DonorId>,
    /// The donors whose copies are leaving: they are deleted as excess, or an earlier order to delete them may still be
    /// carried out. A reader may have been sent to one of them.
    pub leaving: Vec<DonorId>,
}

/// Returns the facts that are known of a chunk; `None` if the catalog does not know it.
pub(crate) fn facts(db: &Tx, name: &ChunkName) -> Result<Option<CatalogChunk>, Error> {
    let Some(chunk) = get(db, name)? else { return Ok(None) };
    let is_used = chunk.refs > 0;
    Ok(Some(CatalogChunk {
        name: *name,
        len: chunk.len,
        is_used,
        is_condemned: !is_used && chunk.state == ChunkState::Condemned,
        holders: placements::holders(db, chunk.id)?,
        leaving: placements::leaving_from(db, chunk.id)?,
    }))
}

/// A chunk that no file uses, and that a session is going to use.
#[derive(Debug, Clone)]
pub struct UnusedChunk {
    /// The name of the chunk.
    pub name: ChunkName,
    /// The length of the chunk in stored bytes; 0 if the catalog knows it.
    pub len: u32,
    /// The donors whose copies of the chunk count, by the catalog or by what they reported before it knew the chunk.
    pub donors: Vec<DonorId>,
}

/// Keeps a chunk that no file uses for a session that has offered it. Returns `false` if it is on its way out already,
/// or gone: then only a new put brings it back (promise D5).
///
/// The catalog's writer calls this in the order of all changes. A chunk that was about to be condemned counts as unused
/// only from now on, and so is not condemned.
pub(crate) fn keep(db: &Tx, kept: &UnusedChunk, now_ms: u64) -> Result<bool, Error> {
    let id = match get(db, &kept.name)? {
        Some(chunk) if chunk.refs > 0 => chunk.id,
        Some(chunk) if chunk.state != ChunkState::Here => return Ok(false),
        Some(chunk) => {
            db.prepare("UPDATE chunks SET zero_since_ms = ?2 WHERE id = ?1")?
                .execute(params![chunk.id, now_ms as i64 + 1])?;
            chunk.id
        }
        None => insert_unused(db, &kept.name, kept.len, now_ms)?,
    };
    for donor in &kept.donors {
        placements::told_before(db, id, *donor)?;
    }
    Ok(true)
}

/// Inserts a chunk that no file uses, of `len` stored bytes or 0 if that is not known, and returns its number.
pub(crate) fn insert_unused(
    db: &Tx,
    name: &ChunkName,
    len: u32,
    now_ms: u64,
) -> Result<ChunkId, Error> {
    insert(db, name, len, 0, None, now_ms)
}

fn insert(
    db: &Tx,
    name: &ChunkName,
    len: u32,
    refs: i64,
    referrer: Option<i64>,
    now_ms: u64,
) -> Result<ChunkId, Error> {
    let zero_since = (refs == 0).then_some(now_ms as i64);
    let mut insert = db.prepare(
        "INSERT INTO chunks (name, len, refs, zero_since_ms, state, referrer)
         VALUES (?1, ?2, ?3, ?4, 0, ?5)",
    )?;
    let row = params![name.0, len, refs, zero_since, referrer];
    insert.insert(row).map(ChunkId::from_catalog)
}

/// The changes to chunks in one transaction.
pub struct ReferenceCounts<'db> {
    db: &'db Tx,
    now_ms: u64,
    pages: HashMap<ChunkName, CountedChunk>,
}

struct CountedChunk {
    row: Option<ChunkRow>,
    len: u32,
    change: i64,
    /// True if a version gave a reference up, whatever else changed.
    is_released: bool,
    referrers: Change,
    holders: Vec<(DonorId, AckLevel)>,
}

/// Returns whether a chunk that was on its way out has references through these changes.
fn is_in_use_again(row: &ChunkRow, line: &CountedChunk) -> bool {
    row.state != ChunkState::Here && row.refs + line.change > 0
}

impl<'db> ReferenceCounts<'db> {
    /// Makes an empty set of changes, which [`Self::close`] writes; `now_ms` is the pool's time of all of them.
    pub(crate) fn new(db: &'db Tx, now_ms: u64) -> Self {
        Self { db, now_ms, pages: HashMap::new() }
    }

    /// Returns the pool's time of the changes, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns the line of a chunk, read from the catalog at its first use.
    fn line(&mut self, name: &ChunkName) -> Result<&mut CountedChunk, Error> {
        use std::collections::hash_map::Entry;
        Ok(match self.pages.entry(*name) {
            Entry::Occupied(line) => line.into_mut(),
            Entry::Vacant(empty) => {
                let row = get(self.db, name)?;
                let len = row.map_or(0, |row| row.len);
                let (referrers, holders) = (Change::default(), Vec::new());
                empty.insert(CountedChunk {
                    row,
                    len,
                    change: 0,
                    is_released: false,
                    referrers,
                    holders,
                })
            }
        })
    }

    /// Returns whether files use a chunk with another length than `len` stored bytes, the changes of this transaction
    /// included. Of a chunk that none uses the length is a donor's word, which must not keep a file from being stored.
    pub fn differs(&mut self, name: &ChunkName, len: u32) -> Result<bool, Error> {
        let line = self.line(name)?;
        let is_used = line.row.map_or(0, |row| row.refs) + line.change > 0;
        Ok(is_used && line.len != len)
    }

    /// Returns the donors that have a chunk at `ack` or better, as far as is known, the changes of this transaction
    /// included.
    pub fn holders(&mut self, name: &ChunkName, ack: AckLevel) -> Result<BTreeSet<DonorId>, Error> {
        let db = self.db;
        let line = self.line(name)?;
        let new = line.holders.iter().filter(|(_, level)| *level >= ack);
        let mut holders: BTreeSet<DonorId> = new.map(|(donor, _)| *donor).collect();
        if let Some(row) = line.row.filter(|row| row.state == ChunkState::Here) {
            holders.extend(placements::holders_at(db, row.id, ack)?);
        }
        Ok(holders)
    }

    /// Adds a reference of a version, and holders that proved to have the chunk.
    pub fn add(
        &mut self,
        version: VersionId,
        name: &ChunkName,
        len: u32,
        holders: &[(DonorId, AckLevel)],
    ) -> Result<(), Error> {
        let line = self.held(name, holders)?;
        line.len = len;
        line.change += 1;
        line.referrers.gain(version);
        Ok(())
    }

    /// Notes that the given donors have a chunk. That adds no reference: a chunk that no file uses is reclaimed later.
    pub fn hold(
        &mut self,
        name: &ChunkName,
        len: u32,
        holders: &[(DonorId, AckLevel)],
    ) -> Result<(), Error> {
        let line = self.held(name, holders)?;
        if line.len == 0 {
            line.len = len;
        }
        Ok(())
    }

    /// Returns the line of a chunk, with the given donors among its holders.
    fn held(
        &mut self,
        name: &ChunkName,
        holders: &[(DonorId, AckLevel)],
    ) -> Result<&mut CountedChunk, Error> {
        let line = self.line(name)?;
        for holder in holders {
            if !line.holders.contains(holder) {
                line.holders.push(*holder);
            }
        }
        Ok(line)
    }

    /// Takes away the references of a version that is deleted.
    pub fn remove<'n>(
        &mut self,
        version: VersionId,
        names: impl IntoIterator<Item = &'n ChunkName>,
    ) -> Result<(), Error> {
        for name in names {
            let line = self.line(name)?;
            line.change -= 1;
            line.is_released = true;
            line.referrers.lose(version);
        }
        Ok(())
    }

    /// Takes away references of a version that stays, and may go on referring to the same chunks.
    pub fn release(&mut self, names: &[ChunkName]) -> Result<(), Error> {
        for name in names {
            let line = self.line(name)?;
            line.change -= 1;
            line.is_released = true;
        }
        Ok(())
    }

    /// Writes all changes. Returns the chunks that were condemned or gone and are in use again, and those of their
    /// earlier copies that do not count until they are put again or checked.
    pub fn close(self) -> Result<InUseAgain, Error> {
        let mut again = InUseAgain::default();
        // In the order of names the index is walked once, and the same commits always make the same rows.
        let mut lines: Vec<_> = self.pages.iter().collect();
        lines.sort_unstable_by_key(|(name, _)| **name);
        for (name, line) in lines {
            let id = match line.row {
                None if line.change > 0 || !line.holders.is_empty() => {
                    let referrer = line.referrers.column();
                    let id = insert(self.db, name, line.len, line.change, referrer, self.now_ms)?;
                    referrers::list(self.db, id, &line.referrers)?;
                    id
                }
                // A chunk that is counted wrongly stays for ever. An error here would keep all that goes with it.
                None if line.change < 0 => {
                    tracing::error!(%name, "a chunk of a recipe has no row");
                    continue;
                }
                None => continue,
                Some(row) if row.refs + line.change < 0 => {
                    tracing::error!(%name, "a chunk has too few references");
                    continue;
                }
                Some(row) => {
                    if is_in_use_again(&row, line) {
                        again.condemned.push(*name);
                    }
                    let referrer = if row.refs + line.change > 0 {
                        referrers::change(self.db, row.id, row.referrer, &line.referrers)?
                    } else {
                        referrers::clear(self.db, row.id, row.referrer)?;
                        None
                    };
                    if line.change != 0 || referrer != row.referrer {
                        self.update(&row, line, referrer)?;
                    }
                    row.id
                }
            };
            let doubtful = match line.row {
                Some(row) if is_in_use_again(&row, line) => placements::doubt(self.db, id)?,
                _ => Vec::new(),
            };
            for holder in &line.holders {
                placements::acknowledge(self.db, id, holder.0, holder.1)?;
            }
            let is_acknowledged =
                |donor: &DonorId| line.holders.iter().any(|(holder, _)| holder == donor);
            let doubtful = doubtful.into_iter().filter(|donor| !is_acknowledged(donor));
            again.doubtful.extend(doubtful.map(|donor| (*name, donor)));
        }
        Ok(again)
    }

    /// Writes the row of a chunk. The time since which it is unused is the latest at which a version that a reader may
    /// have open gave it up. A version that nobody could open has an earlier time (see `history::reaping`), and so does
    /// not change that.
    fn update(
        &self,
        row: &ChunkRow,
        line: &CountedChunk,
        referrer: Option<i64>,
    ) -> Result<(), Error> {
        let refs = row.refs + line.change;
        let state = if refs == 0 { row.state } else { ChunkState::Here };
        let released = line.is_released.then_some(self.now_ms as i64);
        self.db
            .prepare(
                "UPDATE chunks SET refs = ?2, len = ?3, state = ?4, referrer = ?5,
                     zero_since_ms = coalesce(max(zero_since_ms, ?6), ?6, zero_since_ms)
                 WHERE id = ?1",
            )?
            .execute(params![row.id, refs, line.len, state as i64, referrer, released])?;
        Ok(())
    }
}
