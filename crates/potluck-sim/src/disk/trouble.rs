//! Something happens at exactly one change of a disk: the means to try every one of them.

use super::{Drive, State};
use rustix::io::Errno;
use std::io;

/// The trouble at the change with this number, from 1; 0 only counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// The number of the change.
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
    /// Syncs say that they are done and do nothing, until the power goes before this change.
    LyingSync,
}

impl Kind {
    /// The trouble of all kinds.
    pub const ALL: [Self; 5] =
        [Self::Full, Self::Broken, Self::Kill, Self::PowerCut, Self::LyingSync];
}

/// The part of a disk that a change changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Name,
    Bytes,
    Sync,
    /// Never for lack of space.
    Remove,
}

/// Trouble to come, and what came of it.
#[derive(Debug)]
pub(super) struct Armed {
    trouble: Trouble,
    changes: u64,
    /// The process is dead, though nobody has taken its machine down yet.
    struck: bool,
}

impl Drive {
    /// Counts changes from now on, and lets `trouble` happen at its time.
    pub fn arm(&self, trouble: Trouble) {
        self.state().trouble = Some(Armed { trouble, changes: 0, struck: false });
    }

    /// How many changes there were since.
    pub fn changes(&self) -> u64 {
        self.state().trouble.as_ref().map_or(0, |armed| armed.changes)
    }

    /// Whether the process has died of its trouble since this was last asked, and how.
    pub fn struck(&self) -> Option<Kind> {
        let mut state = self.state();
        let armed = state.trouble.as_mut().filter(|armed| armed.struck)?;
        armed.struck = false;
        Some(armed.trouble.kind)
    }
}

impl State {
    /// Counts a change; false when it must not be made although it succeeds.
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
