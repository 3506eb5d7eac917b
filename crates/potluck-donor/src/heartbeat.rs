//! The donor's side of the control plane: it registers, lists what it holds, and reports each
//! second; tasks and chunk orders come back in the replies. One call at a time, so that the manager hears of every
//! change in the order it happened: a page of the inventory is listed and sent before any change
//! made after it is reported.

use crate::disk::Disk;
use crate::load::Sampler;
use crate::registration::ManagerTerm;
use crate::service::Service;
use crate::state::{HeardManager, State};
use crate::store::Cursor;
use crate::tasks::TaskWorker;
use potluck_core::clock::Tick;
use potluck_core::entropy::Entropy;
use potluck_core::load::Load;
use potluck_core::owner_limits::DiskState;
use potluck_wire::call::Caller;
use potluck_wire::control::{Heartbeat, HeartbeatReply, Inventory, Register, Registered};
use potluck_wire::error::{ErrorKind, Failure};
use potluck_wire::own_addresses::ToldAddresses;
use potluck_wire::packed::Packed;
use potluck_wire::ticket::TicketTime;
use potluck_wire::version;
use potluck_wire::whereabouts::Guide;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

/// The time from one heartbeat to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time from one heartbeat to the next, when results of tasks wait.
const SHORTEST: Duration = Duration::from_millis(200);
/// The first pause after a call failed; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause after failed calls. It is short because a manager that restarts holds its clients up until its
/// donors have reported. After some failures a pause lasts at least half of this, which is [`INTERVAL`]: a manager
/// that is away is then called no more often than one that answers.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// How long a listing waits to be tried again after the store could not be listed.
const LISTING_PAUSE: Duration = Duration::from_secs(10);
/// The time between writes of how many changes the manager told of: writing with each heartbeat would cost an fsync
/// a second in a busy pool. Between two writes a donor that is killed forgets them; one that is stopped does not.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// The facts that a donor tells of itself when it registers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DonorFacts {
    /// The addresses at which others reach the donor.
    pub told: ToldAddresses,
    /// The address on this machine at which bulk connections are taken.
    pub port: u16,
    /// The label of the donor's failure domain: donors with one label fail together.
    pub label: Option<String>,
    /// How long the donor may be silent before repair begins.
    pub grace: Option<Duration>,
}

/// The reporter that keeps the manager informed of this donor.
pub(crate) struct Heartbeats {
    service: Arc<Service>,
    disk: Arc<dyn Disk>,
    caller: Caller,
    state: State,
    about: watch::Receiver<DonorFacts>,
    /// The sampler; `None` while a sample is taken on another thread.
    sampler: Option<Sampler>,
    tasks: TaskWorker,
    registered: bool,
    listing: Option<Listing>,
    /// The number of scrub rounds after which the inventory was last listed; `None` when it must be listed anew.
    listed: Option<u64>,
    /// When the manager is asked to take a list, or the rest of one, that it had no time for.
    list_after: Tick,
    /// How often in a row the manager had no time for a list.
    put_off: u32,
    next_heartbeat: Tick,
    last_heartbeat: Tick,
    failures: u32,
    /// The code of the failure that was last complained about.
    complained: Option<String>,
    /// The manager whose tasks and orders were last refused.
    refused: Option<ManagerTerm>,
    /// The moment at which the manager's number of changes was last written down, and that number.
    noted: (Tick, u64),
    /// Whether, as the manager said last, the owner takes all lent space back.
    leaving: bool,
}

/// An inventory under way.
#[derive(Debug, Clone, Default)]
struct Listing {
    cursor: Cursor,
    page: u32,
}

/// The outcome of a step of the loop.
enum Stepped {
    /// The manager answered the call that shows that it is there.
    Heard,
    /// The step did not show whether the manager is there.
    Waited,
}

impl Heartbeats {
    /// Makes a reporter that calls the manager through `caller` and tells it `about` this donor.
    pub fn new(
        service: Arc<Service>,
        disk: Arc<dyn Disk>,
        caller: Caller,
        state: State,
        about: watch::Receiver<DonorFacts>,
    ) -> Self {
        let sampler = Some(Sampler::new(&*disk, service.env.clock.clone()));
        let noted = (service.env.clock.now(), state.heard().changes);
        Self {
            service,
            disk,
            caller,
            state,
            about,
            sampler,
            tasks: TaskWorker::default(),
            registered: false,
            listing: None,
            listed: None,
            list_after: Tick::ZERO,
            put_off: 0,
            next_heartbeat: Tick::ZERO,
            last_heartbeat: Tick::ZERO,
            failures: 0,
            complained: None,
            refused: None,
            noted,
            leaving: false,
        }
    }

