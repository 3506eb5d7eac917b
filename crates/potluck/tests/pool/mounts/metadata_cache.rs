//! Tests what a mount knows of names without asking the manager, and how soon it hears of changes by others.

use super::attributes::run;
use super::{Mount, can_mount, mounted};
use crate::pool::content::arg;
use crate::pool::lab::Lab;
use crate::pool::monitoring::{get, value};
use crate::pool::ports::free_port;
use crate::pool::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// A time longer than the kernel believes what a mount told it, and than the manager's metrics are good for.
const ASKS_AGAIN: Duration = Duration::from_millis(1500);
/// The time in which changes by others are seen (docs/mount.md), with room for a machine that does much else.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// Makes a pool whose manager counts calls, mounts it, and returns the address of the metrics as well.
fn counting(test: &str) -> Option<(Lab, Mount, String)> {
    if !can_mount(test) {
        return None;
    }
    let metrics = format!("127.0.0.1:{}", free_port());
    let lab = Lab::with_options(1, &["--metrics-listen", &metrics]);
    lab.cli.ok(&["space", "create", "lab"]);
    let mount = Mount::start(&lab, "pot://lab", &[]);
    Some((lab, mount, metrics))
}

/// Returns how often the manager was asked about names and files so far, and how often by
/// [`Refresh`](potluck_wire::control::Refresh) alone.
fn asked(metrics: &str) -> (u64, u64) {
    pause(ASKS_AGAIN);
    let text = get(metrics, "/metrics").expect("the manager answers");
    let count = |op| value(&text, &format!("potluck_call_seconds_count{{op=\"{op}\"}}"));
    let refresh = count("refresh").unwrap_or_default() as u64;
    let others = ["list", "stat", "open", "usage"].map(|op| count(op).unwrap_or_default() as u64);
    (refresh + others.iter().sum::<u64>(), refresh)
}

/// Stores 300 files in three directories, one below the other.
fn plant(lab: &Lab) {
    let tree = lab.dir().join("tree");
    for (depth, dir) in ["", "a", "a/b"].iter().enumerate() {
        fs::create_dir_all(tree.join(dir)).expect("made");
        for number in 0..100 {
            let content = vec![7; depth * 1000 + number];
            fs::write(tree.join(dir).join(format!("f{number}")), content).expect("written");
        }
    }
    lab.cli.ok(&["cp", "-r", arg(&tree), "pot://lab/tree"]);
}

/// Returns the bytes of all files below a directory, each of which is looked at by itself, too.
fn walk(dir: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).expect("listed") {
        let path = entry.expect("an entry").path();
        let about = fs::symlink_metadata(&path).expect("there");
        bytes += if about.is_dir() { walk(&path) } else { about.len() };
    }
    bytes
}

fn is_there(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(why) if why.kind() == ErrorKind::NotFound => false,
        Err(why) => panic!("{}: {why}", path.display()),
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).expect("there").len()
}

#[test]
fn warm_tree_needs_no_manager_calls() {
    let Some((lab, mount, metrics)) = counting("a_warm_tree_is_listed_without_one_call") else {
        return;
    };
    plant(&lab);
    let bytes = walk(&mount.at("tree"));
    assert_eq!(bytes, (0..3 * 100).map(|number| number / 100 * 1000 + number % 100).sum::<u64>());
    assert!(!is_there(&mount.at("tree/no")) && !is_there(&mount.at("tree/a/no")));
    // A mount that a busy machine held up for seconds asks again.
    let is_warm = (0..3).any(|_| {
        let (before, _) = asked(&metrics);
        assert!(before > 0, "calls are counted");
        for _ in 0..3 {
            let began = Instant::now();
            assert_eq!(walk(&mount.at("tree")), bytes);
            assert!(!is_there(&mount.at("tree/no")) && !is_there(&mount.at("tree/a/no")));
            println!("a walk over 300 warm files took {:?}", began.elapsed());
            pause(ASKS_AGAIN);
        }
        asked(&metrics).0 == before
    });
    assert!(is_warm, "the manager was asked about names that the mount knows, three times");
    // A change costs the names that changed, and not the tree.
    let mut left = bytes;
    let is_cheap = (5..8).any(|number| {
        let name = format!("tree/a/f{number}");
        lab.cli.ok(&["rm", &format!("pot://lab/{name}")]);
        left -= 1000 + number;
        wait_until("the file to go", SEEN_WITHIN, || !is_there(&mount.at(&name)));
        let (before, _) = asked(&metrics);
        assert_eq!(walk(&mount.at("tree")), left);
        let (after, _) = asked(&metrics);
        println!("{before} calls and then {after}");
        after <= before + 1
    });
    assert!(is_cheap, "a change of one name cost more than one call, three times");
}

