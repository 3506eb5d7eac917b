//! Tests small files that are written through a mount: what they cost, and that they are as other files are.

use super::{Mount, can_mount, mounted};
use crate::pool::lab::Lab;
use crate::pool::monitoring::{get, value};
use crate::pool::ports::free_port;
use crate::pool::waiting::{DEADLINE, pause, wait_until};
use std::fs::{self, File};
use std::io::{Error, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// A time longer than the manager's metrics are good for.
const COUNTED: Duration = Duration::from_millis(1500);

/// Returns how often the manager answered each of these calls.
fn calls<const N: usize>(metrics: &str, calls: [&str; N]) -> [u64; N] {
    pause(COUNTED);
    let text = get(metrics, "/metrics").expect("the manager answers");
    let answered = |call| format!("potluck_call_seconds_count{{op=\"{call}\"}}");
    calls.map(|call| value(&text, &answered(call)).unwrap_or(0.0) as u64)
}

/// Closes a file as programs do that look at what close() returns.
fn close(file: File) -> Result<(), Option<i32>> {
    // SAFETY: the descriptor is this test's own, and nobody else closes it.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error().raw_os_error()),
    }
}

/// The cost is counted in calls of the manager: of sessions, of questions about names, and of what becomes visible.
#[test]
fn small_file_costs_one_call_shared_by_concurrent_closes() {
    if !can_mount("a_small_file_costs_one_call_to_the_manager") {
        return;
    }
    let metrics = format!("127.0.0.1:{}", free_port());
    let lab = Lab::with_options(1, &["--metrics-listen", &metrics]);
    lab.cli.ok(&["space", "create", "lab"]);
    let mount = Mount::start(&lab, "pot://lab", &[]);
    let count = || calls(&metrics, ["reserve", "offer", "commit", "abort", "refresh"]);
    fs::create_dir(mount.at("d")).expect("made");
    let names = |from: u64| (from..from + 200).map(|number| format!("d/{number}"));
    // A call that a busy machine answers late is made again.
    let is_cheap = (0..3).any(|_| {
        let before = count();
        let began = Instant::now();
        for name in names(0) {
            fs::write(mount.at(&name), &name).expect("written");
        }
        let seconds = began.elapsed().as_secs();
        let after = count();
        let [reserved, offered, committed, aborted, asked] =
            std::array::from_fn(|at| after[at] - before[at]);
        println!("{after:?} after {before:?} and {seconds} s of writing");
        assert_eq!(offered, 0, "they are in the catalog");
        let sessions = reserved.max(aborted);
        sessions <= seconds + 2 && committed == 200 && asked <= 50 * (seconds + 2)
    });
    assert!(is_cheap, "200 files cost more than 200 calls, three times");

    for name in names(0) {
        assert_eq!(fs::read(mount.at(&name)).expect("read"), name.as_bytes());
    }

    let is_shared = (0..3).any(|_| {
        let before = count();
        std::thread::scope(|threads| {
            for thread in 0..8 {
                let mount = &mount;
                threads.spawn(move || {
                    for name in names(200).skip(thread).step_by(8) {
                        fs::write(mount.at(&name), vec![7; 60_000]).expect("written");
                    }
                });
            }
        });
        count()[2] - before[2] < 200
    });
    assert!(is_shared, "200 files that were closed by 8 at once took 200 commits, three times");
    let listed = lab.cli.json(&["ls", "pot://lab/d"]);
    assert_eq!(listed["entries"].as_array().map(Vec::len), Some(400), "{listed}");
    assert_eq!(lab.cli.cat("pot://lab/d/399"), vec![7; 60_000]);
}

