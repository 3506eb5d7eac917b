//! Tests names that change while programs look at them, and what becomes of a mount that is killed meanwhile.

use super::attributes::run;
use super::{Mount, mounted};
use crate::pool::content::arg;
use crate::pool::program::Running;
use crate::pool::shared_files::truncate;
use crate::pool::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Starts a script in a process of its own, which may hang where a thread of the test must not.
fn program(script: &str, dir: &Path) -> Running {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(dir).stderr(Stdio::null());
    Running::start(&mut command)
}

/// Starts a thread that makes, renames and removes files of a directory until it is told to stop.
fn changes(mount: &Mount, prefix: &str, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (dir, prefix, stop) = (mount.at("d"), prefix.to_owned(), Arc::clone(stop));
    thread::spawn(move || {
        for round in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let (made, moved) = (format!("{prefix}{}", round % 20), format!("{prefix}moved"));
            fs::write(dir.join(&made), "x").expect("written");
            fs::rename(dir.join(&made), dir.join(&moved)).expect("renamed");
            fs::remove_file(dir.join(&moved)).expect("removed");
        }
    })
}

#[test]
fn killed_mount_remounts_amid_name_changes() {
    let test = "killed_mount_remounts_amid_name_changes";
    let Some((lab, other)) = mounted(test, 1, &[], &[]) else { return };
    fs::create_dir(other.at("d")).expect("made");
    for round in 0..4 {
        let mut mount = Mount::start_in(&lab, "killed", "pot://lab", &[]);
        let stop = Arc::default();
        let theirs = ["a", "b", "c"].map(|prefix| changes(&other, prefix, &stop));
        let ours = ["e", "f", "g"].map(|prefix| {
            let names = format!("d/{prefix}$n");
            let script =
                format!("n=0; while : > {names} && mv {names} {names}m; do n=$((n + 1)); done");
            program(&script, &mount.dir)
        });
        pause(Duration::from_secs(2));
        mount.running.signal(Signal::KILL);
        for mut program in ours {
            program.end(&format!("the programs of round {round}"));
        }
        mount.running.end("the mount");
        stop.store(true, Ordering::Relaxed);
        theirs.into_iter().for_each(|thread| thread.join().expect("the other mount goes on"));
        let dead = fs::read_dir(&mount.dir).expect_err("nobody serves");
        assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
        let next = Mount::start_in(&lab, "killed", "pot://lab", &[]);
        fs::write(next.at("d/after"), "x").expect("served again");
    }
}

