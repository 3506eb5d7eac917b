//! Tests what a user may do in a space of another, step by step, through the command line and a mount.

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Cli, Lab};
use super::mounts::{Mount, can_mount};
use std::fs::File;
use std::io::Write;
use std::os::fd::IntoRawFd;

fn join(lab: &Lab, name: &str) -> Cli {
    let cli = lab.cli.at_home(&lab.dir().join(name));
    cli.ok(&["join", &lab.token("user"), "--name", name]);
    cli
}

#[test]
fn history_needs_the_list_right() {
    let lab = Lab::with_donors(1);
    let (ada, bert) = (join(&lab, "ada"), join(&lab, "bert"));
    let (input, _) = file(lab.dir(), "input", 1, 50_000);
    ada.ok(&["space", "create", "hush", "--keep-versions", "3", "--trash", "7d"]);
    ada.ok(&["cp", arg(&input), "pot://hush/layoffs"]);
    ada.ok(&["cp", arg(&input), "pot://hush/layoffs"]);
    ada.ok(&["rm", "pot://hush/layoffs"]);
    assert!(ada.ok(&["trash", "ls", "pot://"]).text().contains("layoffs"));
    let (bert_sees, all) =
        (bert.ok(&["trash", "ls", "pot://"]).text(), bert.json(&["trash", "ls", "pot://"]));
    assert!(!bert_sees.contains("hush") && !all.to_string().contains("hush"), "{bert_sees} {all}");
    assert_eq!(bert.fails(3, &["versions", "pot://hush/layoffs"]).code, "POT-E011");
    // A purge has to name a space, and shows and purges nothing without one.
    for command in [&["ckpt", "purge", "-n", "pot://"][..], &["ckpt", "purge", "pot://"]] {
        assert_eq!(bert.fails(2, command).code, "POT-E001", "{command:?}");
    }
}

#[test]
fn right_revoked_during_a_write_fails_close() {
    if !can_mount("a_program_from_whose_user_the_right_is_taken_in_the_middle_of_a_write") {
        return;
    }
    let lab = Lab::with_donors(1);
    let (ada, bert) = (join(&lab, "ada"), join(&lab, "bert"));
    ada.ok(&["space", "create", "lab"]);
    ada.ok(&["mkdir", "pot://lab/d"]);
    for (name, taken) in [("writes-no-more", &["write"][..]), ("sees-no-more", &[])] {
        ada.ok(&["space", "grant", "lab", "bert", "read", "write"]);
        let mount = Mount::start_as(&bert, lab.dir(), name, "pot://lab", &[]);
        let files: Vec<File> = ["f", "d/f"]
            .iter()
            .map(|path| {
                let mut file = File::create(mount.at(path)).expect("made");
                file.write_all(&bytes(1, 8 << 20)).expect("written");
                file
            })
            .collect();
        ada.ok(&[&["space", "revoke", "lab", "bert"], taken].concat());
        for (file, path) in files.into_iter().zip(["f", "d/f"]) {
            // SAFETY: the descriptor is this test's own, and nobody else closes it.
            let closed = unsafe { libc::close(file.into_raw_fd()) };
            let why = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((closed, why), (-1, Some(libc::EACCES)), "{name}: {path}");
        }
        assert_eq!(ada.fails(3, &["stat", "pot://lab/f"]).code, "POT-E010");
    }
}

