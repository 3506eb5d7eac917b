//! Tests mounts that publish small files after close() has returned (`--close memory`).

use super::{Mount, can_mount, mounted};
use crate::pool::content::{arg, assert_same, bytes};
use crate::pool::lab::{Cli, Lab};
use crate::pool::waiting::{DEADLINE, pause, wait_until};
use rustix::fs::{FlockOperation, XattrFlags, fcntl_lock, flock, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::thread;
use std::time::Duration;

use FlockOperation::{LockExclusive, NonBlockingLockExclusive, NonBlockingUnlock};

const BEHIND: &[&str] = &["--close", "memory"];
/// A size in bytes that goes to donors, and not into the catalog.
const LARGE: usize = 100_000;
/// The time in which what does not wait for a donor is done.
const BEGUN: Duration = Duration::from_millis(500);

/// Returns the numbers by which files in directories of a space are named, in all of these directories together.
fn numbers(cli: &Cli, dirs: &[&str]) -> BTreeSet<u32> {
    let listed = dirs.iter().flat_map(|dir| {
        let listed = cli.json(&["ls", &format!("pot://lab/{dir}")]);
        listed["entries"].as_array().expect("a list").clone()
    });
    let names = listed.map(|entry| entry["path"].as_str().expect("a path").to_owned());
    names.map(|path| path.rsplit('/').next().expect("a name").parse().expect("a number")).collect()
}

fn is_there(cli: &Cli, path: &str) -> bool {
    cli.run(&["stat", path]).code == 0
}

/// Makes a pool of one donor, and mounts it with write-behind.
fn one_donor(test: &str) -> Option<(Lab, Mount)> {
    mounted(test, 1, &["--chunk-size", "64KiB"], BEHIND)
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opened")
}

#[test]
fn write_behind_files_appear_in_close_order() {
    let test = "write_behind_files_appear_in_close_order";
    let policy = &["--copies", "2", "--chunk-size", "64KiB"];
    let Some((lab, mount)) = mounted(test, 2, policy, BEHIND) else { return };
    let (dirs, count) = (["a", "b"], 300);
    dirs.iter().for_each(|dir| fs::create_dir(mount.at(dir)).expect("made"));
    let content =
        |number: u32| bytes(number.into(), [10, LARGE, 4096, 30_000][number as usize % 4]);
    let dir = mount.dir.clone();
    let writing = thread::spawn(move || {
        for number in 0..count {
            let path = dir.join(dirs[number as usize / 7 % 2]).join(number.to_string());
            fs::write(path, content(number)).expect("written");
        }
    });
    let mut seen = BTreeSet::new();
    while seen.len() < count as usize {
        let before = numbers(&lab.cli, &dirs);
        seen = numbers(&lab.cli, &dirs);
        let last = before.last().copied().unwrap_or_default();
        let missing: Vec<u32> = (0..last).filter(|number| !seen.contains(number)).collect();
        assert!(missing.is_empty(), "{last} was there before {missing:?}");
    }
    writing.join().expect("no panic");
    for number in 0..count {
        let path = format!("{}/{number}", dirs[number as usize / 7 % 2]);
        assert_same(&fs::read(mount.at(&path)).expect("read"), &content(number), &path);
    }
    lab.cli.ok(&["umount", arg(&mount.dir)]);
    lab.cli.ok(&["verify", "-r", "--read", "pot://lab"]);
}

/// What others see at once of a program's work they see after all that it closed before.
#[test]
fn write_behind_close_returns_and_dependents_wait() {
    let Some((mut lab, mount)) = one_donor("close_of_a_file_that_is_written_behind_waits") else {
        return;
    };
    // The kernel lets one program at a time change the names of a directory, so each has one of its own.
    let dirs: [PathBuf; 8] = std::array::from_fn(|number| mount.at(&format!("dir-{number}")));
    for dir in &dirs {
        fs::create_dir(dir).expect("made");
        fs::write(dir.join("old"), "old").expect("written");
    }
    let content = bytes(1, LARGE);
    lab.donor("donor-1").signal(Signal::STOP);
    fs::write(mount.at("f"), &content).expect("written");
    fs::write(mount.at("after f"), "needs no donor").expect("written");
    assert_eq!(fs::metadata(mount.at("f")).expect("seen here").len(), LARGE as u64);

    let follow: [fn(&Path) -> io::Result<()>; 8] = [
        |dir| fs::create_dir(dir.join("new")),
        |dir| std::os::unix::fs::symlink("f", dir.join("new")),
        |dir| fs::rename(dir.join("old"), dir.join("new")),
        |dir| File::create(dir.join("new")).map(drop),
        |dir| fs::remove_file(dir.join("old")),
        |dir| fs::set_permissions(dir.join("old"), PermissionsExt::from_mode(0o700)),
        |dir| File::open(dir)?.sync_all(),
        |dir| fs::read(dir.join("../f")).map(drop),
    ];
    let follow: Vec<_> = follow
        .into_iter()
        .zip(dirs)
        .map(|(follow, dir)| thread::spawn(move || follow(&dir)))
        .collect();
    pause(BEGUN);
    let finished: Vec<bool> = follow.iter().map(|follow| follow.is_finished()).collect();
    assert_eq!(finished, [false; 8]);
    let there = |name: &str| is_there(&lab.cli, &format!("pot://lab/{name}"));
    for name in ["f", "after f", "dir-0/new", "dir-1/new", "dir-2/new", "dir-3/new"] {
        assert!(!there(name), "{name} is there");
    }
    assert!(there("dir-2/old") && there("dir-4/old"));
    lab.donor("donor-1").signal(Signal::CONT);
    for follow in follow {
        follow.join().expect("no panic").expect("done");
    }
    for name in ["f", "after f", "dir-0/new", "dir-1/new", "dir-2/new", "dir-3/new"] {
        assert!(is_there(&lab.cli, &format!("pot://lab/{name}")), "{name} is not there");
    }
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the pool's");
}

#[test]
fn lock_handover_publishes_write_behind_files() {
    let Some((mut lab, one)) = one_donor("whoever_has_a_lock_next_finds_what_was_closed") else {
        return;
    };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    for name in ["unlocked", "closed"] {
        fs::write(other.at(name), "old").expect("written");
    }
    // A program gives up a lock for which another waits.
    let (here, there) = (open(&one.at("unlocked")), open(&other.at("unlocked")));
    flock(&here, NonBlockingLockExclusive).expect("free");
    let wanted = other.at("first");
    let waiting = thread::spawn(move || {
        flock(&there, LockExclusive).expect("given in the end");
        fs::read(wanted)
    });
    pause(Duration::from_secs(1)); // the other mount asks for the lock
    lab.donor("donor-1").signal(Signal::STOP);
    fs::write(one.at("first"), bytes(1, LARGE)).expect("written");
    flock(&here, NonBlockingUnlock).expect("its own");
    pause(BEGUN);
    assert!(!waiting.is_finished(), "the lock was given on");
    lab.donor("donor-1").signal(Signal::CONT);
    let found = waiting.join().expect("no panic").expect("it is there");
    assert_same(&found, &bytes(1, LARGE), "the other mount's");

    // A program closes the file, and nobody has asked for its lock yet.
    let (here, there) = (open(&one.at("closed")), open(&other.at("closed")));
    fcntl_lock(&here, NonBlockingLockExclusive).expect("free");
    lab.donor("donor-1").signal(Signal::STOP);
    fs::write(one.at("second"), bytes(2, LARGE)).expect("written");
    drop(here);
    pause(BEGUN);
    assert_eq!(fcntl_lock(&there, NonBlockingLockExclusive), Err(Errno::AGAIN));
    lab.donor("donor-1").signal(Signal::CONT);
    wait_until("the lock to be free", DEADLINE, || {
        fcntl_lock(&there, NonBlockingLockExclusive).is_ok()
    });
    let found = fs::read(other.at("second")).expect("it is there");
    assert_same(&found, &bytes(2, LARGE), "the other mount's");
}

/// All of it is in the catalog, and waits for no donor but for the file that was closed before.
#[test]
fn fsync_and_publications_follow_earlier_write_behind_closes() {
    const SHARED: &str = "user.potluck.shared";
    let Some((mut lab, one)) = one_donor("fsync_under_a_lock_and_the_end_of_sharing") else {
        return;
    };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    for name in ["locked", "shared", "mapped"] {
        fs::write(other.at(name), "old").expect("written");
    }
    let locked = open(&one.at("locked"));
    flock(&locked, NonBlockingLockExclusive).expect("free");
    setxattr(one.at("shared"), SHARED, b"1", XattrFlags::empty()).expect("set");
    let mapped = open(&one.at("mapped"));
    let (access, len) = (ProtFlags::READ | ProtFlags::WRITE, 4096);
    // SAFETY: it is a new mapping, at an address that the kernel chooses.
    let page = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &mapped, 0) };
    let page = page.expect("mapped");
    // SAFETY: the first bytes of the page are those of the file, which keeps its size.
    assert_eq!(unsafe { page.cast::<u8>().read_volatile() }, b'o');
    drop(mapped);

    lab.donor("donor-1").signal(Signal::STOP);
    fs::write(one.at("f"), bytes(1, LARGE)).expect("written");
    // SAFETY: the page is this test's own, and nothing refers to it any more.
    let unmapped = unsafe {
        page.cast::<u8>().write_volatile(b'n');
        munmap(page, len)
    };
    unmapped.expect("it was mapped");
    locked.set_permissions(PermissionsExt::from_mode(0o700)).expect("set");
    let shared = one.at("shared");
    let following = [
        thread::spawn(move || locked.sync_all().expect("synced")),
        thread::spawn(move || removexattr(shared, SHARED).expect("it is shared")),
    ];
    pause(BEGUN);
    let finished = following.each_ref().map(thread::JoinHandle::is_finished);
    assert_eq!(finished, [false; 2], "fsync, removexattr");
    let seen = || {
        let mode = fs::metadata(other.at("locked")).expect("there").permissions().mode();
        let is_shared = getxattr(other.at("shared"), SHARED, &mut [0_u8; 8]).is_ok();
        let content = fs::read(other.at("mapped")).expect("read");
        [other.at("f").exists(), mode & 0o777 == 0o700, !is_shared, content == b"nld"]
    };
    assert_eq!(seen(), [false; 4], "the file, fsync, removexattr, the mapping");
    lab.donor("donor-1").signal(Signal::CONT);
    following.into_iter().for_each(|following| following.join().expect("no panic"));
    wait_until("the other mount to see all of it", DEADLINE, || seen() == [true; 4]);
}

