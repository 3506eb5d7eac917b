//! Point 8 of the third issue: the manager's disk is lost, and the pool comes back.

use super::content::{arg, bytes};
use super::lab::Lab;
use super::lent::files_of;
use super::waiting::{PATIENCE, wait_until};
use std::fs;

const OPTIONS: [&str; 4] = ["--backup-every", "300ms", "--metadata-copies", "2"];

#[test]
fn k08_a_lost_manager_comes_back_from_its_kit_and_a_checkpoints_file() {
    let mut lab = Lab::with_options(3, &OPTIONS);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    let contents: Vec<Vec<u8>> = (0..4).map(|n| bytes(n, 300_000 * (n as usize + 1))).collect();
    for (n, content) in contents.iter().enumerate() {
        let file = lab.dir().join(format!("file-{n}"));
        fs::write(&file, content).expect("written");
        lab.cli.ok(&["cp", arg(&file), &format!("pot://lab/file-{n}")]);
    }
    let (kit, checkpoint) = (lab.dir().join("kit"), lab.dir().join("checkpoint.db"));
    fs::copy(lab.manager_dir().join("recovery.kit"), &kit).expect("a kit");
    let state = lab.manager_dir();
    lab.cli.ok(&["manager", "backup", arg(&checkpoint), "--state", arg(&state)]);
    let later = lab.dir().join("later");
    fs::write(&later, b"later than the checkpoint ".repeat(10_000)).expect("written");
    lab.cli.ok(&["cp", arg(&later), "pot://lab/later"]);
    let before = lab.chunk_files();

    lab.kill_manager();
    fs::remove_dir_all(lab.manager_dir()).expect("lost");
    let told = lab.cli.at_home(&lab.dir().join("home")).json(&[
        "manager",
        "restore",
        "--kit",
        arg(&kit),
        "--from",
        arg(&checkpoint),
        "--state",
        arg(&state),
    ]);
    assert_eq!((told["files"].as_u64(), told["donors"].as_u64()), (Some(4), Some(3)), "{told}");
    lab.start_manager();
    lab.wait_live();
    wait_until("all copies to be known", PATIENCE, || {
        (0..4).all(|n| lab.cli.run(&["cat", &format!("pot://lab/file-{n}")]).code == 0)
    });
    for (n, content) in contents.iter().enumerate() {
        assert_eq!(lab.cli.cat(&format!("pot://lab/file-{n}")), *content, "file {n}");
    }
    let gc = lab.cli.json(&["gc", "status"]);
    assert!(gc["held"].is_string() && gc["unclaimed_chunks"].as_u64() > Some(0), "{gc}");
    assert!(lab.chunk_files() >= before, "nothing was deleted");
    lab.cli.ok(&["gc", "resume"]);
    assert!(lab.cli.json(&["gc", "status"])["held"].is_null());
}

#[test]
fn k08_checkpoints_lie_in_the_pool_unseen_and_old_ones_are_reclaimed() {
    let lab = Lab::with_options(2, &[&OPTIONS[..], &["--gc-grace", "1s"]].concat());
    let spaces = |lab: &Lab| lab.cli.ok(&["space", "ls"]).text();
    for round in 0..4 {
        let newest = || files_of(&lab.manager_dir().join("backups")).into_iter().max();
        let before = newest();
        lab.cli.ok(&["space", "create", &format!("lab-{round}")]);
        wait_until("a checkpoint to a file and into the pool", PATIENCE, || {
            let status = lab.cli.status();
            assert_eq!(status["alarms"].as_array().map(Vec::len), Some(0), "{status}");
            newest() > before && status["backup_pool_seconds"].is_u64()
        });
    }
    assert!(!spaces(&lab).contains(".potluck"));
    assert!(!lab.cli.ok(&["ls"]).text().contains(".potluck"));
    assert_eq!(lab.cli.status()["files"], 0);
    lab.cli.run(&["ls", "pot://.potluck"]).exits(2);
    // Two checkpoints of a head and one piece each, two copies of everything, and what is on its way
    // out.
    wait_until("old checkpoints to be reclaimed", PATIENCE, || {
        let status = lab.cli.status();
        status["condemned_chunks"] == 0 && lab.chunk_files() == 8
    });
}

#[test]
fn k08_a_lost_manager_comes_back_from_its_donors_and_its_kit_alone() {
    let mut lab = Lab::with_options(3, &OPTIONS);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    let content = bytes(7, 900_000);
    let file = lab.dir().join("file");
    fs::write(&file, &content).expect("written");
    lab.cli.ok(&["cp", arg(&file), "pot://lab/file"]);
    let kit = lab.dir().join("kit");
    fs::copy(lab.manager_dir().join("recovery.kit"), &kit).expect("a kit");
    // Two changes, each followed by a checkpoint into the pool: the last has the file for certain.
    for name in ["marker-1", "marker-2"] {
        let newest = || files_of(&lab.manager_dir().join("backups")).into_iter().max();
        let before = newest();
        lab.cli.ok(&["space", "create", name]);
        wait_until("a checkpoint", PATIENCE, || {
            newest() > before && lab.cli.status()["backup_pool_seconds"].is_u64()
        });
    }
    lab.kill_manager();
    fs::remove_dir_all(lab.manager_dir()).expect("lost");

    let (state, address) = (lab.manager_dir(), lab.address().to_owned());
    let alone = lab.cli.at_home(&lab.dir().join("home"));
    let told = alone.json(&[
        "manager",
        "restore",
        "--kit",
        arg(&kit),
        "--from",
        "pool",
        "--state",
        arg(&state),
        "--listen",
        &address,
        "--donors",
        "3",
    ]);
    assert_eq!((told["files"].as_u64(), told["donors"].as_u64()), (Some(1), Some(3)), "{told}");
    lab.start_manager();
    lab.wait_live();
    assert_eq!(lab.cli.cat("pot://lab/file"), content);
    assert!(lab.cli.json(&["gc", "status"])["held"].is_string());
}
