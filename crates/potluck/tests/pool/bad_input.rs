//! Tests bad input by people: each mistake is a clear error or is recovered from silently, and none hangs.

use super::content::{arg, assert_same, bytes, file};
use super::lab::Lab;
use super::member::Member;
use super::waiting::{DEADLINE, skip, wait_until};
use potluck_wire::control::{Call, Callers};
use potluck_wire::token::JoinToken;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[test]
fn putting_where_nobody_lends_is_an_error_soon() {
    let mut lab = Lab::manager_only(&[]);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, content) = file(lab.dir(), "input", 12, 1 << 20);
    let ran = lab.cli.run(&["--json", "cp", arg(&input), "pot://lab/f"]).exits(6);
    assert!(ran.took < DEADLINE, "{:?}", ran.took);
    let refused = ran.failure();
    assert_eq!(refused.code, "POT-E030", "{refused:?}");
    assert!(refused.hint.contains("potluck lend"), "{refused:?}");
    let text = lab.cli.ok(&["status"]).text();
    assert!(text.contains("nobody lends yet"), "{text}");

    // Donors that are away may come back, so the client is told to try again.
    lab.lend("donor-1", Default::default());
    lab.wait_live();
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.kill_donor("donor-1");
    wait_until("the dead donor to be noticed", DEADLINE, || lab.cli.live_donors().is_empty());
    let (other, _) = file(lab.dir(), "other", 13, 1 << 20);
    let refused = lab.cli.fails(5, &["cp", arg(&other), "pot://lab/g"]);
    assert_eq!(refused.code, "POT-E033", "{refused:?}");
    let refused = lab.cli.fails(5, &["cat", "pot://lab/f"]);
    assert_eq!(refused.code, "POT-E050", "{refused:?}");
    lab.start_donor("donor-1");
    lab.wait_back("donor-1");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn without_a_manager_commands_are_an_error_soon() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.kill_manager();
    let (input, _) = file(lab.dir(), "input", 12, 1 << 20);
    for command in
        [&["ls"][..], &["status"], &["cp", arg(&input), "pot://lab/f"], &["cat", "pot://lab/f"]]
    {
        let ran = lab.cli.run(&[&["--json", "--retry-for", "1s"], command].concat()).exits(5);
        assert!(ran.took < DEADLINE, "{command:?}: {:?}", ran.took);
        let refused = ran.failure();
        assert_eq!(refused.code, "POT-E070", "{command:?}: {refused:?}");
        assert!(!refused.hint.is_empty(), "{refused:?}");
    }
}

#[test]
fn a_width_larger_than_the_pool_uses_the_whole_pool() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--width", "200", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 14, 2 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    assert_eq!(lab.cli.shares("pot://lab/f").len(), 2);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    // More copies than there are donors is a promise that cannot be kept.
    let refused = lab.cli.fails(6, &["cp", arg(&input), "pot://lab/g", "--copies", "3"]);
    assert_eq!(refused.code, "POT-E031", "{refused:?}");
    lab.cli.fails(3, &["stat", "pot://lab/g"]);
}

/// Defines a call whose path is any text, also text that no `PoolPath` can be.
macro_rules! any_text_call {
    ($name:ident, $call:literal) => {
        #[derive(Serialize, Deserialize)]
        struct $name {
            path: String,
        }
        impl Call for $name {
            const NAME: &'static str = $call;
            const BY: Callers = Callers::Users;
            const WHAT: &'static str = "a test";
            type Reply = Value;
        }
    };
}
any_text_call!(AnyStat, "stat");
any_text_call!(AnyMakeDir, "make-dir");
any_text_call!(AnyReserve, "reserve");

