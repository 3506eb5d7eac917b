//! Measures clients that write one file at once, each a part of it, against the same clients writing files of their
//! own (the benchmark of CEFT-PVFS, figure 2). All begin together, and the slowest decides. The two take turns at being
//! first, and each begins when the other's bytes are on the disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::content;
use crate::machine;
use crate::measure;
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start};
use crate::report::median;

const DONORS: usize = 2;
const CLIENTS: [u64; 3] = [1, 2, 4];
/// The offset of the first part in the file, in bytes, so that parts do not begin and end at borders of chunks.
const ASKEW: u64 = 4242;
/// The least aggregate rate of writers of one file, as a share of that of writers of files of their own.
const SHARE: f64 = 0.9;
const MIB: f64 = (1 << 20) as f64;

pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    let rounds = plan.rounds as u64;
    let pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("shared-writers"),
        donors: DONORS,
        lent: &format!("{}GiB", ((2 * CLIENTS.len() as u64 * rounds * plan.size.0) >> 30) + 4),
        options: &["--metadata-copies", "0"],
        network: None,
    })?;
    let policy = ["--plain", "--copies", "1", "--ack", "memory"];
    measure::run(pool.client().args(["space", "create", "one"]).args(policy))?;
    let mut figures = Vec::new();
    for clients in CLIENTS {
        let (mut shares, mut rates, mut commits) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let bench = Round { pool: &pool, dir, clients, size: plan.size.0 / clients };
            let (own, (shared, commit)) = match round % 2 {
                0 => (bench.files_of_their_own(round)?, bench.one_file(round)?),
                _ => {
                    let one_file = bench.one_file(round)?;
                    (bench.files_of_their_own(round)?, one_file)
                }
            };
            shares.push(own.as_secs_f64() / shared.as_secs_f64());
            rates.push((bench.size * clients) as f64 / MIB / shared.as_secs_f64());
            commits.push(commit.as_secs_f64() * 1000.0);
        }
        let mut figure = |what: &str, value: f64, unit, limit| {
            let work = format!("{clients} clients write one file, {what}");
            eprintln!("{work}: {value:.2} {unit}");
            figures.push(Figure { work, value, unit, limit });
        };
        figure("aggregate", median(rates), "MiB/s", Limit::None);
        figure("the commit", median(commits), "ms", Limit::None);
        figure("of files of their own", median(shares), "×", Limit::AtLeast(SHARE));
    }
    Ok(figures)
}

struct Round<'a> {
    pool: &'a Pool,
    dir: &'a Path,
    clients: u64,
    /// The number of bytes that each client writes.
    size: u64,
}

impl Round<'_> {
    /// Makes a local file for each client to write, with bytes that the pool does not have, and waits until the machine
    /// is quiet.
    fn parts(&self, name: &str) -> Result<Vec<PathBuf>> {
        let part = |client: u64| {
            let path = self.dir.join(format!("part-{client}"));
            content::write_file(&path, &format!("{name} {} {client}", self.clients), self.size)?;
            Ok(path)
        };
        let parts: Vec<PathBuf> = (0..self.clients).map(part).collect::<Result<_>>()?;
        machine::write_back(self.dir)?;
        self.pool.wait_quiet()?;
        machine::back_memory()?;
        Ok(parts)
    }

    fn files_of_their_own(&self, round: u64) -> Result<Duration> {
        let parts = self.parts(&format!("own {round}"))?;
        let began = Instant::now();
        let clients = parts.iter().enumerate().map(|(client, part)| {
            let target = format!("pot://one/own-{}-{round}-{client}", self.clients);
            self.start(&["cp".as_ref(), "-q".as_ref(), part.as_os_str(), target.as_ref()])
        });
        end(clients.collect::<Result<_>>()?)?;
        Ok(began.elapsed())
    }

    /// Returns the time for all, and the part of it that the commit took.
    fn one_file(&self, round: u64) -> Result<(Duration, Duration)> {
        let target = format!("pot://one/shared-{}-{round}", self.clients);
        measure::run(self.pool.client().args(["write-shared", "begin", &target]))?;
        let parts = self.parts(&format!("shared {round}"))?;
        let began = Instant::now();
        let clients = parts.iter().enumerate().map(|(client, part)| {
            let at = (ASKEW + client as u64 * self.size).to_string();
            let head =
                ["write-shared".as_ref(), "write".as_ref(), part.as_os_str(), target.as_ref()];
            self.start(&[&head[..], &["--at".as_ref(), at.as_ref()]].concat())
        });
        end(clients.collect::<Result<_>>()?)?;
        let written = began.elapsed();
        measure::run(self.pool.client().args(["write-shared", "commit", &target]))?;
        let took = began.elapsed();
        self.check(&target, &parts)?;
        Ok((took, took - written))
    }

    fn start(&self, args: &[&std::ffi::OsStr]) -> Result<Child> {
        let mut command = self.pool.client();
        measure::spawn(command.args(args).stdin(Stdio::null()).stdout(Stdio::null()))
    }

    /// Checks that every byte is where it belongs.
    fn check(&self, target: &str, parts: &[PathBuf]) -> Result<()> {
        let out = self.dir.join("shared-out");
        measure::run(self.pool.client().args(["cp", target]).arg(&out))?;
        let bytes = std::fs::read(&out).context("what was read back")?;
        let skip = ASKEW as usize;
        ensure!(bytes[..skip].iter().all(|byte| *byte == 0), "what nobody wrote is not zeros");
        for (read, part) in bytes[skip..].chunks(self.size as usize).zip(parts) {
            ensure!(read == std::fs::read(part)?, "{} is not as it was written", part.display());
        }
        ensure!(bytes.len() as u64 == ASKEW + self.clients * self.size, "{}", bytes.len());
        content::remove(&out)
    }
}

/// Waits until all clients have ended.
fn end(clients: Vec<Child>) -> Result<()> {
    let began = Instant::now();
    for client in clients {
        ensure!(measure::wait(client, began)?.success(), "a client failed");
    }
    Ok(())
}
