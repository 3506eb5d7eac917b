//! Tests what programs see of files that they have open while the files, or directories above them, change.

use super::{Mount, mounted};
use crate::pool::content::{arg, assert_same, bytes};
use crate::pool::lab::Cli;
use crate::pool::waiting::{DEADLINE, pause, wait_until};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A time long enough for a shell to have begun what it was told.
const BEGUN: Duration = Duration::from_millis(700);
/// A time longer than the kernel believes what a mount told it.
const ASKS_AGAIN: Duration = Duration::from_millis(1500);

fn shell(script: &str, dir: &Path) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(dir);
    command
}

/// Returns the part of a script that waits for a file to be made beside a mount, or for the test to fail, which removes
/// the directory.
fn waits_for(file: &Path) -> String {
    let dir = file.parent().expect("a file in a directory");
    format!("until [ -e {} ] || [ ! -e {} ]; do sleep 0.05; done", arg(file), arg(dir))
}

/// Runs a script to its end, whatever its exit code, and returns what it says.
fn run(script: &str, dir: &Path) -> String {
    let ran = shell(script, dir).output().expect("bash is there");
    String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned()
}

/// Returns the sizes of the versions that are kept of a file.
fn kept_sizes(cli: &Cli, path: &str) -> Vec<u64> {
    let said = cli.json(&["versions", path]);
    let versions = said["kept"].as_array().expect("a list");
    versions.iter().map(|version| version["entry"]["size"].as_u64().expect("a size")).collect()
}

/// Closes a file, and returns the error of close(2) if there is one.
fn close(file: File) -> Option<i32> {
    // SAFETY: the descriptor is this test's own, and nobody else closes it.
    let closed = unsafe { libc::close(file.into_raw_fd()) };
    (closed != 0).then(|| std::io::Error::last_os_error().raw_os_error()).flatten()
}

fn is_there(cli: &Cli, path: &str) -> bool {
    cli.run(&["stat", path]).code == 0
}

/// A shell closes a descriptor of a file as soon as it is another command's standard output.
#[test]
fn empty_new_file_is_not_published_while_open_for_write() {
    let test = "a_file_that_was_begun_and_not_written_is_not_published";
    let policy = ["--keep-versions", "9"];
    let Some((lab, mount)) = mounted(test, 1, &policy, &[]) else { return };
    let old = b"precious old content";
    fs::write(mount.at("f"), old).expect("written");
    // Each script stays until this test has looked.
    let looked = lab.dir().join("looked");
    let stay = waits_for(&looked);
    for script in [
        "exec bash -c 'STAY' > f",
        "(STAY; exit 1) > f",
        "sleep 2 | (STAY; cat) > f",
        "exec 3> f; (STAY) >&3",
    ] {
        fs::write(mount.at("f"), old).expect("written");
        let mut running =
            shell(&script.replace("STAY", &stay), &mount.dir).spawn().expect("started");
        pause(BEGUN);
        assert_eq!(lab.cli.cat("pot://lab/f"), old, "{script}: while it runs");
        fs::write(&looked, "").expect("written");
        running.wait().expect("ended");
        fs::remove_file(&looked).expect("removed");
        // Where the mount cannot tell who has the file, the last close publishes it, a moment after the program has
        // ended.
        wait_until(&format!("{script} to publish nothing"), DEADLINE, || {
            lab.cli.cat("pot://lab/f").is_empty()
        });
    }
    // A program starts another that has the file, and closes the file itself.
    fs::write(mount.at("f"), old).expect("written");
    let output = File::create(mount.at("f")).expect("opened");
    let mut command = shell(&format!("{stay}; echo late"), &mount.dir);
    let mut running = command.stdout(Stdio::from(output)).spawn().expect("started");
    drop(command); // which has its descriptor
    pause(BEGUN);
    assert_eq!(lab.cli.cat("pot://lab/f"), old, "while the other runs");
    fs::write(&looked, "").expect("written");
    running.wait().expect("ended");
    wait_until("it to be published", DEADLINE, || lab.cli.cat("pot://lab/f") == b"late\n");

    for script in [
        "for i in 1 2 3; do echo version $i > n; done",
        "for i in 1 2 3; do echo version $i | dd of=n status=none; done",
        "for i in 1 2 3; do echo version $i | cat > n; done",
        "rm n; echo first >> n; echo second >> n; (sleep 0.1; echo third) >> n",
    ] {
        run(script, &mount.dir);
        let sizes = kept_sizes(&lab.cli, "pot://lab/n");
        assert!(!sizes.is_empty() && !sizes.contains(&0), "{script}: {sizes:?}");
    }
    // A file that is empty on purpose is there when the program has ended.
    run(": > empty; touch touched; echo x > cut; : > cut; truncate -s 7 long", &mount.dir);
    for (name, size) in [("empty", 0), ("touched", 0), ("cut", 0), ("long", 7)] {
        assert_eq!(lab.cli.cat(&format!("pot://lab/{name}")).len(), size, "{name}");
    }
}