/// A file that its session cannot publish in its turn is published alone, after those that were closed before.
#[test]
fn rename_keeps_write_behind_order() {
    let Some((mut lab, mount)) = one_donor("a_file_that_was_renamed_while_it_was_written_comes")
    else {
        return;
    };
    let dirs = ["a", "b", "c"];
    dirs.iter().for_each(|dir| fs::create_dir(mount.at(dir)).expect("made"));
    let mut moved = File::create(mount.at("b/f")).expect("made");
    moved.write_all(b"moved").expect("written");
    fs::rename(mount.at("b/f"), mount.at("c/f")).expect("renamed");
    let mut longer = File::create(mount.at("a/longer")).expect("made");
    longer.write_all(b"longer").and_then(|()| longer.set_len(300_000)).expect("written");
    lab.donor("donor-1").signal(Signal::STOP);
    fs::write(mount.at("a/f"), bytes(1, LARGE)).expect("written");
    let closing = [moved, longer].map(|file| thread::spawn(move || drop(file)));
    pause(BEGUN);
    assert!(closing.iter().all(|closing| !closing.is_finished()));
    assert!(!is_there(&lab.cli, "pot://lab/c/f") && !is_there(&lab.cli, "pot://lab/a/f"));
    lab.donor("donor-1").signal(Signal::CONT);
    closing.into_iter().for_each(|closing| closing.join().expect("no panic"));
    assert_eq!(lab.cli.cat("pot://lab/c/f"), b"moved");
    assert_same(&lab.cli.cat("pot://lab/a/f"), &bytes(1, LARGE), "the pool's");
}

