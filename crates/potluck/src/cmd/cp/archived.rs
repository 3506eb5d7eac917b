//! `cp -a`: owners, modes and times of what is copied. Files and links have them from the start, and directories get
//! them when nothing comes into them any more.

use super::calls::some_at_once;
use super::place::bad_path;
use potluck_client::Pool;
use potluck_core::attributes::{EntryAttributes, FileOwner, FileTime, Permissions};
use potluck_core::path::PoolPath;
use potluck_wire::control::{EntryKind, List, SetAttributes};
use potluck_wire::error::Failure;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A directory of the copy, with the attributes of its source.
pub type ArchivedDir = (PoolPath, EntryAttributes);

/// The owner of something of this machine.
pub fn owner_of(about: &Metadata) -> FileOwner {
    FileOwner { uid: about.uid(), gid: about.gid() }
}

/// The attributes of something of this machine.
pub fn attributes_of(about: &Metadata) -> EntryAttributes {
    let mtime = FileTime(about.mtime().saturating_mul(1_000_000_000) + about.mtime_nsec());
    let permissions = Permissions::of_mode(about.mode());
    EntryAttributes { mtime, permissions, owner: Some(owner_of(about)) }
}

/// The directories at and below `from`, by the paths of their copies at `to`.
pub async fn dirs_of(
    client: &Pool,
    from: &PoolPath,
    to: &PoolPath,
) -> Result<Vec<ArchivedDir>, Failure> {
    let mut dirs = vec![(to.clone(), client.stat(from).await?.entry.attributes())];
    let mut after = None;
    loop {
        let page = client.call(&List { path: from.clone(), recursive: true, after }).await?;
        for dir in page.entries.iter().filter(|entry| entry.kind == EntryKind::Dir) {
            let path = to.join_all(dir.path.split('/'));
            dirs.push((path.map_err(bad_path)?, dir.attributes()));
        }
        after = page.next;
        if after.is_none() {
            return Ok(dirs);
        }
    }
}

/// Gives directories of the pool their attributes; gives those that could not have them.
pub async fn set_attributes(client: &Pool, dirs: Vec<ArchivedDir>) -> Vec<(PoolPath, Failure)> {
    let set = |(path, attributes): ArchivedDir| async move {
        let set = SetAttributes { path, version: None, attributes: attributes.into() };
        client.set_attributes(&set).await.err().map(|error| (set.path, error))
    };
    some_at_once(dirs.into_iter().map(set)).await.into_iter().flatten().collect()
}
