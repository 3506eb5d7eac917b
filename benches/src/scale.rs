//! Measures a manager with very many donors and chunks: its time and memory, how soon it answers, what a restart
//! takes, and the repair of one donor.
//!
//! The manager is the product's program. Its catalog is filled while it does not run ([`fill`]), and its donors are
//! simulated ([`donors`]): they hold no bytes, and report at once that they have what they are ordered to copy.

mod donors;
mod fill;
mod layout;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use potluck_core::path::PoolPath;
use potluck_wire::control::Open;
use potluck_wire::identity::Identity;
use potluck_wire::open_files;
use potluck_wire::tls::install_provider;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use crate::interrupt;
use crate::library;
use crate::measure;
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start};
use crate::scrape::{self, Scrape};
use crate::steady::{self, Steady, Waits};
use donors::{Done, Donor};
use layout::Layout;

/// The most seconds until the manager serves a file; `LISTED_SECONDS` are the most until it has compared all
/// inventories, and `MEMORY_MIB` is the most memory that it may use.
const ANSWER_SECONDS: f64 = 10.0;
const LISTED_SECONDS: f64 = 600.0;
const MEMORY_MIB: f64 = 2048.0;
/// The time within which everything that is waited for happens.
const WITHIN: Duration = Duration::from_secs(3600);
/// The time for which the manager is watched while only heartbeats arrive.
const IDLE: Duration = Duration::from_secs(30);
/// The grace after which a silent donor is dead. It is longer than the silence of a donor that starts beside a
/// thousand others, and shorter than people wait.
const GRACE: &str = "2m";
/// The rate of repair: as fast as it can, since donors move no bytes.
const REPAIR_RATE: &str = "1024TiB";
/// The time between backups: none is written meanwhile, since a base of the metadata log is other work than what is
/// measured.
const NEVER: &str = "1000h";
const STEP: Duration = Duration::from_millis(500);
const MIB: f64 = (1 << 20) as f64;

pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    install_provider();
    ensure!(plan.donors > 2, "--donors must be more than 2");
    let needed = 4 * plan.donors as u64 + 1000;
    let files = open_files::raise();
    ensure!(files >= needed, "the bench needs {needed} open files, and may have {files}");
    let metrics = scrape::free_address()?;
    let mut options = vec!["--metrics-listen", &metrics, "--metadata-copies", "0"];
    options.extend(["--repair-grace", GRACE, "--backup-every", NEVER]);
    options.extend(["--repair-rate", REPAIR_RATE, "--repair-donor-rate", REPAIR_RATE]);
    let dir = dir.join("scale");
    let (lent, network) = ("1GiB", None);
    let mut pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir,
        donors: 0,
        lent,
        options: &options,
        network,
    })?;
    let create = ["space", "create", "scale", "--plain", "--copies", "2"];
    measure::run(pool.client().args(create))?;
    measure::run(pool.client().args(["space", "create", "kept", "--plain", "--copies", "1"]))?;
    let runtime = Runtime::new().context("a runtime")?;
    let admin = Identity::load(&pool.identity())?;
    eprintln!("{} donors join", plan.donors);
    let identities = runtime.block_on(donors::join(&admin, plan.donors))?;
    pool.stop_manager();
    let layout = Arc::new(Layout {
        donors: identities.iter().map(donors::id).collect(),
        files: plan.chunks.div_ceil(layout::EACH),
    });
    let began = Instant::now();
    runtime.block_on(fill::fill(&pool.manager_state().join("catalog.db"), &layout))?;
    eprintln!("filled in {:.0} s", began.elapsed().as_secs_f64());

    let (done, port) = (Arc::new(Done::default()), donors::port()?);
    let mut tasks = Vec::new();
    for (place, identity) in identities.iter().enumerate() {
        let donor = Donor::new(&layout, place, identity, port, &done)?;
        tasks.push(runtime.spawn(donor.run()).abort_handle());
    }
    let figures = Vec::new();
    Run { pool, runtime, admin, metrics, layout, done, tasks, figures }.measure()
}