#[test]
fn checkpoint_commit_waits_for_a_shell_redirection() {
    let test = "checkpoint_commit_waits_for_a_shell_redirection";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let scripts = ["(WAIT; echo late) > log", "exec 3> log; echo early >&3; WAIT; echo late >&3"];
    for (number, script) in scripts.into_iter().enumerate() {
        let dir = mount.at(&format!("ck-{number}"));
        let go = lab.dir().join(format!("go-{number}"));
        lab.cli.ok(&["ckpt", "begin", arg(&dir)]);
        let mut running = {
            let script = script.replace("WAIT", &waits_for(&go));
            shell(&script, &dir).spawn().expect("started")
        };
        wait_until("the file to be open", DEADLINE, || dir.join("log").exists());
        lab.cli.fails(10, &["ckpt", "commit", arg(&dir)]);
        fs::write(&go, "").expect("made");
        running.wait().expect("ended");
        lab.cli.ok(&["ckpt", "commit", arg(&dir)]);
        let log = lab.cli.cat(&format!("pot://lab/ck-{number}/log"));
        assert!(log.ends_with(b"late\n"), "{script}");
    }
}

#[test]
fn failed_write_fails_close_without_publishing() {
    let test = "a_file_of_which_a_write_failed_is_not_published";
    let Some((lab, mount)) = mounted(test, 1, &["--copies", "1"], &[]) else { return };
    let old = bytes(1, 300_000);
    for name in ["f", "g"] {
        fs::write(mount.at(name), &old).expect("written");
    }
    // From now on no write session is opened.
    let policy =
        ["policy", "set", "pot://lab", "--copies", "3", "--strict", "--new-files-only", "-y"];
    for (name, keeps) in [("f", false), ("g", false), ("new", true)] {
        lab.cli.ok(&policy);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(!keeps);
        let mut writer = options.open(mount.at(name)).expect("opened");
        // This is more than is kept in memory until the close.
        let refused = writer.write_all(&bytes(2, 600_000)).expect_err("there is no room");
        let why = refused.raw_os_error();
        assert!([Some(libc::ENOSPC), Some(libc::EDQUOT)].contains(&why), "{refused}");
        let room = ["policy", "set", "pot://lab", "--copies", "1", "--strict=false", "-y"];
        lab.cli.ok(&room); // by now
        assert_eq!(close(writer), why, "{name}");
    }
    assert_same(&lab.cli.cat("pot://lab/f"), &old, "the old version");
    assert_same(&lab.cli.cat("pot://lab/g"), &old, "the old version");
    lab.cli.fails(3, &["stat", "pot://lab/new"]);
}

