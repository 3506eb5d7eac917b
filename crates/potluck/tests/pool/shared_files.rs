//! Tests files that several writers write at once, each its own bytes: by the library, the command line, and mounts
//! (CEFT-PVFS, section 4).

mod faults;
mod model;

use super::content::{Lots, arg, assert_same, bytes, file};
use super::lab::{Cli, Lab};
use super::member::Member;
use super::mounts::{Mount, mounted};
use super::program::Running;
use super::waiting::{DEADLINE, pause, wait_until};
use potluck_client::{Attributes, Pool, PutOptions, SharedOutcome, SharedWriter};
use potluck_core::ids::SharedWriterId;
use potluck_core::path::PoolPath;
use potluck_wire::call::Caller;
use potluck_wire::control::{SharedClaim, SharedLeave, SharedTurn};
use potluck_wire::env::Env;
use potluck_wire::error::{Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::net::SystemNet;
use potluck_wire::tls::{TlsDial, install_provider};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const OUT: &str = "pot://lab/out";
/// The time within which the claims of a dead writer end, with room for a machine that does much else.
const FREED_WITHIN: Duration = Duration::from_secs(25);

/// Makes a client of its own, as another machine has it.
fn client(lab: &Lab) -> Pool {
    install_provider();
    let identity = Identity::load(&lab.manager_dir().join("admin")).expect("an identity");
    let dial = Arc::new(TlsDial::member(&identity).expect("a usable identity"));
    Pool::new(Env::system(), Caller::new(Arc::new(SystemNet), dial, identity.about.manager))
}

fn out() -> PoolPath {
    OUT.parse().expect("a path")
}

async fn join(pool: &Pool, name: &str) -> Result<SharedWriter, Failure> {
    let options = PutOptions::default();
    pool.shared_writer(&out(), Some(name), &options, Attributes::default()).await
}

/// Returns ranges that cover `len` bytes but for some gaps, each of one of the writers: some long, most short, and
/// aligned to nothing.
fn dealt(len: u64, writers: u64, lots: &mut Lots) -> Vec<(u64, Range<u64>)> {
    let (mut ranges, mut at) = (Vec::new(), lots.below(5000));
    while at < len {
        let longest = if lots.below(8) == 0 { 6 << 20 } else { 90_000 };
        let end = (at + 1 + lots.below(longest)).min(len);
        ranges.push((lots.below(writers), at..end));
        at = end + if lots.below(5) == 0 { lots.below(100_000) } else { 0 };
    }
    ranges
}

#[test]
fn concurrent_shared_writers_make_one_correct_version() {
    let lab = Lab::with_donors(3);
    let spaces: [(&str, &[&str]); 3] =
        [("lab", &[]), ("plain", &["--plain", "--copies", "2"]), ("coded", &["--ec", "2+1"])];
    let runtime = Runtime::new().expect("a runtime");
    for (number, (space, options)) in spaces.into_iter().enumerate() {
        lab.cli.ok(&[&["space", "create", space], options].concat());
        let text = format!("pot://{space}/dir/out");
        let path: PoolPath = text.parse().expect("a path");
        let mut expected = Vec::new();
        // In the second round there is a version, whose bytes stay where nobody writes.
        for round in 0..2 {
            let seed = number as u64 * 2 + round;
            let len = (40 << 20) + 12_345 - round * (5 << 20);
            let ranges = dealt(len, 4, &mut Lots::new("shared files", seed));
            let content = bytes(seed, len as usize);
            let end = ranges.iter().map(|(_, range)| range.end as usize).max().unwrap_or_default();
            if expected.len() < end {
                expected.resize(end, 0);
            }
            for (_, Range { start, end }) in &ranges {
                let range = *start as usize..*end as usize;
                expected[range.clone()].copy_from_slice(&content[range]);
            }
            let local = lab.dir().join("local");
            fs::write(&local, &content).expect("written");
            let local = Arc::new(File::open(&local).expect("it is there"));
            let content = Arc::new(content);
            let outcomes = runtime.block_on(async {
                let mut writing = JoinSet::new();
                let all_written = Arc::new(Barrier::new(4));
                for writer in 0..4 {
                    let own = ranges.iter().filter(|(of, _)| *of == writer);
                    let own: Vec<Range<u64>> = own.map(|(_, range)| range.clone()).collect();
                    let (pool, path, content) = (client(&lab), path.clone(), Arc::clone(&content));
                    let (all_written, local) = (Arc::clone(&all_written), Arc::clone(&local));
                    writing.spawn(async move {
                        let (name, options) = (format!("w{writer}"), PutOptions::default());
                        let attributes = Attributes::default();
                        let joined =
                            pool.shared_writer(&path, Some(&name), &options, attributes).await;
                        let mut shared = joined.expect("joined");
                        for Range { start, end } in own {
                            let bytes = &content[start as usize..end as usize];
                            let written = match writer % 2 {
                                0 => shared.write_at(start, bytes).await,
                                _ => shared.write_file(start, &local, start..end).await,
                            };
                            written.expect("nobody else's");
                        }
                        all_written.wait().await;
                        shared.finish().await
                    });
                }
                writing.join_all().await
            });
            let outcomes: Vec<_> = outcomes.into_iter().map(|it| it.expect("finished")).collect();
            let published = outcomes.iter().filter(|it| **it == SharedOutcome::Published).count();
            assert_eq!(published, 1, "{outcomes:?}");
            assert_same(&lab.cli.cat(&text), &expected, &format!("{text}, round {round}"));
        }
        let listed = lab.cli.json(&["ls", "-r", &format!("pot://{space}")])["entries"].clone();
        let files = listed.as_array().expect("entries").iter();
        assert_eq!(files.filter(|entry| entry["kind"] == "file").count(), 1, "{listed}");
    }
}

#[test]
fn conflicting_claim_is_refused_with_the_holder_name() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (one, other) = (client(&lab), client(&lab));
        let mut a = join(&one, "a").await.expect("joined");
        let mut b = join(&other, "b").await.expect("joined");
        let named = join(&other, "a").await.err().expect("there is one of that name");
        assert_eq!(named.code, code::CLAIMED, "{named}");
        a.write_at(0, &[1; 1000]).await.expect("free");
        let refused = b.write_at(500, &[2; 1000]).await.expect_err("not free");
        assert_eq!(refused.code, code::CLAIMED, "{refused}");
        assert!(refused.message.contains("bytes 500 to 999"), "{refused}");
        assert!(refused.message.contains("the writer a of admin"), "{refused}");
        b.write_at(1000, &[2; 1000]).await.expect("free, as nothing was claimed before");
        a.write_at(10, &[3; 10]).await.expect("its own, once more");
        assert_eq!(a.finish().await.expect("stored"), SharedOutcome::Waiting);
        let late = b.claim(0..1).await.expect_err("it will be in the same version");
        assert_eq!(late.code, code::CLAIMED, "{late}");
        let again = join(&one, "a").await.err().expect("it has finished");
        assert!(again.message.contains("finished already"), "{again}");
        assert_eq!(b.finish().await.expect("stored"), SharedOutcome::Published);
        // What was claimed is free for the next version.
        let mut next = join(&one, "a").await.expect("joined");
        next.write_at(1500, &[4; 100]).await.expect("free");
        assert_eq!(next.finish().await.expect("stored"), SharedOutcome::Published);
    });
    // A writer that lives and was left out hears of it.
    runtime.block_on(async {
        let (one, other) = (client(&lab), client(&lab));
        let mut left_out = join(&one, "left out").await.expect("joined");
        left_out.write_at(5, &[9; 10]).await.expect("free");
        let told = ["left out".to_owned()];
        let outcome = other.publish_shared(&out(), &told).await.expect("nothing is in the way");
        assert_eq!(outcome, SharedOutcome::Nothing);
        let refused = left_out.finish().await.expect_err("it is in no version");
        assert_eq!(refused.code, code::NOT_TOGETHER, "{refused}");
    });
    let mut expected = [[1; 1000], [2; 1000]].concat();
    expected[10..20].fill(3);
    expected[1500..1600].fill(4);
    assert_same(&lab.cli.cat(OUT), &expected, "what all wrote");
}

