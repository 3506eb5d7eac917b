//! The bill of a daemon that lends: what lending costs this machine and does for others, and who came. It stays on this
//! machine, in two files of the state directory: the hour that is not over, which is small and written while data moves,
//! and the hours before it, which are written once an hour.

use super::process::Process;
use super::traffic::DirTraffic;
use crate::local_time::LocalTime;
use crate::output::{count, duration};
use potluck_core::cost_history::{
    CostHistory, DELAY_WINDOW_MS, LendingCost, LocalMillis, OpenHour, Visitor, Visits,
};
use potluck_core::size::format_size;
use potluck_core::traffic::BothWays;
use potluck_wire::env::Env;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// The names of the files in the daemon's state directory: of the hours that are over, and of the one that is not.
pub const FILES: [&str; 2] = ["cost.json", "cost-hour.json"];
/// The time between two looks at what was moved.
const LOOK_EVERY: Duration = Duration::from_millis(DELAY_WINDOW_MS);
/// The shortest time between two writes of the hour: a daemon that is killed forgets so much.
const WRITE_EVERY: Duration = Duration::from_secs(15);
/// The files in which Linux counts the time for which something waited.
const STALLS: [&str; 3] = ["/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory"];

/// Returns the local time of now.
pub fn local_now() -> LocalMillis {
    let wall = Env::system().clock.wall();
    LocalTime::of(wall).map_or(wall, |local| wall + local.offset_ms())
}

/// Reads the bill of the daemon whose state is in `state`; empty where nothing was ever noted.
pub fn read(state: &Path) -> CostHistory {
    let [history, hour] = FILES.map(|file| state.join(file));
    let open: Option<OpenHour> = parsed(&hour);
    let history: CostHistory = parsed(&history).unwrap_or_default();
    match open {
        Some(open) => history.with(&open),
        None => history,
    }
}

/// Says what a period did and used, in one line.
pub fn sentence(cost: &LendingCost) -> String {
    let LendingCost { served, received, disk_written, cpu_ms, yielded_ms, .. } = cost;
    format!(
        "{} sent, {} received, {} written to disk, {:.1} s of processor time, yielded for {}",
        format_size(*served),
        format_size(*received),
        format_size(*disk_written),
        *cpu_ms as f64 / 1000.0,
        duration(yielded_ms / 1000),
    )
}

/// Says who came in thirty days, in one line.
pub fn who_came(visits: &Visits) -> String {
    let all = visits.by_bytes();
    let members = all.iter().filter(|(visitor, _)| matches!(visitor, Visitor::Member(_))).count();
    let sum = |of: fn(&BothWays<u64>) -> u64| all.iter().map(|(_, moved)| of(moved)).sum::<u64>();
    let (read, written) = (sum(|moved| moved.read), sum(|moved| moved.written));
    let members = count(members as u64, "member");
    format!(
        "{members} and the pool itself read {} and wrote {} in 30 days",
        format_size(read),
        format_size(written)
    )
}

/// Reads a file of this module; `None` where there is none, or it is damaged: then the bill begins anew.
fn parsed<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// What the donors of a machine have counted since the process began, and who came since the last look.
pub struct LendingCounts {
    /// The bytes that each lent directory sent and stored.
    pub dirs: Vec<DirTraffic>,
    /// The time in which they did less for the sake of others.
    pub yielded: Duration,
    /// The bytes that they lend.
    pub lent: u64,
    /// The bytes that they have stored.
    pub stored: u64,
    /// Who moved data since the last look.
    pub visits: Visits,
}

/// The writer of the bill.
pub struct Bill {
    paths: [PathBuf; 2],
    open: OpenHour,
    /// What was counted at the last look.
    dirs: BTreeMap<PathBuf, (u64, u64)>,
    process: ProcessUse,
    yielded: Duration,
    looked: Instant,
    written: Instant,
    /// Whether data moved since the last write.
    moved: bool,
}

impl Bill {
    /// Goes on with the bill of a daemon whose state is in `state`, or begins it.
    pub fn new(state: &Path) -> Self {
        let paths = FILES.map(|file| state.join(file));
        let open = parsed(&paths[1]).unwrap_or_else(|| OpenHour::at(local_now()));
        let now = Instant::now();
        Self {
            paths,
            open,
            dirs: BTreeMap::new(),
            process: ProcessUse { stalled: stalls(), ..ProcessUse::default() },
            yielded: Duration::ZERO,
            looked: now,
            written: now,
            moved: false,
        }
    }

    /// Waits until the next look is due.
    pub fn pause(&self) -> impl Future<Output = ()> + use<> {
        tokio::time::sleep_until(self.looked + LOOK_EVERY)
    }

