//! Tests that nothing is overwritten or lost by a slip of the hand, of a script, or of a producer that failed.

use super::content::{arg, file, tree_of};
use super::lab::{Cli, Lab};
use super::waiting::{DEADLINE, wait_until};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

fn lab() -> Lab {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab
}

fn stored(lab: &Lab, path: &str, len: usize) -> Vec<u8> {
    let (input, content) = file(lab.dir(), "input", len as u64, len);
    lab.cli.ok(&["cp", arg(&input), path]);
    content
}

fn version(cli: &Cli, path: &str) -> String {
    cli.json(&["stat", path])["entry"]["version"].to_string()
}

/// Makes a small tree: `DIR/one` and `DIR/sub/two`.
fn tree(dir: &Path) {
    fs::create_dir_all(dir.join("sub")).expect("a directory");
    fs::write(dir.join("one"), "1").expect("a file");
    fs::write(dir.join("sub/two"), "22").expect("a file");
}

#[test]
fn a_download_replaces_nothing_when_told_if_absent() {
    let lab = lab();
    let content = stored(&lab, "pot://lab/f", 300_000);
    let out = lab.dir().join("out");
    fs::write(&out, "mine").expect("a file");
    let refused = lab.cli.fails(10, &["cp", "pot://lab/f", arg(&out), "--if-absent"]);
    assert_eq!(
        (refused.code.as_str(), fs::read(&out).expect("there")),
        ("POT-E020", b"mine".into())
    );
    // A link to nothing counts as something that is there.
    let link = lab.dir().join("link");
    symlink("nowhere", &link).expect("a link");
    lab.cli.fails(10, &["cp", "pot://lab/f", arg(&link), "--if-absent"]);
    fs::remove_file(&out).expect("gone");
    lab.cli.ok(&["cp", "pot://lab/f", arg(&out), "--if-absent"]);
    assert_eq!(fs::read(&out).expect("there"), content);
    lab.cli.fails(2, &["cp", "pot://lab/f", "-", "--if-absent"]);
}

#[test]
fn tree_download_skips_existing_files() {
    let lab = lab();
    let from = lab.dir().join("from");
    tree(&from);
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/t"]);
    let out = lab.dir().join("out");
    fs::create_dir(&out).expect("a directory");
    fs::write(out.join("one"), "mine").expect("a file");
    let ran = lab.cli.run(&["cp", "-r", "pot://lab/t", arg(&out), "--if-absent"]).exits(4);
    assert!(ran.stderr.contains("one") && ran.stderr.contains("POT-E020"), "{}", ran.stderr);
    assert_eq!(fs::read(out.join("one")).expect("there"), b"mine");
    assert_eq!(fs::read(out.join("sub/two")).expect("there"), b"22");
}

#[test]
fn a_download_that_fails_leaves_no_directories() {
    let lab = lab();
    let from = lab.dir().join("from");
    tree(&from);
    fs::write(from.join("sub/two"), vec![2; 100_000]).expect("a file");
    fs::create_dir(from.join("empty")).expect("a directory");
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/t"]);
    let out = lab.dir().join("out");
    for line in [&["cp", "-r", "pot://lab/nope"][..], &["cp", "pot://lab/nope"]] {
        for to in [arg(&out), &format!("{}/deep/", arg(&out))] {
            lab.cli.fails(3, &[line, &[to]].concat());
            assert!(!out.exists(), "{line:?} {to}");
        }
    }
    let missing = lab.cli.fails(3, &["cp", "pot://lab/t/one", arg(&out.join("one"))]);
    assert!(missing.message.contains("there is no directory"), "{missing:?}");
    assert!(missing.hint.contains("mkdir -p"), "{missing:?}");
    // The download of a tree names what could not be read, and makes the directories that are empty in the pool.
    lab.lent("donor-1").chunks().iter().for_each(|chunk| fs::remove_file(chunk).expect("gone"));
    lab.cli.run(&["cp", "-r", "pot://lab/t", arg(&out)]).exits(4);
    assert_eq!(fs::read(out.join("one")).expect("there"), b"1");
    assert!(out.join("empty").is_dir() && !out.join("sub").exists());
}

