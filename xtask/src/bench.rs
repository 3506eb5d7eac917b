//! `cargo xtask bench`: compares the product with its floors, both from one release build.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cargo::{cargo, target_directory};

/// Builds the product and the benchmarks, runs the comparison with `args` and returns its exit code.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let build = cargo(&["build", "--release", "-p", "potluck", "-p", "potluck-bench"]).status()?;
    if !build.success() {
        eprintln!("bench: the release build failed");
        return Ok(ExitCode::FAILURE);
    }
    let target = target_directory()?;
    let release = target.join("release");
    let status = Command::new(release.join("potluck-bench"))
        .arg("run")
        .arg("--potluck")
        .arg(release.join("potluck"))
        .arg("--out")
        .arg(target.join("bench"))
        .args(args)
        .status()
        .context("running potluck-bench")?;
    Ok(status.code().and_then(|c| u8::try_from(c).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
