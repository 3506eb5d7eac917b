//! Mounts file systems for a while: spaces of a pool, and the bench's own floors.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustix::process::{Pid, Signal};

use crate::interrupt;
use crate::measure;
use crate::pool::Pool;

const MOUNTED_WITHIN: Duration = Duration::from_secs(20);

/// Returns why this machine mounts nothing, or `None` if it does.
pub fn missing() -> Option<&'static str> {
    match () {
        () if !Path::new("/dev/fuse").exists() => Some("there is no /dev/fuse"),
        () if !is_installed("fusermount3") => {
            Some("fusermount3 is missing (Debian: apt-get install fuse3)")
        }
        () => None,
    }
}

/// Returns whether a program is found on the path.
pub fn is_installed(program: &str) -> bool {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs).any(|dir| dir.join(program).is_file())
}

/// What a file system of the bench does with the bytes that it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FuseFloor {
    /// Writes them to a local directory.
    PassThrough,
    /// Copies them to memory, and forgets them.
    Null,
}

/// A mounted file system, which is unmounted when this is dropped.
pub struct Mounted {
    child: Child,
    /// The directory where it is mounted.
    pub dir: PathBuf,
}

impl Mounted {
    /// Mounts a floor, in directories of its own below `dir`.
    pub fn floor(dir: &Path, floor: FuseFloor) -> Result<Self> {
        let (name, source, at) = match floor {
            FuseFloor::PassThrough => ("pass-through", "local", "passed-through"),
            FuseFloor::Null => ("null", "forgotten", "null"),
        };
        let (source, at) = (dir.join(source), dir.join(at));
        fs::create_dir(&source)?;
        let bench = std::env::current_exe().context("cannot find the bench's own program")?;
        let mut command = Command::new(bench);
        command.args(["floor", "pass-through", name]).arg(&source).arg(&at);
        Self::start(command, at)
    }

    /// Mounts a space of a pool at a directory that does not exist yet, also while it is mounted elsewhere, with these
    /// options of `potluck mount`.
    pub fn pool(pool: &Pool, space: &str, at: PathBuf, options: &[&str]) -> Result<Self> {
        let mut command = pool.client();
        command.args(["mount", "--foreground", "--again"]).args(options);
        command.arg(format!("pot://{space}")).arg(&at);
        Self::start(command, at)
    }

    fn start(mut command: Command, dir: PathBuf) -> Result<Self> {
        fs::create_dir(&dir)?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut mounted = Self { child: measure::spawn(&mut command)?, dir };
        let parent = fs::metadata(mounted.dir.join(".."))?;
        interrupt::wait_until("the mount", MOUNTED_WITHIN, Duration::from_millis(20), || {
            if let Some(ended) = mounted.child.try_wait()? {
                bail!("{command:?} ended ({ended})");
            }
            Ok(fs::metadata(&mounted.dir)?.dev() != parent.dev())
        })?;
        Ok(mounted)
    }

    /// Returns the number of the process that serves it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut unmount = Command::new("fusermount3");
        // If its process has ended, nothing is mounted any more.
        let _ = unmount.args(["-q", "-u", "-z"]).arg(&self.dir).status();
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