#[test]
fn a_download_is_of_the_version_that_was_named() {
    let lab = lab();
    let old = stored(&lab, "pot://lab/f", 100_000);
    let first = version(&lab.cli, "pot://lab/f");
    let out = lab.dir().join("out");
    lab.cli.ok(&["cp", "pot://lab/f", arg(&out), "--if-version", &first]);
    stored(&lab, "pot://lab/f", 200_000);
    for to in [arg(&out), "-"] {
        let refused = lab.cli.fails(10, &["cp", "pot://lab/f", to, "--if-version", &first]);
        assert_eq!(refused.code, "POT-E021");
    }
    assert_eq!(fs::read(&out).expect("there"), old);
    // A version belongs to one file, so that none can be asked for of a tree.
    lab.cli.fails(2, &["cp", "-r", "pot://lab/", arg(&out), "--if-version", &first]);
}

#[test]
fn empty_standard_input_does_not_replace_a_file() {
    let lab = lab();
    let content = stored(&lab, "pot://lab/f", 100_000);
    let put = |args: &[&str]| {
        let args = [&["--json", "cp", "-", "pot://lab/f"], args].concat();
        lab.cli.run_with_input(&args, Stdio::null())
    };
    let refused = put(&[]).exits(10).failure();
    assert_eq!(refused.code, "POT-E026", "{refused:?}");
    assert!(refused.hint.contains("--allow-empty"), "{refused:?}");
    let now = version(&lab.cli, "pot://lab/f");
    assert_eq!(put(&["--if-version", &now]).exits(10).failure().code, "POT-E026");
    assert_eq!(lab.cli.cat("pot://lab/f"), content);
    // An empty pipe with a name, as `<(producer)` makes it, does not replace a file either.
    let refused = lab.cli.fails(10, &["cp", "/dev/null", "pot://lab/f"]);
    assert_eq!(refused.code, "POT-E026");
    put(&["--allow-empty"]).ok();
    assert_eq!(lab.cli.cat("pot://lab/f"), b"");
    // An empty file may be replaced by an empty one, and a new one made.
    put(&[]).ok();
    lab.cli.run_with_input(&["cp", "-", "pot://lab/new"], Stdio::null()).ok();
    // A file of the disk that is empty is empty on purpose.
    stored(&lab, "pot://lab/f", 10);
    let empty = lab.dir().join("empty");
    fs::write(&empty, "").expect("a file");
    lab.cli.ok(&["cp", arg(&empty), "pot://lab/f"]);
}

#[test]
fn a_tree_copied_twice_is_the_same_tree() {
    let lab = lab();
    let from = lab.dir().join("probation");
    tree(&from);
    let out = lab.dir().join("back");
    for _ in 0..2 {
        lab.cli.ok(&["cp", "-r", &format!("{}/", arg(&from)), "pot://lab/probation"]);
        lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/into/"]);
        lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab"]);
        lab.cli.ok(&["cp", "-r", &format!("{}/.", arg(&from)), "pot://lab/spread/"]);
        lab.cli.ok(&["cp", "-r", "pot://lab/probation", arg(&out)]);
    }
    let listed = lab.cli.json(&["ls", "-r", "pot://lab"]);
    let paths = listed["entries"].as_array().expect("entries").iter();
    let mut paths: Vec<_> = paths.map(|entry| entry["path"].as_str().expect("a path")).collect();
    paths.sort();
    let mut expected = vec!["into".to_owned()];
    for top in ["into/probation", "spread", "probation"] {
        expected.extend(["", "/one", "/sub", "/sub/two"].map(|below| format!("{top}{below}")));
    }
    expected.sort();
    assert_eq!(paths, expected);
    assert_eq!(tree_of(&out), tree_of(&from));
    // The tree goes into the directory only with a slash.
    lab.cli.ok(&["cp", "-r", "pot://lab/probation", &format!("{}/", arg(&out))]);
    assert_eq!(tree_of(&out.join("probation")), tree_of(&from));
}

