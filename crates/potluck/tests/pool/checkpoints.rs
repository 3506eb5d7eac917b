//! Tests directories whose files become visible at one moment: by `potluck ckpt`, through mounts and without, and by
//! `cp --atomic`.

use super::content::{arg, tree_of};
use super::lab::{Cli, Lab};
use super::member::Member;
use super::monitoring::{get, value};
use super::mounts::{Mount, mounted};
use super::ports::free_port;
use super::waiting::{DEADLINE, pause, wait_until};
use potluck_core::path::PoolPath;
use potluck_wire::control::{List, Stat};
use potluck_wire::error::code;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Sends a mount a request about a checkpoint, as programs do.
fn say(dir: &Path, request: &str) -> Result<(), Errno> {
    setxattr(dir, "user.potluck.ckpt", request.as_bytes(), XattrFlags::empty())
}

/// Returns the identifier of the checkpoint that is open in a directory.
fn identifier(dir: &Path) -> Result<String, Errno> {
    let mut id = [0; 100];
    let len = getxattr(dir, "user.potluck.ckpt", &mut id)?;
    Ok(String::from_utf8_lossy(&id[..len]).into_owned())
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries.map(|entry| entry.expect("read").file_name().into_string().expect("UTF-8")).collect()
}

/// Returns the paths below `path`, relative to it, as the command line lists them.
fn listed(cli: &Cli, path: &str) -> Vec<String> {
    let entries = cli.json(&["ls", "-r", path])["entries"].clone();
    let entries = entries.as_array().expect("entries").clone();
    entries.iter().map(|entry| entry["path"].as_str().expect("a path").to_owned()).collect()
}

fn open(cli: &Cli) -> Vec<Value> {
    cli.json(&["ckpt", "ls"])["checkpoints"].as_array().expect("checkpoints").clone()
}

/// Begins a checkpoint without a mount, and returns the path to which its files are copied.
fn begin(cli: &Cli, target: &str) -> String {
    cli.json(&["ckpt", "begin", target])["staging"].as_str().expect("a path").to_owned()
}

/// Makes a tree of `count` files of a few bytes, in directories of 500, and returns its path.
fn small_files(dir: &Path, count: usize) -> PathBuf {
    let tree = dir.join("tree");
    for number in 0..count {
        let dir = tree.join(format!("d{:02}", number / 500));
        if number % 500 == 0 {
            fs::create_dir_all(&dir).expect("made");
        }
        fs::write(dir.join(format!("{number:05}")), format!("file {number}")).expect("written");
    }
    tree
}

/// A thread that counts the files below a path, again and again until it is stopped, as another client sees them.
struct Watcher {
    is_over: Arc<AtomicBool>,
    /// The number of files that it saw last.
    last: Arc<AtomicUsize>,
    thread: thread::JoinHandle<Vec<usize>>,
}

impl Watcher {
    fn start(lab: &Lab, path: &str) -> Self {
        let member = Member::load(&lab.manager_dir().join("admin"));
        let path: PoolPath = path.parse().expect("a path");
        let (is_over, last) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (told, counted) = (Arc::clone(&is_over), Arc::clone(&last));
        let thread = thread::spawn(move || {
            let mut seen = Vec::new();
            while !told.load(Ordering::Relaxed) {
                let (mut files, mut after) = (0, None);
                loop {
                    let list = List { path: path.clone(), recursive: true, after };
                    let page = match member.call(&list) {
                        Ok(page) => page,
                        Err(failure) if failure.code == code::NO_ENTRY => break,
                        Err(failure) => panic!("{failure}"),
                    };
                    files += page.entries.iter().filter(|entry| entry.size > 0).count();
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                seen.push(files);
                counted.store(files, Ordering::Relaxed);
            }
            seen
        });
        Self { is_over, last, thread }
    }

    /// Stops the thread once it has seen `files` files, and returns the numbers of files that it saw, in order and
    /// without repetitions.
    fn end_at(self, files: usize) -> Vec<usize> {
        wait_until("the watcher to see all files", DEADLINE, || {
            self.last.load(Ordering::Relaxed) == files || self.thread.is_finished()
        });
        self.is_over.store(true, Ordering::Relaxed);
        let mut seen = self.thread.join().expect("it met no error");
        seen.dedup();
        seen
    }
}

#[test]
fn ten_thousand_files_become_visible_at_one_moment_b6() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let tree = small_files(lab.dir(), 10_000);
    let staging = begin(&lab.cli, "pot://lab/run/step-5");
    let watcher = Watcher::start(&lab, "pot://lab/run/step-5");
    lab.cli.ok(&["cp", "-r", &format!("{}/.", arg(&tree)), &format!("{staging}/")]);
    let about = &open(&lab.cli)[0];
    assert_eq!((&about["files"], &about["is_own"]), (&Value::from(10_000), &Value::from(true)));
    assert_eq!(listed(&lab.cli, "pot://lab"), Vec::<String>::new());
    assert_eq!(lab.cli.json(&["du", "pot://lab"])["files"], 0);
    let began = std::time::Instant::now();
    lab.cli.ok(&["ckpt", "commit", "pot://lab/run/step-5"]);
    println!("committed in {:?}, with the start of the command", began.elapsed());
    assert_eq!(watcher.end_at(10_000), [0, 10_000]);
    assert_eq!(open(&lab.cli), Vec::<Value>::new());
    let again = lab.cli.ok(&["ckpt", "commit", "pot://lab/run/step-5"]).text();
    assert!(again.contains("was committed before"), "{again}");
    let back = lab.dir().join("back");
    lab.cli.ok(&["cp", "-r", "pot://lab/run/step-5", arg(&back)]);
    assert_eq!(tree_of(&back), tree_of(&tree));
}