/// Starts a writer, and feeds it `bytes` on its standard input; it waits for more.
fn writer(cli: &Cli, name: &str, at: u64, bytes: &[u8]) -> Running {
    let at = at.to_string();
    let mut running = cli.start(&["write-shared", "write", "-", OUT, "--at", &at, "--name", name]);
    let input = running.child().stdin.as_mut().expect("an open input");
    input.write_all(bytes).expect("it reads");
    running
}

/// Returns the name and the state of each writer of the file.
fn states(cli: &Cli) -> Vec<String> {
    let writers = cli.json(&["write-shared", "ls", OUT])["writers"].clone();
    let writers = writers.as_array().expect("writers").iter();
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    writers.map(|it| format!("{} {}", text(&it["name"]), text(&it["state"]))).collect()
}

#[test]
fn killed_shared_writer_blocks_until_excluded_or_replaced() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    let (input, old) = file(lab.dir(), "input", 1, 5 << 20);
    lab.cli.ok(&["cp", arg(&input), OUT]);
    let (one, other) = (bytes(2, 6 << 20), bytes(3, 6 << 20));
    let mut dies = writer(&lab.cli, "dies", 6 << 20, &other);
    wait_until("both halves to be claimed", DEADLINE, || {
        states(&lab.cli) == ["dies writing"]
            && lab.cli.json(&["write-shared", "ls", OUT])["writers"][0]["claimed"].as_u64()
                >= Some(4 << 20)
    });
    dies.kill_9();
    let (part, _) = file(lab.dir(), "part", 2, 6 << 20);
    let write = |name: &str, at: &str| {
        ["write-shared", "write", arg(&part), OUT, "--at", at, "--name", name].map(str::to_owned)
    };
    let run = |args: &[String; 8]| lab.cli.run(&args.each_ref().map(String::as_str));
    let fails = |args: &[String; 8]| lab.cli.fails(10, &args.each_ref().map(String::as_str));
    let refused = fails(&write("lives", "0"));
    assert_eq!(refused.code, "POT-E049", "it is the last that lives: {refused:?}");
    assert_same(&lab.cli.cat(OUT), &old, "before a version is made");
    wait_until("the dead to be silent", FREED_WITHIN, || {
        states(&lab.cli) == ["dies silent", "lives finished"]
    });
    let refused = lab.cli.fails(10, &["write-shared", "commit", OUT]);
    assert_eq!(refused.code, "POT-E049", "{refused:?}");
    assert!(refused.message.contains("dies") && !refused.message.contains("lives"), "{refused:?}");
    assert!(refused.hint.contains("--leave-out dies"), "{refused:?}");
    assert_same(&lab.cli.cat(OUT), &old, "after a commit that was refused");

    // Another writes what it was to write, and makes the version as the last that finishes.
    run(&write("dies", "6291456")).ok();
    assert_same(&lab.cli.cat(OUT), &[&one[..], &one].concat(), "both halves");

    // If nobody writes that part, its bytes are as they were.
    let mut dies = writer(&lab.cli, "dies", 0, &other);
    wait_until("it to write", DEADLINE, || states(&lab.cli) == ["dies writing"]);
    dies.kill_9();
    assert_eq!(fails(&write("lives", "12582912")).code, "POT-E049");
    lab.cli.ok(&["write-shared", "commit", OUT, "--leave-out", "dies"]);
    assert_same(&lab.cli.cat(OUT), &[&one[..], &one, &one].concat(), "without the dead");
}

