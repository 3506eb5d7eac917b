//! Brings a manager back whose machine or directory is lost: from its recovery kit and the metadata
//! log, which is on donors ([`donors`]) or in a file ([`file`]).
//!
//! A manager that comes back never deletes anything by itself: garbage collection is held until an admin
//! ends it, because the pool may know more than the log does (promise D5).

mod adopt;
mod blocks;
mod collect;
mod donors;
mod fetch;
mod file;
mod listen;
mod server;
mod staging;

pub use adopt::{Adopted, adopt_newer};
pub use donors::restore_pool;
pub use file::restore_file;
pub use listen::ListenOptions;
pub use potluck_catalog::Unlisted;

use crate::log::chain::{FoundChain, Gaps};
use potluck_wire::addresses::Addresses;
use serde::Serialize;
use std::path::PathBuf;

/// The order for a restore: from what, and where to.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The path of the recovery kit.
    pub kit: PathBuf,
    /// The new state directory: absent, empty, or with what an interrupted restore left.
    pub state: PathBuf,
    /// The addresses of the manager from now on, if they change. Donors look for it at the old ones.
    pub advertise: Addresses,
}

/// The report of a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// The name of the pool.
    pub pool: String,
    /// The addresses at which members will look for the manager.
    pub addresses: Addresses,
    /// The number of spaces.
    pub spaces: u64,
    /// The number of files.
    pub files: u64,
    /// The size of all files together, in bytes of plaintext.
    pub bytes: u64,
    /// The number of donors that belong to the pool.
    pub donors: u64,
    /// The part of the log that was replayed.
    pub log: Replayed,
    /// The chains of the log that donors have, the best first; none where no donor was asked.
    pub chains: Vec<FoundChain>,
    /// The files of which the donors that answered have too little; `None` where no donor was asked.
    pub unlisted: Option<Unlisted>,
}

/// The part of the log that was replayed, and the gaps that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The number of blocks that were replayed.
    pub blocks: u64,
    /// The time at which the last replayed block was written, in milliseconds since 1970.
    pub until_ms: Option<i64>,
    /// The gaps that are known.
    #[serde(flatten)]
    pub gaps: Gaps,
    /// The number of records that do not fit what is there, as happens after a gap.
    pub left_out: u64,
    /// The number of blocks that donors listed and nobody gave.
    pub unread: u64,
    /// The number of blocks of a later generation that were not replayed: its base is not whole, or the manager that
    /// wrote it had been restored from a log with gaps.
    pub passed_over: u64,
    /// The number of bytes at the end of a file that are no blocks.
    pub unread_bytes: u64,
}

impl Restored {
    /// Returns how much of the pool came back: files that the donors that answered cannot give weigh more than gaps in
    /// the log.
    pub fn extent(&self) -> RestoreExtent {
        let unlisted = self.unlisted.as_ref().is_some_and(|unlisted| unlisted.files > 0);
        match (unlisted, self.log.has_gaps()) {
            (true, _) => RestoreExtent::Unreadable,
            (false, true) => RestoreExtent::Incomplete,
            (false, false) => RestoreExtent::Whole,
        }
    }
}

impl Replayed {
    /// Returns whether something is known to be missing.
    pub fn has_gaps(&self) -> bool {
        let lost = [self.left_out, self.unread, self.passed_over, self.unread_bytes];
        self.gaps != Gaps::default() || lost.iter().any(|lost| *lost > 0)
    }
}

/// The extent to which a pool came back, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreExtent {
    /// All that is known to have been there came back.
    Whole,
    /// Changes are missing, the latest or some in between, or could not be applied.
    Incomplete,
    /// Files cannot be read from what the donors that answered have.
    Unreadable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loss_that_is_known_shows_in_the_extent_l1() {
        let of = |log: Replayed| Restored { log, ..Restored::default() }.extent();
        assert_eq!(Restored::default().extent(), RestoreExtent::Whole);
        assert_eq!(of(Replayed { blocks: 9, ..Replayed::default() }), RestoreExtent::Whole);
        for lost in [
            Replayed { unread: 1, ..Replayed::default() },
            Replayed { left_out: 1, ..Replayed::default() },
            Replayed { passed_over: 1, ..Replayed::default() },
            Replayed { unread_bytes: 1, ..Replayed::default() },
            Replayed { gaps: Gaps { missing: 1, ..Gaps::default() }, ..Replayed::default() },
            Replayed { gaps: Gaps { broken: 1, ..Gaps::default() }, ..Replayed::default() },
            Replayed { gaps: Gaps { base_cut: true, ..Gaps::default() }, ..Replayed::default() },
            Replayed { gaps: Gaps { inherited: true, ..Gaps::default() }, ..Replayed::default() },
        ] {
            assert_eq!(of(lost.clone()), RestoreExtent::Incomplete, "{lost:?}");
        }
        let mut unlisted = Unlisted::default();
        unlisted.files = 1;
        assert_eq!(
            Restored { unlisted: Some(unlisted), ..Restored::default() }.extent(),
            RestoreExtent::Unreadable
        );
    }
}
