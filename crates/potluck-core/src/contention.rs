//! What the owner's machine does beside the donor: counters of the kernel, of which the donor's own part is taken off.
//!
//! Without that an idle owner's machine would be throttled for the donor's own service, whose threads wait for disks and
//! processors like any others.

use crate::clock::Tick;
use crate::governor::ContentionSample;
use crate::load::{
    DiskTotals, NetTotals, ProcText, parse_diskstats, parse_net_dev, parse_self_io,
    parse_self_ticks,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The share by which a file system writes more than it is given: journals, directories, rounding.
const FILE_SYSTEM: f64 = 0.15;
/// The time in which written bytes that never reached the disk are forgotten to 1/e: their files were removed before.
const UNWRITTEN: Duration = Duration::from_mins(1);
/// The most seconds of a core that the kernel takes for a byte in packets: interrupts are also those of clocks and disks.
const MOST_FOR_PACKETS: f64 = 1e-9;
/// The share by which packets are longer than what they carry.
const HEADERS: f64 = 0.06;

/// What the donor counts of itself, since its process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnCounts {
    /// The bytes that this donor moved for others, in both directions.
    pub moved: u64,
    /// The bytes that the process sent and received for others.
    pub network: u64,
    /// The bytes that this donor wrote to its disk.
    pub written: u64,
    /// The microseconds that those writes took.
    pub writing_us: u64,
}

/// The processors that a process may use, as the numbers of those are found in `/proc/stat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum UsableCpus {
    /// The process may use all.
    #[default]
    All,
    /// The process may use those with these numbers.
    These(Vec<usize>),
}

/// CPU time since boot in the kernel's ticks.
#[derive(Debug, Clone, Copy, Default)]
struct CpuSplit {
    programs: u64,
    idle: u64,
    interrupts: u64,
    all: u64,
}

impl CpuSplit {
    /// Sums the times of the processors that may be used.
    fn parse(stat: &str, usable: &UsableCpus) -> Option<Self> {
        let of = |line: &str| -> Option<Self> {
            let times: Vec<u64> =
                line.split_whitespace().skip(1).take(8).map_while(|it| it.parse().ok()).collect();
            let [user, nice, system, idle, iowait, irq, softirq, steal] = times[..] else {
                return None;
            };
            let all = [user, nice, system, idle, iowait, irq, softirq, steal];
            Some(Self {
                programs: user.saturating_add(nice),
                idle: idle.saturating_add(iowait),
                interrupts: irq.saturating_add(softirq),
                all: all.iter().fold(0, |a, b| a.saturating_add(*b)),
            })
        };
        match usable {
            UsableCpus::All => of(stat.lines().find(|line| line.starts_with("cpu "))?),
            UsableCpus::These(numbers) => {
                let mut sum = Self::default();
                for number in numbers {
                    let name = format!("cpu{number} ");
                    let one = of(stat.lines().find(|line| line.starts_with(&name))?)?;
                    sum.programs = sum.programs.saturating_add(one.programs);
                    sum.idle = sum.idle.saturating_add(one.idle);
                    sum.interrupts = sum.interrupts.saturating_add(one.interrupts);
                    sum.all = sum.all.saturating_add(one.all);
                }
                Some(sum)
            }
        }
    }
}

