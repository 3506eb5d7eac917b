//! The figures: which machines and settings each has, and what must be so.

use std::path::Path;

use anyhow::Result;

use super::Options;
use super::bed::{Bed, Rates};
use crate::network::Links;
use crate::outcome::{Figure, Limit};
use crate::picture::{Panel, Picture, Sample};
use crate::report::median;

/// The rate of the client's link, and of a donor's, in megabits a second: those of the papers.
const CLIENT: u64 = 1000;
const DONOR: u64 = 100;
/// The rate of a slow donor's link.
const SLOW: u64 = 33;
/// The least share of the rate of plain streams that a transfer reaches.
const LEAST: f64 = 0.95;
/// The rounds by which the pool learns the rates of its donors.
const LEARNING: usize = 1;

const WAYS: [&str; 2] = ["put", "get"];

/// A figure that was measured.
pub struct Measured {
    pub picture: Picture,
    /// The rates of transfers as shares of those of plain streams.
    pub ratios: Vec<Figure>,
}

/// The rate by the number of donors.
pub fn width(options: &Options, dir: &Path) -> Result<Measured> {
    let widths: &[usize] = if options.quick { &[2] } else { &[1, 2, 4, 6, 8, 10, 12] };
    let settings: Vec<String> = widths.iter().map(ToString::to_string).collect();
    let mut panels = WAYS.map(|way| Panel::new(way, "donors", "MiB/s", settings.clone()));
    let mut ratios = Vec::new();
    for (setting, donors) in widths.iter().enumerate() {
        let links = Links { client: CLIENT, donors: vec![DONOR; *donors] };
        let bed = Bed::new(&options.potluck, &dir.join(format!("width-{donors}")), links)?;
        for copies in [1, 2].into_iter().filter(|copies| copies <= donors) {
            let work = format!("{donors} donors of {DONOR} Mb/s, {copies} copies");
            let series = [format!("{copies} copies"), format!("{copies} copies, plain streams")];
            let rounds = rounds(&bed, options, copies)?;
            for round in &rounds[LEARNING..] {
                draw(&mut panels, setting, &series, round);
            }
            ratios.extend(compare(&work, &rounds[LEARNING..]));
        }
    }
    Ok(Measured { picture: picture("lab-width", "width", panels.into()), ratios })
}

/// The rate by the number of slow donors among eight.
pub fn mixed(options: &Options, dir: &Path) -> Result<Measured> {
    let (all, slow): (usize, &[usize]) =
        if options.quick { (3, &[1]) } else { (8, &[0, 1, 2, 4, 6]) };
    let settings: Vec<String> = slow.iter().map(ToString::to_string).collect();
    let axis = "slow donors (33 Mb/s)";
    let mut panels = WAYS.map(|way| Panel::new(way, axis, "MiB/s", settings.clone()));
    let mut ratios = Vec::new();
    for (setting, slow) in slow.iter().enumerate() {
        let donors = (0..all).map(|number| if number < *slow { SLOW } else { DONOR }).collect();
        let links = Links { client: CLIENT, donors };
        let bed = Bed::new(&options.potluck, &dir.join(format!("mixed-{slow}")), links)?;
        let rounds = rounds(&bed, options, 1)?;
        for (number, round) in rounds.iter().enumerate() {
            let product = if number < LEARNING { "rates not known" } else { "rates known" };
            draw(&mut panels, setting, &[product.into(), "plain streams".into()], round);
        }
        let work = format!("{slow} of {all} donors slow");
        ratios.extend(compare(&work, &rounds[LEARNING..]));
    }
    Ok(Measured { picture: picture("lab-mixed", "mixed", panels.into()), ratios })
}

/// Runs the rounds of one setting, those in which the pool learns first.
fn rounds(bed: &Bed, options: &Options, copies: usize) -> Result<Vec<[Rates; 2]>> {
    let space = format!("copies{copies}");
    bed.make_space(&space, copies)?;
    let bytes = bed.bytes(options.seconds, copies);
    (0..LEARNING + options.rounds).map(|number| bed.round(&space, copies, number, bytes)).collect()
}

fn draw(panels: &mut [Panel; 2], setting: usize, series: &[String; 2], round: &[Rates; 2]) {
    for (panel, rates) in panels.iter_mut().zip(round) {
        for (name, rate) in series.iter().zip([rates.product, rates.streams]) {
            let clock = rate / f64::from(1 << 20);
            panel.add(name, setting, Sample { clock, told: None });
        }
    }
}

fn compare(work: &str, rounds: &[[Rates; 2]]) -> Vec<Figure> {
    let ratio = |(way, name): (usize, &&str)| {
        let ratios = rounds.iter().map(|round| round[way].product / round[way].streams);
        Figure {
            work: format!("{name}, {work}, of plain streams"),
            value: median(ratios.collect()),
            unit: "×",
            limit: Limit::AtLeast(LEAST),
        }
    };
    WAYS.iter().enumerate().map(ratio).collect()
}

fn picture(name: &'static str, figure: &str, panels: Vec<Panel>) -> Picture {
    let commands = vec![format!("cargo xtask lab --figure {figure}")];
    Picture { name, commands, panels }
}
