//! A draft that the handles of one file share. One of them at a time has it, for as long as donors and the manager
//! take for what it wants; what programs are told by stat(2) is kept beside it, so that nobody waits for that.

use crate::draft::Draft;
use potluck_client::Attributes;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// The facts about a draft that programs are told.
#[derive(Debug, Clone, Copy)]
pub struct DraftFacts {
    /// The size of the file in bytes.
    pub size: u64,
    /// The attributes that the draft will be published with.
    pub attributes: Attributes,
}

impl DraftFacts {
    fn of(draft: &Draft) -> Self {
        Self { size: draft.size(), attributes: draft.attributes() }
    }
}

/// A draft that several may want to write, read or publish at a time. Clones are of one draft.
#[derive(Clone)]
pub struct SharedDraft {
    draft: Arc<AsyncMutex<Draft>>,
    facts: Arc<Mutex<DraftFacts>>,
}

/// The turn of somebody who does something with a draft. When it ends, programs are told of what the draft is by then.
pub struct DraftGuard {
    draft: OwnedMutexGuard<Draft>,
    facts: Arc<Mutex<DraftFacts>>,
}

impl SharedDraft {
    /// Makes a shared draft that nobody else has yet.
    pub fn new(draft: Draft) -> Self {
        let facts = Arc::new(Mutex::new(DraftFacts::of(&draft)));
        Self { draft: Arc::new(AsyncMutex::new(draft)), facts }
    }

    /// Waits for the turn of the caller, after all who came before.
    pub async fn lock(&self) -> DraftGuard {
        self.guard(Arc::clone(&self.draft).lock_owned().await)
    }

    /// Returns the draft, if nobody has it now.
    pub fn try_lock(&self) -> Option<DraftGuard> {
        Some(self.guard(Arc::clone(&self.draft).try_lock_owned().ok()?))
    }

    fn guard(&self, draft: OwnedMutexGuard<Draft>) -> DraftGuard {
        DraftGuard { draft, facts: Arc::clone(&self.facts) }
    }

    /// Returns what programs are told of the draft: as it was before whoever has it now began.
    pub fn facts(&self) -> DraftFacts {
        *self.facts.lock().expect("no holder panics")
    }

    /// Whether both are of the same draft.
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
