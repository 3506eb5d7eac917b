//! Measures how a program writes its checkpoint again, of which most is as it was: how much of it goes to donors,
//! and how much faster that is than the first time.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::{Memory, Written, write_to_pool};
use crate::machine;
use crate::measure;
use crate::mounted::{self, Mounted};
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start};
use crate::report::median;

const DONORS: usize = 4;
/// The number of places at which the file changes, evenly spread but for `ASKEW` bytes, so that none begins at a
/// border of a chunk. `CHANGED` is the share of the file that changes.
const PLACES: usize = 2;
const CHANGED: f64 = 0.1;
const ASKEW: usize = 4242;
/// The number of bytes that are inserted in the middle.
const INSERTED: usize = 12_345;

// A second write may send at most this share, and has to be this many times as fast as the first.
const SENT_PERCENT: f64 = 15.0;
const SPEED: f64 = 2.0;

/// The change that a program makes in its memory before it writes again.
#[derive(Clone, Copy)]
enum Change {
    /// A tenth of the bytes, in a few places, are overwritten.
    Overwritten,
    /// Bytes are inserted in the middle.
    Inserted,
}

/// A change, the policy under which it is written, and the limits of the second write.
struct Case {
    what: &'static str,
    change: Change,
    policy: &'static [&'static str],
    sent: Limit,
    speed: Limit,
}

const CASES: [Case; 3] = [
    Case {
        what: "90 % equal",
        change: Change::Overwritten,
        policy: &[],
        sent: Limit::AtMost(SENT_PERCENT),
        speed: Limit::AtLeast(SPEED),
    },
    Case {
        what: "an insertion in the middle",
        change: Change::Inserted,
        policy: &[],
        sent: Limit::None,
        speed: Limit::None,
    },
    Case {
        what: "an insertion in the middle, --cut content",
        change: Change::Inserted,
        policy: &["--cut", "content", "--chunk-size", "1MiB"],
        sent: Limit::AtMost(SENT_PERCENT),
        speed: Limit::None,
    },
];

/// Measures all cases. Returns no figures if this machine cannot mount, and prints why.
pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    if let Some(missing) = mounted::missing() {
        eprintln!("rewrite: SKIPPED: {missing}");
        return Ok(Vec::new());
    }
    let dir = dir.join("rewrite");
    fs::create_dir(&dir)?;
    let most = plan.size.0.div_ceil(1 << 30) * (2 * CASES.len() * plan.rounds) as u64;
    let pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("pool"),
        donors: DONORS,
        lent: &format!("{}GiB", most + 2),
        // Removed files make room soon, and no metadata log is sent while bytes are counted.
        options: &["--metadata-copies", "0", "--gc-delay", "2s"],
        network: None,
    })?;
    let mut memory = Memory::new("rewrite", plan.size.0)?;
    let mut figures = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let space = format!("case-{number}");
        let create = ["space", "create", &space, "--plain", "--copies", "1", "--ack", "memory"];
        measure::run(pool.client().args(create).args(case.policy))?;
        let mounted = Mounted::pool(&pool, &space, dir.join(&space), &[])?;
        let bench = Bench { dir: &dir, pool: &pool, file: &mounted.dir.join("checkpoint") };
        let (mut sent, mut speeds) = (Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            let second = bench.write_twice(&mut memory, case)?;
            eprintln!(
                "round {}: {}: {:.1} % sent, {:.2} × as fast, {:.1} % held as the mount tells it",
                round + 1,
                case.what,
                second.sent_percent,
                second.speed,
                second.held_percent
            );
            sent.push(second.sent_percent);
            speeds.push(second.speed);
        }
        let mut figure = |what: &str, value, unit, limit| {
            let work = format!("rewrite of {}, {}, {what}", plan.size, case.what);
            eprintln!("{work}: {value:.2} {unit}");
            figures.push(Figure { work, value, unit, limit });
        };
        figure("bytes sent", median(sent), "%", case.sent);
        figure("speed of the first write's", median(speeds), "×", case.speed);
    }
    Ok(figures)
}

struct Bench<'a> {
    dir: &'a Path,
    pool: &'a Pool,
    file: &'a Path,
}

/// A second write, compared with the first.
struct Second {
    sent_percent: f64,
    speed: f64,
    held_percent: f64,
}

impl Bench<'_> {
    fn write_twice(&self, memory: &mut Memory, case: &Case) -> Result<Second> {
        memory.change();
        let length = memory.bytes.len();
        let (first, _) = self.write(&memory.bytes)?;
        change(&mut memory.bytes, case.change);
        let (second, stored) = self.write(&memory.bytes)?;
        ensure!(fs::read(self.file)? == memory.bytes, "{} has other bytes", self.file.display());
        let sent_percent = 100.0 * stored / memory.bytes.len() as f64;
        memory.bytes.truncate(length);
        fs::remove_file(self.file)?;
        Ok(Second {
            sent_percent,
            speed: first.observed.as_secs_f64() / second.observed.as_secs_f64(),
            held_percent: 100.0 * second.told_held,
        })
    }

    /// Writes the whole file, and returns the bytes of it that donors stored.
    fn write(&self, bytes: &[u8]) -> Result<(Written, f64)> {
        let before = self.pool.stored_by_donors()?;
        machine::write_back(self.dir)?;
        self.pool.wait_quiet()?;
        machine::back_memory()?;
        let written = write_to_pool(self.file, bytes)?;
        Ok((written, self.pool.stored_by_donors()? - before))
    }
}

fn change(bytes: &mut Vec<u8>, change: Change) {
    let length = bytes.len();
    match change {
        Change::Overwritten => {
            let each = (length as f64 * CHANGED / PLACES as f64) as usize;
            for place in 0..PLACES {
                let from = (place * (length / PLACES) + ASKEW).min(length);
                let changed = &mut bytes[from..(from + each).min(length)];
                changed.iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        Change::Inserted => {
            let middle = (length / 2 + ASKEW).min(length);
            drop(bytes.splice(middle..middle, std::iter::repeat_n(7, INSERTED)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrite_changes_a_tenth_and_insertion_shifts_the_rest() {
        let before: Vec<u8> = (0..4_000_000u32).map(|at| (at % 251) as u8).collect();
        let mut bytes = before.clone();
        change(&mut bytes, Change::Overwritten);
        let changed = bytes.iter().zip(&before).filter(|(now, before)| now != before).count();
        assert_eq!((changed, bytes.len()), (400_000, before.len()));
        let (mut bytes, middle) = (before.clone(), 2_000_000 + ASKEW);
        change(&mut bytes, Change::Inserted);
        assert_eq!(bytes[..middle], before[..middle]);
        assert_eq!(bytes[middle + INSERTED..], before[middle..]);
    }
}
