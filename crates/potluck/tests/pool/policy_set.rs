//! Tests that the redundancy of stored data changes in the background, and that data stays readable meanwhile.

use super::content::{arg, assert_same, file};
use super::lab::Lab;
use super::waiting::{DEADLINE, wait_until};

#[test]
fn conversion_between_copies_and_ec_survives_reads_and_a_death() {
    let mut lab = Lab::with_options(7, &["--gc-delay", "1s", "--repair-grace", "2s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 9, 8 << 20);
    lab.cli.ok(&["mkdir", "pot://lab/d"]);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/d/f"]);

    // A look at the plan changes nothing, and without a terminal nothing is changed unasked.
    let planned = lab.cli.json(&["policy", "set", "pot://lab/d", "--ec", "4+2", "-n"]);
    assert_eq!((&planned["files"], &planned["bytes"]), (&1.into(), &(8 << 20).into()), "{planned}");
    let refused = lab.cli.fails(2, &["policy", "set", "pot://lab/d", "--ec", "4+2"]);
    assert!(refused.hint.contains("-y"), "{refused:?}");
    assert_eq!(lab.cli.json(&["policy", "show", "pot://lab/d"])["policy"]["copies"], 2);

    for (flag, goal, victim) in
        [(["--ec", "4+2"], "4+2", "donor-3"), (["--copies", "2"], "2 copies", "donor-5")]
    {
        let before = lab.chunk_files();
        let set = [&["policy", "set", "pot://lab/d"], &flag[..], &["-y"]].concat();
        lab.cli.ok(&set);
        let shown = lab.cli.ok(&["policy", "show", "pot://lab/d"]).text();
        assert!(shown.contains(goal), "{shown}");
        // A donor dies in the middle, when some groups have their parity or copies, and reads go on.
        wait_until("some groups to have changed", DEADLINE, || {
            lab.chunk_files().abs_diff(before) > 4
        });
        lab.kill_donor(victim);
        // All donors that live are needed, and one that failed at something is left alone for half
        // a minute.
        wait_until(&format!("the file to be kept as {goal}"), DEADLINE * 4, || {
            assert_same(&lab.cli.cat("pot://lab/d/f"), &content, &format!("on the way to {goal}"));
            let text = lab.cli.ok(&["stat", "pot://lab/d/f"]).text();
            text.contains(&format!("kept as    {goal}")) && lab.cli.is_safe("pot://lab/d/f")
        });
        lab.bring_back(&[victim]);
        // Copies that are too many now go, and do not look like a change later. An order to delete that a later put made
        // void is given again after half a minute.
        if goal == "4+2" {
            wait_until("one copy of each chunk", DEADLINE * 6, || {
                lab.chunk_files() == lab.chunk_names().len()
            });
        }
    }
    assert_same(&lab.cli.cat("pot://lab/d/f"), &content, "the file");
}

#[test]
fn a_directorys_policy_holds_for_what_is_stored_there() {
    let lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["mkdir", "pot://lab/safe", "--ec", "2+1"]);
    lab.cli.ok(&["mkdir", "pot://lab/twice", "--copies", "2"]);
    lab.cli.ok(&["mkdir", "pot://lab/twice/deep"]);
    let (input, _) = file(lab.dir(), "input", 10, 1 << 20);
    for (path, kept_as) in [
        ("pot://lab/plain", "1 copy"),
        ("pot://lab/safe/f", "2+1"),
        ("pot://lab/twice/deep/f", "2 copies"),
    ] {
        lab.cli.ok(&["cp", arg(&input), path]);
        let text = lab.cli.ok(&["stat", path]).text();
        assert!(text.contains(&format!("kept as    {kept_as}")), "{path}: {text}");
    }
    // If the policy is for new files only, what is there stays as it is.
    lab.cli.ok(&["policy", "set", "pot://lab/twice", "--copies", "3", "--new-files-only"]);
    assert!(lab.cli.ok(&["stat", "pot://lab/twice/deep/f"]).text().contains("kept as    2 copies"));
    lab.cli.ok(&["cp", arg(&input), "pot://lab/twice/new"]);
    assert!(lab.cli.ok(&["stat", "pot://lab/twice/new"]).text().contains("kept as    3 copies"));
    // More than the pool can keep is refused before anything changes.
    let refused = lab.cli.fails(6, &["policy", "set", "pot://lab/twice", "--ec", "4+2", "-n"]);
    assert_eq!(refused.code, "POT-E031", "{refused:?}");
    // If files are yet to come, the command says so, as with a space.
    let made = lab.cli.run(&["mkdir", "pot://lab/later", "--ec", "4+2"]).exits(0);
    assert!(made.stderr.contains("4+2 needs 6 donors, and 3 can be written to"), "{}", made.stderr);
    // A member that manages a space sets policies in it, and one that writes does not.
    let token = lab.token("user");
    let user = lab.cli.at_home(&lab.dir().join("user"));
    user.ok(&["join", &token]);
    lab.cli.ok(&["space", "grant", "lab", "everyone", "read", "write"]);
    for path in ["pot://lab/safe", "pot://lab"] {
        let refused = user.fails(8, &["policy", "set", path, "--copies", "2", "-y"]);
        assert_eq!(refused.code, "POT-E067", "{refused:?}");
    }
    lab.cli.ok(&["space", "grant", "lab", "everyone", "manage"]);
    user.ok(&["policy", "set", "pot://lab/safe", "--copies", "2", "-y"]);
}

#[test]
fn a_tree_copied_from_above_is_kept_as_its_directories_say() {
    let lab = Lab::with_options(4, &["--repair-grace", "2s"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["mkdir", "pot://lab/tree/archive", "--parents"]);
    lab.cli.ok(&["policy", "set", "pot://lab/tree/archive", "--ec", "2+1", "-y"]);
    let tree = lab.dir().join("tree");
    std::fs::create_dir_all(tree.join("archive/deep")).expect("directories");
    let (input, content) = file(lab.dir(), "input", 11, 1 << 20);
    for name in ["plain", "archive/a", "archive/deep/b"] {
        std::fs::copy(&input, tree.join(name)).expect("copied");
    }
    let kept_as = |path: &str| {
        let text = lab.cli.ok(&["stat", path]).text();
        text.lines().find_map(|line| line.strip_prefix("kept as    ").map(str::to_string))
    };
    lab.cli.ok(&["cp", "-r", arg(&tree), "pot://lab/"]);
    for (name, kept) in [("plain", "1 copy"), ("archive/a", "2+1"), ("archive/deep/b", "2+1")] {
        let path = format!("pot://lab/tree/{name}");
        assert_eq!(kept_as(&path).as_deref(), Some(kept), "{path}");
        assert!(lab.cli.is_safe(&path), "{path}: {}", lab.cli.health(&path));
        assert_same(&lab.cli.cat(&path), &content, &path);
    }
    // A single file that replaces another asks its directory, too.
    lab.cli.ok(&["cp", arg(&input), "pot://lab/tree/archive/a"]);
    assert_eq!(kept_as("pot://lab/tree/archive/a").as_deref(), Some("2+1"));
}

#[test]
fn tree_upload_stores_satisfiable_files_and_reports_the_rest() {
    let lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab"]);
    lab.cli.ok(&["mkdir", "pot://lab/tree/archive", "--parents", "--ec", "4+2"]);
    let tree = lab.dir().join("tree");
    std::fs::create_dir_all(tree.join("archive")).expect("directories");
    let (_, content) = file(&tree, "plain", 12, 1 << 20);
    let (archived, _) = file(&tree.join("archive"), "a", 13, 1 << 20);
    let ran = lab.cli.run(&["--json", "cp", "-r", arg(&tree), "pot://lab/"]).exits(4);
    let said = ran.json();
    assert_eq!((&said["files"], said["failed"].as_array().map(Vec::len)), (&1.into(), Some(1)));
    assert_eq!(said["failed"][0]["path"], "pot://lab/tree/archive/a", "{said}");
    assert_eq!(said["failed"][0]["error"]["code"], "POT-E031", "{said}");
    assert_same(&lab.cli.cat("pot://lab/tree/plain"), &content, "what could be stored");
    // If it is the only file, the command fails.
    let refused = lab.cli.fails(6, &["cp", arg(&archived), "pot://lab/tree/archive/a"]);
    assert_eq!(refused.code, "POT-E031", "{refused:?}");
}
