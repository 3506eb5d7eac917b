//! Backups to files: what the manager writes by itself, and what a person asks for.
//!
//! The manager's own lie in one directory. The newest is added to as the catalog changes; the next begins
//! when changes outweigh its base, and the last few are kept.

use super::block::{Base, Lines, Sealer};
use super::copying::{Sink, catch_up};
use super::file::{append, write_base};
use crate::ca::Ca;
use crate::error::ManagerError;
use crate::kit;
use crate::service::Service;
use crate::state_dir::{CA, CATALOG, holding};
use potluck_catalog::Error;
use potluck_catalog::log_position::{Advance, Copy, Place, Position};
use potluck_core::chunk::Digest;
use potluck_core::entropy::SystemEntropy;
use potluck_core::ids::Epoch;
use potluck_wire::identity::fingerprint;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Of all time, writing takes at most one part in so many.
const SHARE: u32 = 20;
/// Backups kept in a directory.
const KEPT: usize = 3;
/// The file that says whose backups a directory has: two pools would remove each other's. Hidden, so
/// that who sorts the names finds the newest backup last.
const OWNER: &str = ".pool";

/// Writes until dropped.
pub async fn run(service: Arc<Service>) {
    let mut took = Duration::ZERO;
    loop {
        service.pause(|config| next_pause(config.backup_every, took)).await;
        let began = service.time.tick();
        match round(&service).await {
            Ok(()) => service.log.file.well(Some(began)),
            Err(ManagerError::Closing) => {}
            Err(why) => {
                service.log.file.failing(why.to_string());
                // The copy on donors may not be written either. A catalog that cannot be says so itself.
                let _ = service.catalog.limit_log().await;
            }
        }
        took = service.time.tick().saturating_sub(began);
    }
}

fn next_pause(every: Duration, took: Duration) -> Duration {
    every.max(took.saturating_mul(SHARE))
}

/// Writes what changed since the last round.
async fn round(service: &Arc<Service>) -> Result<(), ManagerError> {
    let dir = service.config().backup_dir.clone().unwrap_or_else(|| service.state.backups());
    let (epoch, offload) = (service.epoch(), service.env.offload);
    let mut files = Files { service: Arc::clone(service), dir, epoch };
    catch_up(&mut files, &service.catalog, epoch, offload).await
}

/// The backups in a directory.
#[derive(Clone)]
struct Files {
    service: Arc<Service>,
    dir: PathBuf,
    epoch: Epoch,
}

impl Sink for Files {
    const COPY: Copy = Copy::InFile;
    type Trouble = ManagerError;

    /// The file is the newest in the directory, and as it was left. Any other may be another manager's, on
    /// a copy of the catalog, and is not touched.
    async fn goes_on(&self, position: &Position) -> Result<bool, ManagerError> {
        let Some(place) = position.file.clone() else { return Ok(false) };
        let files = self.clone();
        let look = move || {
            let highest = files.ready()?;
            let path = files.dir.join(name(place.number));
            let is_as_left = || fs::metadata(path).is_ok_and(|file| file.len() == place.bytes);
            Ok(place.number == highest && is_as_left())
        };
        self.service.env.offload.run(look).await
    }

    async fn begin(&mut self, before: Option<Position>) -> Result<(), ManagerError> {
        let files = self.clone();
        let after = self.service.env.offload.run(move || files.write_base()).await?;
        self.note(before, after).await
    }

    async fn add(
        &mut self,
        before: Position,
        row: i64,
        blocks: Vec<Lines>,
    ) -> Result<(), ManagerError> {
        let (files, position) = (self.clone(), before.clone());
        let add = move || files.append(position, row, &blocks);
        let after = self.service.env.offload.run(add).await?;
        self.note(Some(before), after).await
    }
}

impl Files {
    async fn note(&self, before: Option<Position>, after: Position) -> Result<(), ManagerError> {
        let advance = Advance { copy: Copy::InFile, before, after, epoch: self.epoch };
        Ok(self.service.catalog.note_log(advance).await?)
    }

    fn pool(&self) -> Digest {
        fingerprint(self.service.ca.certificate())
    }

    /// Makes the directory ready; gives the highest number there.
    fn ready(&self) -> Result<u64, ManagerError> {
        begin(&self.dir, &self.pool())
    }

    fn sealer(&self, position: Option<Position>) -> Result<Sealer, ManagerError> {
        let key = kit::load_key(&self.service.state.ca())?;
        let (epoch, wall_ms) = (self.epoch, self.service.time.wall_ms());
        Ok(Sealer { key, pool: self.pool(), epoch, attempt: 0, wall_ms, position, first: 1 })
    }

    /// Begins a new file, and removes the oldest. One that cannot be removed, as an owner may have it,
    /// stays: without the note that the new one is there, each round would write another.
    fn write_base(&self) -> Result<Position, ManagerError> {
        let number = self.ready()? + 1;
        let service = &self.service;
        let base = Base::begin(&service.state.catalog())?;
        let path = self.dir.join(name(number));
        let (sealer, entropy) = (self.sealer(None)?, &*service.env.entropy);
        let after = write_base(base, &path, &service.pool_name, sealer, entropy)?;
        tracing::debug!(path = %path.display(), "a new backup of the catalog");
        // While nothing is reclaimed, an older file may know more than this catalog.
        if service.gc_frozen().is_none()
            && let Err(why) = prune(&self.dir)
        {
            tracing::warn!(dir = %self.dir.display(), %why, "an old backup cannot be removed");
        }
        let file = after.file.map(|place| Place { number, ..place });
        Ok(Position { file, ..after })
    }

