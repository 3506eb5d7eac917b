//! Tests that the pool comes back when the manager's disk is lost.

use super::content::{arg, assert_same, bytes, file};
use super::lab::Lab;
use super::lent::files_of;
use super::member::Member;
use super::membership::is_let_in;
use super::program::Ran;
use super::waiting::{DEADLINE, wait_until};
use potluck_wire::control::Open;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const OPTIONS: [&str; 4] = ["--backup-every", "300ms", "--metadata-copies", "2"];

#[test]
fn a_lost_manager_comes_back_from_its_kit_and_a_backup() {
    let mut lab = Lab::with_options(3, &OPTIONS);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    let contents: Vec<Vec<u8>> = (0..4).map(|n| bytes(n, 300_000 * (n as usize + 1))).collect();
    for (n, content) in contents.iter().enumerate() {
        let file = lab.dir().join(format!("file-{n}"));
        fs::write(&file, content).expect("written");
        lab.cli.ok(&["cp", arg(&file), &format!("pot://lab/file-{n}")]);
    }
    let (kit, backup) = (lab.dir().join("kit"), lab.dir().join("catalog.log"));
    fs::copy(lab.manager_dir().join("recovery.kit"), &kit).expect("a kit");
    let state = lab.manager_dir();
    lab.cli.ok(&["manager", "backup", arg(&backup), "--state", arg(&state)]);
    let later = lab.dir().join("later");
    fs::write(&later, b"later than the backup ".repeat(10_000)).expect("written");
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
        arg(&backup),
        "--state",
        arg(&state),
    ]);
    assert_eq!((told["files"].as_u64(), told["donors"].as_u64()), (Some(4), Some(3)), "{told}");
    lab.start_manager();
    lab.wait_live();
    wait_until("all copies to be known", DEADLINE, || {
        (0..4).all(|n| lab.cli.run(&["cat", &format!("pot://lab/file-{n}")]).code == 0)
    });
    for (n, content) in contents.iter().enumerate() {
        assert_eq!(lab.cli.cat(&format!("pot://lab/file-{n}")), *content, "file {n}");
    }
    let gc = lab.cli.json(&["gc", "status"]);
    assert!(gc["frozen"].is_string() && gc["unclaimed_chunks"].as_u64() > Some(0), "{gc}");
    assert!(lab.chunk_files() >= before, "nothing was deleted");
    lab.cli.ok(&["gc", "resume"]);
    assert!(lab.cli.json(&["gc", "status"])["frozen"].is_null());
}

#[test]
fn the_log_lies_in_the_pool_unseen_and_in_the_managers_own_file() {
    let lab = Lab::with_options(2, &OPTIONS);
    wait_logged(&lab);
    let lengths = |lab: &Lab| -> Vec<u64> {
        let files = files_of(&lab.manager_dir().join("backups")).into_iter();
        let logs = files.filter(|path| path.extension().is_some_and(|kind| kind == "log"));
        logs.map(|path| fs::metadata(path).expect("there").len()).collect()
    };
    wait_until("a backup", DEADLINE, || !lengths(&lab).is_empty());
    let before = lengths(&lab);
    lab.cli.ok(&["space", "create", "lab"]);
    wait_until("the change to be in the file", DEADLINE, || {
        let status = lab.cli.status();
        assert_eq!(status["alarms"].as_array().map(Vec::len), Some(0), "{status}");
        lengths(&lab) > before
    });
    wait_logged(&lab);
    assert_eq!(lengths(&lab).len(), 1, "added to, not written anew");
    assert!(!lab.cli.ok(&["space", "ls"]).text().contains(".potluck"));
    assert!(!lab.cli.ok(&["ls"]).text().contains(".potluck"));
    assert_eq!(lab.cli.status()["files"], 0);
    lab.cli.run(&["ls", "pot://.potluck"]).exits(2);
    assert_eq!(kinds(&lab, LOG).len(), lab.chunk_files(), "nothing but the log");
}

