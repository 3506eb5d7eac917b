//! The load of a donor: a sample of each second, and its score (docs/papers.md, CEFT). The score says what others than
//! Potluck use, so that a donor does not look busy to a reader because of what that reader has it do.
//!
//! The donor reads files and counters; this module parses ([`ProcText`]) and differences ([`Counters`]) them, so that
//! every platform's sample means the same.

mod proc_text;

pub use proc_text::{
    ProcText, parse_diskstats, parse_lent_disk, parse_load1, parse_meminfo, parse_net_dev,
    parse_procs_blocked, parse_psi, parse_self_io, parse_self_ticks,
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
    /// The bytes a second read from the disk of the lent directory, or from all disks where that one is not known.
    pub disk_read_bytes_s: u64,
    /// The bytes a second written to the disk of the lent directory, or to all disks where that one is not known.
    pub disk_write_bytes_s: u64,
    /// The share of the time in which the disk of the lent directory worked, or the busiest disk where that one is not
    /// known, 0 to 1.
    pub disk_busy: f32,
    /// The number of processes that wait for a disk.
    pub io_processes: u32,
    /// The bytes a second received by all network links.
    pub net_rx_bytes_s: u64,
    /// The bytes a second sent by all network links.
    pub net_tx_bytes_s: u64,
    /// The bytes a second that the network link carries each way, as [`LinkSpeed`] knows it; 0 when unknown.
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
    /// The bytes a second that the owner's programs bear as the owner allows, as far as it was measured; `None` where it
    /// was not, or they bear all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borne: Option<u64>,
    /// Why the donor yields to its owner, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub yielding: Option<Yielding>,
    /// The share of all CPUs that Potluck's own process used, 0 to 1.
    pub own_cpu_busy: f32,
    /// The bytes a second that Potluck's own process read from disks and wrote to them.
    pub own_disk_bytes_s: u64,
}

/// A resource of a donor's machine, in the order of their priority: the one that slows writing most comes first
/// (CEFT §5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The memory, which takes up what is written before the disk does.
    Memory,
    /// The network link.
    Network,
    /// The disk of the lent directory.
    Disk,
    /// The CPUs, all together.
    Cpu,
}

impl Resource {
    /// Returns the name of the resource for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Cpu => "CPU",
        }
    }
}

/// The score above which a donor is hot: others have more than one half of what it could do (CEFT §5.3).
pub const HOT: f32 = 0.5;

/// The share of memory from which more use of it counts. What programs merely hold slows nobody; with less than a
/// quarter left, the page cache that takes up writes gets small.
const MEMORY_FILLED: f32 = 0.75;

