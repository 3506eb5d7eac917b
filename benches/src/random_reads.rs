//! Measures reads of 4 KiB at random places of an open file, by one thread and by many, against an echo server of
//! segments.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::content;
use crate::floor_runs::Half;
use crate::measure;
use crate::network::{self, Host, Network};
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start};
use crate::rate::Rate;
use crate::report::median;

const DONORS: usize = 4;
const THREADS: [usize; 2] = [1, 16];
const SPACES: [(&str, &[&str]); 2] = [("plain", &["--plain"]), ("sealed", &[])];
/// The least share of the echo server's rate that Potluck must reach.
const LEAST: f64 = 0.3;
/// The most KiB on the wire for one read: its segment of 64 KiB, the hashes that prove it, and headers.
const MOST_KIB: f64 = 70.0;

/// Measures all of it. Returns no figures if links cannot be made here, and prints why.
pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    if let Some(reason) = network::missing() {
        eprintln!("random reads: SKIPPED: {reason}");
        return Ok(Vec::new());
    }
    let network = Arc::new(Network::new(DONORS, None)?);
    let pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("random-reads"),
        donors: DONORS,
        lent: &format!("{}GiB", plan.size.0.div_ceil(1 << 30) * 4),
        options: &["--metadata-copies", "0"],
        network: Some(Arc::clone(&network)),
    })?;
    let local = dir.join("read-at-random");
    content::write_file(&local, "read at random", plan.size.0)?;
    content::warm(&local)?;
    let mut figures = Vec::new();
    for (space, flags) in SPACES {
        let create = ["space", "create", space, "--copies", "1", "--ack", "memory"];
        measure::run(pool.client().args(create).args(flags))?;
        let remote = format!("pot://{space}/file");
        measure::run(pool.client().args(["cp", "-q"]).arg(&local).arg(&remote))?;
        for threads in THREADS {
            let (mut ratios, mut rates, mut received) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..plan.rounds {
                let floor = floor(&network, &local, plan.size.0, threads)?;
                let mut reader = program(&network, Host::Client)?;
                reader
                    .arg("random-reads")
                    .arg(pool.identity())
                    .args([&remote, &threads.to_string()]);
                let product = rate_of(&mut reader)?;
                ratios.push(product.per_second / floor.per_second);
                rates.push(product.per_second);
                received.push(product.received / 1024.0);
            }
            let plural = if threads == 1 { "" } else { "s" };
            let work = format!("random 4 KiB reads, {space}, {threads} thread{plural}");
            let mut figure = |what: &str, values, unit, limit| {
                let (work, value) = (format!("{work}{what}"), median(values));
                eprintln!("{work}: {value:.2} {unit}");
                figures.push(Figure { work, value, unit, limit });
            };
            figure("", rates, "IOPS", Limit::None);
            figure(", of an echo server's rate", ratios, "×", Limit::AtLeast(LEAST));
            figure(", on the wire for each", received, "KiB", Limit::AtMost(MOST_KIB));
        }
    }
    Ok(figures)
}

fn floor(network: &Network, file: &Path, length: u64, threads: usize) -> Result<Rate> {
    let host = Host::Donor(0);
    let mut source = program(network, host)?;
    let source =
        Half::start(source.arg("echo-source").arg(network.address(host).to_string()).arg(file))?;
    let mut reader = program(network, Host::Client)?;
    let arguments = [source.address.to_string(), length.to_string(), threads.to_string()];
    rate_of(reader.arg("echo-reads").args(arguments))
}

fn program(network: &Network, host: Host) -> Result<Command> {
    let bench = std::env::current_exe().context("cannot find the bench's own program")?;
    let mut command = network.command(host, &bench);
    command.arg("floor");
    Ok(command)
}

/// Reads the rate that a program which measures itself prints.
pub fn rate_of(command: &mut Command) -> Result<Rate> {
    let printed = measure::run(command)?.stdout;
    serde_json::from_str(&printed).with_context(|| format!("{command:?} printed {printed:?}"))
}