#[test]
fn a_lost_manager_comes_back_from_its_donors_and_its_kit_alone() {
    let mut lab = Lab::with_options(5, &OPTIONS);
    let names: BTreeSet<String> = lab.cli.live_donors().into_iter().collect();
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["space", "create", "open", "--copies", "2", "--plain"]);
    let mut contents = BTreeMap::new();
    let puts: [(&str, usize, &[&str]); 6] = [
        ("pot://lab/sealed", 700_000, &[]),
        ("pot://lab/coded", 900_000, &["--ec", "3+2"]),
        ("pot://lab/small", 100, &[]),
        ("pot://open/plain", 500_000, &[]),
        ("pot://lab/dir/to-move", 200_000, &[]),
        ("pot://lab/dir/to-remove", 200_000, &[]),
    ];
    for (seed, (at, len, options)) in puts.into_iter().enumerate() {
        let (source, content) = file(lab.dir(), "source", seed as u64, len);
        lab.cli.ok(&[&["cp", arg(&source), at], options].concat());
        contents.insert(at.to_owned(), content);
    }
    lab.cli.ok(&["mkdir", "pot://lab/empty"]);
    lab.cli.ok(&["policy", "set", "pot://lab/empty", "--copies", "3", "-y"]);
    lab.cli.ok(&["mv", "pot://lab/dir", "pot://lab/moved"]);
    lab.cli.ok(&["rm", "pot://lab/moved/to-remove"]);
    contents.remove("pot://lab/dir/to-remove");
    let moved = contents.remove("pot://lab/dir/to-move").expect("put");
    contents.insert("pot://lab/moved/to-move".into(), moved);
    // Donors refuse tickets from before somebody's rights ended, but not those that a restore reads with.
    let dir = lab.dir().join("ada");
    let joined = lab.cli.json(&["join", &lab.token("user"), "--state", arg(&dir)]);
    lab.cli.ok(&["space", "grant", "lab", "everyone", "read"]);
    let ada = Member::load(&dir);
    let coded = "pot://lab/coded".parse().expect("a path");
    let read = ada
        .call(&Open { path: coded, recursive: false, after: None, leased: false })
        .expect("she may");
    assert_eq!(read.donors.len(), 5);
    lab.cli.ok(&["members", "rm", &joined["member"].to_string(), "-y"]);
    wait_until("all donors to refuse her", DEADLINE, || {
        read.donors.iter().all(|at| !is_let_in(&ada, at))
    });
    let kit = lab.dir().join("kit");
    fs::copy(lab.manager_dir().join("recovery.kit"), &kit).expect("a kit");
    wait_logged(&lab);

    let told = lose_and_restore(&mut lab, &kit);
    assert_eq!((told["files"].as_u64(), told["donors"].as_u64()), (Some(5), Some(5)), "{told}");
    assert_eq!((&told["log"]["missing"], &told["unlisted"]["files"]), (&0.into(), &0.into()));
    // The manager counts the copies of its own log although nobody writes anything.
    wait_until("copies of the metadata to be counted", DEADLINE, || {
        lab.cli.status()["metadata"]["copies"].as_u64().is_some()
    });
    for (at, content) in &contents {
        assert_same(&cat_when_there(&lab, at), content, at);
    }
    lab.cli.fails(3, &["stat", "pot://lab/moved/to-remove"]);
    lab.cli.fails(3, &["stat", "pot://lab/dir"]);
    assert_eq!(lab.cli.json(&["policy", "show", "pot://lab/empty"])["policy"]["copies"], 3);
    assert!(lab.cli.json(&["gc", "status"])["frozen"].is_string());
    assert_eq!(lab.cli.live_donors().into_iter().collect::<BTreeSet<_>>(), names);

    // The pool goes on: what is written now is in the log of the new term, which counts more
    // than what the donors still have of the old one's.
    let (source, content) = file(lab.dir(), "source", 77, 300_000);
    lab.cli.ok(&["cp", arg(&source), "pot://lab/after"]);
    lab.cli.ok(&["rm", "pot://lab/small"]);
    wait_logged(&lab);
    let told = lose_and_restore(&mut lab, &kit);
    assert_eq!((&told["files"], &told["log"]["missing"]), (&5.into(), &0.into()), "{told}");
    assert_same(&cat_when_there(&lab, "pot://lab/after"), &content, "a file of the new term");
    lab.cli.fails(3, &["stat", "pot://lab/small"]);
}

