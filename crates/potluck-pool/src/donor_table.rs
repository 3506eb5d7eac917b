//! Donors as they were last heard.

use super::decided::Count;
use super::inventory_progress::InventoryProgress;
use super::limits::PoolLimits;
use super::reach_record::ReachRecord;
use super::record::DonorRecord;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, Incarnation};
use potluck_core::load::Load;
use potluck_core::owner_limits::DiskState;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{DiskFault, Heartbeat};
use potluck_wire::ticket::Secret;
use std::collections::BTreeMap;

/// The donors that joined and were not removed.
#[derive(Debug, Default)]
pub struct DonorTable {
    pub(crate) all: BTreeMap<DonorId, KnownDonor>,
    /// When this manager began to listen.
    pub(crate) started: Tick,
}

#[derive(Debug, Default)]
pub struct KnownDonor {
    pub(crate) name: String,
    /// The donor of the same machine that invited it.
    pub(crate) machine: Option<DonorId>,
    pub registration: Option<Registration>,
    pub(crate) heard: Option<Tick>,
    /// When it last registered anew while it was heard.
    pub(crate) restarted: Option<Tick>,
    /// The connection that its last word came over.
    pub(crate) connection: u64,
    /// That connection ended, and the donor was nowhere to be reached.
    pub(crate) hung_up: bool,
    /// How many are about to remove it: nothing is promised on its word meanwhile.
    pub(crate) removing: u32,
    /// Chunks that no file uses and that the catalog knows on its word alone, as far as it has not said that they are gone.
    pub(crate) taken_in: u64,
    pub record: DonorRecord,
}

/// A donor since it registered.
#[derive(Debug)]
pub struct Registration {
    pub(crate) incarnation: Incarnation,
    pub(crate) key: Secret,
    /// The time since which it has this key, as far as this manager knows.
    pub(crate) keyed: Tick,
    /// The addresses at which the donor is reached, the best first.
    pub addresses: Addresses,
    pub reach: ReachRecord,
    pub(crate) version: String,
    pub disk: DiskState,
    pub room: u64,
    pub(crate) lends: Option<u64>,
    pub(crate) load: Load,
    /// Unknown until the first heartbeat.
    pub(crate) write_sequence: Option<u64>,
    pub unclaimed: u64,
    /// Chunks that came while it computed parity by order. The catalog learns their names when the order
    /// is answered, so nobody is told meanwhile that they are unknown.
    pub computed: u64,
    /// Whether its whole inventory was compared; before, its copies count for nothing new.
    pub compared: bool,
    pub taking: Option<InventoryProgress>,
    /// The fault of its disk.
    pub(crate) fault: Option<DiskFault>,
    /// The reason why the donor goes by earlier settings, if it does.
    pub(crate) settings_fault: Option<String>,
    /// True if the owner said that all it held before is lost for good.
    pub(crate) new_store: bool,
    /// The last order of the pool's when it registered: those until then name where it was before.
    pub last_task: u64,
}

/// How to reach a donor.
#[derive(Debug, Clone)]
pub struct DonorContact {
    /// The id of the donor.
    pub donor: DonorId,
    /// The name that people call it by.
    pub name: String,
    /// Where it is reached, the best first; none while it has not registered.
    pub addresses: Addresses,
    /// True while the donor is heard from.
    pub live: bool,
    /// The donor's load as a score from 0 (idle) to 1 ([`Load::score`]).
    pub load: f32,
    /// The label that its owner gave it: donors with one label fail together.
    pub label: Option<String>,
    /// The key of the donor, once it registered.
    pub key: Option<Secret>,
}

/// The change that a registration made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enlisted {
    /// The incarnation goes on that was known.
    Again,
    /// A new incarnation; nothing said to an earlier one holds.
    Anew,
    /// A new incarnation while the earlier one was still heard, not long after another one: it restarts all the
    /// time, or two donors have one identity and take turns.
    InTurns,
}

impl DonorTable {
    pub fn get(&self, donor: DonorId) -> Option<&KnownDonor> {
        self.all.get(&donor)
    }

