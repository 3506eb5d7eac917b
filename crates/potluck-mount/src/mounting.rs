//! Mounts come and go.

use crate::file_system::FileSystem;
use crate::ops::KernelRequests;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use rustix::fs::stat;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// Threads that take requests from the kernel; what they ask for is done by the runtime.
const THREADS: usize = 2;

/// How a directory of a pool is mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Other users may look in, too.
    pub allow_other: bool,
    /// Where files are kept that are not written in order, until they are closed.
    pub spool_dir: PathBuf,
}

/// A mount that serves.
pub struct Mounted {
    files: Arc<FileSystem>,
    unmounter: SessionUnmounter,
    serving: JoinHandle<io::Result<()>>,
}

/// Mounts the directory `root` of a pool at `dir`. It serves when this returns.
pub fn mount(
    pool: Pool,
    root: &PoolPath,
    dir: &Path,
    options: &MountOptions,
) -> io::Result<Mounted> {
    let spool_dir = options.spool_dir.clone();
    let files = Arc::new(FileSystem::new(pool, root.clone(), spool_dir));
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(root.to_string()),
        MountOption::Subtype("potluck".into()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    if options.read_only {
        config.mount_options.push(MountOption::RO);
    }
    if options.allow_other {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(THREADS);
    let ops = KernelRequests::new(Arc::clone(&files), Handle::current());
    let mut session = Session::new(ops, dir, &config)?;
    let unmounter = session.unmount_callable();
    let serving = spawn_blocking(move || session.run());
    Ok(Mounted { files, unmounter, serving })
}

impl Mounted {
    /// Serves until somebody unmounts the directory or `stopped` completes. What was closed is in the pool then;
    /// what was not is named in the log.
    pub async fn serve(mut self, stopped: impl Future<Output = ()>) -> io::Result<()> {
        tokio::select! {
            ended = &mut self.serving => ended.map_err(io::Error::other)??,
            () = stopped => self.unmounter.unmount()?,
        }
        self.files.tell_unpublished().await;
        Ok(())
    }
}

/// Whether a directory of a pool is mounted at `dir`, served or not.
pub fn is_mounted(dir: &Path) -> io::Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let shown = dir.display().to_string().replace('\\', "\\134").replace(' ', "\\040");
    Ok(mounts.lines().any(|line| {
        let at = line.split(' ').nth(4);
        // Root mounts without fusermount3, and the kernel then shows no subtype.
        let is_pool = |(_, kind): (&str, &str)| {
            let mut words = kind.split(' ');
            words.next().is_some_and(|kind| kind == "fuse" || kind == "fuse.potluck")
                && words.next().is_some_and(PoolPath::is_pool_path)
        };
        at == Some(shown.as_str()) && line.split_once(" - ").is_some_and(is_pool)
    }))
}

/// Takes away the mount at `dir` of a process that is gone; whether there was one.
pub fn detach_stale(dir: &Path) -> io::Result<bool> {
    if !matches!(stat(dir), Err(Errno::NOTCONN)) {
        return Ok(false);
    }
    unmount_with(dir, &["-u", "-z"])?;
    Ok(true)
}

/// Unmounts `dir`.
///
/// Errors: [`io::ErrorKind::ResourceBusy`] while a program has something open in it.
pub fn unmount(dir: &Path) -> io::Result<()> {
    unmount_with(dir, &["-u"])
}

fn unmount_with(dir: &Path, flags: &[&str]) -> io::Result<()> {
    let ran = Command::new("fusermount3").args(flags).arg("--").arg(dir).output()?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(match said.contains("busy") {
        true => io::Error::new(io::ErrorKind::ResourceBusy, said),
        false => io::Error::other(said),
    })
}
