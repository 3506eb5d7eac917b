//! Measures how much of its links a client uses: donors on 100 Mb/s each, the client on 1 Gb/s, against plain TCP
//! streams between the same machines in the same round.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::content;
use crate::floor_runs::Half;
use crate::machine;
use crate::measure::{self, Cost};
use crate::network::{self, Host, Network, Rates};
use crate::outcome::Pair;
use crate::plan::Plan;
use crate::pool::{Pool, Start};

const RATES: Rates = Rates { client: 1000, donor: 100 };
const DONORS: [usize; 3] = [4, 8, 12];
const COPIES: [usize; 2] = [1, 2];
/// The seconds that each transfer takes at least, or the last chunks would count for too much: one donor has a
/// chunk more to send than the others, which takes a third of a second.
const SECONDS: u64 = 6;
/// The least share of the rate of plain streams that Potluck must reach.
pub const LEAST: f64 = 0.93;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Put,
    Get,
}

/// One transfer and its floor, in all rounds.
pub struct Linked {
    pub work: String,
    pub bytes: u64,
    pub pairs: Vec<Pair>,
}

/// Measures all transfers. Returns none if links cannot be made here, and prints why.
pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Linked>> {
    if let Some(reason) = network::missing() {
        eprintln!("links: SKIPPED: {reason}");
        return Ok(Vec::new());
    }
    let network =
        Arc::new(Network::new(DONORS.into_iter().max().unwrap_or_default(), Some(RATES))?);
    let mut all = Vec::new();
    for donors in DONORS {
        eprintln!("starting a manager and {donors} donors on links of {} Mb/s", RATES.donor);
        let start = Start {
            binary: &plan.potluck,
            dir: &dir.join(format!("links-{donors}")),
            donors,
            lent: "20GiB",
            options: &["--metadata-copies", "0"],
            network: Some(Arc::clone(&network)),
        };
        let lab = Lab { dir, network: &network, donors, pool: Pool::start(start)? };
        for copies in COPIES {
            all.extend(lab.compare(copies, plan.rounds)?);
        }
    }
    Ok(all)
}

struct Lab<'a> {
    dir: &'a Path,
    network: &'a Network,
    donors: usize,
    pool: Pool,
}

impl Lab<'_> {
    fn compare(&self, copies: usize, rounds: usize) -> Result<[Linked; 2]> {
        let space = format!("copies{copies}");
        let create = ["space", "create", &space, "--plain", "--ack", "memory", "--copies"];
        measure::run(self.pool.client().args(create).arg(copies.to_string()))?;
        let plural = if copies == 1 { "copy" } else { "copies" };
        let bytes = self.bytes();
        let mut rows = ["put", "get"].map(|verb| Linked {
            work: format!("{verb} over links, {} donors, {copies} {plural}", self.donors),
            bytes,
            pairs: Vec::new(),
        });
        for round in 0..rounds {
            let name = format!("file-{round}");
            let (local, remote) = (self.dir.join(&name), format!("pot://{space}/{name}"));
            content::write_file(&local, &format!("{}/{space}/{name}", self.donors), bytes)?;
            content::warm(&local)?;
            machine::write_back(self.dir)?;
            let (from, to) = (local.to_str().context("UTF-8")?, remote.as_str());
            for (row, way) in rows.iter_mut().zip([Way::Put, Way::Get]) {
                let (from, to) = if way == Way::Put { (from, to) } else { (to, "/dev/null") };
                let streams = if way == Way::Put { bytes * copies as u64 } else { bytes };
                let floor = self.floor(way, streams)?;
                let mut product = self.pool.client();
                let product = self.pool.measure(product.args(["cp", "-q", from, to]), false)?.cost;
                eprintln!(
                    "round {}: {}: {:.3} s, plain streams {:.3} s: {:.3}",
                    round + 1,
                    row.work,
                    product.wall.as_secs_f64(),
                    floor.wall.as_secs_f64(),
                    floor.wall.as_secs_f64() / product.wall.as_secs_f64(),
                );
                row.pairs.push(Pair { floor, product, other: None });
            }
            content::remove(&local)?;
            measure::run(self.pool.client().args(["rm", &remote]))?;
        }
        Ok(rows)
    }

    /// Returns the bytes that one copy moves in `SECONDS`.
    fn bytes(&self) -> u64 {
        SECONDS * RATES.client.min(self.donors as u64 * RATES.donor) * 125_000
    }

    /// Moves `bytes` in plain streams, one for each donor, and returns the cost of all their ends.
    fn floor(&self, way: Way, bytes: u64) -> Result<Cost> {
        let each = bytes / self.donors as u64;
        let halves: Vec<_> = (0..self.donors)
            .map(|number| {
                let host = Host::Donor(number);
                let mut command = self.floor_program(host)?;
                command.arg(if way == Way::Put { "stream-sink" } else { "stream-source" });
                command.arg(self.network.address(host).to_string());
                if way == Way::Get {
                    command.arg(each.to_string());
                }
                Half::start(&mut command)
            })
            .collect::<Result<_>>()?;
        let mut command = self.floor_program(Host::Client)?;
        command.arg(if way == Way::Put { "streams-send" } else { "streams-receive" });
        command.arg(each.to_string()).args(halves.iter().map(|half| half.address.to_string()));
        let mut cost = measure::run(&mut command)?.cost;
        for half in halves {
            cost.cpu += half.finish()?;
        }
        Ok(cost)
    }

    fn floor_program(&self, host: Host) -> Result<Command> {
        let bench = std::env::current_exe().context("cannot find the bench's own program")?;
        let mut command = self.network.command(host, &bench);
        command.arg("floor");
        Ok(command)
    }
}
