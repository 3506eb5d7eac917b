//! Which daemon runs on a state directory, and how it is told to read its settings again.
//!
//! A daemon holds a lock on `daemon.json` in its state directory for as long as it runs, and says there
//! who it is and what became of its settings. Whoever finds the file unlocked knows that nobody runs: a
//! signal never reaches a stranger that was given the number of a daemon that ended.

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
/// How long a daemon may take to read its settings.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time from one look at what the daemon says to the next.
const LOOK: Duration = Duration::from_millis(20);
/// Whoever looks whether a daemon runs holds the lock for a moment.
const TRIES: u32 = 50;

/// The facts that a daemon tells of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The number of the daemon's process.
    pub pid: u32,
    /// The address at which it listens, once it does.
    pub address: Option<SocketAddr>,
    /// How often it has read its settings again.
    pub reloads: u64,
    /// The fault of its settings the last time, if they had one; then it goes by those of before.
    pub refused: Option<String>,
    /// The notes for whoever changed them.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Held by a daemon while it runs.
#[derive(Debug)]
pub struct Running {
    file: File,
    path: PathBuf,
    said: Said,
}

impl Running {
    /// Takes the state directory `dir` for this process.
    ///
    /// Errors: another daemon has it.
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

    /// Says that the daemon serves at `address` from now on.
    pub fn serves(&mut self, address: SocketAddr) {
        self.say(|said| said.address = Some(address));
    }

    /// It has read its settings again, or could not; whoever changed them is told.
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
        // It is written in place, for the lock is on this file. A half-written text does not parse and
        // is read again.
        let written = self.file.set_len(0).and_then(|()| self.file.write_all_at(&text, 0));
        if let Err(why) = written {
            tracing::warn!("cannot write {}: {why}", self.path.display());
        }
    }
}

/// Logs what became of the settings of all daemons in one process, after a hangup.
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

/// Which daemon runs on the state directory `dir`, if one does.
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
            // The text is not written yet, or being written: the daemon runs all the same.
            let said = std::fs::read(&path)?;
            Ok(Some(serde_json::from_slice(&said).unwrap_or_default()))
        }
        Err(TryLockError::Error(why)) => Err(why),
    }
}

/// The outcome of a change of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// No daemon runs that could be told.
    Nobody,
    /// It goes by them; with what one should know.
    Took(Vec<String>),
    /// The daemon goes by its earlier settings, for this reason.
    Refused(String),
    /// It could not be told, or did not answer.
    Unheard(String),
}

/// Has the daemon on the state directory `dir`, if one runs, read its settings again.
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