#[test]
fn staged_files_are_visible_only_in_their_mount() {
    let test = "staged_files_are_visible_only_in_their_mount";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    fs::create_dir(mount.at("step")).expect("made");
    fs::write(mount.at("step/old"), "old").expect("written");
    let reader = File::open(other.at("step/old")).expect("opened");

    // A checkpoint of a directory that exists is begun by the attribute, and of one that does not by the command.
    say(&mount.at("step"), "begin").expect("begun");
    let id = identifier(&mount.at("step")).expect("told");
    assert_eq!(identifier(&other.at("step")), Err(Errno::NODATA));
    lab.cli.ok(&["ckpt", "begin", arg(&mount.at("new step"))]);
    assert_eq!(open(&lab.cli).len(), 2);
    wait_until("the kernel to ask again", DEADLINE, || names(&mount.at("step")).is_empty());
    for dir in ["step", "new step"] {
        fs::create_dir(mount.at(dir).join("d")).expect("made");
        fs::write(mount.at(dir).join("d/f"), "staged").expect("written");
        symlink("d/g", mount.at(dir).join("link")).expect("made");
        fs::rename(mount.at(dir).join("d/f"), mount.at(dir).join("d/g")).expect("renamed");
        assert_eq!(fs::read(mount.at(dir).join("d/g")).expect("read back"), b"staged");
    }
    assert_eq!(names(&mount.dir), ["new step", "step"].map(String::from).into());
    assert_eq!(names(&other.dir), ["step"].map(String::from).into());
    assert_eq!(names(&other.at("step")), ["old"].map(String::from).into());
    assert_eq!(
        fs::remove_dir_all(mount.at("step")).map_err(|why| why.raw_os_error()),
        Err(Some(Errno::BUSY.raw_os_error()))
    );
    let moved = fs::rename(mount.at("new step"), mount.at("moved"));
    assert_eq!(moved.map_err(|why| why.raw_os_error()), Err(Some(Errno::BUSY.raw_os_error())));
    fs::create_dir_all(mount.at("step/d")).expect("there");
    fs::write(mount.at("step/d/g"), "staged").expect("written");

    // Another mount that is told the identifier writes to it, too.
    lab.cli.ok(&["ckpt", "join", &id, arg(&other.at("step"))]);
    wait_until("the other mount to show it", DEADLINE, || names(&other.at("step")).contains("d"));
    fs::write(other.at("step/from-other"), "other").expect("written");

    let mut writing = File::create(mount.at("step/open")).expect("made");
    writing.write_all(b"not closed").expect("written");
    assert_eq!(say(&mount.at("step"), "commit"), Err(Errno::BUSY));
    let busy = lab.cli.fails(10, &["ckpt", "commit", arg(&mount.at("step"))]);
    assert!(busy.message.contains("files open"), "{busy:?}");
    drop(writing);
    assert!(!listed(&lab.cli, "pot://lab/step").contains(&"d/g".to_owned()));
    lab.cli.ok(&["ckpt", "commit", arg(&mount.at("step"))]);
    let all = ["d", "d/g", "from-other", "open"].map(String::from);
    let mut now = listed(&lab.cli, "pot://lab/step");
    now.retain(|name| name != "link");
    assert_eq!(now, all);
    let again = lab.cli.ok(&["ckpt", "commit", arg(&mount.at("step"))]).text();
    assert!(again.contains("before"), "{again}");
    say(&mount.at("new step"), "commit").expect("committed");
    assert_eq!(listed(&lab.cli, "pot://lab/new step"), ["d", "d/g", "link"]);
    wait_until("the others to see it", DEADLINE, || {
        names(&other.at("step")).contains("open") && names(&other.dir).contains("new step")
    });
    assert_eq!(fs::read(other.at("new step/link")).expect("read"), b"staged");
    // After the commit the mount writes to what everybody sees.
    fs::write(mount.at("step/later"), "later").expect("written");
    assert_eq!(lab.cli.cat("pot://lab/step/later"), b"later");
    assert_eq!(say(&mount.dir, "commit"), Err(Errno::NODATA));
    assert_eq!(say(&mount.at("step"), "sometimes"), Err(Errno::INVAL));
    let mut content = String::new();
    std::io::Read::read_to_string(&mut &reader, &mut content).expect("read");
    assert_eq!(content, "old", "who had it open keeps the version");
}

