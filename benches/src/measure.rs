//! Measures the costs of a process: wall time, CPU time and memory, each from the kernel's own account of
//! that process.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::interrupt;

/// The time after which a measured command counts as stuck: a bench that hangs says nothing.
const STUCK_AFTER: Duration = Duration::from_secs(900);

/// The wall and CPU time of one piece of work, over every process that took part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub wall: Duration,
    pub cpu: Duration,
}

/// A command that ran to its end and succeeded.
pub struct Finished {
    pub cost: Cost,
    /// The most memory that the command had in use, in bytes.
    pub peak_rss: u64,
    pub stdout: String,
}

/// Starts `command` so that it cannot outlive the bench, however the bench ends.
pub fn spawn(command: &mut Command) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec the closure makes one prctl call, which is async-signal-safe, and allocates nothing.
    unsafe {
        command
            .pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))
}

/// Runs `command` to its end. A failure carries what it wrote to stderr.
pub fn run(command: &mut Command) -> Result<Finished> {
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let started = Instant::now();
    let child = spawn(command)?;
    let ended = wait(child, started).with_context(|| format!("while running {command:?}"))?;
    if ended.status != 0 {
        bail!("{command:?} {}\n{}", describe(ended.status), text(&mut stderr)?.trim_end());
    }
    Ok(Finished { cost: ended.cost, peak_rss: ended.peak_rss, stdout: text(&mut stdout)? })
}

fn text(file: &mut fs::File) -> Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A child as `wait4` reported it.
pub struct Ended {
    pub cost: Cost,
    pub peak_rss: u64,
    status: i32,
}

impl Ended {
    pub fn success(&self) -> bool {
        self.status == 0
    }
}

/// Waits for `child`, started at `started`, and reaps it. Kills it when the bench is interrupted or it is stuck.
pub fn wait(mut child: Child, started: Instant) -> Result<Ended> {
    // The pidfd tells of the end at once, and polling the process would cost the processor that is being measured.
    let pidfd = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let verdict = loop {
        if readable_within(&pidfd, Duration::from_millis(200))? {
            break Ok(started.elapsed());
        }
        if let Err(interrupted) = interrupt::check() {
            break Err(interrupted);
        }
        if started.elapsed() > STUCK_AFTER {
            break Err(anyhow::anyhow!("no end after {} s: stuck", STUCK_AFTER.as_secs()));
        }
    };
    if verdict.is_err() {
        child.kill()?;
    }
    let (status, usage) = reap(child.id())?;
    let cpu = duration(usage.ru_utime) + duration(usage.ru_stime);
    // A child starts on the memory of the process that forked it and Linux counts that, so `ru_maxrss` is never
    // below the bench's own few MiB.
    Ok(Ended {
        cost: Cost { wall: verdict?, cpu },
        peak_rss: usage.ru_maxrss as u64 * 1024,
        status,
    })
}

fn readable_within(pidfd: &rustix::fd::OwnedFd, timeout: Duration) -> Result<bool> {
    use std::os::fd::AsRawFd;
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd, owned by this frame.
    let ready = unsafe { libc::poll(&mut poll, 1, timeout.as_millis() as i32) };
    if ready < 0 {
        let error = std::io::Error::last_os_error();
        ensure!(error.kind() == std::io::ErrorKind::Interrupted, error);
    }
    Ok(ready > 0)
}

fn reap(pid: u32) -> Result<(i32, libc::rusage)> {
    loop {
        let mut status = 0;
        // SAFETY: all zeroes is a valid rusage, which is plain integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to locals that outlive the call; the pid is a child of ours that nobody else reaps.
        let reaped = unsafe { libc::wait4(pid as libc::pid_t, &mut status, 0, &mut usage) };
        if reaped > 0 {
            return Ok((status, usage));
        }
        let error = std::io::Error::last_os_error();
        ensure!(error.kind() == std::io::ErrorKind::Interrupted, error);
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

fn describe(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        format!("died of signal {}", libc::WTERMSIG(status))
    } else {
        format!("ended with exit code {}", libc::WEXITSTATUS(status))
    }
}

/// Returns the CPU time that a running process has used, threads that have ended included, to the nanosecond
/// (`/proc/PID/stat` counts in ticks of 10 ms, and `/proc/PID/task/*/schedstat` forgets a thread when it ends).
pub fn cpu_of(pid: u32) -> Result<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write one local each through a valid pointer.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) != 0
            || libc::clock_gettime(clock, &mut time) != 0
    };
    ensure!(!failed, "process {pid} is gone: its CPU time cannot be read");
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The memory of a running process, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// The bytes that are its own now. Pages of files are the page cache's, which gives them to whoever needs them.
    pub private: u64,
    /// The most that was resident, pages of files as well.
    pub peak: u64,
}

pub fn resident(pid: u32) -> Result<Resident> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line
            .and_then(|rest| rest.trim().strip_suffix(" kB"))
            .and_then(|kib| kib.trim().parse::<u64>().ok());
        kib.map(|kib| kib * 1024).with_context(|| format!("{path} has no {name} in kB"))
    };
    Ok(Resident { private: field("RssAnon:")?, peak: field("VmHWM:")? })
}
