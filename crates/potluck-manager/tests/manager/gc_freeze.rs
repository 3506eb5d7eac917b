//! A manager whose catalog is older than one that ran before deletes nothing (promise D5).

use crate::lab::{Donor, Lab, chunk, offer, reserve, write};
use potluck_catalog::fixture::tampering::Tampering;
use potluck_catalog::{Catalog, Extent, Position};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, Epoch};
use potluck_recovery::state_dir::CATALOG;
use potluck_wire::control::{
    Abort, Alarm, AlarmKind, GcResume, HeartbeatReply, PoolStatus, ReclaimUnknown, Remove, Status,
};
use potluck_wire::error::code;
use potluck_wire::token::Role;
use std::time::Duration;

async fn status(lab: &Lab) -> PoolStatus {
    lab.admin().call(&Status {}).await.expect("status")
}

async fn remove(lab: &Lab, at: &str) {
    let remove = Remove {
        path: at.parse().expect("path"),
        recursive: false,
        forever: false,
        only_if: Default::default(),
        soon: false,
    };
    lab.admin().call(&remove).await.expect("removed");
}

/// Sends heartbeats for several times the GC delay and the interval of collection, and returns how many deletions
/// were ordered.
async fn deletions(donor: &Donor) -> usize {
    let mut ordered = 0;
    for write_sequence in 100..110 {
        ordered += donor.tombstones(write_sequence).await.len();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    ordered
}

fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => std::fs::copy(entry.path(), target).map(|_| ()).expect("copied"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_on_a_stale_copy_deletes_nothing_d5() {
    let mut lab = Lab::new().await;
    let ada = lab.join(Role::User, "ada").await;
    let mut donor = lab.donor("basement").await;
    write(&lab.caller(&ada), "pot://lab/a", 1, &donor).await;
    remove(&lab, "pot://lab/a").await;
    lab.stop().await;
    let (state, old) = (lab.config.state.clone(), lab.config.state.with_extension("old"));
    copy_dir(&state, &old);

    // The newer term uses the chunk again.
    lab.start().await;
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[chunk(1)]).await;
    write(&lab.caller(&ada), "pot://lab/b", 1, &donor).await;
    let heartbeat = donor.send_heartbeat(donor.heartbeat(1)).await;
    donor.hear(&heartbeat);
    let newer = status(&lab).await.epoch;
    lab.stop().await;

    // The older copy is put back; it counts the chunk as unused, and has the newer one's epoch.
    std::fs::remove_dir_all(&state).expect("removed");
    std::fs::rename(&old, &state).expect("put back");
    lab.start().await;
    assert_eq!(status(&lab).await.epoch, newer, "only the start tells them apart");
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[chunk(1)]).await;
    assert_eq!(deletions(&donor).await, 0);
    let held = status(&lab).await;
    assert!(held.gc_frozen.is_some() && held.epoch > newer, "{held:?}");
    assert!(
        held.alarms.iter().any(|alarm| alarm.to_string().contains("gc resume")),
        "{:?}",
        held.alarms
    );

    // The freeze outlives the process; only an admin ends it.
    lab.stop().await;
    lab.start().await;
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[chunk(1)]).await;
    assert_eq!(deletions(&donor).await, 0);
    let unknown = lab.admin().call(&ReclaimUnknown {}).await.expect_err("while it is held");
    assert_eq!(unknown.code, code::GC_FROZEN);
    let refused = lab.caller(&ada).call(&ReclaimUnknown {}).await.expect_err("a user");
    assert_eq!(refused.code, code::NOT_ALLOWED);
    let refused = lab.caller(&ada).call(&GcResume {}).await.expect_err("a user");
    assert_eq!(refused.code, code::NOT_ALLOWED);
    lab.admin().call(&GcResume {}).await.expect("resumed");
    assert_eq!(status(&lab).await.gc_frozen, None);
    crate::lab::eventually("what was given up is reclaimed", async || {
        (!donor.tombstones(200).await.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_state_copy_freezes_deletion_d5() {
    for lacks in [true, false] {
        let mut lab = Lab::new().await;
        let ada = lab.join(Role::User, "ada").await;
        let mut donor = lab.donor("basement").await;
        write(&lab.caller(&ada), "pot://lab/a", 1, &donor).await;
        remove(&lab, "pot://lab/a").await;
        let (state, old) = (lab.config.state.clone(), lab.config.state.with_extension("old"));
        copy_dir(&state, &old);
        for file in Catalog::stored_in(&old.join(CATALOG)) {
            let _ = std::fs::remove_file(file);
        }
        let catalog = Tampering::with(&state.join(CATALOG)).expect("opened");
        catalog.copy_to(&old.join(CATALOG)).expect("a snapshot");
        drop(catalog);

        // The same term goes on, and may use the chunk again.
        if lacks {
            write(&lab.caller(&ada), "pot://lab/b", 1, &donor).await;
        }
        let heartbeat = donor.send_heartbeat(donor.heartbeat(1)).await;
        donor.hear(&heartbeat);
        lab.stop().await;

        std::fs::remove_dir_all(&state).expect("removed");
        std::fs::rename(&old, &state).expect("put in its place");
        lab.start().await;
        let own = status(&lab).await.epoch;
        assert!(own > heartbeat.epoch, "the epoch alone does not show it");
        donor.caller = lab.caller(&donor.identity);
        donor.report(&[chunk(1)]).await;
        if lacks {
            assert_eq!(deletions(&donor).await, 0);
            assert!(status(&lab).await.gc_frozen.is_some());
            // A freeze that was ended does not come back, whichever donor comes late.
            lab.admin().call(&GcResume {}).await.expect("resumed");
            donor.report(&[chunk(1)]).await;
        }
        assert_eq!(status(&lab).await.gc_frozen, None, "as after any start: {lacks}");
        crate::lab::eventually("the chunk is reclaimed", async || {
            (!donor.tombstones(200).await.is_empty()).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_manager_on_a_copy_is_known_for_ever_d5() {
    let mut lab = Lab::new().await;
    let mut donor = lab.donor("basement").await;
    let heartbeat = donor.send_heartbeat(donor.heartbeat(0)).await;
    // A copy started as the next epoch; here two starts have passed since.
    donor.hear(&lab.another_manager(Epoch(heartbeat.epoch.0 + 1), 7));
    for _ in 0..2 {
        lab.stop().await;
        lab.start().await;
    }
    assert!(status(&lab).await.epoch > donor.heard.0);
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[]).await;
    assert!(status(&lab).await.gc_frozen.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gc_freeze_has_every_copy_of_the_log_begin_anew() {
    let mut lab = Lab::with(|config| config.metadata_copies = 1).await;
    let mut donor = lab.donor("basement").await;
    let own = status(&lab).await.epoch;
    lab.stop().await;
    let catalog = lab.config.state.join(CATALOG);
    let noted = || Tampering::with(&catalog).expect("opened").noted_logs().expect("read");
    let extent = Extent { blocks: 1, lines: 9, bytes: 900 };
    let first = Position::first(Digest([7; 32]), 5, chunk(6), Epoch(1), 1, 0);
    let position = Position { sequence: 6, base: extent, log: extent, ..first };
    Tampering::with(&catalog).expect("opened").note_logs(&position).expect("noted");
    assert_eq!(noted(), 2);
    lab.start().await;
    donor.caller = lab.caller(&donor.identity);
    donor.report(&[]).await;
    assert_eq!(noted(), 2, "both go on after a start");
    donor.hear(&lab.another_manager(Epoch(own.0 + 40), 7));
    donor.report(&[]).await;
    assert_eq!(noted(), 0, "what the newer one wrote is not gone on with");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_that_no_manager_can_have_is_a_lie_and_harms_nobody() {
    let mut lab = Lab::new().await;
    let mut donor = lab.donor("basement").await;
    let own = status(&lab).await.epoch;
    for lie in [i64::MAX as u64 - 1, u64::MAX, 1 << 40] {
        donor.heard = (Epoch(lie), 1);
        donor.register().await;
    }
    let told = status(&lab).await;
    assert_eq!((told.epoch, told.gc_frozen), (own, None));
    assert!(
        told.alarms.iter().any(|alarm| alarm.to_string().contains("not trusted")),
        "{:?}",
        told.alarms
    );
    lab.stop().await;
    lab.start().await;
    assert_eq!(status(&lab).await.epoch, Epoch(own.0 + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn higher_epoch_at_donors_freezes_gc_d5() {
    let lab = Lab::new().await;
    let user = lab.user().await;
    let mut donor = lab.donor("basement").await;
    write(&user, "pot://lab/a", 1, &donor).await;
    let own = status(&lab).await.epoch;
    donor.hear(&lab.another_manager(Epoch(own.0 + 40), 7));
    donor.report(&[chunk(1)]).await;
    remove(&lab, "pot://lab/a").await;
    assert_eq!(deletions(&donor).await, 0);
    let held = status(&lab).await;
    assert_eq!(held.epoch, Epoch(own.0 + 41), "donors obey it again");
    assert!(held.gc_frozen.is_some_and(|why| why.contains(&DonorId(donor.id.0).to_string())));
}

/// The donor tells of a later manager, of one in between, or of a term that went on where this catalog left it.
#[tokio::test(flavor = "multi_thread")]
async fn unproven_claim_of_another_manager_affects_no_others_d5() {
    let mut lab = Lab::new().await;
    let (user, honest) = (lab.user().await, lab.donor("honest").await);
    write(&user, "pot://lab/a", 1, &honest).await;
    for _ in 0..2 {
        lab.stop().await;
        lab.start().await;
    }
    let mut honest = honest;
    honest.caller = lab.caller(&honest.identity);
    honest.report(&[chunk(1)]).await;
    let user = lab.user().await;
    let session = reserve(&user, 1 << 20).await.expect("reserved").session;
    offer(&user, session, &[2]).await;
    honest.report(&[chunk(1), chunk(2)]).await;
    let own = honest.send_heartbeat(honest.heartbeat(1)).await;
    let other = lab.another_manager(Epoch(own.epoch.0 + 40), 7);
    for (name, heard, changes, proof) in [
        ("later", (Epoch(own.epoch.0 + 40), 8), 9, None),
        ("between", (Epoch(own.epoch.0 - 1), 8), 9, None),
        ("twin", (own.epoch, own.start ^ 1), 9, None),
        ("with a proof of something else", (Epoch(own.epoch.0 + 41), 7), 9, other.proof),
        ("with a proof of less", other_term(&other), 10, other.proof),
    ] {
        let mut liar = lab.donor(name).await;
        (liar.heard, liar.heard_changes, liar.heard_proof) = (heard, changes, proof);
        for _ in 0..3 {
            assert!(liar.register().await.unproven, "{name}: it is told to forget it");
        }
        let told = status(&lab).await;
        assert_eq!((told.epoch, &told.gc_frozen), (own.epoch, &None), "{name}");
        let about = |alarm: &&Alarm| alarm.donor == Some(liar.id);
        let alarm = told.alarms.iter().find(about).expect(name);
        assert_eq!(alarm.kind, AlarmKind::DonorUnproven, "{name}");
        let reply = honest.send_heartbeat(honest.heartbeat(1)).await;
        assert_eq!((reply.register, reply.epoch), (false, own.epoch), "nobody registers anew");
        liar.hear(&own);
        assert!(!liar.register().await.unproven);
        let told = status(&lab).await;
        assert!(
            !told.alarms.iter().any(|alarm| alarm.donor == Some(liar.id)),
            "{name}: it is over"
        );
    }
    user.call(&Abort { session, keep: false }).await.expect("aborted");
    assert!(deletions(&honest).await > 0, "space is reclaimed as ever");

    // If another manager of this pool did say it, one donor that tells it is enough.
    honest.hear(&other);
    assert!(!honest.register().await.unproven);
    let told = status(&lab).await;
    assert_eq!((told.epoch, told.gc_frozen.is_some()), (Epoch(other.epoch.0 + 1), true));
}

fn other_term(other: &HeartbeatReply) -> (Epoch, u64) {
    (other.epoch, other.start)
}

#[tokio::test(flavor = "multi_thread")]
async fn donor_with_repeated_unproven_claims_loses_trust() {
    let lab = Lab::new().await;
    let mut liar = lab.donor("liar").await;
    let own = status(&lab).await.epoch;
    for (above, start) in [(100, 8), (200, 9)] {
        assert_eq!(status(&lab).await.donors[0].quarantined, None);
        liar.heard = (Epoch(own.0 + above), start);
        liar.register().await;
    }
    let told = status(&lab).await;
    assert_eq!((told.epoch, told.gc_frozen), (own, None));
    let why = told.donors[0].quarantined.as_ref().expect("quarantined");
    assert!(why.contains("says again that it heard another manager"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_term_reported_by_a_donor_does_not_freeze_gc_d5() {
    let lab = Lab::new().await;
    let mut donor = lab.donor("basement").await;
    let heartbeat = donor.send_heartbeat(donor.heartbeat(0)).await;
    assert!(heartbeat.proof.is_some());
    for heard in [(heartbeat.epoch, heartbeat.start), (heartbeat.epoch, 0), (Epoch(0), 9)] {
        donor.heard = heard;
        donor.report(&[]).await;
    }
    assert_eq!(status(&lab).await.gc_frozen, None);
}
