//! Machines on links, a pool on them, and transfers between the client and its donors.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::measured::Options;
use crate::content;
use crate::floor_runs::Half;
use crate::machine;
use crate::measure;
use crate::network::{Host, Link, Links, Network};
use crate::pool::{Pool, Start};

/// The way in which a file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Put,
    Get,
}

pub const WAYS: [Way; 2] = [Way::Put, Way::Get];

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
        }
    }
}

/// A pool whose members are on links.
pub struct Bed {
    dir: PathBuf,
    network: Arc<Network>,
    links: Links,
    pub pool: Pool,
    /// Whether a transfer waits until the daemons have nothing else to do.
    settle: bool,
}

/// The rates of one transfer in bytes a second of the file.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub product: f64,
    /// The rate of plain streams, one for each donor.
    pub streams: f64,
}

/// A file on the client's machine that is put, and is removed when this is dropped.
pub struct Local {
    path: PathBuf,
    bytes: u64,
}

/// A stream of others over a donor's link, which ends when this is dropped.
pub struct LinkStress {
    _listening: Half,
    other: Child,
}

impl Drop for LinkStress {
    fn drop(&mut self) {
        // Either error means that it has ended by itself.
        let _ = self.other.kill();
        let _ = self.other.wait();
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // What is left goes with the directory of the whole run.
        let _ = fs::remove_file(&self.path);
    }
}

impl Bed {
    /// Starts a pool whose donors are on `links`.
    pub fn new(options: &Options, dir: &Path, links: Links) -> Result<Self> {
        Self::start(options, dir, links, 0)
    }

    /// Starts a pool whose first donor is on the client's machine, and whose others are on `links`.
    pub fn with_near_donor(options: &Options, dir: &Path, links: Links) -> Result<Self> {
        Self::start(options, dir, links, 1)
    }

    fn start(options: &Options, dir: &Path, links: Links, near: usize) -> Result<Self> {
        let donors = links.donors.len();
        let network = Arc::new(Network::new(donors, Some(&links))?);
        let start = Start {
            binary: &options.potluck,
            dir,
            donors: near + donors,
            lent: "20GiB",
            options: &["--metadata-copies", "0"],
            network: Some(Arc::clone(&network)),
        };
        let host = match near {
            0 => Host::Donor,
            _ => |number: usize| number.checked_sub(1).map_or(Host::Client, Host::Donor),
        };
        let pool = Pool::start_on(start, host)?;
        let settle = !options.short;
        Ok(Self { dir: dir.to_owned(), network, links, pool, settle })
    }

    /// Returns a command of `program` on one of the machines.
    pub fn command(&self, host: Host, program: &Path) -> Command {
        self.network.command(host, program)
    }

    /// Returns the address of one of the machines.
    pub fn address(&self, host: Host) -> IpAddr {
        self.network.address(host)
    }

    /// Makes a space whose files are put with these options of its policy.
    pub fn make_space(&self, name: &str, policy: &[&str]) -> Result<()> {
        let create = ["space", "create", name, "--plain", "--ack", "memory"];
        measure::run(self.pool.client().args(create).args(policy)).map(drop)
    }

    /// Returns the bytes of a file of which the links carry `copies` in so long a time.
    pub fn bytes(&self, time: Duration, copies: usize) -> u64 {
        let donors: u64 = self.links.donors.iter().map(|link| link.rate()).sum();
        let carried = self.links.client.rate().min(donors) as f64 * time.as_secs_f64();
        carried as u64 / copies as u64
    }

    /// Puts a file into a space and gets it, and does the same with plain streams. Returns the rates of both.
    pub fn round(
        &self,
        space: &str,
        copies: usize,
        number: usize,
        bytes: u64,
    ) -> Result<[Rates; 2]> {
        let local = self.local(&format!("file-{number}"), bytes)?;
        let remote = format!("pot://{space}/file-{number}");
        let mut rates = [Rates { product: 0.0, streams: 0.0 }; 2];
        for (way, rates) in WAYS.into_iter().zip(&mut rates) {
            let moved = if way == Way::Put { bytes * copies as u64 } else { bytes };
            rates.streams = bytes as f64 / self.streams(way, moved)?;
            rates.product = match way {
                Way::Put => self.put(&local, &remote)?,
                Way::Get => self.get(&remote, bytes)?,
            };
        }
        self.remove(&remote)?;
        Ok(rates)
    }

