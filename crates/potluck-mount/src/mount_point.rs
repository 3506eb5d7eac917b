//! The mount point of a mount that this process serves, and whether the mount is still there.
//!
//! A connection of FUSE ends with its last mount. Another mount namespace may have a copy, which no unmounting here
//! takes away, and which a user can make without rights; so a mount that is gone from its mount point is ended here if
//! what is left of it is elsewhere.

use crate::attaching::{is_device_mounted, mounted_device};
use crate::record::MountRecord;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// The time between two checks whether `potluck umount` waits, once the mount is gone.
const LOOK: Duration = Duration::from_millis(50);
/// The time between two searches for copies of the mount, each of which reads a file for each process.
const SEARCH: Duration = Duration::from_secs(1);

/// A mount point, by what is mounted there.
pub struct MountPoint {
    dir: PathBuf,
    device: String,
    /// Tells of each change of the mounts of this namespace.
    changes: Arc<Notify>,
}

impl MountPoint {
    /// Returns the mount point `dir`, at which a pool is mounted.
    pub fn find(dir: &Path) -> io::Result<Self> {
        let mounts = File::open("/proc/self/mountinfo")?;
        let changes = Arc::new(Notify::new());
        let told = Arc::clone(&changes);
        let follow = move || {
            // Polling tells of changes only (proc_pid_mounts(5)). This ends with the process.
            while matches!(
                poll(&mut [PollFd::new(&mounts, PollFlags::PRI)], None),
                Ok(_) | Err(Errno::INTR)
            ) {
                told.notify_one();
            }
        };
        std::thread::Builder::new().name("mounts".into()).spawn(follow)?;
        let device = mounted_device(dir)?.ok_or(Errno::NOENT)?;
        Ok(Self { dir: dir.into(), device, changes })
    }

    /// Waits until the mount is gone from its mount point, and either `potluck umount` waits for its end, which unmounts
    /// only what no program of this namespace uses, or other namespaces alone have it. A mount that was detached while
    /// programs have something open in it goes on for them.
    pub async fn is_left(&self, record: &MountRecord) -> io::Result<()> {
        while mounted_device(&self.dir)?.as_ref() == Some(&self.device) {
            self.changes.notified().await;
        }
        let mut searched: Option<Instant> = None;
        loop {
            // Where nobody else has the mount, its connection ends meanwhile.
            tokio::time::sleep(LOOK).await;
            if record.is_unmounted() {
                return Ok(());
            }
            if searched.is_none_or(|at| at.elapsed() >= SEARCH) {
                searched = Some(Instant::now());
                let device = self.device.clone();
                let search = spawn_blocking(move || is_elsewhere_alone(&device));
                if search.await.map_err(io::Error::other)?? {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns whether the file system is mounted in another namespace that processes are in, and not in this one.
fn is_elsewhere_alone(device: &str) -> io::Result<bool> {
    if is_device_mounted(device, Path::new("/proc/self/mountinfo"))? {
        return Ok(false);
    }
    let processes = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    // Most of what is there is no process, and a process may have ended meanwhile.
    let mut mounts = processes.map(|process| process.join("mountinfo"));
    Ok(mounts.any(|mounts| is_device_mounted(device, &mounts).unwrap_or(false)))
}