#[test]
fn shared_writers_keep_claims_across_a_manager_restart() {
    let mut lab = Lab::with_options(1, &["--resume-window", "1h"]);
    lab.cli.ok(&["space", "create", "lab"]);
    let content = bytes(7, 8 << 20);
    let (half, end) = (4 << 20, 8 << 20);
    let runtime = Runtime::new().expect("a runtime");
    let (one, other) = (client(&lab), client(&lab));
    let (mut a, mut b) = runtime.block_on(async {
        let mut a = join(&one, "a").await.expect("joined");
        let mut b = join(&other, "b").await.expect("joined");
        a.claim(0..half as u64).await.expect("free");
        a.write_at(0, &content[..half / 2]).await.expect("claimed");
        b.write_at(half as u64, &content[half..half + 1000]).await.expect("free");
        (a, b)
    });
    lab.kill_manager();
    lab.start_manager();
    runtime.block_on(async {
        // A claim waits now until the others have said what they have.
        let refused = b.write_at(half as u64 - 1, &[0]).await.expect_err("claimed before");
        assert_eq!(refused.code, code::CLAIMED, "{refused}");
        a.write_at(half as u64 / 2, &content[half / 2..half]).await.expect("claimed before");
        b.write_at(half as u64 + 1000, &content[half + 1000..end]).await.expect("free");
        let outcomes = [a.finish().await.expect("stored"), b.finish().await.expect("stored")];
        assert_eq!(outcomes, [SharedOutcome::Waiting, SharedOutcome::Published]);
    });
    assert_same(&lab.cli.cat(OUT), &content, "what both wrote");
}

