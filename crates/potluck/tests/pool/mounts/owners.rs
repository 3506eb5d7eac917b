//! Tests owners and all bits of modes, in mounts and by `cp -a`, and when directories are modified.

use super::attributes::run;
use super::{Mount, mounted};
use crate::pool::content::arg;
use crate::pool::waiting::{DEADLINE, wait_until};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// A script that makes a tree with owners, all bits of modes, and times.
const TREE: &str =
    "mkdir -p p/team p/drop; echo 1 > p/team/of-42; echo 2 > p/root; ln -s root p/link
    mkdir p/empty; chown 42:43 p/team p/team/of-42; chown -h 44:45 p/link; chown 7:8 p/empty
    chmod 2775 p/team; chmod 1777 p/drop; chmod 640 p/team/of-42; chmod 4755 p/root
    touch -h -d 2001-02-03T04:05:06.123456789 p/team/of-42 p/root p/link
    touch -d 2002-02-03T04:05:06.5 p/team p/drop p/empty p";

/// Returns the paths, kinds, modes, owners, times and link targets of a tree.
fn told(dir: &Path) -> String {
    run("find . -mindepth 1 -printf '%P %y %m %U:%G %T@ %l\\n' | sort", dir)
}

/// Returns a listing as it is after `cp -a` to this machine, where no file makes a program run as somebody else.
fn without_special_files(told: &str) -> String {
    told.replace("root f 4755", "root f 755")
}

#[test]
fn archive_copies_keep_owners_modes_and_times() {
    let Some((lab, mount)) = mounted("archives_keep_owners_modes_and_times", 1, &[], &[]) else {
        return;
    };
    let from = lab.dir().join("from");
    fs::create_dir(&from).expect("made");
    run(TREE, &from);
    let all = told(&from);
    assert!(all.contains("p/team d 2775 42:43") && all.contains("p/root f 4755 0:0"), "{all}");
    // The tree is copied through a mount, and from a mount.
    run(&format!("cp -a p {}/", arg(&mount.dir)), &from);
    assert_eq!(told(&mount.dir), all);
    run("mkdir back; cp -a mounted/p back/", lab.dir());
    assert_eq!(told(&lab.dir().join("back")), all);
    // The command copies it in, inside the pool, and out again.
    lab.cli.ok(&["cp", "-a", arg(&from.join("p")), "pot://lab/in/p"]);
    lab.cli.ok(&["cp", "-a", "pot://lab/in/p", "pot://lab/again/p"]);
    lab.cli.ok(&["cp", "-a", "--atomic", arg(&from.join("p")), "pot://lab/at-once/p"]);
    for copy in ["in", "again", "at-once"] {
        wait_until("the copy to be seen", DEADLINE, || mount.at(copy).join("p/empty").exists());
        assert_eq!(told(&mount.at(copy)), all, "{copy}");
    }
    // So does one that is merged into a tree with other attributes at once.
    let other = "chmod 700 p/team p/drop; chown 1:1 p/team p/empty; touch p/empty p";
    for source in [arg(&from.join("p")), "pot://lab/in/p"] {
        run(other, &mount.at("at-once"));
        assert_ne!(told(&mount.at("at-once")), all);
        lab.cli.ok(&["cp", "-a", "--atomic", source, "pot://lab/at-once/p"]);
        wait_until("the copy to be seen", DEADLINE, || told(&mount.at("at-once")) == all);
    }
    let out = lab.dir().join("out");
    fs::create_dir(&out).expect("made");
    lab.cli.ok(&["cp", "-a", "pot://lab/again/p", arg(&out.join("p"))]);
    assert_eq!(told(&out), without_special_files(&all));
    let one = lab.dir().join("one");
    lab.cli.ok(&["cp", "-a", "pot://lab/in/p/team/of-42", arg(&one)]);
    let about = fs::metadata(&one).expect("copied");
    assert_eq!((about.uid(), about.gid(), about.mode() & 0o7777), (42, 43, 0o640));
    // Without -a the copies belong to the one who copies, and none of them runs as somebody else.
    lab.cli.ok(&["cp", "-r", arg(&from.join("p")), "pot://lab/plain"]);
    let entry = lab.cli.json(&["stat", "pot://lab/plain/root"])["entry"].clone();
    assert_eq!((&entry["permissions"], &entry["owner"]), (&"755".into(), &serde_json::Value::Null));
    lab.cli.ok(&["cp", "-r", "pot://lab/in/p", arg(&lab.dir().join("mine"))]);
    let mine = fs::metadata(lab.dir().join("mine/team/of-42")).expect("copied");
    assert_eq!((mine.uid(), mine.gid()), (0, 0));
    let entry = lab.cli.json(&["stat", "pot://lab/in/p/team/of-42"])["entry"].clone();
    assert_eq!(entry["owner"], serde_json::json!({"uid": 42, "gid": 43}));
    let said = lab.cli.ok(&["stat", "pot://lab/in/p/team/of-42"]).stdout;
    assert!(String::from_utf8_lossy(&said).contains("640, of 42:43"));
}

