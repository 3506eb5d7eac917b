//! The state directory: what lies where, and who may use it.
//!
//! ```text
//! catalog.db        the catalog, and what its engine keeps beside it
//! ca/               ca.pem ca.key earlier.pem manager.pem manager.key recovery.key behind.json
//! ca.earlier/       the authority that the one in ca/ replaces, while members change over
//! ca.next/          the authority that is to replace the one in ca/, for the moment in which it is made
//! ca.gone/          an authority that is thrown away
//! admin/            the first admin's identity, for the local command line
//! recovery.kit      the keys and addresses that no donor has, to be copied elsewhere
//! backups/          the last few backups of the catalog, unless another directory was chosen
//! audit/            the audit log: what was refused, and who changed what others may do
//! restoring/        the staging directory of a restore; no manager starts while it is there without a catalog
//! older-N/          a catalog for which a newer one was taken from donors, and its first admin's identity
//! replacing/        the same, while that goes on
//! lock              held by the process that uses the directory: a manager or a restore
//! probe             there for moments, after the disk took no writes
//! ```

use crate::error::StateError;
use potluck_catalog::Catalog;
use potluck_wire::private_dir;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file of the catalog in a state directory.
pub const CATALOG: &str = "catalog.db";
/// The recovery kit's file in a state directory.
pub const KIT: &str = "recovery.kit";
/// The directory of the pool's own keys and certificates in a state directory.
pub const CA: &str = "ca";
/// The directory of the first admin's identity in a state directory.
pub const ADMIN: &str = "admin";
/// The lock file by which one process at a time has a state directory.
pub const LOCK: &str = "lock";
/// The directory in a state directory where a restore makes what it brings back.
pub const RESTORING: &str = "restoring";

/// A state directory that this process alone may use until the value is dropped.
#[derive(Debug)]
pub struct StateDir {
    root: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Makes the directory if need be and takes it for this process.
    ///
    /// Errors: another process has it, or the disk fails.
    pub fn take(root: &Path) -> Result<Self, StateError> {
        let failed = |path: &Path, source| StateError::Io { path: path.into(), source };
        // The catalog holds the keys of sealed spaces and is made with the process's own mode, so other users must not
        // enter the directory.
        private_dir::make(root).map_err(|why| failed(root, why))?;
        let path = root.join(LOCK);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|why| failed(&path, why))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { root: root.into(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateError::InUse(root.into())),
            Err(TryLockError::Error(why)) => Err(failed(&path, why)),
        }
    }

    /// Refuses to make a pool where one was to come back, or where one lost its catalog: it would
    /// be an empty one that every donor and every user takes for the pool they know. A pool is made
    /// by writing its catalog first, and restored by writing it last.
    pub fn refuse_unfinished(&self) -> Result<(), StateError> {
        let staging = self.root.ancestors().filter(|dir| dir.ends_with(RESTORING));
        let mut restored = staging.filter_map(Path::parent).filter(|dir| dir.join(LOCK).exists());
        if let Some(state) = restored.next() {
            return Err(StateError::UnfinishedRestore(state.into()));
        }
        if self.has_catalog() {
            return Ok(());
        }
        if self.restoring().exists() {
            return Err(StateError::UnfinishedRestore(self.root.clone()));
        }
        if self.ca().exists() || self.kit().exists() {
            return Err(StateError::NoCatalog(self.root.clone()));
        }
        Ok(())
    }

    /// Returns the directory where a restore makes what it brings back.
    pub fn restoring(&self) -> PathBuf {
        self.root.join(RESTORING)
    }

    /// Returns the path of the catalog.
    pub fn catalog(&self) -> PathBuf {
        self.root.join(CATALOG)
    }

    /// Returns whether the catalog is there, which makes the directory a pool's.
    pub fn has_catalog(&self) -> bool {
        Catalog::is_at(&self.catalog())
    }

    /// Returns the path of the state directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of the pool's own keys and certificates.
    pub fn ca(&self) -> PathBuf {
        self.root.join(CA)
    }

    /// Returns the directory of the first admin's identity.
    pub fn admin(&self) -> PathBuf {
        self.root.join(ADMIN)
    }

    /// Returns the path of the recovery kit.
    pub fn kit(&self) -> PathBuf {
        self.root.join(KIT)
    }

    /// Returns the directory of backups, unless another was chosen.
    pub fn backups(&self) -> PathBuf {
        self.root.join("backups")
    }

    /// Returns the directory of the audit log.
    pub fn audit(&self) -> PathBuf {
        self.root.join("audit")
    }

    /// Checks that the disk takes a file of so many `bytes`; the file is removed afterwards.
    ///
    /// Errors: the disk does not take it.
    pub fn probe(&self, bytes: usize) -> io::Result<()> {
        let path = self.root.join("probe");
        let write = || {
            let mut file = File::create(&path)?;
            file.write_all(&vec![0; bytes])?;
            file.sync_all()
        };
        let written = write();
        let _ = fs::remove_file(&path); // a file that stays is overwritten by the next probe
        written
    }

    /// Returns a function that makes the error of a file at `path`.
    pub fn io(path: PathBuf) -> impl FnOnce(io::Error) -> StateError {
        move |source| StateError::Io { path, source }
    }
}

/// Lists the names in a directory; none for a directory that is not there.
pub fn names(dir: &Path) -> Result<Vec<String>, StateError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(StateError::Io { path: dir.into(), source }),
    };
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    Ok(entries.flatten().map(name).collect())
}

/// Returns the state directory in which the file `path` lies or will lie, if there is one; links are followed.
pub fn holding(path: &Path) -> io::Result<Option<PathBuf>> {
    let place = |path: &Path| -> io::Result<PathBuf> {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        above.unwrap_or(Path::new(".")).canonicalize()
    };
    let mut places = vec![place(path)?];
    // The place to which a link leads counts, too, whether or not something is there.
    match (path.canonicalize(), fs::read_link(path)) {
        (Ok(file), _) => places.extend(file.parent().map(Path::to_path_buf)),
        (Err(_), Ok(leads)) => places.extend(place(&places[0].join(leads)).ok()),
        (Err(_), Err(_)) => {}
    }
    let is_state = |dir: &&Path| Catalog::is_at(&dir.join(CATALOG)) && dir.join("ca").is_dir();
    let found = places.iter().find_map(|place| place.ancestors().find(is_state));
    Ok(found.map(Path::to_path_buf))
}
