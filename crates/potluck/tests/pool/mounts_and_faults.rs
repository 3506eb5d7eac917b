//! Tests what programs see of a mounted pool while its manager, its donors and the mount itself die.

use super::content::{arg, assert_same, bytes};
use super::mounts::{Mount, mounted};
use super::program::Running;
use super::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const SIZE: usize = 24 << 20;
/// The bytes that a program writes or reads at a time.
const PIECE: usize = 64 << 10;

/// A program that works through a file from its beginning to its end, a piece at a time.
struct Worker<T> {
    done: Arc<AtomicUsize>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Worker<T> {
    fn start(work: impl FnOnce(&AtomicUsize) -> T + Send + 'static) -> Self {
        let done = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&done);
        Self { done, thread: thread::spawn(move || work(&counted)) }
    }

    fn wait_for(&self, bytes: usize) {
        wait_until("the program to come so far", DEADLINE, || {
            assert!(!self.thread.is_finished(), "it should be in the middle");
            self.done.load(Ordering::Relaxed) >= bytes
        });
    }

    fn end(self) -> T {
        wait_until("the program to end", 3 * DEADLINE, || self.thread.is_finished());
        self.thread.join().expect("the program met no error")
    }
}

/// Counts what was done, and slows the program down so that what is to happen in the middle does so.
fn go_on(done: &AtomicUsize, bytes: usize) {
    done.fetch_add(bytes, Ordering::Relaxed);
    pause(Duration::from_millis(5));
}

fn writes(path: &Path, content: &[u8]) -> Worker<()> {
    let (path, content) = (path.to_owned(), content.to_owned());
    Worker::start(move |done| {
        let mut file = File::create(path).expect("made");
        for piece in content.chunks(PIECE) {
            file.write_all(piece).expect("written");
            go_on(done, piece.len());
        }
        file.sync_all().expect("synced");
    })
}

fn reads(path: &Path) -> Worker<Vec<u8>> {
    let path = path.to_owned();
    Worker::start(move |done| {
        let mut file = File::open(path).expect("opened");
        let mut content = Vec::new();
        let mut piece = vec![0; PIECE];
        loop {
            let read = file.read(&mut piece).expect("read");
            if read == 0 {
                return content;
            }
            content.extend_from_slice(&piece[..read]);
            go_on(done, read);
        }
    })
}

/// Starts a program that looks at names and changes them, again and again, until it is told to stop.
fn looks(dir: &Path, stop: &Arc<AtomicUsize>) -> Worker<usize> {
    let (dir, stop) = (dir.to_owned(), Arc::clone(stop));
    Worker::start(move |done| {
        let mut round = 0;
        while stop.load(Ordering::Relaxed) == 0 {
            let (made, moved) = (dir.join(format!("made-{round}")), dir.join("moved"));
            fs::create_dir(&made).expect("made");
            fs::rename(&made, &moved).expect("moved");
            fs::write(moved.join("small"), format!("{round}")).expect("written");
            assert!(fs::metadata(&moved).expect("looked at").is_dir());
            assert_eq!(fs::read_dir(&moved).expect("listed").count(), 1);
            assert_eq!(fs::read(moved.join("small")).expect("read"), round.to_string().as_bytes());
            fs::remove_file(moved.join("small")).expect("removed");
            fs::remove_dir(&moved).expect("removed");
            round += 1;
            done.fetch_add(1, Ordering::Relaxed);
        }
        round
    })
}

#[test]
fn mount_survives_a_manager_restart() {
    let Some((mut lab, mount)) = mounted(
        "programs_do_not_notice_that_the_manager_is_killed",
        2,
        &["--copies", "2", "--chunk-size", "256KiB"],
        &[],
    ) else {
        return;
    };
    let (old, new) = (bytes(1, SIZE), bytes(2, SIZE));
    fs::write(mount.at("old"), &old).expect("written");
    fs::create_dir(mount.at("names")).expect("made");

    let stop = Arc::<AtomicUsize>::default();
    let (writer, reader) = (writes(&mount.at("new"), &new), reads(&mount.at("old")));
    let looker = looks(&mount.at("names"), &stop);
    writer.wait_for(SIZE / 3);
    reader.wait_for(SIZE / 3);
    lab.kill_manager();
    let seen = looker.done.load(Ordering::Relaxed);
    pause(Duration::from_secs(2));
    assert!(looker.done.load(Ordering::Relaxed) <= seen + 1, "names are the manager's");
    lab.start_manager();
    assert_same(&reader.end(), &old, "what was read meanwhile");
    writer.end();
    looker.wait_for(seen + 2);
    stop.store(1, Ordering::Relaxed);
    looker.end();
    assert_same(&lab.cli.cat("pot://lab/new"), &new, "what was written meanwhile");
    // A file that is changed in place is stored when it is closed, also by a manager that is just starting.
    let changing = OpenOptions::new().read(true).write(true).open(mount.at("old")).expect("opened");
    changing.write_all_at(b"changed", 1 << 20).expect("written");
    lab.kill_manager();
    let closing = thread::spawn(move || {
        let path = changing;
        path.sync_all().expect("it waits for the manager");
        drop(path);
    });
    pause(Duration::from_secs(1));
    lab.start_manager();
    closing.join().expect("closed");
    let mut expected = old;
    expected[1 << 20..][..7].copy_from_slice(b"changed");
    assert_same(&lab.cli.cat("pot://lab/old"), &expected, "what was closed meanwhile");
    // Where nothing is to be stored, the end of a mount needs no manager.
    lab.kill_manager();
    let ran = lab.cli.run(&["umount", arg(&mount.dir)]).ok();
    assert!(ran.took < DEADLINE, "{:?}", ran.took);
}

