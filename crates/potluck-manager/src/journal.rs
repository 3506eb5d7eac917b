//! The pool's own journal: every change to names, members and policies lies on donors seconds later,
//! so that the catalog can be rebuilt from donors alone.
//!
//! Changes are noted as rows in the transactions that make them (catalog's `journal`). They are
//! drained into sealed segments; a row is forgotten in the transaction that commits the segment with
//! it. When the changes outweigh the state they led to, a new generation begins with that state, and
//! takes the place of the old one in one transaction.

pub mod chain;
mod drain;
pub mod record;
pub mod replay;
pub mod segment;

use crate::backup::put::{Put, prepared};
use crate::backup::{Trouble, any_taker, kit};
use crate::catalog::commit::PreparedFile;
use crate::catalog::entries::{self, Place};
use crate::catalog::names::{self, When};
use crate::catalog::walk::Walk;
use crate::catalog::{Durability, Error, journal as rows, notes, schema};
use crate::service::Service;
use drain::Base;
use potluck_core::chunk::{ChunkKind, ChunkName, Digest};
use potluck_core::ids::Epoch;
use potluck_core::path::PoolPath;
use potluck_core::recipe::Entry;
use potluck_core::seal::{RecordKind, RecoveryKey};
use potluck_wire::identity::fingerprint;
use rusqlite::Connection;
use segment::{Extent, Header, Lines, Part, Position};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a change waits at most, while donors take segments.
const EVERY: Duration = Duration::from_secs(2);
/// The longest pause after failures: each attempt may leave a whole base behind that is nobody's
/// until it is reclaimed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rows drained at once.
const ROWS: usize = 1000;
/// The directory of segments.
pub const DIR: &str = "journal";

/// Keeps the journal until dropped.
pub async fn run(service: Arc<Service>) {
    let (mut attempts, mut pause) = (0, EVERY);
    loop {
        tokio::time::sleep(pause).await;
        let done = match service.config().metadata_copies {
            0 => discard(&service).await.map_err(Trouble::from),
            _ => drain_all(&service, &mut attempts).await,
        };
        match done {
            Ok(()) => {
                pause = EVERY;
                service.backups.journal(None);
            }
            Err(Trouble::Catalog(Error::Closed)) => {}
            // No donor's fault, and said of the catalog itself.
            Err(Trouble::Catalog(why)) if why.is_disks() => pause = after_failure(pause),
            Err(why) => {
                pause = after_failure(pause);
                service.backups.journal(Some(why.to_string()));
            }
        }
    }
}

/// How long to wait after one more failure.
fn after_failure(pause: Duration) -> Duration {
    (pause * 2).min(PATIENCE)
}

/// Where no journal is kept, nothing waits for it; one that is kept later begins anew.
async fn discard(service: &Service) -> Result<(), Error> {
    let waiting = service.catalog.read(|db| Ok(!rows::rows(db, 1)?.is_empty())).await?;
    if !waiting {
        return Ok(());
    }
    let discard = |db: &Connection| {
        notes::clear(db, notes::JOURNAL)?;
        rows::forget(db, rows::last(db)?)
    };
    service.catalog.write(Durability::Process, discard).await
}

/// Writes all changes so far to donors, and a new base when it is time. `attempts` counts the
/// writes of this start.
async fn drain_all(service: &Arc<Service>, attempts: &mut u64) -> Result<(), Trouble> {
    if !any_taker(service) {
        return Ok(());
    }
    loop {
        let position = service.catalog.read(Position::of).await?;
        *attempts += 1;
        let position = match position {
            Some(position) if !position.is_worn() => position,
            worn => {
                begin_generation(service, worn, *attempts).await?;
                continue;
            }
        };
        let drained = service.catalog.read(|db| drain::changes(db, ROWS)).await?;
        match drained {
            Some(changes) => append(service, position, changes, *attempts).await?,
            None => return Ok(()),
        }
    }
}

/// Writes changes as further segments.
async fn append(
    service: &Arc<Service>,
    mut position: Position,
    changes: drain::Changes,
    attempt: u64,
) -> Result<(), Trouble> {
    let bytes = changes.segments.iter().map(|lines| lines.text.len() as u64).sum();
    let before = position.clone();
    position.log.add(&changes.segments);
    let mut write = Write::begin(service, bytes, Some(position), attempt).await?;
    for lines in &changes.segments {
        write.segment(Part::Log, lines).await?;
    }
    let (last, epoch) = (changes.last, write.epoch);
    write
        .commit(move |db, position| {
            check_alone(db, Some(&before), epoch)?;
            if let Some(position) = position {
                position.note(db)?;
            }
            rows::forget(db, last)
        })
        .await
}

/// Refuses what was written after `before` in the epoch `epoch` if the journal has begun anew
/// meanwhile: a hold does so, because of another manager whose segments have the same numbers.
fn check_alone(db: &Connection, before: Option<&Position>, epoch: Epoch) -> Result<(), Error> {
    let alone = Position::of(db)?.as_ref() == before && schema::epoch(db)? == epoch;
    if alone { Ok(()) } else { Err(Error::NoSession) }
}

