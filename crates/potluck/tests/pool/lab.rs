//! A pool on loopback: one manager and its donors, each a process of its own. It is driven through the command line;
//! only its status, and whether donors serve, are asked for over the wire.

use super::content::{Lots, arg};
use super::lent::Lent;
use super::member::Member;
use super::ports::free_port;
use super::program::{Ran, Running, code_of};
use super::tap::Tap;
use super::waiting::{DEADLINE, wait_until};
use potluck_core::chunk::Digest;
use potluck_core::entropy::SystemEntropy;
use potluck_core::ids::DonorId;
use potluck_wire::control::Status;
use potluck_wire::ticket::{Caveat, Secret, Ticket};
use potluck_wire::version;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time after which a command counts as hung. A client that waits for a manager, and has moved nothing yet, gives
/// up earlier.
const COMMAND_LIMIT: Duration = Duration::from_secs(90);

/// The options of the manager that most tests want, each with its value.
const UNLESS_SAID: [(&str, &str); 5] = [
    // They ask which donors take what while nobody knows rates, which on a busy machine differ by chance.
    ("--diagnose-donors", "false"),
    // They count the chunks of their own files, so the pool's metadata is on no donor.
    ("--metadata-copies", "0"),
    // They do not go on with an upload that was interrupted, so it is given up at once.
    ("--resume-window", "0s"),
    // They know which copies there are, and count the room that is free again when something is removed.
    ("--copies", "1"),
    ("--trash", "none"),
];

/// A user who runs commands. Cheap to clone, for threads of their own.
#[derive(Clone)]
pub struct Cli {
    dir: PathBuf,
    home: PathBuf,
    pool: Option<PathBuf>,
    environment: Vec<(String, String)>,
    runs: Arc<AtomicU64>,
    /// A member who asks for the pool's status without starting a process, since tests ask again and again.
    watcher: Arc<OnceLock<Member>>,
}

impl Cli {
    /// Makes a user with an empty home below `dir` and no pool.
    pub fn new(dir: &Path) -> Self {
        let home = dir.join("home");
        fs::create_dir_all(&home).expect("a directory in the test's own");
        fs::create_dir_all(dir.join("runs")).expect("a directory in the test's own");
        let (pool, environment, runs, watcher) = Default::default();
        Self { dir: dir.into(), home, pool, environment, runs, watcher }
    }

    /// Returns this user acting under the identity in `dir`.
    pub fn under(&self, dir: &Path) -> Self {
        Self { pool: Some(dir.into()), watcher: Arc::default(), ..self.clone() }
    }

    /// Returns this user with another home.
    pub fn at_home(&self, home: &Path) -> Self {
        fs::create_dir_all(home).expect("a directory in the test's own");
        Self { home: home.into(), pool: None, watcher: Arc::default(), ..self.clone() }
    }

    /// Returns this user with a variable set.
    pub fn with_env(&self, name: &str, value: &str) -> Self {
        let mut cli = self.clone();
        cli.environment.push((name.into(), value.into()));
        cli
    }

