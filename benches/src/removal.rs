//! Measures how soon one client's small files are committed while very many others are removed, and how long any
//! job holds the catalog's writer meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use potluck_client::Pool as Client;

use crate::content;
use crate::interrupt;
use crate::measure;
use crate::names;
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start};
use crate::scrape::{self, Histogram, Scrape};
use crate::steady::{self, Steady, Waits};

const DONORS: usize = 2;
/// The size of a file that has a chunk on donors, in bytes; smaller files live in the catalog.
const ON_DONORS: u64 = 5000;
/// The size in bytes of a file that is stored and removed last, in very many chunks of the size `LARGE_CHUNKS`.
const LARGE: u64 = 128 << 20;
const LARGE_CHUNKS: &str = "64KiB";
/// The space in which a client stores one small file after another.
const KEPT: &str = "pot://kept";
/// The time for which that client stores files while nothing else goes on.
const ALONE: Duration = Duration::from_secs(20);
/// The time within which removed files are gone.
const GONE_WITHIN: Duration = Duration::from_secs(1800);
/// The longest that a job of the catalog's writer may take, in seconds; `P99_MS` is the time in milliseconds within
/// which 99 of 100 small files are to be stored.
const LONGEST_JOB: f64 = 0.05;
const P99_MS: f64 = 200.0;
/// The GC delay of the pool, short enough that donors delete what was removed within the bench's time.
const GC_DELAY: &str = "2s";

pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    let metrics = scrape::free_address()?;
    let pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("removal"),
        donors: DONORS,
        lent: "20GiB",
        options: &["--metrics-listen", &metrics, "--gc-delay", GC_DELAY],
        network: None,
    })?;
    let mut run = Run { pool, metrics, figures: Vec::new() };
    for (space, copies) in [("removed", "2"), ("kept", "1")] {
        let create = ["space", "create", space, "--plain", "--ack", "memory", "--copies", copies];
        measure::run(run.pool.client().args(create))?;
    }
    let local = dir.join("removal-tree");
    let (small, on_donors) = (plan.names, plan.names / 10);

    names::write_tree(&local, small)?;
    let what = format!("{small} files of 8 bytes");
    run.store(&local, &what)?;
    run.alone()?;
    run.remove(&what, |_| Ok(true))?;

    content::write_directory(&local, "removal", on_donors as usize, ON_DONORS)?;
    let what = format!("{on_donors} files with a chunk");
    let most = run.pool.status()?.most_chunks() + on_donors / 20;
    run.store(&local, &what)?;
    run.remove(&what, |run| Ok(run.pool.status()?.most_chunks() <= most))?;

    content::write_file(&local, "removal", LARGE)?;
    let large = || -> Result<()> {
        let chunks = ["cp", "-q", "--chunk-size", LARGE_CHUNKS];
        measure::run(run.pool.client().args(chunks).arg(&local).arg("pot://removed/large"))?;
        measure::run(run.pool.client().args(["rm", "pot://removed/large"]))?;
        Ok(())
    };
    let before = run.held_so_far()?;
    large()?;
    run.held("a file of 2048 chunks is stored and removed", &before)?;
    Ok(run.figures)
}

async fn keep(client: &Client, number: usize) -> Result<()> {
    steady::store(client, KEPT, number).await
}

struct Run {
    pool: Pool,
    metrics: String,
    figures: Vec<Figure>,
}

impl Run {
    fn figure(&mut self, work: String, value: f64, unit: &'static str, limit: Limit) {
        eprintln!("{work}: {value:.2} {unit}");
        self.figures.push(Figure { work, value, unit, limit });
    }

    /// Returns the jobs and commits of the catalog's writer so far, by how long they took.
    fn held_so_far(&self) -> Result<[Histogram; 2]> {
        // The manager repeats the figures of an earlier scrape for a second.
        std::thread::sleep(Duration::from_millis(1100));
        let scrape = Scrape::of(&self.metrics)?;
        let of = |name| scrape.histogram(name);
        Ok(["potluck_catalog_job_seconds", "potluck_catalog_commit_seconds"].map(of))
    }

    /// Notes how long jobs held the writer since `before`, while `what` went on.
    fn held(&mut self, what: &str, before: &[Histogram; 2]) -> Result<()> {
        let [jobs, commits] = self.held_so_far()?;
        let (jobs, commits) = (jobs.since(&before[0]), commits.since(&before[1]));
        let work = format!("jobs of the writer above 50 ms, {what}");
        self.figure(work, jobs.above(LONGEST_JOB), "", Limit::AtMost(0.0));
        let work = format!("longest job of the writer at most, {what}");
        self.figure(work, jobs.longest() * 1e3, "ms", Limit::None);
        let work = format!("longest commit of the catalog at most, {what}");
        self.figure(work, commits.longest() * 1e3, "ms", Limit::None);
        Ok(())
    }

    fn store(&mut self, local: &Path, what: &str) -> Result<()> {
        eprintln!("storing {what}");
        let before = self.held_so_far()?;
        let copy = ["cp", "-q", "-r"];
        measure::run(self.pool.client().args(copy).arg(local).arg("pot://removed/tree"))?;
        content::remove(local)?;
        self.held(&format!("{what} are stored"), &before)
    }

    /// Notes how soon files are stored while nothing else goes on.
    fn alone(&mut self) -> Result<()> {
        let client = Steady::start(&self.pool, keep)?;
        interrupt::pass(ALONE)?;
        self.committed("alone", &client.end()?, Limit::None);
        Ok(())
    }

    /// Removes the tree, and notes how soon files are stored until nothing is left of it.
    fn remove(&mut self, what: &str, is_gone: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let before = self.held_so_far()?;
        let client = Steady::start(&self.pool, keep)?;
        let began = Instant::now();
        measure::run(self.pool.client().args(["rm", "-r", "pot://removed/tree"]))?;
        let left = "potluck_space_files{space=\"removed\"}";
        let step = Duration::from_secs(1);
        interrupt::wait_until("what was removed to be gone", GONE_WITHIN, step, || {
            let files = Scrape::of(&self.metrics)?.value(left);
            Ok(files == Some(0.0) && is_gone(self)?)
        })?;
        let took = began.elapsed().as_secs_f64();
        let during = format!("{what} are removed");
        self.committed(&during, &client.end()?, Limit::AtMost(P99_MS));
        self.figure(format!("until nothing is left, {during}"), took, "s", Limit::None);
        self.held(&during, &before)
    }

    fn committed(&mut self, during: &str, waits: &Waits, limit: Limit) {
        let longest = ("longest", 100, Limit::None);
        for (name, percent, limit) in [("p50", 50, Limit::None), ("p99", 99, limit), longest] {
            let work = format!("a small file stored, {name}, {during}");
            self.figure(work, waits.percentile(percent), "ms", limit);
        }
    }
}
