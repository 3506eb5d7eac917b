//! Runs the works, each beside its floor, in pools made for them.

use std::ffi::OsStr;
use std::iter;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::checkpoint;
use crate::comeback;
use crate::content;
use crate::contests::CONTESTS;
use crate::crowd;
use crate::floor_runs::Floors;
use crate::interrupt;
use crate::machine;
use crate::measure::{self, Cost, Finished};
use crate::mounts;
use crate::names;
use crate::outcome::{Figure, Limit, Outcome, Pair};
use crate::plan::{FILE_SIZE, FILES, Plan, Work};
use crate::pool::{Pool, Start};
use crate::random_reads;
use crate::removal;
use crate::repair;
use crate::scale;
use crate::shared_writers;
use crate::size::Size;

/// The number of donors: as many as a 4+2 takes.
const DONORS: usize = 6;
/// The number of donors that are dead while a degraded file is read.
const DEAD: usize = 2;
const MIB: f64 = (1 << 20) as f64;
/// The time within which a donor reads back an empty store.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
/// The time within which donors delete removed chunks; the GC delay is a part of it.
const RECLAIMED_WITHIN: Duration = Duration::from_secs(300);
const IDLE_MIB: f64 = 16.0;
const IDLE_CPU_PERCENT: f64 = 0.1;
const SERVING_RSS_MIB: f64 = 48.0;
const CLIENT_RSS_MIB: f64 = 160.0;

/// A space of the throw-away pool, and the works that move one large file through it.
struct Space {
    name: &'static str,
    flags: &'static [&'static str],
    put: Work,
    get: Option<Work>,
}

impl Space {
    fn is_wanted(&self, plan: &Plan) -> bool {
        // A donor's memory while it serves is measured only if there is something to serve.
        let serving = self.put == Work::Put && plan.wants(Work::Donor);
        plan.wants(self.put) || self.get.is_some_and(|get| plan.wants(get)) || serving
    }
}

const SPACES: [Space; 4] = [
    Space {
        name: "plain",
        flags: &["--plain", "--copies", "1"],
        put: Work::Put,
        get: Some(Work::Get),
    },
    Space { name: "plain2", flags: &["--plain", "--copies", "2"], put: Work::Put2, get: None },
    Space {
        name: "coded",
        flags: &["--plain", "--ec", "4+2"],
        put: Work::PutEc,
        get: Some(Work::GetEcDegraded),
    },
    Space {
        name: "sealed",
        flags: &["--copies", "1"],
        put: Work::SealedPut,
        get: Some(Work::SealedGet),
    },
];

/// Runs all that the plan wants, in pools of its own under `dir`.
pub fn run(plan: &Plan, dir: &Path, floors: Floors) -> Result<Outcome> {
    check_room(plan, dir)?;
    let mut outcome =
        if plan.wants_pool() { run_in_pool(plan, dir, floors)? } else { Outcome::default() };
    if plan.wants(Work::Repair) {
        outcome.figures.extend(repair::run(plan, dir)?);
    }
    if plan.wants(Work::RandomReads) {
        outcome.figures.extend(random_reads::run(plan, dir)?);
    }
    if plan.wants(Work::Names) {
        outcome.figures.extend(names::run(plan, dir)?);
    }
    if plan.wants(Work::Comeback) {
        outcome.figures.extend(comeback::run(plan, dir)?);
    }
    if plan.wants(Work::Crowd) {
        outcome.figures.extend(crowd::run(plan, dir)?);
    }
    if plan.wants(Work::Removal) {
        outcome.figures.extend(removal::run(plan, dir)?);
    }
    if plan.wants(Work::Mount) {
        outcome.figures.extend(mounts::run(plan, dir)?);
    }
    if plan.wants(Work::Checkpoint) {
        outcome.figures.extend(checkpoint::overhead::run(plan, dir)?);
    }
    if plan.wants(Work::WriteProtocols) {
        outcome.figures.extend(checkpoint::protocols::run(plan, dir)?);
    }
    if plan.wants(Work::Rewrite) {
        outcome.figures.extend(checkpoint::rewrite::run(plan, dir)?);
    }
    if plan.wants(Work::Shared) {
        outcome.figures.extend(shared_writers::run(plan, dir)?);
    }
    if plan.wants(Work::Scale) {
        outcome.figures.extend(scale::run(plan, dir)?);
    }
    Ok(outcome)
}

