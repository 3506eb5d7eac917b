//! Donors join, register, send heartbeats, and leave.

use super::Pool;
use super::planning::Writer;
use crate::donor_table::{DonorContact, Enlisted, KnownDonor, Registration};
use crate::inventory_progress::InventoryProgress;
use crate::reach_record::ReachRecord;
use crate::receipts::ReceiptSigner;
use crate::record::DonorRecord;
use crate::uncommitted::UncommittedCopy;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, Incarnation, SessionId};
use potluck_core::placement::Candidate;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{Arrived, DonorDoes, DonorState, DonorStatus, Holding, Register};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// The time within which two restarts are not the owner's doing: the donor restarts all the time, or two daemons with
/// one identity replace each other at every heartbeat.
const IN_TURNS: Duration = Duration::from_secs(30);
/// The time after the start of another daemon in which it shows whether the one before it goes on: some heartbeats.
const TOLD_APART: Duration = Duration::from_secs(10);

/// The most chunks at one donor that the catalog takes in on the donor's word alone as they arrive. The names may be
/// invented, and each is a row until the donor says that its copy is gone.
const MOST_TAKEN_IN: u64 = 65_536;

/// Chunks that arrived at a donor and that the catalog does not know.
#[derive(Debug, Default)]
pub struct UnknownArrivals {
    /// The chunks that no file will use, of which the catalog is to be told.
    pub unwanted: Vec<Holding>,
    /// The number of chunks that stay unknown.
    others: u64,
}

impl Pool {
    /// Adds a member that lends disk; a donor that another donor invited is on that one's machine.
    pub fn add_donor(&mut self, donor: DonorId, name: &str, invited_by: Option<DonorId>) {
        self.donors.domains.take();
        let added = self.donors.all.entry(donor).or_default();
        (added.name, added.machine) = (name.into(), invited_by);
        self.losses.watch(donor);
    }

    /// Notes that this manager begins to listen.
    pub fn begin(&mut self, now: Tick) {
        self.donors.started = now;
    }

    /// Takes over the record of a donor from before this manager's start.
    pub fn recall(&mut self, donor: DonorId, record: DonorRecord) {
        self.donors.domains.take();
        if let Some(donor) = self.donors.all.get_mut(&donor) {
            donor.record = record;
        }
    }

    /// Notes that a donor is about to be removed: nothing new goes there, and no file is committed that counts on it,
    /// until it is removed or [`Self::spare_donor`] takes that back.
    pub fn condemn_donor(&mut self, donor: DonorId) {
        self.donors.all.entry(donor).and_modify(|donor| donor.removing += 1);
        self.losses.note(donor);
    }

    /// Takes back that the donor is about to be removed.
    pub fn spare_donor(&mut self, donor: DonorId) {
        let entry = self.donors.all.entry(donor);
        entry.and_modify(|donor| donor.removing = donor.removing.saturating_sub(1));
    }

    /// Removes a donor from the pool.
    pub fn remove_donor(&mut self, donor: DonorId) {
        self.donors.domains.take();
        self.donors.all.remove(&donor);
        self.losses.note(donor);
        self.expected.forget(donor);
        self.uncommitted.forget_donor(donor);
        self.chunk_orders.forget(donor);
        self.given_up.remove(&donor);
        self.false_receipts.forget(donor);
        self.forget_tasks(donor);
        self.settle_complaints(donor);
    }

    /// Returns whether the donor is in this pool.
    pub fn knows_donor(&self, donor: DonorId) -> bool {
        self.donors.all.contains_key(&donor)
    }

