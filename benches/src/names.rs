//! How fast a pool of very many files lists them, and says what it knows of single ones.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::content;
use crate::interrupt;
use crate::measure;
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start};
use crate::random_reads::rate_of;

const DONORS: usize = 2;
/// Files of one directory.
const EACH: u64 = 1000;
/// Names that one inode may have on every file system.
const LINKS: u64 = 30_000;
const THREADS: [usize; 2] = [1, 16];
const TREE: &str = "pot://names/tree";

/// The name of one of the files, from the top of the tree.
pub fn file(number: u64) -> String {
    format!("{:04}/{:03}", number / EACH, number % EACH)
}

pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    let pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("names"),
        donors: DONORS,
        lent: "20GiB",
        options: &[],
        network: None,
    })?;
    measure::run(pool.client().args(["space", "create", "names", "--plain", "--copies", "1"]))?;
    let local = dir.join("tree");
    eprintln!("storing {} files", plan.names);
    write_tree(&local, plan.names)?;
    let stored = measure::run(pool.client().args(["cp", "-q", "-r"]).arg(&local).arg(TREE))?;
    content::remove(&local)?;
    let mut figures = Vec::new();
    let mut figure = |work: String, value: f64| {
        eprintln!("{work}: {value:.0} /s");
        figures.push(Figure { work, value, unit: "/s", limit: Limit::None });
    };
    let all = plan.names as f64;
    figure(format!("{} files of 8 bytes in", plan.names), all / stored.cost.wall.as_secs_f64());
    let listed = measure::run(pool.client().args(["ls", "-r", TREE]))?;
    let files = listed.stdout.lines().filter(|line| !line.ends_with('/')).count();
    ensure!(files as u64 >= plan.names, "{files} of {} files were listed", plan.names);
    let wall = listed.cost.wall.as_secs_f64();
    figure(format!("listing of {} files, entries", plan.names), all / wall);
    for threads in THREADS {
        let bench = std::env::current_exe().context("cannot find the bench's own program")?;
        let mut asker = Command::new(bench);
        asker.args(["floor", "stats"]).arg(pool.identity()).arg(TREE);
        let rate = rate_of(asker.args([plan.names.to_string(), threads.to_string()]))?;
        figure(format!("stat among {} files, {threads} at once", plan.names), rate.per_second);
    }
    Ok(figures)
}

/// A tree of `files` small files. Many of them are one on the disk: only their names and what is read matter.
fn write_tree(tree: &Path, files: u64) -> Result<()> {
    let mut original = tree.join(file(0));
    for number in 0..files {
        let path = tree.join(file(number));
        if number % EACH == 0 {
            interrupt::check()?;
            fs::create_dir_all(path.parent().context("it is in a directory")?)?;
        }
        if number % LINKS == 0 {
            fs::write(&path, number.to_le_bytes())?;
            original = path;
        } else {
            fs::hard_link(&original, path)?;
        }
    }
    Ok(())
}
