//! `cargo xtask fuzz`: feeds every decoder of the wire and of the formats by libFuzzer.
//!
//! The decoders are in the package `fuzz`, whose tests feed them a little. Here they are built with the
//! instrumentation that guides libFuzzer, which stable options of the compiler add.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::cargo::{cargo, target_directory};
use crate::scratch;

/// The options of the compiler that cargo-fuzz passes, without a sanitizer.
const INSTRUMENTED: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];
/// The length of the longest input, in bytes.
const MAX_LEN: usize = 4096;
/// The most memory, in MiB, that a decoder may allocate at once: far more than its longest input explains, and far
/// below what a length in an input could ask for.
const MOST_AT_ONCE: usize = 64;
/// The time, in seconds, after which an input counts as a failure.
const SLOWEST: usize = 10;

/// The command line of a run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Inputs for all decoders together
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    executions: u64,
    /// Decoders that are fed at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
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

/// Feeds the decoders. The exit code says whether one of them panicked, took too long or asked for too much memory.
pub fn run(options: &Options) -> Result<ExitCode> {
    let dir = target_directory()?.join("fuzz");
    let fuzzer =
        Fuzzer { program: build(&dir)?, dir, scratch: scratch::directory("potluck-fuzz-")? };
    if let (Some(name), Some(input)) = (&options.only, &options.input) {
        let status = fuzzer.command(name).arg(input).status()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let names: Vec<String> = match &options.only {
        Some(name) => vec![name.clone()],
        None => fuzzer.names()?,
    };
    let each = options.executions.div_ceil(names.len() as u64);
    let waiting = Mutex::new(names.iter());
    let fed = Mutex::new(Fed::default());
    let began = Instant::now();
    thread::scope(|scope| {
        let feed_some = || -> Result<()> {
            loop {
                let name = waiting.lock().expect("no holder panics").next();
                let Some(name) = name else { return Ok(()) };
                let began = Instant::now();
                let (executed, is_fine) = fuzzer.feed(name, each, options.seed)?;
                let took = began.elapsed().as_secs_f64();
                let outcome = if is_fine { "ok" } else { "FAILED" };
                println!("{name:<18} {executed:>11} executions {took:>9.1} s  {outcome}");
                let mut fed = fed.lock().expect("no holder panics");
                fed.executed += executed;
                fed.failed.extend((!is_fine).then_some(name.as_str()));
            }
        };
        let jobs: Vec<_> = (0..options.jobs.max(1)).map(|_| scope.spawn(feed_some)).collect();
        jobs.into_iter().try_for_each(|job| job.join().expect("it does not panic"))
    })?;
    let Fed { executed, failed } = fed.into_inner().expect("no holder panics");
    let (decoders, took) = (names.len(), began.elapsed().as_secs());
    println!("fuzz: {executed} executions of {decoders} decoders in {took} s, failed: {failed:?}");
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The sum of what was fed to decoders so far, and the names of those that failed.
#[derive(Default)]
struct Fed<'a> {
    executed: u64,
    failed: Vec<&'a str>,
}

/// Builds the decoders and returns the path of the program.
fn build(dir: &Path) -> Result<PathBuf> {
    let said = Command::new("rustc").arg("-vV").output()?.stdout;
    let said = String::from_utf8(said)?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).context("a host")?;
    // As a target is named, these options do not apply to build scripts and macros.
    let build = ["build", "--profile", "fuzz", "--package", "potluck-fuzz"];
    let mut command = cargo(&build);
    command.args(["--features", "libfuzzer", "--target", host, "--target-dir"]).arg(dir);
    command.env("RUSTFLAGS", INSTRUMENTED.join(" "));
    ensure!(command.status()?.success(), "the build failed");
    Ok(dir.join(host).join("fuzz/potluck-fuzz"))
}

struct Fuzzer {
    program: PathBuf,
    dir: PathBuf,
    /// The directory in which decoders make the files that they read.
    scratch: TempDir,
}

impl Fuzzer {
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env("POTLUCK_FUZZ", name).env("TMPDIR", self.scratch.path());
        command
    }

    fn names(&self) -> Result<Vec<String>> {
        let said = self.command("list").output()?.stdout;
        Ok(String::from_utf8(said)?.lines().map(str::to_owned).collect())
    }

    /// Gives the decoder `name` this many inputs. Returns how many it took, and whether none failed. Inputs that
    /// reached new code are kept for the next run, beside the seeds, which encoders made.
    fn feed(&self, name: &str, executions: u64, seed: u32) -> Result<(u64, bool)> {
        let [seeds, corpus] = ["seeds", "corpus"].map(|part| self.dir.join(part).join(name));
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&seeds)?;
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
                format!("-dict={}", seeds.with_extension("dict").display()),
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
