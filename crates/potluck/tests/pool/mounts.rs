//! Tests a mounted pool through the system calls that programs make.

mod attributes;
mod changing_names;
mod chunk_cache;
mod close_local;
mod coherence;
mod edits;
mod exclusive_names;
mod extended_attributes;
mod holes;
mod links;
mod locks;
mod metadata_cache;
mod model;
mod open_files;
mod owners;
mod programs;
mod small_files;
mod streams;
mod write_behind;

use super::content::{arg, assert_same, bytes};
use super::lab::{Cli, Lab, stop};
use super::machines::{Machine, Machines, Naming};
use super::program::Running;
use super::waiting::{DEADLINE, has_program, is_root, pause, skip, wait_until};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mount that is taken away when it is dropped.
pub struct Mount {
    pub running: Running,
    pub dir: PathBuf,
}

impl Mount {
    /// Mounts a path of a pool below the test's directory.
    pub fn start(lab: &Lab, path: &str, options: &[&str]) -> Self {
        Self::start_in(lab, "mounted", path, options)
    }

    /// Mounts a path of a pool in a directory of this name.
    pub fn start_in(lab: &Lab, name: &str, path: &str, options: &[&str]) -> Self {
        Self::start_as(&lab.cli, lab.dir(), name, path, options)
    }

    /// Mounts a path of a pool as `user`, in a directory of this name in `place`.
    pub fn start_as(user: &Cli, place: &Path, name: &str, path: &str, options: &[&str]) -> Self {
        let (dir, ready) = (place.join(name), place.join(format!("{name}.ready")));
        let _ = fs::create_dir(&dir); // it is there where a mount died
        let _ = fs::remove_file(&ready); // an earlier mount may have left one
        // Many tests are about what one mount sees of another, and the user has both.
        let args = ["mount", "--foreground", "--again", path, arg(&dir)];
        let args = [&args[..], &["--ready-file", arg(&ready)]].concat();
        let args = [&args[..], options].concat();
        let mut running = user.start(&args);
        wait_until("the mount to serve", DEADLINE, || {
            assert!(running.ended().is_none(), "{}", user.said_by_the_last());
            ready.exists()
        });
        Self { running, dir }
    }

    /// Returns where a path of the mounted directory is.
    pub fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.running.kill_9();
        let mut command = std::process::Command::new("fusermount3");
        // This fails if the test has unmounted it already.
        let _ = command.args(["-q", "-u", "-z"]).arg(&self.dir).status();
    }
}

/// Returns whether this machine and user can mount, and says so where they cannot.
pub fn can_mount(test: &str) -> bool {
    let can = Path::new("/dev/fuse").exists() && is_root() && has_program("fusermount3");
    if !can {
        skip(test, "mounting takes /dev/fuse, root and fusermount3");
    }
    can
}

/// Makes a pool with one space, kept by `policy` and mounted with `options`. Where nothing can be mounted, says so and
/// returns `None`.
pub fn mounted(
    test: &str,
    donors: usize,
    policy: &[&str],
    options: &[&str],
) -> Option<(Lab, Mount)> {
    if !can_mount(test) {
        return None;
    }
    let lab = Lab::with_donors(donors);
    lab.cli.ok(&[&["space", "create", "lab"], policy].concat());
    let mount = Mount::start(&lab, "pot://lab", options);
    Some((lab, mount))
}

