//! How much the donor does now, as its owner wants it. The daemon decides that by the owner's rules
//! ([`potluck_core::owner_rules`]); here all that moves data or reaches the disk learns of it.

use potluck_core::clock::Tick;
use potluck_core::lend_mode::LendMode;
use potluck_wire::control::DonorDoes;
use tokio::sync::watch;

/// The mode of a donor, and the time at which it changes, if that is known.
#[derive(Debug)]
pub(crate) struct OwnerMode {
    now: watch::Sender<(LendMode, Option<Tick>)>,
}

impl Default for OwnerMode {
    fn default() -> Self {
        Self { now: watch::Sender::new((LendMode::Full, None)) }
    }
}

impl OwnerMode {
    /// Sets the mode, which holds until a time as far as is known; returns whether anything changed.
    pub fn set(&self, mode: LendMode, until: Option<Tick>) -> bool {
        self.now.send_if_modified(|now| std::mem::replace(now, (mode, until)) != (mode, until))
    }

    /// Returns the mode of now.
    pub fn mode(&self) -> LendMode {
        self.now.borrow().0
    }

    /// Returns whether the donor is to do nothing.
    pub fn is_off(&self) -> bool {
        self.mode().is_off()
    }

    /// Waits until the donor is to do nothing.
    pub async fn off(&self) {
        self.wait(LendMode::is_off).await;
    }

    /// Waits until the donor is to do something.
    pub async fn on(&self) {
        self.wait(|mode| !mode.is_off()).await;
    }

    async fn wait(&self, is: impl Fn(LendMode) -> bool) {
        // An error would mean that the sender is gone, which is in `self`.
        let _ = self.now.subscribe().wait_for(|(mode, _)| is(*mode)).await;
    }

    /// Returns what the manager is told at the time `now`.
    pub fn told(&self, now: Tick) -> DonorDoes {
        let (mode, until) = *self.now.borrow();
        let for_ms = until.map(|until| until.saturating_sub(now).as_millis() as u64);
        DonorDoes { mode, for_ms, stops: false }
    }
}