    /// Registers a donor that is reached at `addresses`.
    pub fn register(
        &mut self,
        id: DonorId,
        register: &Register,
        addresses: Addresses,
        now: Tick,
    ) -> Enlisted {
        let live = self.donors.is_live(id, now, &self.limits);
        let silence = self.donors.silence(id, now).unwrap_or_default();
        self.losses.watch(id);
        self.donors.domains.take();
        let donor = self.donors.all.entry(id).or_default();
        donor.record.label.clone_from(&register.label);
        donor.record.grace = register.grace_ms.map(Duration::from_millis);
        let earlier = donor.registration.take();
        // The donor lists anew what it has; until then nothing of that counts, nor does what it said before.
        let outlives = |earlier: &Registration| {
            !earlier.compared && earlier.incarnation == register.incarnation
        };
        if earlier.as_ref().is_some_and(|earlier| !outlives(earlier)) {
            self.losses.note_restart(id);
        }
        let again = earlier
            .as_ref()
            .is_some_and(|registration| registration.incarnation == register.incarnation);
        let keyed = earlier
            .as_ref()
            .filter(|registration| registration.key == register.key)
            .map_or(now, |registration| registration.keyed);
        let earlier_load =
            earlier.as_ref().map(|registration| registration.load).unwrap_or_default();
        if let Some(other) = earlier.as_ref().filter(|_| !again) {
            donor.twins.note(other.incarnation, &other.addresses, register.incarnation, now);
        }
        let earlier = earlier.filter(|_| again);
        let registered_before =
            earlier.as_ref().map_or(register.registered_before, |known| known.registered_before);
        let (earlier_write_sequence, batch) = earlier
            .map_or((None, 0), |registration| (registration.write_sequence, registration.batch));
        let mut registration = Registration {
            incarnation: register.incarnation,
            key: register.key.clone(),
            keyed,
            addresses,
            reach: ReachRecord::default(),
            version: register.version.clone(),
            disk: register.disk,
            room: register.room,
            lends: None,
            load: earlier_load,
            write_sequence: earlier_write_sequence,
            batch,
            unclaimed: 0,
            computed: 0,
            compared: false,
            taking: Some(InventoryProgress::default()),
            fault: register.disk_fault.clone(),
            settings_fault: None,
            new_store: register.new_store,
            registered_before,
            last_task: self.repairs.tasks.last(),
            does: DonorDoes::default(),
            off_until: None,
        };
        registration.take_mode(register.does, silence, now, &self.limits);
        donor.registration = Some(registration);
        donor.hear(now, &self.limits);
        let restarts = live && !again;
        let before = if restarts { donor.restarted.replace(now) } else { None };
        let in_turns = before.is_some_and(|before| now.saturating_sub(before) <= IN_TURNS);
        self.expected.registered(id);
        self.repairs.ask_again(id);
        if again {
            return Enlisted::Again;
        }
        self.chunk_orders.forget(id);
        self.forget_tasks(id);
        self.uncommitted.forget_donor(id);
        self.given_up.remove(&id);
        if in_turns { Enlisted::InTurns } else { Enlisted::Anew }
    }

    /// Returns whether the donor is live and its inventory was compared, so that a copy there counts.
    pub fn vouches(&self, donor: DonorId, now: Tick) -> bool {
        self.donors.is_live(donor, now, &self.limits)
            && self.donors.registration(donor).is_some_and(|registration| registration.compared)
    }

    /// Returns whether this incarnation of a donor began with an empty store because the earlier store is lost.
    pub fn begins_anew(&self, donor: DonorId, incarnation: Incarnation) -> bool {
        let registration = self
            .donors
            .registration(donor)
            .filter(|registration| registration.incarnation == incarnation);
        registration.is_some_and(|registration| registration.new_store)
    }

    /// Returns whether a donor is heard now.
    pub fn is_heard(&self, donor: DonorId, now: Tick) -> bool {
        self.donors.is_live(donor, now, &self.limits)
    }

    /// Notes that a donor was heard over this connection, from this address.
    pub fn heard_over(&mut self, donor: DonorId, connection: u64, peer: IpAddr) {
        if let Some(donor) = self.donors.get_mut(donor) {
            (donor.connection, donor.peer) = (connection, Some(peer.to_canonical()));
        }
    }

