//! The donor: lends part of a disk to a pool.
//!
//! It keeps chunks in a directory of its own, serves and takes them on bulk connections, and tells the manager each
//! second its state and what changed. It decides nothing about files: it knows chunks by name, and by tickets who may
//! put or get them.
//!
//! Where things are:
//! - [`disk`]: the file system as an argument, so that a simulation can be one;
//! - `store`, `deletion`: chunk files, the cap, and the only code that removes any;
//! - `serve`: the port, from strangers to sessions; `session`: requests and answers; `socket`: the
//!   streams under them;
//! - `tasks`: numbered work for the manager; `chunk_orders`: chunks to delete and to verify; `copy`, `rebuild`,
//!   `peer_connections`: chunks that come from other donors; `log_blocks`: what is here of the metadata log; `task_failure`: why
//!   a task could not be done;
//! - `mirror`: puts that are passed on to other donors; `peer_addresses`: where those are;
//! - `scrub`: the reading back of everything, round after round;
//! - `governor_feed`: what the owner's machine does, for the governor; `throttle`: the limits of the owner and of the governor, and the turns of those who wait for them;
//! - [`calibration`]: what serving costs jobs of this machine's owner, measured;
//! - `stall_timeout`, `session_budgets`, `registration`: how long, how much, and until when a peer may;
//! - `owner_mode`: how much the donor does now;
//! - `heartbeat`, `load`, `lending_terms`, `state`: what the manager hears, and what outlives a restart.

pub mod calibration;
mod chunk_orders;
mod copy;
mod deletion;
pub mod disk;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod governor_feed;
mod heartbeat;
mod idle_thread;
mod lending_terms;
mod load;
mod log_blocks;
mod metrics;
mod mirror;
mod owner_mode;
mod peer_addresses;
mod peer_connections;
mod quarantine_timer;
mod rebuild;
mod registration;
mod run;
mod scrub;
mod serve;
mod service;
mod session;
mod session_budgets;
mod socket;
mod stall_timeout;
mod state;
mod store;
mod task_failure;
mod tasks;
mod throttle;
mod traffic;

pub use error::DonorError;
pub use state::{STATE_FILES, lent_dirs};
pub use store::{Claiming, Owner, StoreError, StoreRemoved, each_stored, remove as remove_store};
pub use throttle::{OwnerThrottle, ThrottleInForce, ThrottledTime};

use disk::Disk;
use heartbeat::{DonorFacts, Heartbeats};
use potluck_core::cost_history::Visits;
use potluck_core::entropy::Entropy;
use potluck_core::governor::GovernorTerms;
use potluck_core::ids::Incarnation;
use potluck_core::lend_mode::LendMode;
use potluck_core::owner_limits::Limits;
use potluck_core::timetable::Bandwidth;
use potluck_core::traffic::BothWays;
use potluck_wire::addresses::{Addresses, DONOR_LISTEN};
use potluck_wire::call::Caller;
use potluck_wire::env::Env;
use potluck_wire::net::Listener;
use potluck_wire::own_addresses::{AddressWatch, ToldAddresses};
use scrub::Scrub;
use serve::Server;
use service::Service;
use state::State;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{ClaimRequest, KnownStore, Store, is_claimed};
use tokio::sync::watch;

/// The default time in which all chunks are read back once: silent faults of a disk are found while there are still
/// other copies, at a rate that the owner does not notice.
const SCRUB_EVERY: Duration = Duration::from_secs(30 * 24 * 3600);

/// The settings of a donor: the space that it lends, and how it can be reached.
#[derive(Debug, Clone, PartialEq)]
pub struct DonorConfig {
    /// The lent directory, as an absolute path: empty, absent, or a store that the donor may claim.
    pub dir: PathBuf,
    /// The directory, as an absolute path, of the state that the donor keeps apart from the store: its key, which store
    /// is its own, the highest manager epoch seen.
    pub state: PathBuf,
    /// The `host:port` to listen at; port 0 picks a free one.
    pub listen: String,
    /// The addresses at which others reach the donor, each `host` or `host:port`; if empty, all addresses of the
    /// machine, or the one at which the donor listens.
    pub advertise: Vec<String>,
    /// The limits of how much of the disk is lent.
    pub limits: Limits,
    /// The label that its owner gives the donor: donors with one label (a room, a switch, a machine) fail
    /// together.
    pub label: Option<String>,
    /// The time that the donor may be silent before its chunks are made again elsewhere, where that is longer than the
    /// pool's grace.
    pub grace: Option<Duration>,
    /// The time in which everything is read back once.
    pub scrub_every: Duration,
    /// The terms on which the donor yields to its owner's programs.
    pub governor: GovernorTerms,
    /// True if the donor shows its figures to strangers, and not to its own machine alone.
    pub metrics_open: bool,
}