struct Run {
    pool: Pool,
    runtime: Runtime,
    admin: Identity,
    metrics: String,
    layout: Arc<Layout>,
    done: Arc<Done>,
    tasks: Vec<AbortHandle>,
    figures: Vec<Figure>,
}

impl Run {
    fn figure(&mut self, work: &str, value: f64, unit: &'static str, limit: Limit) {
        let (donors, chunks) = (self.layout.donors.len(), self.layout.chunks());
        let work = format!("{work}, {donors} donors, {chunks} chunks");
        eprintln!("{work}: {value:.2} {unit}");
        self.figures.push(Figure { work, value, unit, limit });
    }

    fn measure(mut self) -> Result<Vec<Figure>> {
        self.start()?;
        self.idle()?;
        self.repair()?;
        let memory = self.pool.manager_memory()?.peak as f64 / MIB;
        let failed = self.done.failed_calls.load(Ordering::Relaxed) as f64;
        self.figure("calls of donors that failed", failed, "", Limit::None);
        self.figure("most memory of the manager", memory, "MiB", Limit::AtMost(MEMORY_MIB));
        // The tasks end first, so that they do not tell of calls that fail while the manager stops.
        self.tasks.iter().for_each(AbortHandle::abort);
        Ok(self.figures)
    }

    /// Measures the start of the manager, to which all donors come at once.
    fn start(&mut self) -> Result<()> {
        let began = Instant::now();
        self.pool.start_manager()?;
        let since = |began: Instant| began.elapsed().as_secs_f64();
        self.runtime.block_on(self.open(0))?;
        let served = Limit::AtMost(ANSWER_SECONDS);
        self.figure("first file opened after a start", since(began), "s", served);
        let asking = self.ask()?;
        let all = self.layout.donors.len() as u64;
        let done = Arc::clone(&self.done);
        interrupt::wait_until("all inventories", WITHIN, STEP, || {
            Ok(done.listed.load(Ordering::Relaxed) >= all)
        })?;
        self.figure("all inventories compared", since(began), "s", Limit::AtMost(LISTED_SECONDS));
        self.waits("a stat, while inventories come", &asking.end()?);
        let used = self.pool.manager_cpu()?.as_secs_f64();
        self.figure("processor time until then", used, "s", Limit::None);
        let put_off = self.done.put_off.load(Ordering::Relaxed) as f64;
        self.figure("lists that were put off", put_off, "", Limit::None);
        let memory = self.pool.manager_memory()?.peak as f64 / MIB;
        self.figure("most memory until then", memory, "MiB", Limit::None);
        interrupt::wait_until("the first walk", WITHIN, STEP, || {
            Ok(Scrape::of(&self.metrics)?.value(SCANNED).is_some())
        })?;
        self.figure("first walk over all files done", since(began), "s", Limit::None);
        let more = self.pool.manager_cpu()?.as_secs_f64() - used;
        self.figure(
            "processor time from the inventories to the walk's end",
            more,
            "s",
            Limit::None,
        );
        let memory = self.pool.manager_memory()?.private as f64 / MIB;
        self.figure("memory of the manager then", memory, "MiB", Limit::None);
        Ok(())
    }

