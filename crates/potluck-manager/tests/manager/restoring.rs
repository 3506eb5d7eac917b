//! Tests that a manager which lost its directory comes back from its recovery kit and the log in a file.

use crate::lab::{Lab, chunk, eventually, write};
use potluck_catalog::Catalog;
use potluck_catalog::fixture::tampering::Tampering;
use potluck_core::attributes::{AttributesToSet, FileOwner, FileTime, Permissions};
use potluck_core::link_target::LinkTarget;
use potluck_recovery::state_dir::{CATALOG, KIT};
use potluck_recovery::{Restore, RestoreExtent, backup, restore_file};
use potluck_wire::control::{
    Condition, MakeLinks, NewLink, Open, OpenLink, Remove, RoomReservation, RoomReservationList,
    RoomReserve, SetAttributes, Status,
};
use potluck_wire::error::ErrorKind;
use potluck_wire::token::Role;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Copies the recovery kit and the newest backup elsewhere, once the backup has all changes, and returns their
/// paths.
async fn keep(lab: &Lab) -> (PathBuf, PathBuf) {
    let (state, away) = (lab.config.state.clone(), lab.config.state.with_extension("away"));
    fs::create_dir_all(&away).expect("a directory");
    let newest = eventually("a backup of all that", async || {
        // The file has come as far as the last change; what donors lack may wait for them longer.
        let catalog = Tampering::with(&state.join(CATALOG)).ok()?;
        catalog.is_all_in_file().ok()?.then_some(())?;
        let taken = fs::read_dir(state.join("backups")).ok()?.flatten();
        taken
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "log"))
            .max()
    });
    let (kit, copy) = (away.join(KIT), away.join("catalog.log"));
    fs::copy(newest.await, &copy).expect("copied");
    fs::copy(state.join(KIT), &kit).expect("copied");
    (kit, copy)
}

