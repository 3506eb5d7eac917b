//! Tests old versions of files, and what was removed: kept as policies say, read, brought back, and let go.

use super::content::{arg, assert_same, file};
use super::lab::{Cli, Lab};
use super::mounts::mounted;
use super::waiting::{DEADLINE, pause, wait_until};
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Returns the numbers of the versions that are kept of a path, the last that was replaced first.
fn versions(cli: &Cli, path: &str) -> Vec<u64> {
    let listed = cli.json(&["versions", path]);
    let number = |about: &Value| about["number"].as_u64().expect("a number");
    listed["kept"].as_array().expect("a list").iter().map(number).collect()
}

/// Returns the paths of what was removed below a path.
fn removed(cli: &Cli, path: &str) -> Vec<String> {
    let listed = cli.json(&["trash", "ls", path]);
    let path = |about: &Value| about["path"].as_str().expect("a path").to_owned();
    listed["removed"].as_array().expect("a list").iter().map(path).collect()
}

#[test]
fn old_versions_are_usable_after_a_donor_death() {
    let mut lab = Lab::with_options(3, &["--repair-grace", "1h"]);
    let space = ["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"];
    lab.cli.ok(&[&space[..], &["--keep-versions", "30d,10"]].concat());
    let (first, old) = file(lab.dir(), "first", 1, 1 << 20);
    let (second, new) = file(lab.dir(), "second", 2, 1 << 20);
    lab.cli.ok(&["cp", arg(&first), "pot://lab/d/a"]);
    lab.cli.ok(&["cp", arg(&second), "pot://lab/d/a"]);
    let kept = versions(&lab.cli, "pot://lab/d/a");
    let [number] = kept[..] else { panic!("{kept:?}") };
    let shown = lab.cli.ok(&["versions", "pot://lab/d/a"]).text();
    assert!(shown.contains("current") && shown.contains("replaced"), "{shown}");
    assert_eq!(lab.cli.ok(&["ls", "pot://lab/d"]).text(), "a\n", "no listing shows it");
    let used = lab.cli.json(&["du", "pot://lab"]);
    assert_eq!((&used["files"], &used["kept_files"]), (&1.into(), &1.into()), "{used}");
    assert_eq!(used["kept_bytes"], 1 << 20, "{used}");
    // Every count of a tree counts the same: what is kept of it is told beside.
    let verified = lab.cli.json(&["verify", "-r", "--read", "pot://lab"]);
    assert_eq!((&verified["files"], &verified["kept_files"]), (&1.into(), &1.into()));
    assert_eq!(verified["read"]["files"], 1, "{verified}");
    let said = lab.cli.ok(&["fsck"]).text();
    assert!(said.contains("1 file and 1 kept version, all as safe"), "{said}");

    lab.kill_donor("donor-1");
    let number = number.to_string();
    let cat = lab.cli.ok(&["cat", "pot://lab/d/a", "--version-id", &number]);
    assert_same(&cat.stdout, &old, "the old version");
    let out = lab.dir().join("out");
    fs::create_dir(&out).expect("made");
    let into = format!("{}/", arg(&out));
    lab.cli.ok(&["cp", "pot://lab/d/a", &into, "--version-id", &number]);
    assert_same(&fs::read(out.join("a")).expect("read"), &old, "its copy, under its name");
    lab.cli.ok(&["cp", "pot://lab/d/a", "pot://lab/copy", "--version-id", &number]);
    assert_same(&lab.cli.cat("pot://lab/copy"), &old, "its copy in the pool");

    let restored = lab.cli.json(&["revert", "pot://lab/d/a", "--version-id", &number]);
    assert_eq!(restored["replaced"], true, "{restored}");
    assert_same(&lab.cli.cat("pot://lab/d/a"), &old, "what is current again");
    let kept = versions(&lab.cli, "pot://lab/d/a");
    let newer = kept[0].to_string();
    let cat = lab.cli.ok(&["cat", "pot://lab/d/a", "--version-id", &newer]);
    assert_same(&cat.stdout, &new, "what was current is kept in turn");
    let refused = lab.cli.fails(3, &["revert", "pot://lab/d/a", "--version-id", "999999"]);
    assert_eq!(refused.code, "POT-E014", "{refused:?}");
}

