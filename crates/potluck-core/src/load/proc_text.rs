//! The parser of Linux's `/proc` texts. Text that is not as expected gives `None` or nothing, never a panic.

use super::{Counters, CpuTimes, DiskTotals, Load, NetTotals, Pressure};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The texts that a Linux donor reads for one sample; empty where a file is missing.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcText<'a> {
    /// The content of `/proc/stat`.
    pub stat: &'a str,
    /// The content of `/proc/loadavg`.
    pub loadavg: &'a str,
    /// The content of `/proc/meminfo`.
    pub meminfo: &'a str,
    /// The content of `/proc/diskstats`.
    pub diskstats: &'a str,
    /// The content of `/proc/net/dev`.
    pub net_dev: &'a str,
    /// The content of `/proc/pressure/cpu`.
    pub psi_cpu: &'a str,
    /// The content of `/proc/pressure/io`.
    pub psi_io: &'a str,
    /// The content of `/proc/pressure/memory`.
    pub psi_memory: &'a str,
    /// The content of `/proc/self/stat`.
    pub self_stat: &'a str,
    /// The content of `/proc/self/io`.
    pub self_io: &'a str,
    /// The device of the lent directory, as its major and minor number.
    pub lent_device: Option<(u32, u32)>,
}

impl ProcText<'_> {
    /// Returns the counters of the machine and of this process; the bytes that Potluck served and stored are left at 0
    /// for the caller to fill in.
    pub fn counters(&self) -> Counters {
        let lent = self.lent_device.and_then(|device| parse_lent_disk(self.diskstats, device));
        let sum = |(one, other): (u64, u64)| one.saturating_add(other);
        Counters {
            cpu: CpuTimes::parse(self.stat).unwrap_or_default(),
            own_ticks: parse_self_ticks(self.self_stat).map_or(0, sum),
            own_disk: parse_self_io(self.self_io).map_or(0, sum),
            disks: lent.map_or_else(|| parse_diskstats(self.diskstats), |lent| [lent].into()),
            nets: parse_net_dev(self.net_dev),
            ..Counters::default()
        }
    }

    /// Returns the sample at this moment, given the counters of now and of `elapsed` ago.
    pub fn load(&self, now: &Counters, earlier: &Counters, elapsed: Duration) -> Load {
        let (memory_free, memory_total) = parse_meminfo(self.meminfo).unwrap_or_default();
        Load {
            load1: parse_load1(self.loadavg).unwrap_or(0.0),
            memory_free,
            memory_total,
            io_processes: parse_procs_blocked(self.stat).unwrap_or(0),
            pressure: self.pressure(),
            ..now.load_since(earlier, elapsed)
        }
    }

    fn pressure(&self) -> Option<Pressure> {
        let (cpu, io) = (parse_psi(self.psi_cpu), parse_psi(self.psi_io));
        let memory = parse_psi(self.psi_memory);
        cpu.or(io).or(memory)?;
        let known = |percent: Option<f32>| percent.unwrap_or(0.0);
        Some(Pressure { cpu: known(cpu), io: known(io), memory: known(memory) })
    }
}

impl CpuTimes {
    /// Parses the first line of `/proc/stat`; the rest of the file may follow it (proc_stat(5)).
    pub fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        // The fields are user nice system idle iowait irq softirq steal; the times of virtual machines are within user time already.
        let times: Vec<u64> =
            line.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
        let sum = |times: &[u64]| times.iter().fold(0, |a: u64, b| a.saturating_add(*b));
        let total = sum(&times);
        let idle = sum(times.get(3..times.len().min(5))?);
        Some(Self { busy: total.saturating_sub(idle), total })
    }
}

/// Returns the percentage of the last ten seconds in which some task stalled, from a file in `/proc/pressure`.
pub fn parse_psi(text: &str) -> Option<f32> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let average = some.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
    average.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))
}

/// Returns the one-minute figure of `/proc/loadavg`.
pub fn parse_load1(text: &str) -> Option<f32> {
    let load: f32 = text.split_whitespace().next()?.parse().ok()?;
    (load.is_finite() && load >= 0.0).then_some(load)
}

/// Returns the number of processes that wait for a disk, from `/proc/stat`.
pub fn parse_procs_blocked(stat: &str) -> Option<u32> {
    let count = stat.lines().find_map(|line| line.strip_prefix("procs_blocked "))?;
    count.trim().parse().ok()
}

