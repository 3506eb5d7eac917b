//! Tests that nobody who works with the pool notices that its manager is upgraded, or dies and comes back.

use super::content::{arg, assert_same, bytes, file, tree_of};
use super::lab::{Cli, Lab, stop};
use super::program::code_of;
use super::tap::Tap;
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Users who start one command after the other until they are told to stop; each has to succeed.
struct Load {
    over: Arc<AtomicBool>,
    rounds: Vec<Arc<AtomicU64>>,
    users: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(lab: &Lab, users: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let rounds: Vec<_> = (0..users).map(|_| Arc::<AtomicU64>::default()).collect();
        let user = |(number, round): (u64, &Arc<AtomicU64>)| {
            let (cli, dir) = (lab.cli.clone(), lab.dir().to_path_buf());
            let (over, round) = (Arc::clone(&over), Arc::clone(round));
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let seed = number * 1000 + round.load(Ordering::Relaxed);
                    work(&cli, &dir, number, seed);
                    round.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let users = (0..).zip(&rounds).map(user).collect();
        Self { over, rounds, users }
    }

    /// Waits until every user has begun and ended one more round.
    fn go_on(&self) {
        let before: Vec<u64> =
            self.rounds.iter().map(|round| round.load(Ordering::Relaxed)).collect();
        wait_until("every user to go on", 3 * DEADLINE, || {
            let mut each = self.rounds.iter().zip(&before);
            each.all(|(round, before)| round.load(Ordering::Relaxed) > before + 1)
                || self.users.iter().any(JoinHandle::is_finished)
        });
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.users.into_iter().for_each(|user| user.join().expect("all commands succeed"));
    }
}

/// Stores, reads and looks at a file, each by a command of its own.
fn work(cli: &Cli, dir: &Path, user: u64, seed: u64) {
    let (input, content) = file(dir, &format!("input-{user}"), seed, 300_000);
    let path = format!("pot://lab/user-{user}/file");
    cli.ok(&["cp", arg(&input), &path]);
    assert_same(&cli.cat(&path), &content, "what was just stored");
    assert_eq!(cli.json(&["stat", &path])["entry"]["size"], content.len());
    cli.ok(&["ls", "pot://lab"]);
}

#[test]
fn new_commands_wait_out_a_manager_kill() {
    let mut lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let load = Load::start(&lab, 2);
    load.go_on();
    for _ in 0..3 {
        lab.kill_manager();
        lab.start_manager();
        load.go_on();
    }
    load.end();
}

#[test]
fn new_commands_do_not_notice_an_upgrade_of_the_manager() {
    let mut lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--ec", "2+1", "--chunk-size", "64KiB"]);
    let load = Load::start(&lab, 2);
    load.go_on();
    assert_eq!(stop(lab.manager(), Signal::TERM), 0);
    pause(Duration::from_secs(3)); // this is the time in which a package is unpacked
    lab.start_manager();
    load.go_on();
    load.end();
}

/// Commands that read and commands that change something do not fail for a manager that is not there yet.
#[test]
fn commands_wait_out_a_manager_restart() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 7, 1 << 20);
    for name in ["read", "moved", "removed"] {
        lab.cli.ok(&["cp", arg(&input), &format!("pot://lab/{name}")]);
    }
    lab.kill_manager();
    let commands: Vec<JoinHandle<()>> = [
        &["cp", arg(&input), "pot://lab/new"][..],
        &["cat", "pot://lab/read"],
        &["ls", "pot://lab"],
        &["stat", "pot://lab/read"],
        &["status"],
        &["mkdir", "pot://lab/dir"],
        &["mv", "pot://lab/moved", "pot://lab/there"],
        &["rm", "pot://lab/removed"],
        &["du", "pot://lab"],
    ]
    .into_iter()
    .map(|command| {
        let cli = lab.cli.clone();
        let command: Vec<String> = command.iter().map(|part| part.to_string()).collect();
        thread::spawn(move || {
            cli.ok(&command.iter().map(String::as_str).collect::<Vec<_>>());
        })
    })
    .collect();
    pause(Duration::from_secs(2));
    assert!(commands.iter().all(|command| !command.is_finished()), "they wait");
    lab.start_manager();
    commands.into_iter().for_each(|command| command.join().expect("it succeeded"));
    assert_same(&lab.cli.cat("pot://lab/new"), &content, "what was stored meanwhile");
    lab.cli.ok(&["stat", "pot://lab/there"]);
    lab.cli.fails(3, &["stat", "pot://lab/removed"]);
}