#[test]
fn rewinddir_shows_current_entries() {
    let test = "a_program_that_reads_a_directory_from_the_beginning_again";
    let Some((_lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    fs::create_dir(mount.at("d")).expect("made");
    fs::write(mount.at("d/first"), "x").expect("written");
    let opened = fs::File::open(mount.at("d")).expect("opened");
    let mut dir = rustix::fs::Dir::new(opened).expect("a directory");
    let mut names = || {
        dir.rewind();
        let read = std::iter::from_fn(|| dir.read()).map(|entry| entry.expect("read"));
        let names = read.map(|entry| entry.file_name().to_str().expect("a name").to_owned());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["first"]);
    fs::write(mount.at("d/second"), "x").expect("written");
    assert_eq!(names(), ["first", "second"]);
    fs::remove_file(mount.at("d/first")).expect("removed");
    assert_eq!(names(), ["second"]);
}

#[test]
fn removed_names_do_not_reappear_in_a_listing() {
    let test = "names_that_were_removed_do_not_come_back_while_a_program_lists";
    let Some((_lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    fs::create_dir(mount.at("d")).expect("made");
    for number in 0..300 {
        fs::write(mount.at(&format!("d/f{number}")), "x").expect("written");
    }
    // The listing shows names that were read before they were removed, and a lookup must not find them.
    let mut listing = fs::read_dir(mount.at("d")).expect("opened");
    listing.next().expect("an entry").expect("read");
    let removed: Vec<_> = (0..300).map(|number| mount.at(&format!("d/f{number}"))).collect();
    removed.iter().for_each(|path| fs::remove_file(path).expect("removed"));
    let listed = listing.filter(|entry| entry.is_ok()).count();
    assert!(listed > 200, "{listed} names are listed as they were");
    for path in &removed {
        let looked = fs::symlink_metadata(path).expect_err("removed");
        assert_eq!(looked.kind(), ErrorKind::NotFound);
    }
    // A lock file comes and goes while others look.
    let lister = program("while :; do ls -l d > /dev/null; done", &mount.dir);
    let (began, lock) = (Instant::now(), mount.at("d/lock"));
    while began.elapsed() < Duration::from_secs(4) {
        let make = |options: &mut OpenOptions| drop(options.write(true).open(&lock).expect("made"));
        make(OpenOptions::new().create_new(true));
        fs::remove_file(&lock).expect("removed");
        make(OpenOptions::new().create(true));
        fs::remove_file(&lock).expect("removed");
    }
    drop(lister);
}

#[test]
fn a_file_that_another_mount_removed_a_moment_ago_is_made_anew() {
    let test = "a_file_that_another_mount_removed_a_moment_ago_is_made_anew";
    let Some((lab, one)) = mounted(test, 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    for round in 0..20 {
        let (here, there) = (one.at("f"), other.at("f"));
        fs::write(&here, "old").expect("written");
        wait_until("it to be seen", DEADLINE, || there.exists());
        fs::remove_file(&here).expect("removed");
        if round % 2 == 0 {
            pause(Duration::from_millis(50)); // the other mount has heard of it
        }
        // In rare races the kernel meets the old file twice, and asks no third time.
        let made = fs::write(&there, "new").or_else(|why| match why.raw_os_error() {
            Some(libc::ESTALE) => fs::write(&there, "new"),
            _ => Err(why),
        });
        made.expect("made anew");
        wait_until("it to be seen", DEADLINE, || here.exists());
    }
    // The name may lead to an entry of another kind by then.
    fs::remove_file(one.at("f")).expect("removed");
    fs::create_dir(one.at("f")).expect("made");
    wait_until("a directory", DEADLINE, || {
        fs::metadata(other.at("f")).map(|about| about.is_dir()).expect("there, or another")
    });
    run("test ! -e f/x; echo x > f/x; cat f/x", &other.dir);
}

/// A call by a path, and its name.
type CallByPath<'a> = (&'a str, &'a (dyn Fn() -> io::Result<()> + Sync));

#[test]
fn path_calls_survive_concurrent_replacement() {
    let test = "calls_by_a_path_at_which_there_is_always_a_file_do_not_fail";
    let Some((lab, one)) = mounted(test, 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let (here, there) = (one.at("f"), other.at("f"));
    fs::write(&here, "first").expect("written");
    wait_until("it to be seen", DEADLINE, || there.exists());
    let calls: [CallByPath<'_>; 6] = [
        ("open() here", &|| fs::read(&here).map(drop)),
        ("open() with O_TRUNC here", &|| fs::write(&here, "cut off")),
        ("stat() here", &|| fs::metadata(&here).map(drop)),
        ("open() there", &|| fs::read(&there).map(drop)),
        ("truncate() there", &|| truncate(&there, 1).map_err(io::Error::from)),
        ("chmod() there", &|| fs::set_permissions(&there, fs::Permissions::from_mode(0o640))),
    ];
    let is_over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let replacing = [(&one, "of-one"), (&other, "of-other")].map(|(mount, name)| {
            scope.spawn(move || {
                for round in 0..100 {
                    fs::write(mount.at(name), round.to_string()).expect("written");
                    fs::rename(mount.at(name), mount.at("f")).expect("replaced");
                }
            })
        });
        for (what, call) in calls {
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    call().unwrap_or_else(|why| panic!("{what}: {why}"));
                }
            });
        }
        let ended = replacing.map(|thread| thread.join());
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("no panic"));
    });
}

