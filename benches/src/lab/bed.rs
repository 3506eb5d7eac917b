//! Machines on links, a pool on them, and transfers between the client and its donors.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::content;
use crate::floor_runs::Half;
use crate::machine;
use crate::measure;
use crate::network::{Host, Links, Network};
use crate::pool::{Pool, Start};

/// The way in which a file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Put,
    Get,
}

/// A pool whose members are on links.
pub struct Bed {
    dir: PathBuf,
    network: Arc<Network>,
    links: Links,
    pub pool: Pool,
}

/// The rates of one transfer in bytes a second of the file.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub product: f64,
    /// The rate of plain streams, one for each donor.
    pub streams: f64,
}

impl Bed {
    /// Starts a pool whose donors are on `links`.
    pub fn new(potluck: &Path, dir: &Path, links: Links) -> Result<Self> {
        let donors = links.donors.len();
        let network = Arc::new(Network::new(donors, Some(&links))?);
        let start = Start {
            binary: potluck,
            dir,
            donors,
            lent: "20GiB",
            options: &["--metadata-copies", "0"],
            network: Some(Arc::clone(&network)),
        };
        let pool = Pool::start(start)?;
        Ok(Self { dir: dir.to_owned(), network, links, pool })
    }

    /// Makes a space whose files are put with so many copies.
    pub fn make_space(&self, name: &str, copies: usize) -> Result<()> {
        let create = ["space", "create", name, "--plain", "--ack", "memory", "--copies"];
        measure::run(self.pool.client().args(create).arg(copies.to_string())).map(drop)
    }

    /// Returns the bytes of a file of which the links carry `copies` in so many seconds.
    pub fn bytes(&self, seconds: u64, copies: usize) -> u64 {
        let donors: u64 = self.links.donors.iter().sum();
        seconds * self.links.client.min(donors) * 125_000 / copies as u64
    }

    /// Puts a file into a space and gets it, and does the same with plain streams. Returns the rates of both.
    pub fn round(
        &self,
        space: &str,
        copies: usize,
        number: usize,
        bytes: u64,
    ) -> Result<[Rates; 2]> {
        let name = format!("file-{number}");
        let (local, remote) = (self.dir.join(&name), format!("pot://{space}/{name}"));
        content::write_file(&local, &format!("{}/{name}", self.dir.display()), bytes)?;
        content::warm(&local)?;
        machine::write_back(&self.dir)?;
        let from = local.to_str().context("UTF-8")?;
        let rates = [
            self.transfer(Way::Put, [from, &remote], bytes, copies)?,
            self.transfer(Way::Get, [&remote, "/dev/null"], bytes, copies)?,
        ];
        content::remove(&local)?;
        measure::run(self.pool.client().args(["rm", &remote]))?;
        Ok(rates)
    }

    fn transfer(&self, way: Way, paths: [&str; 2], bytes: u64, copies: usize) -> Result<Rates> {
        let moved = if way == Way::Put { bytes * copies as u64 } else { bytes };
        let streams = self.streams(way, moved)?;
        let mut product = self.pool.client();
        let product = self.pool.measure(product.args(["cp", "-q"]).args(paths), false)?;
        let rate = |seconds: f64| bytes as f64 / seconds;
        Ok(Rates { product: rate(product.cost.wall.as_secs_f64()), streams: rate(streams) })
    }

    /// Moves `bytes` in plain streams, one for each donor, whose parts are as their links' rates. Returns the seconds.
    fn streams(&self, way: Way, bytes: u64) -> Result<f64> {
        let all: u64 = self.links.donors.iter().sum();
        let part = |mbit: &u64| bytes * mbit / all;
        let halves: Vec<(u64, Half)> = self
            .links
            .donors
            .iter()
            .enumerate()
            .map(|(number, mbit)| {
                let host = Host::Donor(number);
                let mut command = self.floor_program(host)?;
                command.arg(if way == Way::Put { "stream-sink" } else { "stream-source" });
                command.arg(self.network.address(host).to_string());
                if way == Way::Get {
                    command.arg(part(mbit).to_string());
                }
                Ok((part(mbit), Half::start(&mut command)?))
            })
            .collect::<Result<_>>()?;
        let mut command = self.floor_program(Host::Client)?;
        command.arg(if way == Way::Put { "streams-send" } else { "streams-receive" });
        command.args(halves.iter().map(|(bytes, half)| format!("{bytes}@{}", half.address)));
        let cost = measure::run(&mut command)?.cost;
        halves.into_iter().try_for_each(|(_, half)| half.finish().map(drop))?;
        Ok(cost.wall.as_secs_f64())
    }

    fn floor_program(&self, host: Host) -> Result<Command> {
        let bench = std::env::current_exe().context("cannot find the bench's own program")?;
        let mut command = self.network.command(host, &bench);
        command.arg("floor");
        Ok(command)
    }
}
