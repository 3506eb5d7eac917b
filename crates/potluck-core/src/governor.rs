//! The governor: how much of its owner's machine a donor may use, from what the owner does with it at this moment.
//!
//! It is fed a [`ContentionSample`] several times a second. A resource is contended where programs of others use it *and* tasks
//! wait for it; neither is enough, for the donor's own threads wait, too, and an owner who uses one of many cores misses
//! nothing. While a resource is contended the donor gets the owner's threshold of it, as a rate of bytes that follows
//! from what a byte costs here. Its own progress is a witness beside the kernel's word (Douceur and Bolosky, SOSP 1999),
//! and the only one where the kernel does not tell.
//!
//! A strong sign counts at once and a weak one when it is seen twice in a row, so the donor has backed off within a
//! second, and noise moves nothing. What was taken back is given again by doubling, and wholly after [`RECOVERY`].

use crate::clock::Tick;
use crate::impact::RateCeilings;
use crate::size::format_size;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The default share of its speed that an owner's program may lose.
pub const DEFAULT_SLOWDOWN: f64 = 0.05;
/// The default floor in bytes a second: it keeps chunks readable that no other donor has.
pub const DEFAULT_FLOOR: u64 = 1 << 20;

/// The time without contention after which there is no budget any more.
const RECOVERY: Duration = Duration::from_secs(4);
/// The time without contention after which the budget begins to grow: a job pauses between two steps.
const SETTLING: Duration = Duration::from_millis(750);
/// The time in which a growing budget doubles.
const DOUBLING: Duration = Duration::from_millis(500);

/// The cores that programs of others must use for the processors to count as theirs. Desktops use some all the time.
const OTHERS_CORES: f64 = 0.2;
/// The bytes a second of others from which a disk counts as theirs: a log that is written now and then has fewer.
const OTHERS_DISK: f64 = 512e3;
/// The share of the disk's bytes that counts as the file system's own beside what Potluck moves: journals, directories.
const FILE_SYSTEM: f64 = 0.15;
/// The share of a link from which it is full, and the share of it that must be the owner's.
const LINK_FULL: f64 = 0.85;
const LINK_OTHERS: f64 = 0.1;

/// The stalls of a resource, as multiples of the owner's threshold, at which it is contended and at which it is calm again.
const CONTENDED: f64 = 2.0;
const CALM: f64 = 1.0;
/// The least stalls that count, however low the threshold is: an idle machine has as many.
const LEAST_STALL: f64 = 0.05;
/// The stalls of a resource that count when they are seen once.
const STRONG_STALL: f64 = 0.25;
/// The share of the disk speed that the donor has on a quiet machine, below which somebody else uses the disk.
const SLOW_PROGRESS: f64 = 0.5;
/// The time in which the donor's word on its speed on a quiet machine falls to 1/e, so that an old disk is not compared with its youth.
const PROGRESS_MEMORY: Duration = Duration::from_mins(30);

/// The bytes a second above which samples tell what a byte costs.
const TELLING_RATE: f64 = 1e6;
/// The share of a sample in the estimate of what a byte costs.
const NEW_COST: f64 = 0.3;
/// The cost of a byte where no sample has told it: seconds of a core, and of a disk.
const UNKNOWN_CPU_COST: f64 = 1.0 / 1e9;
const UNKNOWN_DISK_COST: f64 = 1.0 / 100e6;
/// The bytes a second that a donor is taken to be able to serve, if it did not serve more lately: a gigabit link.
const FULL_RATE: f64 = 125e6;
/// The time in which the best rate lately falls to 1/e.
const PEAK_MEMORY: Duration = Duration::from_mins(1);

/// The terms that the owner sets for the governor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GovernorTerms {
    /// The share of its speed that an owner's program may lose, 0 to 1; `None` turns the governor off.
    pub slowdown: Option<f64>,
    /// The bytes a second that are served in any case.
    pub floor: u64,
    /// The most bytes a second while others want a resource, as far as it was measured what service costs this machine.
    pub ceilings: RateCeilings,
}

