//! The donors of one session or read: how to reach them, the open links, and the estimates of their rates.

use crate::buffer::Buffers;
use crate::leases::ReadTickets;
use crate::link::{Link, LinkError};
use crate::measured_traffic::{MeasuredTraffic, RequestUnderWay};
use crate::pool::Pool;
use potluck_core::clock::Tick;
use potluck_core::hedging::{Rates, ReadSource};
use potluck_core::ids::DonorId;
use potluck_core::rate_estimate::RateEstimate;
use potluck_core::traffic::Direction;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::control::{DonorAccess, DonorLoad};
use potluck_wire::env::Env;
use potluck_wire::ticket::TICKET_LIFE;
use potluck_wire::upgrade::{self, UpgradeError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Links to donors, opened when first needed and shared by all work of one session or read.
#[derive(Clone)]
pub struct Donors {
    env: Env,
    buffers: Buffers,
    known: Arc<Mutex<BTreeMap<DonorId, Known>>>,
    rates: Arc<Mutex<Rates>>,
    /// The way in which bytes go.
    direction: Direction,
    /// The traffic of the client, over all its work.
    traffic: MeasuredTraffic,
    /// The signal that a donor has more room in its window.
    pub room: Arc<Notify>,
    /// The client that is told which donors were reached, and which cannot be.
    client: Option<Pool>,
}

struct Known {
    /// The access to the donor; shared because each request for a chunk looks at it.
    access: Arc<DonorAccess>,
    /// The moment at which the current ticket came.
    since: Tick,
    /// True if the next ticket replaces the current one, and the link that was opened with it.
    is_discarded: bool,
    /// Serialises opening, so that many chunks waiting for one donor open one link.
    link: Arc<tokio::sync::Mutex<Option<Link>>>,
}

impl ReadTickets for Donors {
    fn due(&self) -> Vec<DonorId> {
        self.to_renew()
    }

    fn renew(&self, access: Vec<DonorAccess>) {
        self.learn(access);
    }

    fn all(&self) -> Vec<DonorId> {
        self.known.lock().expect("no holder panics").keys().copied().collect()
    }

    fn hear(&self, loads: &[DonorLoad]) {
        self.hear_loads(loads);
    }
}

impl Donors {
    /// Makes an empty set of donors to read from or to write to, whose connections use `env` and `buffers`.
    pub fn new(env: Env, buffers: Buffers, direction: Direction) -> Self {
        let (known, rates, room) = Default::default();
        let traffic = MeasuredTraffic::new(env.clock.clone());
        Self { env, buffers, known, rates, direction, traffic, room, client: None }
    }

    /// Returns these donors, set to tell `client` whether they are reached, and of the traffic with them.
    pub(crate) fn told_to(self, client: Pool) -> Self {
        Self { traffic: client.traffic.clone(), client: Some(client), ..self }
    }

    /// Learns how to reach donors; the estimates of their rates stay. A new ticket does not replace one that is in the
    /// first half of its life, nor the link that was opened with that, unless the older ticket was discarded or the
    /// donor's addresses changed: chunks sent by the older ticket are then taken while it is still valid.
    pub fn learn(&self, access: Vec<DonorAccess>) {
        let now = self.env.clock.now();
        let mut known = self.known.lock().expect("no holder panics");
        for mut access in access {
            let donor = access.donor;
            let kept = known.remove(&donor).filter(|old| {
                let young = now.saturating_sub(old.since) < TICKET_LIFE / 2;
                let usable = old.access.ticket.is_some() && !old.is_discarded;
                young && usable && old.access.addresses == access.addresses
            });
            let (since, link) = match kept {
                Some(old) => {
                    access.ticket.clone_from(&old.access.ticket);
                    (old.since, old.link)
                }
                None => (now, Arc::default()),
            };
            let told = access.rates.of(self.direction).map(|rate| rate as f64);
            let usual = self.traffic.rate(donor, self.direction).or(told);
            let limit = *access.limits.of(self.direction);
            // The rates that the manager tells are within the limit already, which says more than the load.
            let load = if limit.is_some() { 0.0 } else { access.load };
            let access = Arc::new(access);
            self.traffic.learn(&access);
            self.rates(|rates| {
                let new = || RateEstimate::expecting(usual, load);
                rates.entry(donor).or_insert_with(new).limited(limit, now);
            });
            known.insert(donor, Known { access, since, is_discarded: false, link });
        }
    }

    /// Discards the ticket of a donor that did not let this client in, or does not answer: the next ticket replaces it,
    /// and the link that was opened with it.
    pub fn discard(&self, donor: DonorId) {
        if let Some(known) = self.known.lock().expect("no holder panics").get_mut(&donor) {
            known.is_discarded = true;
        }
    }

    /// Returns the moment at which the ticket came that is now used for a donor.
    pub fn ticket_since(&self, donor: DonorId) -> Option<Tick> {
        self.known.lock().expect("no holder panics").get(&donor).map(|known| known.since)
    }

    /// Returns the donors whose tickets are in the second half of their lifetime, and should be renewed.
    pub fn to_renew(&self) -> Vec<DonorId> {
        let now = self.env.clock.now();
        let known = self.known.lock().expect("no holder panics");
        let old = known.iter().filter(|(_, it)| now.saturating_sub(it.since) >= TICKET_LIFE / 2);
        old.map(|(donor, _)| *donor).collect()
    }

    /// Notes that a request for `bytes` goes to a donor now, in the traffic of the client.
    pub(crate) fn begin(&self, donor: DonorId, bytes: u32) -> RequestUnderWay {
        self.traffic.begin(donor, self.direction, bytes)
    }

    /// Runs `look` on the estimates of the donors' rates.
    pub fn rates<T>(&self, look: impl FnOnce(&mut Rates) -> T) -> T {
        let mut rates = self.rates.lock().expect("no holder panics");
        if rates.values().any(RateEstimate::is_limited) {
            let now = self.env.clock.now();
            rates.values_mut().for_each(|estimate| estimate.forget_old_limit(now));
        }
        look(&mut rates)
    }

    /// Returns the access to a donor that the manager gave.
    pub fn access(&self, donor: DonorId) -> Option<Arc<DonorAccess>> {
        let known = self.known.lock().expect("no holder panics");
        known.get(&donor).map(|known| Arc::clone(&known.access))
    }

    /// Returns those of `holders` that the manager told how to reach, as sources to pick from.
    pub fn sources(&self, holders: &[DonorId]) -> Vec<ReadSource> {
        let known = self.known.lock().expect("no holder panics");
        let source = |donor: &DonorId| {
            let access = &known.get(donor)?.access;
            Some(ReadSource { donor: *donor, live: access.live, load: access.load })
        };
        holders.iter().filter_map(source).collect()
    }

    /// Returns how many donors the manager told how to reach.
    pub fn count(&self) -> usize {
        self.known.lock().expect("no holder panics").len()
    }

    /// Advises what to do about those of `donors` that the manager hears and this machine does not reach.
    pub fn unreached_advice(&self, donors: impl Iterator<Item = DonorId>) -> Option<String> {
        let live = donors.filter_map(|donor| self.access(donor).filter(|access| access.live));
        let live: Vec<_> =
            live.map(|access| format!("{} at {}", access.name, access.addresses)).collect();
        (!live.is_empty()).then(|| {
            format!(
                "the manager hears what this machine does not reach: {}; see whether a firewall or a \
                 missing route keeps this machine from there",
                live.join(", ")
            )
        })
    }

    /// Returns the name of a donor, or its number if the manager did not tell the name.
    pub fn name(&self, donor: DonorId) -> String {
        self.access(donor).map_or_else(|| format!("donor {donor}"), |access| access.name.clone())
    }

    /// Describes why a donor failed, or why it cannot be reached from here.
    pub fn fault(&self, donor: DonorId, error: &LinkError) -> String {
        format!("{}: {error}", self.name(donor))
    }

    /// Returns about the number of bytes that came from a donor over the open link to it; `None` if there is none.
    pub fn heard(&self, donor: DonorId) -> Option<u64> {
        let slot = {
            let known = self.known.lock().expect("no holder panics");
            Arc::clone(&known.get(&donor)?.link)
        };
        let slot = slot.try_lock().ok()?; // it is held while a link is opened
        slot.as_ref().filter(|link| link.is_open()).map(Link::heard)
    }

    /// Sees which of the donors that were silent say something again.
    pub fn listen(&self) {
        let silent: Vec<DonorId> = self.rates(|rates| {
            let silent = rates.iter().filter(|(_, estimate)| estimate.is_silent());
            silent.map(|(donor, _)| *donor).collect()
        });
        for donor in silent {
            let heard = self.heard(donor);
            self.rates(|rates| rates.entry(donor).or_default().listen(heard));
        }
    }

    /// Learns how loaded donors are now, and which are there.
    pub fn hear_loads(&self, loads: &[DonorLoad]) {
        let mut known = self.known.lock().expect("no holder panics");
        for told in loads {
            if let Some(known) = known.get_mut(&told.donor) {
                let access = Arc::make_mut(&mut known.access);
                (access.live, access.load) = (told.live, told.load);
            }
        }
    }

    /// Returns the open link to a donor, and opens one if need be.
    pub async fn link(&self, donor: DonorId) -> Result<Link, LinkError> {
        let (access, slot) = {
            let known = self.known.lock().expect("no holder panics");
            let known = known
                .get(&donor)
                .ok_or_else(|| LinkError::Away("is unknown to the manager".into()))?;
            (Arc::clone(&known.access), Arc::clone(&known.link))
        };
        let mut slot = slot.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| link.is_open()) {
            return Ok(link.clone());
        }
        let ticket = access.ticket.as_ref().ok_or(LinkError::Refused(BulkStatus::Away))?;
        let (net, entropy) = (&*self.env.net, &*self.env.entropy);
        let opened = upgrade::open(net, entropy, &access.addresses, ticket).await;
        if let (Err(UpgradeError::Io(_) | UpgradeError::NotADonor(_)), true, Some(client)) =
            (&opened, access.live, &self.client)
        {
            client.miss(donor);
        }
        if opened.is_err() {
            self.discard(donor); // the ticket may be why
        }
        let opened = opened?;
        self.client.iter().for_each(|client| client.reach(donor));
        let (rates, clock) = (Arc::clone(&self.rates), self.env.clock.clone());
        let limited = move |limit| {
            let mut rates = rates.lock().expect("no holder panics");
            if let Some(estimate) = rates.get_mut(&donor) {
                estimate.limited(limit, clock.now());
            }
        };
        let link = Link::start(opened, self.buffers.clone(), limited);
        *slot = Some(link.clone());
        Ok(link)
    }
}
