//! Tests times and permissions of files and directories in a mounted pool.

use super::{Mount, mounted};
use crate::pool::content::{arg, assert_same, bytes};
use crate::pool::waiting::{DEADLINE, pause, wait_until};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, statvfs, utimensat};
use serde_json::Value;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment, in nanoseconds since 1970, that no coarser clock can tell.
const NANOS: u64 = 1_234_567_890_123_456_789;

fn moment() -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(NANOS)
}

/// Sets the times of what is at a path, which no process has open.
fn set_time(path: &Path, time: SystemTime) {
    let since = time.duration_since(UNIX_EPOCH).expect("after 1970");
    let (tv_sec, tv_nsec) = (since.as_secs() as i64, since.subsec_nanos().into());
    let last = Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: last, last_modification: last };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("set");
}

fn chmod(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").mode() & 0o7777
}

/// Runs a line of shell in a directory, and returns what it prints.
pub(super) fn run(command: &str, dir: &Path) -> String {
    let ran = Command::new("sh").args(["-ec", command]).current_dir(dir).output().expect("ran");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command}: {said}");
    String::from_utf8(ran.stdout).expect("text")
}

/// Returns all that `find` says of a tree except owners and the sizes of directories.
pub(super) fn listing(dir: &Path) -> String {
    run(
        r"find . -mindepth 1 -printf '%P %y %m %T@ %l %s\n' | sed 's/ d \(.*\) [0-9]*$/ d \1/' | sort",
        dir,
    )
}

#[test]
fn setattr_stores_no_content() {
    let test = "attributes_of_closed_files_and_of_directories_are_set_without_storing_anything";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let entry = |path: &str| lab.cli.json(&["stat", path])["entry"].clone();
    let (file, dir) = (mount.at("f"), mount.at("d"));
    let content = bytes(1, (9 << 20) + 5);
    fs::write(&file, &content).expect("written");
    fs::create_dir(&dir).expect("made");
    let before = entry("pot://lab/f");
    let reader = File::open(&file).expect("opened");

    chmod(&file, 0o640).expect("set");
    set_time(&file, moment());
    chmod(&dir, 0o750).expect("set");
    set_time(&dir, moment());
    set_time(&mount.dir, moment());
    for (shown, at) in [("pot://lab/f", &file), ("pot://lab/d", &dir), ("pot://lab", &mount.dir)] {
        assert_eq!(fs::metadata(at).expect("there").modified().expect("a time"), moment());
        assert_eq!(entry(shown)["mtime_ns"], Value::from(NANOS), "{shown}");
    }
    assert_eq!((mode_of(&file), mode_of(&dir)), (0o640, 0o750));
    assert_eq!(entry("pot://lab/f")["permissions"], "640");
    let of_reader = reader.metadata().expect("open");
    assert_eq!((of_reader.mode() & 0o777, of_reader.modified().ok()), (0o640, Some(moment())));
    drop(reader);

    // As `touch` does it, a file is opened for writing and nothing of it is written.
    let later = moment() + Duration::from_nanos(1);
    let touched = OpenOptions::new().write(true).open(&file).expect("opened");
    touched.set_modified(later).expect("set");
    touched.set_permissions(Permissions::from_mode(0o600)).expect("set");
    drop(touched);
    assert_eq!(fs::metadata(&file).expect("there").modified().expect("a time"), later);
    assert_eq!(mode_of(&file), 0o600);
    let after = entry("pot://lab/f");
    assert_eq!((&after["mtime_ns"], &after["permissions"]), (&(NANOS + 1).into(), &"600".into()));
    assert_eq!(after["version"], before["version"], "stored once");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "its content");

    // A file that is written keeps what was set after that, and has the time of its writing if one was set before.
    let mut writer = File::create(mount.at("new")).expect("made");
    writer.set_modified(moment()).expect("set");
    writer.write_all(b"x").expect("written");
    chmod(&mount.at("new"), 0o444).expect("set by name");
    drop(writer);
    assert_eq!(mode_of(&mount.at("new")), 0o444);
    let written = fs::metadata(mount.at("new")).expect("there").modified().expect("a time");
    assert!(written > moment() + Duration::from_secs(1000), "{written:?}");
    run("umask 027; mkdir made; echo x > made/f; truncate -s 1000 f", &mount.dir);
    assert_eq!((mode_of(&mount.at("made")), mode_of(&mount.at("made/f"))), (0o750, 0o640));
    let cut = fs::metadata(&file).expect("there");
    assert_eq!(cut.len(), 1000);
    assert!(cut.modified().expect("a time") > later, "a file that is cut off is modified");

    for special in [0o4755, 0o2755, 0o1777] {
        chmod(&mount.at("d"), special).expect("all bits are kept");
        assert_eq!(mode_of(&mount.at("d")), special);
    }
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

