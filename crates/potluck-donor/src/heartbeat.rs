//! The donor's side of the control plane: it registers, lists the chunks that it holds, and reports each second; tasks
//! and chunk orders come back in the replies. Calls are made one at a time, so that the manager hears of all changes in
//! the order in which they happened: a page of the inventory is listed and sent before any later change is reported.

use crate::disk::Disk;
use crate::load::Sampler;
use crate::registration::ManagerTerm;
use crate::service::Service;
use crate::state::{HeardManager, State};
use crate::store::Cursor;
use crate::tasks::TaskWorker;
use potluck_core::clock::Tick;
use potluck_core::entropy::Entropy;
use potluck_core::ids::Incarnation;
use potluck_core::lend_mode::LendMode;
use potluck_core::load::Load;
use potluck_core::owner_limits::DiskState;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    DonorDoes, Heartbeat, HeartbeatReply, Inventory, Register, Registered,
};
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
/// The shortest time from one heartbeat to the next when results of tasks wait.
const SHORTEST: Duration = Duration::from_millis(200);
/// The longest first pause after a call failed; it doubles with each failure, up to [`MAX_PAUSE`]. A pause is at least
/// half as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause after failed calls. It is short because a manager that restarts holds its clients up until its
/// donors have reported. After some failures a pause lasts at least half of this, which is [`INTERVAL`]: a manager
/// that is away is then called no more often than one that answers.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// The pause before a listing is tried again after the store could not be listed.
const LISTING_PAUSE: Duration = Duration::from_secs(10);
/// The shortest time between two writes of the manager's number of changes: a write with each heartbeat would cost an
/// fsync a second in a busy pool. A donor that is killed forgets the changes since the last write; a donor that is
/// stopped writes them.
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// The time for which a donor that is shut down announces its absence, in milliseconds: a desktop is off at night, and nothing
/// of what it holds is made elsewhere for that.
const SHUT_DOWN_MS: u64 = 16 * 3_600_000;
/// The longest time that a shutdown waits for the manager to hear of it.
const GOODBYE: Duration = Duration::from_secs(2);

/// The facts that a donor tells the manager about itself when it registers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DonorFacts {
    /// The addresses at which others reach the donor.
    pub told: ToldAddresses,
    /// The port at which bulk connections are taken.
    pub port: u16,
    /// The label of the donor's failure domain: donors with one label fail together.
    pub label: Option<String>,
    /// The time that the donor may be silent before repair begins, if it has one of its own.
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
    /// The incarnation that registered last, with any manager.
    registered_as: Option<Incarnation>,
    listing: Option<Listing>,
    /// The number of scrub rounds after which the inventory was last listed; `None` when it must be listed anew.
    listed: Option<u64>,
    /// The moment before which no list is begun or continued, since the manager had no time for it or the store could
    /// not be listed.
    list_after: Tick,
    /// The number of times in a row that the manager did not take a page of a list.
    put_off: u32,
    next_heartbeat: Tick,
    last_heartbeat: Tick,
    failures: u32,
    /// The code of the failure that was last logged.
    complained: Option<String>,
    /// The term of the manager whose tasks and orders were last refused.
    refused: Option<ManagerTerm>,
    /// The moment at which the manager's number of changes was last written down, and that number.
    noted: (Tick, u64),
    /// True if, as the manager said last, the owner takes all lent space back.
    leaving: bool,
    /// True once the donor shuts down.
    stops: bool,
}

/// An inventory under way.
#[derive(Debug, Clone, Default)]
struct Listing {
    cursor: Cursor,
    page: u32,
}

/// The outcome of a step of the loop.
enum Stepped {
    /// The step was a registration or a heartbeat, and did not fail.
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
        let lent = service.store.layout().root();
        let sampler = Some(Sampler::new(&*disk, service.env.clock.clone(), lent));
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
            registered_as: None,
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
            stops: false,
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
        let may_list = there && !self.service.owner.is_off() && self.list_after <= now;
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

    /// Waits until the next heartbeat is due: at its second, or sooner when a task was answered, because the manager
    /// may have more tasks, or when the terms were changed. Also ends when a list may be sent again.
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
        let incarnation = self.service.store.incarnation();
        let registered = self
            .caller
            .call(&Register {
                incarnation,
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
                registered_before: self.registered_as == Some(incarnation),
                does: self.service.owner.told(self.service.env.clock.now()),
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
            self.service.store.changes().restart(); // the inventory tells all of it
        }
        self.registered = true;
        self.registered_as = Some(incarnation);
        (self.listing, self.listed) = (None, None);
        (self.list_after, self.put_off) = (Tick::ZERO, 0);
        Ok(())
    }