/// The member that lends the directory.
#[derive(Debug, Clone)]
pub struct Lender {
    /// The membership under which the donor acts, and to which its store belongs.
    pub owner: Owner,
    /// The claim of the donor on the lent directory: whether it may make a new store there, or adopt one.
    pub claiming: Claiming,
}

impl DonorConfig {
    /// Makes the default settings of a donor that lends `dir` within `limits` and keeps its state in `state`.
    pub fn new(dir: PathBuf, state: PathBuf, limits: Limits) -> Self {
        Self {
            dir,
            state,
            listen: DONOR_LISTEN.into(),
            advertise: Vec::new(),
            limits,
            label: None,
            grace: None,
            scrub_every: SCRUB_EVERY,
            governor: GovernorTerms::default(),
            metrics_open: false,
        }
    }
}

/// A donor that has started: its store is open and its port listens. Nothing is answered before [`Donor::run`].
pub struct Donor {
    address: SocketAddr,
    listener: Box<dyn Listener>,
    service: Arc<Service>,
    server: Arc<Server>,
    heartbeats: Heartbeats,
    disk: Arc<dyn Disk>,
    controls: DonorControls,
}

/// A handle that changes a donor while it runs.
#[derive(Clone)]
pub struct DonorControls {
    service: Arc<Service>,
    about: Arc<watch::Sender<DonorFacts>>,
}

impl DonorControls {
    /// Returns the bytes that the donor's store takes now, with those promised to chunks on their way in.
    pub fn used(&self) -> u64 {
        self.service.store.report().0.lent_used
    }

    /// Returns the bytes that the donor can still store now, within its limits.
    pub fn room(&self) -> u64 {
        self.service.store.report().1
    }

    /// Returns the bytes that were sent to readers and those that were stored for writers, since the process began.
    pub fn traffic(&self) -> (u64, u64) {
        (self.service.traffic.total().read.bytes, self.service.store.stored())
    }

    /// Takes who read and wrote how much since this was last called.
    pub fn take_visits(&self) -> Visits {
        self.service.traffic.take_visits()
    }

    /// Returns the limits of how much of the disk the donor lends.
    pub fn limits(&self) -> Limits {
        self.service.store.limits()
    }

    /// Returns the limits on what is read and written for others.
    pub fn throttle_in_force(&self) -> ThrottleInForce {
        self.service.throttle.in_force()
    }

    /// Returns the times that these limits have cost since the process began.
    pub fn throttled_time(&self) -> ThrottledTime {
        self.service.throttle.throttled_time()
    }

    /// Lets the manager hear with the next heartbeat why the daemon's settings cannot be used, so that it goes by its
    /// earlier ones; `None` says that they can be used.
    pub fn settings_fault(&self, why: Option<String>) {
        *self.service.settings_fault.lock().expect("no panic holds it") = why;
    }

    /// Registers anew with the manager whenever the machine gets other addresses.
    async fn follow_addresses(&self, listen: SocketAddr) {
        let told = self.about.borrow().told.clone();
        let mut watch = AddressWatch::new(Arc::clone(&self.service.env.net), listen, told);
        loop {
            let addresses = watch.moved().await;
            tracing::info!("the machine's addresses changed: asks to be reached at {addresses}");
            self.about.send_modify(|about| about.told.addresses = addresses);
            self.service.caller.hang_up();
        }
    }

    /// Reads again where the manager is, from what was written down since the donor began; `manager` has the addresses
    /// in the identity.
    pub async fn find_manager(&self, manager: Addresses) {
        let caller = self.service.caller.clone();
        self.service.env.offload.run(move || caller.read_again(&manager)).await;
    }

    /// Applies `config` from now on, apart from the settings that are fixed at the start: the directories, and the
    /// addresses at which the donor listens and is reached.
    pub fn retune(&self, config: &DonorConfig) {
        self.service.store.limit(config.limits);
        self.service.scrub.take(config.scrub_every);
        self.service.metrics.open.store(config.metrics_open, Ordering::Relaxed);
        self.service.governor.set_terms(config.governor);
        self.about.send_if_modified(|about| {
            let now =
                DonorFacts { label: config.label.clone(), grace: config.grace, ..about.clone() };
            let changes = *about != now;
            *about = now;
            changes
        });
        self.service.lending_terms.change();
    }

    /// Has the donor do as much as its owner's rules come to, within a bandwidth and for `left` as far as is known. A
    /// donor that is to do nothing moves no byte of data a second later.
    pub fn lend_in(&self, mode: LendMode, bandwidth: Bandwidth, left: Option<Duration>) {
        let Service { env, owner, throttle, lending_terms, .. } = &*self.service;
        let bytes_s = BothWays { read: bandwidth.up, written: bandwidth.down };
        throttle.set_owner_throttle(OwnerThrottle { bytes_s, paused: mode.is_off() });
        let until = left.map(|left| env.clock.now() + left);
        if owner.set(mode, until) {
            lending_terms.change();
        }
    }

