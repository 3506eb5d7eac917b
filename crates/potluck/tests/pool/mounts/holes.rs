//! Tests files with holes in a mounted pool: what is extended, skipped over or cut off and extended.

use super::{Mount, can_mount, mounted};
use crate::pool::content::{Lots, arg, bytes};
use crate::pool::holes::{assert_alike, drawn, sparse};
use crate::pool::lab::{Lab, stop};
use crate::pool::waiting::{DEADLINE, wait_until};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time that anything with a hole may take on a busy machine, however long the hole is.
const SOON: Duration = Duration::from_secs(3);

fn soon<T>(what: &str, step: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = step();
    let took = began.elapsed();
    assert!(took < SOON, "{what} took {took:?}");
    done
}

fn read_at(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![1; len];
    file.read_exact_at(&mut bytes, at).expect("read");
    bytes
}

#[test]
fn a_file_is_extended_at_once_however_long_it_becomes() {
    let Some((lab, mut mount)) =
        mounted("a_file_is_extended_at_once", 2, &["--copies", "2"], &["--spool-max", "64MiB"])
    else {
        return;
    };
    let path = mount.at("f");
    const SIZE: u64 = 1 << 40;
    soon("truncate", || {
        let status = Command::new("truncate").args(["-s", "1T"]).arg(&path).status();
        assert!(status.expect("it runs").success());
    });
    soon("a look", || assert_eq!(fs::metadata(&path).expect("there").len(), SIZE));
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    soon("a read", || assert_eq!(read_at(&file, SIZE - 5000, 5000), vec![0; 5000]));
    let far = SIZE / 2 - 3;
    soon("a write", || {
        file.write_all_at(b"here", far).expect("written");
        file.sync_all().expect("synced");
        drop(file);
    });
    let file = File::open(&path).expect("opened");
    soon("reads", || {
        assert_eq!(read_at(&file, far - 3, 10), b"\0\0\0here\0\0\0");
        assert_eq!(read_at(&file, 0, 10), [0; 10]);
    });
    let before = lab.chunk_files();
    assert!(before <= 4, "{before} chunks");
    soon("rm", || fs::remove_file(&path).expect("removed"));
    // It goes on from what is there when it is longer than any chunk.
    let path = mount.at("g");
    fs::write(&path, bytes(1, 5 << 20)).expect("written");
    soon("an extension", || {
        OpenOptions::new().write(true).open(&path).expect("opened").set_len(SIZE).expect("longer");
    });
    let said = lab.cli.json(&["stat", "pot://lab/g"]);
    assert_eq!(said["entry"]["size"].as_u64(), Some(SIZE));
    let file = File::open(&path).expect("opened");
    assert_eq!(read_at(&file, 0, 5 << 20), bytes(1, 5 << 20));
    assert_eq!(read_at(&file, 5 << 20, 1 << 20), vec![0; 1 << 20]);
    let holes = |file: &File, at: u64| seek(file, SeekFrom::Hole(at)).expect("told");
    let data = |file: &File, at: u64| seek(file, SeekFrom::Data(at));
    assert_eq!((data(&file, 7), data(&file, 100 << 20)), (Ok(7), Err(Errno::NXIO)));
    let hole = holes(&file, 0);
    assert!((5 << 20..=8 << 20).contains(&hole), "the data ends at {hole}");
    assert_eq!((holes(&file, 1 << 39), data(&file, SIZE)), (1 << 39, Err(Errno::NXIO)));
    drop(file);
    // So does a file that is being written.
    let file = File::create(mount.at("h")).expect("made");
    file.set_len(1 << 30).expect("longer");
    file.write_all_at(b"there", 1 << 29).expect("written");
    assert_eq!((data(&file, 0), holes(&file, 1 << 29)), (Ok(1 << 29), (1 << 29) + 5));
    drop(file);
    soon("the unmounting", || assert_eq!(stop(&mut mount.running, Signal::TERM), 0));
}

