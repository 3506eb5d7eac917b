//! The reasons why a pool cannot be made, opened or brought back: faults of a state directory, a recovery kit or a
//! backup, and donors that do not answer.

use crate::log::chain::ChainId;
use potluck_catalog::{Error, OpenError};
use potluck_core::size::count;
use potluck_wire::addresses::BadAddress;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a pool cannot be made, backed up or restored, or why a manager cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory holds no pool.
    #[error("{} holds no pool", .0.display())]
    NotInitialised(PathBuf),
    /// Another process has the directory.
    #[error("another manager runs on {}", .0.display())]
    InUse(PathBuf),
    /// A directory that should be new has something in it.
    #[error("{} {}", path.display(), if *holds_pool { "holds a pool" } else { "is not empty" })]
    NotEmpty {
        /// The directory that was to be new.
        path: PathBuf,
        /// True if the directory holds a pool.
        holds_pool: bool,
    },
    /// A restore into the directory was begun and not finished.
    #[error("a restore into {} was not finished", .0.display())]
    UnfinishedRestore(PathBuf),
    /// The state directory has lost its catalog.
    #[error("{} holds the authority of a pool, and not its catalog", .0.display())]
    NoCatalog(PathBuf),
    /// The state directory has the catalog of one pool and the authority of another.
    #[error("{} holds the catalog of {catalog_of}, and the keys of {authority}", state.display())]
    OtherAuthority {
        /// The state directory of the manager.
        state: PathBuf,
        /// The name of the pool whose catalog it holds.
        catalog_of: String,
        /// The pool of the authority in `ca`.
        authority: String,
    },
    /// The pool has another name than the one that was said.
    #[error("the pool in {} is called {name}, not {said}", state.display())]
    OtherName {
        /// The state directory of the manager.
        state: PathBuf,
        /// The name of the pool.
        name: String,
        /// The name that was said.
        said: String,
    },
    /// The backup is not as it was written, or is of another version.
    #[error("the backup {} is damaged: {detail}", path.display())]
    BadBackup {
        /// The path of the backup.
        path: PathBuf,
        /// The damage that was found.
        detail: String,
    },
    /// A backup of the catalog would lie in a state directory.
    #[error("{} lies in the manager's state directory {}", file.display(), state.display())]
    InState {
        /// The path at which the copy was to lie.
        file: PathBuf,
        /// The state directory of the manager.
        state: PathBuf,
    },
    /// The recovery kit is of one pool and the backup of another.
    #[error("the recovery kit {} is of {kit_of}, and the backup of {backup_of}", kit.display())]
    OtherPool {
        /// The path of the kit.
        kit: PathBuf,
        /// The pool that the kit is of.
        kit_of: String,
        /// The pool that the backup is of.
        backup_of: String,
    },
    /// The recovery kit and the backup are of the pool, and of different times.
    #[error("the backup {} is sealed under another recovery key than the kit {} has", backup.display(), kit.display())]
    OtherKey {
        /// The path of the kit.
        kit: PathBuf,
        /// The path of the backup.
        backup: PathBuf,
    },
    /// The file is no recovery kit of this release.
    #[error("{}: {detail}", path.display())]
    BadKit {
        /// The path of the recovery kit.
        path: PathBuf,
        /// The fault, in words.
        detail: String,
    },
    /// The recovery kit is of a newer release.
    #[error("the recovery kit {} was written by a newer Potluck", .0.display())]
    NewerKit(PathBuf),
    /// The recovery key is lost, and the kit that may have it cannot be read.
    #[error("{} is lost, and the recovery kit cannot be read: {detail}", path.display())]
    LostKey {
        /// The path of the recovery key.
        path: PathBuf,
        /// The fault of the kit, in words.
        detail: String,
    },
    /// No donor answered, and none of those that were named or are known was reached; each with the reason.
    #[error("no donor is reached: {0}")]
    NobodyReached(String),
    /// No donor that answered has a block of the log that can be read.
    #[error(
        "{} answered, with nothing of this pool's metadata log that can be read, and {} that cannot",
        count(*answered as u64, "donor"),
        count(*unread, "block")
    )]
    NoLog {
        /// The number of donors that said what they have.
        answered: usize,
        /// The number of blocks that did not open, or that nobody gave.
        unread: u64,
    },
    /// No donor that answered has the chain of the log that was asked for.
    #[error("no donor that answered has the chain {asked} of the metadata log; they have {found}")]
    NoChain {
        /// The chain that was asked for.
        asked: ChainId,
        /// The chains that there are, in words.
        found: String,
    },
    /// The manager is shutting down.
    #[error("the manager is shutting down")]
    Closing,
    /// The catalog cannot be used.
    #[error(transparent)]
    Catalog(OpenError),
    /// A file or directory cannot be read or written: of the state directory, a recovery kit or a backup.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Keys or certificates cannot be made or read.
    #[error("the pool's certificates in {}: {detail}", path.display())]
    Certificates {
        /// The directory of the pool's certificates.
        path: PathBuf,
        /// The error, in words.
        detail: String,
    },
    /// The address that others are to be told as this manager's is not valid.
    #[error("--advertise: {0}")]
    Advertise(#[from] BadAddress),
    /// The port cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address to listen on.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl StateError {
    /// Returns the error as it reaches a person, with what to do next.
    pub fn failure(&self) -> Failure {
        let failure =
            |kind, code, hint: &str| Failure::new(kind, code, self.to_string()).hint(hint);
        match self {
            Self::NotInitialised(_) => failure(
                ErrorKind::NotFound,
                code::CATALOG,
                "make a pool there first, with `potluck up` or `potluck manager`; if it is elsewhere, name its directory with --state",
            ),
            Self::NotEmpty { holds_pool: true, .. } => failure(
                ErrorKind::Conflict,
                code::EXISTS,
                "if a restore into it succeeded, start it: `potluck manager --state` with this directory; to restore once more, name a new directory with --state, for nothing that is there is written over",
            ),
            Self::NotEmpty { .. } => failure(
                ErrorKind::Conflict,
                code::EXISTS,
                "name a new directory with --state; nothing that is there is written over",
            ),
            Self::UnfinishedRestore(_) => failure(
                ErrorKind::Conflict,
                code::UNFINISHED_RESTORE,
                "run the `potluck manager restore` or the `potluck manager --adopt-newer` with this --state again: it begins anew by itself; only to make a new, empty pool there, remove the directory first",
            ),
            Self::NoCatalog(_) => failure(
                ErrorKind::Integrity,
                code::UNFINISHED_RESTORE,
                "a manager started here would be an empty pool that all donors obey: put catalog.db back, or bring the pool back in a new directory with `potluck manager restore --kit` and the recovery.kit that is here; docs/restore.md shows how",
            ),
            Self::OtherAuthority { .. } => failure(
                ErrorKind::Conflict,
                code::OTHER_AUTHORITY,
                "donors would obey one pool with the catalog of another: put the catalog.db and the ca directory of the same pool there, or restore the pool into a new directory with `potluck manager restore` and its own recovery kit",
            ),
            Self::OtherName { .. } => failure(
                ErrorKind::Conflict,
                code::EXISTS,
                "a pool keeps the name that it was made with: leave --name out; for another pool beside it, name a new directory with --state",
            ),
            Self::BadBackup { .. } => failure(
                ErrorKind::Integrity,
                code::CATALOG,
                "run it again with the backup before it (the manager keeps the last three), or with `--from pool`; the same --state will do",
            ),
            Self::InState { .. } => failure(
                ErrorKind::Usage,
                code::EXISTS,
                "name a file elsewhere, best on another disk: there it would replace what the manager needs, or be lost with it",
            ),
            Self::OtherPool { .. } => failure(
                ErrorKind::Usage,
                code::CATALOG,
                "name the kit with --kit and the backup with --from of the same pool",
            ),
            Self::OtherKey { .. } => failure(
                ErrorKind::Usage,
                code::CATALOG,
                "`potluck manager rotate-authority` ran between the two: name with --kit the recovery kit that was the pool's when the backup was written",
            ),
            Self::BadKit { .. } => failure(
                ErrorKind::Usage,
                code::LOCAL_IO,
                "name with --kit a copy of the pool's recovery.kit; it is JSON, begins with potluck_recovery_kit, and holds the pool's name",
            ),
            Self::NewerKit(_) => failure(
                ErrorKind::Usage,
                code::LOCAL_IO,
                "use the Potluck release that wrote it, or a later one; this one leaves it as it is",
            ),
            Self::LostKey { .. } => failure(
                ErrorKind::Other,
                code::LOCAL_IO,
                "put a copy of the pool's recovery.kit in its place; without one, remove it, and a new key is made: copies of the kit then open nothing that donors keep from now on",
            ),
            Self::NobodyReached(_) => failure(
                ErrorKind::Retry,
                code::NO_DONORS,
                "see that `potluck lend` runs there and its port is open; name donors with --donor as this machine knows them, or by address (--donor 10.0.0.7); or restore from a backup in a file",
            ),
            Self::NoLog { .. } => failure(
                ErrorKind::Retry,
                code::NO_DONORS,
                "see that donors run; where this machine has not the lost manager's address, name them with --donor; wait longer with --wait, or restore from a backup in a file; after `potluck manager rotate-authority` only the kit that it made opens what donors have",
            ),
            Self::NoChain { .. } => failure(
                ErrorKind::NotFound,
                code::NO_DONORS,
                "name one of these with --chain, or leave it out to take the newest; the same --state will do",
            ),
            Self::Closing => {
                failure(ErrorKind::Retry, code::NO_MANAGER, "try again when it runs again")
            }
            Self::InUse(_) => failure(
                ErrorKind::Conflict,
                code::CATALOG,
                "stop the other manager first, or give this one its own --state directory",
            ),
            Self::Catalog(OpenError::Damaged { .. }) => failure(
                ErrorKind::Integrity,
                code::CATALOG,
                "keep the file for inspection and restore the catalog into a new directory with `potluck manager restore`; donors delete nothing meanwhile",
            ),
            Self::Catalog(OpenError::TooNew { .. }) => failure(
                ErrorKind::Usage,
                code::CATALOG,
                "start the Potluck release that wrote it, or a later one",
            ),
            Self::Catalog(_) => failure(
                ErrorKind::Other,
                code::CATALOG,
                "check the disk that holds it for free space and errors",
            ),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => failure(
                ErrorKind::NotFound,
                code::LOCAL_IO,
                "check the name; a relative one begins at the current directory",
            ),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => failure(
                ErrorKind::NoSpace,
                code::FULL,
                "make room on that disk, or name a directory on another, and run it again",
            ),
            Self::Io { .. } => failure(
                ErrorKind::Other,
                code::LOCAL_IO,
                "check that the directory exists, is writable by this user, and has space",
            ),
            Self::Certificates { .. } => failure(
                ErrorKind::Integrity,
                code::LOCAL_IO,
                "put the ca directory back from a copy, or bring the pool back in a new directory with `potluck manager restore`; without it no member can be verified",
            ),
            Self::Advertise(_) => failure(
                ErrorKind::Usage,
                code::BAD_REQUEST,
                "name this machine as others reach it: a name, or an address, and a port where that is another than the one listened at",
            ),
            Self::Listen { .. } => failure(
                ErrorKind::Other,
                code::LOCAL_IO,
                "listen elsewhere with --listen, at an address of this machine and a port that is free: perhaps another manager of this machine has this one (`ss -ltnp` shows which program)",
            ),
        }
    }
}

impl From<Error> for StateError {
    fn from(why: Error) -> Self {
        match why {
            Error::Closed => Self::Closing,
            other => OpenError::of(Path::new("catalog.db"), other).into(),
        }
    }
}

impl From<OpenError> for StateError {
    fn from(why: OpenError) -> Self {
        match why {
            OpenError::Missing(directory) => Self::NotInitialised(directory),
            OpenError::Io { path, source } => Self::Io { path, source },
            other => Self::Catalog(other),
        }
    }
}
