//! Tests that files come out as they went in, in every shape and direction.

use super::content::{arg, assert_same, bytes, file, tree_of};
use super::lab::Lab;
use super::program::{Running, code_of};
use super::tap::Tap;
use super::waiting::{DEADLINE, has_program, pause, skip, wait_until};
use potluck_core::chunk::Digest;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
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

    // A tree that is copied to a name that is not there gets that name.
    let report = lab.cli.json(&["cp", "-r", arg(&from), "pot://lab/runs"]);
    assert_eq!(report["files"], names.len() + 1, "{report}");
    let back = lab.dir().join("back");
    lab.cli.ok(&["cp", "-r", "pot://lab/runs", arg(&back)]);
    assert_eq!(tree_of(&back), tree_of(&from));

    // With a slash the tree goes below the directory, both ways.
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/runs/"]);
    let into = lab.dir().join("into");
    fs::create_dir(&into).expect("a directory");
    lab.cli.ok(&["cp", "-r", "pot://lab/runs/from", &format!("{}/", arg(&into))]);
    assert_eq!(tree_of(&into.join("from")), tree_of(&from));

    // Several sources need a directory as their target.
    let (one, two) = (from.join("top"), from.join("a/one"));
    lab.cli.ok(&["cp", arg(&one), arg(&two), "pot://lab/both/"]);
    lab.cli.fails(2, &["cp", arg(&one), arg(&two), "pot://lab/neither"]);
    let both = lab.dir().join("both/");
    lab.cli.ok(&["cp", "pot://lab/both/top", "pot://lab/both/one", &format!("{}/", arg(&both))]);
    assert_eq!(tree_of(&both).len(), 2);
}

/// Makes a tree with links to a file, to a directory and to nowhere, and returns its path.
fn tree_with_links(dir: &Path) -> PathBuf {
    let from = dir.join("from");
    fs::create_dir_all(from.join("dir")).expect("a directory");
    fs::write(from.join("file"), "content").expect("a file");
    symlink("file", from.join("link")).expect("a link");
    symlink("..", from.join("dir/loop")).expect("a link");
    symlink("nowhere", from.join("broken")).expect("a link");
    from
}

#[test]
fn tree_copies_keep_links_unless_dereferenced() {
    let lab = Lab::with_donors(1);
    for space in ["lab", "other"] {
        lab.cli.ok(&["space", "create", space]);
    }
    let from = tree_with_links(lab.dir());
    let report = lab.cli.json(&["cp", "-r", arg(&from), "pot://lab/kept"]);
    assert_eq!((&report["files"], &report["links"]), (&1.into(), &3.into()), "{report}");
    assert!(report.get("skipped").is_none(), "{report}");
    let again = lab.cli.json(&["cp", "-r", arg(&from), "pot://lab/kept"]);
    assert_eq!(again["links"], 3, "the same command gives the same tree: {again}");
    let absent = lab.cli.fails(10, &["cp", "-r", "--if-absent", arg(&from), "pot://lab/kept"]);
    assert_eq!(absent.code, "POT-E020");
    lab.cli.ok(&["cp", "-r", "pot://lab/kept", "pot://lab/copied"]);
    lab.cli.ok(&["cp", "-r", "pot://lab/kept", "pot://other/read-and-written"]);
    for path in ["pot://lab/kept", "pot://lab/copied", "pot://other/read-and-written"] {
        let out = lab.dir().join(path.replace('/', "-"));
        for _ in 0..2 {
            lab.cli.ok(&["cp", "-r", path, arg(&out)]);
        }
        let leads_to = |name: &str| fs::read_link(out.join(name)).expect("a link");
        let all = ["link", "dir/loop", "broken"].map(leads_to);
        assert_eq!(all, ["file", "..", "nowhere"].map(PathBuf::from), "{path}");
        let (kept, source) = (out.join("broken"), from.join("broken"));
        let time = |at: &Path| at.symlink_metadata().and_then(|about| about.modified()).ok();
        assert_eq!(time(&kept), time(&source), "{path}");
    }
    let listed = lab.cli.ok(&["ls", "-l", "pot://lab/kept"]).text();
    assert!(listed.contains("broken -> nowhere"), "{listed}");
    assert!(lab.cli.ok(&["stat", "pot://lab/kept/link"]).text().contains("leads to   file"));
    let du = lab.cli.json(&["du", "pot://lab/kept"]);
    assert_eq!((&du["files"], &du["bytes"]), (&4.into(), &7.into()), "{du}");
    // A link that is copied by itself is never read through.
    lab.cli.fails(10, &["cat", "pot://lab/kept/link"]);
    lab.cli.fails(10, &["cp", "pot://lab/kept/link", arg(&lab.dir().join("alone"))]);
    lab.cli.fails(10, &["cp", arg(&from.join("file")), "pot://lab/kept/link"]);
    lab.cli.ok(&["cp", "-r", "pot://lab/kept/link", arg(&lab.dir().join("alone"))]);
    assert_eq!(fs::read_link(lab.dir().join("alone")).expect("a link"), Path::new("file"));
    lab.cli.ok(&["mv", "pot://lab/kept/link", "pot://lab/kept/moved"]);
    lab.cli.ok(&["rm", "pot://lab/kept/moved"]);
    assert_eq!(lab.cli.cat("pot://lab/kept/file"), b"content");

    // With -L links to directories are followed; one that leads to nothing or in a circle is told, even with -q.
    fs::create_dir(lab.dir().join("other")).expect("a directory");
    fs::write(lab.dir().join("other/inner"), "inner").expect("a file");
    symlink("../other", from.join("sub")).expect("a link");
    let ran = lab.cli.run(&["cp", "-q", "-rL", arg(&from), "pot://lab/odd"]).exits(4);
    for what in ["broken", "dir/loop"] {
        assert!(ran.stderr.contains(what), "{}", ran.stderr);
    }
    for (path, content) in [("link", "content"), ("file", "content"), ("sub/inner", "inner")] {
        assert_eq!(lab.cli.cat(&format!("pot://lab/odd/{path}")), content.as_bytes());
    }
    assert_eq!(lab.cli.json(&["du", "pot://lab/odd"])["files"], 3);
}

