//! A throw-away pool, on loopback or on links of a given rate: one manager and its donors, each a process of its
//! own, driven through the product's command line alone.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use serde::Deserialize;

use crate::interrupt;
use crate::machine;
use crate::measure::{self, Cost, Finished, Resident};
use crate::network::{Host, Network};
use crate::scrape::Scrape;

/// The time within which a daemon serves after its start.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// The time that a daemon gets to stop by itself before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The greatest age of the figures that a donor tells.
const METRICS_AGE: Duration = Duration::from_millis(1500);

/// The most bytes of the pool's own metadata that a donor may have when nothing else is stored.
const METADATA_AT_MOST: u64 = 16 << 20;

/// The settings that a pool is started with.
pub struct Start<'a> {
    pub binary: &'a Path,
    /// The directory for the pool's state, logs and lent space.
    pub dir: &'a Path,
    pub donors: usize,
    /// The most that each donor lends, as an argument of `potluck lend`.
    pub lent: &'a str,
    /// Further options of the manager's command line.
    pub options: &'a [&'a str],
    /// The network that the machines are on; all are on loopback if there is none.
    pub network: Option<Arc<Network>>,
}

/// A pool, which is stopped when this is dropped.
pub struct Pool {
    binary: PathBuf,
    dir: PathBuf,
    network: Option<Arc<Network>>,
    /// The options of the manager besides those for its state and its address.
    options: Vec<String>,
    /// The manager's process; `None` while it is stopped.
    manager: Option<Daemon>,
    /// The address at which the manager is started, and serves once it was started.
    address: String,
    donors: Vec<Daemon>,
    /// The most that each donor lends, as an argument of `potluck lend`.
    lent: String,
    /// Says on which machine each donor is.
    host: fn(usize) -> Host,
    /// The number of donors when all are alive.
    all: usize,
}

#[derive(Deserialize)]
struct Invitation {
    token: String,
}

/// The part of `potluck status --json` that is looked at.
#[derive(Debug, Deserialize)]
pub struct Status {
    pub donors: Vec<DonorStatus>,
    pub spaces: Vec<Space>,
    pub repair: Repair,
    log_waiting: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub struct DonorStatus {
    pub donor: u64,
    pub name: String,
    pub state: String,
    used: u64,
    chunks: u64,
    scrub: Scrubbed,
}

#[derive(Debug, Deserialize)]
struct Scrubbed {
    rounds: u64,
}

#[derive(Debug, Deserialize)]
pub struct Space {
    /// True once the space was scanned. Earlier programs, which this one may be compared with, have another name
    /// for it.
    #[serde(default)]
    scanned: bool,
    tolerates: Option<u32>,
    incomplete: u64,
    unreadable: u64,
}

#[derive(Debug, Deserialize)]
pub struct Repair {
    /// The number of chunks that were made again since the manager's start.
    pub made: u64,
}

impl Status {
    /// Returns whether any one donor may die, and nothing is left to repair.
    pub fn is_safe(&self) -> bool {
        self.spaces.iter().all(|space| {
            // A space whose files are in the catalog alone has no number of donors that may die.
            let whole = space.incomplete + space.unreadable == 0;
            space.scanned && space.tolerates.is_none_or(|more| more > 0) && whole
        })
    }

    /// Returns whether every donor has read its disk back once, which it begins to do soon after its start.
    pub fn is_settled(&self) -> bool {
        self.donors.iter().all(|donor| donor.scrub.rounds > 0)
    }

    /// Returns whether donors have deleted what was removed, and hold little but the pool's own metadata.
    pub fn is_reclaimed(&self) -> bool {
        self.donors.iter().all(|donor| donor.used <= METADATA_AT_MOST)
    }

    /// Returns the number of chunks of the donor that has most. The log of the pool's metadata is a few hundred of them,
    /// however many changes it has.
    pub fn most_chunks(&self) -> u64 {
        self.donors.iter().map(|donor| donor.chunks).max().unwrap_or(0)
    }

    /// Returns whether donors have all changes of the catalog in its log.
    pub fn is_logged(&self) -> bool {
        self.log_waiting == Some(0)
    }

    /// Returns the donor called `name`.
    pub fn donor(&self, name: &str) -> Result<&DonorStatus> {
        let donor = self.donors.iter().find(|donor| donor.name == name);
        donor.with_context(|| format!("no {name} in the pool"))
    }
}

impl Pool {
    /// Starts a pool, each of whose donors has a machine of its own, and returns once all are live.
    pub fn start(start: Start<'_>) -> Result<Self> {
        Self::start_on(start, Host::Donor)
    }

