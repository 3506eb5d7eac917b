//! The load of a donor: a sample of each second, and its score (docs/papers.md, CEFT).
//!
//! The donor reads files and counters; this module parses ([`ProcText`]) and differences ([`Counters`]) them, so that
//! every platform's sample means the same.

mod proc_text;

pub use proc_text::{
    ProcText, parse_diskstats, parse_load1, parse_meminfo, parse_net_dev, parse_procs_blocked,
    parse_psi,
};

use crate::governor::Yielding;
use crate::traffic::BothWays;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The least score of a donor that yields to its owner: others are asked first, though its figures are those of a machine
/// that is hardly used, since it yields.
const YIELDING: f32 = 0.9;

/// A sample of a donor's load: rates over the last interval, other figures as of its end. A figure that the platform
/// does not give is 0, which counts as idle.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// The share of all CPUs in use, 0 to 1.
    pub cpu_busy: f32,
    /// The load average of one minute: runnable processes, and on Linux also those that wait for a disk.
    pub load1: f32,
    /// The bytes of memory that programs can have without swapping.
    pub memory_free: u64,
    /// The size of the machine's memory in bytes.
    pub memory_total: u64,
    /// The bytes a second read from all disks.
    pub disk_read_bytes_s: u64,
    /// The bytes a second written to all disks.
    pub disk_write_bytes_s: u64,
    /// The share of the time in which the busiest disk worked, 0 to 1.
    pub disk_busy: f32,
    /// The number of processes that wait for a disk.
    pub io_processes: u32,
    /// The bytes a second received by all network links.
    pub net_rx_bytes_s: u64,
    /// The bytes a second sent by all network links.
    pub net_tx_bytes_s: u64,
    /// The bytes a second that the network link carries each way; 0 when unknown.
    pub net_link_bytes_s: u64,
    /// Pressure stall information; `None` where the kernel does not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// The bytes a second that Potluck served to readers.
    pub served_bytes_s: u64,
    /// The bytes a second that Potluck stored for writers.
    pub stored_bytes_s: u64,
    /// The bytes a second that the donor moves for others at most now; `None` for no limit.
    pub limits: BothWays<Option<u64>>,
    /// Why the donor yields to its owner, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yielding: Option<Yielding>,
}

/// Pressure stall information: the percentages of the last ten seconds in which some task waited.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// The percentage of the time in which some task waited for a CPU.
    pub cpu: f32,
    /// The percentage of the time in which some task waited for a disk.
    pub io: f32,
    /// The percentage of the time in which some task waited for memory.
    pub memory: f32,
}

impl Load {
    /// Returns how loaded the donor is, from 0 (idle) to 1: the donor with the lower score is to be asked first.
    ///
    /// A resource counts by how far its use exceeds one half (the threshold is CEFT's, docs/papers.md), and
    /// a little below that. The priorities memory, network, disk, CPU weigh 8, 4, 2, 1: a
    /// saturated resource outweighs all of lower priority together. Time stalled adds to time in
    /// use, because a resource that tasks wait for is more than busy.
    pub fn score(&self) -> f32 {
        let stalled = self.pressure.unwrap_or_default();
        let memory = 1.0 - ratio(self.memory_free, self.memory_total).unwrap_or(1.0);
        let net = self.net_rx_bytes_s.max(self.net_tx_bytes_s);
        let network = ratio(net, self.net_link_bytes_s).unwrap_or(0.0);
        // With n processes at a disk, one more gets 1/(n+1) of it (docs/papers.md, CEFT).
        let shared = 1.0 - 1.0 / (self.io_processes as f32 + 1.0);
        let disk = self.disk_busy.max(shared);
        let weighted = 8.0 * weight(memory + stalled.memory / 100.0)
            + 4.0 * weight(network)
            + 2.0 * weight(disk + stalled.io / 100.0)
            + weight(self.cpu_busy + stalled.cpu / 100.0);
        let least = if self.yielding.is_some() { YIELDING } else { 0.0 };
        (weighted / 15.0).max(least)
    }

