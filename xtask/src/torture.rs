//! `cargo xtask torture`: pools of real processes that are killed, filled up, spoiled and lied to.
//!
//! A pool, what its clients do and what goes wrong follow from one seed; only the moments at which things happen
//! are the machine's. The faults that are present at once stay inside what every space of the pool tolerates, so
//! that any loss is a bug.

mod chance;
mod counts;
mod damage;
mod files;
mod hostile;
mod mishap;
mod plan;
mod pool;
mod power;
mod process;
mod repair;
mod small_disk;
mod stage;
mod steps;
pub mod sweep;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use crate::cargo::tested_program;
use crate::scratch;
use counts::Counts;
use plan::Plan;
use stage::Stage;

/// The command line of a torture run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Only this seed, each step told as it comes
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// These seeds, both included
    #[arg(long, value_name = "A..B", default_value = "1..20", value_parser = seeds)]
    seeds: RangeInclusive<u64>,
    /// Begin no further seed after this many minutes
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// Steps of each seed
    #[arg(long, value_name = "N", default_value_t = 40)]
    steps: u64,
    /// Seeds played at once: pools mostly wait
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=16))]
    jobs: u64,
    /// The product's program, instead of one built now
    #[arg(long, value_name = "FILE")]
    potluck: Option<PathBuf>,
    /// Leave the directories of seeds that failed
    #[arg(long)]
    keep: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|why| format!("{text}: {why}"));
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
    if first > last { Err("there is no seed in this range".to_owned()) } else { Ok(first..=last) }
}

/// The outcome of the seeds that were tried.
#[derive(Debug, Default)]
pub struct Report {
    seeds: u64,
    /// The seeds that broke a promise, each with the first line of the reason.
    failed: BTreeMap<u64, String>,
    counts: Counts,
    took: Duration,
}

impl Report {
    /// Notes and prints how a seed ended.
    fn learn(
        &mut self,
        seed: u64,
        counts: &Counts,
        result: Result<(), String>,
        took: Duration,
        options: &Options,
    ) {
        self.seeds += 1;
        self.counts.merge(counts);
        let how = if result.is_ok() { "every promise was kept" } else { "FAILED" };
        let (kills, took) = (counts.kills(), took.as_secs_f64());
        if !options.json {
            println!("seed {seed}: {how}; {kills} kills, {took:.1} s");
        }
        if let Err(why) = result {
            self.failed.insert(seed, why.lines().next().unwrap_or_default().to_owned());
            eprintln!("seed {seed}: {why}");
            let steps = options.steps;
            eprintln!("play it again with: cargo xtask torture --seed {seed} --steps {steps}");
        }
    }

    /// Adds what another run came to.
    fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.failed.extend(other.failed);
        self.counts.merge(&other.counts);
        self.took += other.took;
    }

    /// Returns the line that a run ends with. It repeats why seeds failed, for the logs of their processes stand
    /// between the first account and the end.
    pub fn verdict(&self) -> String {
        let Self { seeds, failed, counts, took } = self;
        let failed =
            if failed.is_empty() { String::new() } else { format!(", failed: {failed:?}") };
        let (kills, took) = (counts.kills(), took.as_secs_f64());
        format!("{seeds} seeds{failed}, {kills} kills, {took:.0} s")
    }
}

