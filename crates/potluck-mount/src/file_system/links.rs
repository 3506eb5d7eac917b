//! Symbolic links, which the kernel of this machine follows; the pool never follows them.

use super::{FileSystem, NewEntry, ShownEntry};
use potluck_core::attributes::{EntryAttributes, FileOwner, Permissions};
use potluck_core::link_target::{BadTarget, LinkTarget};
use potluck_wire::control::{Condition, EntryKind, MakeLinks, NewLink};
use potluck_wire::error::code;
use rustix::io::Errno;

impl FileSystem {
    /// Makes a link at a name that is free.
    pub async fn make_link(
        &self,
        parent: u64,
        name: &str,
        target: String,
        owner: Option<FileOwner>,
    ) -> Result<ShownEntry, Errno> {
        self.closed_are_published().await;
        let path = self.child(parent, name)?;
        if path.names().is_empty() {
            return Err(Errno::PERM); // only spaces are in the root of the pool
        }
        let target = LinkTarget::try_from(target).map_err(|why| match why {
            BadTarget::Long(_) => Errno::NAMETOOLONG,
            BadTarget::Empty | BadTarget::Nul => Errno::INVAL,
        })?;
        let made = NewEntry { permissions: Permissions::LINK, owner };
        let NewEntry { permissions, owner } = self.inheriting(parent, made, false).await?;
        let size = target.as_str().len() as u64;
        let links = vec![NewLink { path: path.clone(), target, mtime: None, owner }];
        let make = MakeLinks { links, parents: false, condition: Condition::IfAbsent };
        let once = || async {
            let mut made = self.pool.make_links(&make).await?;
            made.failed.pop().map_or(Ok(made.modified), |failed| Err(failed.failure))
        };
        let change = async { Ok(self.once(code::EXISTS, once).await?.flatten()) };
        match self.metadata.changing(&[&path], change).await? {
            Some(mtime) => {
                let attributes = EntryAttributes::new(mtime, permissions, owner);
                Ok(self.made((parent, name), EntryKind::Link, size, attributes))
            }
            None => self.lookup(parent, name).await,
        }
    }

    /// Returns the target of a link.
    ///
    /// Errors: [`Errno::STALE`] if no link is there any more: on that the kernel looks the name up once more.
    pub async fn target(&self, inode: u64) -> Result<LinkTarget, Errno> {
        let path = self.inodes().last_path(inode)?;
        let target = self.stat(&path).await.and_then(|entry| entry.target.ok_or(Errno::STALE));
        target.map_err(|why| self.looked_up_again(inode, why))
    }
}