#[test]
fn names_that_no_file_may_have_are_refused() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, content) = file(lab.dir(), "input", 15, 1000);
    let (longest, too_long) = ("x".repeat(255), "x".repeat(256));
    let two_byte = "ü".repeat(128);
    let deep = "d/".repeat(2100);
    for bad in ["..", ".", "a/../b", &too_long, &two_byte, &deep] {
        let path = format!("pot://lab/{bad}");
        for command in [
            &["cp", arg(&input), &path][..],
            &["cat", &path],
            &["mkdir", "-p", &path],
            &["mv", "pot://lab/x", &path],
            &["stat", &path],
        ] {
            let refused = lab.cli.fails(2, command);
            assert!(refused.hint.contains("pot://lab/run-1"), "{command:?}: {refused:?}");
        }
    }
    for bad in ["Lab", "a/b", "", "-x", "ü", &too_long, "..", "a b"] {
        lab.cli.run(&["space", "create", "--", bad]).exits(2);
        lab.cli.run(&["ls", &format!("pot://{bad}")]).exits(if bad.is_empty() {
            0
        } else if bad == "a/b" {
            3
        } else {
            2
        });
    }
    // The longest name that is allowed works, also as a local file.
    let path = format!("pot://lab/{longest}");
    lab.cli.ok(&["cp", arg(&input), &path]);
    let to = lab.dir().join("long");
    std::fs::create_dir(&to).expect("a directory");
    lab.cli.ok(&["cp", &path, &format!("{}/", arg(&to))]);
    assert_same(&std::fs::read(to.join(&longest)).expect("the copy"), &content, "the longest name");

    // A program can send what no command line can, such as NUL.
    let admin = Member::load(&lab.manager_dir().join("admin"));
    let texts = [
        "pot://lab/a\0b",
        "pot://lab/../x",
        "pot://lab/./x",
        "lab/x",
        "/etc/passwd",
        "pot://LAB/x",
        "",
        &format!("pot://lab/{too_long}"),
    ];
    for text in texts {
        let path = text.to_string();
        let answers = [
            admin.call(&AnyStat { path: path.clone() }),
            admin.call(&AnyMakeDir { path: path.clone() }),
            admin.call(&AnyReserve { path: path.clone() }),
        ];
        for answer in answers {
            let refused = answer.expect_err("a name that cannot be");
            assert_eq!(refused.kind.exit_code(), 2, "{path:?}: {refused:?}");
        }
    }
}

#[test]
fn names_from_the_pool_stay_below_the_target() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, _) = file(lab.dir(), "input", 16, 1000);
    // These names are odd, and none of them may lead anywhere else.
    for name in ["...", "~", "-rf", "a\\..\\b", "%2e%2e", "c:", "\u{202e}txt", "con"] {
        lab.cli.ok(&["cp", arg(&input), &format!("pot://lab/odd/{name}")]);
    }
    let to = lab.dir().join("below/target");
    std::fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
    lab.cli.ok(&["cp", "-r", "pot://lab/odd", arg(&to)]);
    assert_eq!(super::lent::files_of(&to).len(), 8);
    assert_eq!(super::lent::files_of(to.parent().expect("a parent")).len(), 1);
}