#[test]
fn a_new_generation_of_the_log_takes_the_place_of_the_old_one() {
    let mut lab = Lab::with_options(2, &[&OPTIONS[..], &["--gc-delay", "1s"]].concat());
    lab.cli.ok(&["space", "create", "lab"]);
    wait_logged(&lab);
    let first = *blocks(&lab).first().expect("a block");
    // The files are inside the catalog, so that each is a record of the log and no chunk.
    let tree = lab.dir().join("tree");
    fs::create_dir(&tree).expect("a directory");
    for n in 0..21_000 {
        fs::write(tree.join(n.to_string()), n.to_string()).expect("written");
    }
    lab.cli.ok(&["cp", "-r", arg(&tree), "pot://lab/tree"]);
    wait_until("the old generation to be reclaimed", DEADLINE, || {
        let there = blocks(&lab);
        !there.is_empty() && !there.contains(&first)
    });
    lab.cli.ok(&["mv", "pot://lab/tree", "pot://lab/moved"]);
    wait_logged(&lab);
    let kit = lab.dir().join("kit");
    fs::copy(lab.manager_dir().join("recovery.kit"), &kit).expect("a kit");
    let told = lose_and_restore(&mut lab, &kit);
    assert_eq!((&told["files"], &told["log"]["missing"]), (&21_000.into(), &0.into()), "{told}");
    assert_eq!(lab.cli.cat("pot://lab/moved/20999"), b"20999");
}

#[test]
fn gapped_restore_does_not_supersede_a_whole_log_d4() {
    let mut lab = Lab::with_options(1, &["--backup-every", "300ms", "--metadata-copies", "1"]);
    wait_logged(&lab);
    let donors = ["donor-1", "donor-2", "donor-3"];
    for donor in &donors[1..] {
        lab.lend(donor, Default::default());
    }
    lab.wait_live();
    // Spaces are made until the first donor, which has the base, has the last block too, and lacks one between: nobody
    // would know if only the end were missing.
    let mut spaces = 0;
    wait_until("blocks of the log to be on other donors", DEADLINE, || {
        lab.cli.ok(&["space", "create", &format!("lab-{spaces}")]);
        spaces += 1;
        wait_logged(&lab);
        let (first, all) = (numbers(kinds_of(&lab, "donor-1", LOG)), blocks(&lab));
        first.len() < all.len() && first.last() == all.last()
    });
    let kit = lab.dir().join("kit");
    fs::copy(lab.manager_dir().join("recovery.kit"), &kit).expect("a kit");

    for donor in &donors[1..] {
        lab.kill_donor(donor);
    }
    let ran = lose_and_ask_donors(&mut lab, &kit, 1, &[]).exits(4);
    assert!(
        ran.stderr.contains("before you start it: donors that did not answer"),
        "{}",
        ran.stderr
    );
    // The restored pool is started all the same, and writes a log.
    lab.start_manager();
    let before = kinds(&lab, LOG).len();
    wait_until("a log of what is left", DEADLINE, || kinds(&lab, LOG).len() > before);
    wait_logged(&lab);
    let alarms = lab.cli.status()["alarms"].to_string();
    assert!(alarms.contains("restored from a log with gaps"), "{alarms}");

    for donor in &donors[1..] {
        lab.start_donor(donor);
    }
    let ran = lose_and_ask_donors(&mut lab, &kit, donors.len(), &["--json"]);
    let told: Value = serde_json::from_slice(&ran.stdout).expect("a report");
    assert_eq!((&told["spaces"], &told["donors"]), (&spaces.into(), &3.into()), "{told}");
    assert_eq!(told["log"]["missing"], 0, "{told}");
}

