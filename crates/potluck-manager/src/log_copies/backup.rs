//! The backups to files that the manager writes by itself. ([`potluck_recovery::backups`] also writes those that a
//! person asks for.)
//!
//! They lie in one directory. The newest is added to as the catalog changes. The next begins when a new generation of
//! the log is due, or when the newest is not as it was left; the last few are kept.

use super::copies::LogCopies;
use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::settings::Settings;
use potluck_catalog::{Advance, Catalog, Error, LogCopy, LogPlace, Position};
use potluck_core::chunk::Digest;
use potluck_core::ids::Epoch;
use potluck_recovery::StateError;
use potluck_recovery::backups::{begin, name, prune};
use potluck_recovery::log::backup_file::{append, write_base};
use potluck_recovery::log::block::{Base, CutChanges, Sealer};
use potluck_recovery::log::copying::{Sink, catch_up};
use potluck_recovery::pool_authority::PoolAuthority;
use potluck_recovery::state_dir::StateDir;
use potluck_wire::env::Env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The divisor for the share of all time that writing takes at most: one part in so many.
const SHARE: u32 = 20;

handles! {
    /// The handles for keeping the log in a file.
    pub struct FileLog {
        settings: Arc<Settings>,
        env: Env,
        time: PoolTime,
        term: Arc<OwnTerm>,
        catalog: Catalog,
        authority: Arc<PoolAuthority>,
        gc_freeze: Arc<GcFreeze>,
        log: Arc<LogCopies>,
        state: Arc<StateDir>,
    }
}

impl FileLog {
    /// Writes changes to the file until it is dropped.
    pub async fn run(self) {
        let mut took = Duration::ZERO;
        loop {
            tokio::select! {
                () = self.settings.pause(&self.time, |config| next_pause(config.backup_every, took)) => {}
                () = self.log.file.hurried() => {}
            }
            let began = self.time.tick();
            match self.round().await {
                Ok(()) => self.log.file.well(Some(began)),
                Err(StateError::Closing) => {}
                Err(why) => {
                    self.log.file.failing(why.to_string());
                    // This forgets changes that no copy may wait for any longer. If the catalog cannot be
                    // written, it says so itself.
                    let _ = self.catalog.note_log(None).await;
                }
            }
            took = self.time.tick().saturating_sub(began);
        }
    }

    /// Writes what changed since the last round.
    async fn round(&self) -> Result<(), StateError> {
        let dir = self.settings.get().backup_dir.clone().unwrap_or_else(|| self.state.backups());
        let (epoch, offload) = (self.term.epoch(), self.env.offload);
        let mut files = Files { log: self.clone(), dir, epoch };
        catch_up(&mut files, &self.catalog, epoch, self.time.wall_ms(), offload).await
    }
}

fn next_pause(every: Duration, took: Duration) -> Duration {
    every.max(took.saturating_mul(SHARE))
}

/// The backups in a directory.
#[derive(Clone)]
struct Files {
    log: FileLog,
    dir: PathBuf,
    epoch: Epoch,
}

impl Sink for Files {
    const COPY: LogCopy = LogCopy::InFile;
    type Trouble = StateError;

    /// Returns whether the file at `position` is sealed under the present key, the newest in the directory and as long
    /// as it was left. Any other file may be another manager's, on a copy of the catalog, and is not added to.
    async fn goes_on(&self, position: &Position) -> Result<bool, StateError> {
        let Some(place) = position.file.clone() else { return Ok(false) };
        let (files, key) = (self.clone(), position.key);
        let look = move || {
            if files.log.authority.recovery_key()?.name() != key {
                return Ok(false);
            }
            let highest = files.ready()?;
            let path = files.dir.join(name(place.number));
            let is_as_left = || fs::metadata(path).is_ok_and(|file| file.len() == place.bytes);
            Ok(place.number == highest && is_as_left())
        };
        self.log.env.offload.run(look).await
    }

    async fn begin(&mut self, before: Option<Position>) -> Result<(), StateError> {
        let files = self.clone();
        let after = self.log.env.offload.run(move || files.write_base()).await?;
        self.note(before, after).await
    }

    async fn add(&mut self, before: Position, changes: CutChanges) -> Result<(), StateError> {
        let (files, position) = (self.clone(), before.clone());
        let add = move || files.append(position, &changes);
        let after = self.log.env.offload.run(add).await?;
        self.note(Some(before), after).await
    }
}

impl Files {
    async fn note(&self, before: Option<Position>, after: Position) -> Result<(), StateError> {
        let advance = Advance { copy: LogCopy::InFile, before, after, epoch: self.epoch };
        Ok(self.log.catalog.note_log(Some(advance)).await?)
    }

    fn pool(&self) -> Digest {
        self.log.authority.pool()
    }

    /// Makes the directory ready, and returns the highest number of a backup there, or 0.
    fn ready(&self) -> Result<u64, StateError> {
        begin(&self.dir, &self.pool())
    }

    fn sealer(&self, position: Option<Position>) -> Result<Sealer, StateError> {
        let key = self.log.authority.recovery_key()?;
        let (epoch, wall_ms) = (self.epoch, self.log.time.wall_ms());
        Ok(Sealer::of_file(key, self.pool(), epoch, wall_ms, position))
    }

    /// Begins a new file, and removes the oldest ones. That an old file cannot be removed is no error: without the note
    /// that the new file is there, each round would write another.
    fn write_base(&self) -> Result<Position, StateError> {
        let number = self.ready()? + 1;
        let log = &self.log;
        let base = Base::begin(&log.state.catalog())?;
        let path = self.dir.join(name(number));
        let (sealer, entropy) = (self.sealer(None)?, &*log.env.entropy);
        let after = write_base(base, &path, &log.term.pool_name, sealer, entropy)?;
        tracing::debug!(path = %path.display(), "a new backup of the catalog");
        // While nothing is reclaimed, an older file may know more than this catalog, and stays.
        if log.gc_freeze.why().is_none()
            && let Err(why) = prune(&self.dir)
        {
            tracing::warn!(dir = %self.dir.display(), %why, "an old backup cannot be removed");
        }
        let file = after.file.map(|place| LogPlace { number, ..place });
        Ok(Position { file, ..after })
    }

    fn append(&self, position: Position, changes: &CutChanges) -> Result<Position, StateError> {
        let Some(place) = position.file.clone() else {
            return Err(Error::Bug("a backup that is in no file".into()).into());
        };
        let path = self.dir.join(name(place.number));
        let mut sealer = self.sealer(Some(position.clone()))?;
        sealer.files = changes.files;
        let bytes =
            append(&path, place.bytes, &mut sealer, &changes.blocks, &*self.log.env.entropy)
                .map_err(|source| StateError::Io { path, source })?;
        let after = sealer.position.unwrap_or(position);
        let file = Some(LogPlace { bytes, ..place });
        Ok(Position { change: changes.last, file, ..after })
    }
}

#[cfg(test)]
mod tests;