    /// Sends heartbeats until the future is dropped.
    pub async fn run_for_ever(&mut self) {
        loop {
            match self.step().await {
                Ok(Stepped::Waited) => {}
                Ok(Stepped::Heard) => {
                    if self.complained.take().is_some() {
                        tracing::info!("the manager at {} answers again", self.caller.manager());
                    }
                    self.failures = 0;
                }
                Err(why) => {
                    let failures = &self.service.metrics.heartbeat_failures;
                    failures.fetch_add(1, Ordering::Relaxed);
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

    /// Makes one call to the manager, or waits until it is time for one.
    async fn step(&mut self) -> Result<Stepped, Failure> {
        if self.about.has_changed().unwrap_or(false) {
            self.registered = false; // so that the manager hears of it
        }
        if !self.registered || self.service.store.changes().overflowed() {
            return self.register().await.map(|()| Stepped::Heard);
        }
        let now = self.service.env.clock.now();
        if now >= self.next_heartbeat {
            (self.last_heartbeat, self.next_heartbeat) = (now, now + INTERVAL);
            return self.send_heartbeat().await.map(|()| Stepped::Heard);
        }
        let (rounds, there) = (self.service.scrub.rounds(), !self.service.store.is_missing());
        let may_list = there && self.list_after <= now;
        if may_list && self.listing.is_none() && self.listed != Some(rounds) {
            return self.list_again(rounds).await.map(|()| Stepped::Waited);
        }
        match self.listing.take_if(|_| may_list) {
            Some(listing) => self.send_page(listing).await.map(|()| Stepped::Waited),
            None => {
                self.wait(now).await;
                Ok(Stepped::Waited)
            }
        }
    }

    /// Waits until the next heartbeat is due: in its second, or sooner when a task is answered,
    /// for the manager may have more of them, or when the terms were changed.
    async fn wait(&mut self, now: Tick) {
        let early = (self.last_heartbeat + SHORTEST).saturating_sub(now);
        let answered = async {
            self.tasks.some_answered().await;
            tokio::time::sleep(early).await;
        };
        tokio::select! {
            () = tokio::time::sleep(self.next_heartbeat - now) => {}
            () = tokio::time::sleep(self.list_after.saturating_sub(now)), if now < self.list_after => {}
            () = answered => self.next_heartbeat = Tick::ZERO,
            () = self.service.lending_terms.unheard() => self.next_heartbeat = Tick::ZERO,
        }
    }

    async fn register(&mut self) -> Result<(), Failure> {
        let (_, disk, room) = self.sample().await;
        let about = self.about.borrow_and_update().clone();
        let before = self.state.heard();
        let registered = self
            .caller
            .call(&Register {
                incarnation: self.service.store.incarnation(),
                key: self.service.key.clone(),
                port: about.told.guessed.then_some(about.port),
                addresses: about.told.addresses,
                version: version::PRODUCT.into(),
                disk,
                room,
                label: about.label,
                grace_ms: about.grace.map(|grace| grace.as_millis() as u64),
                heard: before.term(),
                heard_changes: before.changes,
                heard_proof: before.proof,
                disk_fault: self.service.store.fault(),
                new_store: self.state.begins_anew(),
            })
            .await?;
        let manager = self.caller.manager();
        tracing::info!("registered as donor {} with {manager}", registered.donor);
        let Registered { epoch, start, changes, proof, .. } = registered;
        let said = HeardManager { epoch, start, changes, proof };
        if registered.unproven {
            let path = self.state.path().display();
            tracing::warn!(
                "the note of the managers heard, beside {path}, is damaged: the pool's manager cannot have been \
                 preceded by one of epoch {}; it is forgotten",
                before.epoch
            );
            self.remember(said).await;
        }
        self.heard(said).await;
        if self.service.registration.registered(registered.donor, said.term(), registered.now_ms) {
            self.tasks.forget();
        }
        if self.service.store.changes().overflowed() {
            self.service.store.changes().restart(); // the inventory tells it all
        }
        self.registered = true;
        (self.listing, self.listed) = (None, None);
        (self.list_after, self.put_off) = (Tick::ZERO, 0);
        Ok(())
    }

    /// Lists everything anew after registration, after a round of the scrub, and when the manager asks for it: a round
    /// reads what is there, and only the manager knows what is missing.
    async fn list_again(&mut self, rounds: u64) -> Result<(), Failure> {
        let incarnation = self.service.store.incarnation();
        let holdings = Packed::default();
        // The first page is empty: the manager has to watch what arrives before the first bucket is listed, and to
        // have time for it.
        let first = Inventory { incarnation, page: 0, holdings, last: false };
        if let Err(why) = self.caller.call(&first).await {
            return self.put_off(why);
        }
        self.put_off = 0;
        self.listing = Some(Listing { page: 1, ..Listing::default() });
        self.listed = Some(rounds);
        Ok(())
    }

    /// Notes that the manager did not take a page. Where it has no time the donor asks again after a pause, and sends
    /// its heartbeats meanwhile. The pause about doubles each time, up to twice [`MAX_PAUSE`].
    ///
    /// Errors: `why`, unless it is of kind [`ErrorKind::Retry`].
    fn put_off(&mut self, why: Failure) -> Result<(), Failure> {
        if why.kind != ErrorKind::Retry {
            return Err(why);
        }
        let pause = pause(self.put_off, &*self.service.env.entropy);
        // A page matters less than a heartbeat, and a thousand donors may ask, so the pause is twice as long.
        self.list_after = self.service.env.clock.now() + 2 * pause;
        self.put_off = self.put_off.saturating_add(1);
        Ok(())
    }

    async fn send_heartbeat(&mut self) -> Result<(), Failure> {
        let terms = self.service.lending_terms.changes();
        let (load, disk, room) = self.sample().await;
        let store = Arc::clone(&self.service.store);
        if store.changes().overflowed() {
            return Ok(()); // nothing counts before the manager has compared the whole inventory
        }
        self.service.peer_connections.close_idle(self.service.env.clock.now());
        // The results are taken before the changes, so that what a task stored is listed no later than its result.
        let results = self.tasks.results();
        let asked = store.to_discard(self.leaving);
        let batch = store.changes().batch();
        let number = batch.number;
        // The manager does not believe that a copy was made which is not listed.
        let results = if batch.is_all { results } else { Vec::new() };
        let answered = results.len();
        let heartbeat = Heartbeat {
            incarnation: store.incarnation(),
            write_sequence: store.write_sequence().last(),
            load,
            disk,
            room,
            lends: Some(self.service.store.limits().max),
            batch: batch.number,
            added: batch.added,
            removed: batch.removed,
            spoiled: batch.spoiled,
            unreadable: batch.unreadable,
            quarantined: Packed(asked.clone()),
            sound: batch.sound,
            results,
            excess: store.excess(),
            disk_lacks: store.disk_lacks(),
            scrub: self.service.scrub.report(),
            disk_fault: store.fault(),
            settings_fault: self.service.settings_fault.lock().expect("no panic holds it").clone(),
            follows: self.caller.guide().map(Guide::issue),
            sessions: Packed(self.service.tickets.to_ask()),
        };
        let reply = self.caller.call(&heartbeat).await?;
        self.service.lending_terms.heard(terms);
        store.changes().confirm(number);
        self.tasks.confirm(answered);
        if let Some(shown) = reply.manager {
            let caller = self.caller.clone();
            self.service.env.offload.run(move || caller.learn_from_manager(&shown)).await;
        }
        if reply.list && self.listing.is_none() {
            self.listed = None;
        }
        let HeartbeatReply { epoch, start, changes, proof, .. } = reply;
        let said = HeardManager { epoch, start, changes, proof };
        let term = said.term();
        let time = TicketTime { now: reply.now_ms, void_before: reply.void_before };
        let same_manager = self.service.registration.renewed(term, time);
        if reply.register || !same_manager {
            self.registered = false;
        }
        if !same_manager {
            // The new manager is remembered and obeyed from the registration on: then it hears what was said before,
            // by which it finds out whether its catalog is an old copy.
            return Ok(());
        }
        if self.heard(said).await {
            self.service.tickets.end(&reply.over.0, time.now);
            self.leaving = reply.leaving;
            if !asked.is_empty() {
                let store = Arc::clone(&self.service.store);
                let granted = reply.discard.0;
                self.service.env.offload.run(move || store.discard(&asked, &granted)).await;
            }
            for task in reply.tasks {
                self.tasks.take(&self.service, task);
            }
            self.service.chunk_orders.take(reply.chunk_orders);
        } else if !(reply.tasks.is_empty() && reply.chunk_orders.is_empty())
            && self.refused.replace(term) != Some(term)
        {
            tracing::error!(
                "the manager at {} has epoch {}, but another manager of epoch {} was heard before: \
                 it was restored from an old backup, or is not the one in charge. Its orders are \
                 ignored",
                self.caller.manager(),
                reply.epoch,
                self.state.heard().epoch
            );
        }
        Ok(())
    }

    /// Whether the manager that said this may give orders; the latest manager is remembered before it gives any. Of
    /// two managers of one epoch the one that was heard first is in charge, for the other runs on a copy of its
    /// catalog.
    async fn heard(&mut self, said: HeardManager) -> bool {
        let latest = self.state.heard();
        let same_epoch = said.epoch == latest.epoch;
        if said.epoch > latest.epoch || (same_epoch && latest.start == 0 && said.start != 0) {
            self.remember(said).await;
            return true;
        }
        if said.term() == latest.term() {
            self.state.note(said);
            let (at, noted) = self.noted;
            if said.changes > noted && self.service.env.clock.now().saturating_sub(at) >= NOTE_EVERY
            {
                self.remember(self.state.heard()).await;
            }
        }
        same_epoch && (said.start == 0 || said.start == latest.start)
    }

    /// Writes down what was heard from the manager since the last such write. Call before the process ends.
    pub async fn note(&mut self) {
        let said = self.state.heard();
        if said.changes > self.noted.1 {
            self.remember(said).await;
        }
    }

    /// Writes down which manager is in charge, and what it said.
    async fn remember(&mut self, said: HeardManager) {
        let remember = move |state: &mut State, disk: &dyn Disk| state.remember_manager(disk, said);
        let saved = self.change_state(remember).await;
        self.noted = (self.service.env.clock.now(), said.changes);
        if let Err(why) = saved {
            let path = self.state.path().display();
            tracing::error!("cannot remember the manager's epoch in {path}: {why}");
        }
    }

    /// Changes the remembered state on a thread where waiting for the disk holds nobody up.
    async fn change_state(
        &mut self,
        change: impl FnOnce(&mut State, &dyn Disk) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (mut state, disk) = (self.state.clone(), Arc::clone(&self.disk));
        let changed = move || {
            let saved = change(&mut state, &*disk);
            (state, saved)
        };
        let (state, saved) = self.service.env.offload.run(changed).await;
        self.state = state;
        saved
    }

    async fn send_page(&mut self, listing: Listing) -> Result<(), Failure> {
        let store = Arc::clone(&self.service.store);
        let incarnation = store.incarnation();
        let Listing { cursor, page: number, .. } = listing.clone();
        let page = match self.service.env.offload.run(move || store.page(cursor)).await {
            Ok(page) => page,
            Err(why) => {
                tracing::warn!("cannot list the store: {why}");
                self.list_after = self.service.env.clock.now() + LISTING_PAUSE;
                self.listing = Some(listing);
                return Ok(());
            }
        };
        let holdings = Packed(page.holdings);
        let last = page.next.is_none();
        let sent = Inventory { incarnation, page: number, holdings, last };
        if let Err(why) = self.caller.call(&sent).await {
            // Nobody knows whether the page arrived, so it is sent again. Only if the manager says that it does not
            // follow the page before, all is listed anew.
            match why.kind {
                ErrorKind::Conflict => self.listed = None,
                _ => self.listing = Some(listing),
            }
            return self.put_off(why);
        }
        self.put_off = 0;
        if last && self.state.begins_anew() {
            let saved = self.change_state(|state, disk| state.has_begun_anew(disk)).await;
            if let Err(why) = saved {
                tracing::warn!("cannot write {}: {why}", self.state.path().display());
            }
        }
        self.listing = page.next.map(|cursor| Listing { cursor, page: number + 1 });
        Ok(())
    }

    /// Checks the disk and samples the machine.
    async fn sample(&mut self) -> (Load, DiskState, u64) {
        let (store, disk) = (Arc::clone(&self.service.store), Arc::clone(&self.disk));
        let sampler = self.sampler.take();
        let sample = move || {
            store.check_disk();
            let (served, stored) = store.traffic();
            let mut sampler = sampler;
            let load = sampler.as_mut().map(|sampler| sampler.sample(&*disk, served, stored));
            (sampler, load.unwrap_or_default(), store.report())
        };
        let (sampler, load, (disk, room)) = self.service.env.offload.run(sample).await;
        self.sampler = sampler;
        (load, disk, room)
    }
}

/// Returns how long to wait after a number of failures in a row; different for every donor, so that a manager
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
