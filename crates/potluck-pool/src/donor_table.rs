//! The table of donors, each as it was last heard.

use super::decided::Count;
use super::inventory_progress::InventoryProgress;
use super::known_traffic::KnownTraffic;
use super::limits::PoolLimits;
use super::reach_record::ReachRecord;
use super::receipts::ReceiptSigner;
use super::record::DonorRecord;
use super::twins::Twins;
use potluck_core::clock::Tick;
use potluck_core::ids::{Domain, DonorId, Incarnation};
use potluck_core::load::Load;
use potluck_core::owner_limits::DiskState;
use potluck_core::traffic::BothWays;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{DiskFault, DonorDoes, Heartbeat};
use potluck_wire::ticket::Secret;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The donors that joined and were not removed.
#[derive(Debug, Default)]
pub struct DonorTable {
    pub(crate) all: BTreeMap<DonorId, KnownDonor>,
    /// The failure domain of each donor, once asked for; emptied whenever a donor comes, goes or says another label.
    pub(crate) domains: OnceCell<BTreeMap<DonorId, Domain>>,
    /// The time at which this manager began to listen.
    pub(crate) started: Tick,
}

#[derive(Debug, Default)]
pub struct KnownDonor {
    pub(crate) name: String,
    /// The donor on the same machine that invited this one.
    pub(crate) machine: Option<DonorId>,
    pub registration: Option<Registration>,
    pub(crate) heard: Option<Tick>,
    /// The time at which the donor last registered with a new incarnation while the earlier one was still heard.
    pub(crate) restarted: Option<Tick>,
    /// The other daemons that register with the donor's identity, if there are any.
    pub(crate) twins: Twins,
    /// The connection over which the donor was last heard.
    pub(crate) connection: u64,
    /// The address from which the donor was last heard.
    pub(crate) peer: Option<IpAddr>,
    /// True if that connection ended and the donor was then reached nowhere; false again once it is heard.
    pub(crate) hung_up: bool,
    /// The number of removals of the donor that are being prepared: nothing is promised on its word meanwhile.
    pub(crate) removing: u32,
    /// The number of chunks that no file uses and that the catalog knows on the donor's word alone, as far as the donor
    /// has not said that they are gone.
    pub(crate) taken_in: u64,
    pub(crate) traffic: KnownTraffic,
    pub record: DonorRecord,
}

/// A donor since it registered.
#[derive(Debug)]
pub struct Registration {
    pub(crate) incarnation: Incarnation,
    pub(crate) key: Secret,
    /// The time since which the donor has its present key, as far as this manager knows.
    pub(crate) keyed: Tick,
    /// The addresses at which the donor is reached, the best first.
    pub addresses: Addresses,
    pub reach: ReachRecord,
    pub(crate) version: String,
    pub disk: DiskState,
    pub room: u64,
    pub(crate) lends: Option<u64>,
    pub(crate) load: Load,
    /// The donor's write sequence; `None` until the first heartbeat.
    pub(crate) write_sequence: Option<u64>,
    /// The number of the last batch of changes of this donor that was written to the catalog.
    pub(crate) batch: u64,
    pub unclaimed: u64,
    /// The number of chunks that arrived while the donor computed parity by order. The catalog learns their names
    /// when the order is answered, so nobody is told meanwhile that they are unknown.
    pub computed: u64,
    /// True once the donor's whole inventory was compared; until then its copies count for nothing new.
    pub compared: bool,
    pub taking: Option<InventoryProgress>,
    /// The fault of the donor's disk, if there is one.
    pub(crate) fault: Option<DiskFault>,
    /// The reason why the donor goes by earlier settings, if it does.
    pub(crate) settings_fault: Option<String>,
    /// How much the donor does now, as its owner wants it.
    pub(crate) does: DonorDoes,
    /// The time until which the donor is off, as its owner announced and the pool grants.
    pub(crate) off_until: Option<Tick>,
    /// True if the owner said that all it held before is lost for good.
    pub(crate) new_store: bool,
    /// True if the incarnation registered with an earlier manager, too. Another one, such as one after a power cut, may
    /// list chunks that it has lost and that nobody has read since.
    pub(crate) registered_before: bool,
    /// The number of the pool's last task when the donor registered: tasks up to it name where the donor was before.
    pub last_task: u64,
}

/// The facts by which a donor is reached, and its receipts are checked.
#[derive(Debug, Clone)]
pub struct DonorContact {
    /// The id of the donor.
    pub donor: DonorId,
    /// The name that people call it by.
    pub name: String,
    /// The addresses at which the donor is reached, the best first; none while it has not registered.
    pub addresses: Addresses,
    /// True while the donor is heard from.
    pub live: bool,
    /// The donor's load as a score from 0 (idle) to 1 ([`Load::score`]).
    pub load: f32,
    /// The donor's rates in bytes a second, as far as they are known.
    pub rates: BothWays<Option<u64>>,
    /// The bytes a second that the donor moves for others at most, as it says; `None` for no limit.
    pub limits: BothWays<Option<u64>>,
    /// The donor's failure domain.
    pub domain: Domain,
    /// The key and incarnation that sign the donor's receipts, once it registered.
    pub signer: Option<ReceiptSigner>,
}

