//! The daemon that serves a mount. A command starts it, and waits until the directory is mounted.
//!
//! The daemon is a new process of this program with the same arguments. It has a session of its own, logs to a file,
//! and reports on its standard output how the start ended, after which the command ends.

use super::{MountServes, announce, attach, serve as serve_mount};
use crate::args::{MountArgs, START_REPORT};
use crate::cmd::Ending;
use crate::command_settings::CommandSettings;
use crate::output::Output;
use crate::signals;
use potluck_client::Pool;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::private_dir;
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// The size of a log in bytes beyond which the next daemon begins a new one.
const OLD_LOG: u64 = 1 << 20;
/// The number of lines of the log that are shown if a daemon ended without a report.
const SHOWN: usize = 5;

/// The report of a daemon about its start.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartReport {
    /// The directory is mounted.
    Serves(MountServes),
    /// Nothing was mounted.
    Failed(Failure),
}

/// A guard for a daemon that is starting. On drop it asks the daemon to end, unless the number is `None`.
struct StartingDaemon(Option<Pid>);

impl Drop for StartingDaemon {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Starts the daemon with the arguments of this command, and waits until it serves.
pub async fn start(
    settings: &CommandSettings,
    output: &Output,
    dir: &Path,
) -> Result<Ending, Failure> {
    let log = log_of(settings, dir);
    let failed = |why: io::Error| {
        let what = format!("cannot start a daemon that logs to {}: {why}", log.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what).hint("--foreground needs no log file")
    };
    let log_file = open_log(&log).map_err(failed)?;
    keep_inherited_files();
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(std::env::args_os().skip(1)).env(START_REPORT, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
    let mut daemon = command.spawn().map_err(failed)?;
    let pid = daemon.id().and_then(|pid| Pid::from_raw(pid as i32));
    let mut starting = StartingDaemon(pid);
    let mut line = String::new();
    let said = daemon.stdout.take().expect("it is a pipe");
    BufReader::new(said).read_line(&mut line).await.map_err(failed)?;
    match serde_json::from_str(&line) {
        Ok(StartReport::Serves(serves)) => {
            starting.0 = None;
            output.result(&serves, |serves| {
                format!(
                    "{} is mounted at {}; its log is {}",
                    serves.path,
                    dir.display(),
                    log.display()
                )
            });
            Ok(Ending::Done)
        }
        Ok(StartReport::Failed(failure)) => {
            starting.0 = None;
            let _ = daemon.wait().await;
            Err(failure)
        }
        Err(_) => {
            let ended = daemon.wait().await.map_err(failed)?;
            starting.0 = None;
            let what = format!("the daemon ended ({ended}) before it served: {}", last_of(&log));
            Err(Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
                .hint(format!("its log is {}", log.display())))
        }
    }
}

/// Serves a mount as the daemon that a command started.
pub async fn serve(
    args: MountArgs,
    client: &Pool,
    settings: &CommandSettings,
    dir: &Path,
) -> Result<Ending, Failure> {
    // The daemon leaves the session of the terminal that the command was started from. This fails if it leads a
    // session already.
    let _ = rustix::process::setsid();
    let (stopped, _hangups) = signals::daemon_signals();
    let mounted = match attach(&args, client, settings, dir) {
        Ok(mounted) => mounted,
        Err(failure) => {
            let kind = failure.kind;
            report(&StartReport::Failed(failure));
            return Ok(Ending::Said(kind));
        }
    };
    let log = log_of(settings, dir);
    tracing::info!("{} is mounted at {}", args.path, dir.display());
    let announced = announce(&args, dir, Some(log));
    // The daemon must not keep the directory busy in which it was started.
    let _ = std::env::set_current_dir("/");
    let is_told = announced.is_ok();
    report(&announced.map_or_else(StartReport::Failed, StartReport::Serves));
    let stopped = async {
        if is_told {
            stopped.await;
        }
    };
    let ended = serve_mount(mounted, client, settings, stopped, dir).await;
    match &ended {
        Ok(_) => tracing::info!("{} is unmounted", dir.display()),
        Err(failure) => tracing::error!("{failure}"),
    }
    ended
}

/// Keeps the daemon from inheriting open files of this process, because it would keep a lock or a pipe of a script
/// open.
fn keep_inherited_files() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number > 2) {
        // SAFETY: it is used for this call alone, which fails where the number is none of an open file any more.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(file, FdFlags::CLOEXEC);
    }
}

/// Sends the report to the command that waits, if it still does, and closes the pipe to it.
fn report(report: &StartReport) {
    let mut line = serde_json::to_vec(report).expect("plain data");
    line.push(b'\n');
    let _ = io::stdout().write_all(&line).and_then(|()| io::stdout().flush());
    if let Ok(nothing) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(nothing);
    }
}

fn log_of(settings: &CommandSettings, dir: &Path) -> PathBuf {
    settings.state_dir.join("mounts").join(format!("{}.log", potluck_mount::mount_name(dir)))
}

/// Opens a log to append to it. A log that has grown too large is renamed first.
fn open_log(log: &Path) -> io::Result<fs::File> {
    private_dir::make(log.parent().expect("it is in a directory"))?;
    if fs::metadata(log).is_ok_and(|log| log.len() > OLD_LOG) {
        fs::rename(log, log.with_extension("log.old"))?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(log)
}

/// Returns the last lines of a daemon's log.
fn last_of(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("; ")
}
