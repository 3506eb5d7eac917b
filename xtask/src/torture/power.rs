//! Disks that lose power: file systems of their own that keep only what was synced. Mounting them takes root and
//! loop devices.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::ioctl::{Setter, ioctl, opcode};

use super::process::wait_until;

/// The ioctl that ends a file system as a power cut does (`EXT4_IOC_SHUTDOWN`).
const SHUT_DOWN: u32 = opcode::read::<u32>(b'X', 125);
/// The flag of `EXT4_IOC_SHUTDOWN` by which what the journal has in memory is not written either.
const WITHOUT_THE_LOG: u32 = 2;
/// The time within which a killed process has let go of its file system.
const UNMOUNTED_WITHIN: Duration = Duration::from_secs(10);

/// Returns whether such disks can be mounted on this machine, and their power cut.
pub fn can_be_cut() -> Result<bool> {
    let dir = tempfile::tempdir()?;
    let disk = PowerDisk::mount(dir.path().join("image"), &dir.path().join("disk"), 16 << 20)?;
    Ok(disk.is_some_and(|disk| disk.cut().is_ok()))
}

/// A mounted file system in a file, unmounted when dropped.
pub struct PowerDisk {
    image: PathBuf,
    dir: PathBuf,
}

impl PowerDisk {
    /// Makes a file system of `bytes` in the file `image` and mounts it at `dir`; `None` if that is not possible.
    pub fn mount(image: PathBuf, dir: &Path, bytes: u64) -> Result<Option<Self>> {
        fs::create_dir_all(dir)?;
        File::create(&image)?.set_len(bytes)?;
        let disk = Self { image, dir: dir.to_owned() };
        let made = run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&disk.image));
        let mounted = made.is_ok() && disk.mount_again().is_ok();
        Ok(mounted.then_some(disk))
    }

    /// Returns the directory where the disk is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Cuts the power: from now on nothing reaches the disk.
    pub fn cut(&self) -> Result<()> {
        let dir = File::open(&self.dir)?;
        // SAFETY: the call reads one integer, and a file system that does not know it refuses.
        unsafe { ioctl(dir, Setter::<SHUT_DOWN, u32>::new(WITHOUT_THE_LOG)) }
            .context("cutting the power of a disk")
    }

    /// Brings the power back, once the processes that used the disk are dead. What was synced is there.
    pub fn restore(&self) -> Result<()> {
        let mut last = String::new();
        let gone = wait_until("unmounting a disk without power", UNMOUNTED_WITHIN, || {
            let unmounted = run(Command::new("umount").arg(&self.dir));
            last = unmounted.as_ref().err().map(ToString::to_string).unwrap_or_default();
            Ok(unmounted.is_ok())
        });
        gone.with_context(|| last)?;
        self.mount_again()
    }

    /// Mounts the image from a loop device of its own. `mount -o loop` would take the one from before where that is still
    /// there, and with it the file system without power: a mount namespace that another program made meanwhile keeps it.
    fn mount_again(&self) -> Result<()> {
        let made = output(Command::new("losetup").args(["--find", "--show"]).arg(&self.image))?;
        let device = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        let mounted = run(Command::new("mount").arg(&device).arg(&self.dir));
        // A device in use goes when it is unmounted.
        run(Command::new("losetup").arg("-d").arg(&device)).and(mounted)
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        // The unmount is lazy, for the process that uses the disk may still run.
        let _ = Command::new("umount").arg("-l").arg(&self.dir).output();
    }
}

fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<Output> {
    let done = command.output()?;
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(done)
}

/// Returns the lengths of all files below `dir`, by path.
pub fn lengths(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() => dirs.push(entry.path()),
                Ok(about) => drop(found.insert(entry.path(), about.len())),
                Err(_) => {}
            }
        }
    }
    found
}

/// Returns how many files are gone, or shorter than they were.
pub fn lost(before: &BTreeMap<PathBuf, u64>, after: &BTreeMap<PathBuf, u64>) -> u64 {
    let is_lost = |(path, len): &(&PathBuf, &u64)| after.get(*path).is_none_or(|now| now < *len);
    before.iter().filter(is_lost).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn unsynced_writes_are_lost_in_a_power_cut() {
        let dir = tempfile::tempdir().expect("a directory");
        let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
        let Some(disk) = PowerDisk::mount(image, &mount, 16 << 20).expect("a disk") else {
            let name = "unsynced_writes_are_lost_in_a_power_cut";
            let line = format!("SKIPPED {name}: mounting takes root and loop devices\n");
            std::io::stderr().write_all(line.as_bytes()).expect("said");
            return;
        };
        let synced = mount.join("synced");
        let mut file = File::create(&synced).expect("a file");
        file.write_all(&[1; 5000]).expect("written");
        file.sync_all().expect("synced");
        File::open(&mount).expect("the directory").sync_all().expect("synced");
        drop(file);
        fs::write(mount.join("not synced"), [2; 5000]).expect("written");
        let before = lengths(&mount);
        disk.cut().expect("a power cut");
        assert!(fs::write(mount.join("too late"), [3; 10]).is_err());
        disk.restore().expect("mounted again");
        assert_eq!(lost(&before, &lengths(&mount)), 1);
        assert_eq!(fs::read(&synced).expect("the synced file"), [1; 5000]);
        assert!(!mount.join("not synced").exists());
    }
}
