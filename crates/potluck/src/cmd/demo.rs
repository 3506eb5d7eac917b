//! `potluck demo`: stores and reads back real files in a throw-away pool, with a donor killed in between, and
//! leaves nothing behind.

mod compare;
mod sample;
mod throwaway;

use super::Ending;
use crate::args::DemoArgs;
use crate::output::{Output, count, table};
use crate::{progress_bar, signals};
use compare::Compare;
use potluck_client::{ByteRange, Input, Item, Pool, PutOptions, cat, put};
use potluck_core::path::PoolPath;
use potluck_core::policy::{Follows, Policy};
use potluck_core::size::format_size;
use potluck_wire::control::{PoolStatus, Status};
use potluck_wire::error::{ErrorKind, Failure, code};
use sample::Sample;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use throwaway::ThrowawayPool;

const SPACE: &str = "demo";
/// How long donors may take to report what they were sent. After that the figures are shown as they are.
const TELLING: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
struct DemoReport {
    files: u64,
    bytes: u64,
    copies: u32,
    store: Phase,
    read_back: Phase,
    killed: String,
    /// The number of reads in which another copy replaced one that could not be read.
    failovers: u64,
    verified: bool,
    donors: Vec<DonorShare>,
}

#[derive(Debug, Serialize)]
struct Phase {
    seconds: f64,
    mib_s: f64,
    /// CPU seconds per GiB; `None` if so little was moved that the start dominates the cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_s_per_gib: Option<f64>,
}

#[derive(Debug, Serialize)]
struct DonorShare {
    name: String,
    chunks: u64,
    stored_bytes: u64,
    killed: bool,
}

pub async fn run(args: DemoArgs, output: &Output) -> Result<Ending, Failure> {
    let sample = Sample::find(args.file.as_deref())?;
    let stopped = signals::asked_to_stop(); // before there is anything to leave behind
    let mut pool = ThrowawayPool::new(args.dir.as_deref())?;
    let report = tokio::select! {
        report = show(&mut pool, &sample, output) => report.map(Some),
        () = stopped => Ok(None),
    };
    // The pool is closed before the result is printed, so that nothing is left behind if printing fails.
    pool.close().await;
    let Some(report) = report? else { return Ok(Ending::Interrupted) };
    output.result(&report, text);
    Ok(Ending::Done)
}

async fn show(
    pool: &mut ThrowawayPool,
    sample: &Sample,
    output: &Output,
) -> Result<DemoReport, Failure> {
    let size = format_size(sample.bytes);
    output.note(&format!(
        "a manager and four donors, each a process of its own, below {}",
        pool.dir().display()
    ));
    let client = pool.start(sample.bytes).await?;
    // By the pool's default there are two copies, because four donors lend: one may die.
    let untold = Policy { follows: Follows::ALL, ..Policy::default() };
    let copies = client.create_space(SPACE, untold).await?.policy.copies;

    output.note(&format!(
        "storing {}, {size}, {copies} copies, sealed: {}",
        count(sample.files.len() as u64, "file"),
        sample.what
    ));
    let mut sent = Sent::default();
    let storing = store(&client, sample, output, &mut sent);
    let store = measured(pool, &client, sample.bytes, storing).await?;

    let lying = told(&client, &sent, copies).await?;
    let killed = pool.kill_fullest(&lying).await?;
    output.note(&format!(
        "killed {killed} with SIGKILL; reading everything back, compared byte by byte"
    ));
    let mut failovers = 0;
    let reading = read_back(&client, sample, output, &mut failovers);
    let read_back = measured(pool, &client, sample.bytes, reading).await?;
    Ok(DemoReport {
        files: sample.files.len() as u64,
        bytes: sample.bytes,
        copies,
        store,
        read_back,
        failovers,
        verified: true,
        donors: shares(&lying, &killed),
        killed,
    })
}