    /// Notes what was counted.
    pub fn note(&mut self, counted: LendingCounts) {
        let now = Instant::now();
        let mut cost = LendingCost {
            yielded_ms: counted.yielded.saturating_sub(self.yielded).as_millis() as u64,
            up_ms: now.saturating_duration_since(self.looked).as_millis() as u64,
            lent: counted.lent,
            stored: counted.stored,
            ..LendingCost::default()
        };
        let earlier = std::mem::take(&mut self.dirs);
        for DirTraffic { dir, served, stored } in counted.dirs {
            let (served_before, stored_before) = earlier.get(&dir).copied().unwrap_or_default();
            // The donor of a directory may have ended, and another begun to count.
            cost.served += served.checked_sub(served_before).unwrap_or(served);
            cost.received += stored.checked_sub(stored_before).unwrap_or(stored);
            self.dirs.insert(dir, (served, stored));
        }
        let process = ProcessUse::now();
        cost.cpu_ms = process.cpu_ms.saturating_sub(self.process.cpu_ms);
        cost.disk_written = process.disk_written.saturating_sub(self.process.disk_written);
        let moved = cost.served + cost.received > 0;
        if moved {
            // A look that came late, as on a busy machine, covers more than its time.
            let stalled = process.stalled_since(&self.process);
            cost.worst_delay_ms = stalled * DELAY_WINDOW_MS / cost.up_ms.max(DELAY_WINDOW_MS);
        }
        (self.looked, self.process, self.yielded) = (now, process, counted.yielded);
        self.moved |= moved;
        if let Some(over) = self.open.note(&cost, &counted.visits, local_now()) {
            let history: CostHistory = parsed(&self.paths[0]).unwrap_or_default();
            // The history comes first: an hour that is in both files counts once.
            write(&self.paths[0], &history.with(&over));
            self.save();
        } else if self.moved && now.saturating_duration_since(self.written) >= WRITE_EVERY {
            self.save();
        }
    }

    /// Writes down the hour that is not over.
    pub fn save(&mut self) {
        (self.written, self.moved) = (Instant::now(), false);
        write(&self.paths[1], &self.open);
    }
}

/// Replaces a file at one moment, so that a daemon that is killed leaves the old one or the new one. It need not survive
/// a power cut, so nothing is synced.
fn write(path: &Path, what: &impl Serialize) {
    let temp = path.with_extension("tmp");
    let written = || -> io::Result<()> {
        let mut file = io::BufWriter::new(fs::File::create(&temp)?);
        serde_json::to_writer(&mut file, what)?;
        file.flush()?;
        fs::rename(&temp, path)
    };
    if let Err(why) = written() {
        tracing::debug!("cannot write {}: {why}", path.display());
    }
}

/// What this process has used, and for how long something on the machine waited, since they began.
#[derive(Debug, Clone, Copy, Default)]
struct ProcessUse {
    cpu_ms: u64,
    disk_written: u64,
    /// The milliseconds for which something waited for a processor, a disk, memory.
    stalled: [u64; 3],
}

impl ProcessUse {
    fn now() -> Self {
        let cpu_ms = Process::read(std::process::id(), false).map_or(0, |own| own.cpu_ms);
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
        let disk_written = written.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        Self { cpu_ms, disk_written, stalled: stalls() }
    }

    /// Returns the longest of the waits since an earlier look, in milliseconds.
    fn stalled_since(&self, earlier: &Self) -> u64 {
        let pairs = self.stalled.iter().zip(earlier.stalled);
        pairs.map(|(now, before)| now.saturating_sub(before)).max().unwrap_or(0)
    }
}

fn stalls() -> [u64; 3] {
    STALLS.map(|path| stalled_ms(&fs::read_to_string(path).unwrap_or_default()).unwrap_or(0))
}

/// Returns the milliseconds for which some task waited, as a file of pressure stall information counts them.
fn stalled_ms(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = some.split_once("total=")?;
    total.trim().parse::<u64>().ok().map(|us| us / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::cost_history::day_of;
    use potluck_core::ids::MemberId;
    use potluck_core::traffic::Direction;

    fn counted(served: u64, member: u32) -> LendingCounts {
        let mut visits = Visits::default();
        visits.note(Visitor::Member(MemberId(member)), Direction::Read, served);
        let dirs = vec![DirTraffic { dir: "/a".into(), served, stored: 2 * served }];
        LendingCounts { dirs, yielded: Duration::from_secs(served), lent: 10, stored: 5, visits }
    }

    #[tokio::test]
    async fn a_killed_daemon_goes_on_with_its_bill() {
        let state = tempfile::tempdir().expect("a directory");
        let today = || {
            let day = day_of(local_now());
            read(state.path()).since(day - 1, day).0
        };
        let mut bill = Bill::new(state.path());
        bill.note(counted(100, 1));
        bill.note(counted(150, 1));
        assert_eq!(today().served, 0, "not each look is written");
        bill.save();
        assert_eq!((today().served, today().received, today().yielded_ms), (150, 300, 150_000));
        assert_eq!((today().lent, today().stored), (10, 5));
        // Another process counts from zero.
        let mut bill = Bill::new(state.path());
        bill.note(counted(7, 2));
        bill.save();
        assert_eq!(today().served, 157);
        // The counters of a donor that began anew are counted from zero as well.
        bill.note(counted(3, 2));
        bill.save();
        assert_eq!(today().served, 160);
        assert_eq!(read(state.path()).visits().by_bytes().len(), 2);
        fs::write(state.path().join(FILES[0]), "damaged").expect("written");
        assert_eq!(today().served, 160);
    }

    #[test]
    fn pressure_is_read_from_its_total() {
        let text =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234567\nfull avg10=0.00 total=9\n";
        assert_eq!(stalled_ms(text), Some(1234));
        assert_eq!(stalled_ms(""), None);
    }
}
