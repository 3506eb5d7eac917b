//! `cargo xtask fuzz`: every decoder of the wire and of the formats, fed by libFuzzer.
//!
//! The decoders are in the package `fuzz`, a workspace of its own: it is built with the instrumentation that libFuzzer
//! is guided by, which the compiler adds by options that are stable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, target_directory};

/// Options of the compiler: what cargo-fuzz passes, without a sanitizer.
const INSTRUMENTED: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];
/// Bytes of the longest input.
const MAX_LEN: usize = 4096;
/// The most memory, in MiB, that a decoder may ask for at once: a thousand times its longest input, and far below what
/// a length in an input could say.
const MOST_AT_ONCE: usize = 64;
/// An input that takes longer, in seconds, is a failure.
const SLOWEST: usize = 10;

/// The command line of a run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Inputs for all decoders together
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    executions: u64,
    /// What chance begins with
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u32,
    /// Only this decoder
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Give one input to the decoder that `--only` names, as it was kept when it failed
    #[arg(long, value_name = "FILE", requires = "only")]
    input: Option<PathBuf>,
}

/// Feeds the decoders; fails when one panicked, hung or asked for too much memory.
pub fn run(options: &Options) -> Result<ExitCode> {
    let dir = target_directory()?.join("fuzz");
    let fuzzer = Fuzzer { program: build(&dir)?, dir };
    if let (Some(name), Some(input)) = (&options.only, &options.input) {
        let status = fuzzer.command(name).arg(input).status()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let names: Vec<String> = match &options.only {
        Some(name) => vec![name.clone()],
        None => fuzzer.names()?,
    };
    let each = options.executions.div_ceil(names.len() as u64);
    let (mut all, mut failed) = (0, Vec::new());
    for name in &names {
        let began = Instant::now();
        let (ran, fine) = fuzzer.feed(name, each, options.seed)?;
        all += ran;
        let seconds = began.elapsed().as_secs_f64();
        let how = if fine { "ok" } else { "FAILED" };
        println!("{name:<18} {ran:>11} executions {seconds:>7.1} s  {how}");
        if !fine {
            failed.push(name.as_str());
        }
    }
    println!("fuzz: {all} executions of {} decoders, failed: {failed:?}", names.len());
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the decoders and returns the program.
fn build(dir: &Path) -> Result<PathBuf> {
    let said = Command::new("rustc").arg("-vV").output()?.stdout;
    let said = String::from_utf8(said)?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).context("a host")?;
    // With a target, the options are not for build scripts and macros.
    let mut command = cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    command.args(["--target", host, "--target-dir"]).arg(dir);
    command.env("RUSTFLAGS", INSTRUMENTED.join(" "));
    ensure!(command.status()?.success(), "the build failed");
    Ok(dir.join(host).join("release/potluck-fuzz"))
}

struct Fuzzer {
    program: PathBuf,
    dir: PathBuf,
}

impl Fuzzer {
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("POTLUCK_FUZZ", name);
        command
    }

    fn names(&self) -> Result<Vec<String>> {
        let said = self.command("list").output()?.stdout;
        Ok(String::from_utf8(said)?.lines().map(str::to_owned).collect())
    }

    /// Gives `name` so many inputs; how many it took, and whether all were fine. Inputs that led further are kept for
    /// the next run, beside what encoders made.
    fn feed(&self, name: &str, executions: u64, seed: u32) -> Result<(u64, bool)> {
        let [seeds, corpus] = ["seeds", "corpus"].map(|part| self.dir.join(part).join(name));
        fs::create_dir_all(&corpus)?;
        let made = self.command(name).env("POTLUCK_FUZZ_SEEDS", &seeds).status()?;
        ensure!(made.success(), "{name} has no seeds");
        let kept = self.dir.join(format!("failed-{name}-"));
        let mut command = self.command(name);
        command
            .args([
                format!("-runs={executions}"),
                format!("-seed={seed}"),
                format!("-max_len={MAX_LEN}"),
                format!("-timeout={SLOWEST}"),
                format!("-malloc_limit_mb={MOST_AT_ONCE}"),
                "-print_final_stats=1".to_owned(),
                format!("-artifact_prefix={}", kept.display()),
            ])
            .arg(&corpus)
            .arg(&seeds);
        let out = command.stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        let executed =
            said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        let executed = executed.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        if !out.status.success() {
            let lines: Vec<&str> = said.lines().collect();
            eprintln!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
            eprintln!("again: cargo xtask fuzz --only {name} --input {}…", kept.display());
        }
        Ok((executed, out.status.success()))
    }
}