    pub fn get_mut(&mut self, donor: DonorId) -> Option<&mut KnownDonor> {
        self.all.get_mut(&donor)
    }

    /// The first donor of a donor's machine, which need not be of the pool any more.
    pub fn machine(&self, donor: DonorId) -> DonorId {
        self.get(donor).and_then(|donor| donor.machine).unwrap_or(donor)
    }

    pub fn registration(&self, donor: DonorId) -> Option<&Registration> {
        self.all.get(&donor)?.registration.as_ref()
    }

    pub fn registration_mut(&mut self, donor: DonorId) -> Option<&mut Registration> {
        self.all.get_mut(&donor)?.registration.as_mut()
    }

    pub fn registration_of(
        &mut self,
        donor: DonorId,
        incarnation: Incarnation,
    ) -> Option<&mut Registration> {
        self.all
            .get_mut(&donor)?
            .registration
            .as_mut()
            .filter(|registration| registration.incarnation == incarnation)
    }

    pub fn is_registered(&self, donor: DonorId) -> bool {
        self.registration(donor).is_some()
    }

    pub fn count(&self, donor: DonorId) -> Option<Count> {
        let registration = self.registration(donor)?;
        Some(Count {
            incarnation: registration.incarnation,
            write_sequence: registration.write_sequence?,
        })
    }

    pub fn heartbeat(
        &mut self,
        id: DonorId,
        heartbeat: &Heartbeat,
        now: Tick,
        limits: &PoolLimits,
    ) -> bool {
        let Some(donor) = self.all.get_mut(&id) else { return false };
        let Some(registration) = donor
            .registration
            .as_mut()
            .filter(|registration| registration.incarnation == heartbeat.incarnation)
        else {
            return false;
        };
        registration.disk = heartbeat.disk;
        registration.room = heartbeat.room;
        registration.lends = heartbeat.lends;
        registration.load = heartbeat.load;
        registration.fault.clone_from(&heartbeat.disk_fault);
        registration.settings_fault.clone_from(&heartbeat.settings_fault);
        // Requests may overtake each other; a count never goes back.
        registration.write_sequence =
            Some(heartbeat.write_sequence.max(registration.write_sequence.unwrap_or(0)));
        if let Some(taking) = &mut registration.taking {
            taking.arrived(heartbeat.added.0.iter().map(|arrived| arrived.holding.name));
        }
        donor.record.excess = heartbeat.excess;
        donor.record.scrub = heartbeat.scrub;
        donor.hear(now, limits);
        true
    }

    pub fn iter(&self) -> impl Iterator<Item = (DonorId, &KnownDonor)> {
        self.all.iter().map(|(id, donor)| (*id, donor))
    }
}

impl KnownDonor {
    /// Whether somebody is about to remove it.
    pub fn is_being_removed(&self) -> bool {
        self.removing > 0
    }

    /// Returns the name that people call it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether no manager ever heard it.
    pub(crate) fn has_never_lent(&self) -> bool {
        let DonorRecord { silent_before, addresses, .. } = &self.record;
        let registered = self.registration.is_some() || !addresses.is_empty();
        !registered && self.heard.is_none() && silent_before.is_none()
    }

    /// True when its daemon answers and the directory that it lends is missing.
    pub(crate) fn diskless(&self) -> bool {
        let fault = self.registration.as_ref().and_then(|registration| registration.fault.as_ref());
        fault.is_some_and(|fault| fault.missing)
    }

    /// A sign of registration. A daemon without its disk gives none: to the pool it is as good as silent,
    /// with the same grace, and what it held is treated as that of a machine that was pulled.
    pub(crate) fn hear(&mut self, now: Tick, limits: &PoolLimits) {
        if self.diskless() {
            return;
        }
        let returns =
            self.heard.is_some_and(|heard| now.saturating_sub(heard) > limits.suspect_after);
        if returns {
            self.record.away_until = None;
        }
        self.record.declared_dead = false;
        self.hung_up = false;
        self.heard = Some(now);
    }
}

/// A donor by its name and its number, as people are told.
pub fn called(name: &str, number: DonorId) -> String {
    format!("donor {name} ({number})")
}