#[test]
fn a_tree_and_a_file_do_not_take_each_others_place() {
    let lab = lab();
    let from = lab.dir().join("from");
    tree(&from);
    stored(&lab, "pot://lab/file", 10);
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/dir"]);
    let one = from.join("one");
    assert_eq!(lab.cli.fails(10, &["cp", "-r", arg(&from), "pot://lab/file"]).code, "POT-E022");
    lab.cli.ok(&["cp", arg(&one), "pot://lab/dir"]);
    assert_eq!(lab.cli.cat("pot://lab/dir/one"), b"1", "a directory takes a file in");
    // A directory does not take the place of a file.
    let here = lab.dir().join("here");
    fs::write(&here, "mine").expect("a file");
    assert_eq!(lab.cli.fails(10, &["cp", "-r", "pot://lab/dir", arg(&here)]).code, "POT-E022");
    assert_eq!(fs::read(&here).expect("there"), b"mine");
    let out = lab.dir().join("out");
    fs::create_dir_all(out.join("one")).expect("a directory");
    let ran = lab.cli.run(&["cp", "-r", "pot://lab/dir", arg(&out)]).exits(4);
    assert!(ran.stderr.contains("POT-E022"), "{}", ran.stderr);
    assert_eq!(fs::read(out.join("sub/two")).expect("the others"), b"22");
    // A link is followed, and stays a link.
    let link = lab.dir().join("link");
    symlink(&here, &link).expect("a link");
    lab.cli.ok(&["cp", "pot://lab/dir/sub/two", arg(&link)]);
    assert!(link.is_symlink());
    assert_eq!(fs::read(&here).expect("there"), b"22");
}

#[test]
fn mv_replaces_a_file_only_when_told_to() {
    let lab = lab();
    let (a, b) = (stored(&lab, "pot://lab/a", 10), stored(&lab, "pot://lab/b", 20));
    let refused = lab.cli.fails(10, &["mv", "pot://lab/a", "pot://lab/b"]);
    assert_eq!((refused.code.as_str(), refused.hint.contains("-y")), ("POT-E020", true));
    assert_eq!((lab.cli.cat("pot://lab/a"), lab.cli.cat("pot://lab/b")), (a.clone(), b));
    lab.cli.ok(&["mv", "-y", "pot://lab/a", "pot://lab/b"]);
    assert_eq!(lab.cli.cat("pot://lab/b"), a);
    // A directory goes into another only when that is said.
    lab.cli.ok(&["mkdir", "-p", "pot://lab/new/x"]);
    lab.cli.ok(&["mkdir", "-p", "pot://lab/current/x"]);
    let refused = lab.cli.fails(10, &["mv", "pot://lab/new", "pot://lab/current"]);
    assert_eq!(refused.code, "POT-E023");
    lab.cli.ok(&["mv", "pot://lab/new", "pot://lab/current/"]);
    lab.cli.ok(&["stat", "pot://lab/current/new/x"]);
    // With an empty directory nothing is lost.
    lab.cli.ok(&["mkdir", "pot://lab/empty"]);
    let refused = lab.cli.fails(10, &["mv", "-n", "pot://lab/current", "pot://lab/empty"]);
    assert_eq!(refused.code, "POT-E020");
    lab.cli.ok(&["mv", "pot://lab/current", "pot://lab/empty"]);
    lab.cli.ok(&["stat", "pot://lab/empty/new/x"]);
}

#[test]
fn a_space_with_files_is_removed_only_by_who_said_so_twice() {
    let lab = lab();
    stored(&lab, "pot://lab/f", 1000);
    assert_eq!(lab.cli.fails(10, &["space", "rm", "lab"]).code, "POT-E023");
    assert_eq!(lab.cli.fails(10, &["space", "rm", "-y", "lab"]).code, "POT-E023");
    let nobody = lab.cli.fails(2, &["space", "rm", "-r", "lab"]);
    assert!(nobody.message.contains("1 file, 1000 B"), "{nobody:?}");
    let would = lab.cli.ok(&["space", "rm", "-r", "-n", "lab"]).text();
    assert!(would.contains("lab with 1 file, 1000 B"), "{would}");
    lab.cli.ok(&["stat", "pot://lab/f"]);
    // The content of a space is not removed as if the space were a directory.
    lab.cli.fails(2, &["rm", "-r", "-y", "pot://lab"]);
    lab.cli.ok(&["space", "rm", "-r", "-y", "lab"]);
    lab.cli.fails(3, &["stat", "pot://lab/f"]);
}

