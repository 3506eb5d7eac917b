//! File systems that really fill up: a tmpfs of limited size, which takes root.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

/// The name of somebody else's files on the disk.
const FOREIGN: &str = "somebody-elses";

/// A mounted file system, unmounted when dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of `bytes` at `dir`; `None` where that is not possible.
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
        // The unmount is lazy, for its donor may still run.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Somebody else takes everything on the disk at `dir` but about `left` bytes.
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

/// Removes what [`fill`] wrote, as somebody else would.
pub fn relieve(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(FOREIGN)) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
