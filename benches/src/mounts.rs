//! Measures a mounted pool, through the system calls that programs make, against a pass-through file system
//! ([`crate::floor_fuse`]) over the local disk and against the library.

mod at_once;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::interrupt;
use crate::measure::{self, Cost};
use crate::mounted::{self, FuseFloor, Mounted};
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start};
use crate::random_reads::rate_of;
use crate::report::median;

const DONORS: usize = 2;
const SPACE: &str = "mounted";
/// The number of files that are made, looked at, read and removed; each has `SMALL` bytes.
const SMALL_FILES: u64 = 10_000;
const SMALL: usize = 4096;
const CONTENT: [u8; SMALL] = [7; SMALL];
/// The number of programs that make small files at once.
const AT_ONCE: usize = 8;
/// The most seconds that reads at random places take.
const RANDOM_SECONDS: u64 = 3;
/// The time after which an idle daemon has given back what only its start needed.
const STARTED: Duration = Duration::from_secs(12);
const GIB: f64 = (1 << 30) as f64;
const MIB: f64 = (1 << 20) as f64;

// These are the limits of a mount: shares of a rate, CPU seconds a GiB, files a second, and MiB of memory.
const WRITE_SHARE: f64 = 0.5;
const READ_SHARE: f64 = 0.7;
const WRITE_CPU: f64 = 2.2;
const READ_CPU: f64 = 1.6;
const RANDOM_SHARE: f64 = 0.5;
const CREATES: f64 = 2500.0;
const MEMORY_MIB: f64 = 256.0;
const IDLE_MIB: f64 = 20.0;

/// Measures all of it. Returns no figures if this machine cannot mount or has no fio, and prints why.
pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    if let Some(missing) = missing() {
        eprintln!("mount: SKIPPED: {missing}");
        return Ok(Vec::new());
    }
    let pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("mount-pool"),
        donors: DONORS,
        lent: &format!("{}GiB", plan.size.0.div_ceil(1 << 30) * (plan.rounds as u64 + 1) + 2),
        options: &["--metadata-copies", "0"],
        network: None,
    })?;
    let policy = ["--plain", "--copies", "1", "--ack", "memory"];
    measure::run(pool.client().args(["space", "create", SPACE]).args(policy))?;
    let floor = Mounted::floor(dir, FuseFloor::PassThrough)?;
    let product = Mounted::pool(&pool, SPACE, dir.join("mounted"), &[])?;
    let mut bench = Bench { plan, pool: &pool, floor, product, figures: Vec::new() };
    interrupt::pass(STARTED)?;
    let idle = measure::resident(bench.product.pid())?.private as f64 / MIB;
    bench.figure("mount, daemon memory idle", idle, "MiB", Limit::AtMost(IDLE_MIB));
    bench.large_file()?;
    bench.random_reads()?;
    bench.small_files()?;
    let peak = measure::resident(bench.product.pid())?.peak as f64 / MIB;
    bench.figure("mount, daemon memory at most", peak, "MiB", Limit::AtMost(MEMORY_MIB));
    bench.figures.extend(at_once::run(&pool, dir)?);
    Ok(bench.figures)
}

fn missing() -> Option<&'static str> {
    let fio = "fio is missing (Debian: apt-get install fio)";
    mounted::missing().or((!mounted::is_installed("fio")).then_some(fio))
}

struct Bench<'a> {
    plan: &'a Plan,
    pool: &'a Pool,
    floor: Mounted,
    product: Mounted,
    figures: Vec<Figure>,
}

/// The part of fio's report that is looked at.
#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Rated,
}

#[derive(Deserialize)]
struct Rated {
    iops: f64,
}

