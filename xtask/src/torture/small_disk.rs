//! File systems that really fill up: each is a tmpfs of limited size, which takes root to mount.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

/// The name of somebody else's file on the disk.
const FOREIGN: &str = "somebody-elses";

/// A mounted file system, which is unmounted when this is dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a file system of `bytes` at `dir`; `None` if that is not possible.
    pub fn mount(dir: &Path, bytes: u64) -> Result<Option<Self>> {
        fs::create_dir_all(dir)?;
        let options = format!("size={bytes}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir);
        let mounted = mount.output().is_ok_and(|out| out.status.success());
        Ok(mounted.then(|| Self(dir.to_owned())))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The unmount is lazy, for the donor may still run.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Fills the disk at `dir` with somebody else's file, but for about `left` bytes.
pub fn fill(dir: &Path, left: u64) -> io::Result<()> {
    let mut foreign = fs::File::create(dir.join(FOREIGN))?;
    let block = vec![1; 64 << 10];
    loop {
        match foreign.write(&block) {
            Ok(_) => {}
            Err(why) if why.kind() == io::ErrorKind::StorageFull => break,
            Err(why) => return Err(why),
        }
    }
    let len = foreign.metadata()?.len();
    foreign.set_len(len.saturating_sub(left))
}

/// Removes what [`fill`] wrote.
pub fn relieve(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(FOREIGN)) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
