//! Tests the output of commands and how they end, in the small things that scripts and people trip over.

use super::content::{arg, file};
use super::lab::Lab;
use super::waiting::{DEADLINE, wait_until};
use std::fs;
use std::os::unix::fs::FileExt;

fn with_small_files(names: &[&str]) -> Lab {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    for name in names {
        let (input, _) = file(lab.dir(), "input", name.len() as u64, 10);
        lab.cli.ok(&["cp", arg(&input), &format!("pot://lab/{name}")]);
    }
    lab
}

#[test]
fn rm_of_several_goes_on_after_one_that_fails_and_exits_4() {
    let lab = with_small_files(&["a", "b", "dir/c"]);
    let ran = lab.cli.run(&["rm", "pot://lab/a", "pot://lab/nope", "pot://lab/b"]).exits(4);
    assert!(ran.stderr.contains("pot://lab/nope") && ran.stderr.contains("POT-E010"), "{ran:?}");
    lab.cli.fails(3, &["stat", "pot://lab/a"]);
    lab.cli.fails(3, &["stat", "pot://lab/b"]);
    // If none of the paths is there, the command fails with the exit code of that, and a program is told of each.
    let all = lab.cli.fails(3, &["rm", "pot://lab/a", "pot://lab/b"]);
    assert_eq!(all.code, "POT-E082");
    let ran = lab.cli.run(&["--json", "rm", "-r", "pot://lab/dir", "pot://lab/nope"]).exits(4);
    let said = ran.json();
    assert_eq!((&said["files"], &said["failed"][0]["path"]), (&1.into(), &"pot://lab/nope".into()));
}

#[test]
fn rm_looks_before_it_leaps() {
    let lab = with_small_files(&["dir/a", "dir/b"]);
    let would = lab.cli.json(&["rm", "-r", "-n", "pot://lab/dir"]);
    assert_eq!((&would["files"], &would["bytes"]), (&2.into(), &20.into()), "{would}");
    let said = lab.cli.ok(&["rm", "-r", "-n", "pot://lab/dir"]).text();
    assert!(said.contains("would remove 2 files, 20 B"), "{said}");
    assert_eq!(lab.cli.fails(2, &["rm", "-n", "pot://lab/dir"]).code, "POT-E025");
    lab.cli.ok(&["stat", "pot://lab/dir/a"]);
}

#[test]
fn cat_writes_several_files_one_after_the_other() {
    let lab = with_small_files(&["a", "bb"]);
    let (one, two) = (lab.cli.cat("pot://lab/a"), lab.cli.cat("pot://lab/bb"));
    let both = lab.cli.ok(&["cat", "pot://lab/a", "pot://lab/bb"]).stdout;
    assert_eq!(both, [one.clone(), two.clone()].concat());
    let parts = lab.cli.ok(&["cat", "--range", "0-1", "pot://lab/a", "pot://lab/bb"]).stdout;
    assert_eq!(parts, [&one[..2], &two[..2]].concat());
    let ran = lab.cli.run(&["cat", "pot://lab/nope", "pot://lab/bb"]).exits(4);
    assert_eq!((ran.stdout, ran.stderr.contains("POT-E010")), (two, true));
}

#[test]
fn a_program_is_told_of_each_of_several_paths_that_failed() {
    let lab = with_small_files(&["good"]);
    let some = ["--json", "cat", "pot://lab/good", "pot://lab/a"];
    let none = ["--json", "rm", "pot://lab/a", "pot://lab/b"];
    for (command, code, missing) in [(&some, 4, &["pot://lab/a"][..]), (&none, 3, &none[2..])] {
        let ran = lab.cli.run(command).exits(code);
        let lines = ran.stderr.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let lines: Vec<serde_json::Value> = lines.collect();
        let of_paths: Vec<_> = lines.iter().filter(|line| line["path"].is_string()).collect();
        assert_eq!(of_paths.iter().map(|line| &line["path"]).collect::<Vec<_>>(), missing);
        assert!(of_paths.iter().all(|line| line["error"]["code"] == "POT-E010"), "{lines:?}");
        assert_eq!(
            lines.len() - missing.len(),
            usize::from(code == 3),
            "the command's own failure"
        );
    }
}

