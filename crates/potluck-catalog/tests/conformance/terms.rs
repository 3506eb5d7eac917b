//! A manager's start, and what it finds.

use crate::stage::Stage;
use potluck_catalog::ChunkAsker;
use potluck_catalog::fixture::chunk;
use potluck_catalog::{Moment, NewToken, Term};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, Epoch, MemberId};
use potluck_core::policy::AckLevel;
use potluck_pool::CircuitBreaker;
use potluck_wire::token::Role;
use std::sync::Arc;

const OURS: Digest = Digest([7; 32]);

#[tokio::test]
async fn a_manager_that_starts_finds_what_the_last_one_left() {
    let stage = Stage::new().await;
    let before = stage.catalog.authority().await.expect("read");
    assert!(before.may_be_vouched_for_by(&OURS), "nobody's yet");
    let first = stage.catalog.begin_term(OURS, 11).await.expect("began");
    assert_eq!((first.epoch, first.pool_name.as_str()), (Epoch(1), "test pool"));
    assert_eq!((first.saved_ms, first.gc_frozen, first.repair_paused), (None, None, None));

    let names = Arc::new(vec![chunk(1), chunk(2)]);
    let asked = stage
        .catalog
        .offer(stage.session, names.to_vec(), names, AckLevel::Disk, ChunkAsker::ALL)
        .await;
    assert!(asked.expect("offered").iter().all(|found| !found.used && found.donors.is_empty()));
    stage
        .catalog
        .save_time(5000, Vec::new(), vec![(DonorId(3), 4000)], Vec::new())
        .await
        .expect("saved");
    stage
        .catalog
        .save_time(4000, Vec::new(), Vec::new(), Vec::new())
        .await
        .expect("never goes back");
    stage
        .catalog
        .note_repair(Some("a move".into()), CircuitBreaker::default())
        .await
        .expect("paused");

    let stage = stage.reopen().await;
    let next = stage.catalog.begin_term(OURS, 12).await.expect("began");
    assert_eq!((next.epoch, next.saved_ms), (Epoch(2), Some(5000)));
    assert_eq!(next.repair_paused.as_deref(), Some("a move"));
    let [(session, offered)] = &next.sessions[..] else { panic!("one session") };
    assert_eq!((session.id, session.ended), (stage.session, false));
    assert_eq!(*offered, [chunk(1), chunk(2)]);
    let [donor] = &next.donors[..] else { panic!("one donor") };
    assert_eq!((donor.donor, donor.heard_ms), (DonorId(3), Some(4000)));
    assert!(
        !stage.catalog.authority().await.expect("read").may_be_vouched_for_by(&Digest([8; 32]))
    );
}

#[tokio::test]
async fn removed_donor_is_not_expected_back() {
    let stage = Stage::new().await;
    let gone = stage.join("gone", 1).await;
    stage.catalog.revoke(gone).await.expect("revoked");
    // The times at which donors were heard are read before the removal, and written down after it.
    stage
        .catalog
        .save_time(5000, Vec::new(), vec![(DonorId(gone.0), 4000)], Vec::new())
        .await
        .expect("saved");
    let stage = stage.reopen().await;
    let next = stage.catalog.begin_term(OURS, 12).await.expect("began");
    assert!(next.donors.is_empty(), "{:?}", next.donors);
}

#[tokio::test]
async fn when_a_member_was_seen_outlives_a_restart() {
    let stage = Stage::new().await;
    let moment = Moment { epoch: Epoch(1), pool_ms: 0, wall_ms: 0 };
    let new = NewToken { role: Role::User, by: MemberId(1), ttl_ms: 1000, name: None };
    stage.catalog.add_token(Digest([1; 32]), new, moment).await.expect("issued");
    let certify = |_, _| Ok((Digest([2; 32]), Vec::new()));
    let ada = stage.catalog.join(Digest([1; 32]), Digest([3; 32]), "ada".into(), moment, certify);
    let ada = ada.await.expect("joined").member;
    assert_eq!(ada.seen_wall_ms, None);
    stage.catalog.save_time(1, vec![(ada.id, 77)], Vec::new(), Vec::new()).await.expect("saved");
    let stage = stage.reopen().await;
    let members = stage.catalog.begin_term(OURS, 1).await.expect("began").members;
    assert_eq!(members.iter().map(|member| member.seen_wall_ms).collect::<Vec<_>>(), [Some(77)]);
}

#[tokio::test]
async fn unknown_term_freezes_gc_d5() {
    let stage = Stage::new().await;
    let first = stage.catalog.begin_term(OURS, 11).await.expect("began");
    let ours = Term { epoch: first.epoch, start: 11, changes: 0 };
    let other = Term { start: 99, ..ours };
    assert_eq!(stage.catalog.is_unknown_term(ours).await, Ok(false));
    assert_eq!(stage.catalog.is_unknown_term(other).await, Ok(true));
    let freeze = |above| stage.catalog.freeze_gc("another".into(), above, first.epoch, 11);
    assert_eq!(freeze(Some(Epoch(8))).await, Ok(Epoch(9)), "donors obey it again");
    assert_eq!(freeze(None).await, Ok(first.epoch), "heard of twice");

    let stage = stage.reopen().await;
    let next = stage.catalog.begin_term(OURS, 12).await.expect("began");
    assert_eq!((next.epoch, next.gc_frozen.as_deref()), (Epoch(10), Some("another")));
    stage.catalog.end_gc_freeze().await.expect("ended");
    assert_eq!(stage.catalog.is_unknown_term(other).await, Ok(false), "what it did is given up");
    assert_eq!(stage.catalog.begin_term(OURS, 13).await.expect("began").gc_frozen, None);
}
