//! Measures checkpoints: a program writes one large file from the beginning to the end and closes it (checkpoint
//! store, section V).

pub mod overhead;
pub mod protocols;
pub mod rewrite;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::NFS_SUPER_MAGIC;
use rustix::io::Errno;

use crate::content;
use crate::interrupt;
use crate::plan::Plan;

/// The size of one write(), in bytes.
const BLOCK: usize = 1 << 20;
/// The size of the pieces, in bytes, in each of which any two checkpoints differ. Chunks are at least as large.
const PIECE: usize = 16 << 10;
/// The time within which a checkpoint is stored.
const STORED_WITHIN: Duration = Duration::from_secs(300);
const MIB: f64 = (1 << 20) as f64;

/// The memory that a program checkpoints.
pub struct Memory {
    bytes: Vec<u8>,
    checkpoints: u64,
}

impl Memory {
    pub fn new(name: &str, length: u64) -> Result<Self> {
        Ok(Self { bytes: content::bytes(name, length)?, checkpoints: 0 })
    }

    /// Changes the content in each of its pieces to one that it never had before.
    pub fn change(&mut self) {
        self.checkpoints += 1;
        let mark = self.checkpoints.to_le_bytes();
        for piece in self.bytes.chunks_mut(PIECE) {
            let marked = piece.len().min(mark.len());
            piece[..marked].copy_from_slice(&mark[..marked]);
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the rate in bytes a second of having written all of it in `took`.
    pub fn rate(&self, took: Duration) -> f64 {
        self.bytes.len() as f64 / took.as_secs_f64()
    }
}

/// Writes a file as a program does that checkpoints, and returns the time from before its open() until after its
/// close().
pub fn write(path: &Path, bytes: &[u8]) -> Result<Duration> {
    interrupt::check()?;
    let began = Instant::now();
    let mut file = File::create(path)?;
    for block in bytes.chunks(BLOCK) {
        file.write_all(block).with_context(|| format!("cannot write {}", path.display()))?;
    }
    close(file).with_context(|| format!("cannot close {}", path.display()))?;
    Ok(began.elapsed())
}

/// Closes a file, and returns the error of close(), which dropping it would hide.
fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is this file's own, which owns it no more.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The times that a checkpoint took, by the clock and as the mount tells them.
pub struct Written {
    /// The time until the file was closed.
    pub observed: Duration,
    /// The time until the mount said that all copies are made.
    pub achieved: Duration,
    /// The observed rate that the mount tells, in MiB/s.
    told_observed: f64,
    told_achieved: f64,
    /// The share of the file that the pool had before, as the mount tells it.
    told_held: f64,
}

/// Writes a file of a mounted pool, and waits until all copies of it are made.
pub fn write_to_pool(path: &Path, bytes: &[u8]) -> Result<Written> {
    let began = Instant::now();
    let observed = write(path, bytes)?;
    let mut told_achieved = None;
    interrupt::wait_until("all copies", STORED_WITHIN, Duration::from_millis(2), || {
        told_achieved = told(path, "user.potluck.asb")?;
        Ok(told_achieved.is_some())
    })?;
    let achieved = began.elapsed();
    let known = |name: &str| told(path, name)?.with_context(|| format!("no {name}"));
    Ok(Written {
        observed,
        achieved,
        told_observed: known("user.potluck.oab")?,
        told_achieved: told_achieved.context("no user.potluck.asb")?,
        told_held: known("user.potluck.held")?,
    })
}

/// Returns a number that a mount tells of a file in an extended attribute, if it knows it.
fn told(path: &Path, name: &str) -> Result<Option<f64>> {
    let mut value = [0; 64];
    match rustix::fs::getxattr(path, name, &mut value[..]) {
        Ok(length) => Ok(Some(std::str::from_utf8(&value[..length])?.parse()?)),
        Err(Errno::NODATA) => Ok(None),
        Err(why) => Err(why).with_context(|| format!("{name} of {}", path.display())),
    }
}

fn mib_s(bytes: &[u8], took: Duration) -> f64 {
    bytes.len() as f64 / MIB / took.as_secs_f64()
}

/// Returns the command that has the bench do this work again.
fn command(plan: &Plan, work: &str) -> String {
    let size = plan.size.to_string().replace(' ', "");
    let nfs = if plan.nfs.is_some() { " --nfs DIR" } else { "" };
    format!("cargo xtask bench --only {work} --rounds {} --size {size}{nfs}", plan.rounds)
}

/// Returns why nothing is written to NFS, or `None` if it can be.
///
/// Errors: the directory that was named is of another file system.
fn nfs_missing(plan: &Plan) -> Result<Option<&'static str>> {
    if let Some(dir) = &plan.nfs {
        let about = rustix::fs::statfs(dir);
        let about = about.with_context(|| format!("cannot look at {}", dir.display()))?;
        ensure!(about.f_type == NFS_SUPER_MAGIC, "{} is no NFS mount", dir.display());
        return Ok(None);
    }
    let known = fs::read_to_string("/proc/filesystems").context("cannot read /proc/filesystems")?;
    let is_known = known.lines().any(|line| line.ends_with("\tnfs4"));
    Ok(Some(match is_known {
        true => "give a directory of an NFS mount (--nfs DIR)",
        false => "this kernel has no NFS (nfs4 is not in /proc/filesystems)",
    }))
}
