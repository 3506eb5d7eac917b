//! The local files that are being stored, from which chunks can be read again until they are visible.

use crate::source::{Input, Item};
use potluck_core::path::PoolPath;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The local files of a session, by the paths at which they are to become visible. They are not kept open: there may be
/// more of them than a process may open. Clones share the list.
#[derive(Clone, Default)]
pub(super) struct LocalFiles(Arc<Mutex<BTreeMap<PoolPath, LocalSource>>>);

struct LocalSource {
    path: PathBuf,
    is_archived: bool,
    /// True once the file is read from its beginning again.
    is_second: bool,
}

impl LocalFiles {
    /// Notes the source of an item that is about to be cut, if it is a local file.
    pub fn note(&self, item: &Item) {
        if let Input::File(path) | Input::Archived(path) = &item.input {
            let mut files = self.0.lock().expect("no holder panics");
            files.entry(item.path.clone()).or_insert_with(|| LocalSource {
                path: path.clone(),
                is_archived: matches!(item.input, Input::Archived(_)),
                is_second: false,
            });
        }
    }

    /// Returns the local file that is to become visible at `path`.
    pub fn get(&self, path: &PoolPath) -> Option<PathBuf> {
        self.0.lock().expect("no holder panics").get(path).map(|local| local.path.clone())
    }

    /// Returns the source of a file as an item that is to be read from its beginning once more, with its length in bytes;
    /// `None` if it is no local file, or was read twice already.
    pub fn once_more(&self, path: &PoolPath) -> Option<(Item, u64)> {
        let mut files = self.0.lock().expect("no holder panics");
        let local = files.get_mut(path).filter(|local| !local.is_second)?;
        local.is_second = true;
        let input = match local.is_archived {
            true => Input::Archived(local.path.clone()),
            false => Input::File(local.path.clone()),
        };
        let bytes = length(&local.path);
        Some((Item { path: path.clone(), input }, bytes))
    }

    /// Forgets a file that is visible, or that does not become visible.
    pub fn forget(&self, path: &PoolPath) {
        self.0.lock().expect("no holder panics").remove(path);
    }
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |about| about.len())
}
