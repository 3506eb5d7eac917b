//! How a donor stands with the manager: its number, and what the manager's clock shows.

use potluck_core::clock::{SharedClock, Tick};
use potluck_core::ids::{DonorId, Epoch};
use std::sync::Mutex;

/// What the manager last said about itself and us. Unknown until the first registration of this
/// life: before, no ticket can be judged, for its expiry is on the manager's clock.
pub(crate) struct Standing {
    clock: SharedClock,
    heard: Mutex<Option<Heard>>,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    donor: DonorId,
    epoch: Epoch,
    now_ms: u64,
    at: Tick,
}

impl Standing {
    /// Nothing heard yet.
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, heard: Mutex::default() }
    }

    /// The manager registered us as `donor`.
    pub fn registered(&self, donor: DonorId, epoch: Epoch, now_ms: u64) {
        let at = self.clock.now();
        *self.heard.lock().expect("no holder panics") = Some(Heard { donor, epoch, now_ms, at });
    }

    /// The manager answered a heartbeat; `false` when it is not the life that registered us.
    pub fn beat(&self, epoch: Epoch, now_ms: u64) -> bool {
        let at = self.clock.now();
        let mut heard = self.heard.lock().expect("no holder panics");
        match heard.as_mut().filter(|heard| heard.epoch == epoch) {
            Some(heard) => {
                (heard.now_ms, heard.at) = (now_ms, at);
                true
            }
            None => false,
        }
    }

    /// Our number and the manager's milliseconds; they go on with our own monotonic clock while the
    /// manager is away.
    pub fn now(&self) -> Option<(DonorId, u64)> {
        let heard = (*self.heard.lock().expect("no holder panics"))?;
        let since = self.clock.now().saturating_sub(heard.at).as_millis() as u64;
        Some((heard.donor, heard.now_ms.saturating_add(since)))
    }
}
