//! Tests names, spaces, and what every verb says to programs.

use super::content::{arg, file};
use super::lab::{Cli, Lab};
use serde_json::Value;
use std::fs;

/// Returns the relative paths of a listing's entries.
#[track_caller]
fn listed(cli: &Cli, args: &[&str]) -> Vec<String> {
    let listing = cli.json(&[&["ls"], args].concat());
    let entries = listing["entries"].as_array().unwrap_or_else(|| panic!("{listing}")).iter();
    entries.map(|entry| entry["path"].as_str().expect("a path").to_owned()).collect()
}

fn with_files() -> Lab {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab"]);
    for (name, len) in [("a/one", 10), ("a/two", 20_000), ("a/b/three", 300_000), ("four", 5)] {
        let (input, _) = file(lab.dir(), "input", len as u64, len);
        lab.cli.ok(&["cp", arg(&input), &format!("pot://lab/{name}")]);
    }
    lab
}

#[test]
fn ls_lists_spaces_directories_and_files() {
    let lab = with_files();
    assert_eq!(listed(&lab.cli, &[]), ["lab"]);
    assert_eq!(listed(&lab.cli, &["pot://lab"]), ["a", "four"]);
    assert_eq!(listed(&lab.cli, &["pot://lab/a/"]), ["b", "one", "two"]);
    let all = ["a", "a/b", "a/b/three", "a/one", "a/two", "four"];
    let mut recursive = listed(&lab.cli, &["-r", "pot://lab"]);
    let parents_first = |child: &str| {
        let at = |path: &str| recursive.iter().position(|listed| listed == path);
        child.rsplit_once('/').is_none_or(|(parent, _)| at(parent) < at(child))
    };
    assert!(all.iter().all(|path| parents_first(path)), "{recursive:?}");
    recursive.sort();
    assert_eq!(recursive, all);
    assert_eq!(listed(&lab.cli, &["pot://lab/four"]), [""], "a file lists itself");
    let long = lab.cli.ok(&["ls", "-l", "pot://lab/a"]).text();
    for expected in ["size", "modified", "version", "b/", "two", "19.5 KiB"] {
        assert!(long.contains(expected), "no “{expected}” in:\n{long}");
    }
    assert_eq!(lab.cli.fails(3, &["ls", "pot://lab/nowhere"]).code, "POT-E010");
    assert_eq!(lab.cli.fails(3, &["ls", "pot://nowhere"]).code, "POT-E011");
}

#[test]
fn a_long_listing_comes_whole() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab"]);
    let from = lab.dir().join("many");
    fs::create_dir(&from).expect("a directory");
    let names: Vec<_> = (0..2500).map(|number| format!("{number:05}")).collect();
    names.iter().for_each(|name| fs::write(from.join(name), name).expect("a file"));
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/many"]);
    assert_eq!(listed(&lab.cli, &["pot://lab/many"]), names);
    let used = lab.cli.json(&["du", "pot://lab/many"]);
    assert_eq!((&used["files"], &used["bytes"]), (&2500.into(), &(2500 * 5).into()), "{used}");
    let back = lab.dir().join("back");
    lab.cli.ok(&["cp", "-r", "pot://lab/many", arg(&back)]);
    assert_eq!(super::content::tree_of(&back), super::content::tree_of(&from));
}

#[test]
fn stat_tells_digest_version_copies_and_donors() {
    let lab = with_files();
    let (input, _) = file(lab.dir(), "input", 9, 200_000);
    let report =
        lab.cli.json(&["cp", arg(&input), "pot://lab/f", "--copies", "2", "--chunk-size", "64KiB"]);
    let stated = lab.cli.json(&["stat", "pot://lab/f"]);
    let entry = &stated["entry"];
    assert_eq!(entry["version"], report["versions"][0]["version"], "{stated}");
    assert_eq!((&entry["copies"], &stated["live_copies"]), (&2.into(), &2.into()), "{stated}");
    assert_eq!((&stated["chunks"], &stated["chunk_size"]), (&4.into(), &65_536.into()), "{stated}");
    assert_eq!(entry["digest"].as_str().map(str::len), Some(64), "{stated}");
    assert_eq!(lab.cli.shares("pot://lab/f").values().collect::<Vec<_>>(), [&4, &4]);
    let text = lab.cli.ok(&["stat", "pot://lab/f"]).text();
    for expected in ["digest", "version", "copies", "2 of 2 live", "donor-1", "donor-2", "live"] {
        assert!(text.contains(expected), "no “{expected}” in:\n{text}");
    }
    // A tiny file has its content in the catalog, and a directory has a policy.
    assert_eq!(lab.cli.json(&["stat", "pot://lab/four"])["inline"], true);
    assert_eq!(lab.cli.json(&["stat", "pot://lab/a"])["entry"]["kind"], "dir");
    assert_eq!(lab.cli.json(&["stat", "pot://lab"])["policy"]["copies"], 1);
    let space = lab.cli.ok(&["stat", "pot://lab"]).text();
    assert!(space.contains("modified") && space.contains("policy"), "{space}");
    // The root is no directory with a policy, as its spaces are.
    let root = lab.cli.ok(&["stat", "pot://"]).text();
    assert!(!root.contains("modified") && !root.contains("policy"), "{root}");
}

