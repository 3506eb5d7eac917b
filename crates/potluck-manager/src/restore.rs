//! Bringing a manager back whose machine or directory is lost: from its recovery kit and a checkpoint.
//!
//! What comes back never deletes anything by itself: garbage collection is held until an admin ends
//! it, because the pool may know more than a checkpoint does (PROMISES D5).

mod collect;
mod fetch;
mod journal;
mod listen;
mod pool;
mod unlisted;

pub use collect::Collecting;
pub use listen::Patience;
pub use pool::{rebuild, restore_pool};
pub use unlisted::Unlisted;

use crate::backup::Taken;
use crate::backup::kit::{self, Kit};
use crate::ca::Ca;
use crate::catalog::{Error, restored, schema};
use crate::error::ManagerError;
use crate::init::make_admin;
use crate::journal::chain::Gaps;
use crate::state_dir::{KIT, StateDir};
use potluck_core::ids::Epoch;
use rusqlite::Connection;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// What people call the admin that a restore makes.
const ADMIN: &str = "admin after restore";

/// What is to be brought back, and where.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The recovery kit.
    pub kit: PathBuf,
    /// The new state directory; absent or empty.
    pub state: PathBuf,
    /// The manager's address from now on, if it changes. Donors look for it at the old one.
    pub advertise: Option<String>,
}

/// What was brought back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// What the pool is called.
    pub pool: String,
    /// Where members will look for the manager.
    pub address: String,
    /// Spaces.
    pub spaces: u64,
    /// Files.
    pub files: u64,
    /// Their sizes together.
    pub bytes: u64,
    /// Donors that belong to the pool.
    pub donors: u64,
    /// The number of the checkpoint that was used, if one was.
    pub checkpoint: Option<u64>,
    /// When it was taken, milliseconds since 1970.
    pub taken_ms: Option<i64>,
    /// What the journal on donors added, or made alone; `None`: nobody looked for one.
    pub journal: Option<Replayed>,
    /// Files that the donors that answered have too little of; `None`: no donor was asked.
    pub unlisted: Option<Unlisted>,
}

/// What was replayed of the journal, and what is known to be missing of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Segments that were replayed.
    pub segments: u64,
    /// When the last of them was written, milliseconds since 1970.
    pub until_ms: Option<i64>,
    /// What is missing.
    #[serde(flatten)]
    pub gaps: Gaps,
    /// Records that do not fit what is there, as happens after a gap.
    pub left_out: u64,
    /// Whether a later generation of the journal is there than the checkpoint's: a rebuild from the
    /// journal alone knows more.
    pub overtaken: bool,
}

/// A state directory that is being filled. Its catalog gets its name last, so that one that was
/// interrupted is no pool.
struct Site {
    kit: Kit,
    state: StateDir,
    ca: Ca,
}

/// Restores from the checkpoint in the file `from`.
///
/// Errors: a state directory that is not empty, a kit or checkpoint that cannot be read or is
/// damaged. A failed restore leaves a directory without a catalog.
pub fn restore_file(ask: &Restore, from: &Path) -> Result<Restored, ManagerError> {
    let site = Site::prepare(ask)?;
    let temp = site.state.catalog().with_extension("part");
    fs::copy(from, &temp).map_err(|source| ManagerError::Io { path: from.into(), source })?;
    site.finish(ask, &temp, Epoch(0), Restored::default())
}

impl Site {
    /// Makes the state directory with all that the kit has.
    fn prepare(ask: &Restore) -> Result<Self, ManagerError> {
        let kit = Kit::load(&ask.kit)?;
        refuse_used(&ask.state)?;
        let state = StateDir::take(&ask.state)?;
        let ca = Ca::restore(&state.ca(), &kit.ca_certificate, &kit.ca_key)?;
        kit::keep_key(&state, &kit.recovery_key())?;
        kit.save(&state.kit())?;
        Ok(Self { kit, state, ca })
    }

    /// Checks the catalog in the file `temp`, ends its former life, and gives it its place. Its epoch
    /// becomes a later one than `above`, so that donors obey it.
    /// The rest of `report` is found in it.
    fn finish(
        &self,
        ask: &Restore,
        temp: &Path,
        above: Epoch,
        report: Restored,
    ) -> Result<Restored, ManagerError> {
        let db = schema::open_whole(temp)?;
        let bad = |why: Error| match why {
            Error::Damaged(detail) => ManagerError::Damaged { path: temp.into(), detail },
            other => ManagerError::Catalog { path: temp.into(), detail: other.to_string() },
        };
        let address = ask.advertise.clone().unwrap_or_else(|| self.kit.address.clone());
        let report = self.revive(&db, address, above, report).map_err(bad)?;
        close(db).map_err(bad)?;
        let place = self.state.catalog();
        let renamed = fs::File::open(temp)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(temp, &place))
            .and_then(|()| fs::File::open(&ask.state)?.sync_all());
        renamed.map_err(StateDir::io(place))?;
        Ok(report)
    }

    fn revive(
        &self,
        db: &Connection,
        address: String,
        above: Epoch,
        report: Restored,
    ) -> Result<Restored, Error> {
        let taken = Taken::of(db)?;
        let tx = db.unchecked_transaction()?;
        let why = match taken {
            None if report.journal.is_some() => "the catalog was rebuilt from its journal".into(),
            Some(taken) => format!("the catalog was restored from checkpoint {}", taken.sequence),
            None => "the catalog was restored from a copy".into(),
        };
        restored::settle(&tx, &why)?;
        schema::raise_epoch(&tx, above)?;
        let pool = schema::pool_name(&tx)?;
        make_admin(&self.state, &self.ca, &tx, &pool, ADMIN, &address)?;
        let content = restored::content(&tx)?;
        tx.commit()?;
        Ok(Restored {
            pool,
            address,
            spaces: content.spaces,
            files: content.files,
            bytes: content.bytes,
            donors: content.donors,
            checkpoint: taken.map(|taken| taken.sequence),
            taken_ms: taken.map(|taken| taken.wall_ms),
            ..report
        })
    }
}

/// Nothing is ever written over: a state directory that has something may be somebody's last copy.
fn refuse_used(state: &Path) -> Result<(), ManagerError> {
    let entries = match fs::read_dir(state) {
        Ok(entries) => entries,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(ManagerError::Io { path: state.into(), source }),
    };
    // An interrupted restore leaves its lock and the kit; those may be used again.
    let used = entries.flatten().any(|entry| {
        let name = entry.file_name();
        !["lock", KIT, "ca", "catalog.part", listen::SCRATCH].iter().any(|own| name == *own)
    });
    if used { Err(ManagerError::NotEmpty(state.into())) } else { Ok(()) }
}

fn remove_if_there(path: &Path) -> Result<(), ManagerError> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            Err(StateDir::io(path.into())(why))
        }
        _ => Ok(()),
    }
}

/// Closes a catalog as one file.
fn close(db: Connection) -> Result<(), Error> {
    db.pragma_update(None, "journal_mode", "DELETE")?;
    db.close().map_err(|(_, why)| why.into())
}
