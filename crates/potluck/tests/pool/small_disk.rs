//! Disks small enough to be filled.

use super::waiting::{is_root, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system, unmounted when dropped: before the pool above it, for it is made later, so
/// that the pool's directory can be removed.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one with these options; says why where that is not possible.
    pub fn mount(test: &str, dir: PathBuf, options: &str) -> Option<Self> {
        if !is_root() {
            skip(test, "mounting a small file system needs root");
            return None;
        }
        fs::create_dir_all(&dir).expect("a directory in the test's own");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&dir);
        match command.output() {
            Ok(out) if out.status.success() => Some(Self(dir)),
            Ok(out) => {
                skip(test, &format!("mount: {}", String::from_utf8_lossy(&out.stderr).trim()));
                None
            }
            Err(why) => {
                skip(test, &format!("mount: {why}"));
                None
            }
        }
    }

    /// Returns the directory at which the disk is mounted.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: its donor still runs.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