    /// Returns the donors of the machine that calls from `peer`. None is returned where donors of several machines
    /// call from there, as behind one router that hides their addresses, or where all of a pool runs on one machine:
    /// which of them is the caller's is not known then.
    pub fn donors_at(&self, peer: IpAddr) -> BTreeSet<DonorId> {
        let peer = peer.to_canonical();
        let is_there = |donor: &KnownDonor| {
            let addresses = donor.registration.as_ref().map(|it| &it.addresses);
            donor.peer == Some(peer)
                || addresses.is_some_and(|all| all.iter().any(|it| it.ip() == Some(peer)))
        };
        let there = self.donors.iter().filter(|(_, donor)| is_there(donor)).map(|(id, _)| id);
        let there: BTreeSet<DonorId> = there.collect();
        let machines: BTreeSet<DonorId> =
            there.iter().map(|donor| self.donors.machine(*donor)).collect();
        if machines.len() == 1 { there } else { BTreeSet::new() }
    }

    /// Returns the live donor that was last heard over a connection, and when that was.
    pub fn speaks_over(&self, connection: u64, now: Tick) -> Option<(DonorContact, Tick)> {
        let (id, donor) = self.donors.iter().find(|(_, donor)| donor.connection == connection)?;
        self.is_heard(id, now).then(|| Some((self.contact(id, now)?, donor.heard?)))?
    }

    /// Notes that a donor's connection ended and it is nowhere to be reached: it died, unless it was heard after
    /// `heard`. Nobody then waits until it has been silent for long.
    pub fn hung_up(&mut self, donor: DonorId, heard: Tick) {
        if let Some(donor) = self.donors.get_mut(donor).filter(|at| at.heard == Some(heard)) {
            donor.hung_up = true;
        }
    }

    /// Returns whether any donor that is believed to be there was last heard before `since`.
    pub fn awaits_word(&self, since: Tick, now: Tick) -> bool {
        let mut donors = self.donors.iter();
        donors.any(|(id, _)| self.awaits_word_of(id, since, now))
    }

    /// Returns whether this donor is believed to be there and was last heard before `since`.
    pub fn awaits_word_of(&self, id: DonorId, since: Tick, now: Tick) -> bool {
        let heard = self.donors.get(id).and_then(|donor| donor.heard);
        heard.is_some_and(|heard| heard < since) && self.is_heard(id, now)
    }

    /// Returns whether every donor that lent something and is not given up is live and has listed what it holds.
    pub fn assembled(&self, now: Tick) -> bool {
        let mut ids = self.donors.iter().map(|(id, _)| id);
        ids.all(|id| self.vouches(id, now) || self.has_nothing(id, now))
    }

    /// Returns whether nothing is expected of a donor: it is given up, or has never lent.
    pub fn has_nothing(&self, id: DonorId, now: Tick) -> bool {
        matches!(self.donors.state(id, now, &self.limits), DonorState::Dead | DonorState::Joined)
    }

    /// Returns the state of a donor.
    pub fn donor_state(&self, id: DonorId, now: Tick) -> DonorState {
        self.donors.state(id, now, &self.limits)
    }

    /// Returns how to reach a donor; `None` if it is not in this pool.
    pub fn contact(&self, id: DonorId, now: Tick) -> Option<DonorContact> {
        let donor = self.donors.all.get(&id)?;
        let registration = donor.registration.as_ref();
        let within_limits = |rates| match registration {
            Some(registration) => registration.load.within_limits(rates),
            None => rates,
        };
        Some(DonorContact {
            donor: id,
            name: donor.name.clone(),
            addresses: registration
                .map(|registration| registration.addresses.clone())
                .unwrap_or_default(),
            live: self.donors.is_live(id, now, &self.limits),
            load: registration.map_or(0.0, |registration| registration.load.score()),
            rates: within_limits(donor.traffic.rates(now)),
            limits: registration.map(|it| it.load.limits).unwrap_or_default(),
            domain: self.domains()[&id],
            signer: self.donors.signer(id),
        })
    }

