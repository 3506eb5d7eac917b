//! The settings that a manager is told when it starts.

use potluck_pool::PoolLimits;
use potluck_wire::addresses::MANAGER_LISTEN;
use std::path::PathBuf;
use std::time::Duration;

/// How one manager runs. [`Default`] suits a pool of desktops on one network.
#[derive(Debug, Clone)]
pub struct ManagerConfig {
    /// `host:port` to listen on; port 0 picks a free one.
    pub listen: String,
    /// The directory that holds everything the manager must not lose.
    pub state: PathBuf,
    /// The name of the pool; fixed when the pool is made.
    pub pool_name: String,
    /// How members reach it, each `host` or `host:port`; empty: by all addresses of the machine, or
    /// the one at which it listens.
    pub advertise: Vec<String>,
    /// A write session ends when none of its calls arrives for this long.
    pub lease: Duration,
    /// The chunks that an interrupted upload stored are kept so long, so that it can go on; 0: not at all.
    pub resume_window: Duration,
    /// A checkpoint stays open so long while nothing is written to it.
    pub checkpoint_idle: Duration,
    /// Chunks that no file uses are kept at least this long.
    pub gc_delay: Duration,
    /// A donor silent for longer is a suspect: nobody waits on it.
    pub suspect_after: Duration,
    /// A donor silent for longer is called that, and no longer a suspect only.
    pub silent_after: Duration,
    /// Where `/metrics` are served, to anybody; `None`: nowhere.
    pub metrics_listen: Option<String>,
    /// The catalog is backed up to a file so often, if it changed.
    pub backup_every: Duration,
    /// Where backups to files are kept; `None`: in the state directory.
    pub backup_dir: Option<PathBuf>,
    /// Copies of the metadata log that the pool keeps on its own donors; 0: none.
    pub metadata_copies: u32,
    /// A donor silent for longer is gone, and what it holds is made again elsewhere.
    pub repair_grace: Duration,
    /// The longest grace and the longest absence that a donor may claim for itself.
    pub longest_absence: Duration,
    /// Bytes a second that repair makes in the whole pool at most.
    pub repair_rate: u64,
    /// Bytes a second that repair asks of one donor at most, reading and writing counted apart.
    pub repair_donor_rate: u64,
    /// Everything is looked at this often, also when nothing is known to have changed.
    pub scan_every: Duration,
    /// Some copies are compared with each other this often.
    pub audit_every: Duration,
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
            pool_name: "pool".into(),
            advertise: Vec::new(),
            metrics_listen: None,
            lease: Duration::from_secs(30),
            // With the lease before it and the GC delay after it, less than an hour (promise D2).
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
            scan_every: Duration::from_secs(600),
            audit_every: Duration::from_secs(60),
        }
    }
}