#[test]
fn changes_propagate_between_mounts() {
    let Some((lab, one)) = mounted("what_is_changed_through_one_mount_is_soon_seen", 1, &[], &[])
    else {
        return;
    };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    run("mkdir -p d/e; echo old > d/e/f; echo x > d/g; ln -s f d/e/l", &one.dir);
    wait_until("all to be seen", SEEN_WITHIN, || is_there(&other.at("d/e/l")));
    run("ls -lR . > /dev/null; test ! -e d/new; test ! -e made", &other.dir);
    let soon = |what: &str, seen: &dyn Fn() -> bool| {
        let took = wait_until(what, SEEN_WITHIN, seen);
        println!("{what}: {took:?}");
    };
    // Each name was looked at before it changed, so that both kernels and both mounts know it.
    run("echo newer > d/e/f", &one.dir);
    soon("a new version", &|| size(&other.at("d/e/f")) == 6);
    assert_eq!(fs::read(other.at("d/e/f")).expect("read"), b"newer\n");
    run("echo there > d/new", &one.dir);
    soon("a file where nothing was", &|| is_there(&other.at("d/new")));
    run("rm d/g", &one.dir);
    soon("a file that is removed", &|| !is_there(&other.at("d/g")));
    run("chmod 600 d/e/f; touch -d @86400 d/e", &one.dir);
    soon("permissions of a file", &|| {
        fs::metadata(other.at("d/e/f")).expect("there").mode() & 0o777 == 0o600
    });
    soon("the time of a directory", &|| {
        fs::metadata(other.at("d/e")).expect("there").mtime() == 86_400
    });
    run("ln -sfn elsewhere d/e/l", &one.dir);
    soon("a link", &|| fs::read_link(other.at("d/e/l")).expect("a link") == Path::new("elsewhere"));
    // A directory above moves, and another takes its place.
    run("mv d moved; mkdir -p d/e; echo another one > d/e/f", &one.dir);
    soon("the new directory", &|| {
        fs::metadata(other.at("d/e/f")).is_ok_and(|about| about.len() == 12)
    });
    soon("the moved one", &|| is_there(&other.at("moved/e/f")));
    assert_eq!(size(&other.at("moved/e/f")), 6);
    assert!(!is_there(&other.at("d/e/l")));
    // Directories that are made only for what is below them are seen, too.
    lab.cli.ok(&["cp", arg(&other.at("d/e/f")), "pot://lab/made/by/the/way/f"]);
    soon("directories made on the way", &|| is_there(&other.at("made/by/the/way/f")));
    run("rm -r moved", &other.dir);
    soon("a tree that is removed", &|| !is_there(&one.at("moved/e/f")));
    assert_eq!(run("ls", &one.dir), run("ls", &other.dir));
}

#[test]
fn readdir_and_stat_inodes_agree() {
    let test = "readdir_and_stat_inodes_agree";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    // There are more names than the kernel asks for together with their attributes.
    let many = lab.dir().join("many");
    fs::create_dir(&many).expect("made");
    (0..600).for_each(|number| fs::write(many.join(format!("file-{number}")), "").expect("a file"));
    lab.cli.ok(&["cp", "-r", arg(&many), "pot://lab/many"]);
    let entries = fs::read_dir(mount.at("many")).expect("listed");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let listed: Vec<_> = entries.map(|entry| (entry.path(), entry.ino())).collect();
    assert_eq!(listed.len(), 600);
    for (path, number) in listed {
        let looked_up = fs::metadata(&path).expect("there").ino();
        assert_eq!(looked_up, number, "{}", path.display());
    }
}

#[test]
fn a_program_sees_what_its_own_mount_changed_at_once() {
    let Some((_lab, mount)) = mounted("a_program_sees_what_its_own_mount_changed", 1, &[], &[])
    else {
        return;
    };
    for round in 1..20 {
        let (name, content) = (format!("f{}", round % 3), vec![1; round]);
        fs::write(mount.at(&name), &content).expect("written");
        assert_eq!(size(&mount.at(&name)), round as u64);
        assert!(!is_there(&mount.at("d/new")));
        fs::create_dir(mount.at("d")).expect("made");
        fs::rename(mount.at(&name), mount.at("d/new")).expect("moved");
        assert!(!is_there(&mount.at(&name)));
        assert_eq!(size(&mount.at("d/new")), round as u64);
        assert_eq!(fs::read_dir(mount.at("d")).expect("listed").count(), 1);
        fs::rename(mount.at("d"), mount.at("e")).expect("moved");
        assert!(is_there(&mount.at("e/new")) && !is_there(&mount.at("d/new")));
        fs::remove_file(mount.at("e/new")).expect("removed");
        assert_eq!(fs::read_dir(mount.at("e")).expect("listed").count(), 0);
        fs::remove_dir(mount.at("e")).expect("removed");
        assert!(!is_there(&mount.at("e")));
    }
}

#[test]
fn manager_restart_revalidates_the_metadata_cache() {
    let Some((mut lab, mount, metrics)) =
        counting("after_a_restart_of_the_manager_changes_are_seen")
    else {
        return;
    };
    plant(&lab);
    let bytes = walk(&mount.at("tree"));
    assert!(!is_there(&mount.at("tree/new")));
    let input = lab.dir().join("input");
    fs::write(&input, [0; 5000]).expect("written");
    for round in 1..=2 {
        // In the second round all happens while the mount is stopped, before it can find the manager again.
        if round == 2 {
            mount.running.signal(Signal::STOP);
        }
        lab.kill_manager();
        lab.start_manager();
        lab.wait_live();
        let name = format!("pot://lab/tree/a/f{round}");
        lab.cli.ok(&["cp", arg(&input), &name]);
        lab.cli.ok(&["cp", arg(&input), &format!("pot://lab/tree/new{round}")]);
        mount.running.signal(Signal::CONT);
        wait_until("the mount to hear of it", DEADLINE, || {
            size(&mount.at(&format!("tree/a/f{round}"))) == 5000
                && is_there(&mount.at(&format!("tree/new{round}")))
        });
    }
    // Once the mount is connected again, nothing is asked twice.
    let expected = bytes + 4 * 5000 - 1001 - 1002;
    assert_eq!(walk(&mount.at("tree")), expected);
    let (_, all) = asked(&metrics);
    assert!(all <= 24, "{all} calls for three directories of which two had changes");
    let is_known = (0..3).any(|_| {
        let (_, before) = asked(&metrics);
        assert_eq!(walk(&mount.at("tree")), expected);
        asked(&metrics).1 == before
    });
    assert!(is_known, "the manager was asked again each time");
}
