//! `cargo xtask year`: runs a simulated pool through a year of ordinary use, to see what grows.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::cargo::{cargo, target_directory};

/// Builds the simulation for speed, runs it with `args` and returns its exit code.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let build = ["build", "--release", "-p", "potluck-sim", "--example", "year"];
    if !cargo(&build).status()?.success() {
        eprintln!("year: the release build failed");
        return Ok(ExitCode::FAILURE);
    }
    let target = target_directory()?;
    let status = Command::new(target.join("release/examples/year"))
        .arg("--out")
        .arg(target.join("year"))
        .args(args)
        .status()
        .context("running the year")?;
    Ok(status.code().and_then(|c| u8::try_from(c).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