#[test]
fn a_link_that_was_copied_leads_no_later_copy_out_of_its_tree() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let (from, to) = (lab.dir().join("from"), lab.dir().join("to"));
    let outside = lab.dir().join("outside");
    for dir in [&from, &outside] {
        fs::create_dir(dir).expect("made");
    }
    fs::write(outside.join("f"), "mine").expect("written");
    symlink("../outside", from.join("dir")).expect("a link");
    for name in ["file", "alone"] {
        symlink("../outside/f", from.join(name)).expect("a link");
    }
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/tree"]);
    lab.cli.ok(&["cp", "-r", "pot://lab/tree", arg(&to)]);
    // Somebody who writes in the space puts other things in the place of the links.
    lab.cli.ok(&["rm", "pot://lab/tree/dir", "pot://lab/tree/file", "pot://lab/tree/alone"]);
    let theirs = lab.dir().join("theirs");
    fs::write(&theirs, "theirs").expect("written");
    for path in ["dir/f", "dir/g", "file", "another", "alone"] {
        lab.cli.ok(&["cp", arg(&theirs), &format!("pot://lab/tree/{path}")]);
    }
    // Where the name of the copy is one of the pool, a file takes the place of the link.
    lab.cli.ok(&["cp", "pot://lab/tree/alone", arg(&to)]);
    assert!(!to.join("alone").is_symlink());
    assert_eq!(fs::read(to.join("alone")).expect("there"), b"theirs");
    // A directory does not: neither one of a tree nor the tree's own.
    symlink("../outside", to.join("tree")).expect("a link");
    let own_name = format!("{}/", arg(&to));
    assert_eq!(lab.cli.fails(10, &["cp", "-r", "pot://lab/tree", &own_name]).code, "POT-E022");
    let refused = lab.cli.run(&["cp", "-r", "pot://lab/tree", arg(&to)]).exits(4);
    assert!(refused.stderr.contains("POT-E022"), "{}", refused.stderr);
    assert_eq!(fs::read(outside.join("f")).expect("there"), b"mine");
    assert_eq!(fs::read_dir(&outside).expect("listed").count(), 1);
    assert!(to.join("dir").is_symlink() && !to.join("file").is_symlink());
    for name in ["file", "another"] {
        assert_eq!(fs::read(to.join(name)).expect("others are copied"), b"theirs", "{name}");
    }
}

/// Writes to a file without a pause until it is dropped.
struct KeptChanging {
    ends: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
}

impl KeptChanging {
    fn new(path: &Path) -> Self {
        let opened = File::options().write(true).open(path).expect("open");
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let writer = thread::spawn(move || {
            let mut number: u64 = 0;
            while !told.load(Ordering::Relaxed) {
                opened.write_all_at(&number.to_le_bytes(), 5 << 20).expect("written");
                number += 1;
            }
        });
        Self { ends, writer: Some(writer) }
    }
}

impl Drop for KeptChanging {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.writer.take().expect("it runs").join();
    }
}

#[test]
fn constantly_changing_file_needs_allow_changing() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "sealed"]);
    lab.cli.ok(&["space", "create", "plain", "--plain"]);
    let (log, _) = file(lab.dir(), "log", 9, 24 << 20);
    let (_, still) = file(lab.dir(), "still", 10, 1000);
    let changing = KeptChanging::new(&log);
    for space in ["sealed", "plain"] {
        let path = format!("pot://{space}/log");
        let refused = lab.cli.fails(4, &["cp", arg(&log), &path]);
        assert_eq!(refused.code, "POT-E012");
        assert!(refused.message.contains("changed while it was read"), "{refused:?}");
        assert!(refused.hint.contains("--allow-changing"), "{refused:?}");
        lab.cli.fails(3, &["stat", &path]);
        lab.cli.ok(&["cp", "--allow-changing", arg(&log), &path]);
        assert_eq!(lab.cli.cat(&path).len(), 24 << 20);
    }
    // Of several files the others are stored.
    let both = [arg(&log), arg(&lab.dir().join("still")), "pot://sealed/both/"].map(str::to_owned);
    lab.cli.run(&["cp", &both[0], &both[1], &both[2]]).exits(4);
    assert_same(&lab.cli.cat("pot://sealed/both/still"), &still, "the other");
    drop(changing);
    lab.cli.ok(&["cp", arg(&log), "pot://sealed/log"]);
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
    // A reader that goes away early does not keep the command from ending.
    let mut running = lab.cli.start(&["cat", "pot://lab/large"]);
    let mut out = running.child().stdout.take().expect("a pipe");
    out.read_exact(&mut [0; 10]).expect("the first bytes");
    drop(out);
    assert_eq!(code_of(running.end("cat whose reader left")), 0);
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

/// Returns a command on a terminal of its own, made by `script`. Its standard output is what the terminal shows of the
/// command's standard error.
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
    let _tap = lab.lend_behind("slow", Tap::slow(4 << 20));
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
fn growing_file_is_stored_as_read_when_allowed() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "log", 8, 3 << 20);
    let copy = ["cp", "--allow-changing", arg(&input), "pot://lab/log", "--json"];
    let mut running = lab.cli.start(&copy);
    let mut log = File::options().append(true).open(&input).expect("the log");
    // The log grows for a limited time, since `cp` follows it as long as it grows.
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