#[test]
fn mv_moves_files_and_directories() {
    let lab = with_files();
    let one = lab.cli.cat("pot://lab/a/one");
    lab.cli.ok(&["mv", "pot://lab/a/one", "pot://lab/uno"]);
    lab.cli.ok(&["mv", "pot://lab/uno", "pot://lab/a/b"]); // an existing directory takes it in
    assert_eq!(lab.cli.cat("pot://lab/a/b/uno"), one);
    lab.cli.ok(&["mv", "pot://lab/a", "pot://lab/z"]);
    assert_eq!(listed(&lab.cli, &["pot://lab"]), ["four", "z"]);
    assert_eq!(lab.cli.cat("pot://lab/z/b/uno"), one);
    // A file replaces a file, unless it must not.
    let refused = lab.cli.fails(10, &["mv", "-n", "pot://lab/z/b/uno", "pot://lab/four"]);
    assert_eq!(refused.code, "POT-E020");
    lab.cli.ok(&["mv", "-y", "pot://lab/z/b/uno", "pot://lab/four"]);
    assert_eq!(lab.cli.cat("pot://lab/four"), one);
    // Moves that make no sense are refused.
    lab.cli.fails(3, &["mv", "pot://lab/gone", "pot://lab/x"]);
    lab.cli.fails(2, &["mv", "pot://lab/z", "pot://lab/z/b"]);
    lab.cli.fails(2, &["mv", "pot://lab", "pot://other"]);
    lab.cli.ok(&["space", "create", "other"]);
    lab.cli.fails(2, &["mv", "pot://lab/four", "pot://other/four"]);
    assert_eq!(lab.cli.cat("pot://lab/four"), one, "a refused move moves nothing");
}

#[test]
fn rm_removes_and_gives_the_space_back() {
    let lab = Lab::with_options(2, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 10, 1 << 20);
    for path in ["pot://lab/a/one", "pot://lab/a/same", "pot://lab/two"] {
        lab.cli.ok(&["cp", arg(&input), path]);
    }
    // On a busy machine an answer may be late, and a chunk is then sent to the other donor as well.
    let contents = || lab.chunk_names().len();
    assert_eq!(contents(), 16, "one content is stored once");
    assert_eq!(lab.cli.fails(2, &["rm", "pot://lab/a"]).code, "POT-E025");
    let removed = lab.cli.json(&["rm", "-r", "pot://lab/a"]);
    assert_eq!((&removed["files"], &removed["bytes"]), (&2.into(), &(2 << 20).into()), "{removed}");
    lab.cli.fails(3, &["stat", "pot://lab/a/one"]);
    lab.cli.fails(3, &["rm", "pot://lab/a"]);
    lab.cli.ok(&["rm", "-f", "pot://lab/a"]);
    lab.wait_settled();
    assert_eq!(contents(), 16, "one file still has them");
    assert_eq!(lab.cli.cat("pot://lab/two").len(), 1 << 20);
    lab.cli.ok(&["rm", "pot://lab/two"]);
    lab.wait_clean(0);
}

#[test]
fn mkdir_du_and_tree() {
    let lab = with_files();
    lab.cli.ok(&["mkdir", "pot://lab/new"]);
    lab.cli.fails(10, &["mkdir", "pot://lab/new"]);
    lab.cli.ok(&["mkdir", "-p", "pot://lab/new"]);
    lab.cli.fails(3, &["mkdir", "pot://lab/x/y/z"]);
    lab.cli.ok(&["mkdir", "-p", "pot://lab/x/y/z"]);
    lab.cli.fails(10, &["mkdir", "-p", "pot://lab/four/below"]);

    let used = lab.cli.json(&["du", "pot://lab"]);
    assert_eq!((&used["files"], &used["bytes"]), (&4.into(), &320_015.into()), "{used}");
    let child = |name: &str| {
        let children = used["children"].as_array().expect("children").iter();
        { children }.find(|child| child["name"] == name).cloned().unwrap_or_default()
    };
    assert_eq!(child("a")["bytes"], 320_010, "{used}");
    assert_eq!(child("four")["bytes"], 5, "{used}");
    assert_eq!(used["stored"], 320_000, "{used}");
    assert!(lab.cli.ok(&["du", "pot://lab"]).text().contains("312.5 KiB"));

    let drawn = lab.cli.ok(&["tree", "pot://lab"]).text();
    for expected in ["├── a/", "│   ├── b/", "three  (293.0 KiB)", "6 directories, 4 files"]
    {
        assert!(drawn.contains(expected), "no “{expected}” in:\n{drawn}");
    }
    let shallow = lab.cli.json(&["tree", "pot://lab", "--depth", "1"]);
    assert_eq!(shallow["entries"].as_array().map(Vec::len), Some(4), "{shallow}");
}

