//! The service: the state that all calls share.

use crate::ca::Ca;
use crate::callers::Members;
use crate::config::ManagerConfig;
use crate::log::copies::Copies;
use crate::metrics::counted::Metrics;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::state_dir::StateDir;
use crate::stats_cache::StatsCache;
use crate::whereabouts::Signpost;
use potluck_catalog::Catalog;
use potluck_core::ids::{Epoch, SessionId};
use potluck_pool::Pool;
use potluck_wire::env::Env;
use potluck_wire::whereabouts::{Issue, SignedWhereabouts};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// A running manager's parts.
pub struct Service {
    /// How it was told to run; replaced whole when its owner changes their mind.
    pub(crate) config: RwLock<Arc<ManagerConfig>>,
    /// Why it goes by settings of before.
    pub(crate) settings_fault: Mutex<Option<String>>,
    /// Wakes whoever waits as long as the configuration says: it changed.
    pub(crate) retuned: watch::Sender<()>,
    /// The outside world: time, chance, and the network.
    pub env: Env,
    /// The pool's time.
    pub time: PoolTime,
    /// Drawn at this start: epoch and start together are no other manager's.
    pub start: u64,
    /// The name of the pool.
    pub pool_name: String,
    /// The hard state of the pool.
    pub catalog: Catalog,
    /// Who is who.
    pub members: Members,
    /// Vouches for members.
    pub ca: Ca,
    /// Where this manager is.
    pub signpost: Signpost,
    /// Wakes the background work: something ended or was thrown away.
    pub chores: Notify,
    /// How the copies of the metadata log are kept.
    pub log: Copies,
    /// Figures for monitoring.
    pub metrics: Metrics,
    /// Figures for status.
    pub stats: StatsCache,
    /// The facts known about the pool's safety.
    pub scan_state: ScanState,
    pub(crate) epoch: AtomicU64,
    pub(crate) gc_frozen: Mutex<Option<String>>,
    pub(crate) pool: Mutex<Pool>,
    /// Held as long as anything of this manager lives.
    pub(crate) state: StateDir,
}

impl Service {
    /// Soft state. Never held while waiting, as for the catalog, whose jobs take none of it.
    pub fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().expect("no holder panics")
    }

    /// How it was last told to run.
    pub fn config(&self) -> Arc<ManagerConfig> {
        Arc::clone(&self.config.read().expect("no holder panics"))
    }

    /// Runs as `config` says from now on; what is fixed at the start stays as it is.
    pub(crate) fn retune(&self, config: ManagerConfig) {
        let now = self.config();
        let config = ManagerConfig {
            listen: now.listen.clone(),
            state: now.state.clone(),
            pool_name: now.pool_name.clone(),
            advertise: now.advertise.clone(),
            ..config
        };
        self.pool().set_limits(config.limits());
        *self.config.write().expect("no holder panics") = Arc::new(config);
        self.retuned.send_replace(());
        self.chores.notify_one();
    }

    /// Sleeps as long as `time` says of the configuration, or until that is shorter and over.
    pub(crate) async fn pause(&self, time: impl Fn(&ManagerConfig) -> Duration) {
        let (began, mut retuned) = (self.time.tick(), self.retuned.subscribe());
        loop {
            let left = time(&self.config()).saturating_sub(self.time.tick().saturating_sub(began));
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                _ = retuned.changed() => {}
            }
        }
    }

    /// This start's number. It grows within one start only when a newer catalog ran before.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Takes a later number, which is durable.
    pub fn raise_epoch(&self, epoch: Epoch) {
        self.epoch.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Why nothing is condemned, reclaimed or trimmed now, if so. Asked before every deletion.
    pub fn gc_frozen(&self) -> Option<String> {
        self.gc_frozen.lock().expect("no holder panics").clone()
    }

    pub(crate) fn freeze_gc(&self, why: Option<String>) {
        *self.gc_frozen.lock().expect("no holder panics") = why;
    }

    /// Where this manager is, signed.
    pub fn whereabouts(&self) -> Option<SignedWhereabouts> {
        self.signpost.shown(&self.ca, self.epoch())
    }

    /// Which of a manager's whereabouts hold.
    pub fn issue(&self) -> Issue {
        self.signpost.issue(self.epoch())
    }

    /// The moment by which tokens are judged.
    pub fn moment(&self) -> potluck_catalog::tokens::Moment {
        potluck_catalog::tokens::Moment {
            epoch: self.epoch(),
            pool_ms: self.time.now_ms(),
            wall_ms: self.time.wall_ms(),
        }
    }

    /// The moment of a change to names.
    pub fn when(&self) -> potluck_catalog::names::When {
        potluck_catalog::names::When { pool_ms: self.time.now_ms(), wall_ms: self.time.wall_ms() }
    }
}

/// A session's call that is being answered: its lease does not end meanwhile.
pub struct InSession {
    service: Arc<Service>,
    session: SessionId,
}

impl InSession {
    /// For a call that [`Pool::enter`] let in.
    pub fn new(service: Arc<Service>, session: SessionId) -> Self {
        Self { service, session }
    }
}

impl Drop for InSession {
    fn drop(&mut self) {
        let now = self.service.time.tick();
        self.service.pool().leave(&self.session, now);
    }
}