#[test]
fn shared_write_is_one_version_or_nothing() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (part, content) = file(lab.dir(), "part", 4, 3 << 20);
    lab.cli.ok(&["write-shared", "begin", OUT]);
    let files = lab.cli.json(&["write-shared", "ls"])["files"].clone();
    assert_eq!(files[0]["target"], OUT, "{files}");
    assert!(lab.cli.json(&["ckpt", "ls"])["checkpoints"].as_array().is_some_and(Vec::is_empty));
    for (name, at) in [("a", "0"), ("b", "3MiB")] {
        let args = ["write-shared", "write", arg(&part), OUT, "--at", at, "--name", name];
        assert_eq!(lab.cli.json(&args)["outcome"], "waiting");
    }
    lab.cli.fails(3, &["stat", OUT]);
    let over = lab.cli.fails(10, &["write-shared", "write", arg(&part), OUT, "--at", "2MiB"]);
    assert_eq!(over.code, "POT-E048", "{over:?}");
    assert_eq!(lab.cli.json(&["write-shared", "commit", OUT])["outcome"], "published");
    assert_same(&lab.cli.cat(OUT), &[&content[..], &content].concat(), "both parts");
    assert!(lab.cli.json(&["write-shared", "ls"])["files"].as_array().is_some_and(Vec::is_empty));

    lab.cli.ok(&["write-shared", "begin", OUT]);
    lab.cli.ok(&["write-shared", "write", arg(&part), OUT, "--at", "1"]);
    lab.cli.ok(&["write-shared", "abort", OUT]);
    assert_same(&lab.cli.cat(OUT), &[&content[..], &content].concat(), "after the abort");
    assert_eq!(lab.cli.fails(3, &["write-shared", "abort", OUT]).code, "POT-E013");
    lab.cli.ok(&["write-shared", "write", arg(&part), OUT, "--at", "0", "--name", "a"]);
    assert_same(&lab.cli.cat(OUT), &[&content[..], &content].concat(), "claims ended with it");
}

#[test]
fn shared_commit_of_an_unshared_file_is_refused() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    assert_eq!(lab.cli.fails(3, &["write-shared", "commit", OUT]).code, "POT-E013");
    assert!(lab.cli.json(&["write-shared", "ls"])["files"].as_array().is_some_and(Vec::is_empty));
}

