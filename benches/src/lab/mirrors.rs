//! Reads of files that have one copy, and of files that have two on donors of their own, from the donors' memory and
//! from their disks.

use std::path::Path;

use anyhow::Result;

use super::bed::Bed;
use super::measured::{CLIENT, DONOR, Measured, Options, add, picture, share};
use crate::network::Links;
use crate::outcome::Limit;
use crate::picture::Panel;

/// The least that both mirrors are faster than one, while the donors' links bind.
const LEAST: f64 = 1.9;

/// Measures the rate by the width of the file.
pub fn run(options: &Options, dir: &Path) -> Result<Option<Measured>> {
    let widths: &[usize] = if options.short { &[1] } else { &[1, 2, 4] };
    let settings: Vec<String> = widths.iter().map(ToString::to_string).collect();
    let titles = ["hot (in memory)", "cold (on disk)"];
    let mut panels = titles.map(|title| Panel::new(title, "width", "MiB/s", settings.clone()));
    let mut ratios = Vec::new();
    for (setting, width) in widths.iter().enumerate() {
        let links = Links { client: CLIENT, donors: vec![DONOR; 2 * width] };
        let bed = Bed::new(options, &dir.join(format!("mirrors-{width}")), links)?;
        // At the rate of one mirror's links.
        let bytes = bed.bytes(options.length, 2);
        let local = bed.local("file", bytes)?;
        for copies in ["1", "2"] {
            let width = width.to_string();
            bed.make_space(&format!("copies{copies}"), &["--copies", copies, "--width", &width])?;
            bed.put(&local, &format!("pot://copies{copies}/file"))?;
        }
        for (panel, title) in panels.iter_mut().zip(titles) {
            let mut both_of_one = Vec::new();
            for _ in 0..options.rounds {
                let mut rates = [0.0; 2];
                for (copies, rate) in [1, 2].into_iter().zip(&mut rates) {
                    if title.starts_with("cold") {
                        bed.cool()?;
                    }
                    *rate = bed.get(&format!("pot://copies{copies}/file"), bytes)?;
                }
                add(panel, "one mirror", setting, rates[0]);
                add(panel, "both mirrors", setting, rates[1]);
                both_of_one.push(rates[1] / rates[0]);
            }
            let work = format!("get, {title}, width {width}, both mirrors of one");
            ratios.push(share(work, both_of_one, Limit::AtLeast(LEAST)));
        }
    }
    Ok(Some(Measured {
        picture: picture(options, "lab-mirrors", "mirrors", panels.into()),
        ratios,
    }))
}