#[test]
fn checkpoint_commit_is_refused_while_files_are_open() {
    let test = "checkpoint_commit_is_refused_while_files_are_open";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let mut other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let share = |dir: &str| {
        lab.cli.ok(&["ckpt", "begin", arg(&mount.at(dir))]);
        let id = identifier(&mount.at(dir)).expect("told");
        lab.cli.ok(&["ckpt", "join", &id, arg(&other.at(dir))]);
        wait_until("the other mount to show it", DEADLINE, || other.at(dir).is_dir());
        let mut writing = File::create(other.at(dir).join("f")).expect("made");
        writing.write_all(b"written").expect("written");
        writing
    };
    let writing = share("closed");
    assert_eq!(say(&mount.at("closed"), "commit"), Err(Errno::BUSY));
    for place in [arg(&mount.at("closed")), "pot://lab/closed"] {
        let busy = lab.cli.fails(10, &["ckpt", "commit", place]);
        assert_eq!(busy.code, code::CLAIMED, "{busy:?}");
        assert!(busy.message.contains("open for writing in a mount of"), "{busy:?}");
    }
    drop(writing);
    lab.cli.ok(&["ckpt", "commit", arg(&mount.at("closed"))]);
    assert_eq!(lab.cli.cat("pot://lab/closed/f"), b"written");

    let writing = share("open");
    lab.cli.ok(&["ckpt", "commit", "--even-if-open", arg(&mount.at("open"))]);
    assert_eq!(listed(&lab.cli, "pot://lab/open"), Vec::<String>::new());
    drop(writing);

    // A mount that died counts until its lease has ended.
    let writing = share("killed");
    other.running.kill_9();
    lab.cli.fails(10, &["ckpt", "commit", "pot://lab/killed"]);
    wait_until("the lease to end", DEADLINE, || {
        lab.cli.run(&["ckpt", "commit", "pot://lab/killed"]).code == 0
    });
    drop(writing);
}

#[test]
fn checkpoint_invalidates_cached_lookups_in_its_directory() {
    let test = "what_a_program_looked_at_in_a_directory_is_not_there_once_a_checkpoint_begins";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let at = |name: &str| mount.at("step").join(name);
    fs::create_dir_all(at("d")).expect("made");
    for name in ["f", "g", "d/h"] {
        fs::write(at(name), "old").expect("written");
    }
    // The kernel knows each name from a moment ago, and has to ask again at once.
    let look = || ["f", "g", "d/h", "new"].map(|name| at(name).exists());
    assert_eq!(look(), [true, true, true, false]);
    say(&mount.at("step"), "begin").expect("begun");
    fs::write(at("f"), "staged").expect("the same name is written");
    assert_eq!(look(), [true, false, false, false]);
    fs::write(at("new"), "staged").expect("written");
    assert_eq!(look(), [true, false, false, true]);
    assert_eq!(names(&mount.at("step")), ["f", "new"].map(String::from).into());
    say(&mount.at("step"), "abort").expect("aborted");
    assert_eq!(look(), [true, true, true, false]);
    assert_eq!(names(&mount.at("step")), ["d", "f", "g"].map(String::from).into());
    assert_eq!(fs::read(at("f")).expect("read"), b"old");
    lab.cli.ok(&["ckpt", "begin", arg(&mount.at("step"))]);
    assert_eq!(look(), [false; 4]);
    fs::write(at("g"), "staged").expect("written");
    say(&mount.at("step"), "commit").expect("committed");
    assert_eq!(look(), [false, true, false, false]);
    assert_eq!(names(&mount.at("step")), ["g"].map(String::from).into());
}

