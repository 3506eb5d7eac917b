//! The donor: lends part of a disk to a pool.
//!
//! It keeps chunks in a directory of its own, serves and takes them on bulk connections, and tells
//! the manager each second how it is and what changed. It decides nothing about files: it knows
//! chunks by name, and who may put or get them by ticket.
//!
//! Where things are:
//! - [`disk`]: the file system as an argument, so that a simulation can be one;
//! - `store`, `reclaim`: chunk files, the cap, and the only code that removes any;
//! - `serve`: the port, from strangers to sessions; `session`: requests and answers; `socket`: the
//!   streams under them;
//! - `patience`, `tickets`, `standing`: how long, how much, and until when a peer may;
//! - `heartbeat`, `load`, `state`: what the manager hears, and what outlives a restart.

pub mod disk;
mod error;
mod heartbeat;
mod load;
mod patience;
mod reclaim;
mod serve;
mod service;
mod session;
mod socket;
mod standing;
mod state;
mod store;
mod tickets;

pub use error::DonorError;
pub use store::StoreError;

use disk::Disk;
use heartbeat::{Heart, Orders};
use potluck_core::budget::Limits;
use potluck_core::entropy::Entropy;
use potluck_core::ids::Incarnation;
use potluck_wire::call::Caller;
use potluck_wire::env::Env;
use potluck_wire::net::Listener;
use serve::Door;
use service::Service;
use state::State;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{KnownStore, Store};

/// How long requests in progress may take to finish when the donor goes down.
const CLOSING_GRACE: Duration = Duration::from_secs(5);

/// What a donor lends, and how it can be reached.
#[derive(Debug, Clone, PartialEq)]
pub struct DonorConfig {
    /// The lent directory, absolute: empty, absent, or this donor's store.
    pub dir: PathBuf,
    /// Where the donor keeps what it must remember apart from the store, absolute: its key, which
    /// store is its own, the highest manager epoch seen.
    pub state: PathBuf,
    /// The `host:port` to listen at; port 0 picks a free one.
    pub listen: String,
    /// The `host:port` others reach it by, where that is not what it listens at.
    pub advertise: Option<String>,
    /// How much is lent.
    pub limits: Limits,
}

/// A running donor. Its store is open and its port answers; [`Donor::run`] does the rest.
pub struct Donor {
    address: SocketAddr,
    listener: Box<dyn Listener>,
    service: Arc<Service>,
    door: Arc<Door>,
    heart: Heart,
    orders: Arc<Orders>,
}

impl Donor {
    /// Opens the store, cleans up after earlier lives, and listens.
    ///
    /// Errors: the directory is not this donor's to lend, its disk failed, or the port is taken.
    pub async fn start(
        config: DonorConfig,
        env: Env,
        disk: Arc<dyn Disk>,
        caller: Caller,
    ) -> Result<Self, DonorError> {
        for path in [&config.dir, &config.state] {
            if !path.is_absolute() {
                return Err(DonorError::RelativePath(path.clone()));
            }
        }
        let (state, store) = {
            let (config, disk, entropy) = (config.clone(), Arc::clone(&disk), env.entropy.clone());
            env.offload.run(move || open(&config, disk, &*entropy)).await?
        };
        let cannot_listen = |why| DonorError::Listen { address: config.listen.clone(), why };
        let listener = env.net.listen(&config.listen).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;

        let advertised = config.advertise.unwrap_or_else(|| address.to_string());
        let service = Arc::new(Service::new(env, Arc::new(store), state.key().clone()));
        let orders = Arc::new(Orders::default());
        let heart =
            Heart::new(Arc::clone(&service), disk, caller, state, advertised, Arc::clone(&orders));
        let door = Door::new(Arc::clone(&service));
        Ok(Self { address, listener, service, door, heart, orders })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` completes, then lets requests in progress finish.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), DonorError> {
        let store = Arc::clone(&self.service.store);
        tokio::select! {
            () = Arc::clone(&self.door).accept(self.listener) => {}
            () = self.heart.beat_for_ever() => {}
            () = self.orders.obey_for_ever(store, self.service.env.offload) => {}
            () = shutdown => {}
        }
        self.door.close(CLOSING_GRACE).await;
        Ok(())
    }
}

fn open(
    config: &DonorConfig,
    disk: Arc<dyn Disk>,
    entropy: &dyn Entropy,
) -> Result<(State, Store), DonorError> {
    let cannot_keep = |why| DonorError::State { dir: config.state.clone(), why };
    let mut state = State::load(&*disk, entropy, &config.state).map_err(cannot_keep)?;
    let claim = store::claim(&*disk, entropy, &config.dir, state.store(), state.path())?;
    let known = KnownStore { id: claim.id.clone(), dir: config.dir.clone() };
    // Before anything is stored there: a store that nobody remembers could be mistaken for none.
    state.remember_store(&*disk, known).map_err(cannot_keep)?;
    let incarnation = Incarnation(entropy.u64());
    let store = Store::open(disk, claim, config.limits, incarnation)?;
    Ok((state, store))
}
