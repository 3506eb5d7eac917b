//! Measures how soon a manager of many files answers again: after it was killed, and after its directory was lost.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::content;
use crate::interrupt;
use crate::measure;
use crate::names;
use crate::network::Host;
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start};
use crate::report::median;

const DONORS: usize = 3;
/// The longest that a manager may take from its start to its first answer, in seconds.
const ANSWER_SECONDS: f64 = 1.0;
/// The longest that `manager restore` from donors may take, in seconds.
const RESTORE_SECONDS: f64 = 10.0;
/// The time within which donors get the metadata log of a catalog.
const LOGGED_WITHIN: Duration = Duration::from_secs(300);
const TREE: &str = "pot://comeback/tree";

pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    let mut pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("comeback"),
        donors: DONORS,
        lent: "20GiB",
        options: &[],
        network: None,
    })?;
    measure::run(pool.client().args(["space", "create", "comeback", "--plain", "--copies", "1"]))?;
    let local = dir.join("comeback-tree");
    let files = plan.names / 10;
    eprintln!("storing {files} files");
    names::write_tree(&local, files)?;
    measure::run(pool.client().args(["cp", "-q", "-r"]).arg(&local).arg(TREE))?;
    content::remove(&local)?;
    // The last file is asked for, since a catalog that came back without its end does not have it.
    let last = format!("{TREE}/{}", names::file(files.saturating_sub(1)));
    let (mut answers, mut restores) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        interrupt::wait_until("the log", LOGGED_WITHIN, Duration::from_millis(100), || {
            Ok(pool.status()?.is_logged())
        })?;
        answers.push(killed(&mut pool, &last)?);
        restores.push(lost(&mut pool, dir, &last)?);
    }
    let figure = |work: &str, values, limit| {
        let (work, value) = (format!("{work}, {files} files"), median(values));
        eprintln!("{work}: {value:.2} s");
        Figure { work, value, unit: "s", limit: Limit::AtMost(limit) }
    };
    Ok(vec![
        figure("first answer after kill -9 of the manager", answers, ANSWER_SECONDS),
        figure("catalog restored from 3 donors", restores, RESTORE_SECONDS),
    ])
}

/// Returns the seconds from the start of a manager that was killed to its first answer.
fn killed(pool: &mut Pool, asked: &str) -> Result<f64> {
    pool.kill_manager();
    let begun = Instant::now();
    pool.start_manager()?;
    measure::run(pool.client().args(["stat", asked]))?;
    let seconds = begun.elapsed().as_secs_f64();
    pool.wait_live(DONORS)?;
    Ok(seconds)
}

/// Returns the seconds that `manager restore` takes when only the recovery kit and the donors are left.
fn lost(pool: &mut Pool, dir: &Path, asked: &str) -> Result<f64> {
    let (state, kit) = (pool.manager_state(), dir.join("recovery.kit"));
    fs::copy(state.join("recovery.kit"), &kit)?;
    pool.kill_manager();
    fs::remove_dir_all(&state)?;
    let mut restore = pool.on(Host::Manager);
    restore.args(["manager", "restore", "--from", "pool"]).arg("--kit").arg(&kit);
    restore.arg("--state").arg(&state).args(["--listen", pool.address()]);
    let restored = measure::run(restore.args(["--donors", &DONORS.to_string()]))?;
    fs::remove_file(&kit)?;
    pool.start_manager()?;
    pool.wait_live(DONORS)?;
    measure::run(pool.client().args(["stat", asked]))?;
    Ok(restored.cost.wall.as_secs_f64())
}