    /// Starts a pool and returns once all donors are live. `host` says on which machine each is.
    pub fn start_on(start: Start<'_>, host: fn(usize) -> Host) -> Result<Self> {
        let Start { binary, dir, donors, lent, options, network } = start;
        ensure!(
            binary.is_file(),
            "{} is not there: build it with `cargo build --release -p potluck`, or name it with --potluck",
            binary.display()
        );
        fs::create_dir_all(dir.join("home"))?;
        let mut pool = Self {
            binary: binary.to_owned(),
            dir: dir.to_owned(),
            address: listen(network.as_deref(), Host::Manager),
            network,
            options: options.iter().map(ToString::to_string).collect(),
            manager: None,
            donors: Vec::new(),
            lent: lent.to_owned(),
            host,
            all: donors,
        };
        pool.start_manager()?;
        for number in 0..donors {
            let donor = pool.join_and_lend(number)?;
            pool.donors.push(donor);
        }
        pool.wait_live(donors)?;
        Ok(pool)
    }

    /// Starts the manager: on a free port at first, later on the same one.
    pub fn start_manager(&mut self) -> Result<()> {
        let mut command = self.on(Host::Manager);
        command.arg("manager").arg("--state").arg(self.manager_state());
        command.args(["--listen", &self.address, "--copies", "1", "--trash", "none"]);
        command.args(&self.options);
        let manager = Daemon::start(command, &self.dir, "manager")?;
        self.address.clone_from(&manager.address);
        self.manager = Some(manager);
        Ok(())
    }

    /// Kills the manager with `kill -9`; donors go on.
    pub fn kill_manager(&mut self) {
        if let Some(manager) = self.manager.take() {
            manager.signal(Signal::KILL);
        }
    }

    /// Stops the manager by SIGTERM, as its machine does when it shuts down; donors go on.
    pub fn stop_manager(&mut self) {
        if let Some(manager) = self.manager.take() {
            manager.signal(Signal::TERM);
        }
    }

    /// Returns the CPU time of the manager since its start.
    pub fn manager_cpu(&self) -> Result<Duration> {
        let manager = self.manager.as_ref().context("no manager")?;
        measure::cpu_of(manager.child.id()).map_err(|error| manager.explain(error))
    }

    /// Returns the memory of the manager.
    pub fn manager_memory(&self) -> Result<Resident> {
        let manager = self.manager.as_ref().context("no manager")?;
        measure::resident(manager.child.id()).map_err(|error| manager.explain(error))
    }

    /// Returns the directory of the manager's state.
    pub fn manager_state(&self) -> PathBuf {
        self.dir.join("manager")
    }

    /// Returns the address at which members know the manager.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns a command of the product's program on `host`.
    pub fn on(&self, host: Host) -> Command {
        product(&self.binary, &self.dir, self.network.as_deref(), host)
    }

    fn daemons(&self) -> impl Iterator<Item = &Daemon> {
        self.manager.iter().chain(&self.donors)
    }

    /// Waits until this many donors are live.
    pub fn wait_live(&mut self, donors: usize) -> Result<()> {
        interrupt::wait_until(
            &format!("{donors} live donors in `potluck status`"),
            READY_WITHIN,
            Duration::from_millis(100),
            || {
                self.check_alive()?;
                Ok(self.live_donors()? == donors)
            },
        )
    }

    /// Kills the last `dead` donors, and returns once the manager does not call them live any more.
    pub fn kill_last(&mut self, dead: usize) -> Result<()> {
        for donor in self.donors.drain(self.all - dead..) {
            donor.signal(Signal::KILL);
        }
        self.wait_live(self.all - dead)
    }

    /// Starts donors that were killed.
    pub fn start_again(&mut self) -> Result<()> {
        for number in self.donors.len()..self.all {
            let donor = self.lend(number, &[])?;
            self.donors.push(donor);
        }
        self.wait_live(self.all)
    }