#[test]
fn undelete_restores_files_and_trees() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--trash", "7d"]);
    let (input, content) = file(lab.dir(), "input", 3, 300_000);
    for at in ["pot://lab/a", "pot://lab/d/b", "pot://lab/d/deep/c"] {
        lab.cli.ok(&["cp", arg(&input), at]);
    }
    lab.cli.ok(&["rm", "pot://lab/a"]);
    lab.cli.ok(&["rm", "pot://lab/d/b"]);
    lab.cli.ok(&["rm", "-r", "pot://lab/d"]);
    assert_eq!(lab.cli.ok(&["ls", "-r", "pot://lab"]).text(), "");
    assert_eq!(removed(&lab.cli, "pot://lab"), ["pot://lab/a", "pot://lab/d"]);
    let inside = lab.cli.fails(3, &["undelete", "pot://lab/d/b"]);
    assert!(inside.hint.contains("potluck undelete pot://lab/d"), "{inside:?}");

    lab.cli.ok(&["undelete", "pot://lab/a", "pot://lab/d"]);
    assert_eq!(lab.cli.ok(&["ls", "-r", "pot://lab"]).text(), "a\nd/\nd/deep/\nd/deep/c\n");
    let there = lab.cli.fails(10, &["undelete", "pot://lab/d"]);
    assert!(there.hint.contains("-r"), "{there:?}");
    lab.cli.ok(&["undelete", "-r", "pot://lab/d"]);
    for at in ["pot://lab/a", "pot://lab/d/b", "pot://lab/d/deep/c"] {
        assert_same(&lab.cli.cat(at), &content, at);
    }
    // A file that took the name meanwhile stays.
    lab.cli.ok(&["rm", "pot://lab/a"]);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/a"]);
    assert_eq!(lab.cli.fails(10, &["undelete", "pot://lab/a"]).code, "POT-E020");
    lab.cli.fails(3, &["undelete", "pot://lab/never"]);
}

#[test]
fn permanent_removal_frees_space_at_once() {
    let lab = Lab::with_options(1, &["--gc-delay", "1s"]);
    let space = ["space", "create", "lab", "--keep-versions", "10", "--trash", "7d"];
    lab.cli.ok(&[&space[..], &["--chunk-size", "64KiB"]].concat());
    lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "1MiB"]);
    let (input, _) = file(lab.dir(), "input", 4, 400_000);
    let (other, _) = file(lab.dir(), "other", 5, 400_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/a"]);
    lab.cli.ok(&["cp", arg(&other), "pot://lab/a"]);
    let refused = lab.cli.fails(6, &["cp", arg(&input), "pot://lab/b"]);
    assert_eq!(refused.code, "POT-E035", "what is kept counts: {refused:?}");
    let would = lab.cli.json(&["trash", "empty", "pot://lab", "-n"]);
    assert_eq!((&would["kept"], &would["let_go"]), (&1.into(), &false.into()), "{would}");
    assert_eq!(versions(&lab.cli, "pot://lab/a").len(), 1, "it was only looked at");
    lab.cli.ok(&["trash", "empty", "pot://lab", "-y"]);
    assert_eq!(versions(&lab.cli, "pot://lab/a").len(), 0);
    for how in [&[][..], &["-n"], &["-y"]] {
        let everywhere = [&["trash", "empty", "pot://"][..], how].concat();
        assert_eq!(lab.cli.fails(2, &everywhere).code, "POT-E001", "nothing is kept: {how:?}");
    }
    lab.cli.ok(&["cp", arg(&input), "pot://lab/b"]);

    lab.cli.ok(&["rm", "pot://lab/b"]);
    lab.cli.fails(6, &["cp", arg(&input), "pot://lab/c"]);
    lab.cli.ok(&["undelete", "pot://lab/b"]);
    lab.cli.ok(&["rm", "--forever", "pot://lab/a", "pot://lab/b"]);
    assert_eq!(removed(&lab.cli, "pot://lab").len(), 0);
    lab.wait_clean(0);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/c"]);
}

