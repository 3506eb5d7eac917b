//! The numbers of directories.

use crate::error::Error;
use potluck_core::ids::SnapshotId;

/// The number of a directory, as it is now or as a snapshot shows it. A number below 0 stands for the entry of a
/// snapshot, which leads to what the snapshot shows of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirId(pub(crate) i64, Option<SnapshotId>);

impl DirId {
    /// The directory whose entries are the spaces.
    pub const ROOT: Self = Self::now(0);

    /// Returns the number of a directory as it is now.
    pub(crate) const fn now(number: i64) -> Self {
        Self(number, None)
    }

    /// Returns the number of a directory as the snapshot `by` shows it, or as it is now without one.
    pub(crate) const fn as_shown(number: i64, by: Option<SnapshotId>) -> Self {
        Self(number, by)
    }

    /// Returns the number of what the entry of a snapshot leads to.
    pub(crate) const fn of_snapshot(number: SnapshotId) -> Self {
        Self::now(-(number.0 as i64))
    }

    /// Returns the snapshot whose entry leads here, if this is the number of such an entry.
    pub(crate) fn snapshot(self) -> Option<SnapshotId> {
        (self.0 < 0).then_some(SnapshotId(self.0.unsigned_abs()))
    }

    /// Returns the snapshot that shows the directory; `None` for the directory as it is now.
    pub(crate) fn shown_by(self) -> Option<SnapshotId> {
        self.1
    }

    /// Returns the number of a directory of which an entry is to be changed.
    ///
    /// Errors: [`Error::Bug`] for what a snapshot shows.
    pub(crate) fn changing(self) -> Result<i64, Error> {
        match self.0 < 0 || self.1.is_some() {
            true => Err(Error::Bug("an entry of a snapshot would be changed".into())),
            false => Ok(self.0),
        }
    }
}
