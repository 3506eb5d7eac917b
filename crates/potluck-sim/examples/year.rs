//! Simulates a year of ordinary use (`cargo xtask year`): prints a line for each tenth day, or in a short run for
//! each day, writes a table and a picture, and fails if something was lost or has grown.

use clap::Parser;
use potluck_sim::year::{self, YearOptions};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
struct Cli {
    /// Desktops that lend
    #[arg(long, default_value_t = 100)]
    donors: u32,
    /// Files at all times
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// Simulated days
    #[arg(long, default_value_t = 365)]
    days: u64,
    /// What chance begins with
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulated seconds from heartbeat to heartbeat while nobody works
    #[arg(long, default_value_t = 3600)]
    speed: u32,
    /// Days from one replacement of a machine to the next
    #[arg(long, default_value_t = 8)]
    replace_every: u64,
    /// Directory for the table and the picture; the last one given counts
    #[arg(long, default_value = "target/year", overrides_with = "out")]
    out: PathBuf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let Cli { donors, files, days, seed, speed, replace_every, .. } = cli;
    let options = YearOptions { donors, files, days, seed, speed, replace_every, log_copies: 3 };
    let lived = year::run(options, |figures| {
        if figures.day % 10 == 0 || days <= 40 {
            let columns = figures.columns().map(|(name, value)| format!("{name} {value}"));
            println!("{}", columns.join(", "));
        }
    });
    let lived = match lived {
        Ok(lived) => lived,
        Err(why) => {
            println!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(why) = year::save(&lived, &cli.out) {
        println!("{}: {why}", cli.out.display());
        return ExitCode::FAILURE;
    }
    let mut grown = 0;
    for ratio in lived.ratios() {
        let fine = ratio.aged <= ratio.most;
        grown += u32::from(!fine);
        let word = if fine { "" } else { "  GROWN" };
        let (name, aged, fresh) = (&ratio.name, ratio.aged, ratio.fresh);
        println!("{name:<24} {aged:>12} {fresh:>12} {:>6.3}{word}", ratio.ratio());
    }
    println!("0 bytes lost; {} writes and removals were tried again", lived.tried_again);
    if grown == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
