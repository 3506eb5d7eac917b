//! Tests that files come out as they went in, in every shape and direction.

use super::content::{arg, assert_same, bytes, file, tree_of};
use super::lab::{Lab, Lending};
use super::program::Running;
use super::tap::Tap;
use super::waiting::{DEADLINE, has_program, pause, skip, wait_until};
use potluck_core::chunk::Digest;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

#[test]
fn files_of_every_size_come_back_with_time_and_mode() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["space", "create", "open", "--plain", "--chunk-size", "64KiB"]);
    let sizes = [0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_072, 1_000_003];
    for (seed, size) in sizes.into_iter().enumerate() {
        let (input, content) = file(lab.dir(), &format!("in-{size}"), seed as u64, size);
        let time = UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
        File::options()
            .write(true)
            .open(&input)
            .and_then(|f| f.set_modified(time))
            .expect("a time");
        fs::set_permissions(&input, fs::Permissions::from_mode(0o741)).expect("a mode");
        for space in ["lab", "open"] {
            let path = format!("pot://{space}/size/{size}");
            let report = lab.cli.json(&["cp", arg(&input), &path]);
            assert_eq!((&report["files"], &report["bytes"]), (&1.into(), &size.into()), "{report}");
            let stated = lab.cli.json(&["stat", &path]);
            assert_eq!(stated["entry"]["size"], size, "{stated}");
            let to = lab.dir().join(format!("out-{space}-{size}"));
            lab.cli.ok(&["cp", &path, arg(&to)]);
            assert_same(&fs::read(&to).expect("the copy"), &content, &path);
            let about = fs::metadata(&to).expect("metadata");
            assert_eq!(about.modified().expect("a time"), time, "{path}");
            assert_eq!(about.permissions().mode() & 0o777, 0o741, "{path}");
        }
    }
}

#[test]
fn the_digest_depends_on_the_bytes_alone() {
    let lab = Lab::with_donors(3);
    let spaces: [(&str, &[&str]); 4] = [
        ("sealed", &[]),
        ("plain", &["--plain"]),
        ("fine", &["--plain", "--chunk-size", "64KiB"]),
        ("coded", &["--ec", "2+1", "--chunk-size", "256KiB"]),
    ];
    for (space, options) in spaces {
        lab.cli.ok(&[&["space", "create", space], options].concat());
    }
    for (name, len) in [("inline", 100), ("small", 65_536), ("odd", 100_000), ("large", 1_300_001)]
    {
        let (input, content) = file(lab.dir(), name, 4, len);
        let printed = lab.cli.ok(&["hash", arg(&input)]).text();
        let digest = Digest::of(&content).to_string();
        assert_eq!(printed, format!("{digest}  {}\n", arg(&input)));
        if len <= 65_536 {
            assert_eq!(digest, blake3::hash(&content).to_hex().as_str(), "what b3sum says");
        }
        for (space, _) in spaces {
            let path = format!("pot://{space}/{name}");
            lab.cli.ok(&["cp", arg(&input), &path]);
            let stated = lab.cli.json(&["stat", &path]);
            assert_eq!(stated["entry"]["digest"], digest, "{stated}");
        }
    }
    lab.cli.fails(3, &["hash", arg(&lab.dir().join("none"))]);
}

