//! Tests that a space gets another key, and that its files are sealed again with it while nobody else notices.

use super::content::{arg, assert_same, file};
use super::lab::{Cli, Lab};
use super::member::Member;
use super::waiting::{DEADLINE, wait_until};
use potluck_core::chunk::Digest;
use potluck_core::ids::KeyNumber;
use potluck_core::recipe::unpack_page;
use potluck_core::seal::{Meaning, SpaceKey};
use potluck_wire::control::{OldContent, Open, OpenFile, Opened, RekeyStep, SpaceRekey};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn member(lab: &Lab, name: &str) -> (Cli, Member) {
    let home = lab.dir().join(name);
    let cli = lab.cli.at_home(&home);
    let state = home.join("identity");
    cli.ok(&["join", &lab.token("user"), "--name", name, "--state", arg(&state)]);
    (cli.under(&state), Member::load(&state))
}

fn open(member: &Member, path: &str) -> Opened {
    let path = path.parse().expect("a path");
    let open = Open { path, recursive: false, after: None, leased: false };
    member.call(&open).expect("opened")
}

/// Returns whether a key opens the chunks of a file as donors have them.
fn opens(lab: &Lab, key: &SpaceKey, file: &OpenFile) -> bool {
    let entries = unpack_page(&file.pages[0].0).expect("a recipe").chunks;
    let entry = entries[0];
    let chunks = lab.donor_names().into_iter().flat_map(|name| lab.lent(&name).chunks());
    let name = entry.name.to_string();
    let is_it = |path: &PathBuf| {
        path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name))
    };
    let stored = std::fs::read({ chunks }.find(is_it).expect("a copy")).expect("read");
    let mut sealed = stored[..entry.len as usize].to_vec();
    key.cipher(Meaning::Chunk, &entry.digest).apply(0, &mut sealed);
    Digest::of(&sealed) == entry.digest
}

fn left(admin: &Member, space: &str) -> OldContent {
    let call = SpaceRekey { space: space.into(), step: RekeyStep::Finish };
    admin.call(&call).expect("told")
}

fn store(lab: &Lab, path: &str, content: &Path) {
    lab.cli.ok(&["cp", arg(content), path]);
}

#[test]
fn rotated_space_key_opens_nothing_new_and_resealing_nothing_old_x6() {
    let lab = Lab::with_donors(3);
    lab.cli.ok(&[
        "space",
        "create",
        "safe",
        "--copies",
        "2",
        "--chunk-size",
        "64KiB",
        "--keep-versions",
        "9",
    ]);
    lab.cli.ok(&["space", "create", "plain", "--plain"]);
    lab.cli.ok(&["space", "create", "other"]);
    // The first has a part more than one part may have chunks, the last its content in the catalog.
    let sizes = [("large", 67_200_000), ("middle", 500_000), ("small", 900)];
    let mut contents = BTreeMap::new();
    for (seed, (name, size)) in (1..).zip(sizes) {
        let (input, content) = file(lab.dir(), name, seed, size);
        store(&lab, &format!("pot://safe/{name}"), &input);
        contents.insert(name, content);
    }
    lab.cli.ok(&["mkdir", "pot://safe/coded"]);
    lab.cli.ok(&["policy", "set", "pot://safe/coded", "--ec", "2+1"]);
    let (input, content) = file(lab.dir(), "coded", 8, 300_000);
    store(&lab, "pot://safe/coded/f", &input);
    contents.insert("coded/f", content);
    let (input, earlier) = file(lab.dir(), "earlier", 9, 200_000);
    store(&lab, "pot://safe/kept", &input);
    let (input, now) = file(lab.dir(), "now", 10, 210_000);
    store(&lab, "pot://safe/kept", &input);
    contents.insert("kept", now);

    let (_, rita) = member(&lab, "rita");
    let (bert, _) = member(&lab, "bert");
    for who in ["rita", "bert"] {
        lab.cli.ok(&["space", "grant", "safe", who, "read"]);
    }
    lab.cli.ok(&["space", "grant", "other", "rita", "read"]);
    let kept_key = open(&rita, "pot://safe/middle");
    let (number, key) = kept_key.space_keys.0.first_key_value().expect("a key");
    assert!(opens(&lab, key, &kept_key.files[0]), "the key that she was given");
    let said = lab.cli.ok(&["space", "revoke", "safe", "rita"]);
    assert!(said.stderr.contains("potluck space rekey safe"), "{}", said.stderr);
    let said = lab.cli.ok(&["space", "revoke", "other", "rita"]).stderr;
    assert!(said.contains("rekey other") && !said.contains("rekey safe"), "{said}");
    lab.cli.ok(&["space", "rekey", "other"]);
    assert!(lab.cli.ok(&["space", "ls"]).text().contains("rekey advised"));

    let admin = Member::load(&lab.manager_dir().join("admin"));
    let rekeyed = lab.cli.json(&["space", "rekey", "safe", "--new-writes-only"]);
    assert_eq!(rekeyed["new_key"], true, "{rekeyed}");
    let old = left(&admin, "safe");
    assert!(old.versions >= 7, "two parts, and four files with an old version: {old:?}");
    assert!(!lab.cli.ok(&["space", "ls"]).text().contains("rekey advised"));
    let (input, content) = file(lab.dir(), "new", 11, 100_000);
    store(&lab, "pot://safe/new", &input);
    contents.insert("new", content);
    let new = open(&admin, "pot://safe/new");
    assert!(!opens(&lab, key, &new.files[0]), "written after the change");
    assert!(opens(&lab, &new.space_keys.0[&new.files[0].key.expect("sealed")], &new.files[0]));

    // Killed in the middle, it goes on where it was.
    let mut running = lab.cli.start(&["space", "rekey", "safe"]);
    wait_until("some files are sealed again", DEADLINE, || {
        left(&admin, "safe").versions < old.versions
    });
    running.kill_9();
    let said = lab.cli.json(&["space", "rekey", "safe"]);
    assert_eq!(said["new_key"], false, "it goes on: {said}");
    assert_eq!(left(&admin, "safe"), OldContent::default());
    for (name, content) in &contents {
        let path = format!("pot://safe/{name}");
        assert_same(&bert.cat(&path), content, &path);
    }
    let opened = open(&admin, "pot://safe/middle");
    let has: Vec<KeyNumber> = opened.space_keys.0.keys().copied().collect();
    assert!(has.len() == 1 && has[0] > *number, "the earlier key is dropped: {has:?}");
    assert!(!opens(&lab, key, &opened.files[0]), "what is stored now");
    lab.cli.ok(&["revert", "pot://safe/kept"]);
    assert_same(&bert.cat("pot://safe/kept"), &earlier, "the version before");
    lab.cli.ok(&["verify", "pot://safe", "-r", "--read"]);
    let said = lab.cli.fails(2, &["space", "rekey", "plain"]);
    assert!(said.message.contains("not sealed"), "{said:?}");
}
