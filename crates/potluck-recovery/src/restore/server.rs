//! The server that donors find in the place of a manager that is being restored: it lets them register, asks
//! which blocks of the log they have, takes their inventories, and says where it is. It has no catalog, and gives no
//! order but that question.

use super::collect::Collecting;
use crate::ca::Ca;
use crate::whereabouts::Signpost;
use axum::body::Body;
use potluck_catalog::LAST_EPOCH;
use potluck_core::chunk::Digest;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, Epoch, Incarnation};
use potluck_pool::OutOfOrder;
use potluck_wire::addresses::{Address, Addresses};
use potluck_wire::bodies::{Bodies, BodyLimits};
use potluck_wire::control::{
    Call, Done, Heartbeat, HeartbeatReply, Inventory, Register, Registered,
};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::serve::{Answers, CalledName, Peer};
use potluck_wire::ticket::Secret;
use potluck_wire::whereabouts::{SignedWhereabouts, ask, no_donor};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The silence after which a donor counts as gone, so that its answer is not waited for.
const SILENT: Duration = Duration::from_secs(10);

/// The server that stands in for a manager that is being restored.
pub struct RestoreServer {
    /// The outside world: time, chance, and the network.
    pub env: Env,
    /// The answers of donors so far.
    pub collecting: Collecting,
    ca: Ca,
    signpost: Signpost,
    began: Tick,
    epoch: AtomicU64,
    /// A number drawn when the server begins, as a manager draws one at its start.
    start: u64,
    donors: Mutex<BTreeMap<Digest, Donor>>,
    bodies: Bodies<Digest>,
}

/// A donor: any caller that shows a certificate of the pool.
struct Donor {
    /// The number of the donor, which holds for this restore alone.
    number: DonorId,
    incarnation: Option<Incarnation>,
    heard: Tick,
    contact: RestoredDonor,
}

/// The way to reach a donor.
#[derive(Debug, Clone, Default)]
pub struct RestoredDonor {
    /// The addresses of the donor.
    pub addresses: Addresses,
    /// The key that signs the tickets which the donor takes.
    pub key: Option<Secret>,
}

impl RestoreServer {
    /// Makes the server for the pool of the authority `ca`; donors reach it at `addresses`.
    pub fn new(env: Env, ca: Ca, addresses: Addresses) -> Self {
        Self {
            collecting: Collecting::default(),
            bodies: Bodies::default(),
            ca,
            signpost: Signpost::new(addresses),
            began: env.clock.now(),
            epoch: AtomicU64::new(1),
            start: env.entropy.u64(),
            donors: Mutex::default(),
            env,
        }
    }

