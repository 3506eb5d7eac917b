//! Tests of files that an erasure code m+k keeps: what is lost, read, rebuilt and refused.

use super::content::{arg, assert_same, bytes, file, tree_of};
use super::lab::{Lab, Lending};
use super::lent::flip;
use super::ranges::moves_at_most;
use super::tap::Tap;
use super::waiting::{DEADLINE, wait_until};
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

/// The bytes of a whole chunk in these tests.
const CHUNK: usize = 64 << 10;
/// An upper bound of the bytes that requests, replies and sealing add to a chunk on the wire.
const AROUND: usize = 4 << 10;

/// Makes a pool of six donors, none as large as another.
fn six_unequal() -> Lab {
    let mut lab = Lab::manager_only(&[]);
    for (number, max) in ["64MiB", "96MiB", "128MiB", "256MiB", "512MiB", "1GiB"].iter().enumerate()
    {
        let lending = Lending { max: max.to_string(), ..Lending::default() };
        lab.lend(&format!("donor-{}", number + 1), lending);
    }
    lab.wait_live();
    lab
}

fn space(lab: &Lab, name: &str, more: &[&str]) {
    let create = ["space", "create", name, "--ec", "4+2", "--chunk-size", "64KiB"];
    lab.cli.ok(&[&create, more].concat());
}

#[test]
fn any_two_of_six_unequal_donors_may_die() {
    let mut lab = six_unequal();
    space(&lab, "sealed", &[]);
    space(&lab, "plain", &["--plain"]);
    // The file has 13 whole groups and a short one.
    let (input, content) = file(lab.dir(), "input", 1, 13 * 4 * CHUNK + 100_001);
    let from = lab.dir().join("tree");
    fs::create_dir_all(from.join("deep/empty")).expect("a directory");
    for (number, len) in [0, 1, 4097, 20_000, CHUNK, 5 * CHUNK + 1].into_iter().enumerate() {
        let path = from.join(format!("deep/{number}"));
        fs::write(path, bytes(100 + number as u64, len)).expect("a file");
    }
    for space in ["sealed", "plain"] {
        lab.cli.ok(&["cp", arg(&input), &format!("pot://{space}/f")]);
        lab.cli.ok(&["cp", "-r", arg(&from), &format!("pot://{space}/tree")]);
        let piped = Stdio::from(fs::File::open(&input).expect("the input"));
        lab.cli.run_with_input(&["cp", "-", &format!("pot://{space}/piped")], piped).ok();
        let stated = lab.cli.json(&["stat", &format!("pot://{space}/f")]);
        assert_eq!(stated["entry"]["ec"], "4+2", "{stated}");
        // Every chunk of a group is on its own donor, so that of 14 groups each donor has 14, and few more that were
        // late at another.
        let shares = lab.cli.shares(&format!("pot://{space}/f"));
        let each: Vec<u64> = shares.values().copied().collect();
        assert!(each.len() == 6 && each.iter().all(|chunks| *chunks >= 14), "{shares:?}");
        assert!(each.iter().sum::<u64>() < 6 * 14 + 28, "{shares:?}");
    }
    for pair in [["donor-1", "donor-2"], ["donor-3", "donor-4"], ["donor-5", "donor-6"]] {
        lab.kill_donors(&pair);
        for space in ["sealed", "plain"] {
            let without = format!("{space} without {pair:?}");
            for name in ["f", "piped"] {
                let path = format!("pot://{space}/{name}");
                assert_same(&lab.cli.cat(&path), &content, &format!("{name} of {without}"));
            }
            let (first, last) = (3 * CHUNK + 100, 9 * CHUNK + 7);
            let range = format!("{first}-{last}");
            let part = lab.cli.ok(&["cat", &format!("pot://{space}/f"), "--range", &range]).stdout;
            assert_same(&part, &content[first..=last], &format!("a range of {without}"));
            let to = lab.dir().join(format!("out-{space}-{}", pair[0]));
            lab.cli.ok(&["cp", "-r", &format!("pot://{space}/tree"), arg(&to)]);
            assert_eq!(tree_of(&to), tree_of(&from), "the tree of {without}");
        }
        lab.bring_back(&pair);
    }
    // A third death is one too many, and the command says so.
    lab.kill_donors(&["donor-2", "donor-4", "donor-6"]);
    let refused = lab.cli.fails(5, &["cat", "pot://plain/f"]);
    assert_eq!(refused.code, "POT-E050", "{refused:?}");
}