#[test]
fn published_open_file_reopens_with_changes_of_others() {
    let test = "published_open_file_reopens_with_changes_of_others";
    let Some((lab, one)) = mounted(test, 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let cat = |name: &str| lab.cli.cat(&format!("pot://lab/{name}"));
    // Returns a descriptor by which nothing was read or written since another one of it was closed.
    let publish = |name: &str, content: &str| {
        let mut file = fs::File::create(other.at(name)).expect("opened, or made");
        file.write_all(content.as_bytes()).expect("written");
        drop(file.try_clone().expect("a second descriptor"));
        assert_eq!(cat(name), content.as_bytes(), "published by that close");
        file
    };
    let replace = |name: &str| fs::write(one.at(name), "replaced").expect("written");
    let remove = |name: &str| {
        wait_until("it to be seen", DEADLINE, || one.at(name).exists());
        fs::remove_file(one.at(name)).expect("removed");
    };
    let (mut reading, mut changing) = (OpenOptions::new(), OpenOptions::new());
    reading.read(true);
    changing.read(true).write(true);

    let mut open_still = Vec::new();
    for name in ["written", "changed", "shortened"] {
        open_still.push(publish(name, "first"));
        replace(name);
    }
    open_still.push(publish("written", "again"));
    let changed = changing.open(other.at("changed")).expect("opened");
    assert_eq!(io::read_to_string(changed).expect("read"), "replaced");
    truncate(&other.at("shortened"), 3).expect("cut off");

    for (name, options) in [("unread", &reading), ("unchanged", &changing)] {
        open_still.push(publish(name, "first"));
        remove(name);
        let why = options.open(other.at(name)).expect_err("removed");
        assert_eq!(why.kind(), ErrorKind::NotFound, "{name}: {why}");
    }
    let mut before = publish("made", "first");
    remove("made");
    open_still.push(publish("made", "anew"));
    let why = before.write_all(b"late").expect_err("another file has the name");
    assert_eq!(why.raw_os_error(), Some(libc::ESTALE));

    // A file is cut off as others left it also if it was empty when it was opened.
    fs::write(one.at("empty"), "").expect("made");
    wait_until("it to be seen", DEADLINE, || other.at("empty").exists());
    let open_empty = changing.open(other.at("empty")).expect("opened");
    replace("empty");
    drop(fs::File::create(other.at("empty")).expect("opened"));
    drop((open_still, before, open_empty));
    wait_until("it to be cut off", DEADLINE, || cat("empty").is_empty());

    lab.cli.ok(&["umount", arg(&other.dir)]);
    for (name, content) in
        [("written", "again"), ("changed", "replaced"), ("shortened", "rep"), ("made", "anew")]
    {
        assert_eq!(cat(name), content.as_bytes(), "{name}");
    }
}

#[test]
fn special_files_are_eopnotsupp() {
    let test = "special_files_are_eopnotsupp";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let make = |name: &str, kind| mknodat(CWD, mount.at(name), kind, Mode::from(0o640), 0);
    for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice] {
        assert_eq!(make("special", kind), Err(rustix::io::Errno::OPNOTSUPP), "{kind:?}");
    }
    make("empty", FileType::RegularFile).expect("made");
    assert_eq!(make("empty", FileType::RegularFile), Err(rustix::io::Errno::EXIST));
    assert_eq!(lab.cli.json(&["stat", "pot://lab/empty"])["entry"]["size"], 0);
    assert_eq!(lab.cli.json(&["stat", "pot://lab/empty"])["entry"]["permissions"], "640");
    fs::write(mount.at("empty"), "no more").expect("written");
    assert_eq!(lab.cli.cat("pot://lab/empty"), b"no more");
}