/// The share of the time that a disk must be busy for others before the processes that wait for one are taken to wait
/// for this one.
const DISK_SHARED: f32 = 0.1;

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
    /// Returns how loaded the donor is by others than Potluck, from 0 (idle) to 1: the share that is lost of the speed
    /// of its scarcest resource. The donor with the lower score is to be asked first.
    pub fn score(&self) -> f32 {
        let least = if self.yielding.is_some() { YIELDING } else { 0.0 };
        self.used_by_others().into_iter().map(|(_, used)| used).fold(least, f32::max)
    }

    /// Returns the resource that makes this donor hot, the one of the highest priority if there are several; `None`
    /// where it is not hot.
    pub fn hot_resource(&self) -> Option<Resource> {
        let hot = self.used_by_others().into_iter().find(|(_, used)| *used > HOT);
        hot.map(|(resource, _)| resource)
    }

    /// Describes the score for people, with the resource that makes the donor hot, if it is: `80 % (disk)`.
    pub fn describe(&self) -> String {
        let percent = format!("{:.0} %", 100.0 * self.score());
        match self.hot_resource() {
            Some(resource) => format!("{percent} ({})", resource.name()),
            None => percent,
        }
    }

    /// Returns the share of each resource that others use, in the order of priority. Time in which tasks stalled counts
    /// like time in use, as far as it is not our own tasks that work there.
    fn used_by_others(&self) -> [(Resource, f32); 4] {
        let stalled = self.pressure.unwrap_or_default();
        let filled = 1.0 - ratio(self.memory_free, self.memory_total).unwrap_or(1.0);
        let memory = (filled - MEMORY_FILLED) / (1.0 - MEMORY_FILLED);

        let received = self.net_rx_bytes_s.saturating_sub(self.stored_bytes_s);
        let sent = self.net_tx_bytes_s.saturating_sub(self.served_bytes_s);
        let network = ratio(received.max(sent), self.net_link_bytes_s).unwrap_or(0.0);

        let all_disk = self.disk_read_bytes_s.saturating_add(self.disk_write_bytes_s);
        let others_disk = all_disk.saturating_sub(self.own_disk_bytes_s);
        let of_others = ratio(others_disk, all_disk).unwrap_or(1.0);
        let busy = self.disk_busy.max(stalled.io / 100.0) * of_others;
        // With n processes at a disk, one more gets 1/(n+1) of it: min(1 - used, 1/(n+1)) is left.
        let waiting = self.io_processes as f32 * of_others;
        let shared = if busy >= DISK_SHARED { 1.0 - 1.0 / (waiting + 1.0) } else { 0.0 };

        let cpu = self.cpu_busy.max(stalled.cpu / 100.0);
        let own = if self.cpu_busy > 0.0 { self.own_cpu_busy / self.cpu_busy } else { 0.0 };
        let cpu = cpu * (1.0 - share(own));
        [
            (Resource::Memory, share(memory.max(stalled.memory / 100.0))),
            (Resource::Network, share(network)),
            (Resource::Disk, share(busy.max(shared))),
            (Resource::Cpu, share(cpu)),
        ]
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

/// Returns a value as a share from 0 to 1; one that is no number counts as idle.
fn share(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

/// The speed of the network link. What a driver says counts only until Potluck itself has moved bytes: virtual links
/// say 10 Gb/s whatever they carry, and a fast link may lead to a slow line. From then on it is the most that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkSpeed {
    best: u64,
    is_measured: bool,
}

/// The bytes a second that Potluck must have moved itself before the link counts as measured. A transfer is as fast as
/// its slowest part, which may be far away; one below this says nothing about the link here.
const MEASURED_FROM: u64 = 1 << 20;

impl LinkSpeed {
    /// Notes what the link carried, and returns the bytes a second that it carries each way, where the driver says
    /// `told`; 0 when nothing is known.
    pub fn after(&mut self, load: &Load, told: u64) -> u64 {
        self.best = self.best.max(load.net_rx_bytes_s).max(load.net_tx_bytes_s);
        let own = load.served_bytes_s.max(load.stored_bytes_s);
        let carried = load.net_rx_bytes_s.max(load.net_tx_bytes_s);
        // Bytes between processes of one machine are on no link.
        self.is_measured |= own.min(carried) >= MEASURED_FROM;
        if self.is_measured { self.best } else { told.max(self.best) }
    }
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
    /// The work of the disk of the lent directory, by its name, or of all whole disks where it is not known.
    pub disks: BTreeMap<String, DiskTotals>,
    /// The work of real network links, by the name of the interface.
    pub nets: BTreeMap<String, NetTotals>,
    /// The bytes that Potluck served to readers.
    pub served: u64,
    /// The bytes that Potluck stored for writers.
    pub stored: u64,
    /// The CPU time that Potluck's own process has used, in the kernel's ticks.
    pub own_ticks: u64,
    /// The bytes that Potluck's own process has read from disks and written to them.
    pub own_disk: u64,
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
        let ticks = self.cpu.total.saturating_sub(earlier.cpu.total);
        let cpu = ratio(self.cpu.busy.saturating_sub(earlier.cpu.busy), ticks);
        let own_cpu = ratio(self.own_ticks.saturating_sub(earlier.own_ticks), ticks);
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
            own_cpu_busy: own_cpu.unwrap_or(0.0).min(1.0),
            own_disk_bytes_s: per_second(self.own_disk.saturating_sub(earlier.own_disk)),
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
