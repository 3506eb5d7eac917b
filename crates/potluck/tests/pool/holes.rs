//! Tests files with holes, which take no room at donors, and no time by their length, on every way in and out.

use super::content::{Lots, arg, bytes};
use super::lab::{Lab, Lending};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Writes a file of `size` bytes with data at `runs`, and holes elsewhere.
pub fn sparse(path: &Path, seed: u64, size: u64, runs: &[(u64, usize)]) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.expect("made");
    for (at, len) in runs {
        file.write_all_at(&bytes(seed + at, *len), *at).expect("written");
    }
    file.set_len(size).expect("extended");
    file
}

/// Draws runs of data in a file of about `size` bytes, some of which begin or end where chunks of `chunk` bytes do.
pub fn drawn(lots: &mut Lots, size: u64, chunk: u64) -> Vec<(u64, usize)> {
    let count = 1 + lots.below(8);
    let place = |at: u64, step: u64| at / step * step;
    let mut run = |_| {
        let step = [1, 4096, chunk][lots.below(3) as usize];
        let at = place(lots.below(size), step);
        let len = place(1 + lots.below(3 * chunk), [1, chunk][lots.below(2) as usize]).max(1);
        (at, len.min(size - at) as usize)
    };
    (0..count).map(&mut run).collect()
}

/// Fails the test unless both have the same bytes.
#[track_caller]
pub fn assert_alike(actual: &File, expected: &File, what: &str) {
    let size = expected.metadata().expect("there").len();
    assert_eq!(actual.metadata().expect("there").len(), size, "{what}");
    let (mut one, mut other) = (vec![0; 4 << 20], vec![0; 4 << 20]);
    for at in (0..size).step_by(one.len()) {
        let len = one.len().min((size - at) as usize);
        actual.read_exact_at(&mut one[..len], at).expect("read");
        expected.read_exact_at(&mut other[..len], at).expect("read");
        let differ = || one[..len].iter().zip(&other[..len]).position(|(a, b)| a != b);
        assert!(one[..len] == other[..len], "{what}: they differ at {:?} after {at}", differ());
    }
}

/// Returns the bytes that a local file takes on its disk.
fn taken(path: &Path) -> u64 {
    fs::metadata(path).expect("there").blocks() * 512
}

#[test]
fn a_file_with_holes_is_the_same_on_every_way_in_and_out() {
    const CHUNK: u64 = 64 << 10;
    let lab = Lab::with_donors(3);
    let mut lots = Lots::new("holes", 27);
    let (from, back) = (lab.dir().join("from"), lab.dir().join("back"));
    let spaces: [(&str, &[&str]); 4] = [
        ("sealed", &["--copies", "2"]),
        ("plain", &["--copies", "2", "--plain"]),
        ("coded", &["--ec", "2+1"]),
        ("content", &["--copies", "2", "--cut", "content"]),
    ];
    for (space, policy) in spaces {
        lab.cli.ok(&[&["space", "create", space, "--chunk-size", "64KiB"], policy].concat());
        for round in 0..4_u64 {
            // A part has 64 MiB, or 16 MiB in the last space.
            let size = 1 + lots.below([300_000, 40 << 20, 200 << 20, 300 << 20][round as usize]);
            let runs = drawn(&mut lots, size, CHUNK);
            let what = format!("{size} bytes with {runs:?} in {space}");
            let local = sparse(&from, round, size, &runs);
            let path = format!("pot://{space}/f{round}");
            lab.cli.ok(&["cp", arg(&from), &path]);
            lab.cli.ok(&["cp", &path, arg(&back)]);
            assert_alike(&File::open(&back).expect("there"), &local, &what);
            let data: u64 = runs.iter().map(|(_, len)| *len as u64 + 8 * CHUNK).sum();
            if space != "content" {
                assert!(taken(&back) <= data, "{} bytes of at most {data}: {what}", taken(&back));
            }
            for _ in 0..3 {
                let start = lots.below(size);
                let end = start + lots.below((size - start).min(1 << 20));
                let read = lab.cli.ok(&["cat", &path, "--range", &format!("{start}-{end}")]).stdout;
                let mut expected = vec![0; (end + 1 - start).min(size - start) as usize];
                local.read_exact_at(&mut expected, start).expect("read");
                assert!(read == expected, "bytes {start} to {end} of {what}");
            }
            lab.cli.ok(&["verify", &path]);
            // A copy within the pool, and to a space of another policy.
            lab.cli.ok(&["cp", &path, &format!("pot://{space}/copy")]);
            lab.cli.ok(&["cp", &format!("pot://{space}/copy"), arg(&back)]);
            assert_alike(&File::open(&back).expect("there"), &local, &format!("a copy of {what}"));
            lab.cli.ok(&["rm", &format!("pot://{space}/copy")]);
        }
    }
    lab.cli.ok(&["fsck"]);
}

