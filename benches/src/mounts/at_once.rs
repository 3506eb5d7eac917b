//! Measures many mounts of one pool at once: none may fail, and none may be served long before the others.

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::{MIB, SMALL, SPACE};
use crate::measure;
use crate::mounted::Mounted;
use crate::outcome::{Figure, Limit};
use crate::pool::Pool;

const MOUNTS: usize = 50;
/// The number of files of 4 KiB that a program makes in each mount.
const SMALL_FILES: usize = 20;
/// The size of one more file that each program makes, in bytes.
const LARGE: usize = 8 << 20;
/// The most times as long as the middle program that the slowest may take. The fastest says little: it is the one that
/// began a moment before the others.
const SLOWEST: f64 = 2.0;
const MEMORY_MIB: f64 = 256.0;

/// Lets a program write and read in each of the mounts, all at the same time.
pub fn run(pool: &Pool, dir: &Path) -> Result<Vec<Figure>> {
    let dir = dir.join("many");
    fs::create_dir(&dir)?;
    let mounts: Vec<Mounted> = (0..MOUNTS)
        .map(|number| Mounted::pool(pool, SPACE, dir.join(format!("{number:02}")), &[]))
        .collect::<Result<_>>()?;
    let (began, ready) = (Instant::now(), Barrier::new(MOUNTS));
    let took: Vec<Result<Duration>> = thread::scope(|programs| {
        let program =
            |number, mount: &Mounted| work(&mount.dir.join(format!("of-{number}")), number, &ready);
        let running: Vec<_> = (0..)
            .zip(&mounts)
            .map(|(number, mount)| programs.spawn(move || program(number, mount)))
            .collect();
        running.into_iter().map(|it| it.join().map_err(|_| anyhow!("a panic"))?).collect()
    });
    let all = began.elapsed();
    let failed: Vec<_> = took.iter().filter_map(|took| took.as_ref().err()).collect();
    failed.iter().for_each(|why| eprintln!("a mount among {MOUNTS}: {why:#}"));
    let mut seconds: Vec<f64> = took.iter().flatten().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let [fastest, .., slowest] = seconds[..] else { bail!("no program ended") };
    let middle = seconds[seconds.len() / 2];
    let mut most: f64 = 0.0;
    for mount in &mounts {
        most = most.max(measure::resident(mount.pid())?.peak as f64 / MIB);
    }
    let figure = |what: &str, value, unit, limit| {
        let work = format!("{MOUNTS} mounts at once, {what}");
        eprintln!("{work}: {value:.2} {unit}");
        Figure { work, value, unit, limit }
    };
    Ok(vec![
        figure("programs that failed", failed.len() as f64, "", Limit::AtMost(0.0)),
        figure("time for all", all.as_secs_f64(), "s", Limit::None),
        figure("slowest by the middle one", slowest / middle, "×", Limit::AtMost(SLOWEST)),
        figure("slowest by fastest", slowest / fastest, "×", Limit::None),
        figure("memory of the largest daemon", most, "MiB", Limit::AtMost(MEMORY_MIB)),
    ])
}

/// Does what a program does in its mount once all programs are `ready`, and returns how long it took.
fn work(dir: &Path, number: usize, ready: &Barrier) -> Result<Duration> {
    let small = |file: usize| (dir.join(format!("{file:02}")), vec![(number ^ file) as u8; SMALL]);
    // No two programs write the same chunk.
    let large = (0..LARGE).map(|at| (at ^ (at >> 8) ^ number) as u8).collect::<Vec<u8>>();
    ready.wait(); // whoever began before the others would have the machine to itself
    let began = Instant::now();
    fs::create_dir(dir).context("cannot make a directory")?;
    for (path, content) in (0..SMALL_FILES).map(small) {
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    fs::write(dir.join("large"), &large).context("cannot write a large file")?;
    for (path, content) in (0..SMALL_FILES).map(small) {
        ensure!(fs::read(&path)? == content, "{} has other bytes", path.display());
    }
    ensure!(fs::read(dir.join("large"))? == large, "the large file has other bytes");
    Ok(began.elapsed())
}
