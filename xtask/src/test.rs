//! `cargo xtask test`: everything that must hold before a change is published.

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::cargo::{cargo, lint_from_now_on, test_targets};
use crate::steps::{Beside, Steps, run_command};
use crate::test_output::Tally;
use crate::{bench, package, scratch, setup, test_output, tidy, torture};

/// One step, as `--only` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// rustfmt finds nothing to change
    Fmt,
    /// The repository keeps its own rules
    Tidy,
    /// Everything and its tests compile, and clippy has no warnings
    Build,
    /// All tests, once they are built: unit, property, integration, simulation
    Test,
    /// The Debian package and the wheel install, work and go without a trace
    Package,
    /// The laboratory measures one setting of each figure, for which it takes root
    Lab,
    /// Pools of real processes keep every promise through hundreds of kills and other faults
    Torture,
    /// One write and commit survives trouble at every system call of the manager
    Sweep,
}

/// How much of what has no natural end is tried.
struct Extent {
    /// The seeds of the torture.
    torture: RangeInclusive<u64>,
    /// What must have happened in them.
    wanted: torture::Wanted,
    /// The environment in which tests try that much.
    environment: &'static [(&'static str, &'static str)],
}

/// Tried after each change, in the minutes that one waits for.
const SHORT: Extent = Extent {
    torture: 1..=2,
    wanted: torture::Wanted { kills: 20, every_kind: false },
    environment: &[],
};

/// Tried before an issue is called resolved.
const ALL: Extent = Extent {
    torture: 1..=8,
    wanted: torture::Wanted { kills: 200, every_kind: true },
    environment: &[
        ("POTLUCK_TESTS", "all"),
        ("POTLUCK_SIM_SEEDS", "140"),
        ("POTLUCK_SIM_LIARS", "all"),
    ],
};

/// The test target that computes all the time, while all others wait most of the time.
const SIMULATION: &str = "simulation";

/// Several times what each selection of tests takes on two busy cores: what takes longer has stopped.
const LIMIT: Duration = Duration::from_mins(35);

/// Starts the simulation's tests, which run in what the other steps leave of the processors: clocks and networks
/// are simulated there, so how slow the machine is changes nothing for them.
fn start_simulation(extent: &Extent) -> JoinHandle<(Beside, Tally)> {
    let environment = extent.environment;
    thread::spawn(|| {
        // The priority is that of this thread and of the processes that it starts.
        let lowest = rustix::process::nice(19).map_err(|error| format!("nice: {error}"));
        let started = Instant::now();
        let mut printed = Vec::new();
        let mut command = cargo(&["test", "-q", "--workspace", "--test", SIMULATION]);
        command.envs(environment.iter().copied());
        let (outcome, tally) = test_output::relay(&mut command, LIMIT, &mut printed);
        let outcome = lowest.and(outcome);
        (Beside { outcome, took: started.elapsed(), printed }, tally)
    })
}

/// Starts the sweep over the system calls of one write.
fn start_sweep() -> JoinHandle<Beside> {
    thread::spawn(|| {
        let (started, mut printed) = (Instant::now(), Vec::new());
        let outcome = torture::sweep::test(&mut printed);
        Beside { outcome, took: started.elapsed(), printed }
    })
}

/// The test target whose tests run pools of real processes.
const POOL: &str = "pool";