#[test]
fn only_the_data_of_a_file_needs_room() {
    let mut lab = Lab::manager_only(&[]);
    for name in ["donor-1", "donor-2"] {
        lab.lend(name, Lending { max: "100MiB".into(), ..Lending::default() });
    }
    lab.wait_live();
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "1MiB"]);
    let (from, back) = (lab.dir().join("from"), lab.dir().join("back"));
    let runs = [(7, 5 << 20), (1 << 30, 10 << 20), ((3 << 30) - (5 << 20), 5 << 20)];
    let local = sparse(&from, 1, 3 << 30, &runs);
    lab.cli.ok(&["cp", arg(&from), "pot://lab/f"]);
    lab.cli.ok(&["cp", "pot://lab/f", arg(&back)]);
    assert_alike(&File::open(&back).expect("there"), &local, "3 GiB");
    assert!(taken(&back) < 40 << 20, "it has holes, too");
    // A file that is one hole takes nothing, whatever its length.
    let hole = sparse(&from, 1, 1 << 40, &[]);
    lab.cli.ok(&["cp", arg(&from), "pot://lab/hole"]);
    lab.cli.ok(&["cp", "pot://lab/hole", arg(&back)]);
    assert_eq!((fs::metadata(&back).expect("there").len(), taken(&back)), (1 << 40, 0));
    let end = lab.cli.ok(&["cat", "pot://lab/hole", "--range", "1099511627000-"]).stdout;
    assert_eq!(end, vec![0; 776]);
    drop(hole);
    lab.cli.ok(&["rm", "-r", "pot://lab/f", "pot://lab/hole"]);
    lab.wait_left(0);
}

#[test]
fn usage_and_rates_exclude_holes() {
    let lab = Lab::with_donors(2);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "1MiB"]);
    lab.cli.ok(&["quota", "set", "pot://lab", "--bytes", "50MiB"]);
    const DATA: u64 = 20 << 20;
    let (from, back) = (lab.dir().join("from"), lab.dir().join("back"));
    let runs = [(0, 5 << 20), (1 << 30, 10 << 20), ((3 << 30) - (5 << 20), 5 << 20)];
    sparse(&from, 1, 3 << 30, &runs);
    for [from, to] in [[arg(&from), "pot://lab/f"], ["pot://lab/f", arg(&back)]] {
        let copied = lab.cli.json(&["cp", from, to]);
        assert_eq!(copied["bytes"].as_u64(), Some(3 << 30));
        let [rate, seconds] = ["mib_s", "seconds"].map(|name| copied[name].as_f64());
        let moved = rate.expect("told") * seconds.expect("told");
        assert!((moved - 20.0).abs() < 0.1, "{copied}");
    }
    let stated = lab.cli.json(&["stat", "pot://lab/f"]);
    assert_eq!(stated["entry"]["size"].as_u64(), Some(3 << 30));
    assert_eq!(stated["entry"]["holes"].as_u64(), Some((3 << 30) - DATA));
    let uses = |bytes: u64| {
        let used = lab.cli.json(&["du", "pot://lab"]);
        let space = &lab.cli.json(&["space", "ls"])["spaces"][0];
        let all = [&used["bytes"], &used["quota"]["bytes"], &space["bytes"]];
        assert_eq!(all.map(|bytes| bytes.as_u64()), [Some(bytes); 3], "{used} {space}");
    };
    uses(DATA);
    lab.cli.ok(&["cp", "pot://lab/f", "pot://lab/copy"]);
    uses(2 * DATA);
    lab.cli.fails(6, &["cp", "pot://lab/f", "pot://lab/third"]);
    lab.cli.fails(6, &["cp", arg(&from), "pot://lab/third"]);
    // What is kept of a removed file uses as much as the file did.
    lab.cli.ok(&["policy", "set", "pot://lab", "--trash", "1h"]);
    lab.cli.ok(&["rm", "pot://lab/copy"]);
    let used = lab.cli.json(&["du", "pot://lab"]);
    let all = [&used["bytes"], &used["kept_bytes"], &used["quota"]["bytes"]];
    assert_eq!(all.map(|bytes| bytes.as_u64()), [Some(DATA), Some(DATA), Some(2 * DATA)]);
    lab.cli.ok(&["trash", "empty", "pot://lab", "-y"]);
    uses(DATA);
    lab.cli.ok(&["rm", "pot://lab/f"]);
    lab.cli.ok(&["trash", "empty", "pot://lab", "-y"]);
    uses(0);
}

#[test]
fn holes_survive_conversion_resealing_and_repair() {
    let mut lab = Lab::with_donors(4);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (from, back) = (lab.dir().join("from"), lab.dir().join("back"));
    let runs = [(0, 70_000), (1 << 20, 64 << 10), (100 << 20, 200_000), (130 << 20, 5)];
    let local = sparse(&from, 3, 150 << 20, &runs);
    lab.cli.ok(&["cp", arg(&from), "pot://lab/f"]);
    let chunks = lab.chunk_files();
    assert!(chunks < 30, "{chunks} chunks");
    let check = |lab: &Lab, what: &str| {
        lab.cli.ok(&["cp", "pot://lab/f", arg(&back)]);
        assert_alike(&File::open(&back).expect("there"), &local, what);
    };
    lab.cli.ok(&["policy", "set", "pot://lab", "--ec", "2+1", "-y"]);
    lab.wait_settled();
    check(&lab, "after the change to an erasure code");
    lab.kill_donor("donor-1");
    check(&lab, "without a donor");
    lab.start_donor("donor-1");
    lab.wait_live();
    lab.cli.ok(&["space", "rekey", "lab"]);
    check(&lab, "with another key");
    assert!(taken(&back) < 2 << 20);
}