#[test]
fn spaces_are_made_listed_and_removed() {
    let lab = Lab::with_donors(1);
    let made = lab.cli.json(&[
        "space",
        "create",
        "lab",
        "--copies",
        "2",
        "--width",
        "3",
        "--chunk-size",
        "1MiB",
        "--ack",
        "disk",
    ]);
    assert_eq!(made["name"], "lab", "{made}");
    lab.cli.ok(&["space", "create", "open", "--plain"]);
    let spaces = lab.cli.json(&["space", "ls"]);
    let policy = &spaces["spaces"][0]["policy"];
    let expected = serde_json::json!({
        "chunk_size": 1 << 20, "cut": "fixed", "stripe_width": 3, "copies": 2, "mirror": "client-sync",
        "race": "auto", "ack": "disk", "strict": false, "sealed": true,
        "trash": "none", "follows": { "redundancy": false, "trash": true },
    });
    assert_eq!(policy, &expected);
    assert_eq!(spaces["spaces"][1]["policy"]["sealed"], false, "{spaces}");
    assert_eq!(lab.cli.fails(10, &["space", "create", "lab"]).code, "POT-E020");
    let (input, _) = file(lab.dir(), "input", 11, 10);
    lab.cli.ok(&["cp", arg(&input), "pot://open/f"]);
    assert_eq!(lab.cli.fails(10, &["space", "rm", "open"]).code, "POT-E023");
    lab.cli.ok(&["space", "rm", "-r", "-y", "open"]);
    lab.cli.ok(&["space", "rm", "lab"]);
    assert_eq!(lab.cli.json(&["space", "ls"])["spaces"], Value::Array(Vec::new()));
    assert_eq!(lab.cli.fails(3, &["space", "rm", "lab"]).code, "POT-E011");
    for bad in [
        &["--copies", "0"][..],
        &["--copies", "17"],
        &["--chunk-size", "100KB"],
        &["--width", "0"],
        &["--chunk-size", "128MiB"],
        &["--chunk-size", "8GiB"],
    ] {
        assert_eq!(
            lab.cli.fails(2, &[&["space", "create", "bad"], bad].concat()).code,
            "POT-E003",
            "{bad:?}"
        );
    }
}

#[test]
fn verbs_print_one_json_object() {
    let lab = with_files();
    let (input, _) = file(lab.dir(), "input", 12, 100);
    let out = lab.dir().join("out");
    for verb in [
        &["cp", arg(&input), "pot://lab/new"][..],
        &["cp", "pot://lab/new", arg(&out)],
        &["ls"],
        &["ls", "pot://lab"],
        &["stat", "pot://lab/new"],
        &["mv", "pot://lab/new", "pot://lab/newer"],
        &["rm", "pot://lab/newer"],
        &["mkdir", "pot://lab/dir"],
        &["du", "pot://lab"],
        &["tree", "pot://lab"],
        &["space", "create", "more"],
        &["space", "ls"],
        &["space", "rm", "more"],
        &["status"],
        &["invite"],
    ] {
        let ran = lab.cli.run(&[verb, &["--json"]].concat()).ok();
        assert!(ran.json().is_object(), "{verb:?}: {}", ran.text());
        assert_eq!(ran.text().lines().count(), 1, "{verb:?}");
        assert_eq!(ran.stderr, "", "{verb:?}");
    }
    for verb in [&["ls"][..], &["status"], &["space", "ls"], &["du", "pot://lab"]] {
        let ran = lab.cli.run(&[verb, &["--quiet"]].concat()).ok();
        assert_eq!((ran.text(), ran.stderr), (String::new(), String::new()), "{verb:?} --quiet");
    }
}

#[test]
fn errors_say_what_happened_and_what_to_do_next() {
    let lab = with_files();
    let nobody = lab.cli.at_home(&lab.dir().join("nobody"));
    let nonsense = lab.dir().join("token");
    fs::write(&nonsense, "pot1.nonsense").expect("written");
    for (cli, code, command) in [
        (&nobody, 8, &["ls"][..]),
        (&lab.cli, 3, &["cat", "pot://lab/missing"]),
        (&lab.cli, 3, &["ls", "pot://missing"]),
        (&lab.cli, 3, &["cp", "/no/such/file", "pot://lab/x"]),
        (&lab.cli, 2, &["cp", "a", "b"]),
        (&lab.cli, 2, &["cp", "/etc", "pot://lab/etc"]),
        (&lab.cli, 2, &["cat", "pot://lab/a"]),
        (&lab.cli, 2, &["cp", "pot://lab/four", "pot://lab/four"]),
        (&lab.cli, 2, &["rm", "pot://lab/a"]),
        (&lab.cli, 8, &["join", "--token-file", arg(&nonsense)]),
    ] {
        let said = cli.fails(code, command);
        assert!(
            !said.hint.is_empty() || said.message.contains(':'),
            "{command:?} says not what to do: {said:?}"
        );
        // People see the same failure, with its code.
        let ran = cli.run(command).exits(code);
        assert!(
            ran.stderr.contains(&said.code) && ran.stderr.starts_with("potluck: "),
            "{}",
            ran.stderr
        );
        assert!(!ran.stderr.contains('\x1b'), "colours where nobody sees them: {}", ran.stderr);
    }
}