/// Loses the manager's machine, restores it from the kit and what donors have, starts it, and returns the report.
pub fn lose_and_restore(lab: &mut Lab, kit: &Path) -> Value {
    let donors = lab.donor_names().len();
    let ran = lose_and_ask_donors(lab, kit, donors, &["--json"]).ok();
    started(lab, &ran)
}

/// Does the same with further options of the restore, where donors have several chains of the log.
pub fn lose_and_restore_with(lab: &mut Lab, kit: &Path, options: &[&str]) -> Value {
    let donors = lab.donor_names().len();
    let ran = lose_and_ask_donors(lab, kit, donors, &[&["--json"], options].concat());
    assert!([0, 4].contains(&ran.code), "{}", ran.stderr);
    started(lab, &ran)
}

fn started(lab: &mut Lab, ran: &Ran) -> Value {
    lab.start_manager();
    lab.wait_live();
    serde_json::from_slice(&ran.stdout).expect("a report")
}

/// Loses the manager's machine, and restores it from the kit and what `donors` donors have.
fn lose_and_ask_donors(lab: &mut Lab, kit: &Path, donors: usize, options: &[&str]) -> Ran {
    lab.kill_manager();
    fs::remove_dir_all(lab.manager_dir()).expect("lost");
    // The kit says at which port donors look for the manager.
    let state = lab.manager_dir();
    let ask = ["--kit", arg(kit), "--from", "pool", "--state", arg(&state)];
    let donors = donors.to_string();
    let asked = [&["--donors", &donors], options].concat();
    let alone = lab.cli.at_home(&lab.dir().join("home"));
    alone.run(&[&["manager", "restore"], &ask[..], &asked].concat())
}

/// Returns a file's content, once donors have told what they hold.
pub fn cat_when_there(lab: &Lab, at: &str) -> Vec<u8> {
    wait_until(&format!("{at} to be readable"), DEADLINE, || lab.cli.run(&["cat", at]).code == 0);
    lab.cli.cat(at)
}

/// Returns the numbers of the log's blocks on donors, as they can be read from outside.
fn blocks(lab: &Lab) -> BTreeSet<u64> {
    numbers(kinds(lab, LOG))
}

fn numbers(blocks: Vec<PathBuf>) -> BTreeSet<u64> {
    let blocks = blocks.into_iter().filter_map(|path| fs::read(path).ok());
    blocks.map(|bytes| u64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes"))).collect()
}

/// The kind of chunks of the log, as their files' trailers say (see the donor's store).
const LOG: u8 = 1;

/// Returns the chunk files of a kind on all donors.
fn kinds(lab: &Lab, kind: u8) -> Vec<PathBuf> {
    lab.donor_names().iter().flat_map(|donor| kinds_of(lab, donor, kind)).collect()
}

/// Returns the chunk files of a kind on a donor.
fn kinds_of(lab: &Lab, donor: &str, kind: u8) -> Vec<PathBuf> {
    let chunks = lab.lent(donor).chunks().into_iter();
    chunks
        .filter(|path| {
            let bytes = fs::read(path).unwrap_or_default(); // one may go meanwhile
            bytes.len().checked_sub(64 - 9).is_some_and(|at| bytes[at] == kind)
        })
        .collect()
}

/// Waits until the log on the donors has all changes.
#[track_caller]
pub fn wait_logged(lab: &Lab) {
    wait_until("all changes to be in the log", DEADLINE, || lab.cli.status()["log_waiting"] == 0);
}
