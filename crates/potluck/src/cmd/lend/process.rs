//! What a daemon's process has used of the machine, as Linux counts it.

use serde::Serialize;
use std::fs;

/// What the daemon's process has used.
#[derive(Debug, Serialize)]
pub struct Process {
    pub pid: u32,
    /// The seconds since it began.
    pub seconds: u64,
    /// The processor time that it took, in milliseconds.
    pub cpu_ms: u64,
    /// The bytes of memory that it holds now and that no other process could have: its own, without pages of files.
    pub memory: u64,
    /// Whether the pool's manager runs in the same process (`potluck up`).
    pub with_manager: bool,
}

impl Process {
    /// Reads what the process with this number has used; `None` if it has ended.
    pub fn read(pid: u32, with_manager: bool) -> Option<Self> {
        let text = |name: &str| fs::read_to_string(format!("/proc/{name}")).ok();
        let stat = text(&format!("{pid}/stat"))?;
        // The name of the program stands in parentheses and may contain anything.
        let fields: Vec<u64> =
            stat.rsplit_once(')')?.1.split_whitespace().map(|it| it.parse().unwrap_or(0)).collect();
        let [user, system, began] = [11, 12, 19].map(|at| fields.get(at).copied().unwrap_or(0));
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let up: f64 = text("uptime")?.split_whitespace().next()?.parse().ok()?;
        let memory = text(&format!("{pid}/status"))?;
        let memory = memory.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kib: u64 = memory.split_whitespace().next()?.parse().ok()?;
        Some(Self {
            pid,
            seconds: (up as u64).saturating_sub(began / per_second),
            cpu_ms: (user + system) * 1000 / per_second,
            memory: kib << 10,
            with_manager,
        })
    }
}
