//! Inventories, which a donor sends page by page after it registered: the list of all that it holds.
//!
//! A copy that was not listed is counted as missing, unless it arrived while the inventory was
//! under way. Nothing is deleted for it (promise D5).

use potluck_core::chunk::ChunkName;
use potluck_core::ids::ChunkId;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// An inventory under way.
#[derive(Debug, Default)]
pub struct InventoryProgress {
    pub(crate) next_page: u32,
    /// The known chunks that were listed, some more than once.
    pub(crate) listed: Vec<ChunkId>,
    /// The number of distinct chunks that `listed` had when duplicates were last removed.
    distinct: usize,
    /// The names that arrived during the inventory; they are looked up by name and never walked.
    pub(crate) arrived: HashSet<ChunkName>,
    /// True if more names arrived than are remembered, so that none is.
    too_many_arrived: bool,
    /// The names that are about to be counted as missing.
    pub(crate) suspected: HashSet<ChunkName>,
    /// True if one of the suspected names arrived after it was suspected.
    pub(crate) refuted: Arc<AtomicBool>,
}

/// The number of arrived names at which an inventory remembers none of them any more: nothing counts as missing by it
/// then, and the next inventory finds what is.
const MOST_ARRIVED: usize = 1 << 18;

impl InventoryProgress {
    /// Adds the known chunks of a page. Duplicates are removed now and then, so that a donor that lists some again and
    /// again takes no more memory for that.
    pub fn list(&mut self, chunks: &[ChunkId]) {
        self.listed.extend_from_slice(chunks);
        if self.listed.len() > 2 * self.distinct + (1 << 16) {
            self.listed.sort_unstable();
            self.listed.dedup();
            self.distinct = self.listed.len();
        }
    }

    /// Returns whether all names that arrived during the inventory are remembered.
    pub fn knows_arrivals(&self) -> bool {
        !self.too_many_arrived
    }

    pub fn arrived(&mut self, names: impl Iterator<Item = ChunkName>) {
        for name in names {
            if self.suspected.contains(&name) {
                self.refuted.store(true, Ordering::Release);
            }
            if !self.too_many_arrived {
                self.arrived.insert(name);
            }
            if self.arrived.len() >= MOST_ARRIVED {
                // A donor that never ends its list takes no memory for chunks that nobody will ask about.
                (self.arrived, self.too_many_arrived) = (HashSet::new(), true);
            }
        }
    }
}

/// The chunks that were counted at a donor and that its inventory did not list.
#[derive(Debug, Clone, Default)]
pub struct UnlistedCopies {
    /// The names of the unlisted chunks that had not arrived during the inventory.
    pub names: Vec<ChunkName>,
    /// True if the donor's store is new, so that nothing is wrong with its disk.
    pub new_store: bool,
    pub(crate) refuted: Weak<AtomicBool>,
}

impl UnlistedCopies {
    /// Returns whether all of these chunks are still known to be missing: none has arrived since, the inventory is
    /// under way, and no later search for unlisted copies has taken the place of this one.
    pub fn is_current(&self) -> bool {
        self.refuted.upgrade().is_some_and(|refuted| !refuted.load(Ordering::Acquire))
    }
}

/// The error for a page that does not follow the last, or that came from an incarnation that is not registered: the
/// donor begins anew with page 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfOrder;

impl From<OutOfOrder> for Failure {
    fn from(_: OutOfOrder) -> Self {
        let what = "this page of the inventory does not follow the last one that arrived";
        Failure::new(ErrorKind::Conflict, code::BAD_REQUEST, what).hint(
            "begin the inventory anew with page 0, after registering if the manager asks for it",
        )
    }
}

/// The place of a page of an inventory after the pages before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageDone {
    /// The page is the next in order.
    Next,
    /// The page is the one before, or one of an inventory that is complete, sent again because its reply was lost.
    Repeated,
}
