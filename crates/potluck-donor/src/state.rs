//! What a donor remembers about itself, apart from the store: its key, which store is its own, and
//! the manager of the highest epoch it has heard.

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
const MAX_STATE: u64 = 64 << 10;

/// A donor's memory, in one small file that only its owner can read.
#[derive(Debug, Clone)]
pub(crate) struct State {
    path: PathBuf,
    remembered: Remembered,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Remembered {
    /// Shared with the manager alone; tickets and receipts are worth nothing without it.
    key: Secret,
    #[serde(default)]
    store: Option<KnownStore>,
    #[serde(default)]
    epoch: Epoch,
    /// Which manager of that epoch; 0 when that is not known.
    #[serde(default)]
    start: u64,
    /// The most changes that it said its catalog had.
    #[serde(default)]
    changes: u64,
}

impl State {
    /// Reads the state in `dir`, or begins it with a new key.
    pub fn load(disk: &dyn Disk, entropy: &dyn Entropy, dir: &Path) -> io::Result<Self> {
        let path = dir.join(FILE);
        match read_small(disk, &path, MAX_STATE) {
            Ok(text) => Ok(Self { path, remembered: serde_json::from_slice(&text)? }),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                crate::store::make_dirs(disk, dir)?;
                let key = Secret::generate(entropy);
                let remembered =
                    Remembered { key, store: None, epoch: Epoch::default(), start: 0, changes: 0 };
                let state = Self { path, remembered };
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
        &self.remembered.key
    }

    /// The store, once there is one.
    pub fn store(&self) -> Option<&KnownStore> {
        self.remembered.store.as_ref()
    }

    /// The manager of the highest epoch heard.
    pub fn heard(&self) -> ManagerLife {
        (self.remembered.epoch, self.remembered.start)
    }

    /// The most changes that it said its catalog had.
    pub fn heard_changes(&self) -> u64 {
        self.remembered.changes
    }

    /// Notes that it said so; in memory, until the next save.
    pub fn note_changes(&mut self, changes: u64) {
        self.remembered.changes = self.remembered.changes.max(changes);
    }

    /// Remembers the store.
    pub fn remember_store(&mut self, disk: &dyn Disk, store: KnownStore) -> io::Result<()> {
        if self.remembered.store.as_ref() == Some(&store) {
            return Ok(());
        }
        self.remembered.store = Some(store);
        self.save(disk)
    }

    /// Remembers that `manager` was heard, and the most changes that it told of.
    pub fn remember_manager(
        &mut self,
        disk: &dyn Disk,
        manager: ManagerLife,
        changes: u64,
    ) -> io::Result<()> {
        (self.remembered.epoch, self.remembered.start) = manager;
        self.remembered.changes = changes;
        self.save(disk)
    }

    fn save(&self, disk: &dyn Disk) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&self.remembered)?;
        replace_durably(disk, &self.path, &text)
    }
}
