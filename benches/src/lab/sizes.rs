//! Small and large files on few and on many donors, beside what the pool chooses by itself.

use std::path::Path;

use anyhow::Result;

use super::bed::Bed;
use super::measured::{CLIENT, DONOR, Measured, Options, add, picture, share};
use crate::network::Links;
use crate::outcome::Limit;
use crate::picture::Panel;
use crate::report::median;

const KIB: u64 = 1 << 10;
/// The least share of the best width's rate that the width has which the pool chooses.
const LEAST: f64 = 0.95;
/// The files of each size that are put in a round, of which the median is taken: a small one is there in an instant.
const FILES: usize = 5;

/// Measures the rate of puts by the size of the file.
pub fn run(options: &Options, dir: &Path) -> Result<Option<Measured>> {
    let (widths, sizes): (&[&str], &[u64]) = match options.short {
        true => (&["1", "auto"], &[512]),
        false => (&["1", "2", "4", "8", "auto"], &[512, 2048, 8192, 32768, 131_072]),
    };
    let donors = if options.short { 2 } else { 8 };
    let links = Links { client: CLIENT, donors: vec![DONOR; donors] };
    let bed = Bed::new(options, &dir.join("sizes"), links)?;
    for width in widths {
        bed.make_space(&format!("width-{width}"), &["--copies", "1", "--width", width])?;
    }
    let settings = sizes.iter().map(|kib| format!("{} MiB", *kib as f64 / 1024.0)).collect();
    let mut panel = Panel::new("put", "file size", "MiB/s", settings);
    let mut ratios = Vec::new();
    for (setting, kib) in sizes.iter().enumerate() {
        // A rate for each width in each round.
        let mut rates = vec![Vec::new(); widths.len()];
        for round in 0..options.rounds {
            let mut of_round = vec![Vec::new(); widths.len()];
            for file in 0..if options.short { 1 } else { FILES } {
                for (width, of_round) in widths.iter().zip(&mut of_round) {
                    let name = format!("{kib}-{round}-{file}");
                    let local = bed.local(&format!("{name}-{width}"), kib * KIB)?;
                    let remote = format!("pot://width-{width}/{name}");
                    of_round.push(bed.put(&local, &remote)?);
                    bed.remove(&remote)?;
                }
            }
            for ((width, rates), of_round) in widths.iter().zip(&mut rates).zip(of_round) {
                let rate = median(of_round);
                add(&mut panel, &format!("width {width}"), setting, rate);
                rates.push(rate);
            }
        }
        let (auto, fixed) = rates.split_last().expect("one width is chosen by the pool");
        let best = fixed.iter().map(|rates| median(rates.clone())).fold(0.0, f64::max);
        let work = format!("put of {kib} KiB with the width chosen by the pool, of the best width");
        ratios.push(share(work, auto.iter().map(|rate| rate / best), Limit::AtLeast(LEAST)));
    }
    Ok(Some(Measured { picture: picture(options, "lab-sizes", "sizes", vec![panel]), ratios }))
}
