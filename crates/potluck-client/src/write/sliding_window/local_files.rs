//! The local files that are being stored, from which chunks can be read again until they are visible.

use crate::source::{Input, Item};
use potluck_core::path::PoolPath;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The local files of a session, by the paths at which they are to become visible. They are not kept open: there may be
/// more of them than a process may open. Clones share the list.
#[derive(Clone, Default)]
pub(super) struct LocalFiles(Arc<Mutex<BTreeMap<PoolPath, PathBuf>>>);

impl LocalFiles {
    /// Notes the source of an item that is about to be cut, if it is a local file.
    pub fn note(&self, item: &Item) {
        if let Input::File(local) | Input::Archived(local) = &item.input {
            let mut files = self.0.lock().expect("no holder panics");
            files.insert(item.path.clone(), local.clone());
        }
    }

    /// Returns the local file that is to become visible at `path`.
    pub fn get(&self, path: &PoolPath) -> Option<PathBuf> {
        self.0.lock().expect("no holder panics").get(path).cloned()
    }

    /// Forgets a file that is visible, or that does not become visible.
    pub fn forget(&self, path: &PoolPath) {
        self.0.lock().expect("no holder panics").remove(path);
    }
}
