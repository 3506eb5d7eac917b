//! Tests stripes, and donors that are not equally fast.

use super::content::{arg, assert_same, bytes, file};
use super::lab::{Lab, Lending};
use super::tap::Tap;
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn stripe_width_and_chunk_size_hold_per_space_and_per_command() {
    let lab = Lab::with_donors(5);
    // A file is written to all donors there are, unless something else is said.
    let made = lab.cli.json(&["space", "create", "auto", "--chunk-size", "64KiB"]);
    assert_eq!(made["policy"]["stripe_width"], "auto", "{made}");
    lab.cli.ok(&["space", "create", "wide", "--width", "4", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["space", "create", "narrow", "--width", "2", "--chunk-size", "128KiB"]);
    for (seed, (path, options, donors, chunks)) in [
        ("pot://wide/a", &[][..], 4, 64),
        ("pot://narrow/a", &[], 2, 32),
        ("pot://auto/a", &[], 5, 64),
        ("pot://wide/b", &["--width", "1"], 1, 64),
        ("pot://narrow/c", &["--width", "auto"], 5, 32),
        ("pot://narrow/b", &["--width", "3", "--chunk-size", "256KiB"], 3, 16),
    ]
    .into_iter()
    .enumerate()
    {
        // Each file has new content, for chunks that the pool holds stay where they are.
        let (input, _) = file(lab.dir(), "input", seed as u64, 4 << 20);
        lab.cli.ok(&[&["cp", arg(&input), path], options].concat());
        let shares = lab.cli.shares(path);
        assert_eq!(shares.len(), donors, "{path} {options:?}: {shares:?}");
        assert_eq!(lab.cli.json(&["stat", path])["chunks"], chunks, "{path} {options:?}");
        // There are more if a chunk was sent again because an answer was late.
        assert!(shares.values().sum::<u64>() >= chunks, "{path} {options:?}: {shares:?}");
    }
}

#[test]
fn near_holds_per_directory_and_where_one_donor_is_alone() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    lab.cli.ok(&["mkdir", "pot://lab/runs"]);
    lab.cli.ok(&["policy", "set", "pot://lab/runs", "--near", "here:40%"]);
    let shown = lab.cli.json(&["policy", "show", "pot://lab/runs"]);
    assert_eq!(shown["policy"]["near"], "here:40%", "{shown}");
    let (input, content) = file(lab.dir(), "input", 1, 1 << 20);
    // The only donor of the pool is on the machine that writes, and takes files all the same.
    for (path, options) in [
        ("pot://lab/a", &[][..]),
        ("pot://lab/runs/a", &[]),
        ("pot://lab/b", &["--near", "here"]),
        ("pot://lab/c", &["--near", "anywhere"]),
    ] {
        lab.cli.ok(&[&["cp", arg(&input), path], options].concat());
        assert_same(&lab.cli.cat(path), &content, path);
    }
    let in_a_row = ["cp", arg(&input), "pot://lab/e", "--stripe-size", "4"];
    lab.cli.ok(&in_a_row);
    assert_same(&lab.cli.cat("pot://lab/e"), &content, "four chunks in a row");
    lab.cli.fails(2, &["cp", arg(&input), "pot://lab/d", "--stripe-size", "0"]);
    for bad in ["here:0%", "there"] {
        lab.cli.fails(2, &["cp", arg(&input), "pot://lab/d", "--near", bad]);
    }
}

#[test]
fn explain_tells_the_width_of_a_copy_and_why() {
    let lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "1"]);
    for (seed, (mib, options, width, reason)) in
        [(2, &[][..], 1, "small_file"), (20, &[], 3, "all"), (20, &["--width", "2"], 2, "asked")]
            .into_iter()
            .enumerate()
    {
        let (input, content) = file(lab.dir(), "input", seed as u64, mib << 20);
        let path = format!("pot://lab/{seed}");
        let copy = [&["explain", "cp", arg(&input), &path], options].concat();
        let told = lab.cli.json(&copy);
        assert_eq!(told["striping"]["width"], width, "{told}");
        assert_eq!(told["striping"]["reason"], reason, "{told}");
        // A donor that is slow at this moment may be passed over.
        assert!((1..=width).contains(&lab.cli.shares(&path).len()), "{path}");
        assert_same(&lab.cli.cat(&path), &content, &path);
    }
    let (input, _) = file(lab.dir(), "input", 9, 1 << 20);
    let told = lab.cli.ok(&["explain", "cp", arg(&input), "pot://lab/told"]).stdout;
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("written to 1 donor at once, for small files are not split"), "{told}");
}

