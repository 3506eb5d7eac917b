//! Tests that reads begin soon and come to their end while as many donors are frozen, dead or cut off as the policy
//! tolerates (A1).

use super::content::{arg, assert_same, file};
use super::lab::{Lab, Lending};
use super::tap::Tap;
use super::waiting::wait_until;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant};

/// The time by which the first byte may come later than beside healthy donors.
const LATER: Duration = Duration::from_secs(2);

/// A way in which donors fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The processes of these donors are stopped, and their machines still take connections.
    Frozen,
    /// The processes of these donors were killed.
    Dead,
    /// Nothing that is sent to these donors arrives, nor anything that they send to readers.
    CutOff,
}

/// Reads a file, and returns when its first byte came to the reader, and when all of it had.
fn read(lab: &Lab, path: &str, content: &[u8], what: &str) -> (Duration, Duration) {
    let mut reading = lab.cli.start(&["cat", path]);
    let began = Instant::now();
    let mut out = reading.child().stdout.take().expect("a pipe");
    let mut read = vec![0];
    out.read_exact(&mut read).expect("a first byte");
    let first = began.elapsed();
    out.read_to_end(&mut read).expect("the rest");
    let all = began.elapsed();
    assert!(reading.end("the reader").success(), "{what}");
    assert_same(&read, content, what);
    (first, all)
}

/// Asserts that the first byte of a file that `redundancy` keeps at `donors` donors, two of which fail after it was
/// stored, is hardly late. On a busy machine it may be late for anything else, so that another pool is tried.
fn read_beside(failure: Failure, donors: usize, redundancy: &[&str]) {
    let mut tries = (0..3).map(|_| late_beside(failure, donors, redundancy));
    assert!(tries.any(|late| late <= LATER), "{redundancy:?}, {failure:?}: late three times");
}

/// Returns by how much later than beside healthy donors the first byte comes, in a new pool.
fn late_beside(failure: Failure, donors: usize, redundancy: &[&str]) -> Duration {
    let mut lab = Lab::manager_only(&[]);
    let mut taps = BTreeMap::new();
    for number in 1..=donors {
        let name = format!("donor-{number}");
        match failure {
            Failure::CutOff => {
                let tap = lab.lend_behind(&name, Tap::listening());
                taps.insert(name, tap);
            }
            _ => lab.lend(&name, Lending::default()),
        }
    }
    lab.wait_live();
    let create = ["space", "create", "lab", "--chunk-size", "256KiB"];
    lab.cli.ok(&[&create[..], redundancy].concat());
    let (input, content) = file(lab.dir(), "input", 3, 24 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    lab.wait_settled();
    let (healthy, _) = read(&lab, "pot://lab/f", &content, "beside healthy donors");
    let victims = ["donor-1", "donor-2"];
    for victim in victims {
        match failure {
            Failure::Frozen => lab.donor(victim).signal(Signal::STOP),
            Failure::Dead => lab.kill_donor(victim),
            Failure::CutOff => taps[victim].cut(true),
        }
    }
    let what = format!("{redundancy:?} beside two donors that are {failure:?}");
    let (first, all) = read(&lab, "pot://lab/f", &content, &what);
    println!("{what}: first byte after {first:?} instead of {healthy:?}, all after {all:?}");
    taps.values().for_each(|tap| tap.cut(false));
    if failure == Failure::Frozen {
        victims.iter().for_each(|victim| lab.donor(victim).signal(Signal::CONT));
        wait_until("them to be back", Duration::from_secs(30), || {
            lab.cli.live_donors().len() == donors
        });
    }
    first.saturating_sub(healthy)
}

#[test]
fn first_byte_in_two_seconds_beside_frozen_donors_a1() {
    read_beside(Failure::Frozen, 3, &["--copies", "3"]);
    read_beside(Failure::Frozen, 6, &["--ec", "4+2"]);
}

#[test]
fn first_byte_in_two_seconds_beside_dead_donors_a1() {
    read_beside(Failure::Dead, 3, &["--copies", "3"]);
    read_beside(Failure::Dead, 6, &["--ec", "4+2"]);
}

#[test]
fn first_byte_in_two_seconds_beside_unreachable_donors_a1() {
    read_beside(Failure::CutOff, 3, &["--copies", "3"]);
    read_beside(Failure::CutOff, 6, &["--ec", "4+2"]);
}
