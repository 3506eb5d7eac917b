//! The machine's load, sampled each second. A sample costs some ten microseconds: the files of
//! `/proc` stay open and are read again from their start into buffers that are kept.

use crate::disk::{Disk, OldFile};
use potluck_core::clock::{SharedClock, Tick};
use potluck_core::load::{Counters, LinkSpeed, Load, ProcText};
use std::path::Path;

/// The files that a sample reads, in the order of [`ProcText`]'s fields.
const FILES: [&str; 10] = [
    "/proc/stat",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/diskstats",
    "/proc/net/dev",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
    "/proc/self/stat",
    "/proc/self/io",
];

/// The number of samples between two looks at the links' speeds, which hardly ever change.
const SPEED_EVERY: u32 = 60;
/// The most bytes of a file that are read, as a bound for a file that is not what it should be.
const MOST: usize = 4 << 20;

/// The sampler of the machine's load.
pub(crate) struct Sampler {
    clock: SharedClock,
    files: ProcFiles,
    earlier: Option<(Counters, Tick)>,
    /// The device of the lent directory, as its major and minor number.
    lent_device: Option<(u32, u32)>,
    link: LinkSpeed,
    /// The bytes a second that the driver of the fastest link tells.
    told: u64,
    told_age: u32,
}

/// An open file of `/proc`; its text is empty where the machine does not have the file.
struct ProcFile {
    file: Option<Box<dyn OldFile>>,
    buffer: Vec<u8>,
    filled: usize,
}

impl ProcFile {
    /// Opens the file, if the machine has it.
    fn open(disk: &dyn Disk, path: &str) -> Self {
        Self { file: disk.open(Path::new(path)).ok(), buffer: Vec::new(), filled: 0 }
    }

    /// Reads the file anew.
    fn refresh(&mut self) {
        self.filled = 0;
        let Some(file) = &self.file else { return };
        while self.filled < MOST {
            if self.filled == self.buffer.len() {
                self.buffer.resize((2 * self.filled).max(4096), 0);
            }
            match file.read_at(&mut self.buffer[self.filled..], self.filled as u64) {
                Ok(0) | Err(_) => break,
                Ok(n) => self.filled += n,
            }
        }
    }

    /// Returns what was read last.
    fn text(&self) -> &str {
        std::str::from_utf8(&self.buffer[..self.filled]).unwrap_or("")
    }
}

/// The open files of a sample, in the order of [`ProcText`]'s fields.
pub(crate) struct ProcFiles([ProcFile; FILES.len()]);

impl ProcFiles {
    /// Opens the files through `disk`.
    pub fn open(disk: &dyn Disk) -> Self {
        Self(FILES.map(|path| ProcFile::open(disk, path)))
    }

    /// Reads all files anew, and returns their texts.
    pub fn read(&mut self) -> ProcText<'_> {
        self.0.iter_mut().for_each(ProcFile::refresh);
        let [
            stat,
            loadavg,
            meminfo,
            diskstats,
            net_dev,
            psi_cpu,
            psi_io,
            psi_memory,
            self_stat,
            self_io,
        ] = self.0.each_ref().map(ProcFile::text);
        ProcText {
            stat,
            loadavg,
            meminfo,
            diskstats,
            net_dev,
            psi_cpu,
            psi_io,
            psi_memory,
            self_stat,
            self_io,
            lent_device: None,
        }
    }
}

impl Sampler {
    /// Opens the files through `disk`, so that a simulated donor sees a simulated machine, or none. The disk that is
    /// sampled is that of the directory `lent`.
    pub fn new(disk: &dyn Disk, clock: SharedClock, lent: &Path) -> Self {
        let files = ProcFiles::open(disk);
        let (link, lent_device) = (LinkSpeed::default(), disk.device(lent));
        Self { clock, files, earlier: None, lent_device, link, told: 0, told_age: SPEED_EVERY }
    }

    /// Returns the load since the last sample; `served` and `stored` are the bytes that the donor has served and stored
    /// so far.
    pub fn sample(&mut self, disk: &dyn Disk, served: u64, stored: u64) -> Load {
        let text = ProcText { lent_device: self.lent_device, ..self.files.read() };
        let now = self.clock.now();
        let counters = Counters { served, stored, ..text.counters() };
        self.told_age += 1;
        if self.told_age >= SPEED_EVERY {
            self.told = fastest_link(disk, counters.nets.keys());
            self.told_age = 0;
        }
        let load = match &self.earlier {
            Some((earlier, at)) => text.load(&counters, earlier, now.saturating_sub(*at)),
            None => text.load(&counters, &counters, std::time::Duration::ZERO),
        };
        self.earlier = Some((counters, now));
        Load { net_link_bytes_s: self.link.after(&load, self.told), ..load }
    }
}

/// Returns the speed in bytes a second of the fastest of these links that is up; 0 when no link tells its speed, as virtual links
/// do not.
pub(crate) fn fastest_link<'n>(disk: &dyn Disk, links: impl Iterator<Item = &'n String>) -> u64 {
    let megabits = |name: &String| -> Option<u64> {
        let file = disk.open(Path::new(&format!("/sys/class/net/{name}/speed"))).ok()?;
        let mut text = [0; 32];
        let n = file.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..n]).ok()?.trim().parse().ok() // "-1" when the link is down
    };
    links.filter_map(megabits).max().unwrap_or(0) * 125_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SystemDisk;
    use potluck_core::clock::SystemClock;
    use std::sync::Arc;

    #[test]
    fn a_sample_of_this_machine_makes_sense() {
        let clock: SharedClock = Arc::new(SystemClock::default());
        let mut sampler = Sampler::new(&SystemDisk, clock.clone(), &std::env::temp_dir());
        let first = sampler.sample(&SystemDisk, 0, 0);
        assert!(first.memory_total > 0 && first.memory_free <= first.memory_total);
        assert_eq!(first.served_bytes_s, 0, "no rate without an interval");
        let started = clock.now();
        let rounds = 200;
        for _ in 0..rounds {
            sampler.sample(&SystemDisk, 0, 0);
        }
        let each = (clock.now() - started) / rounds;
        println!("a sample takes {each:?}");
        assert!(each.as_millis() < 5, "{each:?}");
        let load = sampler.sample(&SystemDisk, 1 << 40, 0);
        assert!(load.served_bytes_s > 0 && (0.0..=1.0).contains(&load.cpu_busy));
    }
}
