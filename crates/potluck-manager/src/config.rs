//! The settings that a manager is told when it starts.

use potluck_core::policy::PoolDefaults;
use potluck_pool::PoolLimits;
use potluck_wire::addresses::MANAGER_LISTEN;
use std::path::PathBuf;
use std::time::Duration;

/// The name of a pool that is made without one.
pub const NEW_POOL: &str = "pool";

/// The settings of one manager. [`Default`] suits a pool of desktops on one network.
#[derive(Debug, Clone)]
pub struct ManagerConfig {
    /// The address at which the manager listens, as `host:port`; port 0 picks a free port.
    pub listen: String,
    /// The directory that holds everything the manager must not lose.
    pub state: PathBuf,
    /// The name of the pool, which is fixed when it is made: [`NEW_POOL`] if none is said, and none but that later.
    pub pool_name: Option<String>,
    /// The addresses at which members reach the manager, each `host` or `host:port`; if empty, all addresses of the
    /// machine, or the one at which it listens.
    pub advertise: Vec<String>,
    /// The time after which a write session ends if none of its calls has arrived.
    pub lease: Duration,
    /// The time for which the chunks that an interrupted upload stored are kept, so that it can go on; 0: not at
    /// all.
    pub resume_window: Duration,
    /// The time for which a checkpoint stays open while nothing is written to it.
    pub checkpoint_idle: Duration,
    /// The least time for which chunks that no file uses are kept.
    pub gc_delay: Duration,
    /// The time of silence after which a donor is a suspect, for which nothing waits.
    pub suspect_after: Duration,
    /// The time of silence after which a donor is called silent and no longer suspect.
    pub silent_after: Duration,
    /// The address at which `/metrics` is served to anybody; `None` if nowhere.
    pub metrics_listen: Option<String>,
    /// The time between two backups of the catalog to a file, if it changed.
    pub backup_every: Duration,
    /// The directory of the backup files; `None` for one in the state directory.
    pub backup_dir: Option<PathBuf>,
    /// The number of copies of the metadata log that the pool keeps on its own donors; 0 for none.
    pub metadata_copies: u32,
    /// The time of silence after which a donor is dead, and its chunks are made again elsewhere.
    pub repair_grace: Duration,
    /// The longest grace and the longest absence that a donor may claim for itself.
    pub longest_absence: Duration,
    /// The most bytes a second that repair makes in the whole pool.
    pub repair_rate: u64,
    /// The most bytes a second that repair asks of one donor, reading and writing counted separately.
    pub repair_donor_rate: u64,
    /// What holds in spaces that were told nothing else.
    pub defaults: PoolDefaults,
    /// The time between two walks over all files, also when nothing is known to have changed.
    pub scan_every: Duration,
    /// The time between two audits, each of which checks some copies against each other.
    pub audit_every: Duration,
    /// Whether the line of a donor is measured by a diagnostic transfer when nobody knows its rates.
    pub diagnose_donors: bool,
}

impl ManagerConfig {
    /// Returns the limits by which the pool decides.
    pub fn limits(&self) -> PoolLimits {
        PoolLimits {
            lease: self.lease,
            suspect_after: self.suspect_after,
            silent_after: self.silent_after,
            grace: self.repair_grace,
            longest_absence: self.longest_absence,
            repair_rate: self.repair_rate,
            repair_donor_rate: self.repair_donor_rate,
        }
    }
}

impl Default for ManagerConfig {
    fn default() -> Self {
        Self {
            listen: MANAGER_LISTEN.into(),
            state: PathBuf::from("manager"),
            pool_name: None,
            advertise: Vec::new(),
            metrics_listen: None,
            lease: Duration::from_secs(30),
            // Together with the lease before it and the GC delay after it, this is less than an hour
            // (promise D2).
            resume_window: Duration::from_secs(50 * 60),
            checkpoint_idle: Duration::from_secs(24 * 3600),
            gc_delay: Duration::from_secs(60),
            suspect_after: Duration::from_secs(5),
            silent_after: Duration::from_secs(60),
            backup_every: Duration::from_secs(60),
            backup_dir: None,
            metadata_copies: 3,
            repair_grace: Duration::from_secs(600),
            longest_absence: Duration::from_secs(7 * 86_400),
            repair_rate: 400 << 20,
            repair_donor_rate: 100 << 20,
            defaults: PoolDefaults::default(),
            scan_every: Duration::from_secs(600),
            audit_every: Duration::from_secs(60),
            diagnose_donors: true,
        }
    }
}
