//! The donor's side of the control plane: it registers, lists what it holds, and reports each
//! second; orders come back in the answers. One call at a time, so that the manager hears of every
//! change in the order it happened: a page of the inventory is listed and sent before any change
//! made after it is reported.

mod orders;

pub(crate) use orders::Orders;

use crate::disk::Disk;
use crate::load::Sampler;
use crate::service::Service;
use crate::state::State;
use crate::store::Cursor;
use potluck_core::budget::DiskState;
use potluck_core::clock::Tick;
use potluck_core::entropy::Entropy;
use potluck_core::ids::Epoch;
use potluck_core::load::Load;
use potluck_wire::call::Caller;
use potluck_wire::control::{Heartbeat, Inventory, Register};
use potluck_wire::error::Failure;
use potluck_wire::packed::Packed;
use potluck_wire::version;
use std::sync::Arc;
use std::time::Duration;

/// From one heartbeat to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// The first pause after a call failed; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// After the store could not be listed.
const LISTING_PAUSE: Duration = Duration::from_secs(10);

/// Keeps the manager informed.
pub(crate) struct Heart {
    service: Arc<Service>,
    disk: Arc<dyn Disk>,
    caller: Caller,
    state: State,
    address: String,
    /// Away while a sample is taken on another thread.
    sampler: Option<Sampler>,
    orders: Arc<Orders>,
    registered: bool,
    listing: Option<Listing>,
    next_beat: Tick,
    failures: u32,
    /// The code of the failure that was last complained about.
    complained: Option<String>,
    /// The lower epoch that was last complained about.
    refused: Option<Epoch>,
}

/// An inventory under way.
#[derive(Debug, Clone, Default)]
struct Listing {
    cursor: Cursor,
    page: u32,
    not_before: Tick,
}

impl Heart {
    /// Will report to `caller`'s manager that bulk connections are taken at `address`.
    pub fn new(
        service: Arc<Service>,
        disk: Arc<dyn Disk>,
        caller: Caller,
        state: State,
        address: String,
        orders: Arc<Orders>,
    ) -> Self {
        let sampler = Some(Sampler::new(&*disk, service.env.clock.clone()));
        Self {
            service,
            disk,
            caller,
            state,
            address,
            sampler,
            orders,
            registered: false,
            listing: None,
            next_beat: Tick::ZERO,
            failures: 0,
            complained: None,
            refused: None,
        }
    }

    /// Reports until dropped.
    pub async fn beat_for_ever(mut self) {
        loop {
            match self.step().await {
                Ok(()) => {
                    if self.complained.take().is_some() {
                        tracing::info!("the manager at {} answers again", self.caller.manager());
                    }
                    self.failures = 0;
                }
                Err(why) => {
                    if self.complained.as_ref() != Some(&why.code) {
                        tracing::warn!("{why}. {}", why.hint);
                        self.complained = Some(why.code);
                    }
                    tokio::time::sleep(pause(self.failures, &*self.service.env.entropy)).await;
                    self.failures = self.failures.saturating_add(1);
                }
            }
        }
    }

    /// One call, or the wait until it is time for one.
    async fn step(&mut self) -> Result<(), Failure> {
        if !self.registered || self.service.store.changes().overflowed() {
            return self.register().await;
        }
        let now = self.service.env.clock.now();
        if now >= self.next_beat {
            self.next_beat = now + INTERVAL;
            return self.beat().await;
        }
        match self.listing.take_if(|listing| listing.not_before <= now) {
            Some(listing) => self.send_page(listing).await,
            None => {
                tokio::time::sleep(self.next_beat - now).await;
                Ok(())
            }
        }
    }

