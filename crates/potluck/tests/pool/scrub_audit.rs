//! Tests that damage is looked for, and that stale disks are harmless.

use super::content::{arg, assert_same, file};
use super::lab::Lab;
use super::lent::{all_contents, flip};
use super::waiting::{DEADLINE, wait_until};
use std::fs;
use std::path::Path;

#[test]
fn a_scrub_finds_every_flipped_bit_and_all_is_made_again() {
    let lab = Lab::with_donors(3);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (input, content) = file(lab.dir(), "input", 6, 4 << 20);
    lab.cli.ok(&["cp", arg(&input), "pot://lab/f"]);
    // The faster donors took more of it than the others.
    let mut names = ["donor-1", "donor-2", "donor-3"];
    names.sort_by_key(|name| lab.lent(name).chunks().len());
    let [_, other, most] = names;
    let damaged: Vec<_> = lab.lent(most).chunks().into_iter().take(20).collect();
    assert_eq!(damaged.len(), 20);
    damaged.iter().enumerate().for_each(|(number, path)| flip(path, 997 * number as u64));
    let refused = lab.cli.fails(2, &["scrub", "now", most, "--rate", "0"]);
    assert!(refused.message.contains("64.0 KiB/s"), "{refused:?}");
    lab.cli.ok(&["scrub", "now", most, "--rate", "100MiB"]);
    wait_until("all damage to be found", DEADLINE, || lab.lent(most).quarantine().len() == 20);
    wait_until("the scrub to tell", DEADLINE, || {
        let donors = lab.cli.json(&["scrub", "status"]);
        let one = donors["donors"].as_array().expect("donors").iter();
        let mut one = one.filter(|donor| donor["donor"] == most);
        one.next().is_some_and(|donor| donor["spoiled"] == 20 && donor["rounds"].as_u64() > Some(0))
    });
    assert_eq!(lab.cli.donor(other)["scrub"]["spoiled"], 0);
    lab.cli.wait_safe("pot://lab/f");
    lab.cli.ok(&["verify", "pot://lab/f", "--read"]);
    assert_same(&lab.cli.cat("pot://lab/f"), &content, "the file");
}

#[test]
fn reading_back_a_tree_checks_every_file_and_names_the_damaged() {
    let lab = Lab::with_donors(1);
    lab.cli.ok(&["space", "create", "lab", "--chunk-size", "64KiB"]);
    let tree = lab.dir().join("tree");
    fs::create_dir_all(tree.join("deep")).expect("directories");
    for n in 0..40 {
        let (input, _) = file(lab.dir(), "input", 100 + n, 3000 * n as usize);
        fs::rename(input, tree.join(format!("deep/{n}"))).expect("moved");
    }
    lab.cli.ok(&["cp", "-r", arg(&tree), "pot://lab/"]);
    let bytes = 3000 * (0..40).sum::<u64>();
    for path in ["pot://lab/tree", "pot://"] {
        let read = lab.cli.json(&["verify", "-r", "--read", path])["read"].clone();
        assert_eq!((&read["files"], &read["bytes"]), (&40.into(), &bytes.into()), "{read}");
    }
    let stated = lab.cli.json(&["stat", "--chunks", "pot://lab/tree/deep/39"]);
    let chunk = stated["chunk_list"][1]["name"].as_str().expect("a chunk").to_string();
    let files = lab.lent("donor-1").chunks();
    let hit = files.iter().find(|path| path.ends_with(&chunk)).expect("stored");
    flip(hit, 12_345);
    let ran = lab.cli.run(&["verify", "-r", "--read", "pot://lab"]);
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    assert!(ran.stderr.contains("pot://lab/tree/deep/39"), "{}", ran.stderr);
}

fn copy_tree(from: &Path, to: &Path) {
    for (path, content) in all_contents(from) {
        let target = to.join(path.strip_prefix(from).expect("below"));
        fs::create_dir_all(target.parent().expect("a parent")).expect("a directory");
        fs::write(&target, content).expect("a copy");
    }
}

#[test]
fn an_old_copy_of_a_donors_disk_is_harmless() {
    let mut lab = Lab::with_options(3, &["--gc-delay", "1s", "--repair-grace", "2s"]);
    lab.cli.ok(&["space", "create", "lab", "--copies", "2", "--chunk-size", "64KiB"]);
    let (first, first_content) = file(lab.dir(), "first", 7, 2 << 20);
    let (second, second_content) = file(lab.dir(), "second", 8, 2 << 20);
    lab.cli.ok(&["cp", arg(&first), "pot://lab/kept"]);
    lab.cli.ok(&["cp", arg(&first), "pot://lab/changed"]);
    let (gone, _) = file(lab.dir(), "gone", 9, 2 << 20);
    lab.cli.ok(&["cp", arg(&gone), "pot://lab/gone"]);
    // The disk is saved as it is, to come back as an old copy.
    let (lent, saved) = (lab.lent("donor-1").0, lab.dir().join("saved"));
    copy_tree(&lent, &saved);
    lab.cli.ok(&["cp", arg(&second), "pot://lab/changed"]);
    lab.cli.ok(&["rm", "pot://lab/gone"]);
    wait_until("what is not needed to be reclaimed", DEADLINE, || lab.chunk_files() == 2 * 64);

    lab.kill_donor("donor-1");
    fs::remove_dir_all(&lent).expect("removed");
    copy_tree(&saved, &lent);
    lab.bring_back(&["donor-1"]);
    for _ in 0..2 {
        assert_same(&lab.cli.cat("pot://lab/changed"), &second_content, "the new version");
        assert_same(&lab.cli.cat("pot://lab/kept"), &first_content, "the kept file");
    }
    lab.cli.fails(3, &["stat", "pot://lab/gone"]);
    // Copies that are still needed count again, those that the donor lost are made again, and nothing that was removed
    // comes back.
    for path in ["pot://lab/changed", "pot://lab/kept"] {
        lab.cli.wait_safe(path);
    }
    lab.cli.fails(3, &["stat", "pot://lab/gone"]);
    lab.cli.ok(&["verify", "-r", "--read", "pot://lab"]);
    let files = lab.cli.json(&["ls", "pot://lab"]);
    assert_eq!(files["entries"].as_array().map(Vec::len), Some(2), "{files}");
}
