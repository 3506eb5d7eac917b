//! A manager that lost its directory comes back from its recovery kit and a checkpoint.

use crate::lab::{Lab, chunk, eventually, write};
use potluck_manager::{KIT, Restore, backup, restore_file};
use potluck_wire::control::{Open, Remove, Status};
use potluck_wire::error::ErrorKind;
use potluck_wire::token::Role;
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The recovery kit and the newest checkpoint, kept somewhere else.
async fn keep(lab: &Lab) -> (PathBuf, PathBuf) {
    let (state, away) = (lab.config.state.clone(), lab.config.state.with_extension("away"));
    fs::create_dir_all(&away).expect("a directory");
    let newest = eventually("a checkpoint", async || {
        let taken = fs::read_dir(state.join("backups")).ok()?.flatten();
        taken
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "db"))
            .max()
    });
    let (kit, checkpoint) = (away.join(KIT), away.join("checkpoint.db"));
    fs::copy(newest.await, &checkpoint).expect("copied");
    fs::copy(state.join(KIT), &kit).expect("copied");
    (kit, checkpoint)
}

/// What a checkpoint has, by name.
fn files_in(checkpoint: &Path) -> Vec<String> {
    let look = checkpoint.with_extension("looked-at");
    fs::copy(checkpoint, &look).expect("copied");
    let db = Connection::open(look).expect("a database");
    let names = "SELECT name FROM entries WHERE version IS NOT NULL ORDER BY name";
    let mut names = db.prepare(names).expect("entries");
    let names = names.query_map([], |row| row.get(0)).expect("asked");
    names.map(|name| name.expect("a name")).collect()
}

