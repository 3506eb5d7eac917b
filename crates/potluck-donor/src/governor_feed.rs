//! Feeds the governor with what the owner's machine does, and lets its budget be the throttle's.

use crate::disk::Disk;
use crate::load::{ProcFiles, fastest_link};
use crate::throttle::Throttle;
use potluck_core::clock::{Clock, Tick};
use potluck_core::contention::{ContentionMeter, OwnCounts, UsableCpus};
use potluck_core::governor::{ContentionSample, Governor, GovernorTerms};
use potluck_core::load::parse_net_dev;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time from one sample to the next while the donor serves, or yields: two weak signs are seen within a second.
const SERVING: Duration = Duration::from_millis(250);
/// The time from one sample to the next otherwise.
const IDLE: Duration = Duration::from_secs(1);
/// The time between two looks at what hardly ever changes: the link's speed, and the processors that may be used.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// The bytes that all donors of this process sent and received: the kernel counts packets of the machine, and a process
/// that lends several directories must not take its own for the owner's.
static PROCESS_NETWORK: AtomicU64 = AtomicU64::new(0);

/// The donor's own writes to its disk, by which the governor sees its progress.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites {
    bytes: AtomicU64,
    micros: AtomicU64,
}

impl OwnWrites {
    /// Notes that so many bytes were written in this time.
    pub fn wrote(&self, bytes: usize, took: Duration) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }
}

/// The source of the governor's samples.
struct Sampler {
    files: ProcFiles,
    meter: ContentionMeter,
    usable: UsableCpus,
    link: Option<f64>,
    looked: Option<Tick>,
    /// The bytes that this donor had moved at the last sample.
    moved: u64,
}

impl Sampler {
    fn new(disk: &dyn Disk) -> Self {
        Self {
            files: ProcFiles::open(disk),
            meter: ContentionMeter::new(rustix::param::clock_ticks_per_second()),
            usable: UsableCpus::All,
            link: None,
            looked: None,
            moved: 0,
        }
    }

    fn sample(
        &mut self,
        moved: u64,
        own_writes: &OwnWrites,
        now: Tick,
        disk: &dyn Disk,
    ) -> Option<ContentionSample> {
        let text = self.files.read();
        if self.looked.is_none_or(|at| now.saturating_sub(at) >= LOOK_AGAIN) {
            self.looked = Some(now);
            let links = parse_net_dev(text.net_dev);
            let link = fastest_link(disk, links.keys());
            self.link = (link > 0).then_some(link as f64);
            self.usable = usable_cpus();
        }
        let since = moved.saturating_sub(std::mem::replace(&mut self.moved, moved));
        let network = PROCESS_NETWORK.fetch_add(since, Ordering::Relaxed) + since;
        let written = own_writes.bytes.load(Ordering::Relaxed);
        let writing_us = own_writes.micros.load(Ordering::Relaxed);
        let own = OwnCounts { moved, network, written, writing_us };
        self.meter.sample(&text, own, &self.usable, self.link, now)
    }
}

fn usable_cpus() -> UsableCpus {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return UsableCpus::All };
    let most = rustix::thread::CpuSet::MAX_CPU;
    UsableCpus::These((0..most).filter(|cpu| set.is_set(*cpu)).collect())
}

/// What the governor of one donor needs to know beside the machine.
#[derive(Debug, Default)]
pub(crate) struct GovernorFeed {
    terms: Mutex<GovernorTerms>,
    /// The writes to the disk.
    pub own_writes: OwnWrites,
}

impl GovernorFeed {
    /// Returns whether the donor yields to its owner's programs at all.
    pub fn yields(&self) -> bool {
        self.terms.lock().expect("no holder panics").slowdown.is_some()
    }

    /// Returns the bytes a second that the owner's programs bear as the owner allows, as far as it was measured.
    pub fn borne(&self) -> Option<u64> {
        let GovernorTerms { floor, ceilings, .. } = *self.terms.lock().expect("no holder panics");
        ceilings.least().map(|rate| (rate as u64).max(floor))
    }

    /// Lets the governor go by these terms from its next sample on.
    pub fn set_terms(&self, terms: GovernorTerms) {
        *self.terms.lock().expect("no holder panics") = terms;
    }

    /// Samples the machine and sets the throttle's budget until the future is dropped. A sample takes some tens of
    /// microseconds, so it is taken on the spot.
    pub async fn govern_for_ever(&self, throttle: &Throttle, clock: &dyn Clock, disk: &dyn Disk) {
        let mut sampler = Sampler::new(disk);
        let mut governor = Governor::new(GovernorTerms::default());
        let mut pause = IDLE;
        loop {
            tokio::time::sleep(pause).await;
            let now = clock.now();
            let Some(sample) = sampler.sample(throttle.moved_so_far(), &self.own_writes, now, disk)
            else {
                continue;
            };
            governor.set_terms(*self.terms.lock().expect("no holder panics"));
            let before = throttle.in_force().yielding;
            let yielding = governor.sample(&sample, now);
            throttle.set_yielding(yielding);
            match (before, yielding) {
                (None, Some(yielding)) => tracing::debug!("{yielding}; {sample:?}"),
                (Some(_), None) => tracing::debug!("yields no more"),
                _ => {}
            }
            let is_serving = sample.moved > 0.0 || yielding.is_some();
            pause = if is_serving { SERVING } else { IDLE };
        }
    }
}