/// Otherwise the commit would not know of a file that could not be stored.
#[test]
fn no_file_of_a_checkpoint_is_written_behind() {
    let Some((mut lab, mount)) = one_donor("no_file_of_a_checkpoint_is_written_behind") else {
        return;
    };
    fs::create_dir(mount.at("step")).expect("made");
    lab.cli.ok(&["ckpt", "begin", arg(&mount.at("step"))]);
    fs::write(mount.at("step/first"), "first").expect("written");
    lab.donor("donor-1").signal(Signal::STOP);
    let file = mount.at("step/f");
    let writing = thread::spawn(move || fs::write(file, bytes(1, LARGE)));
    pause(BEGUN);
    assert!(!writing.is_finished());
    lab.donor("donor-1").signal(Signal::CONT);
    writing.join().expect("no panic").expect("written");
    lab.cli.ok(&["ckpt", "commit", arg(&mount.at("step"))]);
    assert_same(&lab.cli.cat("pot://lab/step/f"), &bytes(1, LARGE), "the pool's");
}

/// A file that is synced is published at once, and what is written to it after that at its close, which waits.
#[test]
fn close_of_a_file_that_was_synced_waits_until_others_see_it() {
    let Some((mut lab, mount)) = one_donor("close_of_a_file_that_was_synced_waits") else { return };
    for number in 0..3 {
        let seen = |lab: &Lab| lab.cli.cat(&format!("pot://lab/{number}"));
        let mut synced = File::create(mount.at(&number.to_string())).expect("made");
        synced.write_all(b"synced").and_then(|()| synced.sync_all()).expect("written");
        assert_eq!(seen(&lab), b"synced");
        synced.write_all(b" and more").expect("written");
        lab.manager().signal(Signal::STOP);
        let closing = thread::spawn(move || drop(synced));
        pause(Duration::from_millis(50));
        assert!(!closing.is_finished());
        lab.manager().signal(Signal::CONT);
        closing.join().expect("no panic");
        assert_eq!(seen(&lab), b"synced and more");
    }
}

