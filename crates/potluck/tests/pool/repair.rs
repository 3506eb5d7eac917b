//! Tests that lost chunks are made again.

use super::content::{arg, assert_same, file};
use super::lab::{Lab, Lending};
use super::small_disk::SmallDisk;
use super::waiting::{DEADLINE, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Instant;

fn made(repair: &Value) -> u64 {
    repair["made"].as_u64().expect("a count")
}

/// Returns the fewest copies on live donors that any chunk of a file has.
fn live_copies(lab: &Lab, path: &str) -> u64 {
    lab.cli.json(&["stat", path])["live_copies"].as_u64().expect("a count")
}

#[test]
fn dead_donor_chunks_are_repaired_and_reported() {
    let mut lab = Lab::with_options(6, &["--repair-grace", "2s", "--gc-delay", "1s"]);
    lab.cli.ok(&["space", "create", "copies", "--copies", "2", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["space", "create", "coded", "--ec", "3+2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 4, 3 << 20);
    let paths = ["pot://copies/f", "pot://coded/f"];
    paths.iter().for_each(|path| drop(lab.cli.ok(&["cp", arg(&input), path])));
    wait_until("the pool to be found safe", DEADLINE, || {
        lab.cli.space("copies")["tolerates"] == 1 && lab.cli.space("coded")["tolerates"] == 2
    });
    assert!(lab.cli.ok(&["status"]).text().starts_with("healthy: "));
    let files = lab.chunk_files();
    // 48 chunks in two copies, and in 16 groups of 3 + 2. What was sent once more, because a donor was slow, goes when its
    // file is looked at for another reason.
    let twice = files - (48 * 2 + 16 * 5);

    let lost = lab.lent("donor-2").chunks().len();
    lab.kill_donor("donor-2");
    wait_until("the loss to be said", DEADLINE, || lab.cli.donor("donor-2")["state"] == "dead");
    for path in paths {
        lab.cli.wait_safe(path);
    }
    let least = lost.saturating_sub(twice) as u64;
    assert!(made(&lab.cli.repair()) >= least, "{}", lab.cli.repair());
    wait_until("the verdict", DEADLINE, || {
        lab.cli.space("copies")["tolerates"] == 1 && lab.cli.space("coded")["tolerates"] == 2
    });
    lab.cli.ok(&["fsck"]);
    // As many donors may die as before.
    lab.kill_donors(&["donor-1", "donor-3"]);
    assert_same(&lab.cli.cat("pot://coded/f"), &content, "the coded file");

    // All dead donors return: what is beyond any policy goes, and nothing else.
    lab.bring_back(&["donor-1", "donor-2", "donor-3"]);
    wait_until("excess copies to be trimmed", DEADLINE, || {
        (files - twice..=files).contains(&lab.chunk_files())
    });
    for path in paths {
        assert!(lab.cli.is_safe(path), "{}", lab.cli.health(path));
        assert_same(&lab.cli.cat(path), &content, path);
    }
}

#[test]
fn an_absence_shorter_than_the_grace_moves_no_byte() {
    let mut lab = Lab::with_options(3, &["--repair-grace", "60s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 5, 2 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let files = lab.chunk_files();
    lab.kill_donor("donor-1");
    // The donor is away for long enough to be noticed by everybody, and for less than the grace.
    wait_until("the absence to be noticed", DEADLINE, || {
        lab.cli.donor("donor-1")["silent_seconds"].as_u64() > Some(7)
    });
    assert_eq!(live_copies(&lab, "pot://lab/f"), 1);
    lab.bring_back(&["donor-1"]);
    wait_until("its copies to be back", DEADLINE, || live_copies(&lab, "pot://lab/f") == 2);
    assert!(lab.cli.is_safe("pot://lab/f"));
    assert_eq!(made(&lab.cli.repair()), 0, "{}", lab.cli.repair());
    assert_eq!(lab.chunk_files(), files);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn repair_makes_fewest_survivors_first_within_budget() {
    const RATE: u64 = 512 << 10;
    /// The bytes of the file that can wait: repair of it takes far longer than a look.
    const LONG: usize = 6 << 20;
    let options = ["--repair-grace", "2s", "--repair-rate", "512KiB"];
    let mut lab = Lab::with_options(4, &options);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let (three, _) = file(lab.dir(), "three", 6, LONG);
    let (two, _) = file(lab.dir(), "two", 7, 2 << 20);
    lab.cli.ok(&["cp", arg(&three), "pot://lab/a-three", "--copies", "3"]);
    lab.cli.ok(&["cp", arg(&two), "pot://lab/b-two", "--copies", "2"]);
    lab.kill_donor("donor-4");
    let began = Instant::now();
    wait_until("both to be less safe", DEADLINE, || {
        !lab.cli.is_safe("pot://lab/a-three") && !lab.cli.is_safe("pot://lab/b-two")
    });
    lab.cli.wait_safe("pot://lab/b-two");
    let still = lab.cli.health("pot://lab/a-three");
    assert!(still["incomplete"].as_u64() > Some(0), "three copies can wait: {still}");
    let took = lab.cli.wait_safe("pot://lab/a-three");
    println!("three copies were whole {took:?} later; {}", lab.cli.repair());
    let repair = lab.cli.repair();
    assert_eq!(repair["pool_budget"], RATE, "{repair}");
    let (bytes, seconds) = (repair["made_bytes"].as_u64(), began.elapsed().as_secs());
    let budget = RATE * (seconds + 1) * 11 / 10;
    assert!(bytes > Some(0) && bytes <= Some(budget), "over {budget}, the budget: {repair}");
}

#[test]
fn repair_can_be_paused_and_resumed() {
    let mut lab = Lab::with_options(4, &["--repair-grace", "2s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 8, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.cli.ok(&["repair", "pause"]);
    lab.kill_donor("donor-1");
    wait_until("what is to be made to be known", DEADLINE, || {
        lab.cli.repair()["queued"].as_array().is_some_and(|queued| !queued.is_empty())
    });
    let status = lab.cli.ok(&["status"]).text();
    assert!(status.starts_with("degraded: ") && status.contains("repair is paused"), "{status}");
    let repair = lab.cli.repair();
    assert!(repair["paused"].is_string() && made(&repair) == 0, "{repair}");
    lab.cli.ok(&["repair", "resume"]);
    lab.cli.wait_safe("pot://lab/f");
    let repair = lab.cli.json(&["repair", "status", "--watch"]);
    assert!(repair["paused"].is_null() && made(&repair) > 0, "{repair}");
    // Users may look, and admins may steer.
    let token = lab.token("user");
    let user = lab.cli.at_home(&lab.dir().join("user"));
    user.ok(&["join", &token]);
    user.ok(&["repair", "status"]);
    assert_eq!(user.fails(8, &["repair", "pause"]).code, "POT-E062");
}

#[test]
fn repair_now_does_not_wait_for_the_grace() {
    let mut lab = Lab::with_options(4, &["--repair-grace", "1h"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 11, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.kill_donor("donor-1");
    wait_until("the absence to be noticed", DEADLINE, || live_copies(&lab, "pot://lab/f") == 1);
    assert_eq!(made(&lab.cli.repair()), 0);
    lab.cli.ok(&["repair", "now"]);
    wait_until("all to be made again", DEADLINE, || live_copies(&lab, "pot://lab/f") == 2);
    lab.cli.wait_safe("pot://lab/f");
    assert!(made(&lab.cli.repair()) > 0);
}

#[test]
fn an_announced_absence_is_waited_for() {
    let mut lab = Lab::with_options(3, &["--repair-grace", "1s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 9, 1 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let state = lab.donor_state("donor-1");
    lab.cli.at_home(&lab.dir().join("owner")).ok(&["away", "1h", "--state", arg(&state)]);
    lab.kill_donor("donor-1");
    wait_until("the absence to be long noticed", DEADLINE, || {
        lab.cli.donor("donor-1")["silent_seconds"].as_u64() > Some(8)
    });
    let donor = lab.cli.donor("donor-1");
    assert!(donor["away_seconds"].as_u64() > Some(3000) && donor["state"] != "dead", "{donor}");
    assert_eq!(made(&lab.cli.repair()), 0);
    let status = lab.cli.ok(&["status"]).text();
    assert!(status.contains("away for "), "{status}");
    // The donor is not coming back after all.
    lab.cli.ok(&["nodes", "away", "donor-1", "--end"]);
    lab.cli.wait_safe("pot://lab/f");
}

#[test]
fn write_keeps_labels_apart_around_a_full_donor() {
    const NAME: &str = "a_write_keeps_rooms_apart";
    let mut lab = Lab::manager_only(&["--repair-grace", "1h"]);
    // There is room for the donor's own directories and ten chunks. With most room by far it is in
    // every plan, and it cannot know better before the system says so.
    let options = format!("size=512m,nr_inodes={}", 1 + 256 + 5 + 10);
    let Some(disk) = SmallDisk::mount(NAME, lab.dir().join("disk"), &options) else { return };
    let rooms = [("a-1", "a"), ("a-2", "a"), ("b-1", "b"), ("b-2", "b"), ("c", ""), ("d", "")];
    for (name, room) in rooms {
        let options = match room {
            "" => Vec::new(),
            room => vec!["--label".to_string(), room.into()],
        };
        let dir = (name == "b-1").then(|| disk.path().join("lent"));
        let max = if dir.is_some() { "1GiB" } else { "256MiB" }.into();
        lab.lend(name, Lending { options, dir, max, ..Lending::default() });
    }
    lab.wait_live();
    // Repair is paused, since it would take apart what a write leaves together before the test looks at it.
    lab.cli.ok(&["repair", "pause"]);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let status = lab.cli.status();
    let donors = status["donors"].as_array().expect("donors");
    let room_of = |id: &Value| {
        let donor = donors.iter().find(|donor| donor["donor"] == *id).expect("a known donor");
        donor["label"].as_str().map_or_else(|| id.to_string(), Into::into)
    };
    for (seed, kept_as) in
        [["--copies", "4"], ["--copies", "2"], ["--ec", "2+1"]].iter().enumerate()
    {
        let (input, _) = file(lab.dir(), kept_as[1], 60 + seed as u64, 4 << 20);
        let path = format!("pot://lab/{seed}");
        lab.cli.ok(&[&["cp", arg(&input), &path], &kept_as[..]].concat());
        lab.cli.ok(&["verify", &path]);
        let stated = lab.cli.json(&["stat", "--chunks", &path]);
        for chunk in stated["chunk_list"].as_array().expect("chunks") {
            let donors = chunk["donors"].as_array().expect("donors");
            let seen: BTreeSet<String> = donors.iter().map(room_of).collect();
            assert_eq!(seen.len(), donors.len(), "{kept_as:?}: {chunk}");
        }
    }
    let taken = lab.lent("b-1").chunks().len();
    assert!((1..=10).contains(&taken), "it was written to until it was full: {taken}");
}

#[test]
fn machines_that_fail_together_count_as_one() {
    let mut lab = Lab::manager_only(&["--repair-grace", "2s"]);
    for (name, label) in [("a-1", "room-a"), ("a-2", "room-a"), ("b-1", "room-b")] {
        let options = vec!["--label".to_string(), label.into()];
        lab.lend(name, Lending { options, ..Lending::default() });
    }
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 12, 2 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    wait_until("the space to be found safe", DEADLINE, || lab.cli.space("lab")["tolerates"] == 1);
    let listed = lab.cli.ok(&["nodes", "ls"]).text();
    assert!(listed.contains("room-a") && listed.contains("room-b"), "{listed}");
    // The whole room dies, which is one failure.
    lab.kill_donors(&["a-1", "a-2"]);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file without room-a");
}
