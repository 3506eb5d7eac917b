//! The numbers of directories.

use crate::error::Error;
use potluck_core::ids::SnapshotId;

/// The number of a directory, as it is or as a snapshot shows it. A number below 0 is of a snapshot, whose entry leads to
/// what it shows of the directory that it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirId(pub(crate) i64, Option<SnapshotId>);

impl DirId {
    /// The directory whose entries are the spaces.
    pub const ROOT: Self = Self::now(0);

    /// A directory as it is.
    pub(crate) const fn now(number: i64) -> Self {
        Self(number, None)
    }

    /// A directory as a snapshot shows it, if one does.
    pub(crate) const fn as_shown(number: i64, by: Option<SnapshotId>) -> Self {
        Self(number, by)
    }

    /// Returns the number of what the entry of a snapshot leads to.
    pub(crate) const fn of_snapshot(number: SnapshotId) -> Self {
        Self::now(-(number.0 as i64))
    }

    /// The snapshot whose entry leads here.
    pub(crate) fn snapshot(self) -> Option<SnapshotId> {
        (self.0 < 0).then_some(SnapshotId(self.0.unsigned_abs()))
    }

    /// The snapshot that shows the directory; `None`: it is as it is now.
    pub(crate) fn shown_by(self) -> Option<SnapshotId> {
        self.1
    }

    /// The number of the directory where its entries may change.
    pub(crate) fn changing(self) -> Result<i64, Error> {
        match self.0 < 0 || self.1.is_some() {
            true => Err(Error::Bug("an entry of a snapshot would be changed".into())),
            false => Ok(self.0),
        }
    }
}
