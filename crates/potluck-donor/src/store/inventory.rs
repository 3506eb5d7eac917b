//! The inventory: all chunks that are held, page by page in order of names, so that the list is never in memory as a
//! whole.

use super::Store;
use super::layout::chunk_of;
use potluck_core::chunk::ChunkName;
use potluck_core::chunk_file::{disk_bytes, file_len, stored_len};
use potluck_wire::control::{Holding, INVENTORY_PAGE};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;

/// The place where the next page of the inventory begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    bucket: u8,
    /// The last name that was listed, if it was in this bucket.
    after: Option<ChunkName>,
}

impl Cursor {
    /// Returns the place right after `name`.
    pub fn after(name: ChunkName) -> Self {
        Self { bucket: name.0[0], after: Some(name) }
    }
}

/// The rest of the bucket that a walk through the store is in. Each bucket is listed once: otherwise a walk that reads
/// a chunk now and then would list thousands of files for each.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ListedAhead(Option<(u8, VecDeque<Holding>)>);

impl ListedAhead {
    /// Returns the chunk at `place`; the caller then moves `place` after that chunk. Chunks that came into the bucket
    /// since it was listed are passed over, and chunks that were removed since may still be returned. Returns `None`,
    /// and sets `place` to `None`, at the end.
    pub fn next(
        &mut self,
        store: &Store,
        place: &mut Option<Cursor>,
    ) -> io::Result<Option<Holding>> {
        while let Some(Cursor { bucket, after }) = *place {
            if self.0.as_ref().is_none_or(|(listed, _)| *listed != bucket) {
                self.0 = Some((bucket, store.bucket(bucket, after)?.into()));
            }
            let rest = self.0.as_mut().map(|(_, rest)| rest);
            let passed = |holding: &mut Holding| after.is_some_and(|after| holding.name <= after);
            if let Some(rest) = rest {
                while rest.pop_front_if(passed).is_some() {}
                if let Some(next) = rest.front() {
                    return Ok(Some(*next));
                }
            }
            *place = bucket.checked_add(1).map(|bucket| Cursor { bucket, after: None });
        }
        self.0 = None;
        Ok(None)
    }
}

/// A page of the inventory, and where the next begins unless this was the last.
#[derive(Debug)]
pub(crate) struct InventoryPage {
    pub holdings: Vec<Holding>,
    pub next: Option<Cursor>,
}

impl Store {
    /// Returns the page at `cursor`: the chunks that are held now, not when the listing began, so that a later page
    /// does not undo a deletion that was reported before.
    pub fn page(&self, cursor: Cursor) -> io::Result<InventoryPage> {
        self.page_of(cursor, INVENTORY_PAGE)
    }

    /// Returns the page at `cursor`, of at most `most` chunks.
    pub(crate) fn page_of(&self, mut cursor: Cursor, most: usize) -> io::Result<InventoryPage> {
        let mut holdings = Vec::new();
        loop {
            let mut listed = self.bucket(cursor.bucket, cursor.after)?;
            let room = most - holdings.len();
            if listed.len() > room {
                listed.truncate(room);
                holdings.extend(listed);
                cursor.after = holdings.last().map(|holding| holding.name);
                return Ok(InventoryPage { holdings, next: Some(cursor) });
            }
            holdings.extend(listed);
            match cursor.bucket.checked_add(1) {
                Some(bucket) => cursor = Cursor { bucket, after: None },
                None => return Ok(InventoryPage { holdings, next: None }),
            }
        }
    }

    /// Counts the files anew, so that files that vanished take no room any more.
    pub fn recount(&self) -> io::Result<()> {
        self.usage.begin_recount();
        let mut found = disk_bytes(self.disk().len(self.layout().marker())?);
        for bucket in 0..=u8::MAX {
            let held = self.bucket(bucket, None)?;
            found += held.iter().map(|holding| disk_bytes(file_len(holding.len))).sum::<u64>();
        }
        // The quarantine is counted last, so that a chunk that is quarantined meanwhile is counted twice at worst. One
        // that is taken out of quarantine meanwhile may be missed, and is noted as a file that may be.
        self.disk().list(self.layout().quarantine(), &mut |entry| {
            found += entry.file.map_or(0, disk_bytes);
        })?;
        if !self.present() {
            return Ok(()); // the store went away meanwhile, so what was counted says nothing
        }
        let vanished = self.usage.end_recount(found);
        if vanished > 0 {
            tracing::warn!(
                "{vanished} bytes of the store in {} are gone, and nobody here removed them",
                self.layout().root().display()
            );
        }
        Ok(())
    }

    /// Lists the chunks of one bucket whose names come after `after`, sorted by name.
    fn bucket(&self, bucket: u8, after: Option<ChunkName>) -> io::Result<Vec<Holding>> {
        let mut listed = Vec::new();
        let list = self.disk().list(&self.layout().bucket(bucket), &mut |entry| {
            let name = chunk_of(bucket, entry.name).filter(|name| after.is_none_or(|a| *name > a));
            let len = entry.file.and_then(stored_len);
            listed.extend(name.zip(len).map(|(name, len)| Holding { name, len }));
        });
        match list {
            // Somebody removed the directory, so its chunks are missing.
            Err(why) if why.kind() == io::ErrorKind::NotFound && self.present() => {}
            list => list?,
        }
        listed.sort_unstable_by_key(|holding| holding.name);
        Ok(listed)
    }
}