/// The outcome of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enlisted {
    /// The incarnation is the one that was known, and goes on.
    Again,
    /// The incarnation is new; nothing said to an earlier one holds.
    Anew,
    /// The incarnation is new while the earlier one was still heard, and the one before was replaced not long ago:
    /// the donor restarts all the time, or two donors have one identity and take turns.
    InTurns,
}

impl DonorTable {
    pub fn get(&self, donor: DonorId) -> Option<&KnownDonor> {
        self.all.get(&donor)
    }

    pub fn get_mut(&mut self, donor: DonorId) -> Option<&mut KnownDonor> {
        self.all.get_mut(&donor)
    }

    /// Returns the first donor of a donor's machine, which need not be of the pool any more.
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

    /// Returns the key and the incarnation of the receipts of a donor that count; `None` before it has registered.
    pub fn signer(&self, donor: DonorId) -> Option<ReceiptSigner> {
        let Registration { key, incarnation, .. } = self.registration(donor)?;
        Some(ReceiptSigner { key: key.clone(), incarnation: *incarnation })
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
        let silence = self.silence(id, now).unwrap_or_default();
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
        donor.traffic.told(heartbeat.incarnation, heartbeat.traffic, now);
        registration.fault.clone_from(&heartbeat.disk_fault);
        registration.settings_fault.clone_from(&heartbeat.settings_fault);
        registration.take_mode(heartbeat.does, silence, now, limits);
        // Requests may overtake each other; a count never goes back.
        registration.write_sequence =
            Some(heartbeat.write_sequence.max(registration.write_sequence.unwrap_or(0)));
        if let Some(taking) = &mut registration.taking {
            taking.arrived(heartbeat.added.0.iter().map(|arrived| arrived.holding.name));
        }
        donor.record.excess = heartbeat.excess;
        donor.record.disk_lacks = heartbeat.disk_lacks.min(heartbeat.excess);
        // Which names left during an earlier shortage is no rule for the next.
        if donor.record.excess == 0 {
            donor.record.quota_below = 0;
        }
        if donor.record.disk_lacks == 0 {
            donor.record.disk_below = 0;
        }
        donor.record.scrub = heartbeat.scrub;
        donor.hear(now, limits);
        true
    }

    pub fn iter(&self) -> impl Iterator<Item = (DonorId, &KnownDonor)> {
        self.all.iter().map(|(id, donor)| (*id, donor))
    }
}

impl Registration {
    /// Notes how much a donor does now that has been silent for `silence`. Time in which it does nothing counts as
    /// announced, for as long as the pool grants anybody.
    pub(crate) fn take_mode(
        &mut self,
        does: DonorDoes,
        silence: Duration,
        now: Tick,
        limits: &PoolLimits,
    ) {
        let granted = limits.longest_absence.saturating_sub(silence);
        let asked = does.for_ms.map_or(granted, Duration::from_millis);
        self.off_until = does.mode.is_off().then(|| now + asked.min(granted));
        self.does = does;
    }
}

impl KnownDonor {
    /// Returns whether the donor is about to be removed.
    pub fn is_being_removed(&self) -> bool {
        self.removing > 0
    }

    /// Returns the name that people call the donor by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether no manager ever heard the donor.
    pub(crate) fn has_never_lent(&self) -> bool {
        let DonorRecord { silent_before, addresses, .. } = &self.record;
        let registered = self.registration.is_some() || !addresses.is_empty();
        !registered && self.heard.is_none() && silent_before.is_none()
    }

    /// Returns whether the donor's daemon answers while the directory that it lends is missing.
    pub(crate) fn diskless(&self) -> bool {
        let fault = self.registration.as_ref().and_then(|registration| registration.fault.as_ref());
        fault.is_some_and(|fault| fault.missing)
    }

    /// Returns whether the donor's owner has it do nothing now.
    pub(crate) fn is_off(&self) -> bool {
        self.registration.as_ref().is_some_and(|registration| registration.does.mode.is_off())
    }

    /// Returns whether an absence of the donor is announced.
    pub(crate) fn is_announced(&self, now: Tick) -> bool {
        self.announced_until().is_some_and(|until| now < until)
    }

    /// Returns the time until which an absence of the donor is or was announced: by a word, or because its owner has it
    /// do nothing.
    pub(crate) fn announced_until(&self) -> Option<Tick> {
        let off = self.registration.as_ref().and_then(|registration| registration.off_until);
        self.record.away_until.max(off)
    }

    /// Notes a sign of life from the donor. A daemon without its disk gives none, and neither does one whose owner has it
    /// do nothing: to the pool it is as good as silent, with the same grace, and what it held is treated as that of a
    /// machine that was pulled.
    pub(crate) fn hear(&mut self, now: Tick, limits: &PoolLimits) {
        if self.diskless() || self.is_off() {
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

/// Returns a donor's name with its number, as people are told.
pub fn called(name: &str, number: DonorId) -> String {
    format!("donor {name} ({number})")
}
