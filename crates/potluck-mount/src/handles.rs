//! What programs have open.

use crate::draft::Draft;
use crate::reading::Reading;
use potluck_wire::control::ListedEntry;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Mutex;

/// A draft that the handles of one file share.
pub type SharedDraft = Arc<Mutex<Draft>>;

/// An open file or directory.
#[derive(Clone)]
pub enum Handle {
    /// A version that is read.
    Reading(Arc<Reading>),
    /// A file that is written; with `appends` at its end, whatever the offset.
    Writing { draft: SharedDraft, appends: bool },
    /// The entries of a directory as they were when it was opened.
    Listing(Arc<Vec<ListedEntry>>),
}

/// An open handle, and the file that it is of.
#[derive(Clone)]
pub struct OpenHandle {
    /// The number of the file.
    pub inode: u64,
    /// The way in which it is open.
    pub handle: Handle,
    /// The process that opened it and has not closed it, if that is known.
    pub opener: Option<u32>,
}

/// All handles that are open, and the drafts behind them.
#[derive(Default)]
pub struct OpenHandles {
    open: HashMap<u64, OpenHandle>,
    drafts: HashMap<u64, SharedDraft>,
    last: u64,
}

impl OpenHandles {
    /// Gives an open file a handle.
    pub fn add(&mut self, inode: u64, handle: Handle, opener: Option<u32>) -> u64 {
        if let Handle::Writing { draft, .. } = &handle {
            self.drafts.insert(inode, Arc::clone(draft));
        }
        self.last += 1;
        self.open.insert(self.last, OpenHandle { inode, handle, opener });
        self.last
    }

    /// An open handle.
    pub fn get(&self, number: u64) -> Option<OpenHandle> {
        self.open.get(&number).cloned()
    }

    /// The process that opened a handle has closed it; others may still have it.
    pub fn leave(&mut self, number: u64) {
        if let Some(opened) = self.open.get_mut(&number) {
            opened.opener = None;
        }
    }

    /// The draft of a file that is being written.
    pub fn draft(&self, inode: u64) -> Option<SharedDraft> {
        self.drafts.get(&inode).cloned()
    }

    /// The files that are being written.
    pub fn drafts(&self) -> Vec<(u64, SharedDraft)> {
        self.drafts.iter().map(|(inode, draft)| (*inode, Arc::clone(draft))).collect()
    }

    /// Whether a file is open.
    pub fn is_open(&self, inode: u64) -> bool {
        self.open.values().any(|opened| opened.inode == inode)
    }

    /// Closes a handle; with the last that writes a file its draft is over.
    pub fn remove(&mut self, number: u64) -> Option<OpenHandle> {
        let removed = self.open.remove(&number)?;
        let writes = |opened: &OpenHandle| {
            opened.inode == removed.inode && matches!(opened.handle, Handle::Writing { .. })
        };
        if !self.open.values().any(writes) {
            self.drafts.remove(&removed.inode);
        }
        Some(removed)
    }
}