#[test]
fn trees_keep_their_shape() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab"]);
    let from = lab.dir().join("from");
    for dir in ["a/b/c", "empty", "a/hollow/deep", "ünïcode 名前"] {
        fs::create_dir_all(from.join(dir)).expect("a directory");
    }
    let names = [
        "top",
        "a/one",
        "a/b/two words",
        "a/b/c/-dash",
        "ünïcode 名前/naïve",
        "a/.hidden",
        "a/b/new\nline",
        "q?*[x]",
    ];
    for (seed, name) in names.iter().enumerate() {
        fs::write(from.join(name), bytes(seed as u64, 1 << (2 * seed + 3))).expect("a file");
    }
    fs::write(from.join("a/script"), "#!/bin/sh\n").expect("a file");
    fs::set_permissions(from.join("a/script"), fs::Permissions::from_mode(0o755)).expect("a mode");

    // Into a name that is not there: the tree gets that name.
    let report = lab.cli.json(&["cp", "-r", arg(&from), "pot://lab/runs"]);
    assert_eq!(report["files"], names.len() + 1, "{report}");
    let back = lab.dir().join("back");
    lab.cli.ok(&["cp", "-r", "pot://lab/runs", arg(&back)]);
    assert_eq!(tree_of(&back), tree_of(&from));

    // Into a directory, when that is said: the tree goes below it; both ways.
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/runs/"]);
    let into = lab.dir().join("into");
    fs::create_dir(&into).expect("a directory");
    lab.cli.ok(&["cp", "-r", "pot://lab/runs/from", &format!("{}/", arg(&into))]);
    assert_eq!(tree_of(&into.join("from")), tree_of(&from));

    // Several at once need a directory.
    let (one, two) = (from.join("top"), from.join("a/one"));
    lab.cli.ok(&["cp", arg(&one), arg(&two), "pot://lab/both/"]);
    lab.cli.fails(2, &["cp", arg(&one), arg(&two), "pot://lab/neither"]);
    let both = lab.dir().join("both/");
    lab.cli.ok(&["cp", "pot://lab/both/top", "pot://lab/both/one", &format!("{}/", arg(&both))]);
    assert_eq!(tree_of(&both).len(), 2);
}

#[test]
fn what_is_no_file_is_skipped_and_told() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let from = lab.dir().join("from");
    fs::create_dir_all(from.join("dir")).expect("a directory");
    fs::write(from.join("file"), "content").expect("a file");
    symlink("file", from.join("link")).expect("a link");
    symlink("..", from.join("dir/loop")).expect("a link");
    symlink("nowhere", from.join("broken")).expect("a link");
    let report = lab.cli.json(&["cp", "-r", arg(&from), "pot://lab/odd"]);
    assert_eq!(report["files"], 2, "the file and the link to it: {report}");
    assert_eq!(report["skipped"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(lab.cli.cat("pot://lab/odd/link"), b"content");
}

#[test]
fn dash_is_standard_input_and_output() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab"]);
    for (name, len) in [("large", 5_000_001), ("small", 10), ("none", 0)] {
        let (input, content) = file(lab.dir(), name, 44, len);
        let path = format!("pot://lab/{name}");
        let stdin = Stdio::from(File::open(&input).expect("the input"));
        lab.cli.run_with_input(&["cp", "-", &path], stdin).ok();
        // Standard output carries the file and nothing else, whatever else is asked for.
        assert_same(&lab.cli.ok(&["cp", &path, "-"]).stdout, &content, "cp to -");
        assert_same(&lab.cli.ok(&["cp", &path, "-", "--json"]).stdout, &content, "cp to - --json");
        assert_same(&lab.cli.cat(&path), &content, "cat");
    }
    // Standard input has no name of its own.
    lab.cli.fails(2, &["cp", "-", "pot://lab/"]);
    // A reader that goes away early is no disaster.
    let mut running = lab.cli.start(&["cat", "pot://lab/large"]);
    let mut out = running.child().stdout.take().expect("a pipe");
    out.read_exact(&mut [0; 10]).expect("the first bytes");
    drop(out);
    running.end("cat whose reader left");
}

#[test]
fn cat_serves_byte_ranges() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    for len in [300_000_usize, 3000] {
        let (input, content) = file(lab.dir(), "input", 5, len);
        lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
        let last = len - 1;
        let ranges = [
            ("0-0".into(), 0..1),
            ("0-1023".into(), 0..1024),
            (format!("{}-{}", len / 3, len / 2), len / 3..len / 2 + 1),
            (format!("{last}-"), last..len),
            (format!("{last}-{}", 10 * len), last..len),
            ("-100".into(), len - 100..len),
            (format!("-{}", 2 * len), 0..len),
            (format!("{len}-"), len..len),
        ];
        for (range, expected) in ranges {
            let ran = lab.cli.ok(&["cat", "pot://lab/f", "--range", &range]);
            assert_same(&ran.stdout, &content[expected], &format!("{range} of {len}"));
        }
    }
    let (input, content) = file(lab.dir(), "input", 5, 300_000);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let ran = lab.cli.ok(&["cat", "pot://lab/f", "--range", "65535-65536"]);
    assert_same(&ran.stdout, &content[65_535..65_537], "across a chunk's edge");
    for bad in ["5-4", "x", "-", "1-2-3"] {
        lab.cli.fails(2, &["cat", "pot://lab/f", "--range", bad]);
    }
}

