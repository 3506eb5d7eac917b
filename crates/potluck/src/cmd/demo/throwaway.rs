//! A pool of real processes that ends with the process that owns it.

use potluck_client::Pool;
use potluck_config::own_pools;
use potluck_wire::control::{DonorState, Invite, PoolStatus, Status};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::{Child, Command};

const DONORS: usize = 4;
/// How long a process may take to be ready.
const START: Duration = Duration::from_secs(20);
/// The time between two looks whether it is ready.
const LOOK: Duration = Duration::from_millis(10);

/// The processes of a pool and their directory. [`ThrowawayPool::close`] ends the processes and removes the files. If
/// it is dropped, or the owning process dies, the processes are killed as well.
pub struct ThrowawayPool {
    dir: TempDir,
    manager: Option<Child>,
    donors: BTreeMap<String, Child>,
}

impl ThrowawayPool {
    /// Makes a temporary directory for the pool, below `dir` if given.
    pub fn new(dir: Option<&Path>) -> Result<Self, Failure> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("potluck-demo-");
        let made = match dir {
            Some(dir) => builder.tempdir_in(dir),
            None => builder.tempdir(),
        };
        let dir = made.map_err(|error| {
            Failure::new(
                ErrorKind::Other,
                code::LOCAL_IO,
                format!("cannot make a temporary directory: {error}"),
            )
            .hint("give a writable one with --dir")
        })?;
        Ok(Self { dir, manager: None, donors: BTreeMap::new() })
    }

    /// Returns the directory of the pool's files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a manager and donors, each with room for `bytes` twice.
    pub async fn start(&mut self, bytes: u64) -> Result<Pool, Failure> {
        let state = self.dir.path().join("manager");
        let manager =
            self.spawn(&["manager", "--listen", "127.0.0.1:0", "--name", "demo"], &state)?;
        let manager = self.manager.insert(manager);
        ready(&ready_file(&state), manager).await?;

        let identity = own_pools::load_identity(&state.join("admin"))?;
        let client = Pool::new(Env::system(), own_pools::caller(&identity)?);
        let unusable = |error: std::io::Error| {
            let what = format!("cannot write in the demo's directory: {error}");
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        };
        let max = (2 * bytes + (1 << 30)).to_string();
        for number in 1..=DONORS {
            let invite = Invite { role: Role::Donor, ttl_seconds: 60, name: None };
            let secret = client.call(&invite).await?.secret;
            let manager = identity.about.manager.clone();
            let token = identity.token(manager, Role::Donor, secret);
            let name = format!("donor-{number}");
            let state = self.dir.path().join(&name);
            let token_file = self.dir.path().join(format!("{name}.token"));
            // The directory is this user's alone, and the command lines of processes are everybody's to read.
            std::fs::write(&token_file, token.to_string()).map_err(unusable)?;
            let lent = state.join("lent").display().to_string();
            let child = self.spawn(
                &[
                    "lend",
                    &lent,
                    "--max",
                    &max,
                    "--keep-free",
                    "1%",
                    "--name",
                    &name,
                    "--listen",
                    "127.0.0.1:0",
                    "--token-file",
                    &token_file.display().to_string(),
                ],
                &state,
            )?;
            self.donors.insert(name, child);
        }
        self.wait_for_donors(&client).await?;
        Ok(client)
    }

    fn spawn(&self, args: &[&str], state: &Path) -> Result<Child, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                ErrorKind::Other,
                code::LOCAL_IO,
                format!("cannot start a process: {error}"),
            )
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .args(args)
            .arg("--quiet")
            .arg("--state")
            .arg(state)
            .arg("--ready-file")
            .arg(ready_file(state))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Ctrl-C must reach only the demo, which then ends the other processes.
            .process_group(0)
            .kill_on_drop(true);
        // SAFETY: prctl is async-signal-safe, and nothing else happens between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let kill = Some(rustix::process::Signal::KILL);
                Ok(rustix::process::set_parent_process_death_signal(kill)?)
            });
        }
        std::fs::create_dir_all(state).map_err(failed)?;
        command.spawn().map_err(failed)
    }

    async fn wait_for_donors(&mut self, client: &Pool) -> Result<(), Failure> {
        for (name, child) in &mut self.donors {
            ready(&ready_file(&self.dir.path().join(name)), child).await?;
        }
        let all_live = async {
            loop {
                let status = client.call(&Status {}).await?;
                let live = status.donors.iter().filter(|donor| donor.state == DonorState::Live);
                if live.count() >= DONORS {
                    return Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(START, all_live).await.unwrap_or_else(|_| Err(too_slow("the donors")))
    }

    /// Kills the donor that holds most with SIGKILL, and returns its name.
    pub async fn kill_fullest(&mut self, status: &PoolStatus) -> Result<String, Failure> {
        let fullest = status.donors.iter().max_by_key(|donor| donor.used);
        let name = fullest.map(|donor| donor.name.clone()).unwrap_or_default();
        if let Some(child) = self.donors.get_mut(&name) {
            child.kill().await.map_err(|error| {
                Failure::new(
                    ErrorKind::Other,
                    code::LOCAL_IO,
                    format!("cannot kill {name}: {error}"),
                )
            })?;
        }
        Ok(name)
    }

    /// Returns the CPU time that each process of the pool, and this one, has used, by process number.
    pub fn cpu_seconds(&self) -> BTreeMap<u32, Duration> {
        let children = self.donors.values().chain(&self.manager).filter_map(Child::id);
        let pids = children.chain([std::process::id()]);
        pids.filter_map(|pid| Some((pid, cpu_of(pid)?))).collect()
    }

    /// Ends all processes and removes all files.
    pub async fn close(mut self) {
        let children = std::mem::take(&mut self.donors).into_values().chain(self.manager.take());
        for mut child in children {
            let _ = child.kill().await; // fails if the process is dead already
        }
        if let Err(error) = self.dir.close() {
            tracing::warn!(%error, "the temporary directory could not be removed");
        }
    }
}

fn ready_file(state: &Path) -> PathBuf {
    state.join("ready.json")
}

async fn ready(file: &Path, child: &mut Child) -> Result<(), Failure> {
    let waiting = async {
        while !file.exists() {
            if let Ok(Some(status)) = child.try_wait() {
                let what = format!("a process of the demo ended early: {status}");
                return Err(Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
                    .hint("its own words are above"));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    };
    tokio::time::timeout(START, waiting).await.unwrap_or_else(|_| Err(too_slow("a process")))
}

fn too_slow(who: &str) -> Failure {
    let what = format!("{who} did not come up within {START:?}");
    Failure::new(ErrorKind::Retry, code::NO_MANAGER, what)
        .hint("try again when the machine is less busy")
}

/// Returns the user and system time of a process, with that of its finished threads (proc(5)).
fn cpu_of(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the command is in parentheses, and may hold spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}