#[test]
fn failed_shared_writer_holds_back_the_version() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let runtime = Runtime::new().expect("a runtime");
    let pool = client(&lab);
    let mut lives = runtime.block_on(join(&pool, "lives")).expect("joined");
    runtime.block_on(lives.write_at(6 << 20, &[1; 1000])).expect("free");
    // The input's length is not known, so the writer is refused when it comes there.
    let mut fails = writer(&lab.cli, "fails", 0, &bytes(1, 8 << 20));
    drop(fails.child().stdin.take());
    assert!(!fails.child().wait().expect("ended").success());
    let refused = runtime.block_on(lives.finish()).expect_err("a half of it is nothing");
    assert_eq!(refused.code, code::NOT_TOGETHER, "{refused}");
    assert!(refused.message.contains("fails"), "{refused}");
    lab.cli.fails(3, &["stat", OUT]);
}

#[test]
fn replaced_shared_writer_leaves_quietly() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let asleep = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let awake = Runtime::new().expect("a runtime");
    let (one, other) = (client(&lab), client(&lab));
    // This writer says nothing while its runtime does not run.
    let mut late = asleep.block_on(join(&one, "r3")).expect("joined");
    asleep.block_on(late.write_at(0, &[9; 1000])).expect("free");
    pause(FREED_WITHIN / 2);
    let mut waits = awake.block_on(join(&other, "waits")).expect("joined");
    awake.block_on(waits.write_at(1000, &[1; 1000])).expect("free");
    let mut replacement = awake.block_on(join(&other, "r3")).expect("the other is silent");
    awake.block_on(replacement.write_at(0, &[3; 1000])).expect("free");
    assert_eq!(awake.block_on(replacement.finish()).expect("stored"), SharedOutcome::Waiting);
    asleep.block_on(late.abort()).expect("it has nothing there");
    assert_eq!(awake.block_on(waits.finish()).expect("stored"), SharedOutcome::Published);
    assert_same(&lab.cli.cat(OUT), &[[3; 1000], [1; 1000]].concat(), "what both wrote");
}

#[test]
fn shared_write_calls_need_the_write_right() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (part, _) = file(lab.dir(), "part", 4, 1 << 20);
    let identity = lab.dir().join("bert-pool");
    let bert = lab.cli.at_home(&lab.dir().join("bert")).under(&identity);
    bert.ok(&["join", &lab.token("user"), "--name", "bert", "--state", arg(&identity)]);
    lab.cli.ok(&["write-shared", "begin", OUT]);
    let commands: [&[&str]; 5] = [
        &["write-shared", "write", arg(&part), OUT],
        &["write-shared", "begin", OUT],
        &["write-shared", "commit", OUT],
        &["write-shared", "abort", OUT],
        &["write-shared", "ls", OUT],
    ];
    for command in commands {
        assert_eq!(bert.fails(3, command).code, "POT-E011", "{command:?}");
    }
    assert!(bert.json(&["write-shared", "ls"])["files"].as_array().is_some_and(Vec::is_empty));
    lab.cli.ok(&["space", "grant", "lab", "bert", "read"]);
    for command in &commands[..4] {
        assert_eq!(bert.fails(8, command).code, "POT-E067", "{command:?}");
    }
    // Calls that no command makes do not help either.
    let (member, writer) = (Member::load(&identity), SharedWriterId([7; 16]));
    let claim = SharedClaim {
        path: out(),
        writer,
        name: "bert".into(),
        ranges: [0..10, 20..30].into(),
        is_first: true,
        is_all: false,
    };
    assert_eq!(member.call(&claim).expect_err("refused").code, code::NO_RIGHT);
    let leave = SharedLeave { path: out(), writer, has_finished: true, waited_ms: 0 };
    assert_eq!(member.call(&leave).expect_err("refused").code, code::NO_RIGHT);
    let turn = SharedTurn { path: out(), writer, over: None };
    assert_eq!(member.call(&turn).expect_err("refused").code, code::NO_RIGHT);
    assert_eq!(states(&lab.cli), Vec::<String>::new());
}

