//! Listings, facts of one path, and sums over trees.

use super::chunks;
use super::dir_policies;
use super::entries::{self, Place};
use super::error::Error;
use super::placements;
use super::units;
use super::versions;
use super::walk::{Item, Walk, What};
use crate::sql::Tx;
use potluck_core::chunk::ChunkName;
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_core::policy::Policy;
use potluck_pool::redundancy::Layout;
use potluck_pool::redundancy::Version;
use potluck_wire::control::{ChildUse, Entry, EntryKind, Listing, Used};
use std::collections::HashSet;

/// Entries in one reply.
const PAGE: usize = 2000;

fn dir_entry(path: String, mtime_ms: i64) -> Entry {
    Entry {
        path,
        kind: EntryKind::Dir,
        size: 0,
        mtime_ms,
        version: None,
        digest: None,
        copies: None,
        ec: None,
        in_catalog: false,
        executable: false,
    }
}

fn file_entry(path: String, version: &Version) -> Entry {
    Entry {
        path,
        kind: EntryKind::File,
        size: version.size,
        mtime_ms: version.mtime_ms,
        version: Some(version.id),
        digest: Some(version.digest),
        copies: Some(version.copies),
        ec: version.ec,
        in_catalog: version.chunks == 0,
        executable: version.executable,
    }
}

fn entry(item: Item) -> Entry {
    match item.what {
        What::Dir(_) => dir_entry(item.path, item.mtime_ms),
        What::File(version) => file_entry(item.path, &version),
    }
}

/// Whether an entry below `path` is of the pool's own metadata, which users neither see nor name.
fn is_system(path: &PoolPath, item: &Item) -> bool {
    path.space().is_empty() && item.path.split('/').next() == Some(SYSTEM_SPACE)
}

/// The next page of a listing.
pub(crate) fn list(
    db: &Tx,
    path: &PoolPath,
    recursive: bool,
    after: Option<&str>,
) -> Result<Listing, Error> {
    let dir = match entries::existing(db, path)?.place {
        Place::Dir(dir) => dir,
        Place::File(version) => {
            let entries = vec![file_entry(String::new(), &versions::get(db, version)?)];
            return Ok(Listing { entries, next: None });
        }
    };
    let mut walk = Walk::new(db, dir, recursive, after)?;
    let mut listing = Listing::default();
    while let Some(item) = walk.next_item()? {
        if is_system(path, &item) {
            continue;
        }
        if listing.entries.len() == PAGE {
            listing.next = listing.entries.last().map(|last: &Entry| last.path.clone());
            return Ok(listing);
        }
        listing.entries.push(entry(item));
    }
    Ok(listing)
}

/// The facts about one path.
#[derive(Debug)]
pub struct Facts {
    /// As in a listing.
    pub entry: Entry,
    /// The policy that holds there.
    pub policy: Policy,
    /// Of a file, its version.
    pub version: Option<Version>,
    /// Of a file, its chunks with their holders.
    pub layout: Layout,
}

/// The facts of one path.
pub(crate) fn stat(db: &Tx, path: &PoolPath) -> Result<Facts, Error> {
    let found = entries::existing(db, path)?;
    let policy = dir_policies::effective(db, path)?;
    Ok(match found.place {
        Place::Dir(_) => Facts {
            entry: dir_entry(String::new(), found.mtime_ms),
            policy,
            version: None,
            layout: Layout::default(),
        },
        Place::File(version) => {
            let version = versions::get(db, version)?;
            Facts {
                entry: file_entry(String::new(), &version),
                policy,
                layout: units::layout(db, &version)?,
                version: Some(version),
            }
        }
    })
}

/// Sums over a tree and its direct children.
pub(crate) fn usage(db: &Tx, path: &PoolPath) -> Result<Used, Error> {
    let mut used = Used::default();
    let mut seen = HashSet::new();
    match entries::existing(db, path)?.place {
        Place::File(version) => {
            let version = versions::get(db, version)?;
            count(db, &version, &mut used, &mut seen)?;
        }
        Place::Dir(dir) => {
            let mut walk = Walk::new(db, dir, true, None)?;
            while let Some(item) = walk.next_item()? {
                if !is_system(path, &item) {
                    count_item(db, &item, &mut used, &mut seen)?;
                }
            }
        }
    }
    Ok(used)
}

fn count_item(
    db: &Tx,
    item: &Item,
    used: &mut Used,
    seen: &mut HashSet<ChunkName>,
) -> Result<(), Error> {
    // In walk order a direct child comes first, then all that is below it.
    if !item.path.contains('/') {
        let dir = matches!(item.what, What::Dir(_));
        used.children.push(ChildUse { name: item.path.clone(), dir, ..ChildUse::default() });
    }
    match &item.what {
        What::Dir(_) => used.dirs += 1,
        What::File(version) => {
            if let Some(child) = used.children.last_mut() {
                child.files += 1;
                child.bytes += version.size;
            }
            count(db, version, used, seen)?;
        }
    }
    Ok(())
}

fn count(
    db: &Tx,
    version: &Version,
    used: &mut Used,
    seen: &mut HashSet<ChunkName>,
) -> Result<(), Error> {
    used.files += 1;
    used.bytes += version.size;
    if version.chunks == 0 {
        return Ok(());
    }
    for entry in versions::recipe_of(db, version)? {
        count_copies(db, entry.name, used, seen)?;
    }
    for name in versions::parity(db, version)? {
        count_copies(db, name, used, seen)?;
    }
    Ok(())
}

fn count_copies(
    db: &Tx,
    name: ChunkName,
    used: &mut Used,
    seen: &mut HashSet<ChunkName>,
) -> Result<(), Error> {
    if seen.insert(name)
        && let Some(chunk) = chunks::get(db, &name)?
    {
        let copies = placements::holders(db, chunk.id)?.len() as u64;
        used.stored += copies * u64::from(chunk.len);
    }
    Ok(())
}