#[test]
fn grants_are_enforced_exactly() {
    let lab = Lab::with_donors(2);
    let (ada, bert) = (join(&lab, "ada"), join(&lab, "bert"));
    let (input, content) = file(lab.dir(), "input", 1, 1 << 20);
    let made = ada.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]).text();
    assert!(made.contains("space grant lab everyone read write"), "{made}");
    ada.ok(&["cp", arg(&input), "pot://lab/f"]);

    // Without any right the space is not there for him, and asking tells no more than of one that
    // never was.
    assert_eq!(bert.json(&["space", "ls"])["spaces"].as_array().map(Vec::len), Some(0));
    assert_eq!(bert.ok(&["ls"]).text(), "");
    assert!(!bert.ok(&["status"]).text().contains("lab"));
    for command in [
        &["ls", "pot://lab"][..],
        &["stat", "pot://lab/f"],
        &["cat", "pot://lab/f"],
        &["cp", arg(&input), "pot://lab/g"],
        &["rm", "-y", "pot://lab/f"],
        &["du", "pot://lab"],
        &["verify", "pot://lab/f"],
        &["space", "who", "lab"],
        &["space", "rm", "-r", "-y", "lab"],
    ] {
        assert_eq!(bert.fails(3, command).code, "POT-E011", "{command:?}");
    }

    // The right to list gives names, and not what is in the files.
    ada.ok(&["space", "grant", "lab", "bert", "list"]);
    assert_eq!(bert.ok(&["ls", "pot://lab"]).text(), "f\n");
    assert!(bert.json(&["stat", "pot://lab/f"])["entry"]["digest"].is_null());
    assert!(ada.json(&["stat", "pot://lab/f"])["entry"]["digest"].is_string());
    let refused = bert.fails(8, &["cat", "pot://lab/f"]);
    assert_eq!(refused.code, "POT-E067", "{refused:?}");
    assert!(refused.hint.contains("potluck space who lab"), "{refused:?}");
    let unread = bert.fails(8, &["verify", "--read", "pot://lab/f"]);
    assert_eq!(unread.code, "POT-E067", "nothing is known to be wrong: {unread:?}");
    bert.ok(&["space", "create", "own"]);
    let uncopied = bert.fails(8, &["cp", "pot://lab/f", "pot://own/f"]);
    assert_eq!(uncopied.code, "POT-E067", "{uncopied:?}");
    let who = bert.ok(&["space", "who", "lab"]).text();
    assert!(who.contains("ada") && who.contains("list read write manage"), "{who}");

    // The right to read comes by a group.
    lab.cli.ok(&["group", "create", "students"]);
    lab.cli.ok(&["group", "add", "students", "bert"]);
    assert!(lab.cli.ok(&["group", "ls"]).text().contains("bert (5)"));
    ada.ok(&["space", "grant", "pot://lab/", "students", "read"]);
    assert_same(&bert.cat("pot://lab/f"), &content, "read");
    bert.ok(&["verify", "--read", "pot://lab/f"]);
    assert_eq!(bert.fails(8, &["cp", arg(&input), "pot://lab/g"]).code, "POT-E067");
    assert_eq!(bert.fails(8, &["rm", "-y", "pot://lab/f"]).code, "POT-E067");

    // The right to write does not let him decide how files are kept or who reads them.
    ada.ok(&["space", "grant", "lab", "bert", "write"]);
    bert.ok(&["cp", arg(&input), "pot://lab/g"]);
    bert.ok(&["mv", "pot://lab/g", "pot://lab/h"]);
    bert.ok(&["cp", "pot://lab/f", "pot://own/f"]);
    assert_eq!(ada.fails(3, &["cp", "pot://own/f", "pot://lab/x"]).code, "POT-E011");
    for command in [
        &["policy", "set", "pot://lab", "--copies", "2", "-y"][..],
        &["space", "grant", "lab", "everyone", "read"],
        &["space", "revoke", "lab", "ada"],
    ] {
        assert_eq!(bert.fails(8, command).code, "POT-E067", "{command:?}");
    }

    // A command does all that it asks for, or nothing.
    let refused = bert.fails(8, &["mkdir", "--copies", "1", "pot://lab/less"]);
    assert_eq!(refused.code, "POT-E067", "{refused:?}");
    assert_eq!(ada.fails(3, &["stat", "pot://lab/less"]).code, "POT-E010");

    // He may store no more than an admin allows, in a space or in all that he made.
    for (of, shown) in [("pot://own", "pot://own"), ("bert", "spaces of bert (5)")] {
        lab.cli.ok(&["quota", "set", of, "--bytes", "1500KiB"]);
        let refused = bert.fails(6, &["cp", arg(&input), "pot://own/more"]);
        assert_eq!(refused.code, "POT-E035", "{refused:?}");
        assert!(bert.ok(&["quota", "ls"]).text().contains(shown));
        assert!(bert.ok(&["quota", "get", of]).text().contains("1.0 MiB of 1.5 MiB"));
        lab.cli.ok(&["quota", "set", of, "--none"]);
    }
    lab.cli.ok(&["quota", "set", "pot://own", "--files", "9"]);
    assert!(bert.ok(&["du", "pot://own"]).text().contains("files and directories: 1 of 9"));
    assert!(bert.ok(&["status"]).text().contains("files and directories: 1 of 9"));
    // How many files a tree has is known as they become visible.
    let tree = lab.dir().join("tree");
    std::fs::create_dir(&tree).expect("made");
    (0..12).for_each(|n| std::fs::write(tree.join(format!("{n}")), "small").expect("written"));
    let stored = bert.run(&["--json", "cp", "-r", arg(&tree), "pot://own/tree"]).exits(4).json();
    assert_eq!(stored["failed"][0]["error"]["code"], "POT-E035", "{stored}");

    // A right that is taken ends at once, also for an upload that is under way.
    let mut upload = bert.start(&["--retry-for", "1s", "cp", "-", "pot://lab/late"]);
    Write::write_all(upload.child().stdin.as_mut().expect("a pipe"), &content).expect("fed");
    super::waiting::wait_until("the upload to begin", super::waiting::DEADLINE, || {
        lab.cli.status()["sessions"] == 1
    });
    ada.ok(&["space", "revoke", "lab", "bert"]);
    drop(upload.child().stdin.take());
    let ended = super::program::code_of(upload.end("the upload"));
    assert_eq!(ended, 8, "he has not the right any more");
    assert_eq!(ada.fails(3, &["stat", "pot://lab/late"]).code, "POT-E010");
    assert_eq!(bert.fails(8, &["cp", arg(&input), "pot://lab/g"]).code, "POT-E067");
    assert_same(&bert.cat("pot://lab/f"), &content, "his group still reads");
    lab.cli.ok(&["group", "remove", "students", "bert"]);
    assert_eq!(bert.fails(3, &["cat", "pot://lab/f"]).code, "POT-E011");

    // An admin can look up who was refused what, and who let whom do what.
    let audit = lab.cli.json(&["audit"]).to_string();
    for told in ["granted write in lab to bert (5)", "took list write in lab from bert (5)"] {
        assert!(audit.contains(told), "{told}: {audit}");
    }
    assert!(audit.contains("needs the right to manage in the space lab"), "{audit}");
    let refused = lab.cli.json(&["audit"])["entries"].as_array().expect("a list").clone();
    let is_of_tree = |it: &serde_json::Value| it["call"] == "commit" && it["code"] == "POT-E035";
    assert!(refused.iter().any(is_of_tree), "{refused:?}");
    assert!(lab.cli.ok(&["audit", "--since", "1h"]).text().contains("bert (5)"));
    assert_eq!(bert.fails(8, &["audit"]).code, "POT-E062");

    // An admin sees and does all.
    assert_same(&lab.cli.cat("pot://own/f"), &content, "an admin reads");
    lab.cli.ok(&["space", "rm", "-r", "-y", "own"]);
}
