//! Finds the daemon that runs on a state directory, and has it read its settings again.
//!
//! A daemon holds a lock on `daemon.json` in its state directory while it runs, and writes its process number
//! and the outcome of reading its settings to it. An unlocked file means that no daemon runs, so that a signal
//! never reaches another process that got the number of a daemon that ended.

use crate::keys::Daemon;
use potluck_wire::error::{ErrorKind, Failure, code};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "daemon.json";
/// How long a daemon may take to read its settings again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time from one look at the file, or try to lock it, to the next.
const LOOK: Duration = Duration::from_millis(20);
/// The number of further tries to lock the file: a process that looks for a daemon holds the lock for a moment.
const TRIES: u32 = 50;

/// The facts that a daemon writes to its file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The number of the daemon's process.
    pub pid: u32,
    /// The address at which it listens, once it does.
    pub address: Option<SocketAddr>,
    /// The number of times that it was asked to read its settings again, and did or failed.
    pub reloads: u64,
    /// The fault of its settings the last time, if they had one; then it keeps its earlier settings.
    pub refused: Option<String>,
    /// The notes for the user who changed the settings.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The directories that it lends, after it read its settings again.
    #[serde(default)]
    pub lent: Vec<PathBuf>,
}

/// The lock and the file of a daemon, held while it runs.
#[derive(Debug)]
pub struct Running {
    file: File,
    path: PathBuf,
    said: Said,
}

impl Running {
    /// Locks the state directory `dir` for this process.
    ///
    /// Errors: another daemon runs on it; the file cannot be written.
    pub async fn take(daemon: Daemon, dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(FILE);
        let failed = |why: io::Error| {
            let what = format!("cannot write {}: {why}", path.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        let mut tries = 0;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tries < TRIES => tries += 1,
                Err(TryLockError::WouldBlock) => {
                    let (name, dir) = (daemon.name(), dir.display());
                    let what = format!("another {name} is running on {dir}");
                    return Err(Failure::new(ErrorKind::Conflict, code::EXISTS, what)
                        .hint("stop it first, or give --state with another directory"));
                }
                Err(TryLockError::Error(why)) => return Err(failed(why)),
            }
            tokio::time::sleep(LOOK).await;
        }
        let said = Said { pid: std::process::id(), ..Said::default() };
        let mut running = Self { file, path, said };
        running.say(|_| {});
        Ok(running)
    }

    /// Notes that the daemon serves at `address` from now on.
    pub fn serves(&mut self, address: SocketAddr) {
        self.say(|said| said.address = Some(address));
    }

    /// Notes which directories the daemon lends.
    pub fn lends(&mut self, dirs: Vec<PathBuf>) {
        self.said.lent = dirs;
    }

    /// Notes that the daemon has read its settings again, or could not, for the command that asked for it.
    pub fn reloaded(
        &mut self,
        done: Result<(), Failure>,
        notes: Vec<String>,
    ) -> Result<(), Failure> {
        self.say(|said| {
            said.reloads += 1;
            said.notes = notes;
            said.refused = done.as_ref().err().map(|why| why.message.clone());
        });
        done
    }

    fn say(&mut self, change: impl FnOnce(&mut Said)) {
        change(&mut self.said);
        let mut text = serde_json::to_vec(&self.said).expect("plain data");
        text.push(b'\n');
        // The file is written in place, because the lock is on it. A reader of a half-written text cannot
        // parse it, and reads again.
        let written = self.file.set_len(0).and_then(|()| self.file.write_all_at(&text, 0));
        if let Err(why) = written {
            tracing::warn!("cannot write {}: {why}", self.path.display());
        }
    }
}

/// Logs the outcome of reading the settings of all daemons in this process again, after a hangup.
pub fn tell_reloaded(all: impl IntoIterator<Item = Result<(), Failure>>) {
    let refused: Vec<_> = all.into_iter().filter_map(Result::err).collect();
    if refused.is_empty() {
        tracing::info!("the settings were read again");
    }
    for why in refused {
        let hint = if why.hint.is_empty() { String::new() } else { format!(": {}", why.hint) };
        tracing::error!("the settings stay as they were: {why}{hint}");
    }
}

/// Returns the facts of the daemon that runs on the state directory `dir`, if one does.
pub fn find(dir: &Path) -> io::Result<Option<Said>> {
    let path = dir.join(FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(why),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => {
            // The daemon runs, even if its text is not written yet or is being written.
            let said = std::fs::read(&path)?;
            Ok(Some(serde_json::from_slice(&said).unwrap_or_default()))
        }
        Err(TryLockError::Error(why)) => Err(why),
    }
}

/// The outcome of asking a daemon to read its settings again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// No daemon runs.
    Nobody,
    /// The daemon uses the new settings. It has these notes for the user.
    Took(Vec<String>),
    /// The daemon keeps its earlier settings, for this reason.
    Refused(String),
    /// The daemon could not be asked or did not answer, for this reason.
    Unheard(String),
}

/// Has the daemon that runs on the state directory `dir`, if one does, read its settings again.
pub async fn reload(dir: &Path) -> Told {
    let unheard = |why: String| Told::Unheard(why);
    let before = match find(dir) {
        Ok(None) => return Told::Nobody,
        Ok(Some(said)) => said,
        Err(why) => return unheard(why.to_string()),
    };
    let Some(pid) = i32::try_from(before.pid).ok().and_then(Pid::from_raw) else {
        return unheard("it is just starting".into());
    };
    if let Err(why) = kill_process(pid, Signal::HUP) {
        return unheard(why.to_string());
    }
    let answered = async {
        loop {
            match find(dir) {
                Ok(Some(said)) if said.pid == before.pid && said.reloads > before.reloads => {
                    let took = Told::Took(said.notes);
                    return said.refused.map_or(took, Told::Refused);
                }
                Ok(None) => return Told::Nobody,
                Ok(Some(_)) | Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    };
    tokio::time::timeout(ANSWER_TIMEOUT, answered)
        .await
        .unwrap_or_else(|_| unheard("it did not answer in time".into()))
}
