//! The versions that inode numbers stand for. The kernel keeps one size of a number, and asks for it without saying
//! who wants to know. So while programs read a version, its number stays with it, and a version that takes its place
//! gets another.

use super::FileSystem;
use crate::reading::Reading;
use potluck_core::ids::VersionId;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// The time in which a number is not exchanged twice for one open(): a program that looks a name up again has it by
/// then.
const LOOKED_UP: Duration = Duration::from_millis(100);

impl FileSystem {
    /// Returns what programs read under a number that is of one version.
    ///
    /// While a file is written, and once it was locked, its number is that of what becomes of it.
    pub(super) fn pinned(&self, inode: u64) -> Option<Arc<Reading>> {
        if self.handles().is_file_written(inode) || self.inodes().was_locked(inode) {
            return None;
        }
        let readings = self.handles().readings(inode);
        readings.into_iter().find(|reading| !reading.is_beside_draft())
    }

    /// Returns the number of a name behind which `version` is; `None` stands for anything but a version of a file.
    pub(super) fn number_of_version(
        &self,
        parent: u64,
        name: &str,
        version: Option<VersionId>,
    ) -> u64 {
        let known = self.number(parent, name);
        if let Some(number) = known
            && let Some(reading) = self.pinned(number)
            && version != Some(reading.file().version())
        {
            self.inodes().outdate(number, self.pool.now());
        }
        self.inodes().of(parent, name)
    }

    /// Gives another number to the name of a version that programs read, as another version is taking its place.
    ///
    /// Errors: [`Errno::STALE`], on which the kernel looks the name up once more, and finds that number. Who comes at
    /// the same moment as many others shares theirs.
    pub(super) fn exchange_number(&self, inode: u64) -> Result<(), Errno> {
        let is_read = self.pinned(inode).is_some();
        let now = self.pool.now();
        let mut inodes = self.inodes();
        let was_exchanged = inodes.take_exchange(inode, now.saturating_sub(LOOKED_UP));
        if !is_read || was_exchanged {
            return Ok(());
        }
        inodes.outdate(inode, now);
        Err(Errno::STALE)
    }

    /// Returns the number that stands for the locks of a file: who reads an old version of it locks what has its name.
    pub(super) fn locked_number(&self, inode: u64) -> u64 {
        self.inodes().locked_number(inode)
    }
}
