//! The terms on which the donor lends, as far as the manager has heard of them: whoever changed them can wait
//! until it has, so that what is asked of the pool next is answered by them.

use tokio::sync::watch;

/// Counts changes of terms, and which of them the manager has heard of.
#[derive(Debug)]
pub(crate) struct LendingTerms {
    changes: watch::Sender<u64>,
    heard: watch::Sender<u64>,
}

impl Default for LendingTerms {
    /// Makes the terms of the start, which nobody has heard of.
    fn default() -> Self {
        Self { changes: watch::Sender::new(1), heard: watch::Sender::new(0) }
    }
}

impl LendingTerms {
    /// Notes that the terms were changed.
    pub fn change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns how often the terms were changed. Ask before looking at the terms themselves.
    pub fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Notes that the manager has heard of the terms as they were after this many changes.
    pub fn heard(&self, changes: u64) {
        self.heard.send_replace(changes);
    }

    /// Waits until there is something that the manager has not heard of.
    pub async fn unheard(&self) {
        let heard = *self.heard.borrow();
        // An error would mean that the sender, which is here, is gone.
        let _ = self.changes.subscribe().wait_for(|changes| *changes > heard).await;
    }

    /// Waits until the manager has heard of all changes until now.
    pub async fn told(&self) {
        let changes = self.changes();
        let _ = self.heard.subscribe().wait_for(|heard| *heard >= changes).await;
    }
}
