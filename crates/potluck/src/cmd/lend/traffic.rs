//! The notes of a daemon that lends about what it sent and stored, for `potluck lend status`.
//!
//! They are a small file in the state directory, and are written only after something was sent or stored, so that an
//! idle donor wakes no disk.

use potluck_wire::env::Env;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// The name of the file in the daemon's state directory.
pub const FILE: &str = "traffic.json";
/// The time between two looks at what was sent and stored.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The bytes that went over the network since the daemon began.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// The process that counted them.
    pub pid: u32,
    /// The time at which it began to count, in milliseconds since 1970.
    pub since_wall_ms: i64,
    /// The bytes of each lent directory.
    pub dirs: Vec<DirTraffic>,
}

/// The bytes that went over the network to and from one lent directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirTraffic {
    /// The lent directory.
    pub dir: PathBuf,
    /// The bytes that were sent to readers.
    pub served: u64,
    /// The bytes that were stored for writers.
    pub stored: u64,
}

impl Traffic {
    /// Reads the notes of the daemon whose state is in `state` and whose process is `pid`; `None` if there are none.
    pub fn of(state: &Path, pid: u32) -> Option<Self> {
        let text = fs::read(state.join(FILE)).ok()?;
        let noted: Self = serde_json::from_slice(&text).ok()?;
        (noted.pid == pid).then_some(noted)
    }
}

/// The writer of the notes.
pub struct TrafficNotes {
    path: PathBuf,
    noted: Traffic,
    next: Instant,
}

impl TrafficNotes {
    /// Begins the notes of a daemon whose state is in `state`.
    pub fn new(state: &Path) -> Self {
        let noted = Traffic {
            pid: std::process::id(),
            since_wall_ms: Env::system().clock.wall(),
            dirs: Vec::new(),
        };
        Self { path: state.join(FILE), noted, next: Instant::now() }
    }

    /// Waits until the next look is due.
    pub async fn pause(&self) {
        tokio::time::sleep_until(self.next).await;
    }

    /// Writes down what was sent and stored, if that has changed.
    pub fn note(&mut self, dirs: Vec<DirTraffic>) {
        self.next = Instant::now() + LOOK_EVERY;
        if self.noted.dirs == dirs {
            return;
        }
        self.noted.dirs = dirs;
        let text = serde_json::to_vec(&self.noted).expect("plain data");
        // The notes need not survive a power cut, so nothing is synced.
        let temp = self.path.with_extension("tmp");
        if let Err(why) = fs::write(&temp, text).and_then(|()| fs::rename(&temp, &self.path)) {
            tracing::debug!("cannot write {}: {why}", self.path.display());
        }
    }
}
