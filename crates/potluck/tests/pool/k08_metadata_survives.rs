//! The manager's disk is lost, and the pool comes back.

use super::content::{arg, assert_same, bytes, file};
use super::lab::Lab;
use super::lent::files_of;
use super::waiting::{PATIENCE, wait_until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

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
        let others = lab.chunk_files() - kinds(&lab, JOURNAL).len();
        status["condemned_chunks"] == 0 && others == 8
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

#[test]
fn k08_a_lost_manager_is_rebuilt_from_its_donors_when_every_checkpoint_is_lost_too() {
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
    let kit = lab.dir().join("kit");
    fs::copy(lab.manager_dir().join("recovery.kit"), &kit).expect("a kit");
    wait_journalled(&lab);
    wait_until("a checkpoint into the pool", PATIENCE, || kinds(&lab, CHECKPOINT).len() > 1);

    let told = lose_and_rebuild(&mut lab, &kit);
    assert_eq!((told["files"].as_u64(), told["donors"].as_u64()), (Some(5), Some(5)), "{told}");
    assert_eq!((&told["journal"]["missing"], &told["unlisted"]["files"]), (&0.into(), &0.into()));
    assert!(told["checkpoint"].is_null(), "{told}");
    for (at, content) in &contents {
        assert_same(&cat_when_there(&lab, at), content, at);
    }
    lab.cli.fails(3, &["stat", "pot://lab/moved/to-remove"]);
    lab.cli.fails(3, &["stat", "pot://lab/dir"]);
    assert_eq!(lab.cli.json(&["policy", "show", "pot://lab/empty"])["policy"]["copies"], 3);
    assert!(lab.cli.json(&["gc", "status"])["held"].is_string());
    assert_eq!(lab.cli.live_donors().into_iter().collect::<BTreeSet<_>>(), names);

    // The pool goes on: what is written now is in the journal of the new life, which counts more
    // than what the donors still have of the old one's.
    let (source, content) = file(lab.dir(), "source", 77, 300_000);
    lab.cli.ok(&["cp", arg(&source), "pot://lab/after"]);
    lab.cli.ok(&["rm", "pot://lab/small"]);
    wait_journalled(&lab);
    let told = lose_and_rebuild(&mut lab, &kit);
    assert_eq!((&told["files"], &told["journal"]["missing"]), (&5.into(), &0.into()), "{told}");
    assert_same(&cat_when_there(&lab, "pot://lab/after"), &content, "a file of the new life");
    lab.cli.fails(3, &["stat", "pot://lab/small"]);
}

#[test]
fn k08_a_new_generation_of_the_journal_takes_the_place_of_the_old_one() {
    let mut lab = Lab::with_options(2, &[&OPTIONS[..], &["--gc-grace", "1s"]].concat());
    lab.cli.ok(&["space", "create", "lab"]);
    wait_journalled(&lab);
    let first = *segments(&lab).first().expect("a segment");
    // Inside the catalog, so that each is a line of the journal and no chunk.
    let tree = lab.dir().join("tree");
    fs::create_dir(&tree).expect("a directory");
    for n in 0..21_000 {
        fs::write(tree.join(n.to_string()), n.to_string()).expect("written");
    }
    lab.cli.ok(&["cp", "-r", arg(&tree), "pot://lab/tree"]);
    wait_until("the old generation to be reclaimed", PATIENCE, || {
        let there = segments(&lab);
        !there.is_empty() && !there.contains(&first)
    });
    lab.cli.ok(&["mv", "pot://lab/tree", "pot://lab/moved"]);
    wait_journalled(&lab);
    let kit = lab.dir().join("kit");
    fs::copy(lab.manager_dir().join("recovery.kit"), &kit).expect("a kit");
    let told = lose_and_rebuild(&mut lab, &kit);
    assert_eq!(
        (&told["files"], &told["journal"]["missing"]),
        (&21_000.into(), &0.into()),
        "{told}"
    );
    assert_eq!(lab.cli.cat("pot://lab/moved/20999"), b"20999");
}

#[test]
fn k08_what_was_written_after_the_last_checkpoint_comes_back_from_the_journal() {
    let mut lab = Lab::with_options(3, &["--backup-every", "1s", "--metadata-copies", "1"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2"]);
    // Also the first one, taken before most of the journal was there, can be gone on from.
    wait_until("a checkpoint", PATIENCE, || !kinds(&lab, CHECKPOINT).is_empty());
    let kit = lab.dir().join("kit");
    fs::copy(lab.manager_dir().join("recovery.kit"), &kit).expect("a kit");
    let heads = kinds(&lab, CHECKPOINT);
    let (source, content) = file(lab.dir(), "source", 5, 300_000);
    lab.cli.ok(&["cp", arg(&source), "pot://lab/late"]);
    lab.cli.ok(&["cp", "pot://lab/late", "pot://lab/copied/inside"]);
    lab.cli.ok(&["rm", "pot://lab/late"]);
    wait_journalled(&lab);
    lab.kill_manager();
    // Checkpoints that were taken meanwhile are lost.
    for head in kinds(&lab, CHECKPOINT) {
        if !heads.contains(&head) {
            fs::remove_file(head).expect("lost");
        }
    }
    fs::remove_dir_all(lab.manager_dir()).expect("lost");
    let (state, address) = (lab.manager_dir(), lab.address().to_owned());
    let ask = ["--kit", arg(&kit), "--from", "pool", "--state", arg(&state)];
    let listen = ["--listen", &address, "--donors", "3"];
    let alone = lab.cli.at_home(&lab.dir().join("home"));
    let told = alone.json(&[&["manager", "restore"], &ask[..], &listen].concat());
    assert_eq!(told["files"], 1, "{told}");
    assert!(told["checkpoint"].is_u64() && told["journal"]["segments"].as_u64() > Some(0));
    lab.start_manager();
    lab.wait_live();
    assert_same(&cat_when_there(&lab, "pot://lab/copied/inside"), &content, "the file");
    lab.cli.fails(3, &["stat", "pot://lab/late"]);
}

/// Takes the manager's machine away with every checkpoint that donors have, rebuilds it from the
/// kit, and starts it; gives the report.
fn lose_and_rebuild(lab: &mut Lab, kit: &Path) -> Value {
    lab.kill_manager();
    fs::remove_dir_all(lab.manager_dir()).expect("lost");
    for head in kinds(lab, CHECKPOINT) {
        fs::remove_file(head).expect("lost");
    }
    let (state, address) = (lab.manager_dir(), lab.address().to_owned());
    let donors = lab.donor_names().len().to_string();
    let ask = ["--kit", arg(kit), "--state", arg(&state), "--listen", &address];
    let alone = lab.cli.at_home(&lab.dir().join("home"));
    let told = alone.json(&[&["manager", "rebuild"], &ask[..], &["--donors", &donors]].concat());
    lab.start_manager();
    lab.wait_live();
    told
}

/// A file's content, once donors have told what they hold.
fn cat_when_there(lab: &Lab, at: &str) -> Vec<u8> {
    wait_until(&format!("{at} to be readable"), PATIENCE, || lab.cli.run(&["cat", at]).code == 0);
    lab.cli.cat(at)
}

/// Numbers of the journal's segments on donors, as they can be read from outside.
fn segments(lab: &Lab) -> BTreeSet<u64> {
    let segments = kinds(lab, JOURNAL).into_iter().filter_map(|path| fs::read(path).ok());
    segments.map(|bytes| u64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes"))).collect()
}

/// Kinds of chunks, as their files' trailers say (see the donor's store).
const JOURNAL: u8 = 1;
const CHECKPOINT: u8 = 2;

/// Chunk files of a kind on all donors.
fn kinds(lab: &Lab, kind: u8) -> Vec<PathBuf> {
    let chunks = lab.donor_names().into_iter().flat_map(|donor| lab.lent(&donor).chunks());
    chunks
        .filter(|path| {
            let bytes = fs::read(path).unwrap_or_default(); // one may go meanwhile
            bytes.len().checked_sub(64 - 9).is_some_and(|at| bytes[at] == kind)
        })
        .collect()
}

/// Waits until the journal on the donors has all changes.
#[track_caller]
fn wait_journalled(lab: &Lab) {
    wait_until("all changes to be in the journal", PATIENCE, || {
        lab.cli.status()["journal_waiting"] == 0
    });
}