fn share(path: &Path, value: &str) -> Result<(), Errno> {
    setxattr(path, "user.potluck.shared", value.as_bytes(), XattrFlags::empty())
}

/// Sets the size of a file by its path, without opening it.
pub(super) fn truncate(path: &Path, size: i64) -> Result<(), Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no zeros");
    // SAFETY: the path is a string that ends with a zero and outlives the call.
    match unsafe { libc::truncate(path.as_ptr(), size) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("a number")),
    }
}

fn is_shared(path: &Path) -> Result<bool, Errno> {
    let mut value = [0; 10];
    match getxattr(path, "user.potluck.shared", &mut value) {
        Ok(len) => Ok(&value[..len] == b"1"),
        Err(Errno::NODATA) => Ok(false),
        Err(why) => Err(why),
    }
}

/// Closes a file, and returns the number of the error if that fails.
fn close(file: File) -> Option<i32> {
    // SAFETY: the descriptor is this file's alone.
    let closed = unsafe { libc::close(file.into_raw_fd()) };
    (closed != 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap_or_default())
}

fn opened(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opened")
}

#[test]
fn mounts_and_library_share_a_file_until_the_last_close() {
    let test = "two_mounts_and_the_library_write_one_file_at_once";
    let Some((lab, one)) = mounted(test, 2, &["--copies", "2"], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    // In one mount the file is made and stays open, in the other it is found.
    let here = File::create(one.at("out")).expect("made");
    share(&one.at("out"), "1").expect("nothing is written");
    assert!(
        is_shared(&one.at("out")).expect("asked") && is_shared(&other.at("out")).expect("asked")
    );
    let there = opened(&other.at("out"));
    let runtime = Runtime::new().expect("a runtime");
    let library = client(&lab);
    let mut third = runtime.block_on(join(&library, "third")).expect("joined");

    let len = 20 << 20;
    let content = Arc::new(bytes(9, len));
    let ranges = dealt(len as u64, 3, &mut Lots::new("shared through mounts", 1));
    let mut expected = vec![0; ranges.iter().map(|(_, it)| it.end as usize).max().expect("some")];
    for (_, range) in &ranges {
        let range = range.start as usize..range.end as usize;
        expected[range.clone()].copy_from_slice(&content[range]);
    }
    let of = |writer: u64| {
        let own = ranges.iter().filter(|(of, _)| *of == writer);
        own.map(|(_, it)| it.start as usize..it.end as usize).collect::<Vec<_>>()
    };
    let through = |file: File, own: Vec<Range<usize>>| {
        let content = Arc::clone(&content);
        thread::spawn(move || {
            for range in own {
                file.write_all_at(&content[range.clone()], range.start as u64).expect("its own");
            }
            file
        })
    };
    let (in_one, in_other) = (through(here, of(0)), through(there, of(1)));
    runtime.block_on(async {
        for range in of(2) {
            third.write_at(range.start as u64, &content[range]).await.expect("its own");
        }
    });
    let (here, there) = (in_one.join().expect("written"), in_other.join().expect("written"));
    let taken = of(0)[0].start as u64;
    let refused = there.write_all_at(&[1], taken).expect_err("the other mount has it");
    assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
    here.sync_all().expect("donors have it");
    let mut also_here = Command::new("dd");
    let at = format!("seek={taken}");
    also_here.args(["bs=1", "count=1", "conv=notrunc", "if=/dev/zero", &at]);
    let also_here = also_here.arg(format!("of={}", arg(&one.at("out")))).output().expect("ran");
    assert!(String::from_utf8_lossy(&also_here.stderr).contains("busy"), "another process");
    assert_eq!(fs::read(one.at("out")).expect("the version before"), b"");
    drop(here);
    assert_eq!(fs::read(other.at("out")).expect("the version before"), b"");
    assert_eq!(runtime.block_on(third.finish()).expect("stored"), SharedOutcome::Waiting);
    drop(there);
    wait_until("the version to be there", DEADLINE, || !lab.cli.cat(OUT).is_empty());
    assert_same(&lab.cli.cat(OUT), &expected, "what all wrote");
    wait_until("both mounts to see it", DEADLINE, || {
        [&one, &other]
            .iter()
            .all(|it| fs::metadata(it.at("out")).is_ok_and(|it| it.len() == expected.len() as u64))
    });
    assert_same(&fs::read(one.at("out")).expect("read"), &expected, "through a mount");

    // The file stays shared: the next who write some of it leave the rest. Eight programs that open it at the same
    // time in one mount count as one writer.
    let there = opened(&other.at("out"));
    let at_once: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn({
                let path = one.at("out");
                move || opened(&path)
            })
        })
        .collect();
    let mut at_once: Vec<File> = at_once.into_iter().map(|it| it.join().expect("opened")).collect();
    let here = at_once.pop().expect("eight");
    drop(at_once);
    here.write_all_at(b"here", 5).expect("free again");
    there.write_all_at(b"there", 100).expect("free again");
    there.set_len(expected.len() as u64 + 3).expect("larger");
    let cut = there.set_len(1).expect_err("others write it");
    assert_eq!(cut.raw_os_error(), Some(libc::EOPNOTSUPP));
    drop((here, there));
    expected[5..9].copy_from_slice(b"here");
    expected[100..105].copy_from_slice(b"there");
    expected.extend([0; 3]);
    wait_until("the next version to be there", DEADLINE, || {
        lab.cli.cat(OUT).len() == expected.len()
    });
    assert_same(&lab.cli.cat(OUT), &expected, "the next version");
    removexattr(one.at("out"), "user.potluck.shared").expect("it is shared");
    assert!(!is_shared(&other.at("out")).expect("asked"));
    assert_eq!(removexattr(one.at("out"), "user.potluck.shared"), Err(Errno::NODATA));
    assert_eq!(share(&one.at("out"), "yes"), Err(Errno::INVAL));

    // What was written of a file that is removed does not get into another of that name.
    share(&one.at("out"), "1").expect("it is there");
    let (here, there) = (opened(&one.at("out")), opened(&other.at("out")));
    here.write_all_at(b"gone", 0).expect("free");
    drop(here);
    fs::remove_file(one.at("out")).expect("removed");
    fs::write(one.at("out"), "new").expect("written");
    share(&one.at("out"), "1").expect("it is there");
    drop(there);
    let last = opened(&one.at("out"));
    last.write_all_at(b"N", 0).expect("free");
    assert_eq!(close(last), None);
    wait_until("the new file to be changed", DEADLINE, || lab.cli.cat(OUT) == b"New");
}

