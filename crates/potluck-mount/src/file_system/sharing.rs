//! Shares files between mounts that write different bytes of them at once: `user.potluck.shared`.

use super::FileSystem;
use crate::errno::errno;
use potluck_wire::error::code;
use rustix::io::Errno;

impl FileSystem {
    /// Returns whether mounts share the file that a thread means.
    pub(super) async fn is_shared(&self, inode: u64, thread: u32) -> Result<bool, Errno> {
        let path = self.meant_path(inode, thread)?;
        match self.pool.open(&path).await {
            Ok(file) => Ok(file.is_shared()),
            Err(failure) => match failure.code.as_str() {
                // The file is being written and was never closed, or this is a directory.
                code::NO_ENTRY | code::NOT_RECURSIVE => Ok(false),
                _ => Err(errno(&failure)),
            },
        }
    }

    /// Makes the file that a thread means shared between mounts, or ends that.
    ///
    /// Errors: [`Errno::INVAL`] for any value but 1 and 0. For 1, [`Errno::BUSY`] if a program of this mount has
    /// written bytes that are in no version yet. For 0, [`Errno::BUSY`] if a program has the file open for writing, and
    /// [`Errno::NODATA`] if it is not shared.
    pub async fn set_shared(&self, inode: u64, value: &str, thread: u32) -> Result<(), Errno> {
        let path = self.meant_path(inode, thread)?;
        let draft = self.handles().draft(inode);
        match value.trim_end_matches(['\n', '\0']) {
            "1" => {
                if let Some(draft) = draft {
                    let mut draft_of_file = draft.lock().await;
                    // A program may have closed the file meanwhile: nobody would finish what this mount joins.
                    if self.is_open(inode, &draft) {
                        let shared = draft_of_file.become_shared(&path).await;
                        self.metadata.changed_here(&path);
                        return shared;
                    }
                }
                self.pool.share(&path, false).await.map_err(|failure| errno(&failure))
            }
            "0" => {
                self.wait_until_closed(|| self.handles().draft(inode).is_some()).await?;
                self.closed_are_published().await;
                match self.pool.end_sharing(&path).await {
                    Err(failure) if failure.code == code::NO_CHECKPOINT => Err(Errno::NODATA),
                    ended => ended.map_err(|failure| errno(&failure)),
                }
            }
            _ => Err(Errno::INVAL),
        }
    }
}
