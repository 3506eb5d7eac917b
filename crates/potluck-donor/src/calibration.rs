//! Measures what serving costs jobs of this machine's owner: a job runs for a while alone, and for a while as this machine serves
//! at a given rate.
//!
//! Served is as a donor serves while it yields: bytes of the lent disk leave by `sendfile` in slices, from a thread that runs when
//! nothing else wants a processor. The reader is on this machine, too, and in the same class, so that it takes no
//! processor from the owner's job, as a reader elsewhere would take none. What another machine's packets cost a network
//! card is not in it; the governor sees a full link by itself.

use crate::disk::SystemDisk;
use crate::idle_thread::yield_for_good;
use crate::load::{ProcFiles, fastest_link};
use potluck_core::clock::{Clock, SystemClock, Tick};
use potluck_core::fair_turns::SLICE;
use potluck_core::governor::OwnerResource;
use potluck_core::impact::{MeasuredPair, PlannedPair};
use potluck_core::load::parse_net_dev;
use rustix::fs::Advice;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The bytes of each of the two files that are read: the one by the owner's job, the other to be served.
pub const FILE: u64 = 128 << 20;
/// The bytes of a read of the owner's disk job, and of a page that its network job fetches.
const READ: usize = 1 << 20;
const PAGE: usize = 256 << 10;
/// The bytes that the owner's memory job copies at a time: more than processors keep close.
const COPIED: usize = 64 << 20;
/// The bytes that the owner's processor job hashes at a time.
const HASHED: usize = 64 << 10;
/// The bytes before the place of a reader that stay in memory: sockets hold them until they are received.
const IN_FLIGHT: u64 = 16 << 20;
/// The time that may be made up for when service is late.
const LATE: Duration = Duration::from_millis(50);
/// The bytes a second that a link is taken to carry where it does not tell: a gigabit.
const UNKNOWN_LINK: f64 = 125e6;

/// Returns the most bytes a second that this machine can be asked for.
pub fn full_rate() -> f64 {
    let mut files = ProcFiles::open(&SystemDisk);
    let links = parse_net_dev(files.read().net_dev);
    match fastest_link(&SystemDisk, links.keys()) {
        0 => UNKNOWN_LINK,
        told => told as f64,
    }
}

/// The place where it is measured: two files of the lent disk, and a connection of this machine with itself.
pub struct ImpactBed {
    clock: SystemClock,
    job: File,
    served: File,
}

/// What one run showed.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// The steps a second of the owner's job.
    progress: f64,
    /// The bytes a second that were served.
    served: f64,
}

impl ImpactBed {
    /// Fills two files, which should have no name any more, so that nothing is left behind.
    pub fn new(job: File, served: File) -> io::Result<Self> {
        let piece: Vec<u8> = {
            let mut bytes = vec![0; READ];
            // Some disks and file systems store no zeros, and compress what repeats.
            blake3::Hasher::new().finalize_xof().fill(&mut bytes);
            bytes
        };
        for file in [&job, &served] {
            for at in (0..FILE).step_by(READ) {
                file.write_all_at(&piece, at)?;
            }
            file.sync_data()?; // only what is on the disk is forgotten when asked
        }
        Ok(Self { clock: SystemClock::default(), job, served })
    }

    /// Makes the two runs of a pair, each for `time`.
    pub fn measure(&self, planned: PlannedPair, time: Duration) -> io::Result<MeasuredPair> {
        let alone = || self.run(planned.resource, None, time);
        let with = || self.run(planned.resource, Some(planned.rate), time);
        let (alone, with) = match planned.service_first {
            true => {
                let with = with()?;
                (alone()?, with)
            }
            false => (alone()?, with()?),
        };
        Ok(MeasuredPair {
            planned,
            alone: alone.progress,
            with_service: with.progress,
            served: with.served,
        })
    }

    fn run(&self, resource: OwnerResource, rate: Option<f64>, time: Duration) -> io::Result<Run> {
        let stop = AtomicBool::new(false);
        let received = AtomicU64::new(0);
        let (sends, receives) = loop_back()?;
        thread::scope(|scope| {
            if let Some(rate) = rate {
                let (socket, stop) = (&sends, &stop);
                scope.spawn(move || {
                    yield_for_good();
                    self.serve(socket, rate, stop);
                });
                scope.spawn(|| {
                    yield_for_good();
                    receive(&receives, &received);
                });
            }
            let began = self.clock.now();
            let steps = self.steps(resource, began + time);
            let seconds = self.clock.now().saturating_sub(began).as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            let served = received.load(Ordering::Relaxed) as f64 / seconds;
            // Either thread may wait for the other one.
            let _ = (sends.shutdown(Shutdown::Both), receives.shutdown(Shutdown::Both));
            Ok(Run { progress: steps? as f64 / seconds, served })
        })
    }

