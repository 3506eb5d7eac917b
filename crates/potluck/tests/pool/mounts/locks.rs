//! Tests locks of programs in mounted pools, which hold between mounts.

use super::attributes::run;
use super::{Mount, has_program, mounted, skip};
use crate::pool::content::{arg, bytes};
use crate::pool::waiting::{DEADLINE, pause, wait_until};
use potluck_wire::control::LOCK_LEASE;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use FlockOperation::{
    LockExclusive, NonBlockingLockExclusive, NonBlockingLockShared, NonBlockingUnlock,
};

/// The time within which the locks of a dead mount end, with room for a machine that does much else.
const FREED_WITHIN: Duration = Duration::from_secs(25);

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(path).expect("opened")
}

#[test]
fn two_mounts_never_have_locks_of_one_file_that_conflict() {
    let Some((lab, one)) = mounted("two_mounts_never_have_locks_that_conflict", 1, &[], &[]) else {
        return;
    };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    fs::write(one.at("f"), "content").expect("written");
    let (here, there) = (open(&one.at("f")), open(&other.at("f")));
    let again = open(&one.at("f"));
    for lock in [flock::<&File>, fcntl_lock::<&File>] {
        lock(&here, NonBlockingLockExclusive).expect("free");
        assert_eq!(lock(&there, NonBlockingLockExclusive), Err(Errno::AGAIN));
        assert_eq!(lock(&there, NonBlockingLockShared), Err(Errno::AGAIN));
        lock(&here, NonBlockingLockShared).expect("its own");
        lock(&there, NonBlockingLockShared).expect("both read");
        assert_eq!(lock(&there, NonBlockingLockExclusive), Err(Errno::AGAIN));
        lock(&here, NonBlockingUnlock).expect("its own");
        lock(&there, NonBlockingLockExclusive).expect("free");
        assert_eq!(lock(&here, NonBlockingLockShared), Err(Errno::AGAIN));
        lock(&there, NonBlockingUnlock).expect("its own");
    }
    flock(&here, NonBlockingLockExclusive).expect("free");
    assert_eq!(flock(&again, NonBlockingLockShared), Err(Errno::AGAIN), "in one mount, too");

    // A program that waits gets the lock when the other closes the file.
    let began = Instant::now();
    let waiting = thread::spawn(move || {
        flock(&there, LockExclusive).expect("given in the end");
        began.elapsed()
    });
    pause(Duration::from_secs(3)); // longer than a call to the manager waits
    assert!(!waiting.is_finished());
    drop((here, again));
    wait_until("the lock to be given on", DEADLINE, || waiting.is_finished());
    assert!(waiting.join().expect("locked") >= Duration::from_secs(3));

    // A program that waits is ended by a signal.
    let held = open(&one.at("f"));
    // The kernel tells a mount of the last close of a file a moment after close() returned.
    wait_until("the lock to be free", DEADLINE, || flock(&held, NonBlockingLockExclusive).is_ok());
    let mut waits = Command::new("flock").arg(other.at("f")).arg("true").spawn().expect("started");
    pause(Duration::from_millis(500));
    waits.kill().expect("killed");
    wait_until("a killed program to end", DEADLINE, || waits.try_wait().expect("ours").is_some());
    let linked = fs::hard_link(one.at("f"), one.at("linked")).expect_err("no second names");
    assert_eq!(linked.raw_os_error(), Some(libc::EOPNOTSUPP));
}

/// Starts a thread that adds one to a number in a file, again and again, each time under a lock.
fn counts(path: &Path, times: u64) -> thread::JoinHandle<()> {
    let file = open(path);
    thread::spawn(move || {
        for _ in 0..times {
            flock(&file, LockExclusive).expect("given in the end");
            let mut number = [0; 8];
            file.read_exact_at(&mut number, 0).expect("read");
            let next = u64::from_le_bytes(number) + 1;
            file.write_all_at(&next.to_le_bytes(), 0).expect("written");
            flock(&file, NonBlockingUnlock).expect("its own");
        }
    })
}

#[test]
fn next_lock_holder_sees_writes_across_mounts() {
    let Some((lab, one)) = mounted("what_is_written_under_a_lock_is_found", 1, &[], &[]) else {
        return;
    };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    fs::write(one.at("n"), [0; 8]).expect("written");
    let workers: Vec<_> =
        [&one, &other, &one, &other].map(|mount| counts(&mount.at("n"), 50)).into();
    for worker in workers {
        worker.join().expect("all numbers were found");
    }
    let number = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    assert_eq!(number(lab.cli.cat("pot://lab/n")), 200);
    for mount in [&one, &other] {
        assert_eq!(number(fs::read(mount.at("n")).expect("read")), 200);
    }
}