#[test]
fn small_donors_fill_up_and_the_rest_overflows_to_the_large_one() {
    let mut lab = Lab::manager_only(&[]);
    for (name, max) in [("small-1", "6MiB"), ("small-2", "6MiB"), ("large", "40MiB")] {
        lab.lend(name, Lending { max: max.into(), ..Lending::default() });
    }
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--width", "3", "--chunk-size", "256KiB"]);
    let (input, content) = file(lab.dir(), "input", 7, 24 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    let shares = lab.cli.shares("pot://lab/f");
    assert!(shares["large"] >= 48, "what the small ones cannot hold: {shares:?}");
    for name in ["small-1", "small-2"] {
        assert!(shares.get(name).is_some_and(|chunks| *chunks > 0), "{name} is used: {shares:?}");
        let used = lab.cli.donor(name)["used"].as_u64();
        assert!(used <= Some(6 * MIB), "{name} holds {used:?}, lent were 6 MiB");
    }
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
    // A file that fits nowhere is refused before a byte is sent.
    let (more, _) = file(lab.dir(), "more", 8, 60 << 20);
    let refused = lab.cli.fails(6, &["cp", arg(&more), "pot://lab/g"]);
    assert_eq!(refused.code, "POT-E032", "{refused:?}");
}

/// The bytes a second that the one slow donor takes and gives: slow also beside a slow machine.
const SLOW: u64 = 1_000_000;

#[test]
fn one_slow_donor_does_not_slow_the_others() {
    let mut lab = Lab::with_donors(3);
    let _tap = lab.lend_behind("slow", Tap::slow(SLOW));
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--width", "4"]);
    // If the four donors were equal, each would get a quarter.
    let share = 16 * MIB;
    let fair = Duration::from_secs_f64(share as f64 / SLOW as f64);
    let is_soon = |took: Duration| took < fair.mul_f64(0.7);
    // A busy machine may be slower than the slow donor for a while.
    let is_put_soon = (0..3).any(|again| {
        let (input, _) = file(lab.dir(), "input", 90 + again, 64 << 20);
        let ran = lab.cli.ok(&["cp", arg(&input), "pot://lab/f", "--json"]);
        let shares = lab.cli.shares("pot://lab/f");
        println!("put took {:?} (a fair share would take {fair:?}); {shares:?}", ran.took);
        // The slow donor works at its own rate meanwhile, rather than being left out. How the others
        // share the rest is up to the machine, which may hold one of them up for much of so short a
        // write.
        assert!(shares.contains_key("slow"), "{shares:?}");
        let others = shares.iter().filter(|(name, _)| *name != "slow").map(|(_, chunks)| *chunks);
        is_soon(ran.took) && others.min() > Some(shares["slow"])
    });
    assert!(is_put_soon, "three writes were as slow as the slow donor");

    // With a second copy elsewhere, reading does not wait for it either.
    let (input, content) = file(lab.dir(), "input", 9, 64 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/twice", "--copies", "2"]);
    let is_got_soon = (0..3).any(|_| {
        let ran = lab.cli.ok(&["cat", "pot://lab/twice"]);
        println!("get took {:?}", ran.took);
        assert_same(&ran.stdout, &content, "the file");
        is_soon(ran.took)
    });
    assert!(is_got_soon, "three reads were as slow as the slow donor");
}

#[test]
fn a_stripe_starts_anew_for_every_file() {
    let lab = Lab::with_donors(4);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let from = lab.dir().join("many");
    std::fs::create_dir(&from).expect("a directory");
    for number in 0..200_u64 {
        std::fs::write(from.join(number.to_string()), bytes(number, 20_000)).expect("a file");
    }
    lab.cli.ok(&["cp", "-r", arg(&from), "pot://lab/many"]);
    // Small files of one command spread over the stripe instead of all beginning at one donor.
    for name in lab.donor_names() {
        let chunks = lab.lent(&name).chunks().len();
        assert!(chunks >= 10, "{name} got {chunks} of 200 chunks");
    }
}