#[test]
fn mount_write_appears_at_close_and_readers_keep_the_old() {
    let Some((lab, mut mount)) =
        mounted("a_file_written_to_a_mount_appears_whole_at_close", 2, &["--copies", "2"], &[])
    else {
        return;
    };
    let (first, second) = (bytes(1, (9 << 20) + 5), bytes(2, 300_000));
    let path = mount.at("f");
    let mut writer = File::create(&path).expect("made");
    writer.write_all(&first).expect("written");
    assert_eq!(fs::metadata(&path).expect("seen here").len(), first.len() as u64);
    lab.cli.fails(3, &["stat", "pot://lab/f"]);
    drop(writer);
    assert_same(&lab.cli.cat("pot://lab/f"), &first, "the pool's");
    assert_same(&fs::read(&path).expect("read"), &first, "the mount's");

    let mut reader = File::open(&path).expect("opened");
    let mut begin = vec![0; 1000];
    reader.read_exact(&mut begin).expect("read");
    fs::write(mount.at("next"), &second).expect("written");
    fs::rename(mount.at("next"), &path).expect("replaced");
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("read");
    drop(reader);
    assert_same(&[begin, rest].concat(), &first, "the version that was opened");
    assert_same(&lab.cli.cat("pot://lab/f"), &second, "the new version");

    // A file of the pool is changed in the middle.
    let changing = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    changing.write_all_at(b"changed", 1000).expect("written");
    changing.set_len(200_000).expect("cut off");
    let mut seen = [0; 7];
    changing.read_exact_at(&mut seen, 1000).expect("read back");
    assert_eq!(&seen, b"changed");
    assert_same(&lab.cli.cat("pot://lab/f"), &second, "not closed yet");
    drop(changing);
    let mut expected = second[..200_000].to_vec();
    expected[1000..1007].copy_from_slice(b"changed");
    assert_same(&lab.cli.cat("pot://lab/f"), &expected, "closed");

    lab.cli.ok(&["umount", arg(&mount.dir)]);
    assert_eq!(super::program::code_of(mount.running.end("the mount")), 0);
    assert_eq!(lab.cli.json(&["umount", arg(&mount.dir)])["was_mounted"], false);
}

