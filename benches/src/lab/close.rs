//! How soon a checkpoint's close() returns (OAB) and how soon the pool has it (ASB), by what close() waits for, over
//! links of 1 Gb/s.

use std::path::Path;

use anyhow::Result;

use super::bed::Bed;
use super::measured::{CLIENT, Measured, Options, add, picture, share};
use crate::checkpoint::{self, Memory};
use crate::machine;
use crate::mounted::{self, FuseFloor, Mounted};
use crate::network::Links;
use crate::outcome::Limit;
use crate::picture::Panel;

const LEVELS: [&str; 3] = ["pool", "local", "memory"];
/// The checkpoint of the paper, and what a short run writes instead.
const BYTES: u64 = 1 << 30;
const SHORT_BYTES: u64 = 16 << 20;
/// The least OAB of `--close local`, of a pass-through file system on the same disk.
const LEAST: f64 = 0.85;

/// Measures both rates by the number of donors.
pub fn run(options: &Options, dir: &Path) -> Result<Option<Measured>> {
    if let Some(missing) = mounted::missing() {
        eprintln!("lab, close: SKIPPED: {missing}");
        return Ok(None);
    }
    let (widths, bytes): (&[usize], u64) =
        if options.short { (&[2], SHORT_BYTES) } else { (&[1, 2, 4], BYTES) };
    let settings: Vec<String> = widths.iter().map(ToString::to_string).collect();
    let titles = ["OAB", "ASB"];
    let mut panels = titles.map(|title| Panel::new(title, "donors", "MiB/s", settings.clone()));
    let mut memory = Memory::new("close", bytes)?;
    let mut ratios = Vec::new();
    for (setting, donors) in widths.iter().enumerate() {
        let dir = dir.join(format!("close-{donors}"));
        let links = Links { client: CLIENT, donors: vec![CLIENT; *donors] };
        let bed = Bed::new(options, &dir, links)?;
        let mut mounts = Vec::new();
        for level in LEVELS {
            bed.make_space(level, &["--copies", "1"])?;
            let at = dir.join(format!("at-{level}"));
            mounts.push(Mounted::pool(&bed.pool, level, at, &["--close", level])?);
        }
        let floor = Mounted::floor(&dir, FuseFloor::PassThrough)?;
        let mut of_floor = LEVELS.map(|_| Vec::new());
        for round in 0..options.rounds {
            memory.change();
            machine::write_back(&dir)?;
            let path = floor.dir.join("checkpoint");
            let passed_through = memory.rate(checkpoint::write(&path, memory.bytes())?);
            std::fs::remove_file(&path)?;
            add(&mut panels[0], "pass-through", setting, passed_through);
            for (number, mounted) in mounts.iter().enumerate() {
                memory.change();
                machine::write_back(&dir)?;
                bed.settle()?;
                let path = mounted.dir.join(format!("checkpoint-{round}"));
                let written = checkpoint::write_to_pool(&path, memory.bytes())?;
                std::fs::remove_file(&path)?;
                let observed = memory.rate(written.observed);
                let series = format!("--close {}", LEVELS[number]);
                add(&mut panels[0], &series, setting, observed);
                add(&mut panels[1], &series, setting, memory.rate(written.achieved));
                of_floor[number].push(observed / passed_through);
            }
        }
        for (level, of_floor) in LEVELS.into_iter().zip(of_floor) {
            let work = format!("OAB, --close {level}, {donors} donors, of the pass-through");
            let limit = if level == "local" { Limit::AtLeast(LEAST) } else { Limit::None };
            ratios.push(share(work, of_floor, limit));
        }
        drop(mounts); // They are unmounted before their pool stops.
    }
    Ok(Some(Measured { picture: picture(options, "lab-close", "close", panels.into()), ratios }))
}