    fn donors(&self) -> MutexGuard<'_, BTreeMap<Digest, Donor>> {
        self.donors.lock().expect("no holder panics")
    }

    /// Returns the present moment of the server's clock.
    pub fn tick(&self) -> Tick {
        self.env.clock.now()
    }

    /// Returns the milliseconds since the server began, in which the expiry of its tickets is given.
    pub fn now_ms(&self) -> u64 {
        self.tick().saturating_sub(self.began).as_millis() as u64
    }

    /// Returns the epoch that the server shows donors. It is at least as late as any epoch that a donor proved to
    /// have heard of.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Raises the epoch above `heard`, so that donors obey, unless `heard` is later than any manager can have come.
    fn learn(&self, heard: Epoch) {
        if heard >= LAST_EPOCH {
            tracing::warn!(%heard, "no manager has come so far: the donor that heard it is not believed");
            return;
        }
        self.epoch.fetch_max(heard.0 + 1, Ordering::AcqRel);
    }

    /// Returns the donors that were heard within [`SILENT`].
    pub fn live(&self) -> Vec<DonorId> {
        let now = self.tick();
        let donors = self.donors();
        let live = donors.values().filter(|donor| now.saturating_sub(donor.heard) < SILENT);
        live.map(|donor| donor.number).collect()
    }

    /// Returns how a donor is reached; `None` for a number that no donor has.
    pub fn contact(&self, number: DonorId) -> Option<RestoredDonor> {
        let donors = self.donors();
        donors.values().find(|donor| donor.number == number).map(|donor| donor.contact.clone())
    }

    fn whereabouts(&self) -> Option<SignedWhereabouts> {
        self.signpost.shown(self.epoch(), |said| self.ca.sign_whereabouts(said))
    }

    /// Visits the donor at `address` and shows it where this server is. If the donor follows a manager of a later
    /// epoch, the server raises its own above that and shows it once more.
    ///
    /// Errors: no donor of this pool is reached there.
    ///
    /// A name that cannot be looked up is tried as one of the local network, where machines answer to it by multicast
    /// DNS: `bob` as `bob.local`.
    pub async fn call_in(&self, address: &Address) -> io::Result<()> {
        let called = self.call_in_at(address).await;
        match &called {
            Err(why) if is_unknown(why) => match address.on_local_network() {
                Some(local) => self.call_in_at(&local).await.or(called),
                None => called,
            },
            _ => called,
        }
    }

    async fn call_in_at(&self, address: &Address) -> io::Result<()> {
        for _ in 0..2 {
            let Some(shown) = self.whereabouts() else { return Ok(()) };
            let answer = ask(&*self.env.net, address, Some(&shown)).await?;
            let knows = answer.verified(self.ca.certificate()).ok_or_else(no_donor)?;
            if knows.addresses == self.signpost.addresses() {
                break;
            }
            self.learn(knows.issue.epoch);
        }
        Ok(())
    }

    /// Notes that the donor which shows `certificate` was heard now, and applies a change to it. An unknown donor is
    /// added first.
    fn with<T>(&self, certificate: Digest, change: impl FnOnce(&mut Donor) -> T) -> T {
        let (now, mut donors) = (self.tick(), self.donors());
        let number = DonorId(donors.len() as u32 + 1);
        let donor = donors.entry(certificate).or_insert_with(|| Donor {
            number,
            incarnation: None,
            heard: now,
            contact: RestoredDonor::default(),
        });
        donor.heard = now;
        change(donor)
    }

    fn register(
        &self,
        certificate: Digest,
        peer: IpAddr,
        said: &Register,
    ) -> Result<Registered, Failure> {
        let addresses = said.reached_at(peer)?;
        let later = said.heard.0 >= self.epoch() && said.heard != (self.epoch(), self.start);
        let unproven = later && !self.is_proven(said);
        if unproven {
            let (epoch, _) = said.heard;
            tracing::warn!("a donor says without proof that it heard a manager of epoch {epoch}");
        } else if later {
            self.learn(said.heard.0);
        }
        let donor = self.with(certificate, |donor| {
            donor.incarnation = Some(said.incarnation);
            donor.contact = RestoredDonor { addresses, key: Some(said.key.clone()) };
            donor.number
        });
        let (epoch, start) = (self.epoch(), self.start);
        let (proof, now_ms) = (self.proof(), self.now_ms());
        Ok(Registered { donor, epoch, start, changes: 0, proof, unproven, now_ms })
    }

    /// Returns whether the donor proves that a manager of this pool said what the donor tells of it. Otherwise one
    /// donor's word could raise the epoch, and donors would disobey later managers.
    fn is_proven(&self, said: &Register) -> bool {
        let (epoch, start) = said.heard;
        let proves = |proof| self.ca.terms().is_proven(epoch, start, said.heard_changes, proof);
        said.heard_proof.is_some_and(proves)
    }

    /// Returns the proof of the server's own term, whose catalog has no changes.
    fn proof(&self) -> Option<Digest> {
        Some(self.ca.terms().prove(self.epoch(), self.start, 0))
    }

    fn heartbeat(&self, certificate: Digest, said: &Heartbeat) -> HeartbeatReply {
        let (number, known) = self
            .with(certificate, |donor| (donor.number, donor.incarnation == Some(said.incarnation)));
        let mut reply = HeartbeatReply {
            epoch: self.epoch(),
            start: self.start,
            proof: self.proof(),
            now_ms: self.now_ms(),
            register: !known,
            ..HeartbeatReply::default()
        };
        if known {
            self.collecting.heard(number, &said.results);
            reply.tasks = self.collecting.tasks_for(number);
        }
        if said.follows.is_some_and(|follows| follows < self.signpost.issue(self.epoch())) {
            reply.manager = self.whereabouts();
        }
        reply
    }

    fn inventory(&self, certificate: Digest, page: &Inventory) -> Result<Done, Failure> {
        let (number, known) = self
            .with(certificate, |donor| (donor.number, donor.incarnation == Some(page.incarnation)));
        if !known {
            return Err(OutOfOrder.into());
        }
        self.collecting.listed(number, &page.holdings.0, page.last);
        Ok(Done {})
    }
}

impl Answers for RestoreServer {
    async fn answer(
        self: Arc<Self>,
        peer: Peer,
        CalledName { call, .. }: CalledName,
        body: Body,
    ) -> Result<Vec<u8>, Failure> {
        let Some(certificate) = peer.certificate else { return Err(restoring()) };
        let limits = match &*call {
            Register::NAME => BodyLimits::of::<Register>(),
            Heartbeat::NAME => BodyLimits::of::<Heartbeat>(),
            Inventory::NAME => BodyLimits::of::<Inventory>(),
            _ => return Err(restoring()),
        };
        let body = self.bodies.read(body, Some(certificate), limits).await?.bytes;
        match &*call {
            Register::NAME => reply(self.register(certificate, peer.address.ip(), &read(&body)?)),
            Heartbeat::NAME => reply(Ok(self.heartbeat(certificate, &read(&body)?))),
            Inventory::NAME => reply(self.inventory(certificate, &read(&body)?)),
            _ => Err(restoring()),
        }
    }

    async fn ready(&self) -> Result<(), String> {
        Err("the pool is being restored".into())
    }

    async fn connection_ended(self: Arc<Self>, _: u64) {}
}

/// Returns whether nobody knows the name, or was asked in vain: without a name service a lookup may take its time.
fn is_unknown(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::TimedOut)
}

fn restoring() -> Failure {
    Failure::new(ErrorKind::Retry, code::NO_MANAGER, "the manager of this pool is being restored")
        .hint(
            "try again when `potluck manager restore` has ended there and the manager was started",
        )
}

fn read<C: Call>(body: &[u8]) -> Result<C, Failure> {
    serde_json::from_slice(body).map_err(|why| {
        Failure::bad_request(format!("the request “{}” cannot be read: {why}", C::NAME))
    })
}

fn reply<R: serde::Serialize>(reply: Result<R, Failure>) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(&reply?).map_err(|why| Failure::bad_request(why.to_string()))
}