#[test]
fn a_range_past_the_end_is_said_to_be() {
    let lab = with_small_files(&["a"]);
    let refused = lab.cli.fails(2, &["cat", "pot://lab/a", "--range", "11-"]);
    assert!(refused.message.contains("after the end") && refused.message.contains("10 bytes"));
    assert_eq!(lab.cli.ok(&["cat", "pot://lab/a", "--range", "10-"]).stdout.len(), 0, "its end");
    assert_eq!(lab.cli.ok(&["cat", "pot://lab/a", "--range", "9-100"]).stdout.len(), 1);
    assert_eq!(lab.cli.ok(&["cat", "pot://lab/a", "--range", "-100"]).stdout.len(), 10);
}

#[test]
fn a_directory_without_r_ends_every_command_alike() {
    let lab = with_small_files(&["dir/a"]);
    let out = lab.dir().join("out");
    for command in [
        &["cp", "/etc", "pot://lab/etc"][..],
        &["cp", "pot://lab/dir", arg(&out)],
        &["cat", "pot://lab/dir"],
        &["rm", "pot://lab/dir"],
        &["verify", "pot://lab/dir"],
    ] {
        let refused = lab.cli.fails(2, command);
        assert_eq!(refused.code, "POT-E025", "{command:?}: {refused:?}");
        assert!(refused.hint.contains("-r"), "{command:?}: {refused:?}");
    }
}

#[test]
fn hints_refer_to_their_own_command() {
    let lab = with_small_files(&["dir/a"]);
    let hint = lab.cli.fails(2, &["cat", "pot://lab/dir"]).hint;
    assert!(hint.contains("potluck cp -r"), "cat takes no -r: {hint}");
    let same = lab.cli.fails(2, &["cp", "pot://lab/dir/a", "pot://lab/dir/a"]);
    assert!(same.message.ends_with("are the same file"), "{same:?}");
    let whole = lab.cli.fails(2, &["rm", "-r", "pot://lab"]);
    assert!(whole.hint.contains("potluck space rm -r lab"), "{whole:?}");
    let (input, _) = file(lab.dir(), "input", 3, 3);
    let said = lab.cli.ok(&["cp", arg(&input), "pot://lab/tiny"]).text();
    assert_eq!(said, "1 file, 3 B\n", "a speed of three bytes says nothing");
    // A user that may not do this is told the command, and who may do it.
    let user = lab.cli.at_home(&lab.dir().join("user"));
    user.ok(&["join", &lab.token("user")]);
    let refused = user.fails(8, &["repair", "now"]);
    assert!(refused.message.contains("`potluck repair now`"), "{refused:?}");
    assert!(refused.message.contains("for an admin"), "{refused:?}");
    // The identity of a donor may not do what is for users.
    let donor = lab.cli.at_home(&lab.dir().join("donor"));
    donor.ok(&["join", &lab.token("donor")]);
    let refused = donor.fails(8, &["ls"]);
    assert!(refused.message.contains("a donor's, which sees its own state"), "{refused:?}");
    assert!(refused.hint.contains("invite --role user"), "{refused:?}");
}

#[test]
fn stat_tells_programs_its_path_and_ls_exact_sizes_on_request() {
    let lab = with_small_files(&[]);
    let (input, _) = file(lab.dir(), "input", 3, 123_456);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    assert_eq!(lab.cli.json(&["stat", "pot://lab//f"])["path"], "pot://lab/f");
    assert!(lab.cli.ok(&["ls", "-l", "pot://lab"]).text().contains("120.6 KiB"));
    assert!(lab.cli.ok(&["ls", "-l", "--bytes", "pot://lab"]).text().contains("123456"));
}

#[test]
fn singular_and_plural_are_used_correctly() {
    let lab = with_small_files(&["dir/a"]);
    for (command, said) in [
        (&["tree", "pot://lab"][..], "1 directory, 1 file"),
        (&["status"], "1 of 1 donor live"),
        (&["rm", "-r", "-n", "pot://lab/dir"], "1 file, 10 B"),
    ] {
        let text = lab.cli.ok(command).text();
        assert!(text.contains(said), "no “{said}” in: {text}");
    }
    assert!(lab.cli.ok(&["invite", "--ttl", "24h"]).stderr.contains("within 1d"));
}

