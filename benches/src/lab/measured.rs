//! Holds what all figures of the laboratory share: how long they are measured, over which links, and what comes of it.

use std::path::PathBuf;
use std::time::Duration;

use crate::network::Link;
use crate::outcome::{Figure, Limit};
use crate::picture::{Panel, Picture, Sample};
use crate::report;

/// The links of the papers: the client's, and a donor's.
pub const CLIENT: Link = Link::Mbit(1000);
pub const DONOR: Link = Link::Mbit(100);

/// The options of a run of the laboratory.
pub struct Options {
    pub potluck: PathBuf,
    pub rounds: usize,
    /// The time that each transfer takes at the rate of the links.
    pub length: Duration,
    /// One or two settings of each figure and no rounds before: to see that all works, not how fast it is.
    pub short: bool,
    pub out: PathBuf,
}

/// A figure that was measured.
pub struct Measured {
    pub picture: Picture,
    /// The rates that are compared with what they must be.
    pub ratios: Vec<Figure>,
}

/// Adds a rate in bytes a second to a panel of MiB a second.
pub fn add(panel: &mut Panel, series: &str, setting: usize, rate: f64) {
    panel.add(series, setting, Sample { clock: rate / f64::from(1 << 20), told: None });
}

pub fn picture(options: &Options, name: &'static str, figure: &str, panels: Vec<Panel>) -> Picture {
    let short = if options.short { " --short" } else { "" };
    let command = format!("cargo xtask lab --figure {figure} --rounds {}{short}", options.rounds);
    Picture { name, commands: vec![command], panels }
}

/// Returns a row that says what share of `of` the product reached, by the median of the rounds.
pub fn share(work: String, rounds: impl IntoIterator<Item = f64>, limit: Limit) -> Figure {
    let value = report::median(rounds.into_iter().collect());
    Figure { work, value, unit: "×", limit }
}