    /// Runs a job of the owner until a time, and returns how far it came.
    fn steps(&self, resource: OwnerResource, until: Tick) -> io::Result<u64> {
        let repeat = |step: &mut dyn FnMut() -> io::Result<()>| {
            let mut steps = 0;
            while self.clock.now() < until {
                step()?;
                steps += 1;
            }
            Ok(steps)
        };
        match resource {
            OwnerResource::Cpu => thread::scope(|scope| {
                // The job uses all processors, for an owner who leaves one free misses nothing.
                let cpus = thread::available_parallelism().map_or(1, usize::from);
                let hash = || {
                    let bytes = vec![7; HASHED];
                    repeat(&mut || {
                        std::hint::black_box(blake3::hash(&bytes));
                        Ok(())
                    })
                };
                let jobs: Vec<_> = (0..cpus).map(|_| scope.spawn(hash)).collect();
                jobs.into_iter().map(|job| job.join().expect("it does not panic")).sum()
            }),
            OwnerResource::Memory => {
                let (from, mut to) = (vec![7_u8; COPIED], vec![0; COPIED]);
                let mut at = 0;
                repeat(&mut || {
                    to[at..at + READ].copy_from_slice(&from[at..at + READ]);
                    std::hint::black_box(&mut to);
                    at = (at + READ) % COPIED;
                    Ok(())
                })
            }
            OwnerResource::Disk => {
                let mut piece = vec![0; READ];
                let mut at = 0;
                repeat(&mut || {
                    self.job.read_exact_at(&mut piece, at)?;
                    forget(&self.job, at, READ as u64);
                    at = (at + READ as u64) % FILE;
                    Ok(())
                })
            }
            OwnerResource::Network => {
                let (mut server, mut browser) = loop_back()?;
                thread::scope(|scope| {
                    scope.spawn(move || {
                        let page = vec![7; PAGE];
                        let mut asked = [0];
                        while server.read_exact(&mut asked).is_ok()
                            && server.write_all(&page).is_ok()
                        {}
                    });
                    let mut page = vec![0; PAGE];
                    let fetched = repeat(&mut || {
                        browser.write_all(&[1])?;
                        browser.read_exact(&mut page)
                    });
                    let _ = browser.shutdown(Shutdown::Both); // the server ends with it
                    fetched
                })
            }
        }
    }

    /// Serves `rate` bytes a second until it is to stop, or nobody reads any more.
    fn serve(&self, socket: &TcpStream, rate: f64, stop: &AtomicBool) {
        let slice = Duration::from_secs_f64(f64::from(SLICE) / rate.max(1.0));
        let (mut at, mut next) = (0, self.clock.now());
        while !stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            if next > now {
                thread::park_timeout((next - now).min(LATE));
                continue;
            }
            next = next.max(now.saturating_sub(LATE)) + slice;
            let mut offset = at;
            let end = at + u64::from(SLICE);
            while offset < end {
                let count = (end - offset) as usize;
                match rustix::fs::sendfile(socket, &self.served, Some(&mut offset), count) {
                    Ok(1..) => {}
                    _ => return,
                }
            }
            at = end % FILE;
            forget(&self.served, (at + FILE - IN_FLIGHT) % FILE, SLICE.into());
        }
    }
}

/// Counts what arrives until the connection ends.
fn receive(mut socket: &TcpStream, received: &AtomicU64) {
    let mut piece = vec![0; SLICE as usize];
    while let Ok(count @ 1..) = socket.read(&mut piece) {
        received.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Has the kernel forget a part of a file that it keeps in memory, so that the next reading of it reaches the disk.
fn forget(file: &File, at: u64, len: u64) {
    // Where the system has no such call the disk's part of the cost is not seen.
    let _ = rustix::fs::fadvise(file, at, NonZeroU64::new(len), Advice::DontNeed);
}

/// Makes a connection of this machine with itself.
#[allow(clippy::disallowed_methods)] // it is this machine that is measured, and never a simulated one
fn loop_back() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = TcpStream::connect(listener.local_addr()?)?;
    let (from, _) = listener.accept()?;
    for socket in [&from, &to] {
        socket.set_nodelay(true)?;
    }
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::impact::MEASURED;

    #[test]
    fn each_job_gets_on_alone_and_with_service() {
        let file = || tempfile::tempfile().expect("a file");
        let bed = ImpactBed::new(file(), file()).expect("room");
        for resource in MEASURED {
            let planned = PlannedPair { resource, rate: 20e6, service_first: true };
            let pair = bed.measure(planned, Duration::from_millis(200)).expect("measured");
            assert!(pair.alone > 0.0 && pair.with_service > 0.0, "{pair:?}");
            assert!(pair.served <= 40e6, "no faster than asked, and what is made up for: {pair:?}");
        }
        assert!(full_rate() > 0.0);
    }
}
