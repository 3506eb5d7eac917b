//! Donors on lines of 100 kb/s and 100 ms, beside what plain TCP streams carry in the same round.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use potluck_line::SlowLine;

use super::bed::{Bed, WAYS};
use super::measured::{CLIENT, Measured, Options, add, picture, share};
use crate::network::{Link, Links};
use crate::outcome::Limit;
use crate::picture::Panel;

const LINE: SlowLine = SlowLine { rate: 100_000, delay: Duration::from_millis(100), loss: 0.0 };
/// The time that a transfer takes at the rate of the lines, of which the round trips are a small part.
const LENGTH: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(1);

/// Measures the rate by the number of donors.
pub fn run(options: &Options, dir: &Path) -> Result<Option<Measured>> {
    if let Some(reason) = potluck_line::missing() {
        eprintln!("lab, slow lines: SKIPPED: {reason}");
        return Ok(None);
    }
    let widths: &[usize] = if options.short { &[2] } else { &[1, 2, 4] };
    let settings: Vec<String> = widths.iter().map(ToString::to_string).collect();
    let axis = "donors (100 kb/s, 100 ms)";
    let mut panels = WAYS.map(|way| Panel::new(way.name(), axis, "KiB/s", settings.clone()));
    let mut ratios = Vec::new();
    for (setting, donors) in widths.iter().enumerate() {
        let links = Links { client: CLIENT, donors: vec![Link::Slow(LINE); *donors] };
        let bed = Bed::new(options, &dir.join(format!("slow-{donors}")), links)?;
        bed.make_space("slow", &["--copies", "1", "--chunk-size", "64KiB"])?;
        let bytes = bed.bytes(if options.short { SHORT } else { LENGTH }, 1);
        let rounds = (0..options.rounds)
            .map(|number| bed.round("slow", 1, number, bytes))
            .collect::<Result<Vec<_>>>()?;
        for (at, way) in WAYS.into_iter().enumerate() {
            for round in &rounds {
                // The panel is in KiB a second: a MiB would be an axis of thousandths.
                add(&mut panels[at], "potluck", setting, round[at].product * 1024.0);
                add(&mut panels[at], "plain streams", setting, round[at].streams * 1024.0);
            }
            let work = format!("{}, {donors} donors of 100 kb/s, of plain streams", way.name());
            let of_streams = rounds.iter().map(|round| round[at].product / round[at].streams);
            ratios.push(share(work, of_streams, Limit::None));
        }
    }
    Ok(Some(Measured { picture: picture(options, "lab-slow", "slow", panels.into()), ratios }))
}