#[test]
fn read_lock_holder_sees_writes_of_its_mount() {
    let test = "who_has_a_lock_on_a_file_that_it_only_reads";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let path = mount.at("f");
    fs::write(&path, "one").expect("written");
    let reader = File::open(&path).expect("opened");
    let seen = || {
        let mut seen = [0; 9];
        let len = reader.read_at(&mut seen, 0).expect("read");
        String::from_utf8_lossy(&seen[..len]).into_owned()
    };
    // A shell does this by `(flock 9; echo two >> f) 9< f`.
    flock(&reader, NonBlockingLockExclusive).expect("free");
    let appending = OpenOptions::new().append(true).open(&path).expect("opened");
    appending.write_all_at(b"two", 0).expect("written");
    drop(appending);
    assert_eq!(lab.cli.cat("pot://lab/f"), b"onetwo", "it was closed");
    assert_eq!(seen(), "onetwo");
    flock(&reader, NonBlockingUnlock).expect("its own");

    // The mount has the authority over the locks already, so that it asks nobody.
    let writer = open(&path);
    flock(&writer, NonBlockingLockExclusive).expect("free");
    writer.write_all_at(b"ONE", 0).expect("written");
    flock(&writer, NonBlockingUnlock).expect("its own");
    flock(&reader, NonBlockingLockShared).expect("free");
    assert_eq!(seen(), "ONEtwo", "written under the last lock");
}

#[test]
fn locks_survive_manager_restart_and_expire_with_a_dead_mount() {
    let Some((mut lab, mut one)) = mounted("locks_outlive_a_restart_of_the_manager", 1, &[], &[])
    else {
        return;
    };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let (here, there) = (open(&one.at("f")), open(&other.at("f")));
    flock(&here, NonBlockingLockExclusive).expect("free");
    lab.kill_manager();
    lab.start_manager();
    assert_eq!(flock(&there, NonBlockingLockExclusive), Err(Errno::AGAIN), "just restarted");
    // The pause is longer than a manager that started waits for mounts to say which locks they had.
    pause(Duration::from_secs(12));
    assert_eq!(flock(&there, NonBlockingLockExclusive), Err(Errno::AGAIN), "it was said again");
    one.running.kill_9();
    assert_eq!(flock(&there, NonBlockingLockExclusive), Err(Errno::AGAIN), "it may be alive");
    let took = wait_until("the lease to end", FREED_WITHIN, || {
        flock(&there, NonBlockingLockExclusive).is_ok()
    });
    println!("the lock of a dead mount was free after {took:?}");
    drop(here);
}

#[test]
fn a_close_of_a_locked_file_ends_though_the_manager_stays_away() {
    let test = "a_close_of_a_locked_file_ends_though_the_manager_stays_away";
    let Some((mut lab, mount)) = mounted(test, 1, &[], &["--retry-for", "2s"]) else { return };
    let file = open(&mount.at("f"));
    fcntl_lock(&file, NonBlockingLockExclusive).expect("free");
    file.write_all_at(b"content", 0).expect("written");
    lab.kill_manager();
    pause(LOCK_LEASE); // nobody knows from now on whether the lock is still there
    let closing = thread::spawn(move || {
        // SAFETY: the descriptor is this test's own, and nobody else closes it.
        let closed = unsafe { libc::close(file.into_raw_fd()) };
        (closed != 0).then(|| std::io::Error::last_os_error().raw_os_error()).flatten()
    });
    wait_until("the close to end", DEADLINE, || closing.is_finished());
    assert_eq!(closing.join().expect("no panic"), Some(libc::ETIMEDOUT));
}