/// The share of its speed that an owner's program may lose, as people write it: `5%`, or `off` for a donor that never
/// yields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowdown(pub Option<f64>);

/// The error of a text that is no [`Slowdown`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("“{0}” is neither a share of an owner's speed, such as 5%, nor off")]
pub struct BadSlowdown(String);

impl FromStr for Slowdown {
    type Err = BadSlowdown;

    fn from_str(text: &str) -> Result<Self, BadSlowdown> {
        if text == "off" {
            return Ok(Self(None));
        }
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        match percent.filter(|percent| (0.0..=100.0).contains(percent)) {
            Some(percent) => Ok(Self(Some(percent / 100.0))),
            None => Err(BadSlowdown(text.to_owned())),
        }
    }
}

impl Default for GovernorTerms {
    fn default() -> Self {
        Self {
            slowdown: Some(DEFAULT_SLOWDOWN),
            floor: DEFAULT_FLOOR,
            ceilings: RateCeilings::default(),
        }
    }
}

/// A resource of the owner's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnerResource {
    /// The owner's programs want processors.
    Cpu,
    /// The owner's programs want the disk.
    Disk,
    /// The owner's programs want memory.
    Memory,
    /// The owner's programs want the network link.
    Network,
}

impl fmt::Display for OwnerResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Network => "network",
        })
    }
}

/// What the owner's machine did since the sample before.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ContentionSample {
    /// The share of the time in which some task waited for a CPU, 0 to 1; `None` where the kernel does not tell.
    pub cpu_stall: Option<f64>,
    /// The share of the time in which some task waited for a disk; `None` where the kernel does not tell.
    pub disk_stall: Option<f64>,
    /// The share of the time in which some task waited for memory; `None` where the kernel does not tell.
    pub memory_stall: Option<f64>,
    /// The cores that programs of others used.
    pub others_cores: f64,
    /// The cores that the donor used, with the kernel's work on its packets.
    pub own_cores: f64,
    /// The share of the donor's CPUs that was idle.
    pub idle_cpu: f64,
    /// The bytes a second that others read from and wrote to disks.
    pub others_disk: f64,
    /// The bytes a second that the donor read from and wrote to disks.
    pub own_disk: f64,
    /// The share of the time in which the busiest disk worked.
    pub disk_busy: f64,
    /// The bytes a second of the donor's own writes while they were under way; `None` where it wrote nothing.
    pub own_disk_speed: Option<f64>,
    /// The bytes a second of others on the network, in the direction that had more.
    pub others_network: f64,
    /// The bytes a second of the donor on the network.
    pub own_network: f64,
    /// The bytes a second that the network link carries; `None` where it does not tell.
    pub link: Option<f64>,
    /// The bytes a second that the donor moved for others, in both directions together.
    pub moved: f64,
}

/// Why the donor yields, and how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yielding {
    /// The resource that others want.
    pub to: OwnerResource,
    /// The percentage of the resource that others use.
    pub others_percent: u8,
    /// The bytes a second that the donor serves at most meanwhile.
    pub budget: u64,
}

impl fmt::Display for Yielding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, others_percent, budget } = self;
        write!(
            f,
            "yielding: {to} busy by others {others_percent} %, serving {}/s",
            format_size(*budget)
        )
    }
}

/// A resource that is contended in a sample.
#[derive(Debug, Clone, Copy)]
struct Contended {
    resource: OwnerResource,
    others_percent: u8,
    /// True if the sign counts by itself.
    is_strong: bool,
    /// The bytes a second that take no more of the resource than the owner allows.
    fair: f64,
}

/// The governor of one donor.
#[derive(Debug, Clone)]
pub struct Governor {
    terms: GovernorTerms,
    /// The budget in bytes a second, while there is one, and why.
    yielding: Option<(f64, Contended)>,
    /// True if the last sample showed contention.
    was_contended: bool,
    last_contended: Tick,
    sampled: Option<Tick>,
    /// The seconds of a core, and of a disk, that a byte costs.
    cpu_cost: f64,
    disk_cost: f64,
    /// The disk speed of the donor on a quiet machine, in bytes a second; 0 until it wrote something.
    quiet_disk_speed: f64,
    /// The best rate lately, in bytes a second.
    peak: f64,
}

