//! Bringing a manager back whose machine or directory is lost: from its recovery kit and a checkpoint.
//!
//! What comes back never deletes anything by itself: garbage collection is held until an admin ends
//! it, because the pool may know more than a checkpoint does (promise D5).

mod collect;
mod fetch;
mod journal;
mod listen;
mod pool;
mod staging;
mod unlisted;

pub use collect::Collecting;
pub use listen::Patience;
pub use pool::{rebuild, restore_pool};
pub use unlisted::Unlisted;

use crate::backup::checksum::{self, Checked};
use crate::catalog::Error;
use crate::error::ManagerError;
use crate::journal::chain::Gaps;
use crate::state_dir::StateDir;
use potluck_core::ids::Epoch;
use potluck_wire::addresses::Addresses;
use rusqlite::Connection;
use serde::Serialize;
use staging::Staging;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What is to be brought back, and where.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The recovery kit.
    pub kit: PathBuf,
    /// The new state directory: absent, empty, or with what an interrupted restore left.
    pub state: PathBuf,
    /// Where the manager is from now on, if that changes. Donors look for it at the old place.
    pub advertise: Addresses,
}

/// What was brought back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// What the pool is called.
    pub pool: String,
    /// Where members will look for the manager.
    pub addresses: Addresses,
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
    /// Whether it came from a file without a checksum: damage within values would not be known.
    pub no_checksum: bool,
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
    /// Segments that donors listed and nobody gave, or that do not open.
    pub unread: u64,
    /// Segments of a later generation of which nothing can be made, because its base is not whole.
    pub passed_over: u64,
    /// Whether a whole generation of the journal is later than every checkpoint: it was taken
    /// instead.
    pub overtaken: bool,
}

impl Restored {
    /// Whether something is known to be lost, or to be unreadable on the donors that answered.
    pub fn verdict(&self) -> Verdict {
        let unlisted = self.unlisted.as_ref().is_some_and(|unlisted| unlisted.files > 0);
        let gaps = self.journal.as_ref().is_some_and(Replayed::has_gaps);
        match (unlisted, gaps) {
            (true, _) => Verdict::Unreadable,
            (false, true) => Verdict::Incomplete,
            (false, false) => Verdict::Whole,
        }
    }
}

impl Replayed {
    fn has_gaps(&self) -> bool {
        self.gaps != Gaps::default() || (self.left_out, self.unread, self.passed_over) != (0, 0, 0)
    }
}

/// How much of what is known to have been there came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All of it.
    Whole,
    /// Changes are missing.
    Incomplete,
    /// Files cannot be read from what the donors that answered have.
    Unreadable,
}

/// Restores from the checkpoint in the file `from`.
///
/// Errors: a state directory that is not empty, a kit or checkpoint that cannot be read or is
/// damaged. A failed restore leaves nothing that starts, and the next one into it begins anew.
pub fn restore_file(ask: &Restore, from: &Path) -> Result<Restored, ManagerError> {
    // Before anything is made: a wrong name is no restore that began.
    fs::File::open(from).map_err(StateDir::io(from.into()))?;
    let staging = Staging::begin(ask)?;
    let temp = staging.catalog();
    copy_private(from, &temp)?;
    // A copy made by hand may have its last changes beside it: without them it is an older one.
    let mut beside = 0;
    for suffix in ["-wal", "-journal"] {
        let (from, to) = (suffixed(from, suffix), suffixed(&temp, suffix));
        match copy_private(&from, &to) {
            Err(ManagerError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            copied => beside += copied?,
        }
    }
    // Nothing lies beside a checkpoint; what somebody wrote since is not what its checksum is of.
    let checked = match beside {
        0 => checksum::take_off(&temp).map_err(StateDir::io(temp.clone()))?,
        _ => Checked::Without,
    };
    if let Checked::Damaged(why) = checked {
        return Err(ManagerError::BadCheckpoint { path: from.into(), detail: why.into() });
    }
    let report = Restored { no_checksum: checked == Checked::Without, ..Restored::default() };
    staging.finish(ask, Epoch(0), report).map_err(|why| match why {
        ManagerError::Damaged { path, detail } if path == temp => {
            ManagerError::BadCheckpoint { path: from.into(), detail }
        }
        other => other,
    })
}

/// Copies the file `from` to the new file `to`, which only its owner may read: catalogs hold the keys
/// of sealed spaces. Gives its length.
fn copy_private(from: &Path, to: &Path) -> Result<u64, ManagerError> {
    let at = |path: &Path| StateDir::io(path.into());
    let mut source = fs::File::open(from).map_err(at(from))?;
    let make = fs::File::options().write(true).create_new(true).mode(0o600).open(to);
    let copied = io::copy(&mut source, &mut make.map_err(at(to))?);
    copied.map_err(|why| match why.kind() {
        io::ErrorKind::StorageFull => at(to)(why),
        _ => at(from)(why),
    })
}

/// Removes a database with what is beside it.
fn remove_database(path: &Path) -> Result<(), ManagerError> {
    let parts = ["", "-wal", "-shm", "-journal"];
    parts.iter().try_for_each(|suffix| remove_if_there(&suffixed(path, suffix)))
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn remove_if_there(path: &Path) -> Result<(), ManagerError> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(StateDir::io(path.into())(why)),
        _ => Ok(()),
    }
}

/// Closes a catalog as one file.
fn close(db: Connection) -> Result<(), Error> {
    db.pragma_update(None, "journal_mode", "DELETE")?;
    db.close().map_err(|(_, why)| why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l1_every_loss_that_is_known_shows_in_the_verdict() {
        let of = |replayed: Replayed| {
            Restored { journal: Some(replayed), ..Restored::default() }.verdict()
        };
        assert_eq!(Restored::default().verdict(), Verdict::Whole);
        assert_eq!(
            of(Replayed { overtaken: true, segments: 9, ..Replayed::default() }),
            Verdict::Whole
        );
        for lost in [
            Replayed { unread: 1, ..Replayed::default() },
            Replayed { left_out: 1, ..Replayed::default() },
            Replayed { passed_over: 1, ..Replayed::default() },
            Replayed { gaps: Gaps { missing: 1, ..Gaps::default() }, ..Replayed::default() },
            Replayed { gaps: Gaps { broken: 1, ..Gaps::default() }, ..Replayed::default() },
            Replayed { gaps: Gaps { base_cut: true, ..Gaps::default() }, ..Replayed::default() },
        ] {
            assert_eq!(of(lost.clone()), Verdict::Incomplete, "{lost:?}");
        }
        let unlisted = Some(Unlisted { files: 1, ..Unlisted::default() });
        assert_eq!(Restored { unlisted, ..Restored::default() }.verdict(), Verdict::Unreadable);
    }
}