fn ask(lab: &Lab, kit: PathBuf) -> Restore {
    Restore { kit, state: lab.config.state.clone(), advertise: Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_a_manager_restored_from_a_file_serves_everybody_and_deletes_nothing() {
    let mut lab = Lab::with(|config| config.backup_every = Duration::from_millis(200)).await;
    let ada = lab.join(Role::User, "ada").await;
    let mut donor = lab.donor("basement").await;
    write(&lab.caller(&ada), "pot://lab/kept", 1, &donor).await;
    write(&lab.caller(&ada), "pot://lab/removed", 2, &donor).await;
    let remove = Remove { path: "pot://lab/removed".parse().expect("path"), recursive: false };
    lab.admin().call(&remove).await.expect("removed");
    eventually("a checkpoint of all that", async || {
        let (_, checkpoint) = keep(&lab).await;
        (files_in(&checkpoint) == ["kept"]).then_some(())
    })
    .await;
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert!(status.alarms.is_empty() && status.backup_file_seconds.is_some(), "{status:?}");
    let (kit, checkpoint) = keep(&lab).await;
    // Later than the checkpoint: the restored catalog does not know it, and its chunk must stay.
    write(&lab.caller(&ada), "pot://lab/later", 2, &donor).await;
    let beat = donor.beat(donor.heartbeat(1)).await;
    donor.heard = (beat.epoch, beat.start);
    lab.stop().await;
    fs::remove_dir_all(&lab.config.state).expect("lost");

    let restored = restore_file(&ask(&lab, kit.clone()), &checkpoint).expect("restored");
    assert_eq!((restored.files, restored.spaces, restored.donors), (1, 1, 1));
    assert!(restored.checkpoint.is_some() && restored.taken_ms.is_some());
    let again = restore_file(&ask(&lab, kit), &checkpoint).expect_err("something is there now");
    assert_eq!(again.failure().kind, ErrorKind::Conflict);

    lab.start().await;
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[chunk(1), chunk(2)]).await;
    let open =
        Open { path: "pot://lab/kept".parse().expect("path"), recursive: false, after: None };
    let opened = lab.caller(&ada).call(&open).await.expect("users go on");
    assert_eq!(opened.files[0].holders, [[donor.id]]);
    let status = lab.admin().call(&Status {}).await.expect("the new admin");
    assert!(status.gc_held.is_some());
    assert_eq!(status.donors[0].unclaimed, 1, "what it does not know, and keeps");
    for write_sequence in 100..110 {
        assert!(donor.tombstones(write_sequence).await.is_empty());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_a_copy_taken_while_the_manager_runs_is_whole_and_a_damaged_one_is_refused() {
    let mut lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    for n in 0..20 {
        write(&user, &format!("pot://lab/{n}"), n, &donor).await;
    }
    let state = lab.config.state.clone();
    let (kit, copy) = (state.with_extension("kit"), state.with_extension("db"));
    const TAKEN: i64 = 1_790_000_000_000;
    backup(&state, &copy, TAKEN).expect("copied");
    fs::copy(state.join(KIT), &kit).expect("copied");
    lab.stop().await;
    fs::remove_dir_all(&state).expect("lost");

    let whole = fs::read(&copy).expect("read");
    let middle = whole.len() / 2;
    let damaged = state.with_extension("damaged");
    let refuse = |bytes: &[u8], what: &str| {
        fs::write(&damaged, bytes).expect("written");
        let refused = restore_file(&ask(&lab, kit.clone()), &damaged).expect_err(what);
        assert_eq!(refused.failure().kind, ErrorKind::Integrity, "{what}: {refused}");
        assert!(!state.join("catalog.db").exists(), "no pool of half a catalog");
    };
    let nowhere = state.with_extension("nowhere");
    let refused = restore_file(&ask(&lab, kit.clone()), &nowhere).expect_err("no such file");
    assert_eq!(refused.failure().kind, ErrorKind::NotFound, "{refused}");
    let mut bytes = whole.clone();
    bytes[middle..middle + 4096].fill(0xA5);
    refuse(&bytes, "a page");
    for offset in (0..whole.len()).step_by(whole.len() / 20).chain([whole.len() - 1]) {
        let mut bytes = whole.clone();
        bytes[offset] ^= 1;
        refuse(&bytes, &format!("a bit of byte {offset}"));
    }
    // The checksum taken off: what remains is what a copy made by hand is.
    let bare = &whole[..whole.len() - whole.len() % 512];
    bytes = bare.to_vec();
    bytes[middle..middle + 4096].fill(0xA5);
    refuse(&bytes, "a page of a file without a checksum");

    let restored = restore_file(&ask(&lab, kit.clone()), &copy).expect("restored after a failure");
    assert_eq!((restored.files, restored.no_checksum), (20, false));
    assert_eq!((restored.checkpoint, restored.taken_ms), (None, Some(TAKEN)), "its own moment");
    fs::write(&damaged, bare).expect("written");
    let elsewhere = Restore { state: state.with_extension("bare"), ..ask(&lab, kit) };
    let restored = restore_file(&elsewhere, &damaged).expect("restored without a checksum");
    assert_eq!((restored.files, restored.no_checksum), (20, true));
    lab.start().await;
    lab.admin().call(&Status {}).await.expect("serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_made_by_hand_is_restored_with_what_lies_beside_it_also_after_an_interruption() {
    let mut lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let state = lab.config.state.clone();
    let (kit, copy) = (state.with_extension("kit"), state.with_extension("db"));
    // The last changes are in the write-ahead log only.
    let beside = |path: &PathBuf| PathBuf::from(format!("{}-wal", path.display()));
    let catalog = state.join("catalog.db");
    assert!(fs::metadata(beside(&catalog)).expect("a log").len() > 0);
    fs::copy(&catalog, &copy).expect("copied");
    fs::copy(beside(&catalog), beside(&copy)).expect("copied");
    fs::copy(state.join(KIT), &kit).expect("copied");
    lab.stop().await;
    fs::remove_dir_all(&state).expect("lost");

    // What a restore leaves that was killed while it finished.
    for left in ["admin", "ca", "restoring"] {
        fs::create_dir_all(state.join(left)).expect("made");
    }
    for left in ["recovery.kit", "restoring/catalog.part", "restoring/catalog.part-wal"] {
        fs::write(state.join(left), "half").expect("written");
    }
    let restored = restore_file(&ask(&lab, kit.clone()), &copy).expect("restored");
    assert_eq!((restored.files, restored.no_checksum), (1, true));
    assert!(!state.join("restoring").exists());
    // Who joined after the copy was taken keeps a number that nobody else gets.
    lab.start().await;
    let next = lab.join(Role::User, "later").await.about.member.0;
    assert!(next > donor.id.0 + 500, "{next}");
    lab.stop().await;

    let elsewhere = Restore { state: state.with_extension("new"), ..ask(&lab, kit) };
    restore_file(&elsewhere, &copy).expect("restored");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&elsewhere.state), 0o700, "it holds the keys of sealed spaces");
    assert_eq!(mode(&elsewhere.state.join("catalog.db")), 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_and_what_is_beside_it_are_their_owners_alone() {
    let lab = Lab::new().await;
    lab.user().await;
    for name in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let about = fs::metadata(lab.config.state.join(name)).expect(name);
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kit_and_a_checkpoint_of_different_pools_are_refused() {
    let (alpha, beta) = (Lab::new().await, Lab::new().await);
    let copy = beta.config.state.with_extension("db");
    backup(&beta.config.state, &copy, 7).expect("copied");
    let kit = |lab: &Lab| lab.config.state.join(KIT);
    let state = alpha.config.state.with_extension("new");
    let ask = |kit| Restore { kit, state: state.clone(), advertise: Default::default() };
    let refused = restore_file(&ask(kit(&alpha)), &copy).expect_err("two pools of one name");
    assert_eq!(refused.failure().kind, ErrorKind::Usage, "{refused}");
    assert!(refused.to_string().contains("(authority "), "{refused}");
    assert!(!state.join("catalog.db").exists());
    let no_kit = restore_file(&ask(copy.clone()), &copy).expect_err("a catalog is no kit");
    assert!(!format!("{:?}", no_kit.failure()).contains("has space"), "{no_kit}");
    restore_file(&ask(kit(&beta)), &copy).expect("its own kit, after a mistake");
}