    /// Begins to list everything anew: after registration, after a round of the scrub, and when the manager asks for
    /// it. A round of the scrub reads the chunks that are there, and only the manager knows which are missing.
    async fn list_again(&mut self, rounds: u64) -> Result<(), Failure> {
        let incarnation = self.service.store.incarnation();
        let holdings = Packed::default();
        // The first page is empty: before the first bucket is listed, the manager must have time for a list and watch
        // the changes that arrive.
        let first = Inventory { incarnation, page: 0, holdings, last: false };
        if let Err(why) = self.caller.call(&first).await {
            return self.put_off(why);
        }
        self.put_off = 0;
        self.listing = Some(Listing { page: 1, ..Listing::default() });
        self.listed = Some(rounds);
        Ok(())
    }

    /// Notes that the manager did not take a page. Where it has no time, the donor asks again after a pause, and sends
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
        let throttle = self.service.throttle.in_force();
        let (limits, borne) = (throttle.limits(), self.service.governor.borne());
        let load = Load { limits, borne, yielding: throttle.yielding, ..load };
        let store = Arc::clone(&self.service.store);
        if store.changes().overflowed() {
            return self.register().await; // a report is of no use before the manager has compared the whole inventory
        }
        self.service.peer_connections.close_idle(self.service.env.clock.now());
        // The results are taken before the changes, so that a chunk that a task stored is reported no later than the
        // task's result.
        let results = self.tasks.results();
        let asked = store.to_discard(self.leaving);
        let stored = self.service.tickets.stored();
        let batch = store.changes().batch();
        let number = batch.number;
        // The manager does not believe the result of a task whose copy is not reported, so results wait until all
        // changes fit.
        let results = if batch.is_all { results } else { Vec::new() };
        let answered = results.len();
        let heartbeat = Heartbeat {
            incarnation: store.incarnation(),
            write_sequence: store.write_sequence().last(),
            load,
            traffic: self.service.traffic.total(),
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
            does: match self.stops {
                true => DonorDoes { mode: LendMode::Off, for_ms: Some(SHUT_DOWN_MS), stops: true },
                false => self.service.owner.told(self.service.env.clock.now()),
            },
        };
        let reply = self.caller.call(&heartbeat).await?;
        if self.stops {
            return Ok(()); // what the manager orders is for the donor's next start
        }
        self.service.tickets.promise(reply.promised, stored);
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
            // The new manager is remembered and obeyed from the registration on. By what it is told then of earlier
            // managers, it finds out whether its catalog is an old copy.
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

    /// Returns whether the manager that said this may give orders; a new manager is remembered before it gives any. Of
    /// two managers of one epoch the one that was heard first is in charge, because the other runs on a copy of its
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

    /// Tells the manager that the donor shuts down: its absence is announced then, and nobody waits for it. What was
    /// stored lately is reported with it. A manager that does not answer finds out by itself.
    pub async fn say_goodbye(&mut self) {
        if !self.registered {
            return;
        }
        self.stops = true;
        match tokio::time::timeout(GOODBYE, self.send_heartbeat()).await {
            Ok(Ok(())) => tracing::debug!("said goodbye"),
            Ok(Err(why)) => tracing::debug!("cannot say goodbye: {why}"),
            Err(_) => tracing::debug!("cannot say goodbye: the manager does not answer"),
        }
    }

    /// Writes down the manager's number of changes, if it has grown since it was last written. Call this before the
    /// process ends.
    pub async fn note(&mut self) {
        let said = self.state.heard();
        if said.changes > self.noted.1 {
            self.remember(said).await;
        }
    }

    /// Writes down which manager is in charge, and its number of changes; a failure is logged.
    async fn remember(&mut self, said: HeardManager) {
        let remember = move |state: &mut State, disk: &dyn Disk| state.remember_manager(disk, said);
        let saved = self.change_state(remember).await;
        self.noted = (self.service.env.clock.now(), said.changes);
        if let Err(why) = saved {
            let path = self.state.path().display();
            tracing::error!("cannot remember the manager's epoch in {path}: {why}");
        }
    }

    /// Changes the remembered state on a thread that may wait for the disk.
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
            // It is not known whether the page arrived, so it is sent again. Only if the manager says that the page
            // does not follow the one before, everything is listed anew.
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

    /// Checks the disk and samples the machine; returns the load, the state of the disk, and the bytes that can still
    /// be stored.
    async fn sample(&mut self) -> (Load, DiskState, u64) {
        let (store, disk) = (Arc::clone(&self.service.store), Arc::clone(&self.disk));
        let (sampler, served) = (self.sampler.take(), self.service.traffic.total().read.bytes);
        let owner = Arc::clone(&self.service.owner);
        let sample = move || {
            // While the donor does nothing its disk may sleep.
            if !owner.is_off() {
                store.check_disk();
            }
            let stored = store.stored();
            let mut sampler = sampler;
            let load = sampler.as_mut().map(|sampler| sampler.sample(&*disk, served, stored));
            (sampler, load.unwrap_or_default(), store.report())
        };
        let (sampler, load, (disk, room)) = self.service.env.offload.run(sample).await;
        self.sampler = sampler;
        (load, disk, if self.service.owner.mode().takes_writes() { room } else { 0 })
    }
}

/// Returns the pause after so many earlier failures in a row. It is random, so that a manager that comes back is not
/// called by all donors at once.
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