#[test]
fn rsync_into_a_mount_keeps_attributes_and_copies_once() {
    let Some((lab, mut mount)) =
        mounted("trees_are_copied_into_a_mount_with_all_attributes", 1, &[], &[])
    else {
        return;
    };
    let from = lab.dir().join("from");
    fs::create_dir(&from).expect("made");
    let make = "mkdir -p a/b empty; echo one > a/one; seq 100000 > a/b/long; : > nothing
        chmod 600 a/one; chmod 755 a/b/long; chmod 700 a/b; chmod 555 empty
        for f in a/b/long a/one nothing a/b a empty; do touch -d 2001-02-03T04:05:06.123456789 $f; done
        touch -d 1969-12-31T23:59:58.5Z nothing
        ln -s ../a/one a/link; ln -s /nowhere dangling; ln -s a dir-link; ln -s 'odd  name' empty-link
        touch -h -d 2001-02-03T04:05:06.5 a/link dangling dir-link empty-link
        for f in a .; do touch -d 2002-02-03T04:05:06.123456789 $f; done";
    run(make, &from);
    let told = listing(&from);
    let into = |command: &str| run(&format!("{command} >&2; sync -f ."), &from);
    into(&format!("cp -a . {0}/copied", arg(&mount.dir)));
    into(&format!(
        "mkdir {0}/unpacked; tar c --format=posix . | tar xp -C {0}/unpacked",
        arg(&mount.dir)
    ));
    for copy in ["copied", "unpacked"] {
        assert_eq!(listing(&mount.at(copy)), told, "{copy}");
    }
    if super::has_program("rsync") {
        let sync = format!("rsync -a --itemize-changes ./ {}/synced/", arg(&mount.dir));
        assert_ne!(run(&sync, &from), "");
        assert_eq!(listing(&mount.at("synced")), told);
        assert_eq!(run(&format!("{sync} --modify-window=-1"), &from), "", "all is there");
    }
    assert_eq!(run(&format!("cp -aTuv . {}/copied", arg(&mount.dir)), &from), "", "none is newer");
    run(&format!("tar c --format=posix . | tar d -C {}/copied", arg(&mount.dir)), &from);

    // Another mount of the space, and a copy inside the pool, have these attributes, too.
    lab.cli.ok(&["umount", arg(&mount.dir)]);
    assert_eq!(crate::pool::program::code_of(mount.running.end("the mount")), 0);
    lab.cli.ok(&["cp", "-a", "pot://lab/copied", "pot://lab/again"]);
    fs::remove_file(lab.dir().join("mounted.ready")).expect("removed");
    let mount = Mount::start(&lab, "pot://lab", &["--read-only"]);
    assert_eq!(listing(&mount.at("copied")), told);
    assert_eq!(listing(&mount.at("again")), told);
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

#[test]
fn counts_of_links_mislead_no_program() {
    let Some((lab, mount)) = mounted("counts_of_links_mislead_no_program", 1, &[], &[]) else {
        return;
    };
    // A directory with two links has no directories in it, for programs that walk trees; with one it does not tell.
    fs::create_dir_all(mount.at("d/sub/below")).expect("made");
    for dir in ["", "d", "d/sub"] {
        assert_eq!(fs::metadata(mount.at(dir)).expect("there").nlink(), 1, "{dir:?}");
    }

    let links = |file: &File| file.metadata().expect("open").nlink();
    let name = mount.at("f");
    let written = File::create(&name).expect("made");
    assert_eq!(links(&written), 1);
    fs::remove_file(&name).expect("removed");
    assert_eq!(links(&written), 0, "of one that is written");
    fs::write(&name, "one").expect("written");
    let removed = File::open(&name).expect("opened");
    assert_eq!(links(&removed), 1);
    fs::remove_file(&name).expect("removed");
    assert_eq!(links(&removed), 0, "of one that is read");
    fs::write(&name, "two").expect("written");
    let replaced = File::open(&name).expect("opened");
    fs::write(mount.at("other"), "three").expect("written");
    fs::rename(mount.at("other"), &name).expect("renamed");
    assert_eq!(links(&replaced), 0, "of one that was renamed over");
    assert_eq!(fs::metadata(&name).expect("there").nlink(), 1);
    drop((written, removed, replaced));
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

#[test]
fn df_shows_remaining_quota() {
    let Some((lab, mount)) = mounted("df_shows_remaining_quota", 1, &[], &[]) else {
        return;
    };
    let told = || {
        let told = statvfs(&mount.dir).expect("told");
        (told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)
    };
    assert!(told().1 > 64 << 20, "room of the donor");
    lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "64MiB"]);
    wait_until("the mount to ask again", DEADLINE, || told() == (64 << 20, 64 << 20));
    fs::write(mount.at("f"), bytes(1, 24 << 20)).expect("written");
    assert_eq!(told(), (64 << 20, 40 << 20), "what this mount changed");
    lab.cli.ok(&["reserve", "30MiB", "pot://lab/run"]);
    wait_until("what is reserved elsewhere to count", DEADLINE, || told() == (64 << 20, 10 << 20));
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

#[test]
fn df_uses_the_policy_of_the_directory() {
    let test = "df_uses_the_policy_of_the_directory";
    let Some((lab, mount)) = mounted(test, 2, &["--copies", "1"], &[]) else { return };
    fs::create_dir_all(mount.at("twice/below")).expect("made");
    let set = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(mount.at("twice"), "user.potluck.copies", b"2", set).expect("set");
    fs::write(mount.at("twice/f"), "x").expect("written");
    let free = |path: &Path| {
        let told = statvfs(path).expect("told");
        told.f_bavail * told.f_frsize
    };
    let once = free(&mount.dir);
    for path in ["twice", "twice/below", "twice/f"] {
        let twice = free(&mount.at(path));
        assert!(twice * 9 / 5 < once && once < twice * 11 / 5, "{path}: {twice} of {once}");
    }
    let all = Mount::start_in(&lab, "all", "pot://", &[]);
    let shown = free(&all.at("lab/twice"));
    assert!(shown < once * 2 / 3, "{shown} of {once}, also where all spaces are mounted");
}

#[test]
fn mtime_is_stable_across_close() {
    let test = "a_file_has_the_time_of_its_last_change_before_and_after";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let told = |file: &File| file.metadata().expect("open").modified().expect("a time");
    let later_than = |time: SystemTime| {
        wait_until("the clock to go on", DEADLINE, || {
            SystemTime::now() > time + Duration::from_millis(20)
        });
    };
    let mut all = Vec::new();
    for size in [0, 1000, 9 << 20] {
        let name = mount.at(&format!("f{size}"));
        let mut file = File::create(&name).expect("made");
        let made = told(&file);
        later_than(made);
        assert_eq!(told(&file), made, "{size}: nothing was done with it");
        file.write_all(&bytes(1, size)).expect("written");
        let written = told(&file);
        assert_eq!(written > made, size > 0);
        later_than(written);
        assert_eq!(told(&file), written, "{size}: nothing was written since");
        drop(file);
        let closed = fs::metadata(&name).expect("there").modified().expect("a time");
        assert_eq!(closed, written, "{size}: it was closed");
        all.push((size, written));
    }
    lab.cli.ok(&["umount", arg(&mount.dir)]); // now all are there
    for (size, written) in all {
        let entry = lab.cli.json(&["stat", &format!("pot://lab/f{size}")])["entry"].clone();
        let since = written.duration_since(UNIX_EPOCH).expect("after 1970");
        assert_eq!(entry["mtime_ns"], Value::from(since.as_nanos() as u64), "{size}");
    }
}

#[test]
fn inode_numbers_survive_kernel_forget() {
    let test = "names_have_the_same_inode_numbers_after_the_kernel_forgot";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let names = ["d", "d/e", "d/e/f", "g"];
    fs::create_dir_all(mount.at("d/e")).expect("made");
    for file in ["d/e/f", "g"] {
        fs::write(mount.at(file), "content").expect("written");
    }
    let number = |mount: &Mount, name: &str| fs::metadata(mount.at(name)).expect("there").ino();
    let before: Vec<u64> = names.iter().map(|name| number(&mount, name)).collect();
    lab.cli.ok(&["umount", arg(&mount.dir)]); // a mount that is new knows no names, like one that forgot them
    let mount = Mount::start_in(&lab, "again", "pot://lab", &[]);
    for (name, before) in names.iter().zip(before).rev() {
        assert_eq!(number(&mount, name), before, "{name}");
    }
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

/// Returns the times of the last access, modification and change in seconds.
fn times(path: &Path) -> (i64, i64, i64) {
    let about = fs::symlink_metadata(path).expect("there");
    (about.atime(), about.mtime(), about.ctime())
}

/// Returns the times of the last access, modification and change, each in seconds and nanoseconds.
fn all_times(path: &Path) -> [(i64, i64); 3] {
    let about = fs::symlink_metadata(path).expect("there");
    [
        (about.atime(), about.atime_nsec()),
        (about.mtime(), about.mtime_nsec()),
        (about.ctime(), about.ctime_nsec()),
    ]
}

/// Each form of utimensat(2), on each kind of entry: what it sets stays, and what it leaves out does.
#[test]
fn explicit_atime_is_kept_and_reads_set_none() {
    let test = "access_times_that_programs_set_are_kept_by_the_pool";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    fs::write(mount.at("file"), bytes(1, 10_000)).expect("written");
    fs::create_dir(mount.at("dir")).expect("made");
    std::os::unix::fs::symlink("nowhere", mount.at("link")).expect("made");
    let names = ["file", "dir", "link"];
    let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let set = |name: &str, last_access, last_modification| {
        let times = Timestamps { last_access, last_modification };
        utimensat(CWD, mount.at(name), &times, AtFlags::SYMLINK_NOFOLLOW).expect("set");
    };
    let left_out = at(0, rustix::fs::UTIME_OMIT);
    let (old, older) = (at(-1_500_000_000, 123_456_789), at(-2, 1));
    for name in names {
        let before = all_times(&mount.at(name))[2];
        pause(Duration::from_millis(20));
        set(name, old, older);
        let [accessed, modified, changed] = all_times(&mount.at(name));
        assert_eq!((accessed, modified), ((-1_500_000_000, 123_456_789), (-2, 1)), "{name}");
        assert!(changed > before, "{name}");
        set(name, left_out, at(5, 6));
        assert_eq!(all_times(&mount.at(name))[..2], [accessed, (5, 6)], "{name}");
        set(name, at(7, 8), left_out);
        assert_eq!(all_times(&mount.at(name))[..2], [(7, 8), (5, 6)], "{name}");
    }
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    let before = now();
    set("dir", at(0, rustix::fs::UTIME_NOW), left_out);
    let ([accessed, modified, _], after) = (all_times(&mount.at("dir")), now());
    assert!((before..=after).contains(&accessed.0) && modified == (5, 6), "{accessed:?}");

    // A descriptor for writing sets them, too, and a write leaves the access time alone, as does a read.
    let mut written = OpenOptions::new().append(true).open(mount.at("file")).expect("opened");
    written.set_times(fs::FileTimes::new().set_accessed(moment())).expect("set");
    written.write_all(b"more").expect("written");
    drop(written);
    fs::read(mount.at("file")).expect("read");
    let of_moment = ((NANOS / 1_000_000_000) as i64, (NANOS % 1_000_000_000) as i64);
    assert_eq!(all_times(&mount.at("file"))[0], of_moment);
    let told = names.map(|name| all_times(&mount.at(name)));
    lab.cli.ok(&["umount", arg(&mount.dir)]);
    let mount = Mount::start(&lab, "pot://lab", &[]);
    assert_eq!(names.map(|name| all_times(&mount.at(name))), told, "when it is mounted again");
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

/// Tools that make backups go by the time of change, and `git` compares the one that a descriptor told with the one that
/// the name tells later.
#[test]
fn ctime_is_stable_across_a_prompt_close() {
    let test = "the_time_of_change_of_a_file_stays_over_its_close";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let changed = |about: fs::Metadata| (about.ctime(), about.ctime_nsec());
    for (name, size) in [("small", 3), ("large", 5 << 20)] {
        let path = mount.at(name);
        let mut file = File::create(&path).expect("made");
        file.write_all(&bytes(1, size)).expect("written");
        let told = changed(file.metadata().expect("open"));
        drop(file);
        assert_eq!(changed(fs::metadata(&path).expect("there")), told, "{name}");
        pause(Duration::from_millis(1100));
        assert_eq!(changed(fs::metadata(&path).expect("there")), told, "{name}: later");
    }
    // Others see what was written a while ago only now, and may have made a backup in between.
    let mut file = File::create(mount.at("late")).expect("made");
    file.write_all(b"x").expect("written");
    let told = changed(file.metadata().expect("open"));
    pause(Duration::from_millis(1500));
    drop(file);
    let entry = || lab.cli.json(&["stat", "pot://lab/late"])["entry"].clone();
    let published = entry()["ctime_ns"].as_i64().expect("a time");
    assert!(published >= (told.0 + 1) * 1_000_000_000 + told.1, "{told:?}, {published}");
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

#[test]
fn set_atime_is_shown_and_ctime_follows_changes() {
    let test = "an_access_time_that_is_set_is_shown_and_the_time_of_change_moves";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let path = mount.at("f");
    fs::write(&path, "x").expect("written");
    fs::create_dir(mount.at("d")).expect("made");
    run("touch -d @1000000000 f d", &mount.dir);
    for path in [&path, &mount.at("d")] {
        let (accessed, modified, changed) = times(path);
        assert_eq!((accessed, modified), (1_000_000_000, 1_000_000_000));
        assert!(changed > modified, "it was changed now");
    }
    run("touch -a -d @2000000000 f", &mount.dir);
    assert_eq!((times(&path).0, times(&path).1), (2_000_000_000, 1_000_000_000));
    run("touch -m -d @1500000000 f", &mount.dir);
    assert_eq!((times(&path).0, times(&path).1), (2_000_000_000, 1_500_000_000));
    for change in ["chmod 600 f", "chown 7 f", "mv f g; mv g f", "chmod 700 d; touch -d @3 d"] {
        let before = times(&path).2.max(times(&mount.at("d")).2);
        pause(Duration::from_millis(1100));
        run(change, &mount.dir);
        let after = times(&path).2.max(times(&mount.at("d")).2);
        assert!(after > before, "{change}: {before}, {after}");
    }
    assert_eq!((times(&path).0, times(&path).1), (2_000_000_000, 1_500_000_000), "they stay");
    let told = ["f", "d"].map(|name| all_times(&mount.at(name)));
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    assert_eq!(["f", "d"].map(|name| all_times(&other.at(name))), told, "through another mount");
    run("mv f h", &mount.dir);
    let renamed = || times(&other.at("h")).2 > told[0][2].0;
    wait_until("the other mount to show the new name's time", DEADLINE, renamed);
    drop(other);

    // A directory that was removed while it is open, here and by another client, is there for who has it open.
    for removes in ["rmdir d", "true"] {
        fs::create_dir_all(mount.at("d")).expect("made");
        let open = File::open(mount.at("d")).expect("opened");
        match removes {
            "true" => drop(lab.cli.ok(&["rm", "-r", "pot://lab/d"])),
            removes => drop(run(removes, &mount.dir)),
        }
        pause(Duration::from_millis(1500));
        assert!(open.metadata().expect("open").is_dir(), "{removes}");
    }
    // A path may have 4096 bytes with that of the mount's directory in the pool.
    let name = "n".repeat(250);
    let mut dir = File::open(&mount.dir).expect("opened");
    let why = (0..20).find_map(|_| {
        use rustix::fs::{Mode, OFlags, mkdirat, openat};
        mkdirat(&dir, &name, Mode::RWXU).err().or_else(|| {
            dir = openat(&dir, &name, OFlags::RDONLY, Mode::empty()).expect("opened").into();
            None
        })
    });
    assert_eq!(why, Some(rustix::io::Errno::NAMETOOLONG));
}