impl Governor {
    /// Makes the governor of a donor that has served nothing yet.
    pub fn new(terms: GovernorTerms) -> Self {
        Self {
            terms,
            yielding: None,
            was_contended: false,
            last_contended: Tick::ZERO,
            sampled: None,
            cpu_cost: UNKNOWN_CPU_COST,
            disk_cost: UNKNOWN_DISK_COST,
            quiet_disk_speed: 0.0,
            peak: 0.0,
        }
    }

    /// Goes by these terms from the next sample on.
    pub fn set_terms(&mut self, terms: GovernorTerms) {
        self.terms = terms;
    }

    /// Returns why the donor yields, and its budget; `None` while it need not.
    pub fn yielding(&self) -> Option<Yielding> {
        let (budget, Contended { resource, others_percent, .. }) = self.yielding?;
        Some(Yielding { to: resource, others_percent, budget: budget as u64 })
    }

    /// Takes the sample of this moment, and decides anew.
    pub fn sample(&mut self, sample: &ContentionSample, now: Tick) -> Option<Yielding> {
        let since = self.sampled.replace(now).map_or(Duration::ZERO, |at| now.saturating_sub(at));
        let Some(slowdown) = self.terms.slowdown else {
            self.yielding = None;
            return None;
        };
        self.learn(sample, since);
        let contended = self.contended(sample, slowdown);
        let was_contended = std::mem::replace(&mut self.was_contended, contended.is_some());
        match contended {
            Some(sign) if sign.is_strong || was_contended || self.yielding.is_some() => {
                self.last_contended = now;
                self.back_off(sign);
            }
            Some(_) => {}
            None => self.recover(since, now),
        }
        self.yielding()
    }

    fn back_off(&mut self, sign: Contended) {
        let budget = sign.fair.max(self.terms.floor as f64);
        // A budget that nobody feels would cost slices, and send readers elsewhere for nothing.
        self.yielding = (budget < self.full_rate()).then_some((budget, sign));
    }

    fn full_rate(&self) -> f64 {
        self.peak.max(FULL_RATE)
    }

    fn recover(&mut self, since: Duration, now: Tick) {
        let full_rate = self.full_rate();
        let Some((budget, _)) = &mut self.yielding else { return };
        let calm = now.saturating_sub(self.last_contended);
        if calm >= RECOVERY {
            self.yielding = None;
        } else if calm >= SETTLING {
            // A floor of 0 leaves nothing to double.
            let doublings = since.as_secs_f64() / DOUBLING.as_secs_f64();
            *budget = budget.max(TELLING_RATE) * 2_f64.powf(doublings);
            if *budget >= full_rate {
                self.yielding = None;
            }
        }
    }

    /// Learns what a byte costs, and how fast the donor is on a quiet machine.
    fn learn(&mut self, sample: &ContentionSample, since: Duration) {
        let fading = |memory: Duration| (-since.as_secs_f64() / memory.as_secs_f64()).exp();
        self.peak = (self.peak * fading(PEAK_MEMORY)).max(sample.moved);
        if let Some(speed) = sample.own_disk_speed {
            self.quiet_disk_speed = (self.quiet_disk_speed * fading(PROGRESS_MEMORY)).max(speed);
        }
        if sample.moved < TELLING_RATE {
            return;
        }
        // While the donor yields, what it costs at rest is shared by few bytes, so that a byte seems to cost more the less is
        // served. Such a sample may show that a byte costs less, and never that it costs more.
        let may_rise = self.yielding.is_none();
        let mix = |old: &mut f64, new: f64| {
            let new = if may_rise { new } else { new.min(*old) };
            *old += NEW_COST * (new - *old);
        };
        mix(&mut self.cpu_cost, sample.own_cores / sample.moved);
        // The disk's time is shared out by bytes. Bytes that come from memory cost it nothing.
        let all = sample.own_disk + sample.others_disk;
        let own_time = if all > 0.0 { sample.disk_busy * sample.own_disk / all } else { 0.0 };
        mix(&mut self.disk_cost, own_time / sample.moved);
    }

