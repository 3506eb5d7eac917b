//! `potluck-bench`: compares the product with floors that do only the unavoidable work, alternating in one run, so
//! that a shared machine's drift cancels.
//!
//! Exit codes: 0 all targets met, 1 a target missed, 2 something could not be measured.
// The bench times real processes on the real clock and talks over real sockets: there is nothing here to simulate.
#![allow(clippy::disallowed_methods)]

mod against;
mod checkpoint;
mod comeback;
mod content;
mod contests;
mod crowd;
mod floor_ec;
mod floor_echo;
mod floor_fuse;
mod floor_runs;
mod floor_streams;
mod floors;
mod interrupt;
mod lab;
mod library;
mod machine;
mod measure;
mod mounted;
mod mounts;
mod names;
mod network;
mod outcome;
mod picture;
mod plan;
mod pool;
mod random_reads;
mod rate;
mod removal;
mod repair;
mod report;
mod scale;
mod scenarios;
mod scrape;
mod shared_writers;
mod size;
mod steady;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

use floor_runs::{Floor, Floors};
use floor_streams::Part;
use mounted::FuseFloor;
use plan::{Plan, Work};
use report::Row;
use size::Size;

#[derive(Parser)]
#[command(version, about = "Compares Potluck with floors measured in the same run")]
struct Cli {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure product and floors, and say which targets were missed
    Run(Run),
    /// Measure the floors alone; needs no product
    Floors(FloorsOnly),
    /// Measure figures of the papers on machines with links of their own; takes root
    Lab(LabRun),
    /// One end of a floor, or a program that is measured
    #[command(hide = true)]
    Floor {
        #[arg(long, default_value_t = floors::PIECE)]
        piece: usize,
        #[command(subcommand)]
        program: Program,
    },
}