    /// Measures heartbeats with nothing else, then calls among them.
    fn idle(&mut self) -> Result<()> {
        let count = |done: &Done| {
            let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed) as f64;
            (of(&done.heartbeats), of(&done.heartbeat_us))
        };
        let (began, before, cpu) = (Instant::now(), count(&self.done), self.pool.manager_cpu()?);
        interrupt::pass(IDLE)?;
        let took = began.elapsed().as_secs_f64();
        let used = self.pool.manager_cpu()?.saturating_sub(cpu).as_secs_f64();
        let (heartbeats, us) = count(&self.done);
        let (heartbeats, us) = (heartbeats - before.0, us - before.1);
        self.figure("heartbeats", heartbeats / took, "/s", Limit::None);
        self.figure("a heartbeat, mean", us / heartbeats / 1e3, "ms", Limit::None);
        self.figure(
            "processor of the manager, heartbeats only",
            100.0 * used / took,
            "%",
            Limit::None,
        );
        let asking = self.ask()?;
        interrupt::pass(IDLE / 2)?;
        self.waits("a stat, among heartbeats", &asking.end()?);
        let storing = Steady::start(&self.pool, async |client, number| {
            steady::store(client, "pot://kept", number).await
        })?;
        interrupt::pass(IDLE / 2)?;
        self.waits("a small file stored, among heartbeats", &storing.end()?);
        Ok(())
    }

    /// Measures the repair after one donor has fallen silent for good.
    fn repair(&mut self) -> Result<()> {
        let gone = self.layout.donors.len() / 2;
        let copies = self.layout.held_by(gone).count() as u64;
        self.tasks[gone].abort();
        let dead = || Ok(Scrape::of(&self.metrics)?.value(DEAD) == Some(1.0));
        let died = Instant::now();
        interrupt::wait_until("its death to be seen", WITHIN, STEP, dead)?;
        eprintln!("dead after {:.1} s", died.elapsed().as_secs_f64());
        let (began, cpu) = (Instant::now(), self.pool.manager_cpu()?);
        let jobs = |run: &Self| anyhow::Ok(Scrape::of(&run.metrics)?.histogram(JOBS));
        let before = jobs(self)?;
        let asking = self.ask()?;
        let done = Arc::clone(&self.done);
        interrupt::wait_until("its copies", WITHIN, STEP, || {
            Ok(done.stored.load(Ordering::Relaxed) >= copies)
        })?;
        let took = began.elapsed().as_secs_f64();
        let used = self.pool.manager_cpu()?.saturating_sub(cpu).as_secs_f64();
        self.waits("a stat, during repair", &asking.end()?);
        self.figure("copies of a dead donor", copies as f64, "", Limit::None);
        self.figure("from its death to the last of them made", took, "s", Limit::None);
        self.figure("processor time of the manager for that", used, "s", Limit::None);
        let held = jobs(self)?.since(&before);
        self.figure(
            "jobs of the writer above 50 ms, during repair",
            held.above(0.05),
            "",
            Limit::AtMost(0.0),
        );
        self.figure("longest job of the writer at most", held.longest() * 1e3, "ms", Limit::None);
        Ok(())
    }

    fn waits(&mut self, what: &str, waits: &Waits) {
        // A small pool may be done before anything was asked.
        if waits.is_empty() {
            return;
        }
        for (name, percent) in [("p50", 50), ("p99", 99), ("longest", 100)] {
            self.figure(&format!("{what}, {name}"), waits.percentile(percent), "ms", Limit::None);
        }
    }

    /// Starts a client that asks for files all over the space, one after the other.
    fn ask(&self) -> Result<Steady> {
        let layout = Arc::clone(&self.layout);
        Steady::start(&self.pool, async move |client, number| {
            // Each call is about another file, far from the last.
            let path = path_of(&layout, number as u64 * 7919)?;
            client.stat(&path).await.map(|_| ()).map_err(library::said)
        })
    }

    /// Opens a file as a reader does; an error if no donor has its chunks.
    async fn open(&self, file: u64) -> Result<()> {
        let open = Open {
            path: path_of(&self.layout, file)?,
            recursive: false,
            after: None,
            leased: false,
        };
        let caller = donors::caller(&self.admin)?;
        let opened = caller.call(&open).await.map_err(|why| anyhow!("{why}"))?;
        ensure!(!opened.donors.is_empty(), "{} is on no donor", open.path);
        Ok(())
    }
}

const SCANNED: &str = "potluck_space_tolerated_losses{space=\"scale\"}";
const DEAD: &str = "potluck_donors{state=\"dead\"}";
const JOBS: &str = "potluck_catalog_job_seconds";

fn path_of(layout: &Layout, file: u64) -> Result<PoolPath> {
    let path = layout.path(file % layout.files);
    path.parse().map_err(|why| anyhow!("{path}: {why}"))
}
