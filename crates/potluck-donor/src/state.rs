//! The state that a donor keeps apart from the store: its key, the identity of its store, and the manager of the
//! highest epoch that it has heard. The manager has a file of its own, which is often written, so that a power cut on a
//! disk that lies about what it synced does not take the key with it.

use crate::disk::{Disk, SystemDisk, read_small, replace_durably};
use crate::registration::ManagerTerm;
use crate::store::{KnownStore, Owner};
use potluck_core::chunk::Digest;
use potluck_core::entropy::Entropy;
use potluck_core::ids::Epoch;
use potluck_wire::ticket::Secret;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "donor.json";
const HEARD: &str = "heard.json";
const MAX_STATE: u64 = 64 << 10;

/// The state of a donor, in small files that only its owner can read.
#[derive(Debug, Clone)]
pub(crate) struct State {
    path: PathBuf,
    own: Own,
    heard: HeardManager,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Own {
    /// The donor whose state this is.
    owner: Owner,
    /// The key shared with the manager alone; tickets and receipts are worth nothing without it.
    key: Secret,
    #[serde(default)]
    store: Option<KnownStore>,
    /// True while the store replaces an earlier one that is lost, and no manager has had its whole inventory yet.
    #[serde(default, skip_serializing_if = "is_false")]
    begins_anew: bool,
}

fn is_false(it: &bool) -> bool {
    !it
}

/// A manager as it told this donor of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeardManager {
    pub epoch: Epoch,
    /// The number that tells managers of one epoch apart; 0 when it is not known.
    pub start: u64,
    /// The greatest number of changes that the manager said its catalog had.
    pub changes: u64,
    /// The manager's proof of its term, for the managers after it.
    pub proof: Option<Digest>,
}

impl HeardManager {
    /// Returns the term of the manager that said this.
    pub fn term(&self) -> ManagerTerm {
        (self.epoch, self.start)
    }
}

/// Returns the directories that the donor whose state is in `dir` lends, as far as it remembers.
pub fn lent_dirs(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match read_small(&SystemDisk, &dir.join(FILE), MAX_STATE) {
        Ok(text) => {
            let own: Own = serde_json::from_slice(&text)?;
            Ok(own.store.into_iter().map(|store| store.dir).collect())
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(why) => Err(why),
    }
}

/// The names of the files that a donor keeps in its state directory.
pub const STATE_FILES: [&str; 3] = [FILE, HEARD, crate::scrub::FILE];

impl State {
    /// Reads the state in `dir`, or begins one with a new key. The state of another membership is replaced: neither its
    /// store nor the managers that it heard are this one's.
    pub fn load(
        disk: &dyn Disk,
        entropy: &dyn Entropy,
        dir: &Path,
        owner: &Owner,
    ) -> io::Result<Self> {
        let path = dir.join(FILE);
        let own = match read_small(disk, &path, MAX_STATE) {
            Ok(text) => Some(serde_json::from_slice::<Own>(&text)?),
            Err(why) if why.kind() == io::ErrorKind::NotFound => None,
            Err(why) => return Err(why),
        };
        if let Some(own) = own.filter(|own| own.owner.is(owner)) {
            let heard = HeardManager::load(disk, &path.with_file_name(HEARD))?.unwrap_or_default();
            return Ok(Self { path, own, heard });
        }
        crate::store::make_dirs(disk, dir)?;
        let key = Secret::generate(entropy);
        let own = Own { owner: owner.clone(), key, store: None, begins_anew: false };
        let state = Self { path, own, heard: HeardManager::default() };
        state.save_heard(disk)?; // this comes first: the file that is there may be of another pool
        state.save(disk)?;
        Ok(state)
    }

    /// Returns the path of the file that has the key.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the key that tickets and receipts are signed with.
    pub fn key(&self) -> &Secret {
        &self.own.key
    }

    /// Returns the identity of this donor's store, once there is one.
    pub fn store(&self) -> Option<&KnownStore> {
        self.own.store.as_ref()
    }

    /// Returns what the manager of the highest epoch said of itself.
    pub fn heard(&self) -> HeardManager {
        self.heard
    }

    /// Notes in memory what the manager that was heard last said, unless it tells of fewer changes than before.
    /// [`State::remember_manager`] writes it down.
    pub fn note(&mut self, said: HeardManager) {
        if said.changes >= self.heard.changes {
            self.heard = said;
        }
    }

    /// Remembers the store. If another one was remembered, that counts as lost.
    pub fn remember_store(&mut self, disk: &dyn Disk, store: KnownStore) -> io::Result<()> {
        if self.own.store.as_ref() == Some(&store) {
            return Ok(());
        }
        self.own.begins_anew |= self.own.store.as_ref().is_some_and(|before| before.id != store.id);
        self.own.store = Some(store);
        self.save(disk)
    }

    /// Returns true until a manager has had the whole inventory of this store, after an earlier store was lost.
    pub fn begins_anew(&self) -> bool {
        self.own.begins_anew
    }

    /// Notes that the manager has compared this store with what the earlier one held.
    pub fn has_begun_anew(&mut self, disk: &dyn Disk) -> io::Result<()> {
        self.own.begins_anew = false;
        self.save(disk)
    }

    /// Writes down what a manager said.
    pub fn remember_manager(&mut self, disk: &dyn Disk, said: HeardManager) -> io::Result<()> {
        self.heard = said;
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

impl HeardManager {
    /// Reads the file; returns `None` if there is none or it is damaged: other donors heard the manager, too, and it is
    /// worse if this donor does not start.
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
    use potluck_core::entropy::SeededEntropy;
    use potluck_core::ids::DonorId;

    fn owner(donor: u32) -> Owner {
        let (pool_name, name) = ("lab".into(), "desk".into());
        Owner { pool: Digest([1; 32]), donor: DonorId(donor), pool_name, name }
    }

    #[test]
    fn damaged_manager_state_file_keeps_the_donor_key() {
        let dir = tempfile::tempdir().expect("a directory");
        let entropy = SeededEntropy::new(1);
        let load_as =
            |owner: &Owner| State::load(&SystemDisk, &entropy, dir.path(), owner).expect("loaded");
        let load = || load_as(&owner(1));
        let mut state = load();
        let key = state.key().clone();
        let proof = Some(Digest([9; 32]));
        let said = HeardManager { epoch: Epoch(3), start: 7, changes: 11, proof };
        state.remember_manager(&SystemDisk, said).expect("kept");
        assert_eq!(load().heard(), said);
        std::fs::write(dir.path().join(HEARD), b"").expect("damaged");
        let mut state = load();
        assert_eq!(state.heard(), HeardManager::default());
        assert!(*state.key() == key);

        // The state of another membership is not taken over.
        let moved = serde_json::from_str(r#"{"id": "0f", "dir": "/new"}"#).expect("a store");
        state.remember_store(&SystemDisk, moved).expect("kept");
        state.remember_manager(&SystemDisk, said).expect("kept");
        let another = load_as(&owner(2));
        assert_eq!((another.heard(), another.store()), (HeardManager::default(), None));
        assert!(*another.key() != key);
    }
}
