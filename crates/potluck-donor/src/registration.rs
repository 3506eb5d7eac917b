//! A donor's registration with the manager: the donor's number, and the time on the manager's clock.

use potluck_core::clock::{SharedClock, Tick};
use potluck_core::ids::{DonorId, Epoch};
use potluck_wire::ticket::TicketTime;
use std::sync::Mutex;

/// The last reply of the manager about itself and this donor. There is none before the first registration of this
/// process; until then no ticket can be judged, because its expiry is a time on the manager's clock.
pub(crate) struct ManagersWord {
    clock: SharedClock,
    heard: Mutex<Option<Heard>>,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    donor: DonorId,
    manager: ManagerTerm,
    now_ms: u64,
    at: Tick,
    /// The latest of the times before which the manager said that issued tickets are void. A manager that was restarted
    /// since may not know of it, so it becomes less only under a manager that was restored from before that time
    /// ([`is_ahead`]).
    void_before: u64,
}

/// A term of a manager: its epoch, and a number that it drew at its start. No two terms share both.
pub type ManagerTerm = (Epoch, u64);

impl ManagersWord {
    /// Makes the state of a donor that has not heard of a manager yet.
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, heard: Mutex::default() }
    }

    /// Notes that `manager` registered this process as `donor`; returns true when it is another term than before, or
    /// the first.
    pub fn registered(&self, donor: DonorId, manager: ManagerTerm, now_ms: u64) -> bool {
        let at = self.clock.now();
        let mut heard = self.heard.lock().expect("no holder panics");
        let void_before = heard.map_or(0, |before| before.void_before);
        let before = heard.replace(Heard { donor, manager, now_ms, at, void_before });
        before.is_none_or(|before| before.manager != manager)
    }

    /// Notes that the manager answered a heartbeat; returns false when its term is not the one that registered this
    /// donor.
    pub fn renewed(&self, manager: ManagerTerm, time: TicketTime) -> bool {
        let at = self.clock.now();
        let mut heard = self.heard.lock().expect("no holder panics");
        match heard.as_mut().filter(|heard| heard.manager == manager) {
            Some(heard) => {
                (heard.now_ms, heard.at) = (time.now, at);
                // Under a restored manager a time that is still ahead gives way to a new one, or rights that end now
                // would go on until then.
                heard.void_before = match is_ahead(heard.void_before, time.now) {
                    true if time.void_before > 0 => time.void_before,
                    _ => heard.void_before.max(time.void_before),
                };
                true
            }
            None => false,
        }
    }

    /// Returns the donor's number, and the time by which tickets are judged; `None` before the first registration. The
    /// manager's milliseconds go on with the donor's own monotonic clock while the manager is away.
    pub fn now(&self) -> Option<(DonorId, TicketTime)> {
        let heard = (*self.heard.lock().expect("no holder panics"))?;
        let since = self.clock.now().saturating_sub(heard.at).as_millis() as u64;
        let now = heard.now_ms.saturating_add(since);
        let void_before = if is_ahead(heard.void_before, now) { 0 } else { heard.void_before };
        Some((heard.donor, TicketTime { now, void_before }))
    }
}

/// Returns whether the manager's clock has not reached this moment yet. A restarted manager begins beyond all times
/// that it told before; only a restored one goes on from its backup, or during the restore from zero. If a moment ahead
/// of its clock counted, donors would take no ticket of it.
fn is_ahead(void_before: u64, now_ms: u64) -> bool {
    // A difference of a second is allowed, because rights may end while the reply that says so is made.
    void_before > now_ms.saturating_add(1000)
}
