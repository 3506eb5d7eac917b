//! A checkpoint of the catalog as a file: a whole copy of one moment, taken while writes go on.

use crate::catalog::{Error, schema};
use crate::error::ManagerError;
use crate::state_dir::CATALOG;
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Checkpoints kept in a directory.
const KEPT: usize = 3;

/// The name of the checkpoint with a number.
fn name(sequence: u64) -> String {
    format!("catalog-{sequence:012}.db")
}

/// Copies the catalog at `catalog` to `dir` as the checkpoint `sequence`, and removes all but the
/// last few there; gives the new file.
///
/// Older ones go only when the new one has been read back and is durable.
pub fn take(catalog: &Path, dir: &Path, sequence: u64) -> Result<PathBuf, ManagerError> {
    fs::create_dir_all(dir).map_err(|source| ManagerError::Io { path: dir.into(), source })?;
    let path = dir.join(name(sequence));
    copy(catalog, &path)?;
    prune(dir).map_err(|source| ManagerError::Io { path: dir.into(), source })?;
    Ok(path)
}

/// Copies the catalog at `catalog` to the file `to`, whole or not at all: temp, copy, check, fsync,
/// rename, fsync of the directory.
pub fn copy(catalog: &Path, to: &Path) -> Result<(), ManagerError> {
    let io = |source| ManagerError::Io { path: to.into(), source };
    let temp = to.with_extension("part");
    remove_if_there(&temp).map_err(io)?;
    // The catalog holds the keys of sealed spaces.
    let private = File::options().write(true).create_new(true).mode(0o600).open(&temp);
    let file = private.map_err(io)?;
    copy_pages(catalog, &temp).map_err(|why| ManagerError::Catalog {
        path: to.into(),
        detail: format!("it could not be copied: {why}"),
    })?;
    file.sync_all().map_err(io)?;
    fs::rename(&temp, to).map_err(io)?;
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)
}

/// Copies the catalog of the manager's state directory `state` to the file `to`, whether a manager
/// runs there or not.
pub fn backup(state: &Path, to: &Path) -> Result<(), ManagerError> {
    let catalog = state.join(CATALOG);
    if !catalog.exists() {
        return Err(ManagerError::NotInitialised(state.into()));
    }
    copy(&catalog, to)
}

fn copy_pages(catalog: &Path, to: &Path) -> Result<(), Error> {
    let source = schema::open_reader(catalog)?;
    let mut target = Connection::open(to)?;
    // All pages in one step, from one snapshot: in WAL mode writers go on meanwhile.
    let done = Backup::new(&source, &mut target)?.step(-1)?;
    if done != StepResult::Done {
        return Err(Error::Sql("the catalog was busy".into()));
    }
    // One file, with nothing beside it.
    target.pragma_update(None, "journal_mode", "DELETE")?;
    let sound: String = target.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound == "ok" { Ok(()) } else { Err(Error::Damaged(sound)) }
}

fn prune(dir: &Path) -> io::Result<()> {
    let mut taken: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?
        .into_iter()
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("catalog-") && name.ends_with(".db")
        })
        .collect();
    taken.sort();
    let old = taken.len().saturating_sub(KEPT);
    taken[..old].iter().try_for_each(fs::remove_file)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}