#[test]
fn the_blocks_of_a_file_are_those_of_its_data() {
    const MIB: u64 = 1 << 20;
    let policy = &["--copies", "2", "--chunk-size", "64KiB"];
    let Some((lab, mount)) = mounted("the_blocks_of_a_file_are_those_of_its_data", 2, policy, &[])
    else {
        return;
    };
    lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "50MiB"]);
    let taken = |file: &File| file.metadata().expect("told").blocks() * 512;
    let taken_at = |mount: &Mount| fs::metadata(mount.at("f")).expect("there").blocks() * 512;
    let file = File::create(mount.at("f")).expect("made");
    file.set_len(4 << 30).expect("longer");
    assert_eq!(taken(&file), 0, "it is all hole");
    file.write_all_at(&bytes(1, 3 << 20), 1 << 30).expect("written");
    assert_eq!(taken(&file), 3 * MIB, "while it waits here");
    file.sync_all().expect("synced");
    assert_eq!(taken(&file), 3 * MIB, "while donors have it");
    drop(file);
    assert_eq!(taken_at(&mount), 3 * MIB, "once it is published");
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    assert_eq!(taken_at(&other), 3 * MIB, "in another mount");
    assert_eq!(taken(&File::open(other.at("f")).expect("opened")), 3 * MIB, "for a reader");
    let options = OpenOptions::new().read(true).write(true).open(mount.at("f"));
    let file = options.expect("opened");
    file.write_all_at(&bytes(2, 1 << 20), 2 << 30).expect("written");
    assert_eq!(taken(&file), 4 * MIB, "while it is changed");
    file.set_len((1 << 30) + MIB).expect("cut off");
    assert!((MIB..=4 * MIB).contains(&taken(&file)), "{} are in the file", taken(&file));
    drop(file);
    // The kernel may tell for a moment what was so while the file was open.
    wait_until("the blocks of what was cut off to be gone", DEADLINE, || taken_at(&mount) == MIB);
    fs::write(mount.at("g"), bytes(3, 2 << 20)).expect("written");
    let du = Command::new("du").args(["-s", "-B1"]).arg(&mount.dir).output().expect("it runs");
    let said = String::from_utf8(du.stdout).expect("text");
    assert_eq!(said.split_whitespace().next(), Some((3 * MIB).to_string().as_str()), "{said}");
}

#[test]
fn killed_program_ends_work_on_a_long_hole() {
    let test = "killed_program_ends_work_on_a_long_hole";
    let options = &["--spool-max", "64MiB"];
    let Some((_lab, mut mount)) = mounted(test, 2, &["--copies", "2"], options) else { return };
    let path = mount.at("f");
    // It makes the file longer by truncate(), and goes on behind the hole for as long as it lives.
    let mut writer = Command::new("dd");
    writer.args(["if=/dev/zero", "bs=1M", "seek=1M", "status=none"]);
    let mut of = std::ffi::OsString::from("of=");
    of.push(&path);
    let mut writer = writer.arg(of).spawn().expect("it runs");
    let size = || fs::metadata(&path).map_or(0, |about| about.len());
    wait_until("bytes behind the hole", DEADLINE, || size() > (1 << 40) + (96 << 20));
    soon("the end of the program", || {
        writer.kill().expect("killed");
        writer.wait().expect("ended");
    });
    soon("rm", || fs::remove_file(&path).expect("removed"));
    soon("the unmounting", || assert_eq!(stop(&mut mount.running, Signal::TERM), 0));
}

#[test]
fn files_with_holes_are_written_and_changed_as_on_a_disk() {
    if !can_mount("files_with_holes_are_written_and_changed_as_on_a_disk") {
        return;
    }
    const CHUNK: u64 = 64 << 10;
    let lab = Lab::with_donors(3);
    let mut lots = Lots::new("holes", 28);
    let spaces: [(&str, &[&str]); 3] =
        [("sealed", &["--copies", "2"]), ("coded", &["--ec", "2+1"]), ("plain", &["--plain"])];
    for (space, policy) in spaces {
        lab.cli.ok(&[&["space", "create", space, "--chunk-size", "64KiB"], policy].concat());
        let mount = Mount::start_in(&lab, space, &format!("pot://{space}"), &[]);
        for round in 0..3_u64 {
            let (here, there) = (lab.dir().join("local"), mount.at(&format!("f{round}")));
            let mut size = 1 + lots.below([300_000, 9 << 20, 70 << 20][round as usize]);
            let local = sparse(&here, round, size, &drawn(&mut lots, size, CHUNK));
            let copied = Command::new("cp").arg("--sparse=always").arg(&here).arg(&there).status();
            assert!(copied.expect("it runs").success());
            assert_alike(&File::open(&there).expect("there"), &local, "as it was copied");
            for step in 0..3 {
                let options = OpenOptions::new().read(true).write(true).open(&there);
                let changed = options.expect("opened");
                match lots.below(3) {
                    0 => size = 1 + lots.below(80 << 20),
                    1 => size += lots.below(3 * CHUNK),
                    _ => {}
                }
                for file in [&changed, &local] {
                    file.set_len(size).expect("cut off or extended");
                }
                for (at, len) in drawn(&mut lots, size, CHUNK) {
                    for file in [&changed, &local] {
                        file.write_all_at(&bytes(at + step, len), at).expect("written");
                    }
                }
                let what = format!("step {step} of f{round} in {space}");
                if lots.below(2) == 0 {
                    changed.sync_all().expect("synced");
                }
                assert_alike(&changed, &local, &format!("while it is open, {what}"));
                drop(changed);
                assert_alike(&File::open(&there).expect("there"), &local, &what);
            }
            let back = lab.dir().join("back");
            lab.cli.ok(&["cp", &format!("pot://{space}/f{round}"), arg(&back)]);
            assert_alike(&File::open(&back).expect("there"), &local, "as it is in the pool");
        }
    }
}