fn ask(lab: &Lab, kit: PathBuf) -> Restore {
    Restore { kit, state: lab.config.state.clone(), advertise: Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_manager_serves_and_deletes_nothing_d4() {
    let mut lab = Lab::with(|config| config.backup_every = Duration::from_millis(200)).await;
    let ada = lab.join(Role::User, "ada").await;
    let mut donor = lab.donor("basement").await;
    keep(&lab).await; // a base, to which the rest is added
    write(&lab.caller(&ada), "pot://lab/kept", 1, &donor).await;
    write(&lab.caller(&ada), "pot://lab/removed", 2, &donor).await;
    let remove = Remove {
        path: "pot://lab/removed".parse().expect("path"),
        recursive: false,
        forever: false,
        only_if: Default::default(),
        soon: false,
    };
    lab.admin().call(&remove).await.expect("removed");
    let (mtime, permissions) = (FileTime(1_234_567_890_123_456_789), Permissions::of_mode(0o640));
    let owner = Some(FileOwner { uid: 1000, gid: 100 });
    let set = SetAttributes {
        path: "pot://lab/kept".parse().expect("path"),
        version: None,
        attributes: AttributesToSet {
            mtime: Some(mtime),
            permissions: Some(permissions),
            owner,
            ..AttributesToSet::default()
        },
    };
    lab.caller(&ada).call(&set).await.expect("set");
    let target = LinkTarget::try_from("../kept".to_owned()).expect("a target");
    let path = "pot://lab/links/to-it".parse().expect("path");
    let links = vec![NewLink { path, target: target.clone(), mtime: Some(mtime), owner }];
    let make = MakeLinks { links, parents: true, condition: Condition::Always };
    lab.caller(&ada).call(&make).await.expect("made");
    let path = "pot://lab/night".parse().expect("path");
    let reserve = RoomReserve { path, bytes: 5000, for_ms: 3_600_000 };
    let room = lab.caller(&ada).call(&reserve).await.expect("reserved");
    let (kit, copy) = keep(&lab).await;
    let status = lab.admin().call(&Status {}).await.expect("status");
    assert!(status.alarms.is_empty(), "{status:?}");
    // This file is later than the backup: the restored catalog does not know it, and its chunk must
    // stay.
    write(&lab.caller(&ada), "pot://lab/later", 2, &donor).await;
    let heartbeat = donor.send_heartbeat(donor.heartbeat(1)).await;
    donor.heard = (heartbeat.epoch, heartbeat.start);
    lab.stop().await;
    fs::remove_dir_all(&lab.config.state).expect("lost");

    let restored = restore_file(&ask(&lab, kit.clone()), &copy).expect("restored");
    assert_eq!((restored.files, restored.spaces, restored.donors), (2, 1, 1));
    assert!(restored.log.blocks > 1, "a base, and what changed since: {restored:?}");
    assert_eq!(restored.extent(), RestoreExtent::Whole);
    let again = restore_file(&ask(&lab, kit), &copy).expect_err("something is there now");
    assert_eq!(again.failure().kind, ErrorKind::Conflict);

    lab.start().await;
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[chunk(1), chunk(2)]).await;
    let open = Open {
        path: "pot://lab/kept".parse().expect("path"),
        recursive: false,
        after: None,
        leased: false,
    };
    let opened = lab.caller(&ada).call(&open).await.expect("users go on");
    assert_eq!(opened.files[0].holders, [[donor.id]]);
    let all = Open {
        path: "pot://lab".parse().expect("path"),
        recursive: true,
        after: None,
        leased: false,
    };
    let links = lab.caller(&ada).call(&all).await.expect("opened").links;
    assert_eq!(links, [OpenLink { path: "links/to-it".into(), target, mtime, owner }]);
    assert_eq!((opened.files[0].mtime, opened.files[0].permissions), (mtime, permissions));
    assert_eq!(opened.files[0].owner, owner);
    let listed = lab.caller(&ada).call(&RoomReservationList { path: None }).await.expect("listed");
    let until_wall_ms = listed.reservations[0].until_wall_ms;
    assert_eq!(listed.reservations, [RoomReservation { until_wall_ms, ..room.clone() }]);
    assert!(until_wall_ms >= room.until_wall_ms, "it is not sooner over by a restore");
    let status = lab.admin().call(&Status {}).await.expect("the new admin");
    assert!(status.gc_frozen.is_some());
    assert_eq!(status.donors[0].unclaimed, 1, "what it does not know, and keeps");
    for write_sequence in 100..110 {
        assert!(donor.tombstones(write_sequence).await.is_empty());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn online_state_copy_is_whole_and_damage_is_refused_d4() {
    let mut lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    for n in 0..20 {
        write(&user, &format!("pot://lab/{n}"), n, &donor).await;
    }
    let state = lab.config.state.clone();
    let (kit, copy) = (state.with_extension("kit"), state.with_extension("log"));
    const TAKEN: i64 = 1_790_000_000_000;
    backup(&state, &copy, TAKEN).expect("copied");
    fs::copy(state.join(KIT), &kit).expect("copied");
    lab.stop().await;
    fs::remove_dir_all(&state).expect("lost");

    let whole = fs::read(&copy).expect("read");
    let damaged = state.with_extension("damaged");
    let refuse = |bytes: &[u8], what: &str| {
        fs::write(&damaged, bytes).expect("written");
        let refused = restore_file(&ask(&lab, kit.clone()), &damaged).expect_err(what);
        assert_eq!(refused.failure().kind, ErrorKind::Integrity, "{what}: {refused}");
        assert!(!Catalog::is_at(&state.join(CATALOG)), "no pool of half a catalog");
    };
    let nowhere = state.with_extension("nowhere");
    let refused = restore_file(&ask(&lab, kit.clone()), &nowhere).expect_err("no such file");
    assert_eq!(refused.failure().kind, ErrorKind::NotFound, "{refused}");
    let heading = whole.iter().position(|byte| *byte == b'\n').expect("a heading");
    for offset in (heading..whole.len()).step_by(whole.len() / 20).chain([0, whole.len() - 1]) {
        let mut bytes = whole.clone();
        bytes[offset] ^= 1;
        refuse(&bytes, &format!("a bit of byte {offset}"));
    }
    for len in [0, heading + 1, heading + 3, whole.len() / 2, whole.len() - 1] {
        refuse(&whole[..len], &format!("cut to {len} bytes"));
    }

    // Bytes after a whole base that cannot be read are told, and the base is restored all the same.
    fs::write(&damaged, [&whole[..], b"half a block"].concat()).expect("written");
    let elsewhere = Restore { state: state.with_extension("torn"), ..ask(&lab, kit.clone()) };
    let restored = restore_file(&elsewhere, &damaged).expect("restored after a failure");
    assert_eq!((restored.files, restored.log.unread_bytes), (20, 12));
    assert_eq!(restored.extent(), RestoreExtent::Incomplete);

    let restored = restore_file(&ask(&lab, kit), &copy).expect("restored after a failure");
    assert_eq!((restored.files, restored.log.until_ms), (20, Some(TAKEN)), "its own moment");
    assert_eq!(restored.extent(), RestoreExtent::Whole);
    lab.start().await;
    lab.admin().call(&Status {}).await.expect("serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_restores_after_an_interrupted_restore_without_reusing_numbers() {
    let mut lab = Lab::new().await;
    let (user, donor) = (lab.user().await, lab.donor("basement").await);
    write(&user, "pot://lab/a", 1, &donor).await;
    let state = lab.config.state.clone();
    let (kit, copy) = (state.with_extension("kit"), state.with_extension("log"));
    backup(&state, &copy, 7).expect("written");
    fs::copy(state.join(KIT), &kit).expect("copied");
    lab.stop().await;
    fs::remove_dir_all(&state).expect("lost");

    // These are the names that a restore leaves if it is killed while it finishes.
    for left in ["admin", "ca", "restoring"] {
        fs::create_dir_all(state.join(left)).expect("made");
    }
    for left in ["recovery.kit", "restoring/catalog.part", "restoring/catalog.part-wal"] {
        fs::write(state.join(left), "half").expect("written");
    }
    let restored = restore_file(&ask(&lab, kit), &copy).expect("restored");
    assert_eq!(restored.files, 1);
    assert!(!state.join("restoring").exists());
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&state.join(CATALOG)), 0o600, "it holds the keys of sealed spaces");
    // Members who joined after the backup was written keep numbers that nobody else gets.
    lab.start().await;
    let next = lab.join(Role::User, "later").await.about.member.0;
    assert!(next > donor.id.0 + 500, "{next}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_and_what_is_beside_it_are_their_owners_alone() {
    let lab = Lab::new().await;
    lab.user().await;
    let catalog = lab.config.state.join(CATALOG);
    let files: Vec<_> = Catalog::stored_in(&catalog).filter(|file| file.exists()).collect();
    assert!(files.len() > 1, "{files:?}");
    for file in files {
        let about = fs::metadata(&file).expect("read");
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kit_and_a_backup_of_different_pools_are_refused() {
    let (alpha, beta) = (Lab::new().await, Lab::new().await);
    let copy = beta.config.state.with_extension("db");
    backup(&beta.config.state, &copy, 7).expect("copied");
    let kit = |lab: &Lab| lab.config.state.join(KIT);
    let state = alpha.config.state.with_extension("new");
    let ask = |kit| Restore { kit, state: state.clone(), advertise: Default::default() };
    let refused = restore_file(&ask(kit(&alpha)), &copy).expect_err("two pools of one name");
    assert_eq!(refused.failure().kind, ErrorKind::Usage, "{refused}");
    assert!(refused.to_string().contains("(authority "), "{refused}");
    assert!(!Catalog::is_at(&state.join(CATALOG)));
    let no_kit = restore_file(&ask(copy.clone()), &copy).expect_err("a backup is no kit");
    assert!(!format!("{:?}", no_kit.failure()).contains("has space"), "{no_kit}");
    restore_file(&ask(kit(&beta)), &copy).expect("its own kit, after a mistake");
}