#[test]
fn root_mount_enforces_owners_and_modes() {
    let Some((lab, mount)) =
        mounted("in_a_mount_of_root_the_kernel_holds_all_users", 1, &[], &["--allow-other"])
    else {
        return;
    };
    // The test's directories are closed to others.
    for dir in lab.dir().ancestors().filter(|dir| dir.starts_with(std::env::temp_dir())) {
        run(&format!("chmod o+x {}", arg(dir)), Path::new("/"));
    }
    let as_user = |uid: u32, command: &str| {
        let given = format!("setpriv --reuid {uid} --regid {uid} --clear-groups sh -c '{command}'");
        let quiet = format!("({given}) 2>&1 || echo refused");
        run(&quiet, &mount.dir)
    };
    run(
        "mkdir shared team; chmod 1777 shared; chgrp 2000 team; chmod 2777 team; echo x > mine; chmod 600 mine",
        &mount.dir,
    );
    assert_eq!(
        as_user(
            1000,
            "umask 022; echo hers > shared/f; mkdir team/d; ln -s x shared/l; stat -c %u:%g:%a shared/f team/d shared/l"
        ),
        "1000:1000:644\n1000:2000:2755\n1000:1000:777\n"
    );
    assert_eq!(as_user(1000, "echo y > team/f; stat -c %u:%g team/f"), "1000:2000\n");
    for refused in [
        "cat mine",
        "echo more >> shared/f",
        "rm -f shared/f",
        "chmod 777 shared/f",
        "chown 1001 shared/f",
        "touch -d 2001-01-01 shared/f",
    ] {
        assert!(as_user(1001, refused).contains("refused"), "{refused}");
    }
    assert!(as_user(1000, "chown 1001 shared/f").contains("refused"), "only root gives away");
    run("chown 1001:1001 shared/f", &mount.dir);
    assert_eq!(as_user(1001, "echo more >> shared/f; cat shared/f"), "hers\nmore\n");
    let about = fs::metadata(mount.at("shared/f")).expect("there");
    assert_eq!((about.uid(), about.gid()), (1001, 1001), "an edit keeps the owner");
    // Another mount knows the owners as well.
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    assert_eq!(told(&other.dir), told(&mount.dir));
}

#[test]
fn non_root_write_clears_set_id_bits() {
    let Some((lab, mount)) = mounted("a_write_takes_set_id_bits", 1, &[], &["--allow-other"])
    else {
        return;
    };
    for dir in lab.dir().ancestors().filter(|dir| dir.starts_with(std::env::temp_dir())) {
        run(&format!("chmod o+x {}", arg(dir)), Path::new("/"));
    }
    run("mkdir shared; chmod 777 shared", &mount.dir);
    let write = "exec 3<>shared/f; printf x >&3; stat -L -c %a /proc/self/fd/3; exec 3>&-; stat -c %a shared/f";
    for mode in ["4755", "2755"] {
        let script = format!("echo content > shared/f; chmod {mode} shared/f; stat -c %a shared/f");
        let user = "setpriv --reuid 1000 --regid 1000 --clear-groups";
        let said = run(&format!("{user} sh -c '{script}; {write}'"), &mount.dir);
        assert_eq!(said, format!("{mode}\n755\n755\n"));
        let entry = lab.cli.json(&["stat", "pot://lab/shared/f"])["entry"].clone();
        assert_eq!(entry["permissions"], "755");
        run(&format!("chmod {mode} shared/f"), &mount.dir);
        assert_eq!(
            run(write, &mount.dir),
            format!("{mode}\n{mode}\n"),
            "root's writes are trusted"
        );
    }
}

#[test]
fn directory_mtime_is_seen_by_other_mounts() {
    let Some((lab, mount)) =
        mounted("a_directory_is_modified_when_its_entries_change", 1, &[], &[])
    else {
        return;
    };
    let other = Mount::start_in(&lab, "other", "pot://lab", &[]);
    run("mkdir -p d/e; echo x > d/f; echo x > d/e/g", &mount.dir);
    wait_until("all to be seen", DEADLINE, || other.at("d/e/g").exists());
    let time = |mount: &Mount, at: &str| fs::metadata(mount.at(at)).expect("there").modified().ok();
    for (dir, command) in [
        ("d", "echo y > d/new"),
        ("d", "rm d/new"),
        ("d", "mkdir d/made"),
        ("d", "rmdir d/made"),
        ("d", "ln -s x d/link"),
        ("d", "mv d/f d/e/f"),
        ("d/e", "mv d/e/f d/e/h"),
        (".", "echo z > top"),
    ] {
        run("touch -d 2001-01-01 d d/e .", &mount.dir);
        let before = time(&mount, dir);
        wait_until("the old time to be seen", DEADLINE, || time(&other, dir) == before);
        run(command, &mount.dir);
        wait_until("a new time to be seen", DEADLINE, || time(&other, dir) != before);
        let after = time(&mount, dir);
        assert!(after > before && after <= Some(SystemTime::now()), "{command}: {after:?}");
        assert_eq!(time(&other, dir), after, "{command}");
    }
    // Setting a directory's time changes nothing in it, nor does content change the directory.
    run("touch -d 2001-01-01 d/e; echo longer >> d/e/g; chmod 600 d/e/g", &mount.dir);
    assert_eq!(run("stat -c %Y d/e", &mount.dir), run("date -d 2001-01-01 +%s", &mount.dir));
}
