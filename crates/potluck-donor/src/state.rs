//! What a donor remembers about itself, apart from the store: its key, which store is its own, and
//! the manager of the highest epoch it has heard. What it heard changes all the time and has a file of
//! its own, so that no power cut on a disk that lies about what it synced takes the key with it.

use crate::disk::{Disk, read_small, replace_durably};
use crate::standing::ManagerLife;
use crate::store::KnownStore;
use potluck_core::entropy::Entropy;
use potluck_core::ids::Epoch;
use potluck_wire::ticket::Secret;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "donor.json";
const HEARD: &str = "heard.json";
const MAX_STATE: u64 = 64 << 10;

/// A donor's memory, in small files that only its owner can read.
#[derive(Debug, Clone)]
pub(crate) struct State {
    path: PathBuf,
    own: Own,
    heard: Heard,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Own {
    /// Shared with the manager alone; tickets and receipts are worth nothing without it.
    key: Secret,
    #[serde(default)]
    store: Option<KnownStore>,
    /// Where releases up to 0.2 kept it.
    #[serde(flatten, skip_serializing)]
    heard: Heard,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Heard {
    epoch: Epoch,
    /// Which manager of that epoch; 0 when that is not known.
    start: u64,
    /// The most changes that it said its catalog had.
    changes: u64,
}

impl State {
    /// Reads the state in `dir`, or begins it with a new key.
    pub fn load(disk: &dyn Disk, entropy: &dyn Entropy, dir: &Path) -> io::Result<Self> {
        let path = dir.join(FILE);
        match read_small(disk, &path, MAX_STATE) {
            Ok(text) => {
                let own: Own = serde_json::from_slice(&text)?;
                let heard = Heard::load(disk, &path.with_file_name(HEARD))?;
                let moves = heard.is_none() && own.heard != Heard::default();
                let heard = heard.unwrap_or_else(|| own.heard.clone());
                let state = Self { heard, own, path };
                if moves {
                    state.save_heard(disk)?; // the next save of the other file forgets it
                }
                Ok(state)
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                crate::store::make_dirs(disk, dir)?;
                let key = Secret::generate(entropy);
                let own = Own { key, store: None, heard: Heard::default() };
                let state = Self { path, own, heard: Heard::default() };
                state.save(disk)?;
                Ok(state)
            }
            Err(why) => Err(why),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key that tickets and receipts are signed with.
    pub fn key(&self) -> &Secret {
        &self.own.key
    }

    /// The store, once there is one.
    pub fn store(&self) -> Option<&KnownStore> {
        self.own.store.as_ref()
    }

    /// The manager of the highest epoch heard.
    pub fn heard(&self) -> ManagerLife {
        (self.heard.epoch, self.heard.start)
    }

    /// The most changes that it said its catalog had.
    pub fn heard_changes(&self) -> u64 {
        self.heard.changes
    }

    /// Notes that it said so; in memory, until the next save.
    pub fn note_changes(&mut self, changes: u64) {
        self.heard.changes = self.heard.changes.max(changes);
    }

    /// Remembers the store.
    pub fn remember_store(&mut self, disk: &dyn Disk, store: KnownStore) -> io::Result<()> {
        if self.own.store.as_ref() == Some(&store) {
            return Ok(());
        }
        self.own.store = Some(store);
        self.save(disk)
    }

    /// Remembers that `manager` was heard, and the most changes that it told of.
    pub fn remember_manager(
        &mut self,
        disk: &dyn Disk,
        manager: ManagerLife,
        changes: u64,
    ) -> io::Result<()> {
        let (epoch, start) = manager;
        self.heard = Heard { epoch, start, changes };
        self.save_heard(disk)
    }

    fn save_heard(&self, disk: &dyn Disk) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&self.heard)?;
        replace_durably(disk, &self.path.with_file_name(HEARD), &text)
    }

    fn save(&self, disk: &dyn Disk) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&self.own)?;
        replace_durably(disk, &self.path, &text)
    }
}

impl Heard {
    /// What the file says; `None` without one, or when it is damaged: other donors heard too, and a
    /// donor that does not start would help nobody.
    fn load(disk: &dyn Disk, path: &Path) -> io::Result<Option<Self>> {
        match read_small(disk, path, MAX_STATE) {
            Ok(text) => Ok(serde_json::from_slice(&text)
                .inspect_err(|why| {
                    tracing::warn!("{} is damaged and ignored: {why}", path.display());
                })
                .ok()),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;
    use potluck_core::entropy::SeededEntropy;

    #[test]
    fn what_was_heard_may_be_damaged_and_the_key_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let load = || State::load(&SystemDisk, &SeededEntropy::new(1), dir.path()).expect("loaded");
        let mut state = load();
        let key = state.key().clone();
        state.remember_manager(&SystemDisk, (Epoch(3), 7), 11).expect("kept");
        let again = load();
        assert_eq!((again.heard(), again.heard_changes()), ((Epoch(3), 7), 11));
        std::fs::write(dir.path().join(HEARD), b"").expect("damaged");
        let again = load();
        assert_eq!((again.heard(), again.heard_changes()), (ManagerLife::default(), 0));
        assert!(*again.key() == key);

        // Of a release that kept both in one file.
        std::fs::remove_file(dir.path().join(HEARD)).expect("removed");
        let path = dir.path().join(FILE);
        let text = std::fs::read_to_string(&path).expect("read");
        let old = text.replacen('{', r#"{"epoch": 5, "start": 9,"#, 1);
        std::fs::write(&path, old).expect("written");
        let mut state = load();
        assert_eq!(state.heard(), (Epoch(5), 9));
        // It is still known when that file was written anew, before a manager is heard again.
        let moved = serde_json::from_str(r#"{"id": "0f", "dir": "/new"}"#).expect("a store");
        state.remember_store(&SystemDisk, moved).expect("kept");
        assert_eq!(load().heard(), (Epoch(5), 9));
    }
}