#[test]
fn an_aborted_checkpoint_of_a_mount_leaves_what_was_there() {
    let test = "an_aborted_checkpoint_of_a_mount_leaves_what_was_there";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    fs::create_dir(mount.at("step")).expect("made");
    fs::write(mount.at("step/old"), "old").expect("written");
    lab.cli.ok(&["ckpt", "begin", arg(&mount.at("step"))]);
    fs::write(mount.at("step/new"), "new").expect("written");
    let mut open_still = File::create(mount.at("step/open")).expect("made");
    open_still.write_all(b"written").expect("written");
    lab.cli.ok(&["ckpt", "abort", arg(&mount.at("step"))]);
    drop(open_still);
    wait_until("the mount to show the old", DEADLINE, || {
        names(&mount.at("step")) == ["old".to_owned()].into()
    });
    assert_eq!(listed(&lab.cli, "pot://lab"), ["step", "step/old"]);
    lab.cli.ok(&["ckpt", "abort", arg(&mount.at("step"))]);
    let gone = lab.cli.fails(3, &["ckpt", "commit", arg(&mount.at("step"))]);
    assert_eq!(gone.code, "POT-E013", "{gone:?}");
    let none = lab.cli.fails(2, &["ckpt", "begin", arg(lab.dir())]);
    assert!(none.message.contains("no mounted pool"), "{none:?}");
}

#[test]
fn a_checkpoint_outlives_its_mount_and_its_manager() {
    let test = "a_checkpoint_outlives_its_mount_and_its_manager";
    let Some((mut lab, mut mount)) = mounted(test, 2, &["--copies", "2"], &[]) else { return };
    fs::create_dir(mount.at("step")).expect("made");
    fs::write(mount.at("step/old"), "old").expect("written");
    say(&mount.at("step"), "begin").expect("begun");
    let id = identifier(&mount.at("step")).expect("told");
    let content = super::content::bytes(1, 300_000);
    fs::write(mount.at("step/a"), &content).expect("written");
    mount.running.kill_9();
    drop(mount);
    assert_eq!(listed(&lab.cli, "pot://lab/step"), ["old"]);
    let mount = Mount::start(&lab, "pot://lab", &[]);
    assert_eq!(names(&mount.at("step")), ["old".to_owned()].into());
    lab.cli.ok(&["ckpt", "join", &id, arg(&mount.at("step"))]);
    wait_until("it to be shown", DEADLINE, || names(&mount.at("step")).contains("a"));
    lab.kill_manager();
    lab.start_manager();
    lab.wait_live();
    fs::write(mount.at("step/b"), &content).expect("written");
    assert_eq!(listed(&lab.cli, "pot://lab/step"), ["old"]);
    lab.cli.ok(&["ckpt", "commit", arg(&mount.at("step"))]);
    assert_eq!(listed(&lab.cli, "pot://lab/step"), ["a", "b"]);
    assert_eq!(lab.cli.cat("pot://lab/step/a"), content);
    lab.cli.ok(&["verify", "-r", "pot://lab"]);
}

#[test]
fn manager_death_in_a_checkpoint_commit_leaves_old_or_new() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let usual = begin(&lab.cli, "pot://lab/usual");
    let usual = lab.cli.ok(&["ckpt", "commit", &usual]).took;
    let mut outcomes = BTreeSet::new();
    for round in 0..24_u64 {
        // The moments go over all of a usual commit, and on until both ends have been met.
        if round > 8 && outcomes.len() == 2 {
            break;
        }
        let staging = begin(&lab.cli, "pot://lab/step");
        for name in ["a", "b"] {
            let local = lab.dir().join(name);
            fs::write(&local, format!("{name} of round {round}")).expect("written");
            lab.cli.ok(&["cp", arg(&local), &format!("{staging}/")]);
        }
        // Otherwise a manager that was just started waits for the mounts that may have files open.
        let commit = ["ckpt", "commit", "--even-if-open", staging.as_str()];
        let mut committing = lab.cli.start(&commit);
        pause(usual.mul_f64(round as f64 / 6.0));
        lab.kill_manager();
        committing.kill_9();
        lab.start_manager();
        let text = |name: &str| lab.cli.run(&["cat", &format!("pot://lab/step/{name}")]).stdout;
        let (a, b) = (text("a"), text("b"));
        let of = |name: &str, round: u64| format!("{name} of round {round}").into_bytes();
        let is_new = (&a, &b) == (&of("a", round), &of("b", round));
        let is_old = round == 0 && a.is_empty() && b.is_empty()
            || round > 0 && (&a, &b) == (&of("a", round - 1), &of("b", round - 1));
        assert!(is_new || is_old, "round {round}: {a:?} {b:?}");
        outcomes.insert(is_new);
        lab.cli.ok(&commit);
        assert_eq!(lab.cli.cat("pot://lab/step/a"), of("a", round));
    }
    assert_eq!(outcomes.len(), 2, "only the {outcomes:?} were seen (true: the new one)");
}