    /// Returns whether a donor is heard from, and its load as a score from 0 (idle) to 1; `None` if it is not in this
    /// pool.
    pub fn load(&self, id: DonorId, now: Tick) -> Option<(bool, f32)> {
        let registration = self.donors.all.get(&id)?.registration.as_ref();
        let load = registration.map_or(0.0, |registration| registration.load.score());
        Some((self.donors.is_live(id, now, &self.limits), load))
    }

    /// Returns the key and incarnation that sign the receipts of each of these donors that registered.
    pub fn receipt_signers(&self, of: &BTreeSet<DonorId>) -> BTreeMap<DonorId, ReceiptSigner> {
        of.iter().filter_map(|id| Some((*id, self.donors.signer(*id)?))).collect()
    }

    /// Returns the incarnation of a donor, once it registered.
    pub fn incarnation(&self, donor: DonorId) -> Option<Incarnation> {
        Some(self.donors.registration(donor)?.incarnation)
    }

    /// Returns the donors of this pool that have not registered since the manager's start.
    pub fn unregistered(&self) -> BTreeSet<DonorId> {
        self.donors
            .iter()
            .filter(|(_, donor)| donor.registration.is_none())
            .map(|(id, _)| id)
            .collect()
    }

    /// Returns how many donors the pool has, live or not.
    pub fn donor_count(&self) -> usize {
        self.donors.all.len()
    }

    /// Returns how many donors take files, now or when they are back. Donors that were never heard, that leave or are
    /// not trusted are left out, and so are those that are away and have no room for a chunk of `chunk_size`.
    pub fn expected_donors(&self, chunk_size: u32, now: Tick) -> usize {
        let expected = |(id, donor): &(DonorId, &KnownDonor)| {
            let willing = donor.record.is_willing() && !donor.is_being_removed();
            let joined = self.donors.state(*id, now, &self.limits) == DonorState::Joined;
            let free = || self.free_in_chunks(*id, chunk_size);
            let full = || donor.registration.is_some() && free() < u64::from(chunk_size);
            willing && !joined && (self.is_heard(*id, now) || !full())
        };
        self.donors.iter().filter(expected).count()
    }

    /// Returns the donors that `writer` can write to now in chunks of `chunk_size`, without those in `avoid`.
    pub(super) fn candidates(
        &self,
        writer: Option<Writer>,
        avoid: &[DonorId],
        chunk_size: u32,
        now: Tick,
    ) -> Vec<Candidate> {
        let peer = writer.and_then(|writer| writer.peer);
        let here = peer.map(|peer| self.donors_at(peer)).unwrap_or_default();
        self.donors
            .iter()
            .filter(|(id, _)| !avoid.contains(id) && self.takes(*id, now))
            .filter_map(|(id, donor)| {
                let registration = donor.registration.as_ref()?;
                let is_here = here.contains(&id);
                let reader = writer.filter(|_| is_here).map(|writer| writer.member);
                Some(Candidate {
                    donor: id,
                    free: self.free_in_chunks(id, chunk_size),
                    load: registration.load.score(),
                    rate: registration
                        .load
                        .within_limits(donor.traffic.rates(now))
                        .written
                        .map(|rate| rate as f64),
                    read_rate: donor.traffic.read_rate_of(reader, now),
                    domain: self.domains()[&id],
                    is_here,
                })
            })
            .collect()
    }

    /// Notes chunks that a donor lists and the catalog does not know: those that a session offered are merely not
    /// committed yet, and the others are counted.
    pub fn unknown_at(&mut self, donor: DonorId, incarnation: Incarnation, chunks: &[Holding]) {
        let others = self.take_down_offered(donor, incarnation, chunks, false);
        self.count_unknown(donor, incarnation, others);
    }