#[test]
fn fewer_donors_than_a_group_needs_are_refused_clearly() {
    let mut lab = Lab::with_donors(5);
    let (input, content) = file(lab.dir(), "input", 2, 1 << 20);
    let made = lab.cli.ok(&["space", "create", "lab", "--ec", "4+2", "--chunk-size", "64KiB"]);
    assert!(made.stderr.contains("4+2 needs 6 donors, and 5"), "{}", made.stderr);
    let refused = lab.cli.fails(6, &["cp", arg(&input), "pot://lab/f"]);
    assert_eq!(refused.code, "POT-E031", "{refused:?}");
    assert!(
        ["4+2", "6", "5"].iter().all(|word| refused.message.contains(word)),
        "it says what is needed and what is there: {refused:?}"
    );
    assert!(!refused.hint.is_empty(), "{refused:?}");
    lab.cli.fails(3, &["stat", "pot://lab/f"]);
    lab.wait_clean(0);
    // A code with fewer chunks is possible, and one more donor suffices for the larger one.
    lab.cli.ok(&["cp", arg(&input), "pot://lab/less", "--ec", "3+2"]);
    lab.lend("donor-6", Lending::default());
    lab.wait_live();
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    // With two of six donors away, the command says to wait.
    lab.kill_donors(&["donor-5", "donor-6"]);
    wait_until("the dead donors to be noticed", DEADLINE, || lab.cli.live_donors().len() == 4);
    let refused = lab.cli.fails(5, &["cp", arg(&input), "pot://lab/g"]);
    assert_eq!(refused.code, "POT-E033", "{refused:?}");
    for path in ["pot://lab/less", "pot://lab/f"] {
        assert_same(&lab.cli.cat(path), &content, path);
    }
    for bad in ["1+1", "17+2", "4+9", "4", "4+0"] {
        lab.cli.run(&["cp", arg(&input), "pot://lab/bad", "--ec", bad]).exits(2);
    }
}

#[test]
fn small_files_waste_at_most_k_plus_1_chunks() {
    let lab = Lab::with_donors(6);
    lab.cli.ok(&["space", "create", "lab", "--ec", "4+2", "--chunk-size", "1MiB"]);
    for len in [4097_usize, 5000, 16_385, 100_000, 1 << 20, (7 << 19) + 13] {
        let (input, content) = file(lab.dir(), "input", len as u64, len);
        let path = format!("pot://lab/{len}");
        lab.cli.ok(&["cp", arg(&input), &path]);
        let stated = lab.cli.json(&["stat", &path]);
        let shares = stated["donors"].as_array().expect("donors");
        // There is one group: each donor holds one chunk, and its share is that chunk's size.
        let chunks: Vec<u64> = shares.iter().filter_map(|share| share["bytes"].as_u64()).collect();
        assert!(shares.iter().all(|share| share["chunks"] == 1), "{stated}");
        let (stored, largest) = (chunks.iter().sum::<u64>(), chunks.iter().max().expect("chunks"));
        let waste = stored - len as u64;
        assert!(waste <= 3 * largest, "{len} bytes waste {waste} in chunks of {largest}");
        // A small file is spread evenly over its group, and is not kept as one large chunk with its parity.
        let seals = 16 * (1 + len as u64 / 4 / (64 << 10));
        assert!(*largest <= (len as u64 / 4).max(4096) + 64 + seals, "{len}: {chunks:?}");
        assert_same(&lab.cli.cat(&path), &content, &path);
    }
    // A file that fits the catalog has no chunks at all.
    let (input, _) = file(lab.dir(), "tiny", 9, 4096);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/tiny"]);
    assert_eq!(lab.cli.json(&["stat", "pot://lab/tiny"])["inline"], true);
}