#[test]
fn versions_go_by_themselves_when_their_time_is_over() {
    let lab = Lab::with_options(1, &["--gc-delay", "1s"]);
    let space = ["space", "create", "lab", "--keep-versions", "10s", "--chunk-size", "64KiB"];
    lab.cli.ok(&space);
    let (input, _) = file(lab.dir(), "input", 6, 100_000);
    let (other, content) = file(lab.dir(), "other", 7, 100_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/a"]);
    lab.cli.ok(&["cp", arg(&other), "pot://lab/a"]);
    assert_eq!(versions(&lab.cli, "pot://lab/a").len(), 1);
    wait_until("the old version to be let go", DEADLINE, || {
        versions(&lab.cli, "pot://lab/a").is_empty()
    });
    lab.wait_clean(2);
    assert_same(&lab.cli.cat("pot://lab/a"), &content, "the current version");
}

#[test]
fn a_directory_keeps_what_its_policy_says_and_shows_it() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.cli.ok(&["mkdir", "pot://lab/d", "--keep-versions", "10"]);
    lab.cli.ok(&["policy", "set", "pot://lab/d", "--trash", "12h"]);
    lab.cli.ok(&["mkdir", "pot://lab/d/deep"]);
    let shown = lab.cli.json(&["policy", "show", "pot://lab/d/deep"]);
    assert_eq!(shown["policy"]["keep_versions"], "10", "{shown}");
    assert_eq!(shown["policy"]["trash"], "12h", "{shown}");
    let text = lab.cli.ok(&["policy", "show", "pot://lab/d/deep"]).text();
    assert!(text.contains("versions   10\n") && text.contains("removed    12h\n"), "{text}");
    let text = lab.cli.ok(&["stat", "pot://lab/d"]).text();
    assert!(text.contains("old versions kept: 10, what is removed: 12h"), "{text}");
    let text = lab.cli.ok(&["policy", "show", "pot://lab"]).text();
    assert!(text.contains("versions   none\n"), "{text}");
    assert!(text.contains("removed    none (the pool's default)\n"), "{text}");
    let bad = lab.cli.run(&["policy", "set", "pot://lab", "--keep-versions", "2000"]).exits(2);
    assert!(bad.stderr.contains("at most 1000"), "{}", bad.stderr);
}

#[test]
fn old_versions_need_read_and_reverting_needs_write() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--keep-versions", "10"]);
    let (input, old) = file(lab.dir(), "input", 8, 100_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/a"]);
    let (other, _) = file(lab.dir(), "other", 9, 100_000);
    lab.cli.ok(&["cp", arg(&other), "pot://lab/a"]);
    let number = versions(&lab.cli, "pot://lab/a")[0].to_string();
    let token = lab.token("user");
    let user = lab.cli.at_home(&lab.dir().join("user"));
    user.ok(&["join", &token]);
    let cat = ["cat", "pot://lab/a", "--version-id", &number];
    assert_eq!(user.fails(3, &["versions", "pot://lab/a"]).code, "POT-E011");
    lab.cli.ok(&["space", "grant", "lab", "everyone", "list"]);
    let listed = user.json(&["versions", "pot://lab/a"]);
    assert!(listed["kept"][0]["entry"]["digest"].is_null(), "{listed}");
    assert_eq!(user.fails(8, &cat).code, "POT-E067");
    lab.cli.ok(&["space", "grant", "lab", "everyone", "read"]);
    assert_same(&user.ok(&cat).stdout, &old, "the old version");
    for args in [
        &["revert", "pot://lab/a"][..],
        &["undelete", "pot://lab/a"],
        &["trash", "empty", "pot://lab", "-y"],
        &["rm", "--forever", "pot://lab/a"],
    ] {
        assert_eq!(user.fails(8, args).code, "POT-E067", "{args:?}");
    }
    lab.cli.ok(&["space", "grant", "lab", "everyone", "write"]);
    user.ok(&["revert", "pot://lab/a"]);
    let by = lab.cli.json(&["versions", "pot://lab/a"])["kept"][0]["by"].clone();
    assert!(by.is_string(), "who replaced it is told: {by}");
}

