//! The terms on which the donor lends, as far as the manager has heard of them. A command that changed them can wait
//! until the manager has heard, so that the next question to the pool is answered by the new terms.

use tokio::sync::watch;

/// The number of the current terms, and the number of those that the manager has heard of.
#[derive(Debug)]
pub(crate) struct LendingTerms {
    changes: watch::Sender<u64>,
    heard: watch::Sender<u64>,
}

impl Default for LendingTerms {
    /// Makes the terms of the start, number 1, of which the manager has not heard.
    fn default() -> Self {
        Self { changes: watch::Sender::new(1), heard: watch::Sender::new(0) }
    }
}

impl LendingTerms {
    /// Notes that the terms were changed.
    pub fn change(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns the number of the current terms, which grows by one with each change. Ask for it before looking at the
    /// terms themselves.
    pub fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Notes that the manager has heard of the terms with this number.
    pub fn heard(&self, changes: u64) {
        self.heard.send_replace(changes);
    }

    /// Waits until there are terms that the manager has not heard of.
    pub async fn unheard(&self) {
        let heard = *self.heard.borrow();
        // An error would mean that the sender is gone, which is in `self`.
        let _ = self.changes.subscribe().wait_for(|changes| *changes > heard).await;
    }

    /// Waits until the manager has heard of the terms of now.
    pub async fn told(&self) {
        let changes = self.changes();
        let _ = self.heard.subscribe().wait_for(|heard| *heard >= changes).await;
    }
}