/// Returns the microseconds since boot in which some task waited, from a file in `/proc/pressure`.
pub fn parse_stall_total(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

#[derive(Debug, Clone, Default)]
struct Counts {
    cpu: Option<CpuSplit>,
    own_ticks: Option<(u64, u64)>,
    stalls: [Option<u64>; 3],
    disks: BTreeMap<String, DiskTotals>,
    own_io: Option<(u64, u64)>,
    nets: BTreeMap<String, NetTotals>,
    own: OwnCounts,
}

/// The meter that makes samples of counters.
#[derive(Debug, Clone)]
pub struct ContentionMeter {
    ticks_per_second: f64,
    earlier: Option<(Counts, Tick)>,
    /// The bytes that the donor gave the kernel to write and that no disk has written yet.
    unwritten: f64,
}

impl ContentionMeter {
    /// Makes a meter for a kernel that counts CPU time in these ticks.
    pub fn new(ticks_per_second: u64) -> Self {
        Self { ticks_per_second: ticks_per_second.max(1) as f64, earlier: None, unwritten: 0.0 }
    }

    /// Returns what happened since the last call; `None` for the first one, and where no time has passed. `link` is the
    /// bytes a second that the network link carries.
    pub fn sample(
        &mut self,
        text: &ProcText<'_>,
        own: OwnCounts,
        usable: &UsableCpus,
        link: Option<f64>,
        now: Tick,
    ) -> Option<ContentionSample> {
        let counts = Counts {
            cpu: CpuSplit::parse(text.stat, usable),
            own_ticks: parse_self_ticks(text.self_stat),
            stalls: [text.psi_cpu, text.psi_io, text.psi_memory].map(parse_stall_total),
            disks: parse_diskstats(text.diskstats),
            own_io: parse_self_io(text.self_io),
            nets: parse_net_dev(text.net_dev),
            own,
        };
        let (before, at) = self.earlier.replace((counts.clone(), now))?;
        let seconds = now.saturating_sub(at).as_secs_f64();
        (seconds > 0.0).then(|| self.difference(&before, &counts, link, seconds))
    }

    fn difference(
        &mut self,
        before: &Counts,
        now: &Counts,
        link: Option<f64>,
        seconds: f64,
    ) -> ContentionSample {
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let stall = |which: usize| {
            let (now, before) = (now.stalls[which]?, before.stalls[which]?);
            Some((rate(now, before) / 1e6).min(1.0))
        };
        let own_network = rate(now.own.network, before.own.network) * (1.0 + HEADERS);
        let network =
            growth(&now.nets, &before.nets, |a, b| rate(a.rx, b.rx).max(rate(a.tx, b.tx)));
        let others_network = (network - own_network).max(0.0);
        let mut sample = ContentionSample {
            cpu_stall: stall(0),
            disk_stall: stall(1),
            memory_stall: stall(2),
            idle_cpu: 1.0,
            own_network,
            others_network,
            link,
            moved: rate(now.own.moved, before.own.moved),
            ..ContentionSample::default()
        };
        let written = now.own.written.saturating_sub(before.own.written) as f64;
        let writing_us = now.own.writing_us.saturating_sub(before.own.writing_us);
        sample.own_disk_speed = (writing_us > 0).then(|| written / writing_us as f64 * 1e6);
        if let (Some(after), Some(earlier)) = (now.cpu, before.cpu) {
            let cores = |now: u64, before: u64| rate(now, before) / self.ticks_per_second;
            let ((user, system), (user_before, system_before)) =
                (now.own_ticks.unwrap_or_default(), before.own_ticks.unwrap_or_default());
            let own_programs = cores(user, user_before);
            sample.others_cores = (cores(after.programs, earlier.programs) - own_programs).max(0.0);
            // The kernel's work on packets is the donor's as far as the packets are.
            let packets = own_network + others_network;
            let own_packets = if packets > 0.0 { own_network / packets } else { 0.0 };
            let interrupts = cores(after.interrupts, earlier.interrupts) * own_packets;
            let interrupts = interrupts.min(own_network * MOST_FOR_PACKETS);
            sample.own_cores = own_programs + cores(system, system_before) + interrupts;
            let all = cores(after.all, earlier.all);
            if all > 0.0 {
                sample.idle_cpu = cores(after.idle, earlier.idle) / all;
            }
        }
        let read = growth(&now.disks, &before.disks, |a, b| rate(a.read, b.read));
        let wrote = growth(&now.disks, &before.disks, |a, b| rate(a.written, b.written));
        sample.disk_busy = now
            .disks
            .iter()
            .filter_map(|(name, disk)| {
                Some(rate(disk.busy_ms, before.disks.get(name)?.busy_ms) / 1000.0)
            })
            .fold(0.0, f64::max)
            .min(1.0);
        let ((own_read, own_written), (own_read_before, own_written_before)) =
            (now.own_io.unwrap_or_default(), before.own_io.unwrap_or_default());
        let own_read = rate(own_read, own_read_before).min(read);
        let own_written = self.reached_disk(rate(own_written, own_written_before), wrote, seconds);
        sample.own_disk = own_read + own_written;
        sample.others_disk = read + wrote - sample.own_disk;
        sample
    }

    /// Returns how many of the bytes a second that disks wrote were the donor's. The kernel writes seconds after it was
    /// given the bytes, so those that are due come first.
    fn reached_disk(&mut self, given: f64, wrote: f64, seconds: f64) -> f64 {
        let kept = (-seconds / UNWRITTEN.as_secs_f64()).exp();
        self.unwritten = self.unwritten * kept + given * seconds;
        let own = wrote.min(self.unwritten * (1.0 + FILE_SYSTEM) / seconds);
        self.unwritten = (self.unwritten - own * seconds / (1.0 + FILE_SYSTEM)).max(0.0);
        own
    }
}

/// Sums `figure` over the devices that were there at both times.
fn growth<T>(
    now: &BTreeMap<String, T>,
    before: &BTreeMap<String, T>,
    figure: impl Fn(&T, &T) -> f64,
) -> f64 {
    now.iter().filter_map(|(name, after)| Some(figure(after, before.get(name)?))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Tick = Duration::from_secs(1);

    /// The texts of a machine of two processors.
    struct Machine {
        stat: String,
        own_stat: String,
        own_io: String,
        diskstats: String,
        psi_io: String,
    }

    fn machine(own: u64, others: u64, disk_mib: u64, own_mib: u64, stalled_us: u64) -> Machine {
        let (busy, idle) = (own + others, 400 - own - others);
        let cpu = |name: &str| format!("{name} {busy} 0 0 {idle} 0 0 0 0 0 0\n");
        let sectors = disk_mib * 2048;
        Machine {
            stat: cpu("cpu ") + &cpu("cpu0") + "cpu1 0 0 0 400 0 0 0 0 0 0\n",
            own_stat: format!("7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 {own} 0 0 0 20 0 1 0 5 0 0"),
            own_io: format!("rchar: 1\nread_bytes: 0\nwrite_bytes: {}\n", own_mib << 20),
            diskstats: format!(" 8 0 sda 1 0 0 1 1 0 {sectors} 1 0 500 1\n"),
            psi_io: format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled_us}\n"),
        }
    }

    fn feed(meter: &mut ContentionMeter, machine: &Machine, at: Tick) -> Option<ContentionSample> {
        let text = ProcText {
            stat: &machine.stat,
            self_stat: &machine.own_stat,
            self_io: &machine.own_io,
            diskstats: &machine.diskstats,
            psi_io: &machine.psi_io,
            ..ProcText::default()
        };
        let first = UsableCpus::These(vec![0]);
        meter.sample(&text, OwnCounts::default(), &first, None, at)
    }

    #[test]
    fn own_share_is_taken_off_what_the_machine_does() {
        let mut meter = ContentionMeter::new(100);
        assert_eq!(feed(&mut meter, &machine(0, 0, 0, 0, 0), Tick::ZERO), None);
        let sample =
            feed(&mut meter, &machine(30, 20, 100, 60, 250_000), SECOND).expect("a sample");
        assert!((sample.own_cores - 0.3).abs() < 1e-9, "{sample:?}");
        assert!((sample.others_cores - 0.2).abs() < 1e-9, "{sample:?}");
        assert_eq!(sample.disk_stall, Some(0.25));
        assert_eq!(sample.cpu_stall, None, "this kernel does not tell");
        let mib = f64::from(1 << 20);
        assert!((sample.own_disk / mib - 69.0).abs() < 0.1, "with the journal: {sample:?}");
        assert!((sample.others_disk / mib - 31.0).abs() < 0.1, "{sample:?}");
    }

    #[test]
    fn bytes_written_later_by_the_kernel_are_still_the_donors_own() {
        let mut meter = ContentionMeter::new(100);
        feed(&mut meter, &machine(0, 0, 0, 0, 0), Tick::ZERO);
        let given = feed(&mut meter, &machine(0, 0, 0, 200, 0), SECOND).expect("a sample");
        assert_eq!((given.own_disk, given.others_disk), (0.0, 0.0), "in memory as yet");
        let flushed = feed(&mut meter, &machine(0, 0, 150, 200, 0), 2 * SECOND).expect("a sample");
        assert_eq!(flushed.others_disk, 0.0, "{flushed:?}");
        let job = feed(&mut meter, &machine(0, 0, 450, 200, 0), 3 * SECOND).expect("a sample");
        assert!(job.others_disk > 200e6, "{job:?}");
    }

    #[test]
    fn texts_of_nothing_and_of_nonsense_give_an_idle_machine() {
        for text in ["", "cpu x\n", "some total=-1", ") a b", "read_bytes: x"] {
            let text = ProcText {
                stat: text,
                diskstats: text,
                net_dev: text,
                psi_cpu: text,
                psi_io: text,
                psi_memory: text,
                self_stat: text,
                self_io: text,
                ..ProcText::default()
            };
            let mut meter = ContentionMeter::new(100);
            let all = UsableCpus::All;
            assert_eq!(meter.sample(&text, OwnCounts::default(), &all, None, Tick::ZERO), None);
            let sample = meter.sample(&text, OwnCounts::default(), &all, None, SECOND);
            let idle = ContentionSample { idle_cpu: 1.0, ..ContentionSample::default() };
            assert_eq!(sample, Some(idle));
        }
    }
}
