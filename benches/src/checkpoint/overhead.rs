//! Measures the time to write one checkpoint to file systems that each do a part of what a mounted pool does
//! (checkpoint store, table I), and to the pool, through a mount and by `cp`.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::{Memory, Written, write, write_to_pool};
use crate::content;
use crate::floor_runs::{Floor, Floors};
use crate::floors;
use crate::machine;
use crate::measure;
use crate::mounted::{self, FuseFloor, Mounted};
use crate::outcome::{Figure, Limit};
use crate::picture::{Panel, Picture, Sample};
use crate::plan::Plan;
use crate::pool::{Pool, Start};
use crate::report::median;

/// The number of donors, which is that of the paper.
const DONORS: usize = 4;
const SPACE: &str = "ckpt";
const POLICY: [&str; 5] = ["--plain", "--copies", "1", "--ack", "memory"];
const MOUNT: [&str; 4] = ["--write-protocol", "sliding-window", "--write-window", "32MiB"];

// These are the least shares of the rates of the null file system and of cp that a mount has to reach.
const OF_NULL: f64 = 0.9;
const OF_CP: f64 = 0.9;

/// The seconds until a checkpoint was closed, and until it was stored.
struct Took {
    closed: f64,
    stored: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    LocalDisk,
    PassThrough,
    Null,
    Pool,
    Cp,
    FloorPut,
}

const TARGETS: [(Target, &str); 6] = [
    (Target::LocalDisk, "local disk"),
    (Target::PassThrough, "FUSE to local disk"),
    (Target::Null, "NULL-FUSE"),
    (Target::Pool, "mounted pool"),
    (Target::Cp, "potluck cp"),
    (Target::FloorPut, "floor-put"),
];

/// Writes to all targets in each round, and returns the figures. Returns none if this machine cannot mount, and
/// prints why.
pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    if let Some(missing) = mounted::missing() {
        eprintln!("checkpoint: SKIPPED: {missing}");
        return Ok(Vec::new());
    }
    let dir = &dir.join("checkpoint");
    fs::create_dir(dir)?;
    let pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("pool"),
        donors: DONORS,
        lent: &format!("{}GiB", plan.size.0.div_ceil(1 << 30) * (2 * plan.rounds as u64 + 1) + 2),
        options: &["--metadata-copies", "0", "--gc-delay", "2s"],
        network: None,
    })?;
    measure::run(pool.client().args(["space", "create", SPACE]).args(POLICY))?;
    let mut bench = Bench {
        dir,
        passed_through: Mounted::floor(dir, FuseFloor::PassThrough)?,
        null: Mounted::floor(dir, FuseFloor::Null)?,
        mounted: Mounted::pool(&pool, SPACE, dir.join("mounted"), &MOUNT)?,
        pool,
        floors: Floors::new(dir, floors::PIECE)?,
        memory: Memory::new("overhead", plan.size.0)?,
    };
    let mut took: [Vec<Took>; TARGETS.len()] = Default::default();
    for round in 0..plan.rounds {
        // The order is reversed each time, so that no target always finds the warmer machine.
        for turn in 0..TARGETS.len() {
            let at = if round % 2 == 0 { turn } else { TARGETS.len() - 1 - turn };
            let (target, name) = TARGETS[at];
            let one = bench.write(target)?;
            eprintln!("round {}: {name}: {:.3} s, {:.3} s", round + 1, one.closed, one.stored);
            took[at].push(one);
        }
    }
    let picture = picture(plan, &took);
    picture.write(&plan.out)?;
    let mut figures = picture.figures();
    let times = |target, time: fn(&Took) -> f64| {
        let at = TARGETS.iter().position(|(it, _)| *it == target).expect("all are there");
        took[at].iter().map(time).collect::<Vec<_>>()
    };
    // This is the rate of `of` as a multiple of that of `other`, by the median of the rounds.
    let share = |time: fn(&Took) -> f64, of: Target, other: Target| {
        let rounds = times(other, time).into_iter().zip(times(of, time));
        median(rounds.map(|(other, of)| other / of).collect())
    };
    let mut figure = |work: &str, value: f64, limit| {
        eprintln!("{work}: {value:.2} ×");
        figures.push(Figure { work: work.to_owned(), value, unit: "×", limit });
    };
    let of_null = share(|took| took.closed, Target::Pool, Target::Null);
    figure("checkpoint, OAB of NULL-FUSE's", of_null, Limit::AtLeast(OF_NULL));
    let most = share(|took| took.closed, Target::FloorPut, Target::Null);
    figure("checkpoint, floor-put's rate of NULL-FUSE's", most, Limit::None);
    let of_cp = share(|took| took.stored, Target::Pool, Target::Cp);
    figure("checkpoint, ASB of cp's", of_cp, Limit::AtLeast(OF_CP));
    Ok(figures)
}

struct Bench<'a> {
    dir: &'a Path,
    // These are unmounted before their pool is stopped, for fields are dropped in this order.
    passed_through: Mounted,
    null: Mounted,
    mounted: Mounted,
    pool: Pool,
    floors: Floors,
    memory: Memory,
}

impl Bench<'_> {
    /// Writes a checkpoint with a new content to `target`, and returns how long it took.
    fn write(&mut self, target: Target) -> Result<Took> {
        self.memory.change();
        let (bytes, local) = (&self.memory.bytes, self.dir.join("written"));
        if matches!(target, Target::Cp | Target::FloorPut) {
            fs::write(&local, bytes)?;
        }
        machine::write_back(self.dir)?;
        self.pool.wait_quiet()?;
        machine::back_memory()?;
        let write_in = |mounted: &Mounted| {
            let path = mounted.dir.join("written");
            let took = write(&path, bytes)?;
            fs::remove_file(&path)?;
            anyhow::Ok(took)
        };
        let took = match target {
            Target::LocalDisk => write(&local, bytes)?,
            Target::PassThrough => write_in(&self.passed_through)?,
            Target::Null => write_in(&self.null)?,
            Target::Pool => {
                let path = self.mounted.dir.join("written");
                let Written { observed, achieved, .. } = write_to_pool(&path, bytes)?;
                fs::remove_file(&path)?;
                let (closed, stored) = (observed.as_secs_f64(), achieved.as_secs_f64());
                return Ok(Took { closed, stored });
            }
            Target::Cp => {
                let mut cp = self.pool.client();
                cp.args(["cp", "-q"]).arg(&local).arg(format!("pot://{SPACE}/copied"));
                measure::run(&mut cp)?.cost.wall
            }
            Target::FloorPut => self.floors.run(Floor::Put, &local)?.wall,
        };
        content::remove(&local)?;
        Ok(Took { closed: took.as_secs_f64(), stored: took.as_secs_f64() })
    }
}

fn picture(plan: &Plan, took: &[Vec<Took>]) -> Picture {
    let names = TARGETS.iter().map(|(_, name)| (*name).to_owned()).collect();
    let mut panel =
        Panel::new(format!("Table I: time to write {}", plan.size), "written to", "s", names);
    for (setting, rounds) in took.iter().enumerate() {
        for took in rounds {
            panel.add("until it is closed", setting, Sample { clock: took.closed, told: None });
            panel.add("until it is stored", setting, Sample { clock: took.stored, told: None });
        }
    }
    let commands = vec![
        super::command(plan, "checkpoint"),
        format!("potluck space create {SPACE} {}", POLICY.join(" ")),
        format!("potluck mount {} pot://{SPACE} DIR", MOUNT.join(" ")),
    ];
    Picture { name: "checkpoint-overhead", commands, panels: vec![panel] }
}
