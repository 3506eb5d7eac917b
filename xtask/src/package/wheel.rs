//! The Python wheel that carries the program, made by maturin as python/pyproject.toml says.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Place, Profile, done, output_of};
use crate::cargo::{TESTED_PROGRAM, workspace_root};

/// The newest version of maturin with which this was tried.
const MATURIN: &str = "maturin==1.16.0";

/// Makes the wheel and returns its path. Its platform tag names the oldest system whose C library has what the
/// program uses, which maturin finds in the program itself.
pub fn build(place: &Place, profile: Profile) -> Result<PathBuf> {
    let maturin = maturin(place)?;
    make(place, &maturin, profile)
}

/// Makes the wheel of the program that tests use, installs it into an empty environment without a network, and uses
/// it. The text says what was done, or why it could not be done here.
pub fn test(place: &Place) -> Result<String> {
    let maturin = match maturin(place) {
        Ok(maturin) => maturin,
        Err(error) => return Ok(format!("SKIPPED, maturin cannot be had here: {error:#}")),
    };
    let wheel = make(place, &maturin, Profile::Dev)?;
    let scratch = tempfile::tempdir()?;
    let environment = scratch.path().join("environment");
    done(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let pip = environment.join("bin/pip");
    done(Command::new(pip).args(["install", "--quiet", "--no-index"]).arg(&wheel))?;

    let potluck = environment.join("bin/potluck");
    let version = output_of(Command::new(&potluck).arg("--version"))?;
    anyhow::ensure!(version.contains(env!("CARGO_PKG_VERSION")), "it calls itself {version}");
    let mut demo = Command::new(&potluck);
    demo.arg("demo").arg(&potluck).arg("--dir").arg(scratch.path()).env("HOME", scratch.path());
    output_of(&mut demo)?;
    let name = wheel.file_name().context("a name")?.to_string_lossy();
    Ok(format!("{name} installed and used"))
}

/// Returns the path of maturin, which is installed once into an environment of its own.
fn maturin(place: &Place) -> Result<PathBuf> {
    let environment = place.dir().join(MATURIN.replace("==", "-"));
    let maturin = environment.join("bin/maturin");
    if !maturin.is_file() {
        let _ = fs::remove_dir_all(&environment);
        output_of(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        let pip = environment.join("bin/pip");
        output_of(Command::new(pip).args(["install", "--quiet", MATURIN]))?;
    }
    Ok(maturin)
}

fn make(place: &Place, maturin: &Path, profile: Profile) -> Result<PathBuf> {
    let out = place.dir().join("wheel").join(profile.name());
    let _ = fs::remove_dir_all(&out);
    let mut command = Command::new(maturin);
    command.args(["build", "--profile", profile.name()]).current_dir("python");
    if profile == Profile::Dev {
        let real = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        command.env("CARGO_TO_CALL", real).env("TESTED_PROGRAM", TESTED_PROGRAM.join(" "));
        command.env("CARGO", workspace_root()?.join("xtask/src/package/cargo_as_tested.sh"));
    }
    done(command.arg("--target-dir").arg(&place.target).arg("--out").arg(&out))?;
    let mut made = fs::read_dir(&out)?;
    Ok(made.next().context("maturin made no wheel")??.path())
}
