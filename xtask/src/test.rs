//! `cargo xtask test`: everything that must hold before a change is published.

use std::ops::RangeInclusive;
use std::process::ExitCode;

use clap::ValueEnum;

use crate::cargo::cargo;
use crate::steps::{Steps, run_command};
use crate::{package, setup, test_output, tidy, torture};

/// One step, as `--only` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// rustfmt finds nothing to change
    Fmt,
    /// clippy has no warnings
    Clippy,
    /// The repository keeps its own rules
    Tidy,
    /// Everything and its tests compile, then all tests: unit, property, integration, simulation
    Test,
    /// The Debian package and the wheel install, work and go without a trace
    Package,
    /// Pools of real processes keep every promise through hundreds of kills and other faults
    Torture,
    /// One write and commit survives trouble at every system call of the manager
    Sweep,
}

/// What the test command's torture tries, and how many processes it kills at least.
const SEEDS: RangeInclusive<u64> = 1..=8;
const KILLS: u64 = 200;

/// Most tests wait for processes most of the time: two to a core leave a third of the cores idle.
fn test_threads() -> usize {
    2 * std::thread::available_parallelism().map_or(2, usize::from)
}

/// Runs the steps one after the other (never two builds side by side: they would fight over
/// memory and the target directory's lock) and goes on after a failure.
pub fn run(only: Option<Step>) -> ExitCode {
    let wanted = |step| only.is_none_or(|one| one == step);
    let mut steps = Steps::default();
    let mut tally = test_output::Tally::default();

    steps.run("set-up", setup::run);
    if wanted(Step::Fmt) {
        steps.run("fmt", || {
            run_command(&mut cargo(&["fmt", "--all", "--check"]))
                .map_err(|_| "`cargo fmt --all` puts it right".to_owned())
        });
    }
    if wanted(Step::Clippy) {
        let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        steps.run("clippy", || run_command(&mut cargo(&arguments)));
    }
    if wanted(Step::Tidy) {
        steps.run("tidy", || match tidy::run() {
            Ok(0) => Ok(String::new()),
            Ok(count) => Err(format!("{count} offences")),
            Err(error) => Err(format!("{error:#}")),
        });
    }
    if wanted(Step::Test) {
        let built =
            steps.run("build", || run_command(&mut cargo(&["test", "--workspace", "--no-run"])));
        if built {
            // Without --no-fail-fast the first failing crate would hide the others.
            let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
            command.env("RUST_TEST_THREADS", test_threads().to_string());
            steps.run("test", || {
                let (outcome, seen) = test_output::relay(&mut command, &mut std::io::stdout());
                tally = seen;
                outcome
            });
        } else {
            steps.not_run("test", "the build failed");
        }
    }
    if wanted(Step::Package) {
        steps.run("package", package::test);
    }
    if wanted(Step::Torture) {
        steps.run("torture", || torture::test(SEEDS, KILLS));
    }
    if wanted(Step::Sweep) {
        steps.run("sweep", torture::sweep::test);
    }

    tally.print_skipped();
    let good = steps.summarise("cargo xtask test", &tally.to_string());
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