    /// Returns these rates as far as the donor's limits let them be true; a limit is all that is known of a donor of which
    /// no rate is.
    pub fn within_limits(&self, rates: BothWays<Option<u64>>) -> BothWays<Option<u64>> {
        let within = |rate: Option<u64>, limit: Option<u64>| match (rate, limit) {
            (Some(rate), Some(limit)) => Some(rate.min(limit)),
            (rate, limit) => rate.or(limit),
        };
        BothWays {
            read: within(rates.read, self.limits.read),
            written: within(rates.written, self.limits.written),
        }
    }
}

fn ratio(part: u64, whole: u64) -> Option<f32> {
    (whole > 0).then(|| (part as f64 / whole as f64) as f32)
}

/// Returns the weight of a use: nine tenths of the scale lie above one half. A value from outside that is
/// no share counts as idle.
fn weight(used: f32) -> f32 {
    let used = if used > 0.0 { used.min(1.0) } else { 0.0 };
    0.2 * used.min(0.5) + 1.8 * (used - 0.5).max(0.0)
}

/// The CPU time since boot, of all CPUs, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// Ticks that were spent on anything but idling or waiting for a disk.
    pub busy: u64,
    /// Ticks of all kinds together.
    pub total: u64,
}

/// The work of one disk since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskTotals {
    /// The bytes read from the disk.
    pub read: u64,
    /// The bytes written to the disk.
    pub written: u64,
    /// The milliseconds in which the disk had at least one request.
    pub busy_ms: u64,
}

/// The work of one network interface since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetTotals {
    /// The bytes received by the interface.
    pub rx: u64,
    /// The bytes sent by the interface.
    pub tx: u64,
}

/// Figures that only grow, except when a device goes away: devices are therefore kept apart, and
/// one that comes or goes makes no rate jump.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// CPU time of all processors.
    pub cpu: CpuTimes,
    /// The work of whole disks, by the name of the disk.
    pub disks: BTreeMap<String, DiskTotals>,
    /// The work of real network links, by the name of the interface.
    pub nets: BTreeMap<String, NetTotals>,
    /// The bytes that Potluck served to readers.
    pub served: u64,
    /// The bytes that Potluck stored for writers.
    pub stored: u64,
}

impl Counters {
    /// Returns the rates of a [`Load`] from `earlier` until now, `elapsed` later; 0 when no time passed. Every figure
    /// that is no rate is left at its default.
    pub fn load_since(&self, earlier: &Self, elapsed: Duration) -> Load {
        let seconds = elapsed.as_secs_f64();
        if seconds <= 0.0 {
            return Load::default();
        }
        let per_second = |bytes: u64| (bytes as f64 / seconds) as u64;
        let cpu = ratio(
            self.cpu.busy.saturating_sub(earlier.cpu.busy),
            self.cpu.total.saturating_sub(earlier.cpu.total),
        );
        let disk = |figure: fn(&DiskTotals) -> u64| growth(&self.disks, &earlier.disks, figure);
        let net = |figure: fn(&NetTotals) -> u64| growth(&self.nets, &earlier.nets, figure);
        let sum = |rates: Vec<u64>| per_second(rates.iter().fold(0, |a, b| a.saturating_add(*b)));
        let busiest = disk(|d| d.busy_ms).into_iter().max().unwrap_or(0);
        Load {
            cpu_busy: cpu.unwrap_or(0.0).min(1.0),
            disk_read_bytes_s: sum(disk(|d| d.read)),
            disk_write_bytes_s: sum(disk(|d| d.written)),
            disk_busy: (busiest as f64 / 1000.0 / seconds).min(1.0) as f32,
            net_rx_bytes_s: sum(net(|n| n.rx)),
            net_tx_bytes_s: sum(net(|n| n.tx)),
            served_bytes_s: per_second(self.served.saturating_sub(earlier.served)),
            stored_bytes_s: per_second(self.stored.saturating_sub(earlier.stored)),
            ..Load::default()
        }
    }
}

/// Returns the growth of a figure on each device that was there at both times.
fn growth<T>(
    now: &BTreeMap<String, T>,
    earlier: &BTreeMap<String, T>,
    figure: fn(&T) -> u64,
) -> Vec<u64> {
    now.iter()
        .filter_map(|(name, after)| Some(figure(after).saturating_sub(figure(earlier.get(name)?))))
        .collect()
}
