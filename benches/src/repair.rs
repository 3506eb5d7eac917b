//! Measures how fast what a dead donor held is made again, against the budget that repair was given, and what reads
//! lose to it meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::content;
use crate::interrupt;
use crate::measure;
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start, Status};

const DONORS: usize = 4;
/// The time that repair takes with the budget that it gets: long against the pauses in which losses are noticed and
/// counted.
const TAKES: Duration = Duration::from_secs(20);
/// The grace after which a silent donor is dead; the scan for what it held begins at most a quarter of that later.
const GRACE: &str = "4s";
/// The longest that repair may take, as a multiple of what its budget allows.
const MOST: f64 = 1.3;
/// The most that reads may slow down, in percent of their rate.
const MOST_PERCENT: f64 = 20.0;
const LOOK_EVERY: Duration = Duration::from_millis(50);
const GIVE_UP: Duration = Duration::from_secs(120);
const SPACE: &str = "mirrored";
const REMOTE: &str = "pot://mirrored/file";
/// The number of reads before the death, of which the median counts.
const READS: usize = 5;

/// Measures repair after the death of one of four donors, which held half of `plan.size`.
pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    let survivors = DONORS as u64 - 1;
    let budget = plan.size.0 / 2 / survivors / TAKES.as_secs();
    let rate = budget.to_string();
    eprintln!("starting a manager and {DONORS} donors that repair at {budget} bytes/s each");
    let options = ["--repair-grace", GRACE, "--repair-donor-rate", &rate, "--metadata-copies", "0"];
    let lent = format!("{}GiB", (4 * plan.size.0).div_ceil(1 << 30));
    let mut pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("repair"),
        donors: DONORS,
        lent: &lent,
        options: &options,
        network: None,
    })?;
    let create = ["space", "create", SPACE, "--plain", "--copies", "2", "--ack", "memory"];
    measure::run(pool.client().args(create))?;
    let local = dir.join("repaired");
    content::write_file(&local, "repaired", plan.size.0)?;
    measure::run(pool.client().args(["cp", "-q"]).arg(&local).arg(REMOTE))?;
    content::remove(&local)?;
    wait(&pool, "that everything has two copies", |status| status.is_safe())?;
    let before = (0..READS).map(|_| read(&pool)).collect::<Result<Vec<_>>>()?;

    let name = format!("donor-{}", DONORS - 1);
    let most = most_to_send(&pool, pool.status()?.donor(&name)?.donor)?;
    pool.kill_last(1)?;
    wait(&pool, "that the dead donor is gone", |status| {
        status.donor(&name).is_ok_and(|donor| donor.state == "dead")
    })?;
    let gone = Instant::now();
    let (over, reads) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let read_on = || -> Result<()> {
        while !over.load(Ordering::Relaxed) {
            let took = read(&pool)?;
            // The last read may have ended after repair.
            if !over.load(Ordering::Relaxed) {
                reads.lock().expect("no holder panics").push(took);
            }
        }
        Ok(())
    };
    let took = std::thread::scope(|scope| {
        let reader = scope.spawn(read_on);
        let safe = wait(&pool, "that everything has two copies again", |status| {
            status.repair.made > 0 && status.is_safe()
        });
        let took = gone.elapsed();
        over.store(true, Ordering::Relaxed);
        reader.join().expect("the reader does not panic")?;
        safe.map(|()| took)
    })?;
    let during = reads.into_inner().expect("no holder panics");
    ensure!(!during.is_empty(), "repair was over before one read was");
    let ideal = most as f64 / budget as f64;
    let slower = 100.0 * (1.0 - median(before).as_secs_f64() / median(during).as_secs_f64());
    let figure = |work: &str, value, unit, limit| {
        eprintln!("{work}: {value:.3} {unit}");
        Figure { work: work.to_owned(), value, unit, limit }
    };
    Ok(vec![
        figure("repair of a dead donor", took.as_secs_f64(), "s", Limit::None),
        figure(
            "repair of a dead donor, of what its budget allows",
            took.as_secs_f64() / ideal,
            "×",
            Limit::AtMost(MOST),
        ),
        figure("reads during repair, slower by", slower, "%", Limit::AtMost(MOST_PERCENT)),
    ])
}

/// Returns the bytes that the survivor sends that shares most chunks with `dead`: its budget is the one that takes
/// longest.
fn most_to_send(pool: &Pool, dead: u64) -> Result<u64> {
    let printed = measure::run(pool.client().args(["stat", REMOTE, "--chunks", "--json"]))?.stdout;
    let stat: Stat = serde_json::from_str(&printed).context("`potluck stat --json`")?;
    let mut sends = BTreeMap::<u64, u64>::new();
    for chunk in stat.chunk_list.iter().filter(|chunk| chunk.donors.contains(&dead)) {
        for donor in chunk.donors.iter().filter(|donor| **donor != dead) {
            *sends.entry(*donor).or_default() += chunk.len;
        }
    }
    sends.into_values().max().context("the dead donor held nothing")
}

#[derive(Deserialize)]
struct Stat {
    chunk_list: Vec<Chunk>,
}

#[derive(Deserialize)]
struct Chunk {
    len: u64,
    donors: Vec<u64>,
}

fn wait(pool: &Pool, what: &str, done: impl Fn(&Status) -> bool) -> Result<()> {
    interrupt::wait_until(what, GIVE_UP, LOOK_EVERY, || Ok(done(&pool.status()?)))
        .with_context(|| format!("{:?}", pool.status()))
}

fn read(pool: &Pool) -> Result<Duration> {
    let finished = measure::run(pool.client().args(["cp", "-q", REMOTE, "/dev/null"]))?;
    Ok(finished.cost.wall)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