#[test]
fn files_removed_in_a_mount_can_be_undeleted_from_read_only_trash() {
    let test = "what_a_program_removes_in_a_mount_comes_back";
    let keeps = ["--keep-versions", "10", "--trash", "7d"];
    let Some((lab, mount)) = mounted(test, 1, &keeps, &[]) else { return };
    fs::create_dir(mount.at("d")).expect("made");
    fs::write(mount.at("d/a"), b"first").expect("written");
    fs::write(mount.at("d/a"), b"second").expect("written");
    wait_until("the old version to be listed", DEADLINE, || {
        !versions(&lab.cli, "pot://lab/d/a").is_empty()
    });
    let names = |dir: &str| fs::read_dir(mount.at(dir)).expect("read").count();
    assert_eq!(names("d"), 1, "nobody sees where it is kept");
    lab.cli.ok(&["revert", "pot://lab/d/a"]);
    wait_until("the mount to show it", DEADLINE, || {
        fs::read(mount.at("d/a")).expect("read") == b"first"
    });
    for refused in [
        fs::write(mount.at("d/.potluck-kept/x"), b"mine"),
        fs::create_dir(mount.at("d/.potluck-kept/x")),
        fs::remove_dir_all(mount.at("d/.potluck-kept")),
    ] {
        let refused = refused.expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{refused}");
    }
    fs::remove_dir_all(mount.at("d")).expect("removed");
    assert_eq!(names(""), 0);
    lab.cli.ok(&["undelete", "-r", "pot://lab/d"]);
    wait_until("the mount to show what came back", DEADLINE, || mount.at("d/a").exists());
    assert_eq!(fs::read(mount.at("d/a")).expect("read"), b"first");
}