    /// Writes a file of new content on the client's machine.
    pub fn local(&self, name: &str, bytes: u64) -> Result<Local> {
        let path = self.dir.join(name);
        content::write_file(&path, &format!("{}/{name}", self.dir.display()), bytes)?;
        content::warm(&path)?;
        machine::write_back(&self.dir)?;
        Ok(Local { path, bytes })
    }

    /// Puts a file, and returns the rate in bytes a second.
    pub fn put(&self, local: &Local, remote: &str) -> Result<f64> {
        self.copy([local.path.to_str().context("UTF-8")?, remote], local.bytes)
    }

    /// Gets a file of so many bytes, and returns the rate in bytes a second.
    pub fn get(&self, remote: &str, bytes: u64) -> Result<f64> {
        self.copy([remote, "/dev/null"], bytes)
    }

    /// Gets a file to another machine than the client's.
    pub fn get_on(&self, host: Host, remote: &str, bytes: u64) -> Result<f64> {
        let mut product = self.pool.on(host);
        product.arg("--pool").arg(self.pool.identity());
        self.copy_by(product, [remote, "/dev/null"], bytes)
    }

    fn copy(&self, paths: [&str; 2], bytes: u64) -> Result<f64> {
        self.copy_by(self.pool.client(), paths, bytes)
    }

    fn copy_by(&self, mut product: Command, paths: [&str; 2], bytes: u64) -> Result<f64> {
        self.settle()?;
        let product = measure::run(product.args(["cp", "-q"]).args(paths))?;
        Ok(bytes as f64 / product.cost.wall.as_secs_f64())
    }

    /// Waits until the daemons have nothing else to do, unless speed is not what is looked at.
    pub fn settle(&self) -> Result<()> {
        if self.settle { self.pool.wait_quiet() } else { Ok(()) }
    }

    pub fn remove(&self, remote: &str) -> Result<()> {
        measure::run(self.pool.client().args(["rm", remote])).map(drop)
    }

    /// Lets the next reads come from disks: writes back what is dirty, and has the kernel forget its pages.
    pub fn cool(&self) -> Result<()> {
        machine::write_back(&self.dir)?;
        fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the page cache")
    }

    /// Fills the link of a donor with a stream of others, in the direction in which files go that way.
    pub fn stress_link(&self, donor: usize, way: Way) -> Result<LinkStress> {
        // No run lasts so long that this ends before it.
        const BYTES: u64 = 1 << 40;
        let listening = self.listening(way, Host::Donor(donor), BYTES)?;
        let mut command = self.floor_program(Host::Manager)?;
        command.arg(far_end(way)).arg(format!("{BYTES}@{}", listening.address));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(LinkStress { _listening: listening, other: measure::spawn(&mut command)? })
    }

    /// Moves `bytes` in plain streams, one for each donor, whose parts are as their links' rates. Returns the seconds.
    pub fn streams(&self, way: Way, bytes: u64) -> Result<f64> {
        let all: u64 = self.links.donors.iter().map(|link| link.rate()).sum();
        let part =
            |link: &Link| (u128::from(bytes) * u128::from(link.rate()) / u128::from(all)) as u64;
        let halves: Vec<(u64, Half)> = self
            .links
            .donors
            .iter()
            .enumerate()
            .map(|(number, link)| {
                let bytes = part(link);
                Ok((bytes, self.listening(way, Host::Donor(number), bytes)?))
            })
            .collect::<Result<_>>()?;
        let mut command = self.floor_program(Host::Client)?;
        command.arg(far_end(way));
        command.args(halves.iter().map(|(bytes, half)| format!("{bytes}@{}", half.address)));
        let cost = measure::run(&mut command)?.cost;
        halves.into_iter().try_for_each(|(_, half)| half.finish().map(drop))?;
        Ok(cost.wall.as_secs_f64())
    }

    /// Starts the end of a stream that listens on `host`.
    fn listening(&self, way: Way, host: Host, bytes: u64) -> Result<Half> {
        let mut command = self.floor_program(host)?;
        command.arg(if way == Way::Put { "stream-sink" } else { "stream-source" });
        command.arg(self.network.address(host).to_string());
        if way == Way::Get {
            command.arg(bytes.to_string());
        }
        Half::start(&mut command)
    }

    fn floor_program(&self, host: Host) -> Result<Command> {
        let bench = std::env::current_exe().context("cannot find the bench's own program")?;
        let mut command = self.network.command(host, &bench);
        command.arg("floor");
        Ok(command)
    }
}

/// Returns the program of the client's end of streams.
fn far_end(way: Way) -> &'static str {
    match way {
        Way::Put => "streams-send",
        Way::Get => "streams-receive",
    }
}