#[test]
fn impossible_shared_file_size_is_refused_harmlessly() {
    let test = "a_size_that_a_shared_file_cannot_have_is_refused";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let path = mount.at("out");
    fs::write(&path, [b'0'; 1000]).expect("written");
    share(&path, "1").expect("it is there");
    for (size, why) in [(10, libc::EOPNOTSUPP), (1 << 61, libc::EFBIG)] {
        assert_eq!(truncate(&path, size), Err(Errno::from_raw_os_error(why)), "{size}");
        // The kernel tells a moment after close() that nobody has the file open.
        wait_until("nobody to write it", DEADLINE, || states(&lab.cli).is_empty());
        let file = opened(&path);
        file.write_all_at(b"hello", 0).expect("free");
        assert_eq!(close(file), None, "after {size}");
    }
    let cut_off = OpenOptions::new().write(true).truncate(true).open(&path);
    assert_eq!(cut_off.expect_err("refused").raw_os_error(), Some(libc::EOPNOTSUPP));
    // A process that inherited the descriptor still has the file open, and is no writer any more.
    let file = opened(&path);
    let inherited = file.try_clone().expect("another descriptor");
    let mut child = Command::new("sleep").arg("60").stdin(inherited).spawn().expect("started");
    assert_eq!(close(file), None);
    assert_eq!(truncate(&path, 2000), Ok(()), "larger");
    child.kill().expect("killed");
    child.wait().expect("ended");
    wait_until("the larger file", DEADLINE, || lab.cli.cat(OUT).len() == 2000);
    assert_eq!(lab.cli.cat(OUT)[..6], *b"hello0");
    assert_eq!(truncate(&path, 3000), Ok(()), "larger");
    wait_until("the larger file", DEADLINE, || lab.cli.cat(OUT).len() == 3000);
}

