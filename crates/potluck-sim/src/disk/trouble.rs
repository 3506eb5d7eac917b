//! Trouble at exactly one change of a disk, so that a test can try every change in turn.

use super::{Drive, State};
use rustix::io::Errno;
use std::io;

/// Trouble at one change of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// The number of the change, from 1; with 0 changes are only counted.
    pub at: u64,
    /// The kind of trouble.
    pub kind: Kind,
}

/// The kind of trouble that a disk makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The change fails: the disk is full.
    Full,
    /// The change fails: the disk is broken.
    Broken,
    /// The process dies before the change.
    Kill,
    /// The power goes before the change.
    PowerCut,
    /// Syncs succeed without doing anything, until the power goes before this change.
    LyingSync,
}

impl Kind {
    /// All kinds of trouble.
    pub const ALL: [Self; 5] =
        [Self::Full, Self::Broken, Self::Kill, Self::PowerCut, Self::LyingSync];
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Name,
    Bytes,
    Sync,
    /// The removal of a name, which never fails for lack of space.
    Remove,
}

/// Trouble that is armed, with the changes counted so far.
#[derive(Debug)]
pub(super) struct Armed {
    trouble: Trouble,
    changes: u64,
    /// Whether the trouble has killed the process, and [`Drive::struck`] has not told so yet.
    struck: bool,
}

impl Drive {
    /// Counts changes from now on, and lets `trouble` happen at its change.
    pub fn arm(&self, trouble: Trouble) {
        self.state().trouble = Some(Armed { trouble, changes: 0, struck: false });
    }

    /// Returns the number of changes since [`Drive::arm`]; 0 if it was never called.
    pub fn changes(&self) -> u64 {
        self.state().trouble.as_ref().map_or(0, |armed| armed.changes)
    }

    /// Returns the trouble that has killed the process since the last call, if any.
    pub fn struck(&self) -> Option<Kind> {
        let mut state = self.state();
        let armed = state.trouble.as_mut().filter(|armed| armed.struck)?;
        armed.struck = false;
        Some(armed.trouble.kind)
    }
}

impl State {
    /// Counts a change, and fails if trouble strikes. Returns `false` for a sync that is to succeed without effect.
    pub(super) fn trouble(&mut self, change: Change) -> io::Result<bool> {
        let Some(armed) = self.trouble.as_mut() else { return Ok(true) };
        armed.changes += 1;
        let Trouble { at, kind } = armed.trouble;
        if armed.changes != at {
            let lies = kind == Kind::LyingSync && armed.changes < at;
            return Ok(!(lies && change == Change::Sync));
        }
        match kind {
            Kind::Full if change == Change::Remove => Ok(true),
            Kind::Full => Err(Errno::NOSPC.into()),
            Kind::Broken => Err(Errno::IO.into()),
            Kind::Kill | Kind::PowerCut | Kind::LyingSync => {
                armed.struck = true;
                self.incarnation += 1;
                self.locks.clear();
                Err(Errno::IO.into())
            }
        }
    }
}
