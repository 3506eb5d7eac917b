//! Tests that a read may ask for more chunks of a group than it needs, and goes on with the first m.

use super::content::{arg, assert_same, file};
use super::lab::{Lab, Lending};
use super::ranges::moves_at_most;
use super::tap::Tap;
use std::collections::BTreeMap;
use std::time::Duration;

const CHUNK: usize = 256 << 10;
/// The rate of the slow donor in bytes a second: each of its chunks takes a second.
const SLOW: u64 = CHUNK as u64;
/// The least time that a chunk of the slow donor takes: bytes that fit into the buffers of sockets do not wait.
const SLOW_CHUNK: Duration = Duration::from_millis(750);

/// Makes a pool of six donors behind taps, and a file of six groups in each space. With `slow`, the first donor is slow
/// once the files are stored: if it were so before, it would be given parity, which readers do not wait for.
fn six_tapped(slow: bool) -> (Lab, BTreeMap<String, Tap>, Vec<u8>) {
    let mut lab = Lab::manager_only(&[]);
    let mut taps = BTreeMap::new();
    for number in 1..=6 {
        let name = format!("donor-{number}");
        let tap = if slow && number == 1 { Tap::slow(SLOW) } else { Tap::listening() };
        let advertise = Some(tap.address());
        lab.lend(&name, Lending { advertise, ..Lending::default() });
        tap.aim(lab.donor_address(&name));
        tap.hurry(true);
        taps.insert(name, tap);
    }
    lab.wait_live();
    let (input, content) = file(lab.dir(), "input", 2, 6 * 4 * CHUNK);
    for race in ["off", "auto", "2"] {
        let create = ["space", "create", &format!("race-{race}"), "--ec", "4+2", "--race", race];
        lab.cli.ok(&[&create[..], &["--plain", "--chunk-size", "256KiB"]].concat());
    }
    // Equal chunks of plain spaces are stored once, so the slow donor takes its own only here.
    for race in ["off", "auto", "2"] {
        lab.cli.ok(&["cp", arg(&input), &format!("pot://race-{race}/f")]);
    }
    taps.values().for_each(|tap| tap.hurry(false));
    (lab, taps, content)
}

#[test]
fn a_race_does_not_wait_for_a_slow_donor() {
    let (lab, _taps, content) = six_tapped(true);
    let read = |race: &str| -> Duration {
        let ran = lab.cli.ok(&["cat", &format!("pot://race-{race}/f")]);
        assert_same(&ran.stdout, &content, race);
        ran.took
    };
    let off = read("off");
    // About four of the slow donor's six chunks are data, fewer where it seemed busy as they were placed.
    assert!(off > SLOW_CHUNK, "without a race the slow donor is waited for: {off:?}");
    // A busy machine may hold one of the reads up.
    let raced = (0..3).map(|_| read("2")).find(|raced| *raced < off / 2);
    println!("race off {off:?}, race 2 {raced:?}");
    assert!(raced.is_some(), "race 2 took no less than half of {off:?}, three times");
}

#[test]
fn while_all_are_fast_nothing_is_asked_twice_unless_told_to() {
    let (lab, taps, content) = six_tapped(false);
    let read = |race: &str| -> usize {
        let passed = || taps.values().map(|tap| tap.count()).sum::<usize>();
        let before = passed();
        assert_same(&lab.cli.cat(&format!("pot://race-{race}/f")), &content, race);
        passed() - before
    };
    let around = content.len() / 20;
    let taken = |race: &str, most: usize| -> usize {
        moves_at_most((most + around) as u64, race, || read(race) as u64) as usize
    };
    for race in ["off", "auto"] {
        let taken = taken(race, content.len());
        assert!(taken >= content.len(), "{race}: {taken}");
    }
    // Two more chunks of each group are asked for, and at most these arrive before they are stopped.
    let raced = taken("2", content.len() / 4 * 6);
    assert!(raced >= content.len() + around, "race 2: {raced}");
}
