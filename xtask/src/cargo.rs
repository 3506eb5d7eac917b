//! How xtask calls cargo, and what cargo says about the workspace.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A call of the cargo that started us.
///
/// `cargo run` describes xtask's own package in the environment. Build scripts that watch such a
/// variable would run again each time developers change between `cargo` and `cargo xtask`, so
/// these are taken out.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|p| text.starts_with(p)) {
            command.env_remove(&name);
        }
    }
    if !crate::steps::colours() {
        command.env("CARGO_TERM_COLOR", "never");
    }
    command
}

/// Where the workspace stands: above the directory xtask was built from, wherever it is run.
pub fn workspace_root() -> Result<PathBuf> {
    let here = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    Ok(here.parent().context("xtask stands in no workspace")?.to_owned())
}

/// The arguments that build the program as the tests use it, and the example beside it that plays a hostile member. A
/// selection of packages and targets without tests or examples has features of its own, with which half of the
/// dependencies would be compiled once more.
pub const TESTED_PROGRAM: [&str; 6] =
    ["build", "--workspace", "--bin", "potluck", "--example", "hostile_member"];

/// Builds the program as the tests use it, and says where it is.
pub fn tested_program() -> Result<PathBuf> {
    let built = cargo(&TESTED_PROGRAM).status()?;
    ensure!(built.success(), "the build failed");
    Ok(target_directory()?.join("debug/potluck"))
}

/// Returns the directory in which cargo puts what it builds.
pub fn target_directory() -> Result<PathBuf> {
    let metadata = metadata()?;
    Ok(metadata["target_directory"].as_str().context("no target directory")?.into())
}

/// `cargo metadata` of the workspace's own packages.
pub fn metadata() -> Result<Value> {
    let out = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).context("reading cargo metadata")
}

/// Names of the workspace's test targets, the files and directories of each package's `tests`.
pub fn test_targets() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let tests = targets.filter(|target| target["kind"][0] == "test");
    Ok(tests.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect())
}