#[test]
fn concurrent_reader_does_not_publish_a_partial_file() {
    let test = "who_reads_a_new_file_while_it_is_written";
    let Some((lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    let content = bytes(1, 600_000);
    let mut writer = File::create(mount.at("f")).expect("made");
    let mut written = 0;
    for half in content.chunks(300_000) {
        writer.write_all(half).expect("written");
        written += half.len();
        assert_same(&fs::read(mount.at("f")).expect("read"), &content[..written], "so far");
        assert!(!is_there(&lab.cli, "pot://lab/f"), "half a file is seen");
    }
    assert_eq!(close(writer), None);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "closed");
}

#[test]
fn reader_of_a_new_file_keeps_its_published_version() {
    let test = "who_read_a_file_while_it_was_made_keeps_what_its_writer_published";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let (here, there) = (mount.at("f"), other.at("f"));
    let append = |path: &Path, line: &str| {
        let mut file = OpenOptions::new().append(true).open(path).expect("opened");
        file.write_all(line.as_bytes()).expect("written");
    };
    let mut writer = File::create(&here).expect("made");
    writer.write_all(b"one\n").expect("written");
    let reader = File::open(&here).expect("opened");
    let mut seen = [0; 9];
    assert_eq!(reader.read_at(&mut seen, 0).expect("read"), 4);
    assert_eq!(close(writer), None);
    wait_until("it to be seen", DEADLINE, || fs::read(&there).is_ok_and(|seen| seen == b"one\n"));
    append(&there, "two\n");
    wait_until("it to be seen", DEADLINE, || fs::metadata(&here).is_ok_and(|it| it.len() == 8));
    append(&here, "three\n");
    assert_eq!(lab.cli.cat("pot://lab/f"), b"one\ntwo\nthree\n", "what others wrote is kept");
    assert_eq!(reader.metadata().expect("open").len(), 4);
    assert_eq!((reader.read_at(&mut seen, 0).expect("read"), &seen[..4]), (4, &b"one\n"[..]));
}

/// The kernel releases an earlier descriptor when nothing has it any more, here a mapping; by itself it may also be a
/// moment late.
#[test]
fn earlier_release_does_not_publish_a_rewritten_file() {
    let test = "a_file_that_is_written_anew_is_not_published_by_the_release";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let script = "
import ctypes, mmap, os, sys, time
c = ctypes.CDLL(None, use_errno=True)
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
first = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(first, b'O' * 200000)
at = c.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_PRIVATE, first, 0)
assert at not in (None, ctypes.c_void_p(-1).value), ctypes.get_errno()
os.close(first)
second = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
os.write(second, b'N' * 300000)
assert c.munmap(at, 4096) == 0
time.sleep(1)
open(sys.argv[2], 'w').close()
sys.stdin.read()
os.close(second)
";
    let released = lab.dir().join("released");
    let mut command = Command::new("python3");
    command.args(["-c", script]).args([&mount.at("f"), &released]).stdin(Stdio::piped());
    let Ok(mut running) = command.spawn() else {
        return crate::pool::waiting::skip(test, "a mapping takes python3");
    };
    wait_until("the first descriptor to be released", DEADLINE, || {
        released.exists() || running.try_wait().expect("known").is_some()
    });
    assert_same(&lab.cli.cat("pot://lab/f"), &[b'O'; 200_000], "not closed yet");
    drop(running.stdin.take());
    assert!(running.wait().expect("ended").success());
    assert_same(&lab.cli.cat("pot://lab/f"), &[b'N'; 300_000], "closed");
}

