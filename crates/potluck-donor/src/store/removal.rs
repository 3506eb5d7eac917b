//! Removes a store once its donor has left the pool.

use super::layout::StoreLayout;
use super::marker::{self, Owner, StoreError};
use crate::disk::{Disk, SystemDisk};
use std::fs;
use std::io;
use std::path::Path;

/// The outcome of removing a lent directory's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRemoved {
    /// The directory is gone, or was gone before.
    All,
    /// The directory is there, and nothing is in it. It is a mount point, or the directory above it may not be
    /// written.
    Emptied,
    /// Potluck's files are gone; other files are there, which are left alone.
    OthersStay,
    /// The directory is no store, and is left alone.
    NotAStore,
}

/// Removes the store of `owner` from `dir`, and the directory if nothing else is in it. It may be called again after it
/// was interrupted, because the marker goes last.
///
/// Errors: the store is another donor's, a donor runs on it, or the file system fails.
pub fn remove(dir: &Path, owner: &Owner) -> Result<StoreRemoved, StoreError> {
    let layout = StoreLayout::new(dir);
    let failed = |why| layout.failed("removing the store", why);
    let lock = match SystemDisk.lock(dir) {
        Ok(lock) => lock,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(StoreRemoved::All),
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
            return Err(StoreError::Locked(dir.to_owned()));
        }
        Err(why) => return Err(failed(why)),
    };
    match marker::owner_of(&SystemDisk, &layout).map_err(failed)? {
        None => return Ok(StoreRemoved::NotAStore),
        Some(other) if other.pool != owner.pool => {
            return Err(StoreError::OtherPool { dir: dir.to_owned(), owner: Box::new(other) });
        }
        Some(other) if !other.is(owner) => {
            let (dir, other) = (dir.to_owned(), Box::new(other));
            return Err(StoreError::Other { dir, owner: other, own: owner.donor });
        }
        Some(_) => {}
    }
    for part in [layout.chunks(), layout.temp(), layout.quarantine()] {
        match fs::remove_dir_all(part) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(failed(why)),
            _ => {}
        }
    }
    fs::remove_file(layout.marker()).map_err(failed)?;
    drop(lock);
    Ok(match fs::remove_dir(dir) {
        Ok(()) => StoreRemoved::All,
        Err(_) if is_empty(dir).map_err(failed)? => StoreRemoved::Emptied,
        Err(_) => StoreRemoved::OthersStay,
    })
}

/// Has `each` take every chunk file in the store of a lent directory, of which there are none if there is no store.
pub fn each_stored(dir: &Path, mut each: impl FnMut(&fs::DirEntry)) -> io::Result<()> {
    let mut dirs = vec![StoreLayout::new(dir).chunks().to_owned()];
    while let Some(dir) = dirs.pop() {
        let entries = match fs::read_dir(dir) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => dirs.push(entry.path()),
                false => each(&entry),
            }
        }
    }
    Ok(())
}

/// Returns whether a directory holds nothing but the `lost+found` of its file system.
fn is_empty(dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(dir)? {
        if entry?.file_name() != "lost+found" {
            return Ok(false);
        }
    }
    Ok(true)
}