/// Writes the whole state as the base of a new generation, which replaces the one `before`.
async fn begin_generation(
    service: &Arc<Service>,
    before: Option<Position>,
    attempt: u64,
) -> Result<(), Trouble> {
    let path = service.state.catalog();
    let size = std::fs::metadata(&path)?.len();
    let mut write = Write::begin(service, size, None, attempt).await?;
    let mut base = service.env.offload.run(move || Base::begin(&path)).await?;
    let (mut extent, last) = (Extent::default(), base.last);
    let rest = loop {
        let (more, segments) = service.env.offload.run(move || base.next()).await?;
        let Some(more) = more else { break segments };
        base = more;
        extent.add(&segments);
        for lines in &segments {
            write.segment(Part::Base, lines).await?;
        }
    };
    extent.add(&rest);
    // An empty pool has an empty base, which says so.
    let (end, rest) = match rest.split_last() {
        Some((end, rest)) => (end.clone(), rest),
        None => (Lines::default(), &[][..]),
    };
    for lines in rest {
        write.segment(Part::Base, lines).await?;
    }
    write.segment(Part::BaseEnd, &end).await?;
    let (when, epoch) = (service.when(), write.epoch);
    tracing::debug!(lines = extent.lines, "the journal begins a new generation");
    write
        .commit(move |db, position| {
            check_alone(db, before.as_ref(), epoch)?;
            if let Some(position) = position {
                give_up(db, position.generation, when)?;
                Position { base: extent, ..position }.note(db)?;
            }
            rows::forget(db, last)
        })
        .await
}

/// Segments on their way to donors, committed together.
struct Write<'s> {
    service: &'s Arc<Service>,
    put: Put,
    key: RecoveryKey,
    pool: Digest,
    /// After the last segment that is stored; `None` before a generation's first.
    position: Option<Position>,
    next: u64,
    /// One for all segments: a hold may raise the manager's meanwhile.
    epoch: Epoch,
    attempt: u64,
    files: Vec<PreparedFile>,
}

impl<'s> Write<'s> {
    /// Begins to write about `bytes` after `position`, or a new generation.
    async fn begin(
        service: &'s Arc<Service>,
        bytes: u64,
        position: Option<Position>,
        attempt: u64,
    ) -> Result<Self, Trouble> {
        let key = kit::load_key(&service.state).map_err(io::Error::other)?;
        let epoch = service.epoch();
        let next = match &position {
            Some(position) => position.sequence + 1,
            None => service.catalog.read(last_sequence).await?.max(epoch.0 << 32) + 1,
        };
        let put = Put::open(service, bytes).await?;
        let pool = fingerprint(service.ca.certificate());
        Ok(Self { service, put, key, pool, position, next, epoch, attempt, files: Vec::new() })
    }

    /// Seals and stores a segment.
    async fn segment(&mut self, part: Part, lines: &Lines) -> Result<(), Trouble> {
        let (service, sequence) = (self.service, self.next);
        let (generation, before) = match &self.position {
            Some(position) => (position.generation, Some(position.last)),
            None => (sequence, None),
        };
        let (epoch, attempt, wall_ms) = (self.epoch, self.attempt, service.time.wall_ms());
        let header = Header { sequence, generation, part, before, epoch, attempt, wall_ms };
        let text = segment::text(&header, lines)?;
        let entropy = &*service.env.entropy;
        let record = self.key.seal_record(RecordKind::Segment, &self.pool, sequence, text, entropy);
        let name = ChunkName::of(&record);
        let chunk = self.put.chunk(ChunkKind::Journal, name, &record).await?;
        let entry = Entry { name, digest: Digest(name.0), len: record.len() as u32, sealed: false };
        let path =
            PoolPath::system(&[DIR, &format!("{sequence:020}")]).map_err(io::Error::other)?;
        let copies = self.put.copies();
        self.files.push(prepared(path, entry.digest, &[entry], vec![chunk], copies, wall_ms));
        self.next += 1;
        self.position = Some(match self.position.take() {
            Some(position) => Position { sequence, last: name, epoch, attempt, ..position },
            None => Position {
                generation,
                sequence,
                last: name,
                epoch,
                attempt,
                lost: false,
                base: Extent::default(),
                log: Extent::default(),
            },
        });
        Ok(())
    }

    /// Makes the segments part of the pool, and does in the same transaction what `also` does.
    async fn commit(
        self,
        also: impl FnOnce(&Connection, Option<Position>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Trouble> {
        let position = self.position;
        self.put.commit(self.files, move |db| also(db, position)).await
    }
}

/// The number of the last segment, in whatever generation; 0 before the first. A catalog that was
/// restored does not know how far the lost one came, but its epoch is later: generations of
/// different lives are far apart.
fn last_sequence(db: &Connection) -> Result<u64, Error> {
    Ok(Position::of(db)?.map_or(0, |position| position.sequence))
}

/// Removes the segments of earlier generations.
fn give_up(db: &Connection, generation: u64, when: When) -> Result<(), Error> {
    let bad = |why: potluck_core::path::BadPath| Error::Bug(why.to_string());
    let dir = PoolPath::system(&[DIR]).map_err(bad)?;
    let Some(Place::Dir(root)) = entries::resolve(db, &dir)?.map(|found| found.place) else {
        return Ok(());
    };
    let first = format!("{generation:020}");
    let mut walk = Walk::new(db, root, false, None)?;
    let mut old = Vec::new();
    while let Some(item) = walk.next()?
        && item.path < first
    {
        old.push(item.path);
    }
    for number in &old {
        names::remove(db, &dir.join(number).map_err(bad)?, false, when)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