impl Bench<'_> {
    fn figure(&mut self, work: &str, value: f64, unit: &'static str, limit: Limit) {
        eprintln!("{work}: {value:.2} {unit}");
        self.figures.push(Figure { work: work.to_owned(), value, unit, limit });
    }

    /// Measures one file that is written and then read in order, by floor and product in turn.
    fn large_file(&mut self) -> Result<()> {
        let (mut shares, mut cpus) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
        let mut rates = [const { Vec::new() }; 2];
        let gib = self.plan.size.0 as f64 / GIB;
        for round in 0..self.plan.rounds {
            for (at, verb) in ["write", "read"].into_iter().enumerate() {
                let floor = self.in_order(&self.floor, verb, round)?;
                let product = self.in_order(&self.product, verb, round)?;
                shares[at].push(floor.wall.as_secs_f64() / product.wall.as_secs_f64());
                cpus[at].push(product.cpu.as_secs_f64() / gib);
                rates[at].push(self.plan.size.0 as f64 / MIB / product.wall.as_secs_f64());
            }
            fs::remove_file(self.floor.dir.join(name(round)))?;
        }
        let limits = [(WRITE_SHARE, WRITE_CPU), (READ_SHARE, READ_CPU)];
        for (at, verb) in ["write", "read"].into_iter().enumerate() {
            let what = |more: &str| format!("mount, fio {verb} of 1 MiB blocks{more}");
            let (share, cpu) = limits[at];
            self.figure(&what(""), median(rates[at].clone()), "MiB/s", Limit::None);
            let (shares, cpus) = (median(shares[at].clone()), median(cpus[at].clone()));
            let of_floor = what(", of a pass-through's rate");
            self.figure(&of_floor, shares, "×", Limit::AtLeast(share));
            let of_all = what(", CPU of all processes");
            self.figure(&of_all, cpus, "s/GiB", Limit::AtMost(cpu));
        }
        Ok(())
    }

    /// Returns the time from the start of fio to its end, which has the file open until then, and the CPU time of
    /// all processes.
    fn in_order(&self, mounted: &Mounted, verb: &str, round: usize) -> Result<Cost> {
        let mut fio = Command::new("fio");
        fio.args(["--name=in-order", "--bs=1M", "--ioengine=psync", "--fallocate=none"]);
        fio.args(["--create_on_open=1", "--invalidate=0", "--output-format=json"]);
        fio.arg(format!("--rw={verb}")).arg(format!("--size={}", self.plan.size.0));
        fio.arg(format!("--directory={}", mounted.dir.display()));
        fio.arg(format!("--filename={}", name(round)));
        let before = measure::cpu_of(mounted.pid())?;
        let cost = self.pool.measure(&mut fio, true)?.cost;
        let own = measure::cpu_of(mounted.pid())?.saturating_sub(before);
        Ok(Cost { cpu: cost.cpu + own, ..cost })
    }

    /// Measures reads at random places of a file against the library's. Each place is read twice in a round, and is
    /// in a cache the second time.
    fn random_reads(&mut self) -> Result<()> {
        let bench = std::env::current_exe().context("cannot find the bench's own program")?;
        let remote = format!("pot://{SPACE}/{}", name(0));
        let (mut shares, mut rates) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
        for round in 0..self.plan.rounds {
            let mut library = Command::new(&bench);
            library.args(["floor", "random-reads"]).arg(self.pool.identity());
            let library = rate_of(library.args([&remote, "1"]))?;
            for at in 0..2 {
                let iops = self.random(round)?;
                shares[at].push(iops / library.per_second);
                rates[at].push(iops);
            }
        }
        for (at, state) in ["cold", "warm"].into_iter().enumerate() {
            let what = format!("mount, random 4 KiB reads, {state}");
            self.figure(&what, median(rates[at].clone()), "IOPS", Limit::None);
            let share = median(shares[at].clone());
            let of_library = format!("{what}, of the library's rate");
            self.figure(&of_library, share, "×", Limit::AtLeast(RANDOM_SHARE));
        }
        Ok(())
    }

    /// Reads at places that the number of the round decides, so that both turns of a round read the same ones;
    /// returns the reads a second.
    fn random(&self, round: usize) -> Result<f64> {
        let mut fio = Command::new("fio");
        fio.args(["--name=random", "--rw=randread", "--bs=4k", "--ioengine=psync"]);
        fio.args(["--invalidate=0", "--time_based=0", "--output-format=json"]);
        fio.arg(format!("--runtime={RANDOM_SECONDS}")).arg(format!("--randseed={round}"));
        fio.arg(format!("--size={}", self.plan.size.0)).arg("--number_ios=4000");
        fio.arg(format!("--filename={}", self.product.dir.join(name(0)).display()));
        let printed = measure::run(&mut fio)?.stdout;
        let report: Report =
            serde_json::from_str(&printed).with_context(|| format!("fio printed {printed:?}"))?;
        Ok(report.jobs.first().context("fio ran no job")?.read.iops)
    }

    fn small_files(&mut self) -> Result<()> {
        let at = self.product.dir.with_file_name("written-behind");
        let behind = Mounted::pool(self.pool, SPACE, at, &["--close", "memory"])?;
        let (floor, product) = (self.floor.dir.clone(), self.product.dir.join("small"));
        let written_behind = behind.dir.join("small-behind");
        fs::create_dir(&product)?;
        fs::create_dir(&written_behind)?;
        for (what, dir, limit) in [
            ("pass-through", &floor, Limit::None),
            ("mount", &product, Limit::AtLeast(CREATES)),
            ("mount with --close memory", &written_behind, Limit::AtLeast(CREATES)),
        ] {
            for programs in [1, AT_ONCE] {
                let rate = created(dir, programs)?;
                let files = format!("{SMALL_FILES} files of 4 KiB");
                let work = format!("{what}, {files} created, by {programs} at once");
                self.figure(&work, rate, "/s", limit);
            }
        }
        let each = |work: &dyn Fn(&Path) -> Result<()>| -> Result<f64> {
            let began = Instant::now();
            for number in 0..SMALL_FILES {
                interrupt::check()?;
                work(&small(&product, 1, number))?;
            }
            Ok(SMALL_FILES as f64 / began.elapsed().as_secs_f64())
        };
        let looked_at = each(&|path| {
            ensure!(fs::metadata(path)?.len() == SMALL as u64, "{} is cut off", path.display());
            Ok(())
        })?;
        let read = each(&|path| {
            ensure!(fs::read(path)? == CONTENT, "{} has other bytes", path.display());
            Ok(())
        })?;
        let removed = each(&|path| Ok(fs::remove_file(path)?))?;
        for (what, rate) in [("looked at", looked_at), ("read", read), ("removed", removed)] {
            let work = format!("mount, {SMALL_FILES} files of 4 KiB {what}");
            self.figure(&work, rate, "/s", Limit::None);
        }
        Ok(())
    }
}

/// Returns the path of a small file that so many programs create in a directory.
fn small(dir: &Path, programs: usize, number: u64) -> PathBuf {
    dir.join(format!("small-{programs}-{number:05}"))
}

/// Has so many programs create small files in a directory; returns how many a second, until others see all of them.
fn created(dir: &Path, programs: usize) -> Result<f64> {
    rustix::fs::sync(); // what was written before is on the disk, and not on its way there
    let began = Instant::now();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..programs as u64)
            .map(|first| {
                scope.spawn(move || {
                    for number in (first..SMALL_FILES).step_by(programs) {
                        interrupt::check()?;
                        fs::write(small(dir, programs, number), CONTENT)?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        running.into_iter().try_for_each(|it| it.join().expect("no program panics"))
    })?;
    fs::File::open(dir)?.sync_all()?;
    Ok(SMALL_FILES as f64 / began.elapsed().as_secs_f64())
}

/// Returns the name of the file of a round.
fn name(round: usize) -> String {
    format!("large-{round}")
}