    async fn register(&mut self) -> Result<(), Failure> {
        let (_, disk, room) = self.look().await;
        let registered = self
            .caller
            .call(&Register {
                incarnation: self.service.store.incarnation(),
                key: self.service.key.clone(),
                address: self.address.clone(),
                version: version::PRODUCT.into(),
                disk,
                room,
                label: None,
                grace_ms: None,
                heard: Default::default(),
            })
            .await?;
        let manager = self.caller.manager();
        tracing::info!("registered as donor {} with {manager}", registered.donor);
        self.heard(registered.epoch).await;
        self.service.standing.registered(registered.donor, registered.epoch, registered.now_ms);
        if self.service.store.changes().overflowed() {
            self.service.store.changes().restart(); // the inventory tells it all
        }
        self.registered = true;
        self.listing = Some(Listing::default());
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), Failure> {
        let (load, disk, room) = self.look().await;
        let store = Arc::clone(&self.service.store);
        let batch = store.changes().batch();
        let count = batch.count;
        let heartbeat = Heartbeat {
            incarnation: store.incarnation(),
            touches: store.touches().count(),
            load,
            disk,
            room,
            added: batch.added,
            removed: batch.removed,
            spoiled: batch.spoiled,
            sound: batch.sound,
            results: Vec::new(),
            excess: 0,
            scrub: Default::default(),
        };
        let beat = self.caller.call(&heartbeat).await?;
        store.changes().confirm(count);
        let same_manager = self.service.standing.beat(beat.epoch, beat.now_ms);
        if beat.register || !same_manager {
            self.registered = false;
        }
        if self.heard(beat.epoch).await {
            self.orders.take(beat.orders);
        } else if !beat.orders.is_empty() && self.refused.replace(beat.epoch) != Some(beat.epoch) {
            tracing::error!(
                "the manager at {} has epoch {}, but epoch {} was heard before: it was restored from \
                 an old backup, or is not the one in charge. Its orders are ignored",
                self.caller.manager(),
                beat.epoch,
                self.state.epoch()
            );
        }
        Ok(())
    }

    /// Whether a manager of `epoch` may give orders; the highest is remembered before it does.
    async fn heard(&mut self, epoch: Epoch) -> bool {
        if epoch > self.state.epoch() {
            let (mut state, disk) = (self.state.clone(), Arc::clone(&self.disk));
            let remember = move || {
                let saved = state.remember_epoch(&*disk, epoch);
                (state, saved)
            };
            let (state, saved) = self.service.env.offload.run(remember).await;
            self.state = state;
            if let Err(why) = saved {
                let path = self.state.path().display();
                tracing::error!("cannot remember the manager's epoch in {path}: {why}");
            }
        }
        epoch >= self.state.epoch()
    }

    async fn send_page(&mut self, listing: Listing) -> Result<(), Failure> {
        let store = Arc::clone(&self.service.store);
        let incarnation = store.incarnation();
        let Listing { cursor, page: number, .. } = listing.clone();
        let page = match self.service.env.offload.run(move || store.page(cursor)).await {
            Ok(page) => page,
            Err(why) => {
                tracing::warn!("cannot list the store: {why}");
                let not_before = self.service.env.clock.now() + LISTING_PAUSE;
                self.listing = Some(Listing { not_before, ..listing });
                return Ok(());
            }
        };
        let holdings = Packed(page.holdings);
        let last = page.next.is_none();
        // Until it is answered, nobody knows whether it arrived: an error begins anew.
        self.listing = Some(Listing::default());
        self.caller.call(&Inventory { incarnation, page: number, holdings, last }).await?;
        self.listing =
            page.next.map(|cursor| Listing { cursor, page: number + 1, not_before: Tick::ZERO });
        Ok(())
    }

    /// Looks at the disk and samples the machine.
    async fn look(&mut self) -> (Load, DiskState, u64) {
        let (store, disk) = (Arc::clone(&self.service.store), Arc::clone(&self.disk));
        let sampler = self.sampler.take();
        let look = move || {
            store.look();
            let (served, stored) = store.traffic();
            let mut sampler = sampler;
            let load = sampler.as_mut().map(|sampler| sampler.sample(&*disk, served, stored));
            (sampler, load.unwrap_or_default(), store.report())
        };
        let (sampler, load, (disk, room)) = self.service.env.offload.run(look).await;
        self.sampler = sampler;
        (load, disk, room)
    }
}

/// How long to wait after so many failures in a row; different for every donor, so that a manager
/// that comes back is not met by all of them at once.
fn pause(failures: u32, entropy: &dyn Entropy) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << failures.min(8)).min(MAX_PAUSE);
    let part = (entropy.u64() >> 11) as f64 / (1u64 << 53) as f64;
    whole.mul_f64(0.5 + part / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::entropy::SeededEntropy;

    #[test]
    fn pauses_grow_and_stay_bounded() {
        let entropy = SeededEntropy::new(1);
        for failures in 0..100 {
            let pause = pause(failures, &entropy);
            assert!(pause <= MAX_PAUSE && pause >= FIRST_PAUSE / 2, "{pause:?}");
            assert!(failures < 5 || pause >= MAX_PAUSE / 2, "{pause:?}");
        }
    }
}
