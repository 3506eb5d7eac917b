//! How xtask calls cargo, and what cargo says about the workspace.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Returns a call of the cargo that started xtask.
///
/// `cargo run` describes xtask's own package in environment variables. Build scripts that watch such a variable
/// would run again at each change between `cargo` and `cargo xtask`, so these variables are removed.
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
    if LINTS.load(Ordering::Relaxed) {
        command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
        command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
    command
}

/// True if the compiler is clippy's.
static LINTS: AtomicBool = AtomicBool::new(false);

/// Has clippy compile the workspace from now on, to whom a warning is an error. It is the compiler with more lints, so
/// that all is compiled once; `cargo clippy` reads all code for its lints, and makes nothing that runs.
pub fn lint_from_now_on() {
    LINTS.store(true, Ordering::Relaxed);
}

/// Returns the root of the workspace, the parent of xtask's own directory, wherever xtask is run.
pub fn workspace_root() -> Result<PathBuf> {
    let here = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    Ok(here.parent().context("xtask stands in no workspace")?.to_owned())
}

/// The arguments of cargo that build the program as the tests use it, and the example beside it that plays a
/// hostile member. With packages and targets selected without tests or examples, other features would be on, and
/// half of the dependencies would be compiled once more.
pub const TESTED_PROGRAM: [&str; 6] =
    ["build", "--workspace", "--bin", "potluck", "--example", "hostile_member"];

/// Builds the program as the tests use it, and returns its path.
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

/// Returns what `cargo metadata` says about the workspace's own packages.
pub fn metadata() -> Result<Value> {
    let out = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).context("reading cargo metadata")
}

/// Returns the names of the workspace's test targets, which are files and directories of each package's `tests`.
pub fn test_targets() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let tests = targets.filter(|target| target["kind"][0] == "test");
    Ok(tests.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect())
}