#[test]
fn open_file_stays_readable_after_removal_or_replacement_a5() {
    if !can_mount("what_a_program_has_open_stays_readable_when_its_file_is_removed") {
        return;
    }
    let mut lab = Lab::with_options(2, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let mount = Mount::start(&lab, "pot://lab", &[]);
    let content = |number| bytes(number, (2 << 20) + 5);
    let open = |(number, name): (u64, &str)| {
        fs::write(mount.at(name), content(number)).expect("written");
        let mut reader = File::open(mount.at(name)).expect("opened");
        let mut begin = vec![0; 1000];
        reader.read_exact(&mut begin).expect("read");
        (number, begin, reader)
    };
    let opened = [(1, "removed"), (2, "replaced"), (3, "d"), (4, "later")].map(open);
    fs::write(lab.dir().join("other"), "other").expect("a file");
    lab.cli.ok(&["rm", "pot://lab/removed"]);
    lab.cli.ok(&["cp", arg(&lab.dir().join("other")), "pot://lab/replaced"]);
    lab.cli.ok(&["mv", "pot://lab/d", "pot://lab/elsewhere"]);
    lab.cli.ok(&["rm", "pot://lab/elsewhere"]);
    // A manager that started again learns of leases as soon as the mount hears it, long before they have to be renewed.
    lab.kill_manager();
    lab.start_manager();
    lab.wait_live();
    pause(Duration::from_secs(5));
    lab.cli.ok(&["rm", "pot://lab/later"]);
    // The first leases are over by then, and so is the time in which a manager that started believes anybody.
    pause(Duration::from_secs(75));
    for (number, mut seen, mut reader) in opened {
        reader.read_to_end(&mut seen).expect("read");
        assert_same(&seen, &content(number), "the version that was opened");
    }
    assert_eq!(fs::read_to_string(mount.at("replaced")).expect("read"), "other");
}

#[test]
fn mount_shows_granted_spaces_only() {
    let test = "mount_shows_granted_spaces_only";
    if !can_mount(test) {
        return;
    }
    let Some(lab) = Machines::new(test, Naming::Dns, &["alice", "laptop"]) else { return };
    let (alice, laptop) = (lab.machine("alice"), lab.machine("laptop"));
    alice.start("potluck up --max 1GiB", "lending up to ");
    alice.sh("potluck space create lab").ok();
    alice.sh("head -c 9000000 /dev/urandom > f; potluck cp f pot://lab/f").ok();
    let token = alice.sh("potluck --quiet invite --role user").ok().text();
    laptop.sh(&format!("mkdir m; potluck join {token}")).ok();
    assert_eq!(
        laptop.sh("potluck mount pot://lab m").code,
        3,
        "it is not there for whom it is not"
    );

    alice.sh("potluck space grant lab everyone read").ok();
    laptop.start("potluck mount --foreground pot://lab m", "is mounted at");
    let sum =
        |machine: &Machine, file: &str| machine.sh(&format!("sha256sum < {file}")).ok().text();
    assert_eq!(sum(laptop, "m/f"), sum(alice, "f"));
    let refused = laptop.sh("cp m/f m/g");
    assert!(refused.stderr.contains("Permission denied"), "{}", refused.stderr);
    assert_eq!(laptop.sh("rm m/f").code, 1);
    alice.sh("potluck space grant lab everyone write").ok();
    laptop.sh("cp m/f m/g").ok();
    alice.sh("potluck cat pot://lab/g | cmp - f").ok();
    laptop.sh("potluck umount m").ok();
}

#[test]
fn mount_supports_name_changes_and_dead_mounts_are_removed() {
    let Some((lab, mut mount)) =
        mounted("names_change_through_a_mount_as_programs_expect", 1, &[], &[])
    else {
        return;
    };
    fs::create_dir(mount.at("d")).expect("made");
    let again = fs::create_dir(mount.at("d")).expect_err("there");
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    fs::write(mount.at("d/a"), "one").expect("written");
    fs::write(mount.at("d/b"), "two").expect("written");
    let full = fs::remove_dir(mount.at("d")).expect_err("not empty");
    assert_eq!(full.kind(), std::io::ErrorKind::DirectoryNotEmpty);
    fs::rename(mount.at("d/a"), mount.at("d/b")).expect("replaced");
    assert_eq!(fs::read(mount.at("d/b")).expect("read"), b"one");
    let names = fs::read_dir(mount.at("d")).expect("listed");
    let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["b"]);
    let link = fs::hard_link(mount.at("d/b"), mount.at("d/l")).expect_err("none are kept");
    assert_eq!(link.raw_os_error(), Some(libc::EOPNOTSUPP));
    fs::remove_file(mount.at("d/b")).expect("removed");
    fs::remove_dir(mount.at("d")).expect("removed");
    assert_eq!(lab.cli.json(&["ls", "pot://lab"])["entries"], serde_json::json!([]));

    // A file that was not closed when its mount died is not there, and the next mount takes the place of the dead one.
    let mut writer = File::create(mount.at("half")).expect("made");
    writer.write_all(b"half").expect("written");
    mount.running.kill_9();
    drop(writer);
    let dead = fs::metadata(&mount.dir).expect_err("nobody serves");
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
    let mut next = Mount::start(&lab, "pot://lab", &["--read-only"]);
    assert_eq!(fs::read_dir(&next.dir).expect("served again").count(), 0);
    let refused = fs::write(next.at("x"), "x").expect_err("read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(stop(&mut next.running, Signal::TERM), 0);
    assert!(fs::metadata(next.at("x")).is_err());
}

#[test]
fn over_quota_write_fails_and_keeps_the_old_version() {
    let Some((lab, mount)) =
        mounted("a_file_that_is_over_quota_is_refused_by_write_or_close", 1, &[], &[])
    else {
        return;
    };
    fs::write(mount.at("f"), "old").expect("written");
    lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "2MiB"]);
    let mut writer = File::create(mount.at("f")).expect("opened");
    let written = writer.write_all(&bytes(3, 6 << 20));
    // SAFETY: the descriptor is this test's own, and nobody else closes it.
    let closed = unsafe { libc::close(writer.into_raw_fd()) };
    let why = written.err().and_then(|why| why.raw_os_error());
    let why =
        why.or_else(|| (closed != 0).then(|| std::io::Error::last_os_error().raw_os_error())?);
    assert_eq!(why, Some(libc::EDQUOT));
    assert_eq!(lab.cli.cat("pot://lab/f"), b"old");
    // The kernel releases the file after close() has returned, and that publishes nothing either.
    let said = lab.cli.json(&["umount", arg(&mount.dir)]);
    assert_eq!(said["unpublished"], serde_json::json!([]), "the program was told: {said}");
    assert_eq!(lab.cli.cat("pot://lab/f"), b"old");
}