/// The tests of everything else.
fn run_other_tests(extent: &Extent, tally: &mut Tally) -> Result<String, String> {
    let scratch =
        scratch::directory("potluck-tests-").map_err(|error| format!("a directory: {error}"))?;
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let targets = test_targets().map_err(|error| format!("{error:#}"))?;
    let others = targets.iter().filter(|target| ![SIMULATION, POOL].contains(&target.as_str()));
    let others: Vec<_> = others.flat_map(|target| ["--test", target]).collect();

    // One selection of packages serves for all: with another one, dependencies have other features and are
    // compiled once more. Tests inside a process wait for timers and their own clients nine tenths of the time;
    // three pools of processes to a core leave an eighth of the cores to the simulation.
    let selections: [(&[&str], usize); 3] = [
        (&[&["--lib", "--bins"], &others[..]].concat(), 8),
        (&["--test", POOL], 3),
        // Examples in documentation, which no other selection of targets runs.
        (&["--doc"], 2),
    ];
    let mut outcome = Ok(String::new());
    for (selection, tests_a_core) in selections {
        // Without --no-fail-fast the first failing crate would hide the others.
        let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
        command.args(selection).envs(extent.environment.iter().copied());
        command.env("RUST_TEST_THREADS", (tests_a_core * cores).to_string());
        command.env("TMPDIR", scratch.path());
        let (mut ended, mut seen) = test_output::relay(&mut command, LIMIT, &mut std::io::stdout());
        // Hundreds of tests wait for real processes on a machine that may be busy with other work. What fails twice,
        // the second time alone, has no such excuse; what passes then is named as flaky at the end.
        if let Some(failed) = seen.to_run_again() {
            let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
            command.args(selection).args(["--", "--exact"]).args(failed);
            command.envs(extent.environment.iter().copied());
            command.env("RUST_TEST_THREADS", "1").env("TMPDIR", scratch.path());
            let (_, again) = test_output::relay(&mut command, LIMIT, &mut std::io::stdout());
            if seen.ran_again(&again) {
                ended = Ok(String::new());
            }
        }
        tally.add(seen);
        outcome = outcome.and(ended);
    }
    outcome
}

/// Runs the steps one after the other (never two builds side by side: they would fight over
/// memory and the target directory's lock), the simulation beside those after the build, the sweep beside the torture,
/// and goes on after a failure.
pub fn run(only: Option<Step>, all: bool) -> ExitCode {
    let extent = if all { ALL } else { SHORT };
    let wanted = |step| only.is_none_or(|one| one == step);
    let mut steps = Steps::new();
    let mut tally = Tally::default();
    let mut simulation = None;

    steps.run("set-up", setup::run);
    if wanted(Step::Fmt) {
        steps.run("fmt", || {
            run_command(&mut cargo(&["fmt", "--all", "--check"]))
                .map_err(|_| "`cargo fmt --all` puts it right".to_owned())
        });
    }
    if wanted(Step::Tidy) {
        steps.run("tidy", || match tidy::run() {
            Ok(0) => Ok(String::new()),
            Ok(count) => Err(format!("{count} offences")),
            Err(error) => Err(format!("{error:#}")),
        });
    }
    lint_from_now_on();
    let built = (wanted(Step::Build) || wanted(Step::Test)).then(|| {
        steps.run("build", || run_command(&mut cargo(&["test", "--workspace", "--no-run"])))
    });
    if wanted(Step::Test) {
        if built == Some(true) {
            simulation = Some(start_simulation(&extent));
            steps.run("test", || run_other_tests(&extent, &mut tally));
        } else {
            steps.not_run("test", "the build failed");
        }
    }
    if wanted(Step::Package) {
        steps.run("package", package::test);
    }
    if wanted(Step::Lab) {
        steps.run("lab", bench::short_lab);
    }
    // Both wait for processes most of the time.
    let sweep = wanted(Step::Sweep).then(start_sweep);
    if wanted(Step::Torture) {
        steps.run("torture", || torture::test(extent.torture, &extent.wanted));
    }
    if let Some(sweep) = sweep {
        steps.ran_beside("sweep", sweep.join().expect("it does not panic"));
    }

    if let Some(simulation) = simulation {
        let (ran, seen) = simulation.join().expect("it does not panic");
        steps.ran_beside("simulation", ran);
        tally.add(seen);
    }

    tally.print_skipped();
    tally.print_failures();
    let good = steps.summarise("cargo xtask test", &tally.to_string());
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
