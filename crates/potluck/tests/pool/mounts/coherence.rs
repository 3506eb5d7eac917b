//! Tests that all programs of one mount see a file as it was written so far, as on a local disk, those of other mounts the
//! version of the last close, and that what was synced survives the mount.

use super::{Mount, mounted};
use crate::pool::content::{arg, assert_same, bytes};
use crate::pool::shared_files::truncate;
use crate::pool::waiting::{DEADLINE, has_program, skip, wait_until};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

/// Returns all that a descriptor reads from the beginning, of a file that is as large as fstat() says.
fn seen(file: &File) -> Vec<u8> {
    let size = file.metadata().expect("open").len() as usize;
    let mut bytes = vec![0; size + 10];
    let mut read = 0;
    loop {
        match file.read_at(&mut bytes[read..], read as u64).expect("read") {
            0 => break,
            more => read += more,
        }
    }
    assert_eq!(read, size, "the size that fstat tells");
    bytes.truncate(read);
    bytes
}

fn appending(path: &Path) -> File {
    OpenOptions::new().append(true).open(path).expect("opened")
}

fn said(script: &str, dir: &Path) -> String {
    let ran = Command::new("bash").args(["-c", script]).current_dir(dir).output().expect("bash");
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert!(ran.status.success(), "{script}: {said}");
    said
}