fn run_in_pool(plan: &Plan, dir: &Path, floors: Floors) -> Result<Outcome> {
    let lent = plan.footprint().div_ceil(1 << 30).max(20);
    let start = |binary: &Path, name: &str| {
        let dir = dir.join(name);
        eprintln!("starting a manager and {DONORS} donors under {}", dir.display());
        let lent = format!("{lent}GiB");
        let (lent, options, network) = (lent.as_str(), &[][..], None);
        Pool::start(Start { binary, dir: &dir, donors: DONORS, lent, options, network })
    };
    let pool = start(&plan.potluck, "pool")?;
    let other = plan.against.as_ref().map(|against| start(against, "other")).transpose()?;
    let mut run = Run { plan, dir, floors, pool, other, outcome: Outcome::default() };
    if plan.wants(Work::Donor) {
        let cpu = Limit::AtMost(IDLE_CPU_PERCENT);
        run.idle_donors("donor idle", Limit::AtMost(IDLE_MIB), cpu)?;
    }
    for space in &SPACES {
        for pool in run.pools() {
            measure::run(
                pool.client()
                    .args(["space", "create", space.name])
                    .args(space.flags)
                    .args(["--ack", "memory"]),
            )?;
        }
    }
    for round in 0..plan.rounds {
        for space in SPACES.iter().filter(|space| space.is_wanted(plan)) {
            run.large_file(space, round)?;
        }
        if plan.wants_files() {
            run.many_files(round)?;
        }
    }
    if plan.wants(Work::Big) {
        run.big_file()?;
    }
    if plan.wants(Work::Donor) {
        run.donors_after_serving()?;
    }
    Ok(run.outcome)
}

fn check_room(plan: &Plan, dir: &Path) -> Result<()> {
    let stat = rustix::fs::statvfs(dir)
        .with_context(|| format!("cannot see how much room {} has", dir.display()))?;
    let (free, needed) = (Size(stat.f_bavail * stat.f_frsize), Size(plan.footprint()));
    ensure!(
        free.0 > needed.0,
        "{} has {free} free and this run can need {needed}: give another --dir, or less --size or --big",
        dir.display()
    );
    Ok(())
}

struct Run<'a> {
    plan: &'a Plan,
    dir: &'a Path,
    floors: Floors,
    pool: Pool,
    /// A pool of the program that the product is compared with.
    other: Option<Pool>,
    outcome: Outcome,
}

