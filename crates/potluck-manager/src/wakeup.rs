//! Wakes the background work when there is something to do for it.

use std::sync::Arc;
use tokio::sync::Notify;

/// The signal that the background work waits for. All clones wake the same work.
#[derive(Clone, Default)]
pub struct Wakeup(Arc<Notify>);

impl Wakeup {
    /// Wakes the background work, now or the next time that it waits.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits until there is something to do.
    pub async fn due(&self) {
        self.0.notified().await;
    }
}