/// Returns the free and the total bytes of memory. Free is what the kernel estimates that programs can have: most of
/// the page cache counts as free.
pub fn parse_meminfo(text: &str) -> Option<(u64, u64)> {
    let bytes = |key: &str| -> Option<u64> {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some((bytes("MemAvailable")?, bytes("MemTotal")?))
}

/// Returns the CPU time in ticks that the process of a `/proc/PID/stat` text spent in its program, and in the kernel.
pub fn parse_self_ticks(text: &str) -> Option<(u64, u64)> {
    // The second field is the name of the program in brackets, which may have spaces and brackets of its own.
    let mut times = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some((times.next()?.parse().ok()?, times.next()?.parse().ok()?))
}

/// Returns the bytes that the process of a `/proc/PID/io` text has read from disks, and given them to write.
pub fn parse_self_io(text: &str) -> Option<(u64, u64)> {
    let bytes = |key: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?.trim().parse().ok()
    };
    Some((bytes("read_bytes")?, bytes("write_bytes")?))
}

/// Returns the whole physical disks by name. Layers over other disks (loop, RAID, LVM, compressed memory) and
/// partitions would count the same bytes again. Memory disks, optical drives and floppy drives are left out as well.
pub fn parse_diskstats(text: &str) -> BTreeMap<String, DiskTotals> {
    const LAYERED: [&str; 7] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd"];
    let mut disks: BTreeMap<String, DiskTotals> = text
        .lines()
        .filter_map(parse_disk)
        .filter(|(_, name, _)| !LAYERED.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(_, name, totals)| (name.to_owned(), totals))
        .collect();
    let names: BTreeSet<String> = disks.keys().cloned().collect();
    disks.retain(|name, _| !whole_disk(name).is_some_and(|whole| names.contains(whole)));
    disks
}

/// Returns the name and the work of the disk that has a device: of the whole disk where the device is a partition, since
/// others use its other partitions, and of a layer over other disks where it is one. `None` for devices without a disk
/// of their own, such as those of btrfs, NFS or memory.
pub fn parse_lent_disk(text: &str, device: (u32, u32)) -> Option<(String, DiskTotals)> {
    let (_, lent, totals) = text.lines().filter_map(parse_disk).find(|(at, ..)| *at == device)?;
    let of_name = |name: &str| text.lines().filter_map(parse_disk).find(|disk| disk.1 == name);
    let whole = whole_disk(lent).and_then(of_name);
    let (name, totals) = whole.map_or((lent, totals), |(_, name, totals)| (name, totals));
    Some((name.to_owned(), totals))
}

/// Returns the device, the name and the work of the disk of a line of `/proc/diskstats`.
fn parse_disk(line: &str) -> Option<((u32, u32), &str, DiskTotals)> {
    const SECTOR: u64 = 512; // the unit of this file, whatever the disk's own (iostats.rst)
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u32>().ok();
    let figure = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let totals = DiskTotals {
        read: figure(5)?.checked_mul(SECTOR)?,
        written: figure(9)?.checked_mul(SECTOR)?,
        busy_ms: figure(12)?,
    };
    Some(((number(0)?, number(1)?), *fields.get(2)?, totals))
}

/// Returns the disk that a partition's name implies: `sda` of `sda1`, `nvme0n1` of `nvme0n1p2`.
fn whole_disk(name: &str) -> Option<&str> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() == name.len() {
        return None;
    }
    let numbered = |disk: &&str| disk.ends_with(|c: char| c.is_ascii_digit());
    Some(stem.strip_suffix('p').filter(numbered).unwrap_or(stem))
}

/// Returns the network links by name. Interfaces on top of others (bridges, bonds, VLANs, tunnels) would count the same
/// bytes again, and traffic that never leaves the machine uses no link.
pub fn parse_net_dev(text: &str) -> BTreeMap<String, NetTotals> {
    const VIRTUAL: [&str; 11] =
        ["veth", "docker", "br", "virbr", "ifb", "tun", "tap", "wg", "bond", "team", "dummy"];
    let link = |line: &str| -> Option<(String, NetTotals)> {
        let (name, figures) = line.split_once(':')?;
        let name = name.trim();
        let figures: Vec<&str> = figures.split_whitespace().collect();
        let bytes = |at: usize| figures.get(at)?.parse().ok();
        let totals = NetTotals { rx: bytes(0)?, tx: bytes(8)? };
        let real = name != "lo"
            && !name.contains('.')
            && !VIRTUAL.iter().any(|prefix| name.starts_with(prefix));
        real.then(|| (name.into(), totals))
    };
    text.lines().filter_map(link).collect()
}
