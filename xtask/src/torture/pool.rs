//! Runs a pool of real processes on loopback, driven through the command line alone.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::process::{Running, code_of, wait_until};

/// The ports of managers are picked as the tests of the program do it.
#[path = "../../../crates/potluck/tests/pool/ports.rs"]
mod ports;

/// The time after which a command counts as hung (A2): even a client that waits for a manager, or for donors that
/// are killed while too few others are left, gives up earlier.
const COMMAND_LIMIT: Duration = Duration::from_secs(100);
/// The retry limit of a client that waits for a manager or for donors.
const CLIENT_RETRIES_FOR: &str = "40s";
/// The deadline for what is not a client's command. It is enough for anything that is not hung, on a machine with
/// other work.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The outcome of one run of a command.
pub struct Ran {
    /// The command as it was typed.
    pub command: String,
    /// The exit code of the command, or minus the number of the signal that ended it.
    pub code: i32,
    /// The standard output of the command.
    pub stdout: Vec<u8>,
    /// The standard error of the command.
    pub stderr: String,
}

impl Ran {
    /// Returns an error unless the command succeeded.
    pub fn ok(self) -> Result<Self> {
        ensure!(self.code == 0, "`{}` ended with {}: {}", self.command, self.code, self.stderr);
        Ok(self)
    }

    /// Reads the standard output as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.stdout)
            .with_context(|| format!("output of `{}`", self.command))
    }
}

/// A command that was started.
pub struct Under {
    running: Running,
    command: String,
    out: PathBuf,
    err: PathBuf,
    started: Instant,
}

impl Under {
    /// Kills the command with `kill -9`; false if it had ended by itself.
    pub fn kill_9(&mut self) -> Result<bool> {
        self.running.kill_9()
    }

    /// Freezes the command's process; false if it had ended by itself.
    pub fn freeze(&mut self) -> Result<bool> {
        self.running.freeze()
    }

    /// Lets the command's frozen process go on.
    pub fn thaw(&self) {
        self.running.thaw();
    }

    /// Returns whether the command has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.running.ended()?.is_some())
    }

    /// Waits until the command ends; an error if it hangs or panicked.
    pub fn end(mut self) -> Result<Ran> {
        let mut status = None;
        let what = format!("`{}`", self.command);
        let left = COMMAND_LIMIT.saturating_sub(self.started.elapsed());
        wait_until(&what, left, || {
            status = self.running.ended()?;
            Ok(status.is_some())
        })
        .context("A2 is broken")?;
        let stderr = String::from_utf8_lossy(&fs::read(&self.err)?).into_owned();
        let stdout = fs::read(&self.out)?;
        fs::remove_file(&self.out)?; // It may be large.
        ensure!(!stderr.contains("panicked"), "{what} panicked: {stderr}");
        let code = code_of(status.context("waited for")?);
        Ok(Ran { command: self.command, code, stdout, stderr })
    }
}

/// A donor and the disk that it lends.
pub struct Donor {
    /// The name under which the donor joined.
    pub name: String,
    /// The directory where its disk is mounted, or an ordinary one.
    pub disk: PathBuf,
    /// True if the disk is a file system of its own, which can fill up.
    pub small: bool,
    /// True once the donor died for good.
    pub dead_for_good: bool,
    running: Option<Running>,
    address: String,
}

impl Donor {
    /// Returns the directory that the donor lends.
    pub fn lent(&self) -> PathBuf {
        self.disk.join("lent")
    }

    /// Returns whether its process runs or is frozen.
    pub fn runs(&self) -> bool {
        self.running.is_some()
    }
}

/// A pool whose processes are killed when it is dropped.
pub struct Pool {
    program: PathBuf,
    dir: PathBuf,
    options: Vec<String>,
    manager: Option<Running>,
    address: String,
    /// The donors in the order of their numbers.
    pub donors: Vec<Donor>,
    runs: u64,
}

