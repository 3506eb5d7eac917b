//! Tests files of a mounted pool that are changed in place.

use super::{Mount, can_mount, mounted};
use crate::pool::content::{Lots, arg, assert_same, bytes};
use crate::pool::extent::cases;
use crate::pool::lab::Lab;
use crate::pool::ranges::moves_at_most;
use crate::pool::tap::Tap;
use crate::pool::waiting::{DEADLINE, skip, wait_until};
use rustix::fs::{OFlags, fcntl_setfl};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const CHUNK: usize = 64 << 10;
/// The bytes of a file that has more than one part, and a short chunk at the end.
const LARGE: usize = (66 << 20) + 5;

fn for_change(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opened")
}

/// Asserts that the pool has this content at a path, by the digest that it says and the bytes that it gives.
fn assert_stored(lab: &Lab, name: &str, content: &[u8]) {
    let local = lab.dir().join("expected");
    fs::write(&local, content).expect("a file");
    let digest = lab.cli.ok(&["hash", arg(&local)]).text();
    let path = format!("pot://lab/{name}");
    let stated = lab.cli.json(&["stat", &path]);
    let said = stated["entry"]["digest"].as_str().expect("a digest");
    assert!(digest.starts_with(said), "{said} instead of {digest}");
    assert_same(&lab.cli.cat(&path), content, &path);
}

#[test]
fn an_edit_of_a_large_file_moves_what_changed_and_no_more() {
    if !can_mount("an_edit_of_a_large_file_moves_what_changed") {
        return;
    }
    for policy in [&["--copies", "2"][..], &["--ec", "2+1"], &["--copies", "2", "--plain"]] {
        let mut lab = Lab::manager_only(&[]);
        let taps: Vec<Tap> = ["donor-1", "donor-2", "donor-3"]
            .map(|name| lab.lend_behind(name, Tap::listening()))
            .into();
        lab.wait_live();
        let moved = || taps.iter().map(|tap| tap.count()).sum::<usize>();
        lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", "64KiB"], policy].concat());
        let mut content = bytes(1, LARGE);
        fs::write(lab.dir().join("large"), &content).expect("a file");
        lab.cli.ok(&["cp", arg(&lab.dir().join("large")), "pot://lab/large"]);
        let mount = Mount::start(&lab, "pot://lab", &["--spool-max", "1MiB"]);
        assert!(moved() > LARGE * 3 / 2, "the taps hear it all");

        // Each of four changed chunks is read, with the others of its group, and stored twice.
        let mut number = 0_u8;
        moves_at_most(40 * CHUNK as u64, &format!("an edit with {policy:?}"), || {
            let before = moved();
            number += 1;
            let changed = [number; 7];
            let changing = for_change(&mount.at("large"));
            for at in [3 * CHUNK - 5, 40 << 20, LARGE - 3] {
                changing.write_all_at(&changed, at as u64).expect("written");
                content.resize(content.len().max(at + 7), 0);
                content[at..at + 7].copy_from_slice(&changed);
            }
            let mut seen = [0; 100];
            changing.read_exact_at(&mut seen, (3 * CHUNK - 50) as u64).expect("read");
            assert_eq!(&seen, &content[3 * CHUNK - 50..3 * CHUNK + 50], "{policy:?}");
            drop(changing);
            (moved() - before) as u64
        });
        assert_stored(&lab, "large", &content);

        // A file that is cut off and extended has zeros there, whatever was there before.
        let changing = for_change(&mount.at("large"));
        changing.set_len((10 << 20) + 7).expect("cut off");
        changing.set_len((10 << 20) + 1000).expect("extended");
        drop(changing);
        content.truncate((10 << 20) + 7);
        content.resize((10 << 20) + 1000, 0);
        assert_stored(&lab, "large", &content);
        lab.cli.ok(&["verify", "--read", "pot://lab/large"]);
    }
}

#[test]
fn edit_restores_unchanged_chunks_of_a_lost_donor() {
    if !can_mount("edit_restores_unchanged_chunks_of_a_lost_donor") {
        return;
    }
    for policy in [["--copies", "2"], ["--ec", "2+1"]] {
        let mut lab = Lab::with_options(4, &["--repair-grace", "1s", "--lease", "2s"]);
        lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", "64KiB"][..], &policy].concat());
        let mut content = bytes(2, (8 << 20) + 5);
        fs::write(lab.dir().join("f"), &content).expect("a file");
        lab.cli.ok(&["cp", arg(&lab.dir().join("f")), "pot://lab/f"]);
        lab.cli.ok(&["repair", "pause"]);
        let mount = Mount::start(&lab, "pot://lab", &[]);
        lab.kill_donor("donor-1");
        wait_until("it to be given up", 2 * DEADLINE, || {
            lab.cli.donor("donor-1")["state"] == "dead"
        });
        for_change(&mount.at("f")).write_all_at(b"changed", 1 << 20).expect("written");
        content[1 << 20..(1 << 20) + 7].copy_from_slice(b"changed");
        assert_stored(&lab, "f", &content);
        let health = lab.cli.health("pot://lab/f");
        assert_eq!(health["tolerates"], 1, "{policy:?}: {health}");
    }
}

