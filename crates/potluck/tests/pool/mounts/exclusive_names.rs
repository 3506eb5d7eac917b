//! Tests that of all programs in a pool one makes a file with `O_EXCL`, and that the others hear so at open().

use super::{Mount, mounted};
use crate::pool::waiting::{DEADLINE, pause, wait_until};
use potluck_wire::control::LOCK_LEASE;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// The time within which the names of a dead mount are free, with room for a machine that does much else.
const FREED_WITHIN: Duration = Duration::from_secs(25);

fn make(path: PathBuf) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[track_caller]
fn assert_taken(path: PathBuf) {
    assert_eq!(make(path).expect_err("taken").kind(), ErrorKind::AlreadyExists);
}

/// Adds one to a number in a file, each time while it has a lock file, as the lock files of editors and of Python do.
fn counts(lock: PathBuf, number: PathBuf, times: u64) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for _ in 0..times {
            let mut made = None;
            wait_until("the lock file", DEADLINE, || {
                made = make(lock.clone()).ok();
                made.is_some()
            });
            let read = fs::read_to_string(&number).expect("read");
            let next = read.parse::<u64>().expect("a number") + 1;
            fs::write(&number, next.to_string()).expect("written");
            drop(made);
            fs::remove_file(&lock).expect("its own");
        }
    })
}

#[test]
fn o_excl_creates_exactly_once_across_mounts() {
    let Some((lab, one)) = mounted("one_makes_a_file_with_o_excl", 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    for round in 0..25 {
        let name = format!("lock.{round}");
        let tries = [&one, &other, &one, &other].map(|mount| {
            let mut shell = Command::new("bash");
            shell.args(["-c", "set -C; echo $$ > \"$0\""]).arg(mount.at(&name));
            shell.stderr(Stdio::null()).spawn().expect("started")
        });
        let pids = tries.each_ref().map(|child| child.id());
        let ended = tries.map(|mut child| child.wait().expect("ended").success());
        let won: Vec<u32> =
            pids.into_iter().zip(ended).filter(|(_, won)| *won).map(|(pid, _)| pid).collect();
        let [won] = won[..] else { panic!("round {round} has {} winners", won.len()) };
        assert_eq!(lab.cli.cat(&format!("pot://lab/{name}")), format!("{won}\n").as_bytes());
    }

    fs::write(one.at("number"), "0").expect("written");
    let workers = [&one, &other, &one, &other]
        .map(|mount| counts(mount.at("number.lock"), mount.at("number"), 6));
    workers.into_iter().for_each(|worker| worker.join().expect("nobody had the lock beside it"));
    assert_eq!(lab.cli.cat("pot://lab/number"), b"24");
}

/// Closes a file; returns the number of the error.
fn close(file: File) -> Option<i32> {
    // SAFETY: the descriptor is this test's own, and nobody else closes it.
    let closed = unsafe { libc::close(file.into_raw_fd()) };
    (closed != 0).then(|| io::Error::last_os_error().raw_os_error())?
}

/// A way in which a program puts something at a path without `O_EXCL`.
type Put<'a> = &'a dyn Fn(PathBuf) -> io::Result<()>;

/// `O_EXCL` is decided at open(); what others do with the name without it is between them and the last close.
#[test]
fn o_excl_file_replaces_later_files_at_close() {
    let Some((lab, one)) = mounted("a_file_made_with_o_excl_takes_the_place", 1, &[], &[]) else {
        return;
    };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let made = |name: &str| {
        let mut file = make(one.at(name)).expect("free");
        file.write_all(b"mine").expect("written");
        file
    };
    let others: [(&str, Put); 3] = [
        ("written", &|path| fs::write(path, "another's")),
        ("touched", &|path| OpenOptions::new().append(true).create(true).open(path).map(drop)),
        ("renamed", &|path| {
            fs::write(other.at("source"), "another's")?;
            fs::rename(other.at("source"), path)
        }),
    ];
    for (name, put) in others {
        let file = made(name);
        put(other.at(name)).expect("the name is not taken from who does not ask");
        let path = format!("pot://lab/{name}");
        // Of what was not written to, nothing is published before the kernel has let go of it.
        let there = || lab.cli.run(&["cat", &path]).code == 0;
        wait_until("what the other put there to be published", DEADLINE, there);
        assert_ne!(lab.cli.cat(&path), b"mine");
        assert_eq!(close(file), None, "{name}");
        assert_eq!(lab.cli.cat(&path), b"mine");
        assert_taken(other.at(name));
    }

    // A file takes no directory's place, nor a link's.
    let (dir, link) = (made("dir"), made("link"));
    fs::create_dir(other.at("dir")).expect("made");
    std::os::unix::fs::symlink("target", other.at("link")).expect("made");
    assert_eq!([close(dir), close(link)], [Some(libc::ENOTDIR); 2]);
    assert!(fs::metadata(other.at("dir")).expect("there").is_dir());
    assert_eq!(fs::read_link(other.at("link")).expect("there"), PathBuf::from("target"));
}

#[test]
fn o_excl_name_is_released_on_rename_unlink_or_mount_death() {
    let Some((mut lab, mut one)) = mounted("a_name_made_with_o_excl_is_free", 1, &[], &[]) else {
        return;
    };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let mut held = make(one.at("held")).expect("free");
    assert_taken(other.at("held"));
    assert_taken(one.at("held"));

    let renamed = make(one.at("renamed")).expect("free");
    fs::rename(one.at("renamed"), one.at("elsewhere")).expect("its own");
    make(other.at("renamed")).expect("free as soon as it is renamed");
    drop(renamed);
    let removed = make(one.at("removed")).expect("free");
    fs::remove_file(one.at("removed")).expect("its own");
    make(other.at("removed")).expect("free as soon as it is removed");
    drop(removed);

    lab.kill_manager();
    lab.start_manager();
    // A manager that was just started lets those wait that it cannot answer yet.
    assert_taken(other.at("held"));
    make(other.at("new")).expect("free, after a while");
    held.write_all(b"content").expect("written");
    drop(held);
    assert_eq!(lab.cli.cat("pot://lab/held"), b"content");

    let _lost = make(one.at("lost")).expect("free");
    one.running.kill_9();
    assert_taken(other.at("lost")); // the mount may be alive
    wait_until("the lease to end", FREED_WITHIN, || make(other.at("lost")).is_ok());

    // A mount that was not heard for too long asks again before it publishes.
    let cut_off = Mount::start_in(&lab, "cut-off", "pot://lab", &[]);
    let [mut mine, mut others] =
        ["mine", "others"].map(|name| make(cut_off.at(name)).expect("free"));
    cut_off.running.signal(rustix::process::Signal::STOP);
    wait_until("the lease to end", FREED_WITHIN, || make(other.at("others")).is_ok());
    cut_off.running.signal(rustix::process::Signal::CONT);
    pause(LOCK_LEASE / 4);
    for file in [&mut mine, &mut others] {
        file.write_all(b"late").expect("written");
    }
    drop((mine, others));
    assert_eq!(lab.cli.cat("pot://lab/mine"), b"late");
    assert_eq!(lab.cli.cat("pot://lab/others"), b"");
}