    /// Notes which of some unknown chunks a session offered, that arrived or that the donor lists; returns how many
    /// others there are. A chunk that is reported again is noted only once.
    fn take_down_offered(
        &mut self,
        donor: DonorId,
        incarnation: Incarnation,
        chunks: &[Holding],
        arrived: bool,
    ) -> u64 {
        let Some(registration) = self.donors.registration_of(donor, incarnation) else { return 0 };
        let copy = UncommittedCopy { donor, counts: arrived || registration.registered_before };
        let mut others = 0;
        for Holding { name, len } in chunks {
            match self.offered.one_of(name) {
                Some(session) => {
                    let by = self.offered_only_by(name);
                    if self.uncommitted.add(*name, *len, copy, session, by) {
                        self.ledger.used(session, donor, u64::from(*len));
                    }
                }
                None => others += 1,
            }
        }
        others
    }

    fn count_unknown(&mut self, donor: DonorId, incarnation: Incarnation, chunks: u64) {
        let computes = self.repairs.computes(donor);
        if let Some(registration) = self.donors.registration_of(donor, incarnation) {
            match computes {
                true => registration.computed += chunks,
                false => registration.unclaimed += chunks,
            }
        }
    }

    /// Notes chunks that arrived at a donor and that the catalog does not know. Chunks that a session for which
    /// `is_known` holds brought and that no session offered will be used by no file: the catalog is to be told of
    /// them, within the bound on what it takes in on the donor's word alone.
    pub fn unknown_arrived(
        &mut self,
        donor: DonorId,
        incarnation: Incarnation,
        chunks: impl Iterator<Item = Arrived>,
        is_known: impl Fn(&SessionId) -> bool,
    ) -> UnknownArrivals {
        let is_unwanted = |arrived: &Arrived| {
            let brought = arrived.session.is_some_and(|session| is_known(&session));
            brought && !self.offered.is_offered(&arrived.holding.name)
        };
        let (unwanted, others): (Vec<_>, Vec<_>) = chunks.partition(is_unwanted);
        let holdings = |chunks: Vec<Arrived>| chunks.into_iter().map(|chunk| chunk.holding);
        let others: Vec<Holding> = holdings(others).collect();
        let taken_in = self.donors.get(donor).map_or(0, |donor| donor.taken_in);
        let left = MOST_TAKEN_IN.saturating_sub(taken_in) as usize;
        let mut unwanted: Vec<Holding> = holdings(unwanted).collect();
        let too_many = unwanted.split_off(left.min(unwanted.len())).len() as u64;
        let others = self.take_down_offered(donor, incarnation, &others, true) + too_many;
        UnknownArrivals { unwanted, others }
    }

    /// Returns whether the catalog has a donor's changes up to the batch of this number.
    pub fn has_written(&self, donor: DonorId, incarnation: Incarnation, batch: u64) -> bool {
        self.donors.registration(donor).is_some_and(|registration| {
            registration.incarnation == incarnation && registration.batch >= batch
        })
    }

    /// Notes that the catalog has a donor's report of arrivals under this batch number, and counts, once, the chunks
    /// that stay unknown. The catalog already knew the chunks in `known`.
    pub fn arrivals_written(
        &mut self,
        donor: DonorId,
        (incarnation, batch): (Incarnation, u64),
        arrived: &UnknownArrivals,
        known: &[Holding],
    ) {
        // The same heartbeat may have been sent again while this one was read.
        let Some(registration) =
            self.donors.registration_of(donor, incarnation).filter(|known| known.batch < batch)
        else {
            return;
        };
        registration.batch = batch;
        self.count_unknown(donor, incarnation, arrived.others);
        // Stored chunks are in the donor's own figures now, so their bytes are promised no more.
        for holding in known {
            if let Some(session) = self.offered.one_of(&holding.name) {
                self.ledger.used(session, donor, u64::from(holding.len));
            }
        }
        self.took_in(donor, arrived.unwanted.len() as u64);
    }