impl Run<'_> {
    fn pools(&self) -> impl Iterator<Item = &Pool> {
        iter::once(&self.pool).chain(&self.other)
    }

    fn large_file(&mut self, space: &Space, round: usize) -> Result<()> {
        let name = format!("large-{round}");
        let (local, remote) = (self.dir.join(&name), format!("pot://{}/{name}", space.name));
        content::write_file(&local, &format!("{}/{name}", space.name), self.plan.size.0)?;
        content::warm(&local)?;
        self.contest(space.put, round, &local, |pool| cp(pool, &[], &local, &remote))?;
        if let Some(get) = space.get {
            let degraded = get == Work::GetEcDegraded;
            for pool in iter::once(&mut self.pool).chain(&mut self.other).filter(|_| degraded) {
                pool.kill_last(DEAD)?;
            }
            self.contest(get, round, &local, |pool| cp(pool, &[], &remote, "/dev/null"))?;
            for pool in iter::once(&mut self.pool).chain(&mut self.other).filter(|_| degraded) {
                pool.start_again()?;
            }
        }
        self.forget(&local, &remote)
    }

    fn many_files(&mut self, round: usize) -> Result<()> {
        let name = format!("files-{round}");
        let (local, remote, back) =
            (self.dir.join(&name), format!("pot://plain/{name}"), self.dir.join("files-back"));
        content::write_directory(&local, &name, FILES, FILE_SIZE)?;
        content::warm(&local)?;
        self.contest(Work::FilesIn, round, &local, |pool| cp(pool, &["-r"], &local, &remote))?;
        let back_of = |pool: &Pool| back.join(pool.name());
        std::fs::create_dir(&back)?;
        self.contest(Work::FilesOut, round, &local, |pool| {
            cp(pool, &["-r"], &remote, back_of(pool))
        })?;
        self.pools().try_for_each(|pool| content::compare(&local, &back_of(pool)))?;
        content::remove(&back)?;
        self.forget(&local, &remote)
    }

    fn big_file(&mut self) -> Result<()> {
        let (local, remote, size) = (self.dir.join("big"), "pot://plain/big", self.plan.big);
        content::write_file(&local, "big", size.0)?;
        let put = self.product(&self.pool, &mut cp(&self.pool, &[], &local, remote), false)?;
        let get = self.product(&self.pool, &mut cp(&self.pool, &[], remote, "/dev/null"), false)?;
        for (verb, finished) in [("put", put), ("get", get)] {
            self.figure(
                format!("client RSS on a {size} {verb}"),
                finished.peak_rss as f64 / MIB,
                "MiB",
                Limit::AtMost(CLIENT_RSS_MIB),
            );
        }
        self.forget(&local, remote)
    }

    /// Runs floor, product and the program that it is compared with over the same `source`. The order is reversed
    /// in every other round, so that none always gets the warmer machine.
    fn contest(
        &mut self,
        work: Work,
        round: usize,
        source: &Path,
        command: impl Fn(&Pool) -> Command,
    ) -> Result<()> {
        let contest = CONTESTS
            .iter()
            .find(|contest| contest.work == work)
            .context("every work over files has a floor")?;
        let contestants: Vec<_> = iter::once(None).chain(self.pools().map(Some)).collect();
        let mut costs = vec![Cost::default(); contestants.len()];
        let mut turns: Vec<_> = (0..contestants.len()).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for whose in turns {
            costs[whose] = match contestants[whose] {
                None => self.floors.run(contest.floor, source)?,
                Some(pool) => {
                    self.product(pool, &mut command(pool), contest.floor.fills_pages())?.cost
                }
            };
        }
        let pair = Pair { floor: costs[0], product: costs[1], other: costs.get(2).copied() };
        eprintln!(
            "round {}: {}: wall {:.3} s, CPU {:.3} s; {}: wall {:.3} s, CPU {:.3} s",
            round + 1,
            contest.name,
            pair.product.wall.as_secs_f64(),
            pair.product.cpu.as_secs_f64(),
            contest.floor.name(),
            pair.floor.wall.as_secs_f64(),
            pair.floor.cpu.as_secs_f64(),
        );
        self.outcome.pairs.entry(work).or_default().push(pair);
        Ok(())
    }

    fn product(&self, pool: &Pool, command: &mut Command, fills_pages: bool) -> Result<Finished> {
        machine::write_back(self.dir)?;
        pool.measure(command, fills_pages)
    }

    fn forget(&self, local: &Path, remote: &str) -> Result<()> {
        content::remove(local)?;
        self.pools().try_for_each(|pool| {
            measure::run(pool.client().args(["rm", "-r", "--force", remote])).map(drop)
        })
    }

    fn idle_donors(&mut self, work: &str, mib: Limit, percent_of_cpu: Limit) -> Result<()> {
        eprintln!("{work}: watching the donors for {} s", self.plan.idle.as_secs());
        // Work that starting or serving left is not idleness: the first round of the scrub lists the store,
        // the inventory that follows does so again, and removed files are deleted after the GC delay.
        interrupt::wait_until("the first scrub", SETTLED_WITHIN, Duration::from_secs(1), || {
            Ok(self.pool.status()?.is_settled())
        })?;
        interrupt::wait_until(
            "what was removed",
            RECLAIMED_WITHIN,
            Duration::from_secs(1),
            || Ok(self.pool.status()?.is_reclaimed()),
        )?;
        interrupt::pass(Duration::from_secs(5))?;
        let before = self.pool.donor_cpu()?;
        interrupt::pass(self.plan.idle)?;
        let after = self.pool.donor_cpu()?;
        let used = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after.saturating_sub(*before))
            .max()
            .unwrap_or_default();
        let private =
            self.pool.donor_memory()?.iter().map(|memory| memory.private).max().unwrap_or_default();
        let percent = 100.0 * used.as_secs_f64() / self.plan.idle.as_secs_f64();
        self.figure(format!("{work} private memory"), private as f64 / MIB, "MiB", mib);
        self.figure(format!("{work} CPU"), percent, "%", percent_of_cpu);
        Ok(())
    }

    fn donors_after_serving(&mut self) -> Result<()> {
        let peak =
            self.pool.donor_memory()?.iter().map(|memory| memory.peak).max().unwrap_or_default();
        self.figure(
            "donor RSS while serving".to_owned(),
            peak as f64 / MIB,
            "MiB",
            Limit::AtMost(SERVING_RSS_MIB),
        );
        let cpu = Limit::AtMost(IDLE_CPU_PERCENT);
        self.idle_donors("donor idle after serving", Limit::None, cpu)
    }

    fn figure(&mut self, work: String, value: f64, unit: &'static str, limit: Limit) {
        eprintln!("{work}: {value:.3} {unit}");
        self.outcome.figures.push(Figure { work, value, unit, limit });
    }
}

fn cp(pool: &Pool, flags: &[&str], from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Command {
    let mut command = pool.client();
    command.args(["cp", "-q"]).args(flags).arg(from).arg(to);
    command
}
