//! The copy of the log on donors: chunks that are written as any client writes files, so that placement,
//! repair and garbage collection care for them.

use super::position::{Copy, Position};
use super::put::{Put, prepared};
use super::segment::{self, Base, Lines, Part, Sealed, Sealer};
use super::{Trouble, any_taker};
use crate::kit;
use crate::service::Service;
use potluck_catalog::commit::PreparedFile;
use potluck_catalog::entries::{self, Place};
use potluck_catalog::names::{self, When};
use potluck_catalog::walk::Walk;
use potluck_catalog::{Durability, Error, schema};
use potluck_core::chunk::{ChunkKind, Digest};
use potluck_core::ids::Epoch;
use potluck_core::path::PoolPath;
use potluck_core::recipe::Entry;
use potluck_wire::identity::fingerprint;
use rusqlite::Connection;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a change waits at most, while donors take segments.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// The longest pause after failures: each attempt may leave a whole base behind that is nobody's
/// until it is reclaimed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The directory of segments in the space of the pool's own metadata.
pub const DIR: &str = "log";

/// Writes until dropped.
pub async fn run(service: Arc<Service>) {
    let (mut attempts, mut pause) = (0, EVERY);
    loop {
        tokio::time::sleep(pause).await;
        let done = match service.config().metadata_copies {
            0 => discard(&service).await.map_err(Trouble::from).map(|()| None),
            _ if any_taker(&service) => {
                let began = service.time.tick();
                write_all(&service, &mut attempts).await.map(|()| Some(began))
            }
            _ => Ok(service.log.donors.complete_at()),
        };
        match done {
            Ok(complete) => {
                pause = EVERY;
                service.log.donors.well(complete);
            }
            Err(Trouble::Catalog(Error::Closed)) => {}
            // No donor's fault, and said of the catalog itself.
            Err(Trouble::Catalog(why)) if why.is_disks() => pause = after_failure(pause),
            Err(why) => {
                pause = after_failure(pause);
                service.log.donors.failing(why.to_string());
            }
        }
    }
}

/// How long to wait after one more failure.
pub(super) fn after_failure(pause: Duration) -> Duration {
    (pause * 2).min(PATIENCE)
}

/// Where donors keep no copy, no change waits for it; one that is kept later begins anew.
async fn discard(service: &Service) -> Result<(), Error> {
    if service.catalog.read(position).await?.is_none() {
        return Ok(());
    }
    let clear = |db: &Connection| Position::clear(db, Copy::OnDonors);
    service.catalog.write(Durability::Process, clear).await
}

fn position(db: &Connection) -> Result<Option<Position>, Error> {
    Position::of(db, Copy::OnDonors)
}

/// How many changes are not on donors yet.
pub fn waiting(db: &Connection) -> Result<u64, Error> {
    let covered = position(db)?.map_or(0, |position| position.row);
    Ok((potluck_catalog::changes::last(db)? - covered).max(0) as u64)
}

/// Writes all changes so far to donors, and a new base when it is time. `attempts` counts the
/// writes of this start.
async fn write_all(service: &Arc<Service>, attempts: &mut u64) -> Result<(), Trouble> {
    loop {
        let position = service.catalog.read(position).await?;
        *attempts += 1;
        let position = match position {
            Some(position) if !position.is_worn() => position,
            worn => {
                begin_generation(service, worn, *attempts).await?;
                continue;
            }
        };
        let row = position.row;
        match service.catalog.read(move |db| segment::changes(db, row)).await? {
            Some((row, segments)) if segments.is_empty() => pass(service, position, row).await?,
            Some((row, segments)) => append(service, position, row, segments, *attempts).await?,
            None => return Ok(()),
        }
    }
}

/// Passes changes up to the row `row` that left nothing to tell of.
async fn pass(service: &Arc<Service>, before: Position, row: i64) -> Result<(), Trouble> {
    let epoch = service.epoch();
    let note = move |db: &Connection| {
        check_alone(db, Copy::OnDonors, Some(&before), epoch)?;
        Position { row, ..before }.note(db, Copy::OnDonors)
    };
    Ok(service.catalog.write(Durability::Process, note).await?)
}

