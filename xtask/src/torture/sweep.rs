//! `cargo xtask sweep`: one write and its commit, again and again, each time with another state-changing system
//! call of the manager failing, or with the manager dying there. The donor's side of a write is swept in
//! potluck-sim, whose disks are an argument.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::counts::Counts;
use super::files::{Content, Files};
use super::pool::{DEADLINE, Pool};
use super::process::{Running, wait_until};
use crate::cargo::tested_program;
use crate::scratch;

/// The system calls that change the state of a catalog. Other calls write to sockets.
const CALLS: &str =
    "pwrite64,pwritev,fsync,fdatasync,ftruncate,rename,renameat,renameat2,unlink,unlinkat";
/// The most occurrences of one call that are tried, evenly spread.
const MOST_POINTS: u64 = 12;
/// The faults at a call, in the words of strace, each with the name it is counted under.
const MODES: [(&str, &str); 3] = [
    ("signal=KILL", "kill -9 of the manager at a system call"),
    ("error=ENOSPC", "system call of the manager without space"),
    ("error=EIO", "system call of the manager with an I/O error"),
];
/// The longest that strace takes to detach from a process that is alive.
const LETTING_GO: Duration = Duration::from_secs(5);
/// The path of the one file that is written again and again.
const PATH: &str = "sweep/file";

/// Sweeps with the program built now, and prints what was done.
pub fn run() -> Result<ExitCode> {
    let counts = sweep(&tested_program()?)?;
    println!("{counts}sweep: every point kept every promise");
    Ok(ExitCode::SUCCESS)
}

/// Runs the sweep as a step of the test command. It runs beside others, so it writes to `printed`; it also says
/// there that it was skipped, if strace is missing.
pub fn test(printed: &mut Vec<u8>) -> Result<String, String> {
    if Command::new("strace").arg("--version").output().is_err() {
        printed.extend(b"SKIPPED sweep: strace is not there\n");
        return Ok("skipped: no strace".to_owned());
    }
    let counts =
        tested_program().and_then(|program| sweep(&program)).map_err(|why| format!("{why:#}"))?;
    printed.extend(counts.to_string().into_bytes());
    Ok(format!("{} points", MODES.iter().map(|(_, name)| counts.of(name)).sum::<u64>()))
}

fn sweep(program: &Path) -> Result<Counts> {
    let dir = scratch::directory("potluck-torture-").context("a temporary directory")?;
    let mut pool = Pool::start(
        program,
        dir.path(),
        &["--lease", "2s", "--gc-delay", "1s", "--resume-window", "0s", "--trash", "none"],
    )?;
    for number in 0..2 {
        let disk = dir.path().join(format!("disk-{number}"));
        fs::create_dir_all(&disk)?;
        pool.lend(disk, false)?;
    }
    pool.wait_live()?;
    pool.run(&["space", "create", "sweep", "--copies", "2", "--chunk-size", "65536"])?.ok()?;
    let mut sweep = Sweep { pool, files: Files::default(), number: 0, counts: Counts::default() };
    let outcome = sweep.all_points();
    outcome.with_context(|| format!("logs end in\n{}", sweep.pool.log_tails(12)))?;
    let panics = sweep.pool.panics()?;
    ensure!(panics.is_empty(), "the product panicked: {panics:#?}");
    Ok(sweep.counts)
}

struct Sweep {
    pool: Pool,
    files: Files,
    /// The number of the last content, which grows so that old and new differ.
    number: u64,
    counts: Counts,
}

impl Sweep {
    fn all_points(&mut self) -> Result<()> {
        let calls = self.count_calls()?;
        let points: u64 = calls.values().sum();
        ensure!(
            points >= 5,
            "a write and commit made {points} state-changing calls only: {calls:?}"
        );
        for (how, name) in MODES {
            for (call, most) in &calls {
                let step = most.div_ceil(MOST_POINTS);
                for when in (1..=*most).step_by(step as usize) {
                    let inject = format!("inject={call}:{how}:when={when}");
                    self.point(&inject).with_context(|| inject.clone())?;
                    self.counts.count(name);
                }
            }
        }
        Ok(())
    }

