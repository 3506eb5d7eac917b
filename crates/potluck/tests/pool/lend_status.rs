//! What an owner sees of what is lent, without being a user of the pool.

use super::content::{arg, file};
use super::lab::Lab;
use super::waiting::{DEADLINE, wait_until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn lend_status_shows_holdings_and_departure() {
    let mut lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--copies", "1", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 3, 4 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/secret-name"]);
    // The owner of donor-1 has a home in which the donor's state is, and no identity of a user.
    let owner = lab.cli.at_home(&lab.dir().join("owner"));
    let state = lab.dir().join("owner/state/potluck");
    fs::create_dir_all(&state).expect("made");
    symlink(lab.donor_state("donor-1"), state.join("donor")).expect("linked");

    wait_until("what was stored to be told", DEADLINE, || {
        let said = owner.json(&["lend", "status"]);
        let one = &said["directories"][0];
        one["donor"]["chunks"].as_u64() > Some(0) && one["traffic"]["stored"].as_u64() > Some(0)
    });
    let said = owner.json(&["lend", "status"]);
    let of = &said["leaving"]["held_of"];
    assert_eq!((&of["files"], &of["spaces"], &of["members"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(said["directories"][0]["donor"]["name"], "donor-1");
    assert!(said["daemon"]["memory"].as_u64() > Some(1 << 20), "{said}");
    // `status` says the same where only a donor is, and other commands lead there.
    let text = owner.ok(&["status"]).text();
    for part in
        ["holds parts of 1 file in 1 space of 1 person", "traffic:", "if it left:", "costs:"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("secret-name"), "{text}");
    // What a donor may see of lists about all donors is its own row.
    lab.cli.ok(&["scrub", "now", "donor-1", "--wait"]);
    for list in [&["nodes", "ls"], &["scrub", "status"]] {
        let ran = owner.ok(list);
        assert!(ran.text().contains("donor-1") && !ran.text().contains("donor-2"), "{ran:?}");
        assert!(ran.stderr.contains("sees no others"), "{ran:?}");
        assert_eq!(owner.json(list)["donors"].as_array().map(Vec::len), Some(1));
    }
    let why = owner.fails(8, &["ls"]);
    assert!(why.message.contains("only lends to pool"), "{why:?}");
    assert!(why.hint.contains("potluck lend status"), "{why:?}");
    assert_eq!(owner.ok(&["status", "--check"]).text(), "");

    let stored = |said: &Value| said["directories"][0]["traffic"]["stored"].as_u64();
    let (before, since) = (stored(&said), said["traffic_since_wall_ms"].clone());
    lab.kill_donor("donor-1");
    lab.start_donor("donor-1");
    lab.wait_live();
    let said = owner.json(&["lend", "status"]);
    assert!(stored(&said) >= before, "{said}");
    assert_eq!(said["traffic_since_wall_ms"], since, "it goes on");

    lab.kill_donor("donor-1");
    let text = owner.run(&["lend", "status", "--check"]).exits(4).text();
    assert!(text.contains("nothing runs"), "{text}");
}