    /// Returns the contended resource of which the least is left to the donor.
    fn contended(&self, sample: &ContentionSample, slowdown: f64) -> Option<Contended> {
        let factor = if self.yielding.is_some() { CALM } else { CONTENDED };
        let least = (factor * slowdown).max(LEAST_STALL);
        let sign = |resource, stall: f64, others: f64, fair: f64| {
            let others_percent = (others.clamp(0.0, 1.0) * 100.0).round() as u8;
            let is_strong = stall >= STRONG_STALL;
            let fair = fair.min(self.terms.ceilings.of(resource).unwrap_or(f64::INFINITY));
            (stall >= least).then_some(Contended { resource, others_percent, is_strong, fair })
        };
        let share_of = |cost: f64| if cost > 0.0 { slowdown / cost } else { f64::INFINITY };
        let signs = [
            (sample.others_cores >= OTHERS_CORES)
                .then(|| {
                    // Where the kernel does not tell, somebody waits once all processors are in use.
                    let all_used = if sample.idle_cpu < LEAST_STALL { 1.0 } else { 0.0 };
                    let stall = sample.cpu_stall.unwrap_or(all_used);
                    sign(OwnerResource::Cpu, stall, sample.others_cores, share_of(self.cpu_cost))
                })
                .flatten(),
            (sample.others_disk >= OTHERS_DISK + FILE_SYSTEM * sample.own_disk)
                .then(|| {
                    let stall = sample.disk_stall.unwrap_or(0.0).max(self.lost_progress(sample));
                    let others = sample.others_disk / (sample.others_disk + sample.own_disk);
                    let busy = sample.disk_busy.max(stall.min(1.0)) * others;
                    sign(OwnerResource::Disk, stall, busy, share_of(self.disk_cost))
                })
                .flatten(),
            sample.memory_stall.and_then(|stall| {
                // What a byte costs others by the pages that it takes is not known, so the rate is halved as often as need be.
                let now =
                    self.yielding.map_or(sample.moved, |(budget, _)| budget.min(sample.moved));
                sign(OwnerResource::Memory, stall, stall, now / 2.0)
            }),
            sample.link.and_then(|link| {
                let is_full = sample.others_network + sample.own_network >= LINK_FULL * link;
                let is_theirs = sample.others_network >= LINK_OTHERS * link;
                // Transport protocols share a full link evenly, so the owner's share grows into what is left free.
                let fair = (LINK_FULL * link - 2.0 * sample.others_network).max(slowdown * link);
                let stall = if is_full && is_theirs { 1.0 } else { 0.0 };
                sign(OwnerResource::Network, stall, sample.others_network / link, fair)
            }),
        ];
        signs.into_iter().flatten().min_by(|a, b| a.fair.total_cmp(&b.fair))
    }

