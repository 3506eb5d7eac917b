//! The laboratory: figures of the papers, measured on machines with links of their own. Each figure is written as a
//! picture and a table.

mod bed;
mod close;
mod measured;
mod mirrors;
mod near;
mod owner;
mod sizes;
mod slow;
mod stress;
mod width;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use crate::network;
use crate::outcome::Limit;
use crate::report;

use measured::Measured;
pub use measured::Options;

/// A figure that the laboratory measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Figure {
    /// FreeLoader, figures 6 to 8: 1 to 12 donors on 100 Mb/s each, the client on 1 Gb/s, with one copy and with two
    Width,
    /// FreeLoader, §4.1: some donors on slower links than others, before and after the pool knows the rates
    Mixed,
    /// FreeLoader, figure 9: a part of each file on the client's own machine, read there and elsewhere
    Near,
    /// CEFT, figures 8 and 9: small and large files on few and on many donors
    Sizes,
    /// CEFT, figures 12 to 16 and tables 22 and 23: the link of one donor is full of others' traffic
    Stress,
    /// CEFT, figures 19 and 20 and tables 1 and 2: reads from one mirror and from both, hot and cold
    Mirrors,
    /// Checkpoint store, figures 5 and 6: OAB and ASB by what close() waits for
    Close,
    /// Lines of 100 kb/s and 100 ms
    Slow,
    /// FreeLoader, figures 11 and 12: how much longer jobs of a donor's owner take while a client moves data
    Owner,
}

/// Prints the figures and what each shows.
pub fn list() {
    for figure in Figure::value_variants() {
        let about = figure.to_possible_value().expect("every figure has a name");
        let help = about.get_help().map(ToString::to_string).unwrap_or_default();
        println!("{:<8} {help}", about.get_name());
    }
}

/// Measures the figures that were asked for, all by default, and returns their rows. Returns none if links cannot be
/// made here, and prints why.
pub fn run(options: &Options, figures: &[Figure], dir: &Path) -> Result<Vec<report::Row>> {
    if let Some(reason) = network::missing() {
        eprintln!("lab: SKIPPED: {reason}");
        return Ok(Vec::new());
    }
    let wanted = |figure: &Figure| figures.is_empty() || figures.contains(figure);
    let mut rows = Vec::new();
    for figure in Figure::value_variants().iter().filter(|figure| wanted(figure)) {
        let measured = match figure {
            Figure::Width => width::width(options, dir)?,
            Figure::Mixed => width::mixed(options, dir)?,
            Figure::Near => near::run(options, dir)?,
            Figure::Sizes => sizes::run(options, dir)?,
            Figure::Stress => stress::run(options, dir)?,
            Figure::Mirrors => mirrors::run(options, dir)?,
            Figure::Close => close::run(options, dir)?,
            Figure::Slow => slow::run(options, dir)?,
            Figure::Owner => owner::run(options, dir)?,
        };
        let Some(Measured { picture, mut ratios }) = measured else { continue };
        picture.write(&options.out)?;
        if options.short {
            // What takes a moment says nothing of a rate.
            ratios.iter_mut().for_each(|ratio| ratio.limit = Limit::None);
        }
        rows.extend(ratios.iter().map(report::figure_row));
    }
    Ok(rows)
}
