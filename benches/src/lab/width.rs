//! The rate by the number of donors, and by the number of slow ones among them, beside what plain TCP streams carry in
//! the same round.

use std::path::Path;

use anyhow::Result;

use super::bed::{Bed, Rates, WAYS, Way};
use super::measured::{CLIENT, DONOR, Measured, Options, add, picture, share};
use crate::network::{Link, Links};
use crate::outcome::{Figure, Limit};
use crate::picture::Panel;

/// The rate of a slow donor's link.
const SLOW: Link = Link::Mbit(33);
/// The least share of the rate of plain streams that a transfer reaches.
const LEAST: f64 = 0.95;

/// Measures the rate by the number of donors.
pub fn width(options: &Options, dir: &Path) -> Result<Option<Measured>> {
    let widths: &[usize] = if options.short { &[2] } else { &[1, 2, 4, 6, 8, 10, 12] };
    let settings: Vec<String> = widths.iter().map(ToString::to_string).collect();
    let mut panels = WAYS.map(|way| Panel::new(way.name(), "donors", "MiB/s", settings.clone()));
    let mut ratios = Vec::new();
    for (setting, donors) in widths.iter().enumerate() {
        let links = Links { client: CLIENT, donors: vec![DONOR; *donors] };
        let bed = Bed::new(options, &dir.join(format!("width-{donors}")), links)?;
        for copies in [1, 2].into_iter().filter(|copies| copies <= donors) {
            let work = format!("{donors} donors of 100 Mb/s, {copies} copies");
            let series = [format!("{copies} copies"), format!("{copies} copies, plain streams")];
            // The pool learns the rates of its donors by the first round.
            let learning = usize::from(!options.short);
            let rounds = rounds(&bed, options, copies, learning)?;
            for round in &rounds[learning..] {
                draw(&mut panels, setting, &series, round);
            }
            ratios.extend(compare(&work, &rounds[learning..]));
        }
    }
    Ok(Some(Measured { picture: picture(options, "lab-width", "width", panels.into()), ratios }))
}

/// Measures the rate by the number of slow donors among eight.
pub fn mixed(options: &Options, dir: &Path) -> Result<Option<Measured>> {
    let (all, slow): (usize, &[usize]) =
        if options.short { (3, &[1]) } else { (8, &[0, 1, 2, 4, 6]) };
    let settings: Vec<String> = slow.iter().map(ToString::to_string).collect();
    let axis = "slow donors (33 Mb/s)";
    let mut panels = WAYS.map(|way| Panel::new(way.name(), axis, "MiB/s", settings.clone()));
    let mut ratios = Vec::new();
    for (setting, slow) in slow.iter().enumerate() {
        let donors = (0..all).map(|number| if number < *slow { SLOW } else { DONOR }).collect();
        let links = Links { client: CLIENT, donors };
        let bed = Bed::new(options, &dir.join(format!("mixed-{slow}")), links)?;
        let rounds = rounds(&bed, options, 1, 1)?;
        for (number, round) in rounds.iter().enumerate() {
            let product = if number == 0 { "rates not known" } else { "rates known" };
            draw(&mut panels, setting, &[product.into(), "plain streams".into()], round);
        }
        ratios.extend(compare(&format!("{slow} of {all} donors slow"), &rounds[1..]));
    }
    Ok(Some(Measured { picture: picture(options, "lab-mixed", "mixed", panels.into()), ratios }))
}

/// Runs the rounds of one setting, those in which the pool learns first.
fn rounds(bed: &Bed, options: &Options, copies: usize, learning: usize) -> Result<Vec<[Rates; 2]>> {
    let space = format!("copies{copies}");
    bed.make_space(&space, &["--copies", &copies.to_string()])?;
    let bytes = bed.bytes(options.length, copies);
    (0..learning + options.rounds).map(|number| bed.round(&space, copies, number, bytes)).collect()
}

fn draw(panels: &mut [Panel; 2], setting: usize, series: &[String; 2], round: &[Rates; 2]) {
    for (panel, rates) in panels.iter_mut().zip(round) {
        for (name, rate) in series.iter().zip([rates.product, rates.streams]) {
            add(panel, name, setting, rate);
        }
    }
}

fn compare(work: &str, rounds: &[[Rates; 2]]) -> Vec<Figure> {
    let ratio = |(at, way): (usize, Way)| {
        let ratios = rounds.iter().map(|round| round[at].product / round[at].streams);
        let work = format!("{}, {work}, of plain streams", way.name());
        share(work, ratios, Limit::AtLeast(LEAST))
    };
    WAYS.into_iter().enumerate().map(ratio).collect()
}