#[test]
fn remount_names_unpublished_write_behind_files() {
    let Some((mut lab, mut mount)) = one_donor("what_was_written_behind_when_a_mount_was_killed")
    else {
        return;
    };
    fs::write(mount.at("before"), "before").expect("written");
    File::open(&mount.dir).and_then(|dir| dir.sync_all()).expect("synced");
    lab.donor("donor-1").signal(Signal::STOP);
    fs::write(mount.at("f"), bytes(1, LARGE)).expect("written");
    mount.running.kill_9();
    lab.donor("donor-1").signal(Signal::CONT);
    let next = Mount::start(&lab, "pot://lab", BEHIND);
    let said = lab.cli.said_by_the_last();
    assert!(said.contains("pot://lab/f") && !said.contains("pot://lab/before"), "{said}");
    assert_eq!(lab.cli.cat("pot://lab/before"), b"before");
    lab.cli.ok(&["umount", arg(&next.dir)]);
}

/// Nobody waits for the answer any more when another client makes a directory where a new file was to be.
#[test]
fn failed_write_behind_is_reported_by_dir_fsync_and_umount() {
    let Some((mut lab, mount)) = one_donor("a_file_that_is_written_behind_in_vain_is_told") else {
        return;
    };
    ["d", "beside"].iter().for_each(|dir| fs::create_dir(mount.at(dir)).expect("made"));
    let open = |dir: &str| File::open(mount.at(dir)).expect("opened");
    let before = open("d");
    lab.donor("donor-1").signal(Signal::STOP);
    let new = OpenOptions::new().write(true).create_new(true).open(mount.at("d/f"));
    new.expect("made").write_all(&bytes(1, LARGE)).expect("written");
    lab.cli.ok(&["mkdir", "pot://lab/d/f"]);
    lab.donor("donor-1").signal(Signal::CONT);
    for dir in ["", "beside"] {
        open(dir).sync_all().expect("the file is in another directory");
    }
    for dir in [open("d"), before] {
        let told = dir.sync_all().expect_err("a directory has the name");
        assert_eq!(told.raw_os_error(), Some(libc::ENOTDIR));
        dir.sync_all().expect("it is told once");
    }
    open("d").sync_all().expect("it was told");
    assert_eq!(lab.cli.ok(&["ls", "pot://lab/d/f"]).text(), "", "an empty directory");
    let said = lab.cli.run(&["--json", "umount", arg(&mount.dir)]).exits(4).json();
    assert_eq!(said["unpublished"][0]["path"], "pot://lab/d/f", "{said}");
    assert_eq!(said["unpublished"][0]["state"], "failed", "{said}");
}

