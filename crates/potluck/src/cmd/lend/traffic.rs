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

/// The bytes that went over the network since the machine first lent something, however often the daemon was started.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct NotedTraffic {
    /// The time since which they are counted, in milliseconds since 1970.
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

impl NotedTraffic {
    /// Reads the notes of the daemon whose state is in `state`; `None` if there are none.
    pub fn of(state: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(state.join(FILE)).ok()?).ok()
    }

    /// Adds what was counted of a directory.
    fn add(&mut self, counted: &DirTraffic) {
        match self.dirs.iter_mut().find(|one| one.dir == counted.dir) {
            Some(one) => {
                one.served = one.served.saturating_add(counted.served);
                one.stored = one.stored.saturating_add(counted.stored);
            }
            None => self.dirs.push(counted.clone()),
        }
    }
}

/// The writer of the notes.
pub struct TrafficNotes {
    path: PathBuf,
    /// What was counted by donors that have ended.
    before: NotedTraffic,
    /// What the donors that run had counted at the last look.
    counted: Vec<DirTraffic>,
    next: Instant,
}

impl TrafficNotes {
    /// Goes on with the notes of a daemon whose state is in `state`, or begins them.
    pub fn new(state: &Path) -> Self {
        let before = NotedTraffic::of(state).unwrap_or_else(|| NotedTraffic {
            since_wall_ms: Env::system().clock.wall(),
            dirs: Vec::new(),
        });
        Self { path: state.join(FILE), before, counted: Vec::new(), next: Instant::now() }
    }

    /// Waits until the next look is due.
    pub async fn pause(&self) {
        tokio::time::sleep_until(self.next).await;
    }

    /// Writes down what was sent and stored, if that has changed.
    pub fn note(&mut self, dirs: Vec<DirTraffic>) {
        self.next = Instant::now() + LOOK_EVERY;
        if self.counted == dirs {
            return;
        }
        let goes_on = |old: &DirTraffic| {
            let is_same = |new: &DirTraffic| {
                new.dir == old.dir && new.served >= old.served && new.stored >= old.stored
            };
            dirs.iter().any(is_same)
        };
        // The donor of a directory may have ended, and another begun, as when its disk was away.
        for ended in self.counted.iter().filter(|old| !goes_on(old)) {
            self.before.add(ended);
        }
        self.counted = dirs;
        let mut all = self.before.clone();
        self.counted.iter().for_each(|counted| all.add(counted));
        let text = serde_json::to_vec(&all).expect("plain data");
        // The notes need not survive a power cut, so nothing is synced.
        let temp = self.path.with_extension("tmp");
        if let Err(why) = fs::write(&temp, text).and_then(|()| fs::rename(&temp, &self.path)) {
            tracing::debug!("cannot write {}: {why}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_counters_survive_daemon_and_donor_restarts() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |dir: &str, served, stored| DirTraffic { dir: dir.into(), served, stored };
        let noted = || NotedTraffic::of(dir.path()).expect("notes").dirs;
        let mut notes = TrafficNotes::new(dir.path());
        let since = notes.before.since_wall_ms;
        notes.note(vec![of("/a", 1, 10), of("/b", 2, 20)]);
        notes.note(vec![of("/a", 3, 30), of("/b", 2, 20)]);
        assert_eq!(noted(), [of("/a", 3, 30), of("/b", 2, 20)]);
        notes.note(vec![of("/a", 4, 30)]); // the disk of /b is away
        notes.note(vec![of("/a", 4, 30), of("/b", 1, 0)]);
        assert_eq!(noted(), [of("/b", 3, 20), of("/a", 4, 30)]);
        let mut notes = TrafficNotes::new(dir.path());
        notes.note(vec![of("/a", 100, 0)]);
        assert_eq!(noted(), [of("/b", 3, 20), of("/a", 104, 30)]);
        assert_eq!(NotedTraffic::of(dir.path()).expect("notes").since_wall_ms, since);
    }
}