#[test]
fn snapshot_is_readable_by_commands_and_mounts() {
    let test = "a_snapshot_of_a_directory_is_read_by_commands_and_in_a_mount";
    let Some((lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    let (input, content) = file(lab.dir(), "input", 10, 300_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/d/sub/b"]);
    fs::write(mount.at("d/a"), b"first").expect("written");
    assert_eq!(fs::read_dir(mount.at("d")).expect("read").count(), 2);
    let taken = lab.cli.ok(&["snapshot", "create", "pot://lab/d", "monday"]).text();
    assert_eq!(taken, "pot://lab/d/.potluck/snapshots/monday\n");
    let at = taken.trim_end();

    fs::write(mount.at("d/a"), b"second").expect("written");
    fs::remove_dir_all(mount.at("d/sub")).expect("removed");
    lab.cli.ok(&["cp", arg(&input), "pot://lab/d/new"]);
    assert_eq!(lab.cli.ok(&["ls", "-r", at]).text(), "a\nsub/\nsub/b\n");
    assert_same(&lab.cli.cat(&format!("{at}/sub/b")), &content, "what was removed since");
    assert_eq!(lab.cli.cat(&format!("{at}/a")), b"first");
    let out = lab.dir().join("out");
    lab.cli.ok(&["cp", "-r", at, arg(&out)]);
    assert_same(&fs::read(out.join("sub/b")).expect("read"), &content, "a copy of it");
    let used = lab.cli.json(&["du", "pot://lab"]);
    assert_eq!((&used["files"], &used["kept_files"]), (&2.into(), &2.into()), "{used}");

    let seen = mount.at("d/.potluck/snapshots/monday");
    assert_eq!(fs::read(seen.join("a")).expect("read"), b"first");
    assert_same(&fs::read(seen.join("sub/b")).expect("read"), &content, "in the mount");
    assert_eq!(fs::read_dir(&seen).expect("read").count(), 2);
    assert_eq!(fs::read_dir(mount.at("d")).expect("read").count(), 2, "a, new, and no more");
    for refused in [
        fs::write(seen.join("a"), b"mine"),
        fs::write(seen.join("mine"), b"mine"),
        fs::remove_file(seen.join("a")),
        fs::create_dir(seen.join("mine")),
        fs::rename(seen.join("a"), mount.at("d/mine")),
    ] {
        let refused = refused.expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{refused}");
    }
    let refused = lab.cli.fails(2, &["cp", arg(&input), &format!("{at}/mine")]);
    assert_eq!(refused.code, "POT-E029", "{refused:?}");

    let back = format!("{at}/sub");
    lab.cli.ok(&["cp", "-r", &back, "pot://lab/d/sub"]);
    assert_same(&lab.cli.cat("pot://lab/d/sub/b"), &content, "what came back");
    let listed = lab.cli.json(&["snapshot", "ls", "pot://lab/d"]);
    assert_eq!(listed["snapshots"][0]["name"], "monday", "{listed}");
    lab.cli.ok(&["snapshot", "rm", "pot://lab/d", "monday"]);
    wait_until("the mount to hear that it is gone", DEADLINE, || !seen.exists());
    wait_until("what only it kept to be let go", DEADLINE, || {
        lab.cli.json(&["du", "pot://lab"])["kept_files"].as_u64().unwrap_or_default() == 0
    });
    assert_eq!(lab.cli.fails(3, &["snapshot", "rm", "pot://lab/d", "monday"]).code, "POT-E010");
}

/// Returns what becomes of each step of a series, the newest first.
fn fates(cli: &Cli, args: &[&str]) -> Vec<(String, String)> {
    let told = cli.json(args);
    let fate = |step: &Value| match &step["fate"] {
        Value::String(word) => word.clone(),
        other => other["purged"].as_str().expect("a reason").to_owned(),
    };
    let row = |step: &Value| (step["name"].as_str().expect("a name").to_owned(), fate(step));
    told["steps"].as_array().expect("steps").iter().map(row).collect()
}

#[test]
fn series_purge_spares_pinned_read_and_last_whole_steps() {
    let test = "old_steps_of_a_series_are_purged";
    let keeps = ["--trash", "7d", "--chunk-size", "64KiB"];
    let Some((mut lab, mount)) = mounted(test, 2, &keeps, &[]) else { return };
    let (input, content) = file(lab.dir(), "input", 11, 200_000);
    for step in ["step-1", "step-2", "step-3", "step-4", "step-5"] {
        lab.cli.ok(&["cp", arg(&input), &format!("pot://lab/run/{step}/state")]);
    }
    let refused = lab.cli.fails(2, &["policy", "set", "pot://lab", "--keep-last", "2"]);
    assert!(refused.hint.contains("directory"), "{refused:?}");
    lab.cli.ok(&["policy", "set", "pot://lab/run", "--keep-last", "2"]);
    assert!(lab.cli.ok(&["policy", "show", "pot://lab/run"]).text().contains("the last 2"));
    lab.cli.ok(&["pin", "pot://lab/run/step-1"]);
    let mut read = fs::File::open(mount.at("run/step-2/state")).expect("opened");
    let looked = fates(&lab.cli, &["ckpt", "purge", "pot://lab/run", "-n"]);
    let named = |fates: &[(&str, &str)]| -> Vec<(String, String)> {
        fates.iter().map(|(name, fate)| ((*name).into(), (*fate).into())).collect()
    };
    let planned = [
        ("step-5", "stays"),
        ("step-4", "stays"),
        ("step-3", "beyond_last"),
        ("step-2", "being_read"),
        ("step-1", "pinned"),
    ];
    assert_eq!(looked, named(&planned));
    let listed = |lab: &Lab| lab.cli.ok(&["ls", "pot://lab/run"]).text();
    assert_eq!(listed(&lab).lines().count(), 5, "it was only looked at");
    lab.cli.ok(&["ckpt", "purge", "pot://lab/run"]);
    assert_eq!(listed(&lab), "step-1/\nstep-2/\nstep-4/\nstep-5/\n");
    assert_eq!(removed(&lab.cli, "pot://lab"), ["pot://lab/run/step-3"], "it is in the trash");
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut read, &mut bytes).expect("read");
    assert_same(&bytes, &content, "what is being read");
    drop(read);

    // Without the donors no step is whole, and nobody knows which will be again.
    lab.cli.ok(&["unpin", "pot://lab/run/step-1"]);
    lab.cli.ok(&["policy", "set", "pot://lab/run", "--keep-last", "1"]);
    for donor in ["donor-1", "donor-2"] {
        lab.kill_donor(donor);
    }
    let purge = ["ckpt", "purge", "pot://lab/run", "-n"];
    wait_until("the donors to count as away", DEADLINE, || {
        let fates = fates(&lab.cli, &purge);
        fates.iter().all(|(_, fate)| fate != "beyond_last")
    });
    lab.bring_back(&["donor-1", "donor-2"]);
    wait_until("the old steps to be purged by themselves", DEADLINE * 4, || {
        listed(&lab) == "step-5/\n"
    });
    assert_same(&lab.cli.cat("pot://lab/run/step-5/state"), &content, "the last step");
}

#[test]
fn unused_series_steps_are_purged_sparing_pinned_and_last_whole() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 12, 200_000);
    for step in ["step-1", "step-2", "step-3", "step-4", "step-5"] {
        lab.cli.ok(&["cp", arg(&input), &format!("pot://lab/run/{step}/state")]);
    }
    lab.cli.ok(&["policy", "set", "pot://lab/run", "--purge-unused", "24s"]);
    let shown = lab.cli.ok(&["policy", "show", "pot://lab/run"]).text();
    assert!(shown.contains("used in the last 24s"), "{shown}");
    lab.cli.ok(&["pin", "pot://lab/run/step-1"]);
    let purge = || fates(&lab.cli, &["ckpt", "purge", "pot://lab/run"]);
    assert!(purge().iter().all(|(_, fate)| fate == "stays"), "they count as used now");
    let began = Instant::now();
    pause(Duration::from_secs(13));
    assert_eq!(lab.cli.cat("pot://lab/run/step-2/state"), content);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/run/step-3/more"]);
    lab.cli.ok(&["ls", "-l", "pot://lab/run/step-4"]);
    pause(Duration::from_secs(25).saturating_sub(began.elapsed()));
    let fates = purge();
    // The manager may have purged step-4 before this does.
    let stay = |name: &str| fates.iter().find(|(step, _)| step == name).map(|(_, fate)| &fate[..]);
    assert_eq!([stay("step-2"), stay("step-3")], [Some("stays"); 2], "{fates:?}");
    assert_eq!(stay("step-1"), Some("pinned"), "{fates:?}");
    assert!([None, Some("unused")].contains(&stay("step-4")), "to look at it is no use: {fates:?}");
    wait_until("all but the last that is whole and the pinned one to go", DEADLINE * 4, || {
        purge();
        lab.cli.ok(&["ls", "pot://lab/run"]).text().lines().count() == 2
    });
    let last = lab.cli.ok(&["ls", "pot://lab/run"]).text();
    assert!(last.starts_with("step-1/\n"), "{last}");
}