#[derive(Args)]
struct Run {
    /// The product's program [default: `potluck` beside this one]
    #[arg(long)]
    potluck: Option<PathBuf>,
    /// Another build of it, whose pool does the same works by turns; none may take 1.05 times its time
    #[arg(long, value_name = "POTLUCK")]
    against: Option<PathBuf>,
    /// Only these works
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Work>,
    /// One round, 256 MiB, 1 GiB as the big file, 10000 files to list, 50 donors with 50000 chunks and 5 s of idleness: to see that all works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// The file whose memory cost to the client is measured
    #[arg(long, default_value = "10GiB")]
    big: Size,
    /// How many files are listed, and removed; a tenth of them are in the catalog that comes back
    #[arg(long, default_value_t = 1_000_000)]
    names: u64,
    /// Simulated donors of the pool of very many chunks
    #[arg(long, default_value_t = 1000)]
    donors: usize,
    /// Chunks of that pool, each in two copies
    #[arg(long, default_value_t = 10_000_000)]
    chunks: u64,
    /// How long idle donors are watched
    #[arg(long, default_value_t = 20)]
    idle_seconds: u64,
    /// Where tables (CSV) and pictures (SVG) of checkpoints are written
    #[arg(long, default_value = "bench", value_name = "DIR")]
    out: PathBuf,
    /// A directory of an NFS mount, to write checkpoints to beside the others
    #[arg(long, value_name = "DIR")]
    nfs: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct LabRun {
    /// The product's program [default: `potluck` beside this one]
    #[arg(long)]
    potluck: Option<PathBuf>,
    /// Only these figures
    #[arg(long, value_enum, value_delimiter = ',')]
    figure: Vec<lab::Figure>,
    /// Say which figures there are
    #[arg(long)]
    list: bool,
    /// One setting of each figure, one round of a quarter of a second: to see that all works, not how fast it is
    #[arg(long)]
    short: bool,
    /// How long the links take for each file
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Where pictures (SVG) and tables (CSV) are written
    #[arg(long, default_value = "docs/figures", value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct FloorsOnly {
    /// Bytes per read and write, to compare: a list
    #[arg(long, value_delimiter = ',', default_value = "1MiB")]
    piece: Vec<Size>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// Rounds; medians are reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The large file
    #[arg(long, default_value = "1GiB")]
    size: Size,
    /// Where to put the pool and the files, on a disk; all is removed at the end
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// One JSON object per line
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// A table for docs/benchmarks.md
    #[arg(long)]
    markdown: bool,
}

#[derive(Subcommand)]
enum Program {
    PutSource { file: PathBuf, sinks: Vec<SocketAddr> },
    PutSink { out: PathBuf },
    PutEcSource { file: PathBuf, sinks: Vec<SocketAddr> },
    GetSource { file: PathBuf },
    GetSink { source: SocketAddr, length: u64 },
    StreamsSend { sinks: Vec<Part> },
    StreamsReceive { sources: Vec<Part> },
    StreamSink { at: IpAddr },
    StreamSource { at: IpAddr, bytes: u64 },
    EchoSource { at: IpAddr, file: PathBuf },
    EchoReads { source: SocketAddr, length: u64, threads: usize },
    RandomReads { identity: PathBuf, path: String, threads: usize },
    Stats { identity: PathBuf, tree: String, files: u64, threads: usize },
    PassThrough { floor: FuseFloor, source: PathBuf, mount_point: PathBuf },
    TouchMemory { bytes: u64 },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Verb::Run(run) => compare(run),
        Verb::Lab(run) => measure_lab(run),
        Verb::Floors(only) => measure_floors(only),
        Verb::Floor { piece, program } => floor(program, piece).map(|()| false),
    };
    match outcome {
        Ok(missed) => ExitCode::from(u8::from(missed)),
        Err(error) => {
            eprintln!("potluck-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Measures all that is asked for, prints the rows, and returns whether a target was missed.
fn compare(run: Run) -> Result<bool> {
    interrupt::catch();
    let mut plan = Plan {
        potluck: product(run.potluck)?,
        against: run.against.map(std::path::absolute).transpose()?,
        only: run.only,
        rounds: run.common.rounds as usize,
        size: run.common.size,
        big: run.big,
        names: run.names,
        donors: run.donors,
        chunks: run.chunks,
        idle: Duration::from_secs(run.idle_seconds),
        out: run.out,
        nfs: run.nfs,
    };
    if run.quick {
        plan = Plan {
            rounds: 1,
            size: Size(256 << 20),
            big: Size(1 << 30),
            names: 10_000,
            donors: 50,
            chunks: 50_000,
            idle: Duration::from_secs(5),
            ..plan
        };
    }
    ensure!(
        plan.size.0 > 0
            && plan.big.0 > 0
            && plan.names > 0
            && plan.chunks > 0
            && !plan.idle.is_zero(),
        "--size, --big, --names, --chunks and --idle-seconds must not be 0"
    );
    let dir = temporary(&run.common.dir)?;
    let outcome = scenarios::run(&plan, dir.path(), Floors::new(dir.path(), floors::PIECE)?)?;
    let rows = report::rows(&plan, &outcome);
    print(&run.common, &rows)?;
    Ok(rows.iter().any(Row::missed))
}

/// Returns the path of the product's program. Daemons run in a directory of their own, so it is absolute.
fn product(named: Option<PathBuf>) -> Result<PathBuf> {
    let beside = || Ok(std::env::current_exe()?.with_file_name("potluck"));
    Ok(std::path::absolute(named.map_or_else(beside, anyhow::Ok)?)?)
}

fn measure_lab(run: LabRun) -> Result<bool> {
    if run.list {
        lab::list();
        return Ok(false);
    }
    interrupt::catch();
    let options = lab::Options {
        potluck: product(run.potluck)?,
        rounds: if run.short { 1 } else { run.common.rounds as usize },
        length: match run.short {
            true => Duration::from_millis(250),
            false => Duration::from_secs(run.seconds),
        },
        short: run.short,
        out: run.out,
    };
    let dir = temporary(&run.common.dir)?;
    let rows = lab::run(&options, &run.figure, dir.path())?;
    print(&run.common, &rows)?;
    Ok(rows.iter().any(Row::missed))
}

fn measure_floors(only: FloorsOnly) -> Result<bool> {
    interrupt::catch();
    let common = only.common;
    ensure!(
        common.size.0 > 0 && only.piece.iter().all(|piece| piece.0 > 0),
        "--size and --piece must not be 0"
    );
    let dir = temporary(&common.dir)?;
    let source = dir.path().join("source");
    content::write_file(&source, "floors", common.size.0)?;
    content::warm(&source)?;
    let mut measured: Vec<_> = [Floor::Put, Floor::Put2, Floor::Ec, Floor::Get]
        .into_iter()
        .flat_map(|floor| only.piece.iter().map(move |piece| (floor, *piece, Vec::new())))
        .collect();
    for _ in 0..common.rounds {
        for (floor, piece, costs) in &mut measured {
            costs.push(Floors::new(dir.path(), piece.0 as usize)?.run(*floor, &source)?);
        }
    }
    let name = |floor: Floor, piece: Size| {
        if only.piece.len() > 1 {
            format!("{}, {piece} pieces", floor.name())
        } else {
            floor.name().to_owned()
        }
    };
    let rows: Vec<_> = measured
        .iter()
        .map(|(floor, piece, costs)| {
            report::floor_row(*floor, name(*floor, *piece), costs, common.size.0)
        })
        .collect();
    print(&common, &rows)?;
    Ok(false)
}

fn temporary(parent: &Path) -> Result<tempfile::TempDir> {
    let parent = std::path::absolute(parent)?;
    tempfile::Builder::new()
        .prefix("potluck-bench-")
        .tempdir_in(&parent)
        .with_context(|| format!("cannot make a directory in {}", parent.display()))
}

fn print(common: &Common, rows: &[Row]) -> Result<()> {
    if common.json {
        return report::print_json(rows);
    }
    if common.markdown {
        report::print_markdown(rows);
    } else {
        report::print_table(rows);
    }
    Ok(())
}

fn floor(program: Program, piece: usize) -> Result<()> {
    match program {
        Program::PutSource { file, sinks } => floors::put_source(&file, &sinks, piece),
        Program::PutSink { out } => floors::put_sink(&out, piece),
        Program::PutEcSource { file, sinks } => floor_ec::put_source(&file, &sinks),
        Program::GetSource { file } => floors::get_source(&file),
        Program::GetSink { source, length } => floors::get_sink(&source, length, piece),
        Program::StreamsSend { sinks } => floor_streams::send(&sinks),
        Program::StreamsReceive { sources } => floor_streams::receive(&sources),
        Program::StreamSink { at } => floor_streams::sink(at),
        Program::StreamSource { at, bytes } => floor_streams::source(at, bytes),
        Program::EchoSource { at, file } => floor_echo::source(at, &file),
        Program::EchoReads { source, length, threads } => {
            floor_echo::reads(&source, length, threads)
        }
        Program::RandomReads { identity, path, threads } => {
            library::random_reads(&identity, &path, threads)
        }
        Program::Stats { identity, tree, files, threads } => {
            library::stats(&identity, &tree, files, threads)
        }
        Program::PassThrough { floor, source, mount_point } => {
            floor_fuse::serve(floor, &source, &mount_point)
        }
        Program::TouchMemory { bytes } => {
            machine::touch(bytes);
            Ok(())
        }
    }
}