#[test]
fn scrub_now_waits_for_what_the_donors_find() {
    let lab = with_small_files(&[]);
    let (input, _) = file(lab.dir(), "input", 3, 300_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let clean = lab.cli.json(&["scrub", "now", "--wait"]);
    assert_eq!(clean["donors"][0]["finished"], true, "{clean}");
    assert_eq!(clean["donors"][0]["spoiled"], 0, "{clean}");
    let path = lab.lent("donor-1").chunks().into_iter().next().expect("a chunk");
    let chunk = fs::File::options().write(true).open(path).expect("a chunk file");
    chunk.write_all_at(b"damage", 1000).expect("damage");
    let ran = lab.cli.run(&["scrub", "now", "--wait"]).exits(4);
    assert!(ran.text().contains("1 chunk spoiled"), "{}", ran.text());
}

#[test]
fn only_an_announced_absence_is_called_away() {
    let mut lab = Lab::with_donors(2);
    let (input, _) = file(lab.dir(), "input", 1, 1 << 20);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.cli.ok(&["nodes", "away", "donor-1", "2h"]);
    let shown = |lab: &Lab| lab.cli.ok(&["nodes", "ls"]).text();
    let says = |text: &str, what: &str| {
        ["2h", "1h 59m"].iter().any(|left| text.contains(&format!("{what} {left} more")))
    };
    assert!(says(&shown(&lab), "live, announced away for"), "{}", shown(&lab));
    lab.kill_donor("donor-1");
    lab.kill_donor("donor-2");
    wait_until("both to be missed", DEADLINE, || lab.cli.live_donors().is_empty());
    assert_eq!(lab.cli.donor("donor-1")["state"], "away");
    assert_ne!(lab.cli.donor("donor-2")["state"], "away");
    let text = shown(&lab);
    let of = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default();
    assert!(says(of("donor-1"), "away for"), "{text}");
    assert!(of("donor-2").contains("silent for"), "{text}");
    // All commands call a donor by the same state.
    let stated = lab.cli.json(&["stat", "pot://lab/f"]);
    let states = stated["donors"].as_array().expect("donors").iter();
    for share in states {
        let name = share["name"].as_str().expect("a name");
        assert_eq!(share["state"], lab.cli.donor(name)["state"], "{stated}");
    }
}

#[test]
fn habitual_command_forms_work_or_are_explained() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--copies", "1"]);
    let sizes = [("small.h5", 1_usize), ("large.h5", 3), ("middle.txt", 2)];
    for (name, size) in sizes {
        let local = lab.dir().join(name);
        fs::write(&local, vec![b'x'; size]).expect("written");
        lab.cli.ok(&["cp", arg(&local), "pot://lab/"]);
    }
    let lines = |args: &[&str]| lab.cli.ok(args).text().trim_end().to_owned();
    assert_eq!(lines(&["ls", "-S", "pot://lab"]), "large.h5\nmiddle.txt\nsmall.h5");
    assert_eq!(lines(&["ls", "-t", "pot://lab"]), "middle.txt\nlarge.h5\nsmall.h5");
    // Quoted patterns match in the last name; files that are named come before directories.
    let both = lines(&["ls", "pot://lab", "pot://lab/*.h5"]);
    assert!(both.starts_with("pot://lab/large.h5\npot://lab/small.h5\n\npot://lab:\n"), "{both}");
    assert_eq!(lines(&["cat", "pot://lab/?arge.*"]), "xxx");
    let refused = lab.cli.fails(3, &["stat", "pot://lab/*.h5"]);
    assert!(refused.hint.contains("and nowhere else"), "{refused:?}");
    // So they do where something is copied, moved or removed; a name that is there as it was written is meant alone.
    let here = lab.dir().join("here");
    fs::create_dir(&here).expect("made");
    lab.cli.ok(&["cp", "pot://lab/*.h5", arg(&here)]);
    assert_eq!(fs::read_dir(&here).expect("a directory").count(), 2);
    lab.cli.ok(&["mkdir", "-p", "pot://lab/dir/below"]);
    let refused = lab.cli.fails(2, &["mv", "pot://lab/*.h5", "pot://lab/none"]);
    assert!(refused.hint.contains("end the last path with /"), "{refused:?}");
    lab.cli.ok(&["cp", "pot://lab/*.h5", "pot://lab/dir/"]);
    lab.cli.ok(&["mv", "pot://lab/dir/*.h5", "pot://lab/middle.txt", "pot://lab/dir/below/"]);
    assert_eq!(lines(&["ls", "pot://lab/dir/below"]), "large.h5\nmiddle.txt\nsmall.h5");
    lab.cli.ok(&["mv", "pot://lab/dir/below/middle.txt", "pot://lab/"]);
    lab.cli.ok(&["mv", "pot://lab/dir/below/small.h5", "pot://lab/dir/below/*.h5"]);
    lab.cli.ok(&["rm", "pot://lab/dir/below/*.h5"]);
    assert_eq!(lines(&["ls", "pot://lab/dir/below"]), "large.h5");
    lab.cli.ok(&["rm", "-rf", "pot://lab/none*", "pot://lab/d*"]);
    assert_eq!(lines(&["ls", "pot://lab"]), "large.h5\nmiddle.txt\nsmall.h5");
    let partly = lab.cli.run(&["ls", "-R", "pot://lab", "pot://nope"]).exits(4);
    assert!(partly.text().contains("small.h5") && partly.stderr.contains("nope"));
    // -h is for sizes where people know it from elsewhere, and for help everywhere else.
    let listed = lines(&["ls", "-lh", "pot://lab"]);
    assert!(listed.contains("3 B") && !listed.contains("Usage"), "{listed}");
    assert!(lines(&["du", "-sh", "pot://lab"]).contains("6 B"));
    assert!(lines(&["cp", "-h"]).contains("Usage: potluck cp"));
    assert!(lines(&["ls", "--help"]).contains("Usage: potluck ls"));
    // Times are those of the place, unless UTC is asked for.
    let tokyo = lab.cli.with_env("TZ", "JST-9");
    let hours = |args: &[&str]| {
        let text = tokyo.ok(args).text();
        let line = text.lines().last().expect("a line").to_owned();
        let time = line.split_whitespace().nth(3).expect("a time").to_owned();
        time[..2].parse::<u32>().expect("hours")
    };
    let (here, utc) = (
        hours(&["ls", "-l", "pot://lab/small.h5"]),
        hours(&["ls", "-l", "--utc", "pot://lab/small.h5"]),
    );
    assert_eq!(here, (utc + 9) % 24);

    let explained = |args: &[&str]| {
        let ran = lab.cli.run(args);
        assert_ne!(ran.code, 0, "{args:?}");
        ran.stderr
    };
    for (args, said) in [
        (&["put", "f"][..], "potluck cp FILE pot://SPACE/"),
        (&["share", "lab"], "space grant"),
        (&["restore", "pot://lab/a"], "manager restore"),
        (&["unmount", "x"], "umount"),
        (&["nodes", "drain", "x"], "potluck drain"),
        (&["ls", "lab"], "did you mean pot://lab?"),
        (&["ls", "pot:/lab/a"], "did you mean pot://lab/a?"),
        (&["cp", "pot:/lab/a", "b"], "did you mean pot://lab/a?"),
        (&["cp", "alice:/data/a", "pot://lab/"], "names no other machine"),
        (&["cp", "a", "pot://lab/", "--copies", "two"], "no number of copies"),
        (&["space", "grant", "lab", "read", "ada"], "SPACE WHO RIGHT"),
        (&["mount", "/mnt", "pot://lab"], "comes first"),
        (&["umount", "pot://lab"], "the directory that it is mounted at"),
    ] {
        let stderr = explained(args);
        assert!(stderr.contains(said), "{args:?}: {stderr}");
    }
    let help = lines(&["--help"]);
    for group in ["Files:", "My disk:", "History and checkpoints:", "Safety:", "This machine:"] {
        assert!(help.contains(group), "{group}: {help}");
    }
}
