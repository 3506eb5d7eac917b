//! Operations on cached files, whose chunks can be fetched again from their origins.

use crate::chunks::units;
use crate::names::{
    entries::{self, EntryPlace},
    walk::{Walk, What},
};
use crate::sql::Tx;
use crate::versions::{self, parts};
use crate::{Catalog, Durability, Error};
use potluck_core::origin::CacheState;
use potluck_core::path::PoolPath;
use potluck_pool::redundancy::{Layout, Version};

/// The number of chunks of evicted files at which a page ends, so that commits do not wait long.
const PAGE_CHUNKS: u64 = 4096;
/// The most entries that one page looks at.
const PAGE_ENTRIES: usize = 1000;

/// A page of files that were evicted.
#[derive(Debug, Default)]
pub struct EvictedPage {
    /// The number of files.
    pub files: u64,
    /// The size of the files in bytes of plaintext.
    pub bytes: u64,
    /// The number of cached files that stay because they, or directories above them, are pinned.
    pub pinned: u64,
    /// The versions and parts whose chunks may go, each with its layout.
    pub versions: Vec<(Version, Layout)>,
    /// The cursor from which the next page goes on; `None` after the last.
    pub next: Option<String>,
}

impl Catalog {
    /// Evicts the cached files at and below a path, a page in one transaction.
    pub async fn evict(&self, path: PoolPath, after: Option<String>) -> Result<EvictedPage, Error> {
        let evict = move |db: &_| evict(db, &path, after.as_deref());
        self.write(Durability::Process, evict).await
    }
}

fn evict(db: &Tx, path: &PoolPath, after: Option<&str>) -> Result<EvictedPage, Error> {
    let mut page = EvictedPage::default();
    let is_pinned = is_pinned_above(db, path)?;
    let dir = match entries::existing(db, path)?.place {
        EntryPlace::File(id) => {
            let version = versions::get(db, id)?;
            page.take(db, &version, is_pinned)?;
            return Ok(page);
        }
        EntryPlace::Link(_) => return Ok(page),
        EntryPlace::Dir(dir) => dir,
    };
    let mut walk = Walk::new(db, dir, true, after)?.visible();
    let (mut chunks, mut met) = (0, 0);
    while let Some(item) = walk.next_item()? {
        page.next = Some(item.path.clone());
        met += 1;
        if let What::File(version) = item.what {
            let is_pinned = is_pinned || item.pinned || {
                let at = path.join_all(item.path.split('/'));
                at.is_ok_and(|at| is_pinned_above(db, &at).unwrap_or(true))
            };
            if !version.cache.is_kept() {
                chunks += version.chunks;
            }
            page.take(db, &version, is_pinned)?;
        }
        if chunks >= PAGE_CHUNKS || met >= PAGE_ENTRIES {
            return Ok(page);
        }
    }
    page.next = None;
    Ok(page)
}

/// Returns whether an entry, or a directory above it, is pinned.
fn is_pinned_above(db: &Tx, path: &PoolPath) -> Result<bool, Error> {
    let mut at = Some(path.clone());
    while let Some(path) = at.filter(|path| !path.names().is_empty()) {
        let (above, name) = entries::split(&path)?;
        if entries::is_pinned(db, entries::existing_dir(db, &above)?, name)? {
            return Ok(true);
        }
        at = path.parent();
    }
    Ok(false)
}

impl EvictedPage {
    /// Evicts a version, if it is cached and has chunks on donors.
    fn take(&mut self, db: &Tx, version: &Version, is_pinned: bool) -> Result<(), Error> {
        if version.cache.is_kept() || version.chunks == 0 {
            return Ok(());
        }
        if is_pinned {
            self.pinned += 1;
            return Ok(());
        }
        if version.cache == CacheState::Cached {
            self.files += 1;
            self.bytes += version.data();
        }
        versions::set_cache(db, version.id, CacheState::Evicted)?;
        let with_parts = [version.id].into_iter().chain(parts::of(db, version.id)?);
        for id in with_parts {
            let version = versions::get(db, id)?;
            let layout = units::layout(db, &version)?;
            if !layout.pieces.is_empty() {
                self.versions.push((version, layout));
            }
        }
        Ok(())
    }
}
