//! Everything a Potluck developer repeats, as `cargo xtask <verb>`.
// xtask times real builds on the real clock: there is nothing here to simulate.
#![allow(clippy::disallowed_methods)]

mod bench;
mod cargo;
mod fuzz;
mod package;
mod scratch;
mod setup;
mod steps;
mod test;
mod test_output;
mod tidy;
mod torture;
mod year;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Everything a Potluck developer repeats")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Set up what is missing, then check and test everything
    Test {
        /// Only this step (after the set-up)
        #[arg(long, value_enum, value_name = "STEP")]
        only: Option<test::Step>,
        /// Every seed and every liar, some twice as long: before an issue is called resolved
        #[arg(long)]
        all: bool,
    },
    /// Check the repository's own rules
    Tidy,
    /// Build in release mode and compare the product with its floors
    Bench {
        /// Passed on to `potluck-bench run`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build in release mode and measure figures of the papers on machines with links of their own (as root)
    Lab {
        /// Passed on to `potluck-bench lab`: `--list`, `--figure`, `--rounds`, `--short` and more
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Make what people install: a Debian package and a Python wheel
    Package(package::Options),
    /// Feed every decoder with what mutation makes of what encoders write, guided by coverage
    Fuzz(fuzz::Options),
    /// Kill, fill up, spoil and deceive pools of real processes
    Torture(torture::Options),
    /// Let every system call of the manager for one write fail, or be its last
    Sweep,
    /// Let a simulated pool of desktops go through a year of ordinary use, and hold it against a new one
    Year {
        /// Passed on: `--donors`, `--files`, `--days`, `--seed`, `--out` and more
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> Result<ExitCode> {
    std::env::set_current_dir(cargo::workspace_root()?)?;
    match Cli::parse().verb {
        Verb::Test { only, all } => Ok(test::run(only, all)),
        Verb::Tidy => {
            let found = tidy::run()?;
            Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Verb::Bench { args } => bench::run(&args),
        Verb::Lab { args } => bench::lab(&args),
        Verb::Package(options) => package::run(&options).map(|()| ExitCode::SUCCESS),
        Verb::Fuzz(options) => fuzz::run(&options),
        Verb::Torture(options) => torture::run(&options),
        Verb::Sweep => torture::sweep::run(),
        Verb::Year { args } => year::run(&args),
    }
}