impl Pool {
    /// Starts a manager with its files below `dir`, and no donors.
    pub fn start(program: &Path, dir: &Path, options: &[&str]) -> Result<Self> {
        for part in ["home", "logs", "runs"] {
            fs::create_dir_all(dir.join(part))?;
        }
        let mut pool = Self {
            program: program.to_owned(),
            dir: dir.to_owned(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            manager: None,
            address: String::new(),
            donors: Vec::new(),
            runs: 0,
        };
        pool.start_manager()?;
        // The admin's identity is copied, for an admin has a machine with a disk of its own.
        copy(&dir.join("manager/admin"), &dir.join("admin"))?;
        Ok(pool)
    }

    /// Returns the directory in which the pool has all its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns a command for `program` without the caller's own configuration and environment.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("POTLUCK_") || text.starts_with("XDG_") || text == "RUST_LOG" {
                command.env_remove(&name);
            }
        }
        command.env("HOME", self.dir.join("home")).env("RUST_BACKTRACE", "1");
        command.current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    /// Starts a client's command as the pool's admin.
    pub fn begin(&mut self, args: &[&str]) -> Result<Under> {
        let admin = self.dir.join("admin").display().to_string();
        let mut all = vec!["--pool", &admin, "--no-progress", "--retry-for", CLIENT_RETRIES_FOR];
        all.extend(args);
        let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        let program = self.program.clone();
        let under = self.begin_program(&program, &all)?;
        Ok(Under { command: format!("potluck {}", args.join(" ")), ..under })
    }

    /// Starts any program, with files below the pool's directory for its output.
    pub fn begin_program(&mut self, program: &Path, args: &[String]) -> Result<Under> {
        self.runs += 1;
        let [out, err] =
            ["out", "err"].map(|kind| self.dir.join(format!("runs/{}.{kind}", self.runs)));
        let mut command = self.command(program);
        command.args(args).stdout(File::create(&out)?).stderr(File::create(&err)?);
        let (running, started) = (Running::start(&mut command)?, Instant::now());
        let command = format!("{} {}", program.display(), args.join(" "));
        Ok(Under { running, command, out, err, started })
    }

    /// Runs a client's command to its end.
    pub fn run(&mut self, args: &[&str]) -> Result<Ran> {
        self.begin(args)?.end()
    }

    /// Returns the pool's status, as `status` shows it.
    pub fn status(&mut self) -> Result<Value> {
        self.run(&["--json", "status"])?.ok()?.json()
    }

    // ---- the manager

    /// Starts the manager: at first on a free port, later on the same one.
    pub fn start_manager(&mut self) -> Result<()> {
        let listen = match self.address.is_empty() {
            true => format!("127.0.0.1:{}", ports::free_port()),
            false => self.address.clone(),
        };
        let mut args: Vec<String> = vec!["manager".into(), "--listen".into(), listen];
        args.extend(["--state".into(), self.dir.join("manager").display().to_string()]);
        args.extend(self.options.iter().cloned());
        let (running, address) = self.start_daemon("manager", &args)?;
        (self.manager, self.address) = (Some(running), address);
        Ok(())
    }

    /// Kills the manager with `kill -9`; an error if it had ended by itself.
    pub fn kill_manager(&mut self) -> Result<()> {
        let mut manager = self.manager.take().context("a manager that runs")?;
        ensure!(manager.kill_9()?, "the manager had ended by itself: see its log");
        Ok(())
    }

    /// Freezes the manager's process.
    pub fn freeze_manager(&mut self) -> Result<()> {
        let frozen = self.manager.as_mut().map(Running::freeze).transpose()?;
        ensure!(frozen == Some(true), "the manager had ended by itself: see its log");
        Ok(())
    }

    /// Lets the manager's frozen process go on.
    pub fn thaw_manager(&self) {
        if let Some(manager) = &self.manager {
            manager.thaw();
        }
    }

    /// Kills the manager with `kill -9`, unless it has died by itself.
    pub fn end_manager(&mut self) -> Result<()> {
        match &mut self.manager {
            Some(manager) => drop(manager.kill_9()?),
            None => bail!("no manager runs"),
        }
        self.manager = None;
        Ok(())
    }

    /// Returns whether no manager runs. One that died by itself is then forgotten, so that it can be started again.
    pub fn manager_is_dead(&mut self) -> Result<bool> {
        let Some(manager) = &mut self.manager else { return Ok(true) };
        let dead = manager.ended()?.is_some();
        if dead {
            self.manager = None;
        }
        Ok(dead)
    }

    /// Returns the number of the manager's process.
    pub fn manager_id(&self) -> Option<u32> {
        self.manager.as_ref().map(Running::id)
    }

    /// Returns whether the manager was started and not killed since.
    pub fn has_manager(&self) -> bool {
        self.manager.is_some()
    }

    // ---- donors

    /// Invites a member of this role and returns the token.
    pub fn invite(&mut self, role: &str) -> Result<String> {
        let token = self.run(&["--json", "invite", "--role", role])?.ok()?.json()?;
        Ok(token["token"].as_str().context("a token")?.to_owned())
    }

    /// Adds a donor that keeps everything below `disk`, and starts it. `small` says that the disk can fill up.
    pub fn lend(&mut self, disk: PathBuf, small: bool) -> Result<()> {
        let name = format!("donor-{}", self.donors.len());
        let token = self.dir.join(format!("{name}.token"));
        fs::write(&token, self.invite("donor")?)?;
        let token = token.to_str().context("a path")?.to_owned();
        let number = self.donors.len();
        let (running, address) = Default::default();
        let dead_for_good = false;
        self.donors.push(Donor {
            name: name.clone(),
            disk,
            small,
            dead_for_good,
            running,
            address,
        });
        self.start_lending(number, &["--token-file", &token, "--name", &name])
    }

    /// Starts a donor again on its disk, with a new port.
    pub fn start_donor(&mut self, number: usize) -> Result<()> {
        self.start_lending(number, &[])
    }

    fn start_lending(&mut self, number: usize, more: &[&str]) -> Result<()> {
        let donor = &self.donors[number];
        let path = |part: &str| donor.disk.join(part).display().to_string();
        let mut args = vec!["lend".to_owned(), path("lent"), "--state".to_owned(), path("state")];
        args.extend(
            ["--max", "2GiB", "--keep-free", "0%", "--listen", "127.0.0.1:0"].map(str::to_owned),
        );
        args.extend(more.iter().map(|part| (*part).to_owned()));
        let (running, address) = self.start_daemon(&donor.name.clone(), &args)?;
        let donor = &mut self.donors[number];
        (donor.running, donor.address) = (Some(running), address);
        Ok(())
    }

    /// Kills a donor with `kill -9`; an error if it had ended by itself.
    pub fn kill_donor(&mut self, number: usize) -> Result<()> {
        let donor = &mut self.donors[number];
        let mut running = donor.running.take().context("a donor that runs")?;
        ensure!(running.kill_9()?, "{} had ended by itself: see its log", donor.name);
        Ok(())
    }

    /// Freezes a donor's process.
    pub fn freeze_donor(&mut self, number: usize) -> Result<()> {
        let donor = &mut self.donors[number];
        let frozen = donor.running.as_mut().map(Running::freeze).transpose()?;
        ensure!(frozen == Some(true), "{} had ended by itself: see its log", donor.name);
        Ok(())
    }

    /// Lets a donor's frozen process go on.
    pub fn thaw_donor(&self, number: usize) {
        if let Some(running) = &self.donors[number].running {
            running.thaw();
        }
    }

    /// Waits until the manager hears every donor, but for those that died for good, at its present address.
    pub fn wait_live(&mut self) -> Result<()> {
        ensure!(
            self.donors.iter().all(|donor| donor.dead_for_good || donor.runs()),
            "a donor is dead"
        );
        self.wait_heard(|_| true)
    }

    /// Waits until the manager hears every donor that runs and whose number is `wanted`, at its present address.
    pub fn wait_heard(&mut self, wanted: impl Fn(usize) -> bool) -> Result<()> {
        let living = self.donors.iter().enumerate();
        let living = living.filter(|(number, donor)| donor.runs() && wanted(*number));
        let wanted: BTreeSet<(String, String)> =
            living.map(|(_, donor)| (donor.name.clone(), donor.address.clone())).collect();
        let mut last = String::new();
        let live = wait_until("that all donors are live", DEADLINE, || {
            self.check_alive()?;
            let ran = self.run(&["--json", "status"])?;
            if ran.code != 0 {
                last = ran.stderr;
                return Ok(false);
            }
            let live = live_donors(&ran.json()?);
            last = format!("live: {live:?}");
            Ok(live.is_superset(&wanted))
        });
        live.with_context(|| last)
    }

    /// Returns an error if a daemon has ended by itself.
    pub fn check_alive(&mut self) -> Result<()> {
        let donors = self.donors.iter_mut();
        let donors = donors.map(|donor| (donor.name.as_str(), donor.running.as_mut()));
        for (name, running) in donors.chain([("manager", self.manager.as_mut())]) {
            if let Some(status) = running.map(Running::ended).transpose()?.flatten() {
                bail!("{name} ended by itself ({status}): see its log");
            }
        }
        Ok(())
    }

    /// Ends all daemons by SIGTERM, as their owners would; an error unless each exits with 0 in time.
    pub fn shut_down(&mut self) -> Result<()> {
        let mut ending: Vec<(String, Running)> = Vec::new();
        for donor in &mut self.donors {
            ending.extend(donor.running.take().map(|running| (donor.name.clone(), running)));
        }
        ending.extend(self.manager.take().map(|running| ("manager".to_owned(), running)));
        for (name, mut running) in ending {
            running.signal(Signal::TERM);
            let mut status = None;
            wait_until(&format!("the end of {name}"), DEADLINE, || {
                status = running.ended()?;
                Ok(status.is_some())
            })?;
            let code = status.map(code_of);
            ensure!(code == Some(0), "{name} ended with {code:?} when it was asked to end");
        }
        Ok(())
    }

    /// Returns every line about a panic in the logs of daemons. [`Under::end`] looks at what clients wrote.
    pub fn panics(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for log in fs::read_dir(self.dir.join("logs"))? {
            let path = log?.path();
            let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
            let lines = text.lines().filter(|line| line.contains("panicked"));
            found.extend(lines.map(|line| format!("{}: {line}", path.display())));
        }
        Ok(found)
    }

    /// Returns the last lines of every daemon's log.
    pub fn log_tails(&self, lines: usize) -> String {
        let mut tails = String::new();
        for log in fs::read_dir(self.dir.join("logs")).into_iter().flatten().flatten() {
            let text = fs::read(log.path()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let all: Vec<_> = text.lines().collect();
            let tail = all[all.len().saturating_sub(lines)..].join("\n    ");
            tails.push_str(&format!("  {}:\n    {tail}\n", log.path().display()));
        }
        tails
    }

    /// Starts a daemon, waits until it serves, and returns it with its address. Another program of this machine may have
    /// its port for a moment; then it is tried again.
    fn start_daemon(&self, name: &str, args: &[String]) -> Result<(Running, String)> {
        let log = self.dir.join(format!("logs/{name}.log"));
        let ready = self.dir.join(format!("{name}.ready"));
        match fs::remove_file(&ready) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => bail!("{why}"),
            _ => {} // It may be there from an earlier start, or not.
        }
        let started = Instant::now();
        loop {
            let output = OpenOptions::new().create(true).append(true).open(&log)?;
            let before = output.metadata()?.len() as usize;
            let mut command = self.command(&self.program);
            command.args(args).arg("--ready-file").arg(&ready);
            command.stdout(Stdio::null()).stderr(output);
            let mut running = Running::start(&mut command)?;
            let mut ended = None;
            wait_until(&format!("that {name} serves"), DEADLINE, || {
                ended = running.ended()?;
                Ok(ended.is_some() || ready.exists())
            })?;
            let Some(status) = ended else {
                let said: Value = serde_json::from_slice(&fs::read(&ready)?)?;
                let address = said["address"].as_str().context("an address")?;
                return Ok((running, address.to_owned()));
            };
            let text = fs::read(&log)?;
            let said = String::from_utf8_lossy(&text[before.min(text.len())..]).into_owned();
            let taken = said.contains("in use") && started.elapsed() < DEADLINE;
            ensure!(taken, "{name} ended ({status}) instead of serving: {said}");
        }
    }
}

/// Copies what is in `from` into `to`.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut copy = Command::new("cp");
    let done = copy.args(["-a", "--"]).arg(from.join(".")).arg(to).output()?;
    ensure!(done.status.success(), "cp: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// Returns the names and addresses of the donors that `status` calls live.
pub fn live_donors(status: &Value) -> BTreeSet<(String, String)> {
    let donors = status["donors"].as_array().into_iter().flatten();
    let live = donors.filter(|donor| donor["state"] == "live");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    live.map(|donor| (text(&donor["name"]), text(&donor["addresses"][0]))).collect()
}