    /// Notes that so many copies of chunks that no file uses are gone from a donor.
    pub fn unused_gone(&mut self, donor: DonorId, copies: u64) {
        if let Some(donor) = self.donors.get_mut(donor) {
            donor.taken_in = donor.taken_in.saturating_sub(copies);
        }
    }

    /// Returns the length in stored bytes of a chunk that a session offered and the catalog does not know, and the
    /// donors that told of it.
    pub fn uncommitted(&self, name: &ChunkName) -> Option<(u32, Vec<DonorId>)> {
        self.uncommitted.get(name)
    }

    /// Returns what [`Self::uncommitted`] does, without donors that were started again since they took the chunk: they
    /// list it, and may have lost its bytes with their power.
    pub fn uncommitted_since_start(&self, name: &ChunkName) -> Option<(u32, Vec<DonorId>)> {
        self.uncommitted.counting(name)
    }

    /// Notes that the catalog has learnt of chunks that a donor told of earlier, such as parity that was made by
    /// order.
    pub fn claimed(&mut self, donor: DonorId, chunks: u64) {
        if let Some(registration) = self.donors.registration_mut(donor) {
            let computed = chunks.min(registration.computed);
            registration.computed -= computed;
            registration.unclaimed = registration.unclaimed.saturating_sub(chunks - computed);
        }
    }

    /// Takes out the donors that told of a copy of a chunk before the catalog knew it. A commit names only the donors
    /// whose receipts reached the writer; the copies of the others would be unknown until the next inventory.
    pub fn take_early(&mut self, name: &ChunkName) -> BTreeSet<DonorId> {
        self.uncommitted.take(name)
    }

    /// Returns the status of every donor as it is now; the numbers that the catalog counts are left at 0.
    pub fn status(&self, now: Tick) -> Vec<DonorStatus> {
        let status = |(id, donor): (DonorId, &KnownDonor)| {
            let mut status = DonorStatus {
                donor: id,
                name: donor.name.clone(),
                state: self.donors.state(id, now, &self.limits),
                silent_seconds: self.donors.silence(id, now).map(|silent| silent.as_secs()),
                promised: self.ledger.promised(id),
                label: donor.record.label.clone(),
                away_seconds: donor
                    .announced_until()
                    .filter(|until| now < *until)
                    .map(|until| until.saturating_sub(now).as_secs()),
                quarantined: donor.record.quarantined.clone(),
                takes_nothing: !donor.record.is_willing(),
                scrub: donor.record.scrub,
                reclaiming: self.is_given_up(id) && self.vouches(id, now),
                ..DonorStatus::default()
            };
            if matches!(status.state, DonorState::Suspect | DonorState::Silent) {
                let silent = self.donors.silence(id, now);
                let left =
                    silent.map(|silent| self.donors.grace(id, &self.limits).saturating_sub(silent));
                status.given_up_seconds = left.map(|left| left.as_secs());
            }
            if let Some(registration) = &donor.registration {
                status.addresses.clone_from(&registration.addresses);
                status.twin_at = donor.twins.other(now).cloned();
                status.may_be_twins =
                    donor.restarted.is_some_and(|at| now.saturating_sub(at) <= TOLD_APART);
                status.unreachable = registration.reach.unreachable().map(str::to_owned);
                status.version = registration.version.clone();
                status.used = registration.disk.lent_used;
                status.room = registration.room;
                status.lends = registration.lends;
                // Nobody can reclaim what a dead donor has, or use its room.
                let is_dead = status.state == DonorState::Dead;
                status.unclaimed = if is_dead { 0 } else { registration.unclaimed };
                status.load = registration.load;
                status.rates = donor.traffic.status(now);
                status.disk_fault.clone_from(&registration.fault);
                status.settings_fault.clone_from(&registration.settings_fault);
                status.mode = registration.does.mode;
                status.stopped = registration.does.stops;
            }
            status
        };
        self.donors.iter().map(status).collect()
    }
}
