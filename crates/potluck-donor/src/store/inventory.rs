//! All that is held, page by page in order of names, without ever being in memory at once.

use super::layout::chunk_of;
use super::{Store, stored_len};
use potluck_core::chunk::ChunkName;
use potluck_wire::control::{Holding, INVENTORY_PAGE};
use serde::{Deserialize, Serialize};
use std::io;

/// Where the next page begins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    bucket: u8,
    /// The last name listed, if it was in this bucket.
    after: Option<ChunkName>,
}

impl Cursor {
    /// What follows `name`.
    pub fn after(name: ChunkName) -> Self {
        Self { bucket: name.0[0], after: Some(name) }
    }
}

/// A page, and where the next begins unless this was the last.
#[derive(Debug)]
pub(crate) struct Page {
    pub holdings: Vec<Holding>,
    pub next: Option<Cursor>,
}

impl Store {
    /// The page at `cursor`: what is held now, not what was when the listing began, so that a
    /// deletion that was reported before is not taken back by a later page.
    pub fn page(&self, cursor: Cursor) -> io::Result<Page> {
        self.page_of(cursor, INVENTORY_PAGE)
    }

    /// The page at `cursor`, of at most `most` chunks.
    pub(crate) fn page_of(&self, mut cursor: Cursor, most: usize) -> io::Result<Page> {
        let mut holdings = Vec::new();
        loop {
            let mut listed = self.bucket(cursor.bucket, cursor.after)?;
            let room = most - holdings.len();
            if listed.len() > room {
                listed.truncate(room);
                holdings.extend(listed);
                cursor.after = holdings.last().map(|holding| holding.name);
                return Ok(Page { holdings, next: Some(cursor) });
            }
            holdings.extend(listed);
            match cursor.bucket.checked_add(1) {
                Some(bucket) => cursor = Cursor { bucket, after: None },
                None => return Ok(Page { holdings, next: None }),
            }
        }
    }

    /// What one bucket holds after a name, sorted.
    fn bucket(&self, bucket: u8, after: Option<ChunkName>) -> io::Result<Vec<Holding>> {
        let mut listed = Vec::new();
        self.disk().list(&self.layout().bucket(bucket), &mut |entry| {
            let name = chunk_of(bucket, entry.name).filter(|name| after.is_none_or(|a| *name > a));
            let len = entry.file.and_then(stored_len);
            listed.extend(name.zip(len).map(|(name, len)| Holding { name, len }));
        })?;
        listed.sort_unstable_by_key(|holding| holding.name);
        Ok(listed)
    }
}
