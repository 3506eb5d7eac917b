//! Measures how fast a pool of very many files lists them, and says what it knows of single ones.

use std::fs;
use std::path::{Path, PathBuf};
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
/// The number of files of one directory.
const EACH: u64 = 1000;
/// The number of names that one inode may have on every file system.
const LINKS: u64 = 30_000;
const THREADS: [usize; 2] = [1, 16];
const TREE: &str = "pot://names/tree";
/// A directory with a tenth as many files.
const FLAT: &str = "pot://names/flat";

/// Returns the name of one of the files, from the top of the tree.
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
    let flat = plan.names / 10;
    write_directory(&local, flat)?;
    measure::run(pool.client().args(["cp", "-q", "-r"]).arg(&local).arg(FLAT))?;
    content::remove(&local)?;
    for (what, files, args) in [
        ("a tree of", plan.names, &["ls", "-r", TREE][..]),
        ("one directory with", flat, &["ls", FLAT][..]),
    ] {
        let listed = measure::run(pool.client().args(args))?;
        let found = listed.stdout.lines().filter(|line| !line.ends_with('/')).count();
        ensure!(found as u64 >= files, "{found} of {files} files were listed");
        let wall = listed.cost.wall.as_secs_f64();
        figure(format!("listing of {what} {files} files, entries"), files as f64 / wall);
    }
    for threads in THREADS {
        let bench = std::env::current_exe().context("cannot find the bench's own program")?;
        let mut asker = Command::new(bench);
        asker.args(["floor", "stats"]).arg(pool.identity()).arg(TREE);
        let rate = rate_of(asker.args([plan.names.to_string(), threads.to_string()]))?;
        figure(format!("stat among {} files, {threads} at once", plan.names), rate.per_second);
    }
    Ok(figures)
}

/// Makes a tree of `files` small files, `EACH` in a directory.
pub fn write_tree(tree: &Path, files: u64) -> Result<()> {
    write(files, |number| tree.join(file(number)))
}

/// Makes a directory of `files` small files.
fn write_directory(directory: &Path, files: u64) -> Result<()> {
    write(files, |number| directory.join(format!("{number:07}")))
}

/// Makes small files, many of which are one inode on the disk: only their names and what is read matter.
fn write(files: u64, path_of: impl Fn(u64) -> PathBuf) -> Result<()> {
    let mut original = path_of(0);
    for number in 0..files {
        let path = path_of(number);
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