#[test]
fn next_download_removes_leftovers_of_a_killed_one() {
    let lab = lab();
    stored(&lab, "pot://lab/f", 40 << 20);
    let dir = lab.dir().join("downloads");
    fs::create_dir(&dir).expect("a directory");
    let names = || {
        let entries = fs::read_dir(&dir).expect("listed").flatten();
        entries.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect::<Vec<_>>()
    };
    let mine = ".f.part";
    fs::write(dir.join(mine), "mine").expect("a file");
    let to = dir.join("f");
    // A download that is over before it is looked at is tried again.
    wait_until("a download killed half-way", DEADLINE, || {
        let mut running = lab.cli.start(&["cp", "pot://lab/f", arg(&to)]);
        wait_until("its file", DEADLINE, || names().len() > 1);
        running.kill_9();
        let left = names().iter().any(|name| name.contains(".potluck-"));
        let _ = fs::remove_file(&to);
        left
    });
    lab.cli.ok(&["cp", "pot://lab/f", arg(&to)]);
    let mut left = names();
    left.sort();
    assert_eq!(left, [mine, "f"]);
}

#[test]
fn a_name_that_is_not_utf8_is_stored_under_one_that_is() {
    let lab = lab();
    let dir = lab.dir().join("dir");
    fs::create_dir(&dir).expect("a directory");
    let odd = dir.join(std::ffi::OsStr::from_bytes(b"odd-\xff"));
    fs::write(&odd, "odd").expect("a file");
    fs::write(dir.join("good"), "good").expect("a file");
    let copy = |to: &str| {
        let mut command = lab.cli.command();
        command.arg("cp").arg(&odd).arg(to).output().expect("it runs")
    };
    assert_eq!(copy("pot://lab/odd").status.code(), Some(0));
    assert_eq!(lab.cli.cat("pot://lab/odd"), b"odd");
    let refused = copy("pot://lab/");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!((refused.status.code(), said.contains("POT-E002")), (Some(2), true), "{said}");
    // In a tree such a file is named, and the rest is stored.
    let ran = lab.cli.run(&["cp", "-r", arg(&dir), "pot://lab/dir"]).exits(4);
    assert!(
        ran.stderr.contains("odd-") && ran.stderr.contains("potluck cp FILE"),
        "{}",
        ran.stderr
    );
    assert_eq!(lab.cli.cat("pot://lab/dir/good"), b"good");
}

#[test]
fn files_of_one_name_are_not_copied_over_one_another() {
    let lab = lab();
    for dir in ["a", "b"] {
        tree(&lab.dir().join(dir));
    }
    let [a, b] = ["a/one", "b/one"].map(|name| lab.dir().join(name));
    for sources in [
        &[arg(&a), arg(&b)][..],
        &[
            "-r",
            &format!("{}/.", lab.dir().join("a").display()),
            &format!("{}/.", lab.dir().join("b").display()),
        ],
    ] {
        let command = [&["cp"], sources, &["pot://lab/both/"]].concat();
        let refused = lab.cli.fails(2, &command);
        assert!(refused.message.contains("one"), "{refused:?}");
        lab.cli.fails(3, &["ls", "pot://lab/both"]);
    }
    lab.cli.ok(&["cp", arg(&a), "pot://lab/x/"]);
    lab.cli.ok(&["cp", arg(&b), "pot://lab/y/"]);
    let out = lab.dir().join("out/");
    for target in [arg(&out), "pot://lab/both/"] {
        lab.cli.fails(2, &["cp", "pot://lab/x/one", "pot://lab/y/one", target]);
    }
    assert!(!out.exists(), "nothing was copied");
}
