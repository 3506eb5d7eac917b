//! Tests donors that are killed and started again while a file is uploaded: what they acknowledged before is looked at
//! before it counts (promise D3). A power cut is a kill after which files that were stored at ack level *memory* are
//! gone.

use super::content::{assert_same, bytes};
use super::lab::Lab;
use super::lent::flip;
use super::waiting::{DEADLINE, pause, wait_until};
use super::writer::Writer;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const CHUNK: &str = "64KiB";
const FIRST: usize = 6 << 20;
const ALL: usize = 7 << 20;

/// The effect of a power cut on the chunk files that were stored during the upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// They are there: the daemon alone was killed.
    Keeps,
    /// They are gone.
    Loses,
    /// They have other bytes.
    Spoils,
}

impl Cut {
    fn befalls(self, chunks: &[PathBuf]) {
        for chunk in chunks {
            match self {
                Self::Keeps => {}
                Self::Loses => fs::remove_file(chunk).expect("a chunk file"),
                Self::Spoils => flip(chunk, 7),
            }
        }
    }
}

/// Uploads a file into a space made with `options`, while a donor of `donors` is killed and started again. Returns the
/// pool, the content, and the exit code of the upload.
fn upload(donors: usize, options: &[&str], cut: Cut) -> (Lab, Vec<u8>, i32) {
    let mut lab = Lab::with_donors(donors);
    lab.cli.ok(&[&["space", "create", "lab", "--chunk-size", CHUNK], options].concat());
    let victim = "donor-1";
    let before: BTreeSet<PathBuf> = lab.lent(victim).chunks().into_iter().collect();
    let content = bytes(41, ALL);
    let mut writer = Writer::start(&lab.cli, "pot://lab/f", &[]);
    writer.feed(&content[..FIRST]);
    let mut stored = 0;
    wait_until("the first part to be stored", DEADLINE, || {
        let was = std::mem::replace(&mut stored, lab.chunk_files());
        pause(Duration::from_millis(500));
        was == stored && stored * (64 << 10) >= FIRST - (1 << 20)
    });
    lab.kill_donor(victim);
    let chunks = lab.lent(victim).chunks().into_iter().filter(|chunk| !before.contains(chunk));
    let chunks: Vec<PathBuf> = chunks.collect();
    assert!(!chunks.is_empty(), "the upload uses it");
    cut.befalls(&chunks);
    lab.start_donor(victim);
    lab.wait_back(victim);
    writer.feed(&content[FIRST..]);
    (lab, content, writer.finish())
}

/// Asserts that what the upload said to have stored is there, in all its copies.
fn is_whole(lab: &Lab, content: &[u8], cut: Cut) {
    assert!(lab.cli.is_safe("pot://lab/f"), "at once, {cut:?}: {}", lab.cli.health("pot://lab/f"));
    lab.cli.ok(&["verify", "--read", "pot://lab/f"]);
    assert!(lab.cli.is_safe("pot://lab/f"), "read, {cut:?}: {}", lab.cli.health("pot://lab/f"));
    assert_same(&lab.cli.cat("pot://lab/f"), content, &format!("the file, {cut:?}"));
}

#[test]
fn upload_survives_a_donor_restart_d3() {
    for (donors, options) in [
        (2, &["--copies", "2"][..]),
        (1, &[]),
        (3, &["--ec", "2+1"]),
        (2, &["--copies", "2", "--ack", "disk"]),
    ] {
        let (lab, content, code) = upload(donors, options, Cut::Keeps);
        assert_eq!(code, 0, "{options:?}: {}", lab.cli.said_by_the_last());
        is_whole(&lab, &content, Cut::Keeps);
    }
}

#[test]
fn an_upload_sends_again_what_a_donor_lost_with_its_power_d3() {
    for cut in [Cut::Loses, Cut::Spoils] {
        for (donors, options) in [(2, &["--copies", "2"][..]), (3, &["--ec", "2+1"])] {
            let (lab, content, code) = upload(donors, options, cut);
            assert_eq!(code, 0, "{options:?}, {cut:?}: {}", lab.cli.said_by_the_last());
            is_whole(&lab, &content, cut);
        }
    }
}

#[test]
fn upload_reports_a_power_loss_of_its_only_copy_d3() {
    let (lab, _, code) = upload(1, &[], Cut::Loses);
    assert_ne!(code, 0, "what is nowhere is not stored");
    lab.cli.fails(3, &["stat", "pot://lab/f"]);
}