#[test]
fn a_copy_appears_whole_or_not_at_all() {
    let mut lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 6, 2 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let into = lab.dir().join("into");
    fs::create_dir(&into).expect("a directory");
    let to = into.join("f");
    fs::write(&to, "what was there").expect("a file");
    lab.kill_donor("donor-1");
    lab.cli.fails(5, &["cp", "pot://lab/f", arg(&to)]);
    assert_eq!(fs::read(&to).expect("the old file"), b"what was there");
    assert_eq!(super::lent::files_of(&into).len(), 1, "no part is left");
    lab.start_donor("donor-1");
    lab.wait_back("donor-1");
    lab.cli.ok(&["cp", "pot://lab/f", arg(&to)]);
    assert_same(&fs::read(&to).expect("the file"), &content, "the copy");
}

/// A command on a terminal of its own, made by `script`, whose standard output is what the
/// terminal shows of the command's standard error.
fn on_a_terminal(command: &Command) -> Command {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted: Vec<_> = words
        .map(|word| format!("'{}'", word.to_str().expect("test arguments are UTF-8")))
        .collect();
    let line = format!("stty cols 100 && exec {} >/dev/null", quoted.join(" "));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script
}

#[test]
fn a_terminal_sees_rate_and_time_left_and_a_pipe_does_not() {
    if !has_program("script") {
        return skip("a_terminal_sees_rate_and_time_left", "no `script` to make a terminal");
    }
    let mut lab = Lab::manager_only(&[]);
    let tap = Tap::slow(4 << 20);
    let lending = Lending { advertise: Some(tap.address()), ..Lending::default() };
    lab.lend("slow", lending);
    tap.aim(lab.donor_address("slow"));
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 7, 4 << 20);
    for (number, extra) in
        [&[][..], &["--quiet"], &["--no-progress"], &["--json"]].into_iter().enumerate()
    {
        let (path, seen) =
            (format!("pot://lab/{number}"), lab.dir().join(format!("seen-{number}")));
        let mut command = lab.cli.command();
        command.args(["cp", arg(&input), &path]).args(extra);
        let mut command = on_a_terminal(&command);
        command.stdout(File::create(&seen).expect("a file"));
        let mut running = Running::start(&mut command);
        let shown = || String::from_utf8_lossy(&fs::read(&seen).expect("a file")).into_owned();
        if extra.is_empty() {
            wait_until("a bar with a rate and the time left", DEADLINE, || {
                shown().contains("MiB/s") && shown().contains("left")
            });
        }
        assert!(running.end("cp").success());
        assert_eq!(extra.is_empty(), !shown().is_empty(), "{extra:?}: {}", shown());
    }
    let ran = lab.cli.ok(&["cp", arg(&input), "pot://lab/piped"]);
    assert_eq!(ran.stderr, "", "no bar where nobody watches");
}

#[test]
fn a_file_that_grows_while_it_is_read_is_stored_as_it_was_read() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "log", 8, 3 << 20);
    let mut running = lab.cli.start(&["cp", arg(&input), "pot://lab/log", "--json"]);
    let mut log = File::options().append(true).open(&input).expect("the log");
    // Not for ever: a reader follows the log as long as it grows.
    for _ in 0..200 {
        log.write_all(&[7; 50_001]).expect("a growing log");
        pause(Duration::from_millis(1));
    }
    assert!(running.end("cp").success());
    let stored = lab.cli.cat("pot://lab/log");
    let whole = fs::read(&input).expect("the log");
    assert!(stored.len() >= 3 << 20, "{} bytes", stored.len());
    assert_same(&stored, &whole[..stored.len()], "a beginning of the log");
}