#[test]
fn a_file_changed_at_random_is_what_a_local_one_would_be() {
    if !can_mount("a_file_changed_at_random_is_what_a_local_one_would_be") {
        return;
    }
    let lab = Lab::with_donors(3);
    for (number, policy) in [["--copies", "1"], ["--ec", "2+1"]].into_iter().enumerate() {
        let space = format!("space-{number}");
        lab.cli.ok(&[&["space", "create", &space, "--chunk-size", "64KiB"][..], &policy].concat());
    }
    let mount = Mount::start(&lab, "pot://", &[]);
    let mut lots = Lots::new("changes at random", 11);
    for path in ["space-0/f", "space-1/f"] {
        let mut model = bytes(3, 900_000);
        fs::write(mount.at(path), &model).expect("written");
        for turn in 0..cases(6, 12) {
            // An edit keeps none of a file's chunks where files are cut otherwise by then.
            let space = &format!("pot://{}", &path[..7]);
            match turn {
                5 => drop(lab.cli.ok(&["policy", "set", space, "--chunk-size", "128KiB", "-y"])),
                8 => drop(lab.cli.ok(&["policy", "set", space, "--copies", "2", "-y"])),
                _ => {}
            }
            let changing = for_change(&mount.at(path));
            for _ in 0..lots.below(6) {
                let at = lots.below(model.len() as u64 + 100_000) as usize;
                match lots.below(4) {
                    0 => {
                        changing.set_len(at as u64).expect("cut off or extended");
                        model.resize(at, 0);
                    }
                    _ => {
                        let written = bytes(lots.below(1000), lots.below(200_000) as usize);
                        changing.write_all_at(&written, at as u64).expect("written");
                        model.resize(model.len().max(at + written.len()), 0);
                        model[at..at + written.len()].copy_from_slice(&written);
                    }
                }
                if lots.below(3) == 0 {
                    let mut seen = Vec::new();
                    (&changing).read_to_end(&mut seen).expect("read");
                    let from = model.len() - seen.len();
                    assert_same(&seen, &model[from..], &format!("{path}, turn {turn}, open"));
                }
            }
            drop(changing);
            assert_same(
                &fs::read(mount.at(path)).expect("read"),
                &model,
                &format!("{path} {turn}"),
            );
        }
        lab.cli.ok(&["verify", "--read", &format!("pot://{path}")]);
    }
}

#[test]
fn a_size_that_no_file_can_have_is_refused_and_changes_nothing() {
    let test = "a_size_that_no_file_can_have_is_refused";
    let Some((lab, mount)) = mounted(test, 1, &[], &[]) else { return };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let file = options.open(mount.at("f")).expect("made");
    file.write_all_at(b"content", 0).expect("written");
    // The file that is cut off has no name, for to publish so many zeros would take years.
    let nameless = options.open(mount.at("g")).expect("made");
    fs::remove_file(mount.at("g")).expect("removed");
    let largest = 1 << 60;
    for refused in [nameless.set_len(largest + 1), file.write_all_at(b"x", largest)] {
        assert_eq!(refused.expect_err("too large").raw_os_error(), Some(libc::EFBIG));
    }
    drop(file);
    assert_eq!(lab.cli.cat("pot://lab/f"), b"content");
}

#[test]
fn o_append_follows_flags_and_mapped_writes_keep_their_place() {
    let test = "a_descriptor_appends_while_its_flags_say_so";
    let Some((lab, mount)) = mounted(test, 1, &["--chunk-size", "64KiB"], &[]) else { return };
    let path = mount.at("f");
    fs::write(&path, "one").expect("written");
    let appending = OpenOptions::new().read(true).append(true).open(&path).expect("opened");
    let other = for_change(&path);
    appending.write_all_at(b"two", 0).expect("written");
    fcntl_setfl(&appending, OFlags::empty()).expect("set");
    appending.write_all_at(b"ONE", 0).expect("written");
    fcntl_setfl(&other, OFlags::APPEND).expect("set");
    other.write_all_at(b"three", 0).expect("written");
    drop((appending, other));
    assert_same(&lab.cli.cat("pot://lab/f"), b"ONEtwothree", "as the flags were");

    let script = "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR | os.O_APPEND)
os.write(f, b'-' * 10000)
with mmap.mmap(f, 0) as m:
    m[3:6] = b'TWO'
os.close(f)
";
    match Command::new("python3").args(["-c", script]).arg(&path).status() {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(_) => return skip(test, "a mapping takes python3"),
    }
    let expected = [&b"ONETWOthree"[..], &[b'-'; 10_000]].concat();
    assert_same(&lab.cli.cat("pot://lab/f"), &expected, "changed in memory");
}