    /// Returns how often the manager makes each call for one write. As strace counts by thread, it is the count of
    /// the thread that makes the call most often.
    fn count_calls(&mut self) -> Result<BTreeMap<String, u64>> {
        let log = self.pool.dir().join("calls");
        let tracer =
            self.trace(&["-o", &log.display().to_string(), "-e", &format!("trace={CALLS}")])?;
        self.put()?;
        tracer.detach()?;
        let mut by_thread: BTreeMap<(String, String), u64> = BTreeMap::new();
        for line in fs::read_to_string(&log)?.lines() {
            let mut words = line.split_whitespace();
            let (Some(thread), Some(rest)) = (words.next(), words.next()) else { continue };
            if let Some((call, _)) = rest.split_once('(') {
                *by_thread.entry((thread.to_owned(), call.to_owned())).or_default() += 1;
            }
        }
        let mut calls = BTreeMap::new();
        for ((_, call), count) in by_thread {
            let most = calls.entry(call).or_default();
            *most = count.max(*most);
        }
        Ok(calls)
    }

    /// Writes once with something wrong at one call, and checks what a new manager finds afterwards.
    fn point(&mut self, inject: &str) -> Result<()> {
        let trace = inject.strip_prefix("inject=").and_then(|rest| rest.split(':').next());
        let trace = format!("trace={}", trace.context("a call")?);
        let tracer = self.trace(&["-o", "/dev/null", "-e", &trace, "-e", inject])?;
        self.put()?;
        tracer.detach()?;
        // The manager is killed, so that nothing counts that is only in its memory.
        if self.pool.has_manager() {
            self.pool.end_manager()?;
        }
        self.pool.start_manager()?;
        self.pool.wait_live()?;
        let ran = self.pool.run(&["cat", &format!("pot://{PATH}")])?;
        let seen = match ran.code {
            0 => Some(ran.stdout.as_slice()),
            3 => None,
            code => bail!("D1 is broken: {PATH} cannot be read: exit code {code}: {}", ran.stderr),
        };
        let content = self.files.check(PATH, seen);
        self.files.wrote(PATH, content.map_err(|why| anyhow::anyhow!("D1/D2 is broken: {why}"))?);
        Ok(())
    }

    /// Writes the file anew. A manager that dies of it is started again, as an init system would.
    fn put(&mut self) -> Result<()> {
        self.number += 1;
        let content = Content { number: self.number, len: 200_000 };
        let input = self.pool.dir().join("input");
        fs::write(&input, content.bytes())?;
        self.files.may_have_written(PATH, Some(content));
        let remote = format!("pot://{PATH}");
        let mut put = self.pool.begin(&["cp", &input.display().to_string(), &remote])?;
        wait_until("the write", DEADLINE, || {
            if self.pool.manager_is_dead()? {
                self.pool.start_manager()?;
            }
            put.has_ended()
        })?;
        if put.end()?.code == 0 {
            self.files.wrote(PATH, Some(content));
        }
        Ok(())
    }

    fn trace(&self, args: &[&str]) -> Result<Tracer> {
        let said = self.pool.dir().join("strace");
        let mut strace = Command::new("strace");
        let manager = self.pool.manager_id().context("a manager that runs")?;
        strace.args(["-f", "-qqq", "-p", &manager.to_string()]).args(args);
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said)?);
        let tracer = Tracer { running: Running::start(&mut strace)?, said };
        tracer.wait_attached(manager)
    }
}

/// A strace that is attached to the manager.
struct Tracer {
    running: Running,
    said: PathBuf,
}

impl Tracer {
    /// Waits until the kernel says that every thread of the manager is traced.
    fn wait_attached(mut self, manager: u32) -> Result<Self> {
        wait_until("that strace attaches", DEADLINE, || {
            if self.running.ended()?.is_some() {
                // The manager's own work came to the point before the write did, and the manager died there.
                let said = fs::read_to_string(&self.said)?;
                ensure!(said.is_empty(), "strace ended: {said}");
                return Ok(true);
            }
            let mut all = true;
            for thread in fs::read_dir(format!("/proc/{manager}/task"))? {
                let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
                all &= !status.contains("TracerPid:\t0");
            }
            Ok(all)
        })?;
        Ok(self)
    }

    fn detach(mut self) -> Result<()> {
        self.running.signal(Signal::TERM);
        // If the manager comes to the point and dies while strace lets go of it, strace waits for ever.
        let asked = Instant::now();
        wait_until("that strace ends", DEADLINE, || {
            if asked.elapsed() > LETTING_GO {
                self.running.signal(Signal::KILL);
            }
            Ok(self.running.ended()?.is_some())
        })
    }
}
