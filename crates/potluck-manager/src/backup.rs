//! The catalog's own safety: checkpoints to a file and into the pool.
//!
//! A checkpoint is a whole copy of one moment. It is taken each minute in which something changed,
//! and more rarely where taking one costs more than a twentieth of the time.

pub mod adapting;
pub mod authority;
pub mod checksum;
pub mod file;
pub mod kit;
pub mod pool;
pub mod put;

use crate::catalog::{Durability, Error, journal, notes, schema};
use crate::error::ManagerError;
use crate::journal::segment::Position;
use crate::service::Service;
use potluck_core::clock::Tick;
use potluck_core::ids::Epoch;
use potluck_core::placement::Refusal;
use potluck_wire::identity::fingerprint;
use potluck_wire::peer_connection::PeerError;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Of all time, checkpoints take at most one part in so many.
const SHARE: u32 = 20;

/// When the catalog was last safe elsewhere, and why it is not.
#[derive(Debug, Default)]
pub struct Backups(Mutex<State>);

#[derive(Debug, Clone, Default)]
struct State {
    file: Option<Tick>,
    pool: Option<Tick>,
    failed: Option<String>,
    journal_failed: Option<String>,
    /// What donors had of checkpoints is lost: the next is taken though nothing changed.
    anew: bool,
}

impl Backups {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().expect("no holder panics"));
    }

    fn state(&self) -> State {
        self.0.lock().expect("no holder panics").clone()
    }

    /// Seconds since the last checkpoint to a file.
    pub fn file_seconds(&self, now: Tick) -> Option<u64> {
        Some(now.saturating_sub(self.state().file?).as_secs())
    }

    /// Seconds since the last checkpoint into the pool.
    pub fn pool_seconds(&self, now: Tick) -> Option<u64> {
        Some(now.saturating_sub(self.state().pool?).as_secs())
    }

    /// Why the last checkpoint failed, if it did.
    pub fn failed(&self) -> Option<String> {
        self.state().failed
    }

    /// Has the next checkpoint taken also if nothing changed since the last.
    pub fn begin_anew(&self) {
        self.change(|state| state.anew = true);
    }

    fn take_anew(&self) -> bool {
        std::mem::take(&mut self.0.lock().expect("no holder panics").anew)
    }

    /// Notes how the last round of the journal ended.
    pub fn journal(&self, failed: Option<String>) {
        self.change(|state| state.journal_failed = failed);
    }

    /// Why the journal could not be written, if it could not.
    pub fn journal_failed(&self) -> Option<String> {
        self.state().journal_failed
    }
}

/// The number of what people copy by hand, which is not among those that are counted.
pub const BY_HAND: u64 = 0;

/// What a checkpoint says of itself; noted in the catalog before the copy is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Counts the checkpoints of this catalog.
    pub sequence: u64,
    /// The manager's epoch.
    pub epoch: Epoch,
    /// Wall time, for people.
    pub wall_ms: i64,
}

impl Taken {
    /// What the catalog, which is a checkpoint's copy, says of itself.
    pub fn of(db: &rusqlite::Connection) -> Result<Option<Self>, Error> {
        let Some(text) = notes::get(db, notes::CHECKPOINT)? else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|why| Error::Damaged(format!("the note of a checkpoint: {why}")))
    }

    /// Has the catalog say this of itself.
    pub fn note(&self, db: &rusqlite::Connection) -> Result<(), Error> {
        let text = serde_json::to_string(self).map_err(|why| Error::Bug(why.to_string()))?;
        notes::set(db, notes::CHECKPOINT, &text)
    }

    /// Its number, unless it was made by hand.
    pub fn number(&self) -> Option<u64> {
        Some(self.sequence).filter(|number| *number != BY_HAND)
    }
}

/// Takes checkpoints until dropped.
pub async fn run(service: Arc<Service>) {
    let mut took = Duration::ZERO;
    let mut covered = Covered::default();
    loop {
        service.pause(|config| next_pause(config.backup_every, took)).await;
        let began = service.time.tick();
        match round(&service, &mut covered).await {
            Ok(()) => service.backups.change(|state| state.failed = None),
            Err(ManagerError::Closing) => {}
            Err(why) => {
                service.backups.change(|state| state.failed = Some(why.to_string()));
            }
        }
        took = service.time.tick().saturating_sub(began);
    }
}

fn next_pause(every: Duration, took: Duration) -> Duration {
    every.max(took.saturating_mul(SHARE))
}

/// The last change that the last checkpoints have.
#[derive(Debug, Default)]
struct Covered {
    file: Option<i64>,
    pool: Option<i64>,
}

/// Takes a checkpoint if something changed since the last.
async fn round(service: &Arc<Service>, covered: &mut Covered) -> Result<(), ManagerError> {
    if service.backups.take_anew() {
        covered.pool = None;
    }
    let journalled = |db: &_| Ok::<_, Error>(Position::of(db)?.is_some_and(|at| !at.lost));
    let look = move |db: &_| Ok((journal::last(db)?, journalled(db)?));
    let (last, journalled) = service.catalog.read(look).await?;
    // One that does not know where it is in the journal could not be gone on from: the journal's
    // first generation comes before it, seconds after the first donor.
    let wants_pool = service.config().metadata_copies > 0 && any_taker(service) && journalled;
    if covered.file == Some(last) && (covered.pool == Some(last) || !wants_pool) {
        return Ok(());
    }
    let (epoch, wall_ms) = (service.epoch(), service.time.wall_ms());
    let dir = service.config().backup_dir.clone().unwrap_or_else(|| service.state.backups());
    let (at, pool) = (dir.clone(), fingerprint(service.ca.certificate()));
    let highest = service.env.offload.run(move || file::begin(&at, &pool)).await?;
    let begin = move |db: &_| {
        let taken = Taken { sequence: schema::next_checkpoint(db, highest)?, epoch, wall_ms };
        taken.note(db)?;
        Ok(taken)
    };
    let taken = service.catalog.write(Durability::Process, begin).await?;
    let catalog = service.state.catalog();
    let take = move || file::take(&catalog, &dir, taken.sequence);
    let path = service.env.offload.run(take).await?;
    tracing::debug!(sequence = taken.sequence, path = %path.display(), "checkpoint");
    service.backups.change(|state| state.file = Some(service.time.tick()));
    covered.file = Some(last);
    if wants_pool {
        let key = kit::load_key(&service.state)?;
        pool::store(service, &key, taken, &path).await.map_err(|why| match why {
            Trouble::Catalog(Error::Closed) => ManagerError::Closing,
            other => ManagerError::NotInPool(other.to_string()),
        })?;
        service.backups.change(|state| state.pool = Some(service.time.tick()));
        covered.pool = Some(last);
    }
    Ok(())
}

/// Whether a donor is there that takes anything.
pub fn any_taker(service: &Service) -> bool {
    !service.pool().takers(service.time.tick()).is_empty()
}

/// Why the pool did not take a part of its own metadata.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Catalog(#[from] Error),
    #[error("no room for it: {0}")]
    NoPlace(#[from] Refusal),
    #[error("the write session is over")]
    Ended,
    #[error("no donor took it")]
    NoDonor,
    #[error(transparent)]
    Donor(#[from] PeerError),
    #[error("the checkpoint's file: {0}")]
    File(#[from] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_take_a_twentieth_of_the_time_at_most() {
        let minute = Duration::from_secs(60);
        assert_eq!(next_pause(minute, Duration::from_secs(1)), minute);
        assert_eq!(next_pause(minute, Duration::from_secs(6)), Duration::from_secs(120));
    }
}