    /// Returns the share of its disk speed that the donor lost to others; 0 while it has most of it.
    fn lost_progress(&self, sample: &ContentionSample) -> f64 {
        let Some(speed) = sample.own_disk_speed.filter(|_| self.quiet_disk_speed > 0.0) else {
            return 0.0;
        };
        let progress = speed / self.quiet_disk_speed;
        if progress < SLOW_PROGRESS { 1.0 - progress } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;
    const STEP: Duration = Duration::from_millis(250);

    /// Returns a machine whose owner is away while the donor serves 110 MB/s from its disk: its own threads wait for the disk, and
    /// for each other.
    fn full_service() -> ContentionSample {
        ContentionSample {
            cpu_stall: Some(0.3),
            disk_stall: Some(0.6),
            memory_stall: Some(0.0),
            others_cores: 0.05,
            own_cores: 0.3,
            idle_cpu: 0.5,
            others_disk: 0.1 * MB,
            own_disk: 110.0 * MB,
            disk_busy: 0.8,
            own_network: 112.0 * MB,
            link: Some(125.0 * MB),
            moved: 110.0 * MB,
            ..ContentionSample::default()
        }
    }

    /// Returns the same machine while its owner reads the disk, too.
    fn disk_job(moved: f64) -> ContentionSample {
        let own = moved.min(50.0 * MB);
        ContentionSample {
            disk_stall: Some(0.9),
            others_disk: 60.0 * MB,
            own_disk: own,
            disk_busy: 1.0,
            own_network: own,
            moved: own,
            ..full_service()
        }
    }

    struct Machine {
        governor: Governor,
        now: Tick,
    }

    impl Machine {
        fn new(terms: GovernorTerms) -> Self {
            Self { governor: Governor::new(terms), now: Tick::ZERO }
        }

        fn step(&mut self, sample: ContentionSample) -> Option<Yielding> {
            self.now += STEP;
            self.governor.sample(&sample, self.now)
        }

        /// Runs at full service until costs are known.
        fn at_full_service() -> Self {
            let mut machine = Self::new(GovernorTerms::default());
            for _ in 0..40 {
                assert_eq!(machine.step(full_service()), None);
            }
            machine
        }
    }

    #[test]
    fn idle_owner_at_full_service_means_no_budget() {
        let mut machine = Machine::at_full_service();
        for _ in 0..4000 {
            assert_eq!(machine.step(full_service()), None, "own load is not the owner's");
        }
    }

    #[test]
    fn owners_disk_job_is_yielded_to_within_one_sample() {
        let mut machine = Machine::at_full_service();
        let yielding = machine.step(disk_job(110.0 * MB)).expect("a strong sign");
        assert_eq!(yielding.to, OwnerResource::Disk);
        // 0.8 s of the disk for 110 MB, so a twentieth of it is some 7 MB/s.
        assert!((3e6..10e6).contains(&(yielding.budget as f64)), "{yielding}");
        for _ in 0..100 {
            let yielding = machine.step(disk_job(6.0 * MB)).expect("while the job runs");
            assert!((2e6..12e6).contains(&(yielding.budget as f64)), "{yielding}");
        }
    }

    #[test]
    fn budget_is_lifted_within_five_seconds_of_the_jobs_end() {
        let mut machine = Machine::at_full_service();
        for _ in 0..40 {
            machine.step(disk_job(6.0 * MB));
        }
        let ended = machine.now;
        let mut rates = Vec::new();
        while let Some(yielding) = machine.step(ContentionSample {
            moved: rates.last().copied().unwrap_or(6.0 * MB),
            own_disk: 6.0 * MB,
            disk_busy: 0.05,
            ..full_service()
        }) {
            rates.push(yielding.budget as f64);
            assert!(rates.is_sorted(), "{rates:?}");
            assert!(machine.now - ended < Duration::from_secs(5), "{rates:?}");
        }
    }

    #[test]
    fn noise_on_an_idle_machine_moves_nothing() {
        let mut machine = Machine::at_full_service();
        let mut noise = 1_u64;
        for _ in 0..10_000 {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let part = (noise >> 33) as f64 / (1_u64 << 31) as f64;
            let blip = ContentionSample {
                cpu_stall: Some(0.6 * part),
                disk_stall: Some(part),
                others_cores: 0.18 * part,
                others_disk: 5.0 * MB * part * part,
                ..full_service()
            };
            assert_eq!(machine.step(blip), None);
        }
    }

    #[test]
    fn weak_sign_counts_when_it_is_seen_twice_in_a_row() {
        let weak = ContentionSample {
            cpu_stall: Some(0.15),
            others_cores: 1.0,
            own_cores: 0.5,
            ..full_service()
        };
        let mut machine = Machine::at_full_service();
        for _ in 0..20 {
            assert_eq!(machine.step(weak), None);
            assert_eq!(machine.step(full_service()), None);
        }
        machine.step(weak);
        assert_eq!(machine.step(weak).map(|it| it.to), Some(OwnerResource::Cpu));
    }

    #[test]
    fn cost_at_rest_does_not_drive_the_budget_to_its_floor() {
        let mut machine = Machine::at_full_service();
        let mut budgets = Vec::new();
        for _ in 0..400 {
            let moved = machine.governor.yielding().map_or(110.0 * MB, |it| it.budget as f64);
            // A twentieth of a core goes by whatever is served.
            let busy = ContentionSample {
                cpu_stall: Some(0.9),
                others_cores: 1.0,
                own_cores: 0.05 + 1.5 * moved / 1e9,
                own_disk: 0.0,
                moved,
                ..full_service()
            };
            budgets.extend(machine.step(busy).map(|it| it.budget as f64));
        }
        assert!(budgets.last().is_none_or(|last| *last > 15.0 * MB), "{:?}", budgets.last());
    }

    #[test]
    fn steady_job_gets_a_steady_budget() {
        let mut machine = Machine::at_full_service();
        let budgets: Vec<u64> = (0..400)
            .filter_map(|_| {
                let moved = machine.governor.yielding().map_or(110.0 * MB, |it| it.budget as f64);
                machine.step(disk_job(moved)).map(|it| it.budget)
            })
            .skip(40)
            .collect();
        let (least, most) =
            (budgets.iter().min().expect("some"), budgets.iter().max().expect("some"));
        assert_eq!(budgets.len(), 360, "never lifted");
        assert!(*most <= least * 3 / 2, "{least} to {most}");
    }

    #[test]
    fn floor_keeps_chunks_readable_and_may_be_zero() {
        for floor in [0, 4 << 20] {
            let mut machine = Machine::at_full_service();
            machine.governor.set_terms(GovernorTerms {
                slowdown: Some(0.0),
                floor,
                ..GovernorTerms::default()
            });
            let yielding = machine.step(disk_job(110.0 * MB)).expect("a strong sign");
            assert_eq!(yielding.budget, floor);
            for _ in 0..40 {
                machine.step(ContentionSample { moved: 0.0, ..full_service() });
            }
            assert_eq!(machine.governor.yielding(), None, "it recovers from a floor of {floor}");
        }
    }

    #[test]
    fn donor_without_the_kernels_word_goes_by_its_own_progress() {
        let blind = |sample: ContentionSample, speed: f64| ContentionSample {
            cpu_stall: None,
            disk_stall: None,
            memory_stall: None,
            own_disk_speed: Some(speed),
            ..sample
        };
        let mut machine = Machine::new(GovernorTerms::default());
        for _ in 0..40 {
            assert_eq!(machine.step(blind(full_service(), 400.0 * MB)), None);
        }
        let yielding = machine.step(blind(disk_job(110.0 * MB), 80.0 * MB));
        assert_eq!(yielding.map(|it| it.to), Some(OwnerResource::Disk));
    }

    #[test]
    fn measured_ceiling_holds_from_the_first_sample() {
        let ceilings = RateCeilings { disk: Some(3.0 * MB), ..RateCeilings::default() };
        let terms = GovernorTerms { ceilings, ..GovernorTerms::default() };
        let yielding = Machine::new(terms).step(disk_job(110.0 * MB)).expect("a strong sign");
        assert_eq!((yielding.to, yielding.budget), (OwnerResource::Disk, 3_000_000));
        assert_eq!(Machine::new(terms).step(full_service()), None, "the owner is away");
    }

    #[test]
    fn slowdown_is_a_percentage_or_off() {
        assert_eq!("5%".parse(), Ok(Slowdown(Some(0.05))));
        assert_eq!("off".parse(), Ok(Slowdown(None)));
        for wrong in ["5", "-1%", "101%", "NaN%", "", "none"] {
            assert!(wrong.parse::<Slowdown>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn governor_that_is_off_never_yields() {
        let mut machine = Machine::at_full_service();
        machine.governor.set_terms(GovernorTerms { slowdown: None, ..GovernorTerms::default() });
        assert_eq!(machine.step(disk_job(110.0 * MB)), None);
    }

    #[test]
    fn sentence_names_the_resource_the_share_and_the_rate() {
        let yielding = Yielding { to: OwnerResource::Disk, others_percent: 34, budget: 12 << 20 };
        let sentence = "yielding: disk busy by others 34 %, serving 12.0 MiB/s";
        assert_eq!(yielding.to_string(), sentence);
    }
}