/// Writes changes up to the row `row` as further segments.
async fn append(
    service: &Arc<Service>,
    before: Position,
    row: i64,
    segments: Vec<Lines>,
    attempt: u64,
) -> Result<(), Trouble> {
    let bytes = segments.iter().map(|lines| lines.text.len() as u64).sum();
    let mut write = Write::begin(service, bytes, Some(before.clone()), attempt).await?;
    for lines in &segments {
        write.segment(Part::Log, lines).await?;
    }
    write.commit(Some(before), row).await
}

/// Refuses what was written after `before` in the epoch `epoch` if the log has begun anew
/// meanwhile: a hold does so, because of another manager whose segments have the same numbers.
pub(super) fn check_alone(
    db: &Connection,
    copy: Copy,
    before: Option<&Position>,
    epoch: Epoch,
) -> Result<(), Error> {
    let alone = Position::of(db, copy)?.as_ref() == before && schema::epoch(db)? == epoch;
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
    loop {
        let read = move || base.next().map(|next| (base, next));
        let (more, next) = service.env.offload.run(read).await?;
        base = more;
        let Some((part, lines)) = next else { break };
        write.segment(part, &lines).await?;
    }
    tracing::debug!("the log on donors begins a new generation");
    write.commit(before, base.row).await
}

/// Segments on their way to donors, committed together.
struct Write<'s> {
    service: &'s Arc<Service>,
    put: Put,
    sealer: Sealer,
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
        let key = kit::load_key(&service.state.ca()).map_err(io::Error::other)?;
        // One for all segments: a hold may raise the manager's meanwhile.
        let epoch = service.epoch();
        let last = service.catalog.read(last_sequence).await?;
        let sealer = Sealer {
            key,
            pool: fingerprint(service.ca.certificate()),
            epoch,
            attempt,
            wall_ms: service.time.wall_ms(),
            position,
            first: last.max(epoch.0 << 32) + 1,
        };
        let put = Put::open(service, bytes).await?;
        Ok(Self { service, put, sealer, files: Vec::new() })
    }

    /// Seals and stores a segment.
    async fn segment(&mut self, part: Part, lines: &Lines) -> Result<(), Trouble> {
        let Sealed { sequence, name, bytes } =
            self.sealer.seal(part, lines, &*self.service.env.entropy)?;
        let chunk = self.put.chunk(ChunkKind::Log, name, &bytes).await?;
        let entry = Entry { name, digest: Digest(name.0), len: bytes.len() as u32, sealed: false };
        let path =
            PoolPath::system(&[DIR, &format!("{sequence:020}")]).map_err(io::Error::other)?;
        let (copies, wall_ms) = (self.put.copies(), self.sealer.wall_ms);
        self.files.push(prepared(path, entry.digest, &[entry], vec![chunk], copies, wall_ms));
        Ok(())
    }

    /// Makes the segments part of the pool, and notes in the same transaction that donors have the
    /// changes up to the row `row`. A new generation takes the place of the one before.
    async fn commit(self, before: Option<Position>, row: i64) -> Result<(), Trouble> {
        let (when, epoch) = (self.service.when(), self.sealer.epoch);
        let after = self.sealer.position.map(|position| Position { row, ..position });
        let note = move |db: &Connection| {
            check_alone(db, Copy::OnDonors, before.as_ref(), epoch)?;
            let Some(after) = after else { return Ok(()) };
            if before.is_none_or(|before| before.generation != after.generation) {
                give_up(db, after.generation, when)?;
            }
            after.note(db, Copy::OnDonors)
        };
        self.put.commit(self.files, note).await
    }
}

/// The number of the last segment, in whatever generation; 0 before the first. A catalog that was
/// restored does not know how far the lost one came, but its epoch is later: generations of
/// different lives are far apart.
fn last_sequence(db: &Connection) -> Result<u64, Error> {
    Ok(position(db)?.map_or(0, |position| position.sequence))
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
    while let Some(item) = walk.next_item()?
        && item.path < first
    {
        old.push(item.path);
    }
    for number in &old {
        names::remove(db, &dir.join(number).map_err(bad)?, false, when)?;
    }
    Ok(())
}
