//! Backups to files: what the manager writes by itself, and what a person asks for.
//!
//! The manager's own lie in one directory. The newest is added to as the catalog changes; the next begins
//! when changes outweigh its base, and the last few are kept.

use super::donors::check_alone;
use super::file::{append, write_base};
use super::position::{Copy, Place, Position};
use super::segment::{self, Base, Changes, Sealer};
use crate::ca::Ca;
use crate::error::ManagerError;
use crate::kit;
use crate::service::Service;
use crate::state_dir::{CA, CATALOG, holding};
use potluck_catalog::Durability;
use potluck_core::chunk::Digest;
use potluck_core::entropy::SystemEntropy;
use potluck_wire::identity::fingerprint;
use rusqlite::Connection;
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
            Err(why) => service.log.file.failing(why.to_string()),
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
    loop {
        let position = service.catalog.read(|db| Position::of(db, Copy::InFile)).await?;
        let row = position.as_ref().map_or(0, |position| position.row);
        let changes = service.catalog.read(move |db| segment::changes(db, row)).await?;
        let (at, shared, before) = (dir.clone(), Arc::clone(service), position.clone());
        let write = move || shared.write(&at, before, changes);
        let Some(after) = service.env.offload.run(write).await? else { return Ok(()) };
        let epoch = service.epoch();
        let note = move |db: &Connection| {
            check_alone(db, Copy::InFile, position.as_ref(), epoch)?;
            after.note(db, Copy::InFile)
        };
        service.catalog.write(Durability::Process, note).await?;
    }
}

impl Service {
    /// Adds `changes` to the newest file in `dir`, or begins a new one where that cannot be gone on
    /// with; nothing where neither is needed. Gives the position that is to be noted.
    fn write(
        &self,
        dir: &Path,
        position: Option<Position>,
        changes: Option<Changes>,
    ) -> Result<Option<Position>, ManagerError> {
        let pool = fingerprint(self.ca.certificate());
        let highest = begin(dir, &pool)?;
        let key = kit::load_key(&self.state.ca())?;
        let (epoch, wall_ms) = (self.epoch(), self.time.wall_ms());
        let sealer =
            |position| Sealer { key, pool, epoch, attempt: 0, wall_ms, position, first: 1 };
        let entropy = &*self.env.entropy;
        let Some((position, place)) = position.and_then(|at| at.goes_on(dir, highest)) else {
            let number = highest + 1;
            let base = Base::begin(&self.state.catalog())?;
            let path = dir.join(name(number));
            let after = write_base(base, &path, &self.pool_name, sealer(None), entropy)?;
            prune(dir).map_err(|source| ManagerError::Io { path: dir.into(), source })?;
            tracing::debug!(path = %path.display(), "a new backup of the catalog");
            let file = after.file.map(|place| Place { number, ..place });
            return Ok(Some(Position { file, ..after }));
        };
        let Some((row, segments)) = changes else { return Ok(None) };
        let path = dir.join(name(place.number));
        let mut sealer = sealer(Some(position.clone()));
        let bytes = append(&path, place.bytes, &mut sealer, &segments, entropy)
            .map_err(|source| ManagerError::Io { path, source })?;
        let after = sealer.position.unwrap_or(position);
        Ok(Some(Position { row, file: Some(Place { bytes, ..place }), ..after }))
    }
}

impl Position {
    /// Where the file is gone on with: it is the newest in `dir`, is as it was left, and not worn.
    /// Anything else may be another manager's, on a copy of the catalog, and is not touched.
    fn goes_on(self, dir: &Path, highest: u64) -> Option<(Self, Place)> {
        let place = self.file.clone()?;
        let len = fs::metadata(dir.join(name(place.number))).ok()?.len();
        let is_ours = place.number == highest && len == place.bytes;
        (is_ours && !self.is_worn()).then_some((self, place))
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

/// Removes all but the last few backups.
fn prune(dir: &Path) -> io::Result<()> {
    let mut taken: Vec<u64> = names(dir)?.iter().filter_map(|name| number(name)).collect();
    taken.sort_unstable();
    let old = taken.len().saturating_sub(KEPT);
    taken[..old].iter().try_for_each(|number| fs::remove_file(dir.join(name(*number))))
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
