//! The Python wheel of the program and the module, made by maturin as python/pyproject.toml says.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Place, Profile, done, output_of};
use crate::cargo::{TESTED_PROGRAM, workspace_root};

/// The newest version of maturin with which this was tried.
const MATURIN: &str = "maturin==1.16.0";
/// What the tests of the module need beside the wheel, in versions with which they were tried.
const TESTED_WITH: [&str; 2] = ["fsspec==2026.9.0", "pytest==9.2.0"];
/// The oldest C library, as the minor number of version 2, for which platform tags have a name of this form.
const OLDEST_GLIBC: u32 = 17;

/// Makes the wheel and returns its path. Its platform tag names the oldest system whose C library has what the
/// program uses.
pub fn build(place: &Place, profile: Profile) -> Result<PathBuf> {
    let maturin = maturin(place)?;
    make(place, &maturin, profile)
}

/// Makes the wheel of the program that tests use, installs it into an empty environment without a network, and uses
/// it; then has its own tests try it beside fsspec. The text says what was done, or why it could not be done here.
pub fn test(place: &Place) -> Result<String> {
    let fits = "import sys; sys.exit(sys.version_info < (3, 11))";
    if !Command::new("python3").args(["-c", fits]).status().is_ok_and(|status| status.success()) {
        return Ok("SKIPPED, no python3 of 3.11 or newer is here".to_owned());
    }
    let maturin = match maturin(place) {
        Ok(maturin) => maturin,
        Err(error) => return Ok(format!("SKIPPED, maturin cannot be had here: {error:#}")),
    };
    let wheel = make(place, &maturin, Profile::Dev)?;
    let scratch = tempfile::tempdir()?;
    let environment = scratch.path().join("environment");
    done(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let pip = environment.join("bin/pip");
    done(Command::new(&pip).args(["install", "--quiet", "--no-index"]).arg(&wheel))?;

    let potluck = environment.join("bin/potluck");
    let version = output_of(Command::new(&potluck).arg("--version"))?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "it calls itself {version}");
    let mut demo = Command::new(&potluck);
    demo.arg("demo").arg(&potluck).arg("--dir").arg(scratch.path()).env("HOME", scratch.path());
    output_of(&mut demo)?;
    let python = environment.join("bin/python");
    let imported = output_of(Command::new(&python).args(["-c", "import potluck; potluck.Pool"]))?;
    ensure!(imported.is_empty(), "an import says {imported}");

    let name = wheel.file_name().context("a name")?.to_string_lossy().into_owned();
    let mut more = Command::new(&pip);
    if let Err(error) = output_of(more.args(["install", "--quiet"]).args(TESTED_WITH)) {
        return Ok(format!(
            "{name} installed and used; SKIPPED fsspec's tests, no pytest: {error:#}"
        ));
    }
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "python/tests"]);
    tests.env("POTLUCK_PROGRAM", &potluck).current_dir(workspace_root()?);
    let said = output_of(&mut tests)?;
    Ok(format!("{name} installed and used; its tests: {}", said.lines().last().unwrap_or_default()))
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
    let root = workspace_root()?;
    let out = place.dir().join("wheel").join(profile.name());
    let _ = fs::remove_dir_all(&out);
    let program = place.program(profile)?;
    let compatibility = format!("manylinux_2_{}", glibc_minor(&program)?);
    let scripts = root.join("python/potluck.data/scripts");
    fs::create_dir_all(&scripts)?;
    fs::copy(&program, scripts.join("potluck"))?;

    let build = match profile {
        Profile::Release => super::RELEASED_PROGRAM.join(" "),
        Profile::Dev => TESTED_PROGRAM.join(" "),
    };
    let real = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(maturin);
    command.args(["build", "--profile", profile.name(), "--compatibility", &compatibility]);
    command.env("CARGO_TO_CALL", real).env("PROGRAM_AND_MODULE", build + " --lib");
    command.env("CARGO", root.join("xtask/src/package/cargo_for_wheel.sh"));
    command.arg("--target-dir").arg(&place.target).arg("--out").arg(&out);
    let made = done(command.current_dir(root.join("python")));
    fs::remove_dir_all(root.join("python/potluck.data"))?;
    made?;
    let mut made = fs::read_dir(&out)?;
    Ok(made.next().context("maturin made no wheel")??.path())
}

/// Returns the minor number of the oldest C library, of version 2, that has all that a program uses. Maturin looks at the
/// module alone.
fn glibc_minor(program: &Path) -> Result<u32> {
    let symbols = output_of(Command::new("objdump").arg("-T").arg(program))?;
    newest_glibc(&symbols).context("objdump names no version of the C library")
}

fn newest_glibc(symbols: &str) -> Option<u32> {
    let versions = symbols.split("GLIBC_2.").skip(1);
    let minor = |text: &str| text.split(|at: char| !at.is_ascii_digit()).next()?.parse().ok();
    versions.filter_map(minor).max().map(|minor: u32| minor.max(OLDEST_GLIBC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_names_the_c_library() {
        let symbols = "0 DF *UND* 0 (GLIBC_2.2.5) read\n0 DF *UND* 0 (GLIBC_2.34) dlsym\n\
                       0 DF *UND* 0 (GLIBC_2.9) pipe2\n";
        assert_eq!(newest_glibc(symbols), Some(34));
        assert_eq!(newest_glibc("(GLIBC_2.2.5) read"), Some(OLDEST_GLIBC));
        assert_eq!(newest_glibc("nothing"), None);
    }
}
