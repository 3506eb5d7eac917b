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

/// `cargo metadata` of the workspace's own packages.
pub fn metadata() -> Result<Value> {
    let out = cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(out.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).context("reading cargo metadata")
}