#[test]
fn open_file_follows_parent_renames() {
    let test = "open_file_follows_parent_renames";
    let Some((lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    let (old, new) = (bytes(1, 200_000), bytes(2, 300_000));
    fs::create_dir(mount.at("run.tmp")).expect("made");
    fs::write(mount.at("run.tmp/cut"), &old).expect("written");
    fs::write(mount.at("run.tmp/changed"), &old).expect("written");
    let mut made = File::create(mount.at("run.tmp/new")).expect("made");
    let mut cut = File::create(mount.at("run.tmp/cut")).expect("opened");
    let unwritten = File::create(mount.at("run.tmp/unwritten")).expect("made");
    made.write_all(&new).expect("written");
    cut.write_all(&new).expect("written");
    let changed = OpenOptions::new().write(true).open(mount.at("run.tmp/changed")).expect("opened");
    changed.write_all_at(b"changed", 1000).expect("written");
    changed.sync_all().expect("synced");
    fs::rename(mount.at("run.tmp"), mount.at("run")).expect("moved");
    made.write_all(&new).expect("written");
    assert_same(&lab.cli.cat("pot://lab/run/cut"), &old, "not closed yet");
    drop((made, cut, changed, unwritten));
    lab.cli.fails(3, &["stat", "pot://lab/run.tmp"]);
    assert_same(&lab.cli.cat("pot://lab/run/new"), &[&new[..], &new].concat(), "the new one");
    assert_same(&lab.cli.cat("pot://lab/run/cut"), &new, "the one that was cut off");
    assert_same(&lab.cli.cat("pot://lab/run/unwritten"), b"", "the empty one");
    let mut expected = old.clone();
    expected[1000..1007].copy_from_slice(b"changed");
    assert_same(&lab.cli.cat("pot://lab/run/changed"), &expected, "the changed one");
    lab.cli.ok(&["verify", "-r", "--read", "pot://lab/run"]);

    // When somebody else renames the directory, what was written is not put where the directory was.
    fs::create_dir(mount.at("e.tmp")).expect("made");
    let mut made = File::create(mount.at("e.tmp/f")).expect("made");
    made.write_all(&new).expect("written");
    lab.cli.ok(&["mv", "pot://lab/e.tmp", "pot://lab/e"]);
    assert_eq!(close(made), Some(libc::ESTALE));
    lab.cli.fails(3, &["stat", "pot://lab/e.tmp"]);
    let said = lab.cli.json(&["umount", arg(&mount.dir)]);
    assert_eq!(said["unpublished"], serde_json::json!([]), "the program was told: {said}");
}

#[test]
fn a_directory_with_a_file_that_is_written_is_not_empty() {
    let test = "a_directory_with_a_file_that_is_written_is_not_empty";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    fs::create_dir_all(mount.at("d/below")).expect("made");
    fs::create_dir(mount.at("other")).expect("made");
    let mut writer = File::create(mount.at("d/below/f")).expect("made");
    writer.write_all(b"written").expect("written");
    let full = fs::remove_dir(mount.at("d/below")).expect_err("not empty");
    assert_eq!(full.raw_os_error(), Some(libc::ENOTEMPTY));
    let full = fs::rename(mount.at("other"), mount.at("d/below")).expect_err("not empty");
    assert_eq!(full.raw_os_error(), Some(libc::ENOTEMPTY));
    assert_eq!(close(writer), None);
    assert_eq!(lab.cli.cat("pot://lab/d/below/f"), b"written");
    let removed = File::create(mount.at("d/below/g")).expect("made");
    fs::remove_dir_all(mount.at("d")).expect("removed with what is written in it");
    drop(removed);
    assert!(!is_there(&lab.cli, "pot://lab/d"));
}

#[test]
fn open_file_can_be_renamed_before_close() {
    let test = "open_file_can_be_renamed_before_close";
    let Some((lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    let (old, half) = (bytes(1, 1000), bytes(2, 300_000));
    for (begun, target) in
        [("new", "free"), ("new", "taken"), ("exclusive", "taken"), ("old", "taken")]
    {
        fs::write(mount.at("taken"), &old).expect("written");
        let mut options = OpenOptions::new();
        options.write(true);
        match begun {
            "old" => {
                fs::write(mount.at(begun), &old).expect("written");
                options.truncate(true);
            }
            "exclusive" => drop(options.create_new(true)),
            _ => drop(options.create(true).truncate(true)),
        }
        let mut writer = options.open(mount.at(begun)).expect("opened");
        writer.write_all(&half).expect("written");
        fs::rename(mount.at(begun), mount.at(target)).expect("moved");
        assert!(!mount.at(begun).exists(), "{begun}");
        assert_eq!(fs::metadata(mount.at(target)).expect("moved").len(), half.len() as u64);
        match target {
            "free" => assert!(!is_there(&lab.cli, "pot://lab/free"), "half a file is seen"),
            _ => assert_same(&lab.cli.cat("pot://lab/taken"), &old, "not closed yet"),
        }
        writer.write_all(&half).expect("written");
        assert_eq!(close(writer), None, "{begun} to {target}");
        let whole = [&half[..], &half].concat();
        assert_same(&lab.cli.cat(&format!("pot://lab/{target}")), &whole, begun);
        assert!(!is_there(&lab.cli, &format!("pot://lab/{begun}")), "{begun}");
        fs::remove_file(mount.at(target)).expect("removed");
    }
    // A draft that is renamed with --no-clobber replaces nothing.
    fs::write(mount.at("taken"), &old).expect("written");
    let writer = File::create(mount.at("n")).expect("made");
    let refused = run("mv -T --no-clobber --verbose n taken; ls n", &mount.dir);
    assert!(refused.contains("n\n") && !refused.contains("renamed"), "{refused}");
    drop(writer);
    assert_same(&lab.cli.cat("pot://lab/taken"), &old, "what was there");
}

#[test]
fn writes_after_a_close_publish_at_the_next_close() {
    let test = "a_file_that_is_written_after_one_descriptor_was_closed";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let writer = File::create(mount.at("f")).expect("made");
    writer.write_all_at(b"first", 0).expect("written");
    assert_eq!(close(writer.try_clone().expect("another descriptor")), None);
    assert_eq!(lab.cli.cat("pot://lab/f"), b"first");
    writer.write_all_at(b"SECOND", 0).expect("written");
    fs::rename(mount.at("f"), mount.at("g")).expect("moved");
    assert_eq!(lab.cli.cat("pot://lab/g"), b"first", "the rest is not closed yet");
    writer.write_all_at(b"THIRD.", 6).expect("written");
    assert_eq!(close(writer), None);
    assert_eq!(lab.cli.cat("pot://lab/g"), b"SECONDTHIRD.");
}

#[test]
fn unlinked_open_file_stays_usable() {
    let test = "unlinked_open_file_stays_usable";
    let Some((lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    let content = bytes(1, 300_000);
    for begun in ["made", "published", "closed once"] {
        let path = mount.at("f");
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let mut file = match begun {
            "published" => {
                fs::write(&path, &content).expect("written");
                options.open(&path).expect("opened")
            }
            _ => options.create_new(true).open(&path).expect("made"),
        };
        if begun != "published" {
            file.write_all(&content).expect("written");
        }
        if begun == "closed once" {
            drop(file.try_clone().expect("a second descriptor"));
            assert_same(&lab.cli.cat("pot://lab/f"), &content, "published");
        }
        match begun {
            "made" => fs::remove_file(&path).expect("removed"),
            _ => {
                fs::write(mount.at("other"), "other").expect("written");
                fs::rename(mount.at("other"), &path).expect("replaced");
            }
        }
        file.write_all_at(b"changed", 1000).expect("written");
        file.sync_all().expect("synced");
        file.set_len(200_000).expect("cut off");
        let mut expected = content[..200_000].to_vec();
        expected[1000..1007].copy_from_slice(b"changed");
        let mut seen = Vec::new();
        file.rewind().expect("moved");
        file.read_to_end(&mut seen).expect("read");
        assert_same(&seen, &expected, begun);
        assert_eq!(file.metadata().expect("there").len(), 200_000, "{begun}");
        assert_eq!(close(file), None, "{begun}");
        match begun {
            "made" => assert!(!is_there(&lab.cli, "pot://lab/f")),
            _ => {
                assert_eq!(lab.cli.cat("pot://lab/f"), b"other", "{begun}");
                fs::remove_file(&path).expect("removed");
            }
        }
    }
    let script = "
import tempfile, sys
with tempfile.TemporaryFile(dir=sys.argv[1]) as f:
    f.write(b'x' * 100000); f.seek(0); assert f.read() == b'x' * 100000
    f.truncate(10); f.flush(); f.seek(0); assert f.read() == b'x' * 10
";
    match Command::new("python3").args(["-c", script]).arg(&mount.dir).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => crate::pool::waiting::skip(test, "TemporaryFile takes python3"),
    }
    assert_eq!(lab.cli.json(&["ls", "pot://lab"])["entries"], serde_json::json!([]));
    let said = lab.cli.json(&["umount", arg(&mount.dir)]);
    assert_eq!(said["unpublished"], serde_json::json!([]), "{said}");
}

#[test]
fn close_does_not_resurrect_a_removed_file() {
    let test = "close_does_not_resurrect_a_removed_file";
    let Some((mut lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let (path, other) = (mount.at("f"), mount.at("other"));
    for is_replaced in [false, true] {
        fs::write(&path, bytes(1, 300_000)).expect("written");
        fs::write(&other, "other").expect("written");
        let writer = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
        writer.write_all_at(b"changed", 1000).expect("written");
        lab.manager().signal(Signal::STOP);
        let (path, other) = (path.clone(), other.clone());
        let changing = thread::spawn(move || match is_replaced {
            true => fs::rename(other, path),
            false => fs::remove_file(path),
        });
        pause(BEGUN);
        let closing = thread::spawn(move || close(writer));
        pause(BEGUN);
        lab.manager().signal(Signal::CONT);
        changing.join().expect("no panic").expect("done");
        assert_eq!(closing.join().expect("no panic"), None);
        match is_replaced {
            true => assert_eq!(lab.cli.cat("pot://lab/f"), b"other"),
            false => assert!(!is_there(&lab.cli, "pot://lab/f")),
        }
    }
}

#[test]
fn listing_does_not_wait_for_a_pending_close() {
    let test = "a_directory_is_listed_while_a_file_in_it_is_closed";
    let Some((mut lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    let content = bytes(1, 2 << 20);
    let mut writer = File::create(mount.at("f")).expect("made");
    writer.write_all(&content[..1 << 20]).expect("written");
    lab.donor("donor-1").signal(Signal::STOP);
    writer.write_all(&content[1 << 20..]).expect("written");
    let closing = thread::spawn(move || close(writer));
    pause(ASKS_AGAIN);
    let asked = Instant::now();
    let listed = fs::read_dir(&mount.dir).expect("listed").map(|entry| entry.expect("read"));
    let sizes: Vec<u64> = listed.map(|entry| entry.metadata().expect("there").len()).collect();
    let took = asked.elapsed();
    assert_eq!(sizes, [2 << 20]);
    assert!(!closing.is_finished() && took < Duration::from_secs(5), "it waited for {took:?}");
    lab.donor("donor-1").signal(Signal::CONT);
    assert_eq!(closing.join().expect("no panic"), None);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "what was closed");
}

#[test]
fn an_open_reader_is_told_of_the_version_that_it_reads() {
    let test = "an_open_reader_is_told_of_the_version_that_it_reads";
    let Some((lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let (old, new) = (bytes(1, 300_000), bytes(2, 1000));
    let replace = |mount: &Mount, path: &Path| {
        fs::write(mount.at("new"), &new).expect("written");
        fs::rename(mount.at("new"), path).expect("replaced");
    };
    let by_name = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
    type Change<'a> = &'a dyn Fn(&Path, &Path);
    let changes: [(&str, usize, Change<'_>); 6] = [
        ("replaced here", 1000, &|here, _| replace(&mount, here)),
        ("removed here", 0, &|here, _| fs::remove_file(here).expect("removed")),
        ("written there", 1000, &|_, there| fs::write(there, &new).expect("written")),
        ("cut off there", 7, &|_, there| {
            drop(run("truncate -s 7 f", there.parent().expect("one")))
        }),
        ("replaced there", 1000, &|_, there| replace(&other, there)),
        ("removed there", 0, &|_, there| fs::remove_file(there).expect("removed")),
    ];
    for (what, size, change) in changes {
        let (here, there) = (mount.at("f"), other.at("f"));
        fs::write(&here, &old).expect("written");
        wait_until("it to be seen", DEADLINE, || fs::read(&there).is_ok_and(|seen| seen == old));
        let mut reader = File::open(&here).expect("opened");
        let mut begin = [0; 100];
        reader.read_exact(&mut begin).expect("read");
        change(&here, &there);
        for round in ["at once", "later"] {
            let told = reader.metadata().unwrap_or_else(|why| panic!("{what}: {why}")).len();
            assert_eq!(told, old.len() as u64, "{what}, {round}: fstat");
            let end = reader.seek(SeekFrom::End(0)).expect("moved");
            assert_eq!(end, old.len() as u64, "{what}, {round}: the end");
            reader.rewind().expect("moved");
            let mut seen = Vec::new();
            reader.read_to_end(&mut seen).expect("read");
            assert_same(&seen, &old, what);
            if !what.ends_with(" here") {
                wait_until("it to be seen", DEADLINE, || by_name(&here) == size as u64);
            }
            assert_eq!(by_name(&here), size as u64, "{what}, {round}: by name");
            if round == "at once" {
                pause(ASKS_AGAIN);
            }
        }
        // A program that opens the file now reads what is there, also while the old reader goes on.
        match size {
            0 => assert!(File::open(&here).is_err(), "{what}"),
            size => {
                let mut second = File::open(&here).expect("opened");
                let mut seen = Vec::new();
                second.read_to_end(&mut seen).expect("read");
                assert_eq!(seen.len(), size, "{what}");
                assert_eq!(second.metadata().expect("there").len(), size as u64, "{what}");
                assert_eq!(reader.metadata().expect("there").len(), old.len() as u64, "{what}");
            }
        }
        drop(reader);
        let _ = fs::remove_file(&here);
        wait_until("it to go", DEADLINE, || !there.exists());
    }
    // The file is mapped into memory, and replaced by a shorter one.
    let script = "
import mmap, os, sys, time
here, there = sys.argv[1] + '/m', sys.argv[2] + '/m'
open(here, 'wb').write(b'O' * 1000000)
f = os.open(here, os.O_RDONLY)
m = mmap.mmap(f, 1000000, prot=mmap.PROT_READ)
assert m[:4] == b'OOOO'
time.sleep(1.5)
open(there, 'wb').write(b'N' * 10)
time.sleep(1.5)
assert os.fstat(f).st_size == 1000000
assert m[999000:] == b'O' * 1000 and m[:4] == b'OOOO'
";
    match Command::new("python3").args(["-c", script]).args([&mount.dir, &other.dir]).status() {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(_) => crate::pool::waiting::skip(test, "a mapping takes python3"),
    }
}

#[test]
fn repeatedly_replaced_file_reads_whole_versions() {
    let test = "a_file_that_is_replaced_again_and_again_is_read_whole";
    let Some((_lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let path = mount.at("f");
    fs::write(&path, [0; 1000]).expect("written");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..150_usize {
                let name = mount.at("next");
                fs::write(&name, vec![round as u8; 1000 + round]).expect("written");
                fs::rename(&name, &path).expect("replaced");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let mut file = File::open(&path).expect("it is always there");
                    let mut seen = Vec::new();
                    file.read_to_end(&mut seen).expect("read");
                    let kind = seen.first().copied().unwrap_or_default();
                    assert!(seen.iter().all(|byte| *byte == kind), "parts of two versions");
                    assert_eq!(seen.len(), 1000 + usize::from(kind), "a part of version {kind}");
                }
            });
        }
    });
}