/// Promise M1 is kept for each way in which a program reads a file.
#[test]
fn writes_are_seen_locally_at_once_and_remotely_at_close() {
    let test = "programs_of_a_mount_see_what_was_written_so_far";
    let Some((lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    let (here, there) = (mount.at("f"), other.at("f"));
    fs::write(&here, "old").expect("written");
    wait_until("it to be seen", DEADLINE, || there.exists());

    let elsewhere = File::open(&there).expect("opened");
    let before = File::open(&here).expect("opened");
    assert_eq!(seen(&before), b"old");
    let mut writer = appending(&here);
    let between = File::open(&here).expect("opened");
    writer.write_all(b"NEW").expect("written");
    let after = File::open(&here).expect("opened");
    for (which, reader) in [("before", &before), ("between", &between), ("after", &after)] {
        assert_eq!(seen(reader), b"oldNEW", "opened {which}");
    }
    assert_eq!(fs::metadata(&here).expect("there").len(), 6);
    assert_eq!(
        said("cat f; tail -c 3 f; grep -c NEW f; stat -c %s f", &mount.dir),
        "oldNEWNEW1\n6\n"
    );
    said("tar -cf /dev/null f; cmp f <(printf oldNEW)", &mount.dir);
    assert_eq!(seen(&elsewhere), b"old", "another mount, before the close");
    assert_eq!(fs::read(&there).expect("read"), b"old", "another mount, before the close");
    drop(writer);
    wait_until("it to be seen", DEADLINE, || fs::read(&there).is_ok_and(|it| it == b"oldNEW"));
    assert_eq!(seen(&elsewhere), b"old", "it keeps the version that it opened");

    // Readers go on with the file, also when it is cut off: by a path, by open(), and by a descriptor.
    assert_eq!(truncate(&here, 4), Ok(()));
    assert_eq!(seen(&before), b"oldN");
    let mut writer = File::create(&here).expect("opened");
    assert_eq!(seen(&before), b"");
    writer.write_all(b"again").expect("written");
    assert_eq!((seen(&before), seen(&after)), (b"again".to_vec(), b"again".to_vec()));
    writer.set_len(2).expect("cut off");
    assert_eq!(seen(&before), b"ag");
    drop(writer);
    // What takes the file's name is another file.
    fs::write(mount.at("next"), "next").expect("written");
    fs::rename(mount.at("next"), &here).expect("replaced");
    assert_eq!((seen(&before), fs::read(&here).expect("read")), (b"ag".to_vec(), b"next".to_vec()));

    // A large file that goes to donors in order is read while it is written, and goes on.
    let content = bytes(1, 3 << 20);
    let mut writer = File::create(&here).expect("opened");
    let reader = File::open(&here).expect("opened");
    let mut written = 0;
    for third in content.chunks(1 << 20) {
        writer.write_all(third).expect("written");
        written += third.len();
        assert_same(&seen(&reader), &content[..written], "so far");
        assert_same(&fs::read(&here).expect("read"), &content[..written], "so far");
    }
    drop(writer);
    assert_same(&seen(&reader), &content, "closed");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "in the pool");
    lab.cli.ok(&["verify", "--read", "pot://lab/f"]);
}

/// The option `copytruncate` of logrotate copies a log and cuts it off while its program goes on (promise M1).
#[test]
fn copytruncate_rotation_loses_nothing() {
    let test = "a_log_that_is_copied_and_cut_off_while_a_program_appends";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    for is_synced in [false, true] {
        fs::write(mount.at("log"), "").expect("made");
        let mut log = appending(&mount.at("log"));
        let mut expected = String::new();
        for rotation in 1..=3 {
            for number in 0..100 {
                let line = format!("rotation {rotation}, line {number}\n");
                log.write_all(line.as_bytes()).expect("written");
                expected += &line;
                if is_synced && number % 20 == 0 {
                    log.sync_all().expect("synced");
                }
            }
            if rotation < 3 {
                said(&format!("cp log log.{rotation}; truncate -s 0 log"), &mount.dir);
            }
        }
        drop(log);
        let kept = ["log.1", "log.2", "log"].map(|name| lab.cli.cat(&format!("pot://lab/{name}")));
        assert_same(&kept.concat(), expected.as_bytes(), "all lines");
    }
    if !has_program("python3") {
        return skip(test, "a mapping takes python3");
    }
    // What a program changes in memory and syncs is in the memory of others.
    let script = "
import mmap, os, sys
path = sys.argv[1] + '/m'
open(path, 'wb').write(b'-' * 100000)
r = os.open(path, os.O_RDONLY)
seen = mmap.mmap(r, 100000, prot=mmap.PROT_READ)
assert seen[99990:] == b'-' * 10
w = os.open(path, os.O_RDWR)
m = mmap.mmap(w, 100000)
m[5:8] = b'NEW'
m.flush()
other = os.open(path, os.O_RDONLY)
assert os.pread(other, 4, 5) == b'NEW-' and seen[5:8] == b'NEW', 'what was flushed'
os.write(w, b'first')
os.ftruncate(w, 200000)
os.pwrite(w, b'last', 199996)
assert os.fstat(other).st_size == os.fstat(r).st_size == 200000
more = mmap.mmap(other, 200000, prot=mmap.PROT_READ)
assert more[:8] == b'firstNEW' and more[199996:] == b'last' and seen[:5] == b'first'
";
    let ran = Command::new("python3").args(["-c", script, arg(&mount.dir)]).status();
    assert!(ran.expect("started").success());
}

/// The size in bytes of a record that a program writes and syncs.
const RECORD: usize = 64 << 10;

/// Promise M3 is kept for each way in which a program writes and syncs.
#[test]
fn fsynced_bytes_survive_kill_of_the_mount_m3() {
    let test = "what_fsync_acknowledged_is_in_the_pool";
    let Some((lab, mut mount)) = mounted(test, 2, &["--copies", "2"], &[]) else { return };
    let record = |number: usize| bytes(number as u64, RECORD);
    let old = bytes(1000, 40 * RECORD);
    for name in ["old", "changed"] {
        fs::write(mount.at(name), &old).expect("written");
    }
    let names = ["new", "old", "changed", "dsync"];
    let mut expected = [Vec::new(), old.clone(), old, Vec::new()];
    let open = names.map(|name| {
        let mut options = OpenOptions::new();
        let flags = if name == "dsync" { libc::O_DSYNC } else { 0 };
        let options = options.create(true).write(true).custom_flags(flags);
        options.open(mount.at(name)).expect("opened")
    });
    let mut write = |which: usize, at: usize, bytes: &[u8]| {
        open[which].write_all_at(bytes, at as u64).expect("written");
        let content = &mut expected[which];
        content.resize(content.len().max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(bytes);
        if names[which] != "dsync" {
            open[which].sync_data().expect("synced");
        }
    };
    for number in 0..100 {
        write(0, number * 100, &record(number)[..100]);
    }
    for number in 0..20 {
        write(1, (40 + number) * RECORD, &record(number));
        write(2, (number * 7 % 40) * RECORD, &record(number));
        write(3, number * 3000, &record(number)[..3000]);
    }
    let streamed = bytes(5, 3 << 20);
    let mut stream = File::create(mount.at("streamed")).expect("made");
    stream.write_all(&streamed).expect("written");
    stream.sync_all().expect("synced");
    stream.write_all(b"not synced").expect("written");
    for file in &open[..3] {
        file.write_all_at(b"not synced", 0).expect("written");
    }
    mount.running.kill_9();
    for (name, content) in names.iter().zip(&expected) {
        assert_same(&lab.cli.cat(&format!("pot://lab/{name}")), content, name);
    }
    assert_same(&lab.cli.cat("pot://lab/streamed"), &streamed, "streamed");
    lab.cli.ok(&["verify", "-r", "--read", "pot://lab"]);
}

/// Where no disk is waited for, nothing that was acknowledged may be in the memory of a process alone.
#[test]
fn closed_files_survive_kill_of_mount_and_manager_m4() {
    let test = "what_close_acknowledged_survives_kill_9";
    let policy = &["--copies", "2", "--chunk-size", "64KiB"];
    let Some((mut lab, mount)) = mounted(test, 2, policy, &[]) else { return };
    let mut first_mount = Some(mount);
    let content = |number: u64| bytes(number, [10, 100_000, 4096, 600_000][number as usize % 4]);
    for round in 0..3_u64 {
        let mut mount = first_mount.take().unwrap_or_else(|| Mount::start(&lab, "pot://lab", &[]));
        let first = round * 8;
        for number in first..first + 8 {
            fs::write(mount.at(&number.to_string()), content(number)).expect("written");
        }
        fs::rename(mount.at(&first.to_string()), mount.at("moved")).expect("renamed");
        fs::remove_file(mount.at(&(first + 1).to_string())).expect("removed");
        mount.running.kill_9();
        lab.kill_manager();
        lab.start_manager();
        lab.wait_live();
        assert_same(&lab.cli.cat("pot://lab/moved"), &content(first), "what was renamed");
        for number in first + 2..first + 8 {
            let path = format!("pot://lab/{number}");
            assert_same(&lab.cli.cat(&path), &content(number), &path);
        }
        for gone in [first, first + 1] {
            let path = format!("pot://lab/{gone}");
            assert_ne!(lab.cli.run(&["stat", &path]).code, 0, "{path} is there");
        }
    }
    lab.cli.ok(&["verify", "-r", "--read", "pot://lab"]);
}

/// A program that syncs its file and goes on with it does not depend on what others make of the name.
#[test]
fn synced_open_file_survives_replacement() {
    let test = "synced_open_file_survives_replacement";
    let Some((lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    for size in [1000, 600_000] {
        for is_replaced in [false, true] {
            let content = bytes(1, size);
            let mut file = File::create(mount.at("f")).expect("made");
            file.write_all(&content).expect("written");
            file.sync_all().expect("synced");
            assert_same(&lab.cli.cat("pot://lab/f"), &content, "synced");
            match is_replaced {
                true => {
                    fs::write(lab.dir().join("other"), "other").expect("written");
                    lab.cli.ok(&["cp", arg(&lab.dir().join("other")), "pot://lab/f"]);
                }
                false => drop(lab.cli.ok(&["rm", "pot://lab/f"])),
            }
            file.write_all(b"more").expect("written");
            drop(file);
            assert_same(&lab.cli.cat("pot://lab/f"), &[&content[..], b"more"].concat(), "closed");
        }
    }
}