    fn join_and_lend(&self, number: usize) -> Result<Daemon> {
        let invited =
            measure::run(self.client().args(["invite", "--role", "donor", "--json"]))?.stdout;
        let invitation: Invitation = serde_json::from_str(&invited)
            .with_context(|| format!("`potluck invite --json` printed {invited:?}"))?;
        let token = self.dir.join(format!("donor-{number}.token"));
        fs::write(&token, &invitation.token)?;
        let token = token.display().to_string();
        let name = format!("donor-{number}");
        let donor = self.lend(number, &["--token-file", &token, "--name", &name])?;
        // The client is on the same machine in truth, and is measured, not yielded to.
        let mut set = self.on((self.host)(number));
        set.arg("set").arg("--state").arg(self.dir.join(name).join("state"));
        measure::run(set.args(["lend.slowdown", "off"]))?;
        Ok(donor)
    }

    fn lend(&self, number: usize, more: &[&str]) -> Result<Daemon> {
        let name = format!("donor-{number}");
        let home = self.dir.join(&name);
        fs::create_dir_all(home.join("lent"))?;
        let host = (self.host)(number);
        let mut command = self.on(host);
        command.arg("lend").arg(home.join("lent")).arg("--state").arg(home.join("state"));
        command.args(["--max", &self.lent, "--keep-free", "0%"]);
        command.args(["--listen", &listen(self.network.as_deref(), host)]);
        command.args(more);
        Daemon::start(command, &self.dir, &name)
    }

    /// Returns what `potluck status` says of the pool.
    pub fn status(&self) -> Result<Status> {
        let printed = measure::run(self.client().args(["status", "--json"]))?.stdout;
        serde_json::from_str(&printed)
            .with_context(|| format!("`potluck status --json` printed {printed:?}"))
    }

    fn live_donors(&self) -> Result<usize> {
        let status = self.status()?;
        Ok(status.donors.iter().filter(|donor| donor.state == "live").count())
    }

    /// Returns the directory of the identity of the pool's administrator.
    pub fn identity(&self) -> PathBuf {
        self.manager_state().join("admin")
    }

    /// Returns the name of the pool's directory.
    pub fn name(&self) -> &OsStr {
        self.dir.file_name().unwrap_or_default()
    }

    /// Returns a command of the client as the pool's administrator, to which a verb is to be added.
    pub fn client(&self) -> Command {
        let mut command = self.on(Host::Client);
        command.arg("--pool").arg(self.identity());
        command
    }

    /// Runs a client and charges it with what the daemons did meanwhile and because of it.
    pub fn measure(&self, command: &mut Command, fills_pages: bool) -> Result<Finished> {
        self.wait_quiet()?;
        if fills_pages {
            machine::back_memory()?;
        }
        let before = self.cpu()?;
        let finished = measure::run(command).map_err(|error| self.explain(error))?;
        // With ack `memory` a donor may still have work after the client has ended, which belongs to this command
        // and not to the next.
        self.wait_quiet()?;
        let daemons = self.cpu()?.saturating_sub(before);
        Ok(Finished {
            cost: Cost { cpu: finished.cost.cpu + daemons, ..finished.cost },
            ..finished
        })
    }

    /// Waits until all daemons together use less than 2 % of a processor, or for 3 s, since heartbeats never stop.
    pub fn wait_quiet(&self) -> Result<()> {
        let (window, quiet) = (Duration::from_millis(100), Duration::from_millis(2));
        let (started, mut last) = (Instant::now(), self.cpu()?);
        interrupt::check()?;
        while started.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(window);
            let now = self.cpu()?;
            if now.saturating_sub(last) < quiet {
                break;
            }
            last = now;
        }
        Ok(())
    }

    fn cpu(&self) -> Result<Duration> {
        self.daemons()
            .map(|daemon| measure::cpu_of(daemon.child.id()).map_err(|error| daemon.explain(error)))
            .sum()
    }

    /// Returns the bytes that donors have stored for writers since they started. It first waits until their figures
    /// are new.
    pub fn stored_by_donors(&self) -> Result<f64> {
        interrupt::pass(METRICS_AGE)?;
        let stored = |donor: &Daemon| {
            let scrape = Scrape::of(&donor.address)?;
            scrape.value("potluck_bulk_stored_bytes_total").context("a donor counts nothing")
        };
        self.donors.iter().map(stored).sum()
    }

    /// Returns the processes of the donors.
    pub fn donor_pids(&self) -> Vec<u32> {
        self.donors.iter().map(|donor| donor.child.id()).collect()
    }

