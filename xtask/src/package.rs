//! `cargo xtask package`: makes what people install, a Debian package and a Python wheel.

mod debian;
mod fresh_root;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::cargo::{cargo, target_directory, tested_program};

/// The most bytes that the optimised program may have: it is copied to every machine of a lab.
const LARGEST_PROGRAM: u64 = 36_000_000;

/// The arguments of cargo that build the program as it is packaged.
const RELEASED_PROGRAM: [&str; 7] =
    ["build", "--workspace", "--exclude", "potluck-fuzz", "--bin", "potluck", "--release"];

#[derive(clap::Args)]
pub struct Options {
    /// Only this one
    #[arg(long, value_enum, value_name = "KIND")]
    only: Option<Kind>,
    /// Take the program as tests use it, which is there sooner than an optimised one
    #[arg(long)]
    dev: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Deb,
    Wheel,
}

/// The profile with which the program in a package was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Profile {
    Release,
    Dev,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dev => "dev",
        }
    }
}

/// Makes the packages and prints their paths.
pub fn run(options: &Options) -> Result<()> {
    let profile = if options.dev { Profile::Dev } else { Profile::Release };
    let place = Place::new()?;
    if options.only != Some(Kind::Wheel) {
        println!("{}", debian::build(&place, profile)?.display());
    }
    if options.only != Some(Kind::Deb) {
        println!("{}", wheel::build(&place, profile)?.display());
    }
    Ok(())
}

/// Makes packages of the program that the other tests use, installs them where nothing of this machine can help
/// them, and uses them. The text names what could not be tried here.
pub fn test() -> Result<String, String> {
    let tried = || -> Result<String> {
        let place = Place::new()?;
        let deb = fresh_root::test(&place, &debian::build(&place, Profile::Dev)?)?;
        let wheel = wheel::test(&place)?;
        Ok(format!("deb: {deb}; wheel: {wheel}"))
    };
    tried().map_err(|error| format!("{error:#}"))
}

/// The place where packages are made, below cargo's target directory.
struct Place {
    target: PathBuf,
}

impl Place {
    fn new() -> Result<Self> {
        let place = Self { target: target_directory()? };
        fs::create_dir_all(place.dir())?;
        Ok(place)
    }

    /// Returns the directory of finished packages and of what later runs use again.
    fn dir(&self) -> PathBuf {
        self.target.join("package")
    }

    /// Compiles the program and returns the path of a copy without debug information.
    fn program(&self, profile: Profile) -> Result<PathBuf> {
        let built = match profile {
            Profile::Release => {
                done(&mut cargo(&RELEASED_PROGRAM))?;
                self.target.join("release/potluck")
            }
            Profile::Dev => tested_program()?,
        };
        let program = self.dir().join("potluck");
        done(Command::new("strip").args(["--strip-debug", "-o"]).arg(&program).arg(built))?;
        if profile == Profile::Release {
            check_size(&program)?;
        }
        Ok(program)
    }
}

fn check_size(program: &Path) -> Result<()> {
    let size = fs::metadata(program)?.len();
    ensure!(
        size <= LARGEST_PROGRAM,
        "{} has {size} bytes, at most {LARGEST_PROGRAM}: see what grew with `cargo bloat --crates`",
        program.display()
    );
    Ok(())
}

/// Runs a command to its end, and fails if the command does. Its output goes where xtask's own goes.
fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Runs a command and returns what it wrote to standard output.
fn output_of(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("running {command:?}"))?;
    if !out.status.success() {
        // Some programs, as pytest, tell on standard output what went wrong.
        let [said, complained] =
            [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text));
        bail!("{command:?}: {}: {said}{complained}", out.status);
    }
    Ok(String::from_utf8(out.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_above_the_limit_makes_no_package() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(LARGEST_PROGRAM).expect("sparse");
        assert!(check_size(file.path()).is_ok());
        file.as_file().set_len(LARGEST_PROGRAM + 1).expect("sparse");
        assert!(check_size(file.path()).is_err());
    }
}
