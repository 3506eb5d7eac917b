//! Tests reads of parts of files, which move the segments that they need and prove them.

use super::content::{arg, assert_same, file};
use super::lab::Lab;
use super::lent::flip;
use super::monitoring::{get, value};
use super::waiting::pause;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The most bytes that a read of 4 KiB may move from one donor.
const MOST: u64 = 70 << 10;
/// The time after which a donor's metrics are made anew.
const FRESH: Duration = Duration::from_millis(1100);

/// Returns the bytes that these donors have served.
fn served(lab: &Lab, donors: &[String]) -> u64 {
    pause(FRESH);
    let of = |name: &String| {
        let text = get(lab.donor_address(name), "/metrics").expect("a donor answers");
        value(&text, "potluck_bulk_served_bytes_total").expect("a figure") as u64
    };
    donors.iter().map(of).sum()
}

/// Reads 4 KiB at each of these places, and gives what `donors` served for that.
fn read_parts(lab: &Lab, donors: &[String], path: &str, content: &[u8], places: &[usize]) -> u64 {
    let before = served(lab, donors);
    for at in places {
        let range = format!("{at}-{}", at + 4095);
        let part = lab.cli.ok(&["cat", path, "--range", &range]).stdout;
        assert_same(&part, &content[*at..at + 4096], &format!("{range} of {path}"));
    }
    served(lab, donors) - before
}

/// Asserts that one of several tries of these reads moved at most `limit` bytes, and returns what it moved. On a busy
/// machine a copy that is late is asked for a second time.
#[track_caller]
pub fn moves_at_most(limit: u64, what: &str, mut read: impl FnMut() -> u64) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..5 {
        least = least.min(read());
        if least <= limit {
            return least;
        }
    }
    panic!("{least} bytes for {what}, and not at most {limit}");
}

#[test]
fn a_read_of_4_kib_moves_one_segment_also_where_it_is_rebuilt() {
    let mut lab = Lab::with_donors(3);
    let (input, content) = file(lab.dir(), "input", 5, (9 << 20) + 77);
    let places = [0, 5 << 20, (3 << 20) + 61_440, (9 << 20) - 4096, content.len() - 4096];
    let spaces: [(&str, &[&str]); 4] = [
        ("sealed", &[]),
        ("plain", &["--plain", "--chunk-size", "8MiB"]),
        ("coded", &["--ec", "2+1"]),
        ("plain-coded", &["--ec", "2+1", "--plain"]),
    ];
    let donors = lab.donor_names();
    for (space, options) in spaces {
        lab.cli.ok(&[&["space", "create", space], options].concat());
        let path = format!("pot://{space}/f");
        lab.cli.ok(&["cp", arg(&input), &path]);
        let most = places.len() as u64 * MOST;
        moves_at_most(most, &path, || read_parts(&lab, &donors, &path, &content, &places));
        // These ranges go over the border of two segments, of two chunks, and of many.
        for (first, last) in [(65_530, 65_541), ((4 << 20) - 1, 4 << 20), (100_000, 8_999_999)] {
            let range = format!("{first}-{last}");
            let part = lab.cli.ok(&["cat", &path, "--range", &range]).stdout;
            assert_same(&part, &content[first..=last], &format!("{range} of {path}"));
        }
    }
    // One of any two donors holds data of a group, and not its parity.
    let mut rebuilt = [0; 2];
    for dead in &donors[..2] {
        lab.kill_donor(dead);
        let live: Vec<String> = donors.iter().filter(|donor| *donor != dead).cloned().collect();
        let most = 2 * places.len() as u64 * MOST;
        for (path, rebuilt) in ["pot://coded/f", "pot://plain-coded/f"].iter().zip(&mut rebuilt) {
            let moved = moves_at_most(most, &format!("{path} without {dead}"), || {
                read_parts(&lab, &live, path, &content, &places)
            });
            *rebuilt += u32::from(moved / places.len() as u64 > MOST);
        }
        lab.bring_back(&[dead]);
    }
    assert!(rebuilt.iter().all(|times| *times > 0), "nothing had to be rebuilt: {rebuilt:?}");
}

/// Promise I1: a part that is not what the file's name says never reaches its reader.
#[test]
fn a_spoiled_segment_is_never_read_and_another_copy_stands_in() {
    let lab = Lab::with_donors(2);
    let (input, content) = file(lab.dir(), "input", 6, 1 << 20);
    for (space, options) in [("sealed", &[][..]), ("plain", &["--plain"])] {
        lab.cli.ok(&[&["space", "create", space, "--copies", "2"], options].concat());
        let path = format!("pot://{space}/f");
        lab.cli.ok(&["cp", arg(&input), &path]);
    }
    lab.wait_settled();
    let large = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() > 1 << 20);
    let spoiled: Vec<PathBuf> = lab.lent("donor-1").chunks().into_iter().filter(large).collect();
    assert_eq!(spoiled.len(), 2);
    spoiled.iter().for_each(|path| flip(path, 300_000));
    for space in ["sealed", "plain"] {
        for at in [0_usize, 262_144, 299_000, 500_000] {
            let range = format!("{at}-{}", at + 4095);
            let part = lab.cli.ok(&["cat", &format!("pot://{space}/f"), "--range", &range]).stdout;
            assert_same(&part, &content[at..at + 4096], &format!("{range} of {space}"));
        }
    }
}