/// What a program changes of names is told by the answer, so that nobody asks for the directory again. What was closed,
/// removed or renamed is synced when a program syncs anything later.
#[test]
fn name_change_costs_one_call_and_syncs_once() {
    if !can_mount("a_change_of_a_name_costs_one_call") {
        return;
    }
    let metrics = format!("127.0.0.1:{}", free_port());
    let lab = Lab::with_options(1, &["--metrics-listen", &metrics]);
    lab.cli.ok(&["space", "create", "lab"]);
    let mount = Mount::start(&lab, "pot://lab", &[]);
    let count = || calls(&metrics, ["make-dir", "make-links", "move", "remove", "refresh", "sync"]);
    fs::create_dir(mount.at("d")).expect("made");
    let at = |kind: &str, number: u32| mount.at(&format!("d/{kind}{number}"));
    (0..100).for_each(|number| fs::write(at("f", number), "x").expect("written"));
    type Work<'a> = (&'a str, &'a dyn Fn(u32) -> std::io::Result<()>);
    let works: [Work<'_>; 5] = [
        ("mkdir", &|number| fs::create_dir(at("d", number))),
        ("symlink", &|number| std::os::unix::fs::symlink("x", at("l", number))),
        ("rename", &|number| fs::rename(at("f", number), at("g", number))),
        ("unlink", &|number| fs::remove_file(at("g", number))),
        ("rmdir", &|number| fs::remove_dir(at("d", number))),
    ];
    for (what, work) in works {
        let (before, began) = (count(), Instant::now());
        (0..100).try_for_each(work).expect(what);
        let seconds = began.elapsed().as_secs();
        let after = count();
        let calls: [u64; 6] = std::array::from_fn(|at| after[at] - before[at]);
        println!("{what}: {calls:?} in {seconds} s");
        assert_eq!(calls[..4].iter().sum::<u64>(), 100, "{what}");
        // The mount hears of its own changes, too, and asks for some names that it had heard of.
        assert!(calls[4] <= 50 + 20 * seconds, "{what} asked {} times", calls[4]);
        assert_eq!(calls[5], 0);
    }
    let synced = |file: File| {
        let before = count();
        file.sync_all().expect("synced");
        count()[5] - before[5]
    };
    fs::write(mount.at("f"), "x").expect("written");
    let open = || File::open(mount.at("f")).expect("opened");
    assert_eq!((synced(open()), synced(open())), (1, 0), "closed before");
    fs::remove_file(mount.at("f")).expect("removed");
    let open = || File::open(&mount.dir).expect("opened");
    assert_eq!((synced(open()), synced(open())), (1, 0), "removed before");
}

/// The time of a directory is the pool's, whether the mount asks for it or was told.
#[test]
fn a_directory_has_the_time_at_which_a_small_file_came_to_it() {
    let Some((lab, mount)) = mounted("a_directory_has_the_time", 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    fs::create_dir(mount.at("d")).expect("made");
    let time = |mount: &Mount| {
        let about = fs::metadata(mount.at("d")).expect("there");
        (about.mtime(), about.mtime_nsec())
    };
    for number in 0..10 {
        let before = time(&mount);
        fs::write(mount.at(&format!("d/{number}")), "x").expect("written");
        let at_once = time(&mount);
        assert!(at_once > before, "{at_once:?} after {before:?}");
        pause(COUNTED); // longer than the kernel believes what it was told
        assert_eq!(time(&mount), at_once);
        wait_until("the other mount to be told", DEADLINE, || time(&other) == at_once);
        fs::write(mount.at(&format!("d/{number}")), "y").expect("replaced");
        assert_eq!(time(&mount), at_once, "what is replaced is no entry that comes");
    }
}

#[test]
fn batched_small_files_keep_conditions_and_policies() {
    let policy = ["--copies", "1"];
    let name = "small_files_of_one_session_keep_their_own_conditions";
    let Some((lab, mount)) = mounted(name, 2, &policy, &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    // Two files of one directory, one with a condition and one without, go into one session.
    let mut exclusive = File::create_new(mount.at("f")).expect("nothing is there");
    exclusive.write_all(b"mine").expect("written");
    fs::write(mount.at("g"), "g").expect("written");
    fs::create_dir(other.at("f")).expect("made");
    fs::write(mount.at("g"), "g again").expect("replaced");
    assert_eq!(close(exclusive), Err(Some(libc::ENOTDIR)));
    assert!(fs::metadata(other.at("f")).expect("there").is_dir());
    assert_eq!(lab.cli.cat("pot://lab/g"), b"g again");

    let copies = |file: &str| {
        let mut value = [0; 8];
        let path = mount.at(file);
        let len = rustix::fs::getxattr(path, "user.potluck.copies", &mut value).expect("told");
        value[..len].to_vec()
    };
    fs::write(mount.at("one"), vec![1; 60_000]).expect("written");
    let set = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&mount.dir, "user.potluck.copies", b"2", set).expect("set");
    fs::write(mount.at("two"), vec![2; 60_000]).expect("written");
    assert_eq!(copies("two"), b"2", "from the start, and not in the background");
}