#[test]
fn a_token_that_is_wrong_or_spent_lets_nobody_in() {
    let lab = Lab::manager_only(&[]);
    let good = lab.token("user");
    let token: JoinToken = good.parse().expect("a token");
    let forged = JoinToken { secret: potluck_core::chunk::Digest([7; 32]), ..token.clone() };
    let promoted = JoinToken { role: potluck_wire::token::Role::Admin, ..token.clone() };
    let garbage = [
        "",
        "pot1.",
        "pot1.%%%",
        "pot2.abc",
        "hello",
        &good[..good.len() - 3],
        &format!("pot1.{}", "A".repeat(100_000)),
    ];
    for text in garbage {
        let joiner = lab.cli.at_home(&lab.dir().join("garbage"));
        let refused = joiner.fails(8, &["join", text]);
        assert_eq!(refused.code, "POT-E060", "{text:.40}: {refused:?}");
    }
    let joiner = lab.cli.at_home(&lab.dir().join("forged"));
    assert_eq!(joiner.fails(8, &["join", &forged.to_string()]).code, "POT-E060");
    // The manager goes by the role that it recorded, and not by the one that the token names.
    let joiner = lab.cli.at_home(&lab.dir().join("promoted"));
    let joined = joiner.json(&["join", &promoted.to_string()]);
    assert_eq!(joined["role"], "user", "{joined}");
    assert_eq!(joiner.fails(8, &["invite"]).code, "POT-E062");
    // Nobody is at this address, and the directory below has no identity in it.
    let nowhere = JoinToken { manager: "127.0.0.1:1".parse().expect("an address"), ..token };
    let joiner = lab.cli.at_home(&lab.dir().join("nowhere"));
    assert_eq!(joiner.fails(5, &["join", &nowhere.to_string()]).code, "POT-E070");
    lab.cli.under(&lab.dir().join("no/identity")).fails(3, &["ls"]);
}

#[test]
fn a_local_disk_that_is_full_is_no_success() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 17, 3 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let full = std::path::Path::new("/dev/full");
    if full.exists() {
        assert_ne!(lab.cli.run(&["cp", "pot://lab/f", "/dev/full"]).code, 0);
        let mut command = lab.cli.command();
        let out = std::fs::File::options().write(true).open(full).expect("/dev/full");
        let status =
            command.args(["cat", "pot://lab/f"]).stdout(out).stderr(std::process::Stdio::null());
        assert!(!status.status().expect("cat").success());
    }
    lab.cli.ok(&["cp", "pot://lab/f", "/dev/null"]);
}

#[test]
fn a_result_that_cannot_be_written_is_no_success() {
    let lab = Lab::with_donors(1);
    let full = std::path::Path::new("/dev/full");
    if !full.exists() {
        return skip("a_result_that_cannot_be_written_is_no_success", "no /dev/full");
    }
    lab.cli.ok(&["space", "create", "lab"]);
    for args in [&["ls"][..], &["--json", "status"], &["invite"], &["-q", "invite"], &["fsck"]] {
        let mut command = lab.cli.command();
        let out = std::fs::File::options().write(true).open(full).expect("/dev/full");
        let ran = command.args(args).stdout(out).output().expect("it runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("cannot write to standard output"), "{args:?}: {said}");
    }
}

#[test]
fn a_failure_that_cannot_be_told_is_no_panic() {
    let lab = Lab::with_donors(1);
    let full = std::path::Path::new("/dev/full");
    if !full.exists() {
        return skip("a_failure_that_cannot_be_told_is_no_panic", "no /dev/full");
    }
    for args in [&["ls", "pot://none"][..], &["--json", "ls", "pot://none"]] {
        let mut command = lab.cli.command();
        let err = std::fs::File::options().write(true).open(full).expect("/dev/full");
        let ended = command.args(args).stderr(err).status().expect("it runs");
        assert_eq!(ended.code(), Some(3), "{args:?}");
    }
}

#[test]
fn input_that_cannot_be_read_fails_alone() {
    let lab = Lab::with_options(1, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab"]);
    let from = lab.dir().join("from");
    std::fs::create_dir(&from).expect("a directory");
    std::fs::write(from.join("good"), bytes(18, 10_000)).expect("a file");
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"not-utf8-\xff");
    std::fs::write(from.join(name), "x").expect("a file");
    let ran = lab.cli.run(&["--json", "cp", "-r", arg(&from), "pot://lab/tree"]).exits(4);
    let report = ran.json();
    assert_eq!(
        (&report["files"], report["failed"].as_array().map(Vec::len)),
        (&1.into(), Some(1)),
        "{report}"
    );
    assert_eq!(report["failed"][0]["error"]["code"], "POT-E002", "{report}");
    assert_same(&lab.cli.cat("pot://lab/tree/good"), &bytes(18, 10_000), "the good file");
}