    /// Waits until the manager has heard of the terms on which the donor lends now.
    pub async fn told(&self) {
        self.service.lending_terms.told().await;
    }
}

impl Donor {
    /// Opens the store, cleans up after earlier incarnations, and listens.
    ///
    /// Errors: a [`DonorError`], for example where the directory is not this donor's to lend, its disk failed, or the
    /// port is taken.
    pub async fn start(
        config: DonorConfig,
        lender: Lender,
        env: Env,
        disk: Arc<dyn Disk>,
        caller: Caller,
    ) -> Result<Self, DonorError> {
        for path in [&config.dir, &config.state] {
            if !path.is_absolute() {
                return Err(DonorError::RelativePath(path.clone()));
            }
        }
        // Steps that can fail without a store come first, so that a failure leaves no store behind.
        let cannot_listen = |why| DonorError::Listen { address: config.listen.clone(), why };
        let listener = match env.net.listen(&config.listen).await {
            Ok(listener) => listener,
            Err(why) => {
                // The port is taken by whoever lends the directory already, more often than by others.
                let (disk, dir) = (Arc::clone(&disk), config.dir.clone());
                return Err(match env.offload.run(move || is_claimed(&*disk, &dir)).await {
                    true => StoreError::Locked(config.dir).into(),
                    false => cannot_listen(why),
                });
            }
        };
        let address = listener.local_addr().map_err(cannot_listen)?;
        let told = ToldAddresses::of(&*env.net, address, &config.advertise).await?;
        let OpenedDonor { state, store, scrub } = {
            let (config, disk, entropy) = (config.clone(), Arc::clone(&disk), env.entropy.clone());
            env.offload.run(move || open(&config, &lender, disk, &*entropy)).await?
        };

        let key = state.key().clone();
        let service = Arc::new(Service::new(env, Arc::new(store), key, scrub, caller.clone()));
        service.metrics.open.store(config.metrics_open, Ordering::Relaxed);
        service.governor.set_terms(config.governor);
        let (label, grace) = (config.label, config.grace);
        let about = DonorFacts { told, port: address.port(), label, grace };
        let (about, heard) = watch::channel(about);
        let heartbeats =
            Heartbeats::new(Arc::clone(&service), Arc::clone(&disk), caller, state, heard);
        let controls = DonorControls { service: Arc::clone(&service), about: Arc::new(about) };
        let server = Server::new(Arc::clone(&service), listener.capacity());
        tracing::info!(
            "the donor of {} serves at {address}, and asks to be reached at {}; version {}",
            config.dir.display(),
            controls.about.borrow().told.addresses,
            potluck_wire::version::PRODUCT
        );
        Ok(Self { address, listener, service, server, heartbeats, disk, controls })
    }

    /// Returns the address at which bulk connections are taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the addresses at which others reach the donor, or the address at which it listens if it knows no others.
    pub fn told(&self) -> String {
        let known = self.controls.about.borrow().told.addresses.clone();
        if known.is_empty() { self.address.to_string() } else { known.to_string() }
    }

    /// Returns the controls that change the donor while it runs.
    pub fn controls(&self) -> DonorControls {
        self.controls.clone()
    }
}

/// The state of a donor on its disk, once it was opened.
struct OpenedDonor {
    state: State,
    store: Store,
    scrub: Scrub,
}

fn open(
    config: &DonorConfig,
    lender: &Lender,
    disk: Arc<dyn Disk>,
    entropy: &dyn Entropy,
) -> Result<OpenedDonor, DonorError> {
    let cannot_keep = |why| DonorError::State { dir: config.state.clone(), why };
    let Lender { owner, claiming } = lender;
    let mut state = State::load(&*disk, entropy, &config.state, owner).map_err(cannot_keep)?;
    let request = ClaimRequest { owner, known: state.store(), claiming: *claiming };
    let claim = store::claim(&*disk, entropy, &config.dir, request)?;
    let known = KnownStore { id: claim.id.clone(), dir: config.dir.clone() };
    // The store is remembered before anything is in it: a store that is not remembered could be taken for an unused
    // one.
    state.remember_store(&*disk, known).map_err(cannot_keep)?;
    let incarnation = Incarnation(entropy.u64());
    let scrub = Scrub::load(&*disk, &config.state, config.scrub_every);
    let store = Store::open(disk, claim, config.limits, incarnation)?;
    Ok(OpenedDonor { state, store, scrub })
}