#[test]
fn a_partial_read_touches_only_what_it_needs() {
    let mut lab = Lab::manager_only(&[]);
    let mut taps = BTreeMap::new();
    for number in 1..=6 {
        let (name, tap) = (format!("donor-{number}"), Tap::listening());
        let advertise = Some(tap.address());
        lab.lend(&name, Lending { advertise, ..Lending::default() });
        tap.aim(lab.donor_address(&name));
        taps.insert(name, tap);
    }
    lab.wait_live();
    space(&lab, "lab", &[]);
    let (input, content) = file(lab.dir(), "input", 3, 8 * CHUNK);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    // This counts the bytes that a read of a range takes from each donor.
    let read = |lab: &Lab, first: usize, last: usize| -> BTreeMap<String, usize> {
        let passed = || taps.iter().map(|(name, tap)| (name.clone(), tap.count()));
        let before: BTreeMap<_, _> = passed().collect();
        let range = format!("{first}-{last}");
        let part = lab.cli.ok(&["cat", "pot://lab/f", "--range", &range]).stdout;
        assert_same(&part, &content[first..=last], &range);
        passed().map(|(name, now)| (name.clone(), now - before[&name])).collect()
    };
    let sum = |taken: &BTreeMap<String, usize>| taken.values().sum::<usize>();
    let moves = |lab: &Lab, first: usize, last: usize, chunks: usize| -> BTreeMap<String, usize> {
        let mut taken = BTreeMap::new();
        let what = format!("{chunks} chunks");
        moves_at_most((chunks * (CHUNK + AROUND)) as u64, &what, || {
            taken = read(lab, first, last);
            sum(&taken) as u64
        });
        assert!(sum(&taken) >= chunks * CHUNK, "{what}: {taken:?}");
        taken
    };
    let one = moves(&lab, CHUNK + 10, CHUNK + 1000, 1);
    moves(&lab, 6 * CHUNK - 1, 6 * CHUNK, 2);

    // Without the donor of that chunk, m others of its group are read, and nothing of the other
    // group.
    let holder = one.iter().max_by_key(|(_, taken)| **taken).expect("a holder").0.clone();
    lab.kill_donor(&holder);
    moves(&lab, CHUNK + 10, CHUNK + 1000, 4);
}

#[test]
fn a_spoiled_chunk_is_caught_before_anything_is_rebuilt_from_it() {
    let mut lab = Lab::with_donors(6);
    space(&lab, "lab", &[]);
    let (input, content) = file(lab.dir(), "input", 4, 20 * 4 * CHUNK);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let spoil = |lab: &Lab, donor: &str| {
        let chunks = lab.lent(donor).chunks();
        assert!(chunks.len() >= 20, "{}", chunks.len()); // one of each group, and what was late elsewhere
        chunks.iter().enumerate().for_each(|(number, path)| flip(path, 31 * number as u64));
    };
    // The chunks of one donor are spoiled and another donor is dead: as many failures as the code survives.
    spoil(&lab, "donor-1");
    lab.kill_donor("donor-2");
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    let range = format!("{}-{}", 9 * CHUNK, 10 * CHUNK + 99);
    let part = lab.cli.ok(&["cat", "pot://lab/f", "--range", &range]).stdout;
    assert_same(&part, &content[9 * CHUNK..10 * CHUNK + 100], "a range");
    wait_until("the damage to be found", DEADLINE, || {
        lab.cli.donor("donor-1")["bad"].as_u64() > Some(0)
    });
    assert_eq!(lab.cli.donor("donor-3")["bad"], 0);
    // A third bad donor is too many: the read ends with an error, and never with a wrong byte.
    spoil(&lab, "donor-3");
    let ran = lab.cli.run(&["cat", "pot://lab/f"]);
    assert!([5, 7].contains(&ran.code), "{}: {}", ran.code, ran.stderr);
    assert_same(&ran.stdout, &content[..ran.stdout.len()], "the part before the damage");
}
