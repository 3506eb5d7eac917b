//! Wakes the background work when there is something to do for it.

use std::sync::Arc;
use tokio::sync::Notify;

/// What the background work waits for. Clones wake the same.
#[derive(Clone, Default)]
pub struct Wakeup(Arc<Notify>);

impl Wakeup {
    /// Something ended or was thrown away.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits until there is something to do.
    pub async fn due(&self) {
        self.0.notified().await;
    }
}