    /// Returns a command of the product, without the caller's configuration and without its variables for Potluck and
    /// the log.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_potluck"));
        let foreign = |name: &str| name.starts_with("POTLUCK_") || name == "RUST_LOG";
        for (name, _) in std::env::vars_os().filter(|(name, _)| foreign(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command.env("HOME", &self.home).env("RUST_BACKTRACE", "1").current_dir(&self.dir);
        for (name, place) in
            [("CONFIG", "config"), ("STATE", "state"), ("DATA", "data"), ("CACHE", "cache")]
        {
            command.env(format!("XDG_{name}_HOME"), self.home.join(place));
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(pool) = &self.pool {
            command.arg("--pool").arg(pool);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end. A hung one and a panic fail the test.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with_input(args, Stdio::null())
    }

    /// Runs a command to its end with something on standard input. A hung one and a panic fail the test.
    #[track_caller]
    pub fn run_with_input(&self, args: &[&str], input: Stdio) -> Ran {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let [out, err] = ["out", "err"].map(|kind| self.dir.join(format!("runs/{number}.{kind}")));
        let create = |path: &Path| File::create(path).expect("a file in the test's own directory");
        let mut command = self.command();
        command.args(args).stdin(input).stdout(create(&out)).stderr(create(&err));
        let started = Instant::now();
        let mut running = Running::start_briefly(&mut command);
        let status = running.end_within(&format!("`potluck {}`", args.join(" ")), COMMAND_LIMIT);
        let read = |path: &Path| fs::read(path).expect("its output");
        let ran = Ran {
            command: format!("potluck {}", args.join(" ")),
            code: code_of(status),
            stdout: read(&out),
            stderr: String::from_utf8_lossy(&read(&err)).into_owned(),
            took: started.elapsed(),
        };
        let _ = fs::remove_file(out); // the output may be large, and has been read
        assert!(!ran.stderr.contains("panicked"), "`{}`: {}", ran.command, ran.stderr);
        ran
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> Ran {
        self.run(args).ok()
    }

    /// Runs a command that must succeed, and gives the JSON it prints.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        self.run(&[&["--json"], args].concat()).ok().json()
    }

    /// Runs a command that must fail with `code`, and gives what it says as JSON.
    #[track_caller]
    pub fn fails(&self, code: i32, args: &[&str]) -> super::program::Complaint {
        self.run(&[&["--json"], args].concat()).exits(code).failure()
    }

    /// Starts a command that is watched; standard input and output are pipes.
    pub fn start(&self, args: &[&str]) -> Running {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let err = File::create(self.dir.join(format!("runs/{number}.err"))).expect("a file");
        let mut command = self.command();
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(err);
        Running::start(&mut command)
    }

    /// Returns the standard error so far of the command that was started last.
    pub fn said_by_the_last(&self) -> String {
        let number = self.runs.load(Ordering::Relaxed) - 1;
        fs::read_to_string(self.dir.join(format!("runs/{number}.err"))).expect("its errors")
    }

    /// Returns the pool's status, as `potluck status --json` shows it.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.ask_status().expect("a manager that answers")
    }

    fn ask_status(&self) -> Option<Value> {
        let Some(identity) = &self.pool else {
            let ran = self.run(&["--json", "status"]);
            return (ran.code == 0).then(|| ran.json());
        };
        let status = self.watcher.get_or_init(|| Member::load(identity)).call(&Status {}).ok()?;
        Some(serde_json::to_value(status).expect("a status is plain data"))
    }

    /// Returns the status of a donor.
    #[track_caller]
    pub fn donor(&self, name: &str) -> Value {
        let status = self.status();
        let donors = status["donors"].as_array().expect("donors").iter();
        let mut named = donors.filter(|donor| donor["name"] == name);
        named.next().unwrap_or_else(|| panic!("no donor {name} in {status}")).clone()
    }

    /// Returns the names of donors that are live, and none while no manager answers.
    pub fn live_donors(&self) -> Vec<String> {
        let Some(status) = self.ask_status() else { return Vec::new() };
        let donors = status["donors"].as_array().expect("donors").iter();
        let live = donors.filter(|donor| donor["state"] == "live");
        live.map(|donor| donor["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Reads a whole file with `potluck cat`.
    #[track_caller]
    pub fn cat(&self, path: &str) -> Vec<u8> {
        self.ok(&["cat", path]).stdout
    }

    /// Returns how many chunks of a file each donor has, by the donor's name.
    #[track_caller]
    pub fn shares(&self, path: &str) -> BTreeMap<String, u64> {
        let stated = self.json(&["stat", path]);
        let shares = stated["donors"].as_array().expect("donors").iter();
        let share = |share: &Value| {
            (
                share["name"].as_str().expect("a name").to_owned(),
                share["chunks"].as_u64().expect("a count"),
            )
        };
        shares.map(share).collect()
    }
}

/// The way in which one donor is started, beyond what all have in common.
#[derive(Debug, Clone)]
pub struct Lending {
    /// The most that the donor lends.
    pub max: String,
    /// The share or size of the disk that it always leaves free.
    pub keep_free: String,
    /// The address at which others reach the donor, if not its own.
    pub advertise: Option<String>,
    /// The directory to lend, if not one below the test's directory.
    pub dir: Option<PathBuf>,
    /// The environment variables that are set for the donor.
    pub environment: Vec<(String, String)>,
    /// The further options of `potluck lend`.
    pub options: Vec<String>,
}

impl Default for Lending {
    fn default() -> Self {
        let (advertise, dir, environment, options) = Default::default();
        let (max, keep_free) = ("1GiB".into(), "0%".into());
        Self { max, keep_free, advertise, dir, environment, options }
    }
}

struct Donor {
    running: Option<Running>,
    lent: Lent,
    lending: Lending,
    address: String,
}

/// A pool whose processes and files are gone when it is dropped. Its logs must hold no panic then.
pub struct Lab {
    /// The command line of the pool's first admin.
    pub cli: Cli,
    dir: TempDir,
    options: Vec<String>,
    environment: Vec<(String, String)>,
    manager: Option<Running>,
    address: String,
    donors: BTreeMap<String, Donor>,
}

impl Lab {
    /// Makes a directory for a pool, in which nothing runs.
    pub fn empty() -> Self {
        let dir = tempfile::Builder::new().prefix("potluck-test-").tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("logs")).expect("a directory in the test's own");
        let cli = Cli::new(dir.path());
        let (options, environment, manager, address, donors) = Default::default();
        Self { cli, dir, options, environment, manager, address, donors }
    }

    /// Starts a manager with options, and no donor.
    pub fn manager_only(options: &[&str]) -> Self {
        let mut lab = Self::empty();
        lab.options = options.iter().map(|option| option.to_string()).collect();
        lab.start_manager();
        lab
    }

    /// Starts a manager, and donors called `donor-1` and so on, all live.
    pub fn with_donors(count: usize) -> Self {
        Self::with_options(count, &[])
    }

    /// Starts a manager with options, and donors called `donor-1` and so on, all live.
    pub fn with_options(donors: usize, options: &[&str]) -> Self {
        let mut lab = Self::manager_only(options);
        for number in 1..=donors {
            lab.lend(&format!("donor-{number}"), Lending::default());
        }
        lab.wait_live();
        lab
    }

    /// Returns the directory in which the test may put what it likes.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the manager's state directory.
    pub fn manager_dir(&self) -> PathBuf {
        self.dir().join("manager")
    }

    /// Returns the address of the manager as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the process of the manager.
    pub fn manager(&mut self) -> &mut Running {
        self.manager.as_mut().expect("a manager that runs")
    }

    /// Sets a variable for a manager that starts later.
    pub fn set_manager_env(&mut self, name: &str, value: &str) {
        self.environment.push((name.into(), value.into()));
    }

    /// Starts the manager: at first on a free port, later where it was.
    pub fn start_manager(&mut self) {
        self.start_manager_with(&[]);
    }

    /// Starts the manager as [`Self::start_manager`] does, this time with further options.
    pub fn start_manager_with(&mut self, further: &[&str]) {
        if self.address.is_empty() {
            self.address = format!("127.0.0.1:{}", free_port());
        }
        let listen = self.address.as_str();
        let options = self.options.iter().map(String::as_str).chain(further.iter().copied());
        let state = self.manager_dir();
        let mut args = vec!["manager", "--state", arg(&state), "--listen", listen];
        args.extend(options);
        for (option, value) in UNLESS_SAID {
            if !args.contains(&option) {
                args.extend([option, value]);
            }
        }
        let (running, address) =
            start_daemon(&self.daemon(&self.environment), self.dir(), "manager", &args);
        self.manager = Some(running);
        self.address = address;
        self.cli = self.cli.under(&state.join("admin"));
    }

    /// Kills the manager with SIGKILL.
    pub fn kill_manager(&mut self) {
        self.manager.take().expect("a manager that runs").kill_9();
    }

    fn daemon(&self, environment: &[(String, String)]) -> Cli {
        let cli = Cli { pool: None, ..self.cli.clone() };
        environment.iter().fold(cli, |cli, (name, value)| cli.with_env(name, value))
    }

    /// Makes a token for `role`.
    #[track_caller]
    pub fn token(&self, role: &str) -> String {
        let invited = self.cli.json(&["invite", "--role", role]);
        invited["token"].as_str().expect("a token").to_owned()
    }

    /// Makes a token for `role`, and returns a file that has it.
    #[track_caller]
    pub fn token_file(&self, role: &str) -> PathBuf {
        let token = self.token(role);
        let file = self.dir().join(Digest::of(token.as_bytes()).to_string());
        fs::write(&file, token).expect("written");
        file
    }

    /// Starts a donor, which joins first.
    pub fn lend(&mut self, name: &str, lending: Lending) {
        let lent = lending.dir.clone().unwrap_or_else(|| self.dir().join(name).join("lent"));
        let donor = Donor { running: None, lent: Lent(lent), lending, address: String::new() };
        self.donors.insert(name.into(), donor);
        let token = self.token_file("donor");
        self.start_lending(name, &["--token-file", arg(&token), "--name", name]);
    }

    /// Starts a donor that others reach by way of a tap.
    pub fn lend_behind(&mut self, name: &str, tap: Tap) -> Tap {
        self.lend(name, Lending { advertise: Some(tap.address()), ..Lending::default() });
        tap.aim(self.donor_address(name));
        tap
    }

    /// Starts a donor again, with its state and its lent directory, at any port.
    pub fn start_donor(&mut self, name: &str) {
        self.start_lending(name, &[]);
    }

    fn start_lending(&mut self, name: &str, more: &[&str]) {
        let Donor { lent, lending, .. } = &self.donors[name];
        let state = self.donor_state(name);
        let mut args = vec!["lend", arg(&lent.0), "--state", arg(&state), "--max", &lending.max];
        args.extend(["--keep-free", &lending.keep_free, "--listen", "127.0.0.1:0"]);
        if let Some(advertise) = &lending.advertise {
            args.extend(["--advertise", advertise]);
        }
        args.extend(lending.options.iter().map(String::as_str));
        args.extend(more);
        let cli = self.daemon(&lending.environment);
        let (running, address) = start_daemon(&cli, self.dir(), name, &args);
        let donor = self.donors.get_mut(name).expect("a known donor");
        donor.running = Some(running);
        donor.address = address;
    }

    /// Returns the names of all donors.
    pub fn donor_names(&self) -> Vec<String> {
        self.donors.keys().cloned().collect()
    }

    /// Returns the process of a donor.
    pub fn donor(&mut self, name: &str) -> &mut Running {
        self.donors
            .get_mut(name)
            .and_then(|donor| donor.running.as_mut())
            .expect("a donor that runs")
    }

    /// Returns the address at which a donor listens.
    pub fn donor_address(&self, name: &str) -> &str {
        &self.donors[name].address
    }

    /// Returns the directory in which a donor keeps its identity and its own state.
    pub fn donor_state(&self, name: &str) -> PathBuf {
        self.dir().join(name).join("state")
    }

    /// Returns the directory on a donor's disk that it lends.
    pub fn lent(&self, name: &str) -> Lent {
        self.donors[name].lent.clone()
    }

    /// Kills a donor with SIGKILL.
    pub fn kill_donor(&mut self, name: &str) {
        let donor = self.donors.get_mut(name).expect("a known donor");
        donor.running.take().expect("a donor that runs").kill_9();
    }

    /// Returns the number of chunk files on all donors.
    pub fn chunk_files(&self) -> usize {
        self.donors.values().map(|donor| donor.lent.chunks().len()).sum()
    }

    /// Returns the names of all chunks that any donor has.
    pub fn chunk_names(&self) -> BTreeSet<std::ffi::OsString> {
        let chunks = self.donors.values().flat_map(|donor| donor.lent.chunks());
        chunks.filter_map(|path| Some(path.file_name()?.to_owned())).collect()
    }

    /// Waits until all donors are live and serve. A donor refuses everybody until it has heard from the manager that it
    /// is registered.
    #[track_caller]
    pub fn wait_live(&self) {
        wait_until("all donors to be live", DEADLINE, || {
            self.cli.live_donors().len() == self.donors.len()
        });
        wait_until("all donors to serve", DEADLINE, || {
            self.donors.values().all(|donor| knows_its_number(&donor.address))
        });
    }

    /// Waits until a donor that was restarted has told where it is now; until then the manager may
    /// still believe in its last incarnation.
    #[track_caller]
    pub fn wait_back(&self, name: &str) {
        wait_until(&format!("{name} to be back"), DEADLINE, || {
            self.cli.donor(name)["addresses"][0] == self.donors[name].address.as_str()
        });
        self.wait_live();
    }

    /// Waits until nothing is left over: no open session, no promised bytes, no temporary file, no condemned chunk, and
    /// exactly `chunks` chunk files on the donors' disks.
    #[track_caller]
    pub fn wait_clean(&self, chunks: usize) {
        self.wait_for_leftovers(&format!("of {chunks}"), |lab| lab.chunk_files() == chunks);
    }

    /// Waits as [`Lab::wait_clean`] does until exactly `chunks` different chunks are left, where a chunk may have more
    /// copies than it needs, for having been sent again when an answer was lost or late.
    #[track_caller]
    pub fn wait_left(&self, chunks: usize) {
        let wanted = format!("of {chunks} different chunks");
        self.wait_for_leftovers(&wanted, |lab| lab.chunk_names().len() == chunks);
    }

    /// Waits as [`Lab::wait_left`] does, where it does not matter how many chunks are left.
    #[track_caller]
    pub fn wait_settled(&self) {
        self.wait_for_leftovers("of any number", |_| true);
    }

    #[track_caller]
    fn wait_for_leftovers(&self, wanted: &str, is_wanted: impl Fn(&Self) -> bool) {
        let mut found = String::new();
        let clean = || {
            let status = self.cli.status();
            let donors = status["donors"].as_array().expect("donors");
            let promised: u64 = donors.iter().filter_map(|donor| donor["promised"].as_u64()).sum();
            let temp: usize = self.donors.values().map(|donor| donor.lent.temp().len()).sum();
            let (sessions, condemned) = (&status["sessions"], &status["condemned_chunks"]);
            let files = self.chunk_files();
            found = format!(
                "{files} chunk files {wanted}, {temp} temporary files, {promised} bytes promised, \
                 {sessions} sessions, {condemned} chunks condemned"
            );
            is_wanted(self) && sessions == 0 && condemned == 0 && (temp, promised) == (0, 0)
        };
        let waited = catch_unwind(AssertUnwindSafe(|| {
            // An order to delete that a later put made void is given again after half a minute.
            wait_until("leftovers to be reclaimed", DEADLINE * 3, clean)
        }));
        if waited.is_err() {
            panic!("leftovers stay: {found}");
        }
    }

    /// Draws one of the donors.
    pub fn any_donor(&self, lots: &mut Lots) -> String {
        let names = self.donor_names();
        names[lots.below(names.len() as u64) as usize].clone()
    }

    /// Returns all that daemons and clients wrote to standard error so far, by the path of the log.
    pub fn logs(&self) -> Vec<(PathBuf, String)> {
        let dirs = ["logs", "runs"].map(|dir| self.dir().join(dir));
        let logs = dirs.iter().flat_map(|dir| super::lent::files_of(dir));
        let logs =
            logs.filter(|path| path.extension().is_some_and(|kind| kind == "log" || kind == "err"));
        logs.map(|path| {
            let text = fs::read(&path).unwrap_or_default();
            (path, String::from_utf8_lossy(&text).into_owned())
        })
        .collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.donors.clear();
        self.manager = None;
        let logs = self.logs();
        if std::thread::panicking() {
            for (path, text) in logs.iter().filter(|(_, text)| !text.is_empty()) {
                let lines: Vec<_> = text.lines().collect();
                let tail = lines[lines.len().saturating_sub(15)..].join("\n  ");
                eprintln!("{}:\n  {tail}", path.display());
            }
            return;
        }
        for (path, text) in logs {
            assert!(!text.contains("panicked"), "{}: {text}", path.display());
        }
    }
}

/// Starts a daemon, waits until it serves, and returns its process and address. Its port may be taken for a moment by
/// an outgoing connection of this machine; then the daemon is started again.
pub fn start_daemon(cli: &Cli, dir: &Path, name: &str, args: &[&str]) -> (Running, String) {
    let (log, ready) = (dir.join(format!("logs/{name}.log")), dir.join(format!("{name}.ready")));
    let _ = fs::remove_file(&ready); // an earlier run may have left one
    let started = Instant::now();
    loop {
        let output = OpenOptions::new().create(true).append(true).open(&log).expect("a log");
        let before = output.metadata().expect("metadata").len() as usize;
        let mut command = cli.command();
        command.args(args).arg("--ready-file").arg(&ready).stdout(Stdio::null()).stderr(output);
        let mut running = Running::start(&mut command);
        let mut ended = None;
        wait_until(&format!("{name} to serve"), DEADLINE, || {
            ended = running.ended();
            ended.is_some() || ready.exists()
        });
        let Some(status) = ended else { return (running, ready_address(&ready, name)) };
        let log = fs::read(&log).expect("a log");
        let said = String::from_utf8_lossy(&log[before.min(log.len())..]).into_owned();
        let taken = said.contains("in use") && started.elapsed() < DEADLINE;
        assert!(taken, "{name} ended ({status}) instead of serving: {said}");
    }
}

fn ready_address(ready: &Path, name: &str) -> String {
    let text = fs::read(ready).expect("a ready file");
    let said: Value = serde_json::from_slice(&text).expect("a ready file holds JSON");
    let address = said["address"].as_str();
    address.unwrap_or_else(|| panic!("{name} is ready without an address: {said}")).to_owned()
}

/// Returns whether a donor looks at tickets, which it does once it is registered: it refuses a ticket for another
/// donor, and until then cannot tell.
fn knows_its_number(address: &str) -> bool {
    let secret = Secret::from_bytes([0; 32]);
    let elsewhere = [Caveat::Donor(DonorId(u32::MAX))];
    let ticket = Ticket::issue(&secret, &SystemEntropy, &elsewhere).public;
    let (upgrade, nonce) = (version::BULK, "0".repeat(32));
    let request = format!(
        "GET /bulk HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: {upgrade}\r\n\
         potluck-ticket: {ticket}\r\npotluck-nonce: {nonce}\r\n\r\n"
    );
    let asked = TcpStream::connect(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    });
    asked.is_ok_and(|answer| answer == *b"HTTP/1.1 403")
}

/// Asks a process to end as people do, and gives its exit code.
#[track_caller]
pub fn stop(running: &mut Running, signal: Signal) -> i32 {
    running.signal(signal);
    code_of(running.end("a process that was asked to stop"))
}