/// Does `work`, and measures its wall time and the CPU time of this process and all of the pool's.
async fn measured(
    pool: &ThrowawayPool,
    client: &Pool,
    bytes: u64,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<Phase, Failure> {
    let (started, cpu_before) = (client.now(), pool.cpu_seconds());
    work.await?;
    let seconds = (client.now() - started).as_secs_f64();
    let cpu: f64 = spent(&cpu_before, &pool.cpu_seconds());
    Ok(Phase {
        seconds,
        mib_s: bytes as f64 / f64::from(1 << 20) / seconds,
        cpu_s_per_gib: per_gib(cpu, bytes),
    })
}

fn per_gib(cpu_seconds: f64, bytes: u64) -> Option<f64> {
    (bytes >= 1 << 20).then(|| cpu_seconds / (bytes as f64 / f64::from(1 << 30)))
}

/// Returns the CPU seconds spent between two looks, by processes that existed at both.
fn spent(before: &BTreeMap<u32, Duration>, after: &BTreeMap<u32, Duration>) -> f64 {
    let both = after.iter().filter_map(|(pid, now)| Some(now.saturating_sub(*before.get(pid)?)));
    both.sum::<Duration>().as_secs_f64()
}

/// The chunks that went to donors, copies not counted.
#[derive(Default)]
struct Sent {
    chunks: u64,
    bytes: u64,
}

async fn store(
    client: &Pool,
    sample: &Sample,
    output: &Output,
    sent: &mut Sent,
) -> Result<(), Failure> {
    let items: Vec<_> = sample
        .files
        .iter()
        .enumerate()
        .map(|(number, local)| Item {
            path: stored_path(number),
            input: Input::File(local.clone()),
        })
        .collect();
    let root = PoolPath::space_root(SPACE).expect("a valid name");
    let options = PutOptions { bytes: Some(sample.bytes), ..PutOptions::default() };
    let progress = progress_bar::transfer(client, output.wants_progress(), Some(sample.bytes));
    let report = put(client, &root, Box::new(items.into_iter()), &options, progress).await?;
    *sent = Sent { chunks: report.sent_chunks, bytes: report.sent_bytes };
    match report.failed.into_iter().next() {
        Some((_, failure)) => Err(failure),
        None => Ok(()),
    }
}

/// Returns the pool's status once donors have reported all copies of what was sent, or after [`TELLING`]. Donors report with
/// each heartbeat.
async fn told(client: &Pool, sent: &Sent, copies: u32) -> Result<PoolStatus, Failure> {
    let until = client.now() + TELLING;
    loop {
        let status = client.call(&Status {}).await?;
        let chunks: u64 = status.donors.iter().map(|donor| donor.chunks).sum();
        let bytes: u64 = status.donors.iter().map(|donor| donor.used).sum();
        let copies = u64::from(copies);
        let all = chunks >= copies * sent.chunks && bytes >= copies * sent.bytes;
        if all || client.now() >= until {
            return Ok(status);
        }
        tokio::time::sleep(TELLING / 50).await;
    }
}

async fn read_back(
    client: &Pool,
    sample: &Sample,
    output: &Output,
    failovers: &mut u64,
) -> Result<(), Failure> {
    let progress = progress_bar::transfer(client, output.wants_progress(), Some(0));
    for (number, local) in sample.files.iter().enumerate() {
        let (compare, verdict) = Compare::with(local)?;
        let path = stored_path(number);
        let report = cat(client, &path, ByteRange::ALL, None, compare, progress.clone()).await?;
        *failovers += report.failovers;
        if !verdict.is_equal() {
            let what = format!("{path} differs from {}", local.display());
            return Err(Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
                .hint("if the local file did not change meanwhile, this is a bug in Potluck: please report it"));
        }
    }
    Ok(())
}

/// Returns the path of a file in the pool. Files are numbered, because local files may share their names.
fn stored_path(number: usize) -> PoolPath {
    let root = PoolPath::space_root(SPACE).expect("a valid name");
    root.join(&format!("{number:05}")).expect("a valid name")
}

fn shares(status: &PoolStatus, killed: &str) -> Vec<DonorShare> {
    let share = |donor: &potluck_wire::control::DonorStatus| DonorShare {
        name: donor.name.clone(),
        chunks: donor.chunks,
        stored_bytes: donor.used,
        killed: donor.name == killed,
    };
    status.donors.iter().map(share).collect()
}

fn text(report: &DemoReport) -> String {
    let phase = |name: &str, phase: &Phase| {
        vec![
            name.to_string(),
            format!("{:.0}", phase.mib_s),
            phase.cpu_s_per_gib.map_or("-".into(), |cost| format!("{cost:.2}")),
            format!("{:.2}", phase.seconds),
        ]
    };
    let phases = table(
        &["", "MiB/s", "CPU-s/GiB", "seconds"],
        &[1, 2, 3],
        &[
            phase(&format!("store, {} copies, sealed", report.copies), &report.store),
            phase("read back, a donor dead", &report.read_back),
        ],
    );
    let donors: Vec<_> = report
        .donors
        .iter()
        .map(|donor| {
            let fate = if donor.killed { "killed" } else { "" };
            vec![
                donor.name.clone(),
                donor.chunks.to_string(),
                format_size(donor.stored_bytes),
                fate.into(),
            ]
        })
        .collect();
    let lost = report.donors.iter().find(|donor| donor.killed).map_or(0, |donor| donor.chunks);
    format!(
        "{phases}\n{}\nWhat the kill changed: one copy instead of {} left of {}; {} answered by\nthe other copy; {}, {}, came back identical.\n",
        table(&["donor", "chunks", "stored", ""], &[1, 2], &donors),
        report.copies,
        count(lost, "chunk"),
        count(report.failovers, "read"),
        count(report.files, "file"),
        format_size(report.bytes),
    )
}
