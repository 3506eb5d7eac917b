//! The laboratory: figures of the papers, measured on machines with links of their own. Each figure is written as a
//! picture and a table, and each of its rates is compared with what plain TCP streams carry in the same round.

mod bed;
mod figures;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;

use crate::network;
use crate::report;

/// A figure that the laboratory measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// FreeLoader, figures 6 to 8: 1 to 12 donors on 100 Mb/s each, the client on 1 Gb/s, with one copy and with two
    Width,
    /// FreeLoader, §4.1: some donors on slower links than others, before and after the pool knows the rates
    Mixed,
}

/// The options of a run of the laboratory.
pub struct Options {
    pub potluck: PathBuf,
    pub figures: Vec<Figure>,
    pub rounds: usize,
    /// The seconds that each transfer takes at the rate of the links.
    pub seconds: u64,
    /// Few settings and short transfers: to see that all works, not how fast it is.
    pub quick: bool,
    pub out: PathBuf,
}

/// Measures the figures that were asked for, all by default, and returns their rows. Returns none if links cannot be
/// made here, and prints why.
pub fn run(options: &Options, dir: &Path) -> Result<Vec<report::Row>> {
    if let Some(reason) = network::missing() {
        eprintln!("lab: SKIPPED: {reason}");
        return Ok(Vec::new());
    }
    let wanted = |figure: &Figure| options.figures.is_empty() || options.figures.contains(figure);
    let mut rows = Vec::new();
    for figure in Figure::value_variants().iter().filter(|figure| wanted(figure)) {
        let measured = match figure {
            Figure::Width => figures::width(options, dir)?,
            Figure::Mixed => figures::mixed(options, dir)?,
        };
        measured.picture.write(&options.out)?;
        rows.extend(measured.ratios.iter().map(report::figure_row));
    }
    Ok(rows)
}
