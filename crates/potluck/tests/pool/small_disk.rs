//! Makes disks that are small enough to be filled.

use super::waiting::{has_program, is_root, skip};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that makes a file system on a file.
const MAKES_EXT4: &str = "mkfs.ext4";

/// A small file system that is unmounted when dropped. It is made after the pool and so dropped before it, so that the
/// pool's directory can be removed.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a tmpfs with these options, or says why that is not possible.
    pub fn mount(test: &str, dir: PathBuf, options: &str) -> Option<Self> {
        Self::mounted(test, dir, &["-t", "tmpfs", "-o", options, "tmpfs"])
    }

    /// Mounts ext4 of `bytes` bytes on a loop device over a sparse file beside `dir`, or says why that is not possible.
    pub fn of_a_loop_device(test: &str, dir: PathBuf, bytes: u64) -> Option<Self> {
        if !has_program(MAKES_EXT4) {
            skip(test, "mkfs.ext4 is not here");
            return None;
        }
        let image = dir.with_extension("image");
        let made = File::create(&image).and_then(|file| file.set_len(bytes));
        made.expect("a file in the test's own directory");
        // No room is kept for root, for tests run as root.
        let formatted = Command::new(MAKES_EXT4).args(["-q", "-F", "-m", "0"]).arg(&image).output();
        let formatted = formatted.expect("a program that is here");
        assert!(formatted.status.success(), "{}", String::from_utf8_lossy(&formatted.stderr));
        let image = image.to_str().expect("test paths are UTF-8");
        Self::mounted(test, dir, &["-o", "loop", image])
    }

    fn mounted(test: &str, dir: PathBuf, what: &[&str]) -> Option<Self> {
        if !is_root() {
            skip(test, "mounting a small file system needs root");
            return None;
        }
        fs::create_dir_all(&dir).expect("a directory in the test's own");
        match Command::new("mount").args(what).arg(&dir).output() {
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
        // The unmount is lazy, for a donor may still run on the disk.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