#[test]
fn last_close_option_wins() {
    let test = "last_close_option_wins";
    if !can_mount(test) {
        return;
    }
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let config = lab.dir().join("home/config/potluck");
    fs::create_dir_all(&config).expect("made");
    let asked: [(&str, &[&str]); 3] =
        [("memory", &[]), ("memory", &["--close", "memory", "--close", "pool"]), ("pool", BEHIND)];
    let mounts = asked.map(|(configured, options)| {
        let text = format!("close = \"{configured}\"\n");
        fs::write(config.join("config.toml"), text).expect("written");
        let name = format!("{configured}-{}", options.len());
        Mount::start_in(&lab, &name, "pot://lab", options)
    });
    lab.donor("donor-1").signal(Signal::STOP);
    let closing = mounts.each_ref().map(|mount| {
        let file = mount.dir.join(mount.dir.file_name().expect("a name"));
        thread::spawn(move || fs::write(file, bytes(1, LARGE)))
    });
    pause(BEGUN);
    let returned = closing.each_ref().map(thread::JoinHandle::is_finished);
    assert_eq!(returned, [true, false, true], "whether close() has returned");
    lab.donor("donor-1").signal(Signal::CONT);
    for closing in closing {
        closing.join().expect("no panic").expect("written");
    }
    for mount in &mounts {
        lab.cli.ok(&["umount", arg(&mount.dir)]);
    }
}

#[test]
fn umount_publishes_what_was_written_behind() {
    let test = "umount_publishes_what_was_written_behind";
    if !can_mount(test) {
        return;
    }
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    // Of the files that were closed, a mount has so many in memory that are not published; further close() calls wait.
    let mount = Mount::start(&lab, "pot://lab", BEHIND);
    let (dir, count) = (mount.dir.clone(), 500);
    lab.donor("donor-1").signal(Signal::STOP);
    let writing = thread::spawn(move || {
        for number in 0..count {
            fs::write(dir.join(number.to_string()), bytes(number, 5000)).expect("written");
        }
    });
    pause(BEGUN);
    assert!(!writing.is_finished(), "all are in memory");
    lab.donor("donor-1").signal(Signal::CONT);
    writing.join().expect("no panic");
    lab.cli.ok(&["umount", arg(&mount.dir)]);
    wait_until("the files", DEADLINE, || numbers(&lab.cli, &[""]).len() == count as usize);
    lab.cli.ok(&["verify", "-r", "--read", "pot://lab"]);
}
