//! `cp -a`: keeps owners, modes and times. Files and links get them when they are stored, and directories after
//! everything in them is stored.

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

/// Returns the owner of a local file or directory.
pub fn owner_of(about: &Metadata) -> FileOwner {
    FileOwner { uid: about.uid(), gid: about.gid() }
}

/// Returns the attributes of a local file or directory.
pub fn attributes_of(about: &Metadata) -> EntryAttributes {
    let mtime = FileTime(about.mtime().saturating_mul(1_000_000_000) + about.mtime_nsec());
    let permissions = Permissions::of_mode(about.mode());
    EntryAttributes::new(mtime, permissions, Some(owner_of(about)))
}

/// Lists the directories at and below `from`, with the paths of their copies at `to` and the attributes of their
/// sources.
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

/// Sets the attributes of directories of the pool; returns those for which that failed.
pub async fn set_attributes(client: &Pool, dirs: Vec<ArchivedDir>) -> Vec<(PoolPath, Failure)> {
    let set = |(path, attributes): ArchivedDir| async move {
        let set = SetAttributes { path, version: None, attributes: attributes.into() };
        client.set_attributes(&set).await.err().map(|error| (set.path, error))
    };
    some_at_once(dirs.into_iter().map(set)).await.into_iter().flatten().collect()
}