#[test]
fn next_lock_holder_sees_publications_longer_than_a_lease() {
    let test = "what_takes_longer_to_publish_than_a_lease_is_found";
    let Some((mut lab, one)) = mounted(test, 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let (before, after) = (bytes(1, 4 << 20), bytes(2, 4 << 20));
    fs::write(one.at("f"), &before).expect("written");
    let (here, there) = (open(&one.at("f")), open(&other.at("f")));
    flock(&here, NonBlockingLockExclusive).expect("free");
    here.write_all_at(&after, 0).expect("written");
    let waiting = thread::spawn(move || {
        flock(&there, LockExclusive).expect("given in the end");
        let mut found = vec![0; 4 << 20];
        there.read_exact_at(&mut found, 0).expect("read");
        found
    });
    pause(Duration::from_secs(1)); // it asks for the lock
    let donors = lab.donor_names();
    donors.iter().for_each(|donor| lab.donor(donor).signal(Signal::STOP));
    flock(&here, NonBlockingUnlock).expect("its own");
    pause(LOCK_LEASE + Duration::from_secs(4));
    assert!(!waiting.is_finished(), "given on before it was published");
    donors.iter().for_each(|donor| lab.donor(donor).signal(Signal::CONT));
    wait_until("the lock to be given on", DEADLINE, || waiting.is_finished());
    assert!(waiting.join().expect("read") == after, "an old version under a lock");
}

#[test]
fn lock_is_released_at_the_last_close() {
    let Some((lab, one)) = mounted("a_lock_of_a_name_ends_for_others", 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let old = open(&one.at("log"));
    flock(&old, NonBlockingLockExclusive).expect("free");
    fs::rename(one.at("log"), one.at("log.1")).expect("renamed");
    let new = open(&one.at("log"));
    flock(&new, NonBlockingLockExclusive).expect("another file");
    drop(old);
    let there = open(&other.at("log"));
    // Meanwhile the other mount asks the manager for the lock, and what nobody needs here is given back.
    for _ in 0..20 {
        assert_eq!(flock(&there, NonBlockingLockExclusive), Err(Errno::AGAIN));
        pause(Duration::from_millis(100));
    }
    drop(new);
    wait_until("the lock to be free", DEADLINE, || flock(&there, NonBlockingLockExclusive).is_ok());
}

/// Starts a script of SQL in a process of its own.
fn sqlite(db: &Path, script: &str) -> Child {
    let mut command = Command::new("sqlite3");
    command.args(["-bail", "-cmd", ".timeout 60000"]).arg(db).arg(script);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
}

fn said(child: Child) -> String {
    let ended = child.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    String::from_utf8(ended.stdout).expect("text").trim().into()
}

#[test]
fn sqlite_works_across_processes_and_mounts() {
    let test = "sqlite_works_across_processes_and_mounts";
    if !has_program("sqlite3") {
        return skip(test, "it takes sqlite3");
    }
    let Some((lab, one)) = mounted(test, 2, &["--copies", "2"], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let db = one.at("db");
    said(sqlite(&db, "CREATE TABLE t (who TEXT, n INTEGER);"));
    let inserts = |who: &str| {
        let insert = |n: u32| format!("INSERT INTO t VALUES ('{who}', {n});");
        (0..20).map(insert).collect::<Vec<_>>().join("\n")
    };
    // A reader reads again and again while others commit.
    let reads = "SELECT count(*) >= 0 FROM t; ".repeat(20);
    let of_one = ["a", "b"].map(|who| sqlite(&db, &inserts(who)));
    let reader = sqlite(&db, &reads);
    let of_other = ["c", "d"].map(|who| sqlite(&other.at("db"), &inserts(who)));
    of_one.into_iter().chain(of_other).for_each(|child| drop(said(child)));
    assert_eq!(said(reader), ["1"; 20].join("\n"));
    for mount in [&one, &other] {
        let all = "PRAGMA integrity_check; SELECT count(*), count(DISTINCT who) FROM t;";
        assert_eq!(said(sqlite(&mount.at("db"), all)), "ok\n80|4");
    }
    // A program that dies in the middle of a transaction leaves a journal, by which it is undone.
    let mut dies = sqlite(
        &db,
        "PRAGMA cache_size = 1; BEGIN; DELETE FROM t WHERE n > 3;
         WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 30000)
         INSERT INTO t SELECT 'dies', n FROM c; SELECT 'written'; SELECT count(*) FROM t a, t b;",
    );
    wait_until("the transaction to be under way", DEADLINE, || one.at("db-journal").exists());
    pause(Duration::from_secs(1));
    dies.kill().expect("killed");
    dies.wait().expect("ended");
    let all = "PRAGMA integrity_check; SELECT count(*) FROM t;";
    assert_eq!(said(sqlite(&other.at("db"), all)), "ok\n80");
    let check = format!("sqlite3 -readonly {} 'SELECT count(*) FROM t'", arg(&db));
    assert_eq!(run(&check, &one.dir).trim(), "80");
    lab.cli.ok(&["umount", arg(&one.dir)]);
    let fetched = lab.dir().join("fetched");
    lab.cli.ok(&["cp", "pot://lab/db", arg(&fetched)]);
    assert_eq!(said(sqlite(&fetched, all)), "ok\n80");
}
