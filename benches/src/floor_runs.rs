//! Runs the programs of the floors as child processes, and adds up what both ends cost.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::content;
use crate::floor_ec;
use crate::floors;
use crate::machine;
use crate::measure::{self, Cost};

/// The floors by the names that the targets use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Floor {
    Put,
    Put2,
    Ec,
    Get,
    Cp,
}

impl Floor {
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "floor-put",
            Self::Put2 => "floor-put2",
            Self::Ec => "floor-ec",
            Self::Get => "floor-get",
            Self::Cp => "cp -r",
        }
    }

    /// Returns whether the floor, and the work compared with it, writes files.
    pub fn fills_pages(self) -> bool {
        self != Self::Get
    }
}

/// The number of sinks that floor-ec sends to.
const SHARDS: usize = floor_ec::DATA + floor_ec::PARITY;

/// Returns how many of `length` bytes each sink of floor-ec gets.
fn shard_bytes(length: u64) -> u64 {
    let group = (floor_ec::DATA * floors::CHUNK) as u64;
    let last = (length % group).div_ceil(floor_ec::DATA as u64);
    length / group * floors::CHUNK as u64 + last
}

fn length(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path)?.len())
}

pub struct Floors {
    bench: PathBuf,
    /// The directory in which sinks put what they receive.
    dir: PathBuf,
    piece: usize,
}

impl Floors {
    pub fn new(dir: &Path, piece: usize) -> Result<Self> {
        let bench = std::env::current_exe()
            .context("cannot find the bench's own program, which the floors are parts of")?;
        Ok(Self { bench, dir: dir.to_owned(), piece })
    }

    /// Runs `floor` once over `source`, which is a directory for `cp -r` and a file for the others.
    pub fn run(&self, floor: Floor, source: &Path) -> Result<Cost> {
        machine::write_back(&self.dir)?;
        if floor.fills_pages() {
            machine::back_memory()?;
        }
        match floor {
            Floor::Put => self.put(source, "put-source", 1, length(source)?),
            Floor::Put2 => self.put(source, "put-source", 2, length(source)?),
            Floor::Ec => self.put(source, "put-ec-source", SHARDS, shard_bytes(length(source)?)),
            Floor::Get => self.get(source),
            Floor::Cp => self.cp(source),
        }
        .with_context(|| format!("{} failed", floor.name()))
    }

    /// Runs `program` with `copies` sinks, each of which must have stored `bytes` in the end.
    fn put(&self, source: &Path, program: &str, copies: usize, bytes: u64) -> Result<Cost> {
        let outs: Vec<_> =
            (0..copies).map(|copy| self.dir.join(format!("floor-copy-{copy}"))).collect();
        let sinks = outs
            .iter()
            .map(|out| Half::start(self.half("put-sink").arg(out)))
            .collect::<Result<Vec<_>>>()?;
        let sent = measure::run(
            self.half(program).arg(source).args(sinks.iter().map(|sink| sink.address.to_string())),
        )?;
        let mut cost = sent.cost;
        for sink in sinks {
            cost.cpu += sink.finish()?;
        }
        for out in outs {
            ensure!(length(&out)? == bytes, "{} is not as long as it should be", out.display());
            content::remove(&out)?;
        }
        Ok(cost)
    }

    fn get(&self, source: &Path) -> Result<Cost> {
        let sender = Half::start(self.half("get-source").arg(source))?;
        let length = fs::metadata(source)?.len();
        let received = measure::run(
            self.half("get-sink").arg(sender.address.to_string()).arg(length.to_string()),
        )?;
        Ok(Cost { cpu: received.cost.cpu + sender.finish()?, ..received.cost })
    }

    fn cp(&self, source: &Path) -> Result<Cost> {
        let out = self.dir.join("floor-cp");
        let copied = measure::run(Command::new("cp").arg("-r").arg(source).arg(&out))?;
        content::remove(&out)?;
        Ok(copied.cost)
    }

    fn half(&self, program: &str) -> Command {
        let mut command = Command::new(&self.bench);
        command.args(["floor", "--piece", &self.piece.to_string(), program]);
        command
    }
}

/// The end of a floor that listens. It is killed if this is dropped before it has finished.
pub struct Half {
    child: Option<Child>,
    started: Instant,
    pub address: SocketAddr,
}

impl Half {
    pub fn start(command: &mut Command) -> Result<Self> {
        let started = Instant::now();
        let mut child = measure::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
        let mut line = String::new();
        let read =
            BufReader::new(child.stdout.take().context("stdout is a pipe")?).read_line(&mut line);
        let mut half =
            Self { child: Some(child), started, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        read?;
        half.address = line
            .trim()
            .parse()
            .with_context(|| format!("{command:?} did not say where it listens"))?;
        Ok(half)
    }

    /// Waits until it has ended, and returns the CPU time that it used.
    pub fn finish(mut self) -> Result<Duration> {
        let child = self.child.take().context("it has not been waited for")?;
        let ended = measure::wait(child, self.started)?;
        ensure!(ended.success(), "the listening half of a floor failed");
        Ok(ended.cost.cpu)
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Either error means that it has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
