//! Tests that copies lie on different donors, and that reads and writes go on beside donors that fail.

use super::content::{arg, assert_same, file};
use super::lab::Lab;
use super::waiting::DEADLINE;
use rustix::process::Signal;
use std::io::Read;
use std::time::Instant;

#[test]
fn copies_lie_on_different_donors() {
    let lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, _) = file(lab.dir(), "input", 7, 2 << 20);
    for (path, options, copies) in [
        ("pot://lab/two", &[][..], 2),
        ("pot://lab/three", &["--copies", "3"], 3),
        ("pot://lab/one", &["--copies", "1"], 1),
    ] {
        // On a busy machine a chunk that is late at one donor goes to another as well.
        let is_exact = (0..3).any(|again| {
            // Each file has chunks of its own, so that none counts for another.
            let (input, content) = file(lab.dir(), "own", 10 * again + copies, 2 << 20);
            lab.cli.ok(&[&["cp", arg(&input), path], options].concat());
            let stated = lab.cli.json(&["stat", path]);
            assert!(stated["live_copies"].as_u64() >= Some(copies), "{stated}");
            let shares = lab.cli.shares(path);
            let at_once = shares.values().all(|chunks| *chunks <= 32);
            assert!(at_once, "two copies on one donor: {shares:?}");
            assert_same(&lab.cli.cat(path), &content, path);
            println!("{path}: {shares:?}");
            stated["live_copies"] == copies && shares.values().sum::<u64>() == 32 * copies
        });
        assert!(is_exact, "{path} has more than {copies} copies of its chunks, three times");
    }
    // A file stored once that is stored again with more copies gets them.
    lab.cli.ok(&["cp", arg(&input), "pot://lab/again", "--copies", "1"]);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/again", "--copies", "2"]);
    assert_eq!(lab.cli.json(&["stat", "pot://lab/again"])["live_copies"], 2);
}

#[test]
fn reads_survive_the_death_of_a_donor_in_mid_file() {
    let mut lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 8, 32 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    for victim in lab.donor_names() {
        let stated = lab.cli.json(&["stat", "pot://lab/f"]);
        assert_eq!(stated["live_copies"], 2, "before {victim} dies: {stated}");
        let usual = lab.cli.ok(&["cat", "pot://lab/f"]).took;
        let mut reading = lab.cli.start(&["cat", "pot://lab/f"]);
        let mut out = reading.child().stdout.take().expect("a pipe");
        let mut read = vec![0; 4 << 20];
        out.read_exact(&mut read).expect("the first part");
        // The reader is at most 64 chunks ahead of us, so most of the file is still to be fetched.
        lab.kill_donor(&victim);
        let died = Instant::now();
        out.read_to_end(&mut read).expect("the rest");
        assert!(reading.end_within("the reader", 2 * DEADLINE).success(), "without {victim}");
        assert_same(&read, &content, &format!("the file without {victim}"));
        assert!(died.elapsed() < DEADLINE + usual, "{:?} without {victim}", died.elapsed());
        lab.start_donor(&victim);
        lab.wait_back(&victim);
    }
}

#[test]
fn a_copy_to_a_file_fails_over_too_and_says_so() {
    let mut lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 9, 8 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let to = lab.dir().join("out");
    let usual = lab.cli.ok(&["cp", "pot://lab/f", arg(&to)]).took;
    // The manager notices a process that dies at once, and one that hangs after seconds.
    lab.donor("donor-2").signal(Signal::STOP);
    let report = lab.cli.json(&["cp", "pot://lab/f", arg(&to)]);
    // On a slow machine the manager may have noticed before the copy came to that donor.
    let is_missed = lab.cli.donor("donor-2")["state"] != "live";
    lab.kill_donor("donor-2");
    assert!(report["failovers"].as_u64() > Some(0) || is_missed, "{report}");
    assert_same(&std::fs::read(&to).expect("the copy"), &content, "the copy");
    // With two copies, a second dead donor is one too many: chunks that the last donor has may be read first, and then
    // the others are waited for.
    lab.kill_donor("donor-3");
    let started = Instant::now();
    let refused = lab.cli.fails(5, &["--retry-for", "1s", "cp", "pot://lab/f", arg(&to)]);
    assert_eq!(refused.code, "POT-E050", "{refused:?}");
    assert!(started.elapsed() < DEADLINE + usual, "an error within 30 s (A2)");
    assert_same(&std::fs::read(&to).expect("the copy"), &content, "what was there before");
}

#[test]
fn writes_go_on_without_a_donor_that_dies_in_mid_file() {
    let mut lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 10, 32 << 20);
    let mut writing = lab.cli.start(&["cp", arg(&input), "pot://lab/f"]);
    super::waiting::wait_until("chunks to flow", DEADLINE, || lab.chunk_files() > 100);
    lab.kill_donor("donor-1");
    assert!(writing.end("the writer").success());
    let shares = lab.cli.shares("pot://lab/f");
    // Chunks that the dead donor had acknowledged count as copies; all others are on the other two. A few that were on
    // their way when it died may be on all three: sent to another donor, and acknowledged by the dead one at the last
    // moment.
    let copies = shares.values().sum::<u64>();
    assert!((2 * 512..2 * 512 + 256).contains(&copies), "{shares:?}");
    assert!(shares["donor-2"].min(shares["donor-3"]) > 300, "{shares:?}");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}