#[test]
fn mount_survives_a_donor_kill_with_two_copies() {
    let Some((mut lab, mount)) = mounted(
        "programs_do_not_notice_that_one_of_the_donors_is_killed",
        3,
        &["--copies", "2", "--chunk-size", "256KiB"],
        &[],
    ) else {
        return;
    };
    let (old, new) = (bytes(3, SIZE), bytes(4, SIZE));
    fs::write(mount.at("old"), &old).expect("written");
    let (writer, reader) = (writes(&mount.at("new"), &new), reads(&mount.at("old")));
    writer.wait_for(SIZE / 3);
    reader.wait_for(SIZE / 3);
    lab.kill_donor("donor-2");
    assert_same(&reader.end(), &old, "what was read meanwhile");
    writer.end();
    assert_same(&lab.cli.cat("pot://lab/new"), &new, "what was written meanwhile");
    // New files are written and old ones read, from the beginning and elsewhere, while the donor stays
    // dead.
    fs::write(mount.at("after"), &old).expect("written");
    assert_same(&fs::read(mount.at("new")).expect("read"), &new, "the mount's");
    let mut part = vec![0; 1000];
    let file = File::open(mount.at("after")).expect("opened");
    file.read_exact_at(&mut part, 20 << 20).expect("read");
    assert_same(&part, &old[20 << 20..][..1000], "a part");
    drop(file);
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

/// A time longer than a link may stand still, and than a client waits for donors that it never reached.
const FROZEN: Duration = Duration::from_secs(25);

#[test]
fn reads_and_writes_wait_out_frozen_donors() {
    let test = "programs_begin_to_write_and_to_read_while_all_donors_are_frozen";
    let policy = ["--copies", "1", "--chunk-size", "256KiB"];
    let Some((mut lab, mount)) = mounted(test, 2, &policy, &[]) else { return };
    let (unread, late) = (bytes(7, 2 << 20), bytes(8, 2 << 20));
    fs::write(mount.at("unread"), &unread).expect("written");
    let donors = lab.donor_names();
    donors.iter().for_each(|donor| lab.donor(donor).signal(Signal::STOP));
    let writing = {
        let (path, content) = (mount.at("late"), late.clone());
        thread::spawn(move || {
            let mut file = File::create(path).expect("made");
            file.write_all(&content).and_then(|()| file.sync_all())
        })
    };
    let reading = {
        let path = mount.at("unread");
        thread::spawn(move || fs::read(path))
    };
    pause(FROZEN);
    // By now the manager has not heard any donor for long.
    let small = {
        let path = mount.at("small");
        thread::spawn(move || fs::write(path, "small"))
    };
    pause(Duration::from_secs(1));
    assert!(!writing.is_finished() && !reading.is_finished(), "nobody answers");
    donors.iter().for_each(|donor| lab.donor(donor).signal(Signal::CONT));
    writing.join().expect("no panic").expect("donors have it");
    assert_same(&reading.join().expect("no panic").expect("read"), &unread, "what was read");
    small.join().expect("no panic").expect("closed");
    assert_same(&lab.cli.cat("pot://lab/late"), &late, "what was written");
    assert_eq!(lab.cli.cat("pot://lab/small"), b"small");
}

#[test]
fn a_close_that_waits_for_donors_in_vain_waits_once() {
    let test = "a_close_that_waits_for_donors_in_vain_waits_once";
    let policy = ["--copies", "1", "--chunk-size", "256KiB"];
    let Some((mut lab, mount)) = mounted(test, 1, &policy, &["--retry-for", "12s"]) else { return };
    fs::write(mount.at("before"), bytes(9, 1 << 20)).expect("written");
    lab.donor("donor-1").signal(Signal::STOP);
    let began = Instant::now();
    let mut file = File::create(mount.at("small")).expect("made");
    file.write_all(&bytes(10, 100_000)).expect("written");
    // SAFETY: the descriptor is this test's own, and nobody else closes it.
    let closed = unsafe { libc::close(file.into_raw_fd()) };
    let why = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((closed, why), (-1, Some(libc::ETIMEDOUT)));
    let took = began.elapsed();
    // A link may stand still for eight seconds before.
    assert!(took < Duration::from_secs(32), "it waited twice: {took:?}");
    // By now the manager knows that the donor is silent.
    let began = Instant::now();
    let mut other = File::create(mount.at("other")).expect("made");
    let refused = other.write_all(&bytes(11, 100_000)).expect_err("nobody would take it");
    assert_eq!(refused.raw_os_error(), Some(libc::ETIMEDOUT));
    let took = began.elapsed();
    assert!((12..24).contains(&took.as_secs()), "it waited twice: {took:?}");
    lab.donor("donor-1").signal(Signal::CONT);
}

/// The option of a mount that waits for its manager for longer than these tests do for programs.
const WAITS_LONG: [&str; 2] = ["--retry-for", "5m"];

#[test]
fn waiting_programs_can_be_killed() {
    let test = "waiting_programs_can_be_killed";
    let Some((mut lab, mount)) = mounted(test, 1, &[], &WAITS_LONG) else { return };
    // Each program has a directory of its own, for the kernel has those that change one wait for one
    // another.
    let scripts = [
        "; stat not-known",
        "; ls not-known",
        "; cat old",
        "; mkdir made",
        "; mv old new",
        "; df .",
        "exec 3> new; dd if=/dev/zero bs=1M count=1 >&3",
        "exec > new; echo half; sleep 600",
        "; dd if=/dev/zero of=old bs=1M count=1",
    ];
    let (go, dir) = (lab.dir().join("go"), |number: usize| format!("d{number}"));
    let waiting: Vec<_> = scripts
        .iter()
        .enumerate()
        .map(|(number, script)| {
            let dir = mount.at(&dir(number));
            fs::create_dir(&dir).expect("made");
            fs::write(dir.join("old"), "as it was").expect("written");
            let (before, wait) = script.rsplit_once("; ").expect("two parts");
            let begun = lab.dir().join(format!("begun-{number}"));
            let script = format!(
                "{before}\n: > {}; while ! [ -e {} ]; do sleep 0.1; done; exec {wait}",
                arg(&begun),
                arg(&go)
            );
            let mut command = Command::new("bash");
            command.args(["-c", &script]).current_dir(&dir).stderr(Stdio::null());
            let running = Running::start(&mut command);
            wait_until("it to begin", DEADLINE, || begun.exists());
            running
        })
        .collect();
    lab.kill_manager();
    fs::write(&go, "").expect("written");
    pause(Duration::from_secs(3));
    for (number, (mut program, script)) in waiting.into_iter().zip(scripts).enumerate() {
        assert!(program.ended().is_none(), "{script} does not wait");
        program.signal(if number % 2 == 0 { Signal::TERM } else { Signal::KILL });
        let ended = program.end_within(script, DEADLINE);
        assert!(!ended.success(), "{script}");
    }
    lab.start_manager();
    lab.wait_live();
    // What was written is published, and what a program was about to cut off is not.
    wait_until("what was written to be there", DEADLINE, || {
        lab.cli.run(&["stat", "pot://lab/d7/new"]).code == 0
    });
    assert_eq!(lab.cli.cat("pot://lab/d7/new"), b"half\n");
    assert_eq!(fs::read(mount.at("d8/old")).expect("read"), b"as it was");
}

#[test]
fn killing_a_program_in_open_does_not_hang_the_mount() {
    let test = "a_program_that_is_killed_while_it_opens_a_file";
    let Some((mut lab, mount)) = mounted(test, 1, &[], &WAITS_LONG) else { return };
    fs::write(mount.at("file"), "as it was").expect("written");
    for signal in [Signal::KILL, Signal::TERM] {
        // The kernel believes for a second what it is told here, so the program only waits for its open file.
        assert_eq!(fs::read(mount.at("file")).expect("read"), b"as it was");
        lab.manager().signal(Signal::STOP);
        let mut program = Running::start(Command::new("cat").arg(mount.at("file")));
        pause(Duration::from_secs(2));
        assert!(program.ended().is_none(), "it does not wait");
        program.signal(signal);
        assert!(!program.end_within("cat", DEADLINE).success());
        lab.manager().signal(Signal::CONT);
        // The mount closes the file for the program that never got it, and goes on.
        pause(Duration::from_secs(1));
        let read = {
            let path = mount.at("file");
            thread::spawn(move || fs::read(path))
        };
        wait_until("the mount to serve", DEADLINE, || read.is_finished());
        assert_eq!(read.join().expect("no panic").expect("read"), b"as it was");
    }
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

#[test]
fn killed_mount_leaves_old_versions_and_a_loss_report() {
    let Some((lab, mut mount)) = mounted(
        "a_mount_that_is_killed_leaves_old_versions",
        2,
        &["--copies", "2", "--chunk-size", "256KiB"],
        &[],
    ) else {
        return;
    };
    let old = bytes(5, 3 << 20);
    for name in ["streamed", "changed", "only read", "closed"] {
        fs::write(mount.at(name), &old).expect("written");
    }
    let mut streamed = File::create(mount.at("streamed")).expect("opened");
    streamed.write_all(&bytes(6, 2 << 20)).expect("written");
    streamed.sync_all().expect("published");
    streamed.write_all(b"not synced").expect("written");
    let open = |name: &str| OpenOptions::new().read(true).write(true).open(mount.at(name));
    let changed = open("changed").expect("opened");
    changed.write_all_at(b"new", 1 << 20).expect("written");
    let only_read = open("only read").expect("opened");
    fs::write(mount.at("closed"), "closed").expect("written");
    let mut renamed = File::create(mount.at("first name")).expect("made");
    fs::create_dir(mount.at("dir")).expect("made");
    fs::rename(mount.at("first name"), mount.at("dir/second name")).expect("moved");
    renamed.write_all(b"more").expect("written");
    let removed = File::create(mount.at("removed")).expect("made");
    fs::remove_file(mount.at("removed")).expect("removed");

    mount.running.kill_9();
    assert!(streamed.write_all(b"x").is_err(), "nobody serves");
    drop((streamed, changed, only_read, renamed, removed));
    let synced = bytes(6, 2 << 20);
    assert_same(&lab.cli.cat("pot://lab/streamed"), &synced, "what was synced");
    for name in ["changed", "only read"] {
        assert_same(&lab.cli.cat(&format!("pot://lab/{name}")), &old, name);
    }
    assert_eq!(lab.cli.cat("pot://lab/closed"), b"closed");

    let next = Mount::start(&lab, "pot://lab", &[]);
    let said = lab.cli.said_by_the_last();
    assert!(said.contains("had died and was taken away"), "{said}");
    let named = |name: &str| said.contains(&format!("pot://lab/{name} was not closed"));
    assert!(named("streamed") && named("changed") && named("dir/second name"), "{said}");
    for name in ["only read", "pot://lab/closed", "removed", "first name"] {
        assert!(!said.contains(name), "{name}: {said}");
    }
    assert_same(&fs::read(next.at("streamed")).expect("served again"), &synced, "the mount's");
    let spool = super::lent::all_files(lab.dir()).into_iter();
    // Mounts that begin at the same time wait for one another at a lock.
    let is_left = |path: &std::path::PathBuf| {
        path.parent().is_some_and(|dir| dir.ends_with("spool")) && !path.ends_with("attaching")
    };
    let spool: Vec<_> = spool.filter(is_left).collect();
    let kinds: BTreeSet<_> = spool.iter().filter_map(|path| path.extension()).collect();
    let own = (2, BTreeSet::from(["mount".as_ref(), "socket".as_ref()]));
    assert_eq!((spool.len(), kinds), own, "the record and the socket of this mount: {spool:?}");
    lab.cli.ok(&["umount", arg(&next.dir)]);
    let mut last = Mount::start(&lab, "pot://lab", &[]);
    let said = lab.cli.said_by_the_last();
    assert!(!said.contains("not closed") && !said.contains("had died"), "told once: {said}");

    // The command that takes a dead mount away tells it as well, even while a program has something open in it.
    let mut writer = File::create(last.at("streamed")).expect("opened");
    writer.write_all(b"half").expect("written");
    last.running.kill_9();
    let said = lab.cli.run(&["--json", "umount", arg(&last.dir)]).exits(4).json();
    let lost = serde_json::json!([{ "path": "pot://lab/streamed", "state": "open" }]);
    assert_eq!(said["unpublished"], lost);
    assert_eq!(fs::read_dir(&last.dir).expect("the directory below").count(), 0);
    drop(writer);
}
