//! `cargo xtask bench` and `cargo xtask lab`: compare the product with its floors, both from one release build.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cargo::{cargo, target_directory};
use crate::scratch;
use crate::steps::run_command;

/// Builds the product and the benchmarks, runs the comparison with `args` and returns its exit code.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let out = target_directory()?.join("bench");
    bench("run", &[&["--out".to_owned(), out.display().to_string()], args].concat())
}

/// Builds the product and the laboratory, measures the figures that `args` ask for and returns the exit code.
pub fn lab(args: &[String]) -> Result<ExitCode> {
    let only_tells = args.iter().any(|arg| ["--list", "--help", "-h"].contains(&arg.as_str()));
    if !only_tells && !is_root() {
        eprintln!("lab: machines on links are network namespaces, which take root: run it as root");
        return Ok(ExitCode::FAILURE);
    }
    bench("lab", args)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Has the laboratory measure one setting of each figure for a moment, with programs that are built as tests are.
pub fn short_lab() -> Result<String, String> {
    if !is_root() {
        return Ok("SKIPPED: it takes root".to_owned());
    }
    // Of all of the workspace: with another selection, dependencies have other features and are compiled once more.
    run_command(&mut cargo(&["build", "--workspace", "--bins"]))?;
    let scratch =
        scratch::directory("potluck-lab-").map_err(|error| format!("a directory: {error}"))?;
    let debug = target_directory().map_err(|error| format!("{error:#}"))?.join("debug");
    let mut command = Command::new(debug.join("potluck-bench"));
    command.args(["lab", "--short", "--potluck"]).arg(debug.join("potluck"));
    command.arg("--dir").arg(scratch.path()).arg("--out").arg(scratch.path());
    run_command(&mut command)
}

fn bench(verb: &str, args: &[String]) -> Result<ExitCode> {
    let build = cargo(&["build", "--release", "-p", "potluck", "-p", "potluck-bench"]).status()?;
    if !build.success() {
        eprintln!("{verb}: the release build failed");
        return Ok(ExitCode::FAILURE);
    }
    let release = target_directory()?.join("release");
    let mut command = Command::new(release.join("potluck-bench"));
    command.arg(verb).arg("--potluck").arg(release.join("potluck")).args(args);
    let status = command.status().context("running potluck-bench")?;
    Ok(status.code().and_then(|c| u8::try_from(c).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