/// The names of a tree are made one after the other, long after its first byte was moved.
#[test]
fn tree_uploads_wait_out_a_manager_restart() {
    let mut lab = Lab::manager_only(&[]);
    let _tap = lab.lend_behind("donor-1", Tap::slow(1 << 20));
    lab.wait_live();
    let tree = lab.dir().join("tree");
    for number in 0..400 {
        std::fs::create_dir_all(tree.join(format!("{number:03}"))).expect("a directory");
    }
    for number in (0..400).step_by(50) {
        file(&tree.join(format!("{number:03}")), "file", number, 256 << 10);
    }
    for space in ["from", "up", "over"] {
        lab.cli.ok(&["space", "create", space, "--chunk-size", "64KiB"]);
    }
    lab.cli.ok(&["cp", "-r", arg(&tree), "pot://from/tree"]);
    let down = lab.dir().join("down");
    let mut copies = [
        lab.cli.start(&["cp", "-r", arg(&tree), "pot://up/tree"]),
        lab.cli.start(&["cp", "-r", "pot://from/tree", arg(&down)]),
        lab.cli.start(&["cp", "-r", "pot://from/tree", "pot://over/tree"]),
    ];
    let dirs = |space: &str| lab.cli.json(&["du", space])["dirs"].as_u64().unwrap_or_default();
    wait_until("all of them to have begun", DEADLINE, || {
        dirs("pot://up") > 10 && down.exists() && dirs("pot://over") > 10
    });
    lab.kill_manager();
    pause(Duration::from_secs(3));
    lab.start_manager();
    for copy in &mut copies {
        assert_eq!(code_of(copy.end_within("a copy", 3 * DEADLINE)), 0);
    }
    lab.cli.ok(&["cp", "-r", "pot://up/tree", arg(&lab.dir().join("up"))]);
    lab.cli.ok(&["cp", "-r", "pot://over/tree", arg(&lab.dir().join("over"))]);
    for copied in ["up", "over", "down"] {
        assert!(tree_of(&lab.dir().join(copied)) == tree_of(&tree), "{copied} differs");
    }
}

/// A2: donors that died with the manager are not waited for beyond half a minute.
#[test]
fn donors_absent_after_a_manager_restart_fail_soon_a2() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    std::fs::write(lab.dir().join("input"), bytes(1, 100_000)).expect("a file");
    let input = lab.dir().join("input");
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.kill_donor("donor-1");
    lab.kill_manager();
    lab.start_manager();
    let put = lab.cli.run(&["cp", arg(&input), "pot://lab/g"]).exits(5);
    assert!(put.stderr.contains("POT-E033"), "{}", put.stderr);
    let get = lab.cli.run(&["cat", "pot://lab/f"]).exits(5);
    assert!(get.stderr.contains("POT-E050"), "{}", get.stderr);
    for ran in [put, get] {
        assert!(ran.took < DEADLINE, "{}: {:?}", ran.command, ran.took);
    }
}

/// A manager that stays away is an error in the time that was given.
#[test]
fn retry_for_says_how_long_a_manager_is_waited_for() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.kill_manager();
    let ran = lab.cli.run(&["--retry-for", "1s", "ls"]).exits(5);
    assert!(ran.stderr.contains("POT-E070"), "{}", ran.stderr);
    assert!(ran.took >= Duration::from_secs(1) && ran.took < DEADLINE, "{:?}", ran.took);
    let cli = lab.cli.with_env("POTLUCK_RETRY_FOR", "2s");
    let ran = cli.run(&["ls"]).exits(5);
    assert!(ran.took >= Duration::from_secs(2) && ran.took < DEADLINE, "{:?}", ran.took);
    lab.cli.run(&["--retry-for", "soon", "ls"]).exits(2);
}

#[test]
fn donor_rates_outlast_a_restart_of_the_manager() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--copies", "1"]);
    let (input, _) = file(lab.dir(), "input", 3, 24 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let written = |lab: &Lab| {
        let nodes = lab.cli.json(&["nodes", "ls", "--rates"]);
        nodes["donors"][0]["rates"]["rates"]["written"].as_u64()
    };
    wait_until("the rate to be known", DEADLINE, || written(&lab).is_some());
    let known = written(&lab);
    assert_eq!(stop(lab.manager(), Signal::TERM), 0);
    lab.start_manager();
    lab.wait_live();
    let nodes = lab.cli.json(&["nodes", "ls", "--rates"]);
    assert_eq!(written(&lab), known, "{nodes}");
}
