//! Tests that chunks which only a lost catalog knew are reclaimed by a command, and nothing else with them.

use super::content::{arg, assert_same, file};
use super::lab::Lab;
use super::waiting::{DEADLINE, wait_until};
use serde_json::Value;
use std::fs;
use std::io::Write;

fn unknown(lab: &Lab) -> u64 {
    lab.cli.json(&["gc", "unknown", "ls"])["chunks"].as_u64().expect("a number")
}

/// Makes a pool whose catalog was put back to before its second file was written, and returns the content of the first
/// one as well.
fn restored() -> (Lab, Vec<u8>) {
    let mut lab = Lab::with_options(3, &["--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (known, content) = file(lab.dir(), "known", 1, 700_000);
    lab.cli.ok(&["cp", arg(&known), "pot://lab/known"]);
    let (kit, backup) = (lab.dir().join("kit"), lab.dir().join("catalog.log"));
    let state = lab.manager_dir();
    fs::copy(state.join("recovery.kit"), &kit).expect("a kit");
    lab.cli.ok(&["manager", "backup", arg(&backup), "--state", arg(&state)]);
    let (later, _) = file(lab.dir(), "later", 2, 900_000);
    lab.cli.ok(&["cp", arg(&later), "pot://lab/later"]);
    lab.kill_manager();
    fs::remove_dir_all(&state).expect("lost");
    let restore = ["manager", "restore", "--kit", arg(&kit), "--from", arg(&backup)];
    let restore = [&restore[..], &["--state", arg(&state)]].concat();
    lab.cli.at_home(&lab.dir().join("alone")).ok(&restore);
    lab.start_manager();
    lab.wait_live();
    (lab, content)
}

#[test]
fn reclaim_command_removes_only_unused_unknown_chunks_d5() {
    let (mut lab, content) = restored();
    wait_until("the donors' lists", DEADLINE, || unknown(&lab) == 28);
    let before = lab.chunk_files();

    // While garbage collection is frozen, nobody can give anything up.
    let held = lab.cli.fails(10, &["gc", "unknown", "reclaim", "-y"]);
    assert!(held.code == "POT-E086" && held.hint.contains("gc resume"), "{held:?}");
    lab.cli.ok(&["gc", "resume"]);
    // A look gives nothing up either, nor does a command without a terminal to ask on.
    let look = lab.cli.json(&["gc", "unknown", "reclaim", "-n"]);
    assert_eq!((&look["reclaimed"], &look["chunks"]), (&Value::Bool(false), &28.into()), "{look}");
    lab.cli.fails(2, &["gc", "unknown", "reclaim"]);
    assert_eq!((unknown(&lab), lab.chunk_files()), (28, before));

    // A donor that is not there keeps what it has, and is named.
    lab.kill_donor("donor-3");
    wait_until("donor-3 to be missed", DEADLINE, || lab.cli.live_donors().len() == 2);

    // An upload has sent much and committed nothing.
    let (_, uploaded) = file(lab.dir(), "upload", 3, 1_200_000);
    let mut running = lab.cli.start(&["cp", "-", "pot://lab/upload"]);
    let mut input = running.child().stdin.take().expect("a pipe");
    let (sent, rest) = uploaded.split_at(1_000_000);
    input.write_all(sent).expect("sent");
    wait_until("its chunks on donors", DEADLINE, || lab.chunk_files() > before + 24);

    let done = lab.cli.run(&["--json", "gc", "unknown", "reclaim", "-y"]).exits(4).json();
    assert_eq!(done["absent"], serde_json::json!(["donor-3"]), "{done}");
    assert!(done["left"].as_u64() < Some(28), "{done}");
    lab.start_donor("donor-3");
    lab.wait_live();
    lab.cli.ok(&["gc", "unknown", "reclaim", "-y"]);
    assert_eq!(unknown(&lab), 0);

    // The upload ends well, however often garbage is collected meanwhile.
    wait_until("the unknown chunks to be deleted", DEADLINE, || {
        // At most the chunks that are known, and all of the upload, are left.
        lab.chunk_files() <= before - 28 + 38
    });
    input.write_all(rest).expect("sent");
    drop(input);
    assert!(running.end("the upload").success());
    assert_same(&lab.cli.cat("pot://lab/upload"), &uploaded, "what was being written");
    assert_same(&lab.cli.cat("pot://lab/known"), &content, "what was known");
    lab.cli.ok(&["verify", "-r", "--read", "pot://lab"]);
    lab.wait_settled();
    assert_eq!(unknown(&lab), 0);
}
