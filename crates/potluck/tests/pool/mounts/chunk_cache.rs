//! Tests what mounts keep of what was read.

use super::{Mount, can_mount};
use crate::pool::content::{assert_same, bytes};
use crate::pool::lab::Lab;
use crate::pool::ranges::moves_at_most;
use crate::pool::tap::Tap;
use crate::pool::waiting::{DEADLINE, wait_until};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Returns the files of the cache, without the one that holds the sum of their sizes.
fn cached(lab: &Lab) -> Vec<PathBuf> {
    let all = super::super::lent::all_files(lab.dir()).into_iter();
    let in_cache =
        |path: &PathBuf| path.parent().is_some_and(|dir| dir.ends_with("potluck/chunks"));
    all.filter(|path| in_cache(path) && !path.ends_with("sum")).collect()
}

fn size_of(files: &[PathBuf]) -> u64 {
    files.iter().map(|file| fs::metadata(file).map_or(0, |about| about.len())).sum()
}

#[test]
fn mounts_share_a_verified_chunk_cache() {
    if !can_mount("what_one_mount_has_read_another_reads_without_donors") {
        return;
    }
    for policy in [["--copies", "1"], ["--ec", "2+1"]] {
        let mut lab = Lab::manager_only(&[]);
        let taps: Vec<Tap> = ["donor-1", "donor-2", "donor-3"]
            .map(|name| lab.lend_behind(name, Tap::listening()))
            .into();
        lab.wait_live();
        let moved = || taps.iter().map(|tap| tap.count()).sum::<usize>();
        lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", "64KiB"][..], &policy].concat());
        let content = bytes(1, (6 << 20) + 5);
        fs::write(lab.dir().join("f"), &content).expect("a file");
        lab.cli.ok(&["cp", lab.dir().join("f").to_str().expect("UTF-8"), "pot://lab/f"]);
        let one = Mount::start_in(&lab, "one", "pot://lab", &["--cache-max", "1GiB"]);
        assert_same(&fs::read(one.at("f")).expect("read"), &content, "from donors");
        wait_until("it to be kept", DEADLINE, || size_of(&cached(&lab)) >= content.len() as u64);

        // On a busy machine the first mount may still be answered by a donor that it asked as well.
        let mut number = 0;
        moves_at_most(100_000, &format!("{policy:?} from the cache"), || {
            number += 1;
            let name = format!("other-{number}");
            let other = Mount::start_in(&lab, &name, "pot://lab", &["--cache-max", "1GiB"]);
            let before = moved();
            assert_same(&fs::read(other.at("f")).expect("read"), &content, "from the cache");
            let file = File::open(other.at("f")).expect("opened");
            let mut seen = [0; 5000];
            file.read_exact_at(&mut seen, 3_000_000).expect("read");
            assert_same(&seen, &content[3_000_000..3_005_000], "a part of it");
            (moved() - before) as u64
        });

        for path in cached(&lab) {
            let mut kept = fs::read(&path).expect("read");
            let at = kept.len() / 2;
            kept[at] ^= 1;
            fs::write(&path, kept).expect("written");
        }
        let third = Mount::start_in(&lab, "third", "pot://lab", &["--cache-max", "1GiB"]);
        assert_same(&fs::read(third.at("f")).expect("read"), &content, "from donors again");
    }
}

#[test]
fn the_cache_of_all_mounts_stays_within_its_size() {
    if !can_mount("the_cache_of_all_mounts_stays_within_its_size") {
        return;
    }
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB", "--copies", "1"]);
    let content = bytes(2, 8 << 20);
    let options = ["--cache-max", "1MiB"];
    let mounts = ["one", "other"].map(|name| Mount::start_in(&lab, name, "pot://lab", &options));
    fs::write(mounts[0].at("f"), &content).expect("written");
    for _ in 0..3 {
        for mount in &mounts {
            assert_same(&fs::read(mount.at("f")).expect("read"), &content, "the file");
            let size = size_of(&cached(&lab));
            assert!(size <= 1 << 20, "{size} bytes are kept");
        }
    }
    assert!(!cached(&lab).is_empty(), "nothing was kept");
}