    fn append(
        &self,
        position: Position,
        row: i64,
        blocks: &[Lines],
    ) -> Result<Position, ManagerError> {
        let Some(place) = position.file.clone() else {
            return Err(Error::Bug("a backup that is in no file".into()).into());
        };
        let path = self.dir.join(name(place.number));
        let mut sealer = self.sealer(Some(position.clone()))?;
        let bytes = append(&path, place.bytes, &mut sealer, blocks, &*self.service.env.entropy)
            .map_err(|source| ManagerError::Io { path, source })?;
        let after = sealer.position.unwrap_or(position);
        Ok(Position { row, file: Some(Place { bytes, ..place }), ..after })
    }
}

/// The name of the backup with a number.
fn name(number: u64) -> String {
    format!("catalog-{number:012}.log")
}

/// The number of the backup with a name.
fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("catalog-")?.strip_suffix(".log")?;
    // No backup's number is longer; a counter beyond would end.
    (digits.len() <= 15).then(|| digits.parse().ok()).flatten()
}

/// Whether a name is what a backup of the manager's own had on its way. A backup that a person makes in
/// the same directory has another.
fn is_left_over(name: &str) -> bool {
    name.split_once(".part").is_some_and(|(whose, _)| number(whose).is_some())
}

/// Makes `dir` ready for backups of the pool whose authority is `pool`; gives the highest number there,
/// 0 if there is none. The next must be higher: what a restored catalog writes must neither replace nor
/// look older than what was written before.
///
/// Removes what was left by interruptions: it may be what fills the disk.
fn begin(dir: &Path, pool: &Digest) -> Result<u64, ManagerError> {
    let io = |source| ManagerError::Io { path: dir.into(), source };
    fs::create_dir_all(dir).map_err(io)?;
    let owner = dir.join(OWNER);
    let claimed = is_claimed(&owner, pool).map_err(io)?;
    let mut highest = 0;
    for name in names(dir).map_err(io)? {
        if is_left_over(&name) {
            fs::remove_file(dir.join(&name)).map_err(io)?;
        }
        highest = highest.max(number(&name).unwrap_or(0));
    }
    if !claimed {
        fs::write(owner, pool.to_string()).map_err(io)?;
    }
    Ok(highest)
}

/// Whether the directory is this pool's already. Errors: it is another's.
fn is_claimed(owner: &Path, pool: &Digest) -> io::Result<bool> {
    match fs::read_to_string(owner) {
        Ok(whose) if whose.trim() == pool.to_string() => Ok(true),
        // Nothing was written, as when the disk was full.
        Ok(whose) if whose.trim().is_empty() => Ok(false),
        Ok(_) => Err(io::Error::other("it has backups of another pool: choose another directory")),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(why),
    }
}

/// Removes all but the last few backups, as far as that goes.
fn prune(dir: &Path) -> io::Result<()> {
    let mut taken: Vec<u64> = names(dir)?.iter().filter_map(|name| number(name)).collect();
    taken.sort_unstable();
    let old = &taken[..taken.len().saturating_sub(KEPT)];
    let mut removed = Ok(());
    for number in old {
        removed = fs::remove_file(dir.join(name(*number))).and(removed);
    }
    removed
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    fs::read_dir(dir)?.map(name).collect()
}

/// Writes the catalog of the manager's state directory `state` to the file `to`, whether a manager runs
/// there or not. The file says that it was made at the wall time `wall_ms`.
///
/// Errors: `to` lies in a manager's state directory, where it would take a file's place that a manager
/// goes on writing under no name, or would be lost with what it is a copy of.
pub fn backup(state: &Path, to: &Path, wall_ms: i64) -> Result<(), ManagerError> {
    let catalog = state.join(CATALOG);
    if !catalog.exists() {
        return Err(ManagerError::NotInitialised(state.into()));
    }
    let io = |source| ManagerError::Io { path: to.into(), source };
    if let Some(state) = holding(to).map_err(io)? {
        return Err(ManagerError::InState { file: to.into(), state });
    }
    if is_part_of(&catalog, to) {
        return Err(ManagerError::InState { file: to.into(), state: state.into() });
    }
    let ca = state.join(CA);
    let (key, pool) = (kit::load_key(&ca)?, fingerprint(Ca::load(&ca)?.certificate()));
    let base = Base::begin(&catalog)?;
    let (name, epoch) = (base.pool_name()?, base.epoch);
    let sealer = Sealer { key, pool, epoch, attempt: 0, wall_ms, position: None, first: 1 };
    write_base(base, to, &name, sealer, &SystemEntropy).map(drop)
}

/// Whether `file` is the catalog or what SQLite puts beside it, wherever a link has put them.
fn is_part_of(catalog: &Path, file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else { return false };
    let mut parts = ["", "-journal", "-wal", "-shm"].iter().filter_map(|suffix| {
        let mut part = catalog.as_os_str().to_owned();
        part.push(suffix);
        PathBuf::from(part).canonicalize().ok()
    });
    parts.any(|part| part == file)
}

#[cfg(test)]
mod tests;