#[test]
fn a_checkpoint_expires_that_nobody_writes_to() {
    let lab = Lab::with_options(1, &["--checkpoint-idle", "8s", "--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let staging = begin(&lab.cli, "pot://lab/step");
    let (local, _) = super::content::file(lab.dir(), "a", 1, 200_000);
    lab.cli.ok(&["cp", arg(&local), &format!("{staging}/")]);
    wait_until("it to expire", DEADLINE, || open(&lab.cli).is_empty());
    let gone = lab.cli.fails(3, &["ckpt", "commit", &staging]);
    assert_eq!(gone.code, "POT-E013", "{gone:?}");
    let late = lab.cli.fails(3, &["cp", arg(&local), &format!("{staging}/")]);
    assert_eq!(late.code, "POT-E013", "{late:?}");
    lab.wait_clean(0);
}

#[test]
fn others_see_that_a_checkpoint_is_open_and_reach_nothing_of_it() {
    let lab = Lab::with_donors(1);
    let join = |name: &str| {
        let cli = lab.cli.at_home(&lab.dir().join(name));
        cli.ok(&["join", &lab.token("user"), "--name", name]);
        cli
    };
    let (ada, bert) = (join("ada"), join("bert"));
    ada.ok(&["space", "create", "lab"]);
    let staging = begin(&ada, "pot://lab/step");
    let local = lab.dir().join("a");
    fs::write(&local, "a").expect("written");
    ada.ok(&["cp", arg(&local), &format!("{staging}/")]);
    assert_eq!(open(&bert), Vec::<Value>::new());
    bert.fails(3, &["ckpt", "commit", &staging]);
    ada.ok(&["space", "grant", "lab", "bert", "read"]);
    let shown = &open(&bert)[0];
    assert_eq!((&shown["maker"], &shown["files"]), (&Value::from("ada"), &Value::from(1)));
    assert!(shown["id"].is_null() && shown["staging"].is_null(), "{shown}");
    assert_eq!(listed(&bert, "pot://lab"), Vec::<String>::new());
    bert.fails(8, &["ckpt", "commit", &staging]);
    bert.fails(8, &["ckpt", "begin", "pot://lab/other"]);
    ada.ok(&["space", "grant", "lab", "bert", "write"]);
    bert.fails(3, &["ckpt", "abort", "pot://lab/step"]);
    let mine = open(&lab.cli);
    assert!(mine[0]["id"].is_string(), "an admin may end it: {mine:?}");
    // A member who may write commits by the staging path that it was told.
    bert.ok(&["ckpt", "commit", &staging]);
    assert_eq!(bert.cat("pot://lab/step/a"), b"a");
    // Staged files come under the quota of their space, as visible ones do.
    lab.cli.ok(&["quota", "set", "pot://lab", "--files", "4"]); // a directory counts as a file
    let staging = begin(&ada, "pot://lab/next");
    ada.ok(&["cp", arg(&local), &format!("{staging}/b")]);
    let over = ada.fails(6, &["cp", arg(&local), &format!("{staging}/c")]);
    assert_eq!(over.code, "POT-E035", "{over:?}");
}

#[test]
fn atomic_copy_is_visible_at_one_moment_with_links() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let tree = small_files(lab.dir(), 5000);
    symlink("d00/00000", tree.join("first")).expect("made");
    symlink("nowhere", tree.join("d09/dangling")).expect("made");
    fs::create_dir(tree.join("empty")).expect("made");
    let watcher = Watcher::start(&lab, "pot://lab/tree");
    let member = Member::load(&lab.manager_dir().join("admin"));
    let stat = Stat {
        path: "pot://lab/tree/first".parse().expect("a path"),
        chunks: false,
        unjudged: false,
        room: false,
        after: None,
    };
    let mut copying = lab.cli.start(&["cp", "-r", "--atomic", arg(&tree), "pot://lab/"]);
    wait_until("the link to be there", 3 * DEADLINE, || {
        assert!(copying.ended().is_none_or(|status| status.success()));
        member.call(&stat).is_ok()
    });
    assert_eq!(listed(&lab.cli, "pot://lab/tree").len(), 5000 + 10 + 2 + 1);
    copying.end("the copy");
    // These are the files and links whose size is not zero.
    assert_eq!(watcher.end_at(5002), [0, 5002]);
    assert_eq!(open(&lab.cli), Vec::<Value>::new());

    // A tree is also copied into one that exists, all of its files or none, and inside the pool.
    fs::write(tree.join("d00/00000"), "changed").expect("written");
    fs::write(tree.join("new"), "new").expect("written");
    let report = lab.cli.json(&["cp", "-r", "--atomic", arg(&tree.join("d00")), "pot://lab/tree/"]);
    assert_eq!(report["versions"][0]["path"], "pot://lab/tree/d00/00000");
    assert_eq!(lab.cli.cat("pot://lab/tree/d00/00000"), b"changed");
    let (new, there) = (tree.join("new"), tree.join("d00/00001"));
    let into = "pot://lab/tree/d00/";
    let absent = ["cp", "--atomic", "--if-absent", arg(&new), arg(&there), into];
    let kept = lab.cli.fails(10, &absent);
    assert_eq!(kept.code, "POT-E020", "{kept:?}");
    assert!(kept.message.contains("pot://lab/tree/d00/00001"), "{kept:?}");
    lab.cli.fails(3, &["stat", "pot://lab/tree/d00/new"]);
    lab.cli.ok(&["cp", "-r", "--atomic", "pot://lab/tree/d00", "pot://lab/copies/of/d00"]);
    assert_eq!(listed(&lab.cli, "pot://lab/copies/of/d00").len(), 500);
    let many =
        lab.cli.fails(2, &["cp", "-r", "--atomic", &format!("{}/.", arg(&tree)), "pot://lab/tree"]);
    assert!(many.hint.contains("--atomic"), "{many:?}");
    assert_eq!(open(&lab.cli), Vec::<Value>::new());
}

#[test]
fn a_checkpoint_tells_how_fast_it_was_written_and_stored() {
    let metrics = format!("127.0.0.1:{}", free_port());
    let mut lab = Lab::with_options(3, &["--metrics-listen", &metrics]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "3"]);
    let staging = begin(&lab.cli, "pot://lab/run");
    let rates = |about: &Value| ["oab_mib_s", "asb_mib_s"].map(|name| about[name].as_f64());
    assert_eq!(rates(&open(&lab.cli)[0]), [None, None], "nothing was written");
    let input = lab.dir().join("input");
    fs::write(&input, vec![7; 5 << 20]).expect("written");
    lab.cli.ok(&["cp", arg(&input), &format!("{staging}/state")]);
    let [observed, achieved] = rates(&open(&lab.cli)[0]);
    assert!(observed > Some(0.0) && achieved > Some(0.0), "{observed:?}, {achieved:?}");
    assert!(observed >= achieved, "stored before it was visible");
    let shown = lab.cli.ok(&["ckpt", "ls"]).text();
    let rate = format!("{:.1}", observed.expect("a rate"));
    assert!(shown.contains("OAB") && shown.contains(&rate), "{rate}: {shown}");
    lab.cli.ok(&["ckpt", "commit", "pot://lab/run"]);
    let committed = lab.cli.json(&["ckpt", "ls"])["committed"][0].clone();
    assert_eq!(rates(&committed), [observed, achieved], "{committed}");

    // A copy that repair makes later is timed by nobody, so there is no achieved rate.
    lab.kill_donor("donor-3");
    let staging = begin(&lab.cli, "pot://lab/later");
    lab.cli.ok(&["cp", arg(&input), &format!("{staging}/state")]);
    let [observed, achieved] = rates(&open(&lab.cli)[0]);
    assert!(observed.is_some() && achieved.is_none(), "{observed:?}, {achieved:?}");
    let text = get(&metrics, "/metrics").expect("the manager answers");
    let total = |name: &str| value(&text, &format!("potluck_written_{name}_total"));
    assert_eq!(total("bytes"), Some(f64::from(10 << 20)));
    assert!(total("stored_seconds") >= total("visible_seconds"), "{text}");
    assert!(total("visible_seconds") > Some(0.0), "{text}");
}