/// Tries the seeds that `options` name and tells what happened.
pub fn run(options: &Options) -> Result<ExitCode> {
    let report = try_all(options)?;
    if options.json {
        let Report { seeds, failed, counts, took } = &report;
        let seconds = took.as_secs_f64();
        let counts = counts.json();
        println!(
            "{}",
            json!({"seeds": seeds, "failed": failed, "seconds": seconds, "counts": counts})
        );
    } else {
        println!("\n{}torture: {}", report.counts, report.verdict());
    }
    Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What must have happened in the seeds of a test command: a fault that never comes about tests nothing.
pub struct Wanted {
    pub kills: u64,
    /// Whether each kind of fault must have come about in at least one seed.
    pub every_kind: bool,
}

/// The counts, beside kills, that must be above 0 where every kind of fault is wanted.
const KINDS: [&str; 6] = [
    repair::MADE,
    repair::WIPED,
    mishap::DONOR_FROZEN,
    mishap::MANAGER_FROZEN,
    mishap::CLIENT_FROZEN,
    hostile::REFUSED,
];

/// The number of further seeds that are tried where something wanted did not come about: what a seed decides depends on
/// what the machine did before.
const FURTHER_SEEDS: u64 = 4;

/// Tries the seeds of a test command, and a few more where something wanted did not come about. Fails if one of them
/// failed, or if it came about in none.
pub fn test(seeds: RangeInclusive<u64>, wanted: &Wanted) -> Result<String, String> {
    let power = power::can_be_cut().map_err(|why| format!("{why:#}"))?;
    if !power {
        println!("SKIPPED power cuts: mounting takes root and loop devices");
    }
    let cuts = mishap::POWER.into_iter().filter(|_| power);
    let mut unseen: Vec<&str> =
        KINDS.into_iter().chain(cuts).filter(|_| wanted.every_kind).collect();
    let kills = wanted.kills;
    let further = seeds.end() + 1..=seeds.end() + FURTHER_SEEDS;
    let mut report = Report::default();
    let mut is_enough = false;
    for seeds in [seeds, further] {
        let (seed, minutes, potluck, keep, json, steps) = (None, None, None, false, false, 40);
        let options = Options { seed, seeds, minutes, steps, jobs: 4, potluck, keep, json };
        report.add(try_all(&options).map_err(|why| format!("{why:#}"))?);
        unseen.retain(|what| report.counts.of(what) == 0);
        is_enough = report.counts.kills() >= kills && unseen.is_empty();
        if is_enough || !report.failed.is_empty() {
            break;
        }
    }
    print!("{}", report.counts);
    if report.failed.is_empty() && is_enough {
        Ok(report.verdict())
    } else {
        Err(format!(
            "{}; at least {kills} kills are wanted; not seen: {unseen:?}",
            report.verdict()
        ))
    }
}

fn try_all(options: &Options) -> Result<Report> {
    let program = match &options.potluck {
        Some(program) => std::path::absolute(program)?,
        None => tested_program()?,
    };
    let seeds = options.seed.map_or(options.seeds.clone(), |seed| seed..=seed);
    let started = Instant::now();
    let next = Mutex::new(seeds.clone());
    let report = Mutex::new(Report::default());
    // Each seed's processes belong to the thread that plays it, and die with it.
    let work = || -> Result<()> {
        loop {
            let late = options.minutes.is_some_and(|most| started.elapsed().as_secs() / 60 >= most);
            let seed = next.lock().expect("no holder panics").next();
            let Some(seed) = seed.filter(|_| !late) else { return Ok(()) };
            let begun = Instant::now();
            let (counts, result) = try_one(&Plan::draw(seed, options.steps), &program, options)?;
            let mut report = report.lock().expect("no holder panics");
            report.learn(seed, &counts, result, begun.elapsed(), options);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let report = report.into_inner().expect("no holder panics");
    Ok(Report { took: started.elapsed(), ..report })
}

/// Plays one seed. The inner error is a broken promise, with the plan, the steps and the ends of the logs; the
/// outer one means that the pool could not be set up.
fn try_one(plan: &Plan, program: &Path, options: &Options) -> Result<(Counts, Result<(), String>)> {
    let mut dir = scratch::directory("potluck-torture-").context("a temporary directory")?;
    let said = options.seed.is_some() && !options.json;
    if said {
        print!("{plan}");
    }
    let mut stage = Stage::set(plan.clone(), program, dir.path(), said)
        .with_context(|| format!("setting up seed {}", plan.seed))?;
    let result = play(&mut stage).map_err(|why| {
        let log = stage.log.join("\n  ");
        format!("{why:#}\n{plan}  {log}\nlogs end in\n{}", stage.pool.log_tails(12))
    });
    if result.is_err() && options.keep {
        dir.disable_cleanup(true);
        eprintln!("what is left of seed {}: {}", plan.seed, dir.path().display());
    }
    Ok((std::mem::take(&mut stage.counts), result))
}

fn play(stage: &mut Stage) -> Result<()> {
    for step in 1..=stage.plan.steps {
        stage.step().with_context(|| format!("step {step}"))?;
        stage.pool.check_alive().with_context(|| format!("step {step}"))?;
        if step % stage.plan.check_every == 0 {
            stage.check_everything().with_context(|| format!("check after step {step}"))?;
            stage.lose_one_for_good().with_context(|| format!("a loss after step {step}"))?;
        }
    }
    stage.check_everything().context("the last check")?;
    stage.strike().context("taking the pool down")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_one_or_a_range() {
        assert_eq!(seeds("7"), Ok(7..=7));
        assert_eq!(seeds("1..200"), Ok(1..=200));
        assert_eq!(seeds("1..=200"), Ok(1..=200));
        assert!(seeds("3..1").is_err() && seeds("x").is_err());
    }
}
