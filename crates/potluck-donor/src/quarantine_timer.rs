//! A timer that makes the store look at quarantined chunks again when they are due. Like the scrub, this yields to
//! everything else on the machine.

use crate::idle_thread::on_idle_thread;
use crate::service::Service;
use std::sync::Arc;
use std::time::Duration;

/// The interval at which the timer checks whether quarantined chunks are due to be looked at again.
const TURN: Duration = Duration::from_secs(2);

/// Looks at quarantined chunks again, as they become due, until the future is dropped.
pub(crate) async fn look_again_for_ever(service: Arc<Service>) {
    loop {
        tokio::time::sleep(TURN).await;
        let now = service.env.clock.now();
        if !service.store.broken() && !service.owner.is_off() && service.store.is_look_due(now) {
            let store = Arc::clone(&service.store);
            on_idle_thread(&service.env, move || store.look_at_quarantined(now)).await;
        }
    }
}
