//! `cargo xtask bench` and `cargo xtask lab`: compare the product with its floors, both from one release build.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cargo::{cargo, target_directory};

/// Builds the product and the benchmarks, runs the comparison with `args` and returns its exit code.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let out = target_directory()?.join("bench");
    bench("run", &[&["--out".to_owned(), out.display().to_string()], args].concat())
}

/// Builds the product and the laboratory, measures the figures that `args` ask for and returns the exit code.
pub fn lab(args: &[String]) -> Result<ExitCode> {
    bench("lab", args)
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
