//! Tests that each exit code that `potluck --help` promises comes from a real situation.

use super::content::{arg, file};
use super::lab::Lab;
use super::program::{Ran, code_of};
use super::waiting::{DEADLINE, wait_until};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

#[test]
fn any_value_of_a_flag_variable_is_accepted() {
    let home = tempfile::TempDir::new().expect("a directory");
    for said in ["1", "0", "true", "false", "yes", "no", "on", ""] {
        let ran = std::process::Command::new(env!("CARGO_BIN_EXE_potluck"))
            .args(["join", "nonsense"])
            .env("HOME", home.path())
            .env("POTLUCK_NO_PROGRESS", said)
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(8), "POTLUCK_NO_PROGRESS={said}: {text}");
    }
}

#[test]
fn usage_errors_are_json_with_json_flag() {
    for (args, named, help) in [
        (&["ls", "--json", "--frobnicate"][..], "--frobnicate", "`potluck ls --help`"),
        (&["--json", "frobnicate"], "frobnicate", "`potluck --help`"),
        (&["cp", "--json"], "<FROM>", "`potluck cp --help`"),
        (
            &["--json", "space", "create", "a", "--width", "x"],
            "--width",
            "`potluck space create --help`",
        ),
    ] {
        let ran = std::process::Command::new(env!("CARGO_BIN_EXE_potluck"))
            .args(args)
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&ran.stderr);
        assert_eq!((ran.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(said["exit_code"], 2, "{said}");
        let message = said["error"]["message"].as_str().expect("a message");
        assert!(message.contains(named), "{message}");
        let hint = said["error"]["hint"].as_str().expect("a hint");
        assert!(hint.contains(help), "{hint}");
    }
}

/// Returns the numbers in the paragraph about exit codes of `potluck --help`.
fn promised(help: &str) -> BTreeSet<i32> {
    let (_, codes) = help.split_once("Exit codes: ").expect("a paragraph about exit codes");
    let codes: BTreeSet<i32> =
        codes.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(codes.len() > 9, "{codes:?} in {help}");
    codes
}

#[test]
fn every_promised_exit_code_comes_from_a_real_situation() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 1, 300_000);
    let tree = lab.dir().join("tree");
    fs::create_dir(&tree).expect("a directory");
    fs::write(tree.join("good"), "good").expect("a file");
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"bad-\xff")), "bad").expect("a file");
    let mut seen = BTreeSet::new();
    let mut saw = |what: &str, code: i32, ran: Ran| {
        assert_eq!(ran.code, code, "{what}: {}", ran.stderr);
        seen.insert(code);
    };
    saw("a stored file", 0, lab.cli.run(&["cp", arg(&input), "pot://lab/f"]));
    let help = lab.cli.run(&["--help"]);
    let promised = promised(&help.text());
    saw("help", 0, help);
    saw(
        "an output that cannot be written",
        1,
        lab.cli.run(&["cp", "pot://lab/f", "/proc/version"]),
    );
    saw("an unknown flag", 2, lab.cli.run(&["ls", "--frobnicate"]));
    saw("a path that cannot be", 2, lab.cli.run(&["ls", "pot://lab/.."]));
    saw("no such file", 3, lab.cli.run(&["cat", "pot://lab/missing"]));
    saw("some of a tree", 4, lab.cli.run(&["cp", "-r", arg(&tree), "pot://lab/tree"]));
    saw(
        "more copies than donors",
        6,
        lab.cli.run(&["cp", arg(&input), "pot://lab/g", "--copies", "2"]),
    );
    saw("a token that is none", 8, lab.cli.run(&["join", "nonsense"]));
    saw(
        "a file that is there",
        10,
        lab.cli.run(&["cp", arg(&input), "pot://lab/f", "--if-absent"]),
    );

    let mut waiting = lab.cli.start(&["cp", "-", "pot://lab/never"]);
    wait_until("the session", DEADLINE, || lab.cli.status()["sessions"] == 1);
    waiting.signal(Signal::INT);
    let interrupted = code_of(waiting.end("cp after Ctrl-C"));
    assert_eq!(interrupted, 130);
    assert!(lab.cli.said_by_the_last().contains("the same command goes on"), "it says so");

    for path in lab.lent("donor-1").chunks() {
        let chunk = fs::File::options().write(true).open(path).expect("a chunk file");
        chunk.write_all_at(b"damage", 1000).expect("damage");
    }
    saw("damage without another copy", 7, lab.cli.run(&["cat", "pot://lab/f"]));
    lab.kill_manager();
    let away = lab.cli.run(&["ls", "--retry-for", "3s"]);
    let waits: Vec<_> = away.stderr.lines().filter(|line| line.contains("waiting for")).collect();
    assert!(waits.len() == 1 && waits[0].contains("up to 3s"), "{}", away.stderr);
    saw("no manager", 5, away);
    seen.insert(interrupted);
    assert_eq!(seen, promised);
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (input, content) = file(lab.dir(), "input", 7, 4 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    for args in [&["cat", "pot://lab/f"][..], &["cp", "pot://lab/f", "-"]] {
        let mut command = lab.cli.command();
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().expect("it starts");
        let mut head = [0; 10];
        running.stdout.take().expect("a pipe").read_exact(&mut head).expect("the first bytes");
        assert_eq!(head[..], content[..10]);
        let ended = running.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*said), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn quiet_invite_prints_the_token_only() {
    let lab = Lab::manager_only(&[]);
    let ran = lab.cli.ok(&["invite", "-q"]);
    assert_eq!(ran.stderr, "");
    let token = ran.text().trim().to_owned();
    assert!(token.starts_with("pot1.") && !token.contains(' '), "{token}");
    let join = |home: &str, words: &[&str]| {
        lab.cli.at_home(&lab.dir().join(home)).run(&[&["join"], words].concat())
    };
    join("alone", &[&token]).ok();
    let line = lab.cli.ok(&["invite"]).text().trim().to_owned();
    join("pasted", &line.split(' ').collect::<Vec<_>>()).ok();
    join("quoted", &[&lab.cli.ok(&["invite"]).text()]).ok();
    join("two", &[&token, &token]).exits(8);
}