#[test]
fn shared_file_in_use_cannot_be_renamed() {
    let test = "a_shared_file_that_is_written_is_not_moved";
    let Some((lab, one)) = mounted(test, 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    fs::create_dir_all(one.at("a/b")).expect("made");
    fs::write(one.at("a/b/out"), "").expect("written");
    share(&one.at("a/b/out"), "1").expect("it is there");
    let file = opened(&one.at("a/b/out"));
    file.write_all_at(b"what was written", 0).expect("free");
    let moves = |from: &str, to: &str| {
        [&one, &other].map(|mount| {
            let moved = fs::rename(mount.at(from), mount.at(to));
            moved.err().and_then(|why| why.raw_os_error())
        })
    };
    for (from, to) in [("a", "c"), ("a/b", "c"), ("a/b/out", "a/out")] {
        assert_eq!(moves(from, to), [Some(libc::EBUSY); 2], "{from}");
    }
    lab.cli.fails(10, &["mv", "pot://lab/a", "pot://lab/c"]);
    assert_eq!(close(file), None);
    fs::rename(one.at("a"), one.at("c")).expect("nobody writes there");
    assert_eq!(lab.cli.cat("pot://lab/c/b/out"), b"what was written");
}

#[test]
fn killed_shared_writer_mount_keeps_the_old_file() {
    let test = "a_mount_that_is_killed_while_it_writes_its_part";
    let Some((lab, mut one)) = mounted(test, 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    fs::write(one.at("out"), "as it was").expect("written");
    share(&one.at("out"), "1").expect("it is there");
    let (here, there) = (opened(&one.at("out")), opened(&other.at("out")));
    let content = bytes(1, 3 << 20);
    here.write_all_at(&content, 0).expect("free");
    there.write_all_at(&content, 3 << 20).expect("free");
    here.sync_all().expect("donors have it");
    one.running.kill_9();
    // The dead mount may be heard for as long as its lease is, and whoever closes waits for that.
    assert_eq!(close(there), Some(libc::EBUSY), "there is no version");
    assert_eq!(lab.cli.cat(OUT), b"as it was");
    wait_until("the other to have finished", DEADLINE, || {
        states(&lab.cli).iter().filter(|it| it.ends_with("finished")).count() == 1
    });
    let silent = states(&lab.cli).into_iter().find(|it| it.ends_with("silent")).expect("the dead");
    let name = silent.split(' ').next().expect("a name");
    assert_eq!(lab.cli.fails(10, &["write-shared", "commit", OUT]).code, "POT-E049");
    lab.cli.ok(&["write-shared", "commit", OUT, "--leave-out", name]);
    let mut expected = b"as it was".to_vec();
    expected.resize(3 << 20, 0);
    expected.extend(&content);
    assert_same(&lab.cli.cat(OUT), &expected, "without the dead");
    let said = lab.cli.json(&["umount", arg(&other.dir)]);
    assert_eq!(said["unpublished"], serde_json::json!([]), "the program was told: {said}");
}
