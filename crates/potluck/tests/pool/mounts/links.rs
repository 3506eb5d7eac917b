//! Tests symbolic links in a mounted pool.

use super::attributes::{listing, run};
use super::{Mount, mounted};
use crate::pool::content::arg;
use crate::pool::waiting::{DEADLINE, pause, wait_until};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

#[test]
fn symlinks_work_through_a_mount() {
    let Some((lab, mount)) =
        mounted("symbolic_links_are_made_read_followed_and_replaced_through_a_mount", 1, &[], &[])
    else {
        return;
    };
    run(
        "mkdir d; echo content > d/f; ln -s d/f l; ln -s d dl; ln -s ../f d/up; ln -s l l2",
        &mount.dir,
    );
    assert_eq!(
        run("readlink l; cat l2 dl/f; ls -l l | sed 's/.* l/l/'", &mount.dir),
        "d/f\ncontent\ncontent\nl -> d/f\n"
    );
    assert_eq!(fs::symlink_metadata(mount.at("l")).expect("there").len(), 3);
    let again = symlink("x", mount.at("l")).expect_err("it is there");
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    run("ln -sfn elsewhere l; mv -T l d/moved", &mount.dir);
    assert_eq!(fs::read_link(mount.at("d/moved")).expect("a link"), Path::new("elsewhere"));
    assert!(fs::metadata(mount.at("d/moved")).is_err(), "it leads nowhere");
    // What is written through a link goes where it leads, and the link stays.
    run(
        "echo new > dl/written; ln -s written d/w; echo more >> d/w; cat d/written | tr '\n' ' '",
        &mount.dir,
    );
    assert_eq!(lab.cli.cat("pot://lab/d/written"), b"new\nmore\n");
    let entry = lab.cli.json(&["stat", "pot://lab/d/w"])["entry"].clone();
    assert_eq!((&entry["kind"], &entry["target"]), (&"link".into(), &"written".into()));
    run("rm dl", &mount.dir);
    assert_eq!(fs::read(mount.at("d/f")).expect("it stays"), b"content\n");

    let longest = "x".repeat(1024);
    symlink(&longest, mount.at("longest")).expect("made");
    assert_eq!(fs::read_link(mount.at("longest")).expect("a link"), Path::new(&longest));
    let long = symlink(format!("{longest}x"), mount.at("longer")).expect_err("too long");
    assert_eq!(long.raw_os_error(), Some(libc::ENAMETOOLONG));
    use std::os::unix::ffi::OsStrExt;
    let odd = symlink(std::ffi::OsStr::from_bytes(b"\xff"), mount.at("odd"));
    assert_eq!(odd.expect_err("not UTF-8").raw_os_error(), Some(libc::EILSEQ));

    if super::has_program("git") {
        let git = "git init -q repo; cd repo; git config user.email a@b; git config user.name a
            echo 1 > f; ln -s f link; ln -s ../outside out; git add .; git commit -qm one
            git status --porcelain; git fsck; cd ..; git clone -q repo clone; git -C clone status --porcelain";
        assert_eq!(run(git, &mount.dir), "");
        assert_eq!(run("readlink clone/link clone/out", &mount.dir), "f\n../outside\n");
    }
    // Out of the pool, and in again, links are links.
    let out = lab.dir().join("out");
    lab.cli.ok(&["cp", "-r", "pot://lab/d", arg(&out)]);
    let without_dirs = |text: String| {
        let lines = text.lines().filter(|line| !line.contains(" d ")).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    assert_eq!(without_dirs(listing(&out)), without_dirs(listing(&mount.at("d"))));
    lab.cli.ok(&["cp", "-r", arg(&out), "pot://lab/in"]);
    assert_eq!(without_dirs(listing(&mount.at("in"))), without_dirs(listing(&mount.at("d"))));
    lab.cli.ok(&["umount", arg(&mount.dir)]);
}

#[test]
fn symlink_just_replaced_by_a_file_opens_as_the_file() {
    let test = "symlink_just_replaced_by_a_file_opens_as_the_file";
    let Some((lab, one)) = mounted(test, 1, &[], &[]) else { return };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    fs::write(one.at("old"), "old").expect("written");
    for round in 0..10 {
        let name = format!("current{round}");
        symlink("old", one.at(&name)).expect("made");
        let read = || fs::read(other.at(&name));
        wait_until("it to be seen", DEADLINE, || read().is_ok_and(|seen| seen == b"old"));
        fs::write(one.at("next"), "new").expect("written");
        fs::rename(one.at("next"), one.at(&name)).expect("replaced");
        // The other mount hears of it soon, and its kernel believes for a second that the link is there.
        pause(Duration::from_millis(100));
        assert_eq!(read().expect("a file is there"), b"new");
    }
}