    /// Returns the CPU time of each donor since its start.
    pub fn donor_cpu(&self) -> Result<Vec<Duration>> {
        self.donors
            .iter()
            .map(|donor| measure::cpu_of(donor.child.id()).map_err(|error| donor.explain(error)))
            .collect()
    }

    /// Returns the memory of each donor.
    pub fn donor_memory(&self) -> Result<Vec<Resident>> {
        self.donors
            .iter()
            .map(|donor| measure::resident(donor.child.id()).map_err(|error| donor.explain(error)))
            .collect()
    }

    fn check_alive(&mut self) -> Result<()> {
        self.manager.iter_mut().chain(&mut self.donors).try_for_each(Daemon::check_alive)
    }

    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let logs: Vec<_> = self.daemons().filter_map(Daemon::last_words).collect();
        anyhow::anyhow!("{error:#}\n{}", logs.join("\n"))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // All are signalled at once, so that one slow stop does not wait for another. Each `Daemon` then waits for
        // its process as it is dropped.
        self.donors.iter().chain(&self.manager).for_each(|daemon| daemon.signal(Signal::TERM));
    }
}

/// Returns the address to listen at, with a free port, for a daemon of `host`.
fn listen(network: Option<&Network>, host: Host) -> String {
    let address = network.map_or(Ipv4Addr::LOCALHOST.into(), |network| network.address(host));
    format!("{address}:0")
}

/// Returns a command of `potluck` on `host`, without the caller's own configuration and environment.
fn product(binary: &Path, dir: &Path, network: Option<&Network>, host: Host) -> Command {
    let mut command = match network {
        Some(network) => network.command(host, binary),
        None => Command::new(binary),
    };
    for (name, _) in std::env::vars_os()
        .filter(|(name, _)| name.to_string_lossy().starts_with("POTLUCK_") || name == "RUST_LOG")
    {
        command.env_remove(name);
    }
    let home = dir.join("home");
    command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join("config")).current_dir(dir);
    command
}

#[derive(Deserialize)]
struct Ready {
    pid: u32,
    address: String,
}

/// A process of the product that serves, which is stopped when this is dropped.
struct Daemon {
    name: String,
    log: PathBuf,
    child: Child,
    /// The address at which the daemon serves.
    address: String,
}

impl Daemon {
    /// Starts `command` and returns once it has written its ready file.
    fn start(mut command: Command, dir: &Path, name: &str) -> Result<Self> {
        let (log, ready) = (dir.join(format!("{name}.log")), dir.join(format!("{name}.ready")));
        // A file from an earlier start of the same daemon says nothing of this one.
        if ready.exists() {
            fs::remove_file(&ready)?;
        }
        let output = File::create(&log)?;
        command.arg("--ready-file").arg(&ready);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = measure::spawn(&mut command)?;
        let mut daemon = Self { name: name.to_owned(), log, child, address: String::new() };
        let waited =
            interrupt::wait_until("its ready file", READY_WITHIN, Duration::from_millis(5), || {
                daemon.check_alive()?;
                Ok(ready.exists())
            });
        waited
            .map_err(|error| daemon.explain(error))
            .with_context(|| format!("{command:?} is not serving"))?;
        let written = fs::read_to_string(&ready)?;
        let Ready { pid, address } = serde_json::from_str(&written)
            .with_context(|| format!("{} holds {written:?}", ready.display()))?;
        ensure!(
            pid == daemon.child.id(),
            "{name} serves as process {pid}, not as {}, the one started: it must stay in the foreground",
            daemon.child.id()
        );
        daemon.address = address;
        Ok(daemon)
    }

    fn check_alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended ({status})", self.name);
        }
        Ok(())
    }

    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        anyhow::anyhow!("{error:#}\n{}", self.last_words().unwrap_or_default())
    }

    /// Returns the end of its log.
    fn last_words(&self) -> Option<String> {
        let log = String::from_utf8_lossy(&fs::read(&self.log).ok()?).into_owned();
        let lines: Vec<_> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(10)..];
        (!tail.is_empty()).then(|| format!("{}:\n  {}", self.name, tail.join("\n  ")))
    }

    fn signal(&self, signal: Signal) {
        // A signal fails only if the process has ended, which is what the signals here ask for.
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > STOP_WITHIN {
                eprintln!(
                    "{} did not stop within {} s of SIGTERM and was killed",
                    self.name,
                    STOP_WITHIN.as_secs()
                );
                self.signal(Signal::KILL);
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
