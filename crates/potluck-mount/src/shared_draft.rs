//! A draft that the handles of one file share. One handle at a time has it locked, for as long as its request takes at
//! donors and the manager. The facts for stat(2) are kept beside it, so that stat(2) does not wait.

use crate::draft::Draft;
use potluck_client::Attributes;
use potluck_core::ids::VersionId;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// The facts about a draft that are known without waiting for its lock.
#[derive(Debug, Clone, Copy)]
pub struct DraftFacts {
    /// The size of the file in bytes.
    pub size: u64,
    /// The bytes of the file that are in holes ([`Draft::holes`]).
    pub holes: u64,
    /// The attributes that the draft will be published with.
    pub attributes: Attributes,
    /// The version that was opened, or published last, if it is known.
    pub version: Option<VersionId>,
    /// True if the draft has changes that other programs of the mount are to read ([`Draft::is_changed`]).
    pub is_changed: bool,
    /// True if others that have the file open in this mount can read it by the draft ([`Draft::is_common`]).
    pub is_common: bool,
    /// True if a program has closed the draft, and it is to be published in its turn ([`Draft::is_behind`]).
    pub is_behind: bool,
}

impl DraftFacts {
    fn of(draft: &Draft) -> Self {
        let (size, holes, attributes) = (draft.size(), draft.holes(), draft.attributes());
        let (version, is_changed, is_common) =
            (draft.version(), draft.is_changed(), draft.is_common());
        let is_behind = draft.is_behind();
        Self { size, holes, attributes, version, is_changed, is_common, is_behind }
    }
}

/// A draft that several requests may want to write, read or publish. Clones share the draft.
#[derive(Clone)]
pub struct SharedDraft {
    draft: Arc<AsyncMutex<Draft>>,
    facts: Arc<Mutex<DraftFacts>>,
}

/// The lock of a draft. When it is dropped, the facts are taken from the draft anew.
pub struct DraftGuard {
    draft: OwnedMutexGuard<Draft>,
    facts: Arc<Mutex<DraftFacts>>,
}

impl SharedDraft {
    /// Makes a shared draft.
    pub fn new(draft: Draft) -> Self {
        let facts = Arc::new(Mutex::new(DraftFacts::of(&draft)));
        Self { draft: Arc::new(AsyncMutex::new(draft)), facts }
    }

    /// Locks the draft, after all callers that came before.
    pub async fn lock(&self) -> DraftGuard {
        self.guard(Arc::clone(&self.draft).lock_owned().await)
    }

    /// Locks the draft, if it is not locked.
    pub fn try_lock(&self) -> Option<DraftGuard> {
        Some(self.guard(Arc::clone(&self.draft).try_lock_owned().ok()?))
    }

    fn guard(&self, draft: OwnedMutexGuard<Draft>) -> DraftGuard {
        DraftGuard { draft, facts: Arc::clone(&self.facts) }
    }

    /// Returns the facts about the draft as they were when it was last unlocked.
    pub fn facts(&self) -> DraftFacts {
        *self.facts.lock().expect("no holder panics")
    }

    /// Returns whether both share the same draft.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.draft, &other.draft)
    }
}

impl Deref for DraftGuard {
    type Target = Draft;
    fn deref(&self) -> &Draft {
        &self.draft
    }
}

impl DerefMut for DraftGuard {
    fn deref_mut(&mut self) -> &mut Draft {
        &mut self.draft
    }
}

impl Drop for DraftGuard {
    fn drop(&mut self) {
        *self.facts.lock().expect("no holder panics") = DraftFacts::of(&self.draft);
    }
}
