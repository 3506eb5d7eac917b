//! Tests of the bounds on what one member or donor can have remembered, and of what is given back.

use super::{ME, MIB, S1, S2, arrive, at, chunk, open, pool, register};
use crate::{NewSession, Pool, QuotaRoom, TooManyOffered};
use potluck_core::ids::{DonorId, SessionId, SpaceId};
use potluck_core::path::PoolPath;
use potluck_core::policy::{AskedPolicy, Policy};
use potluck_core::reserved_room::ReservedRoom;
use potluck_wire::control::Holding;
use std::collections::BTreeMap;

#[test]
fn a_donor_that_invents_chunks_has_few_of_them_written_down() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    let invented = |names: std::ops::Range<u64>| {
        names.map(|n| Holding { name: chunk(n), len: 1 }).collect::<Vec<_>>()
    };
    let unclaimed = |pool: &Pool| pool.status(at(0.0))[0].unclaimed;
    assert_eq!(arrive(&mut pool, 1, 7, &[], &invented(0..65_000)).len(), 65_000);
    assert_eq!(arrive(&mut pool, 1, 7, &[], &invented(70_000..75_000)).len(), 536);
    assert_eq!(unclaimed(&pool), 5000 - 536, "the others are shown");
    register(&mut pool, 1, 8, 1.0);
    assert_eq!(arrive(&mut pool, 1, 8, &[], &invented(80_000..80_010)).len(), 0);
    pool.unused_gone(DonorId(1), 7);
    assert_eq!(arrive(&mut pool, 1, 8, &[], &invented(90_000..90_010)).len(), 7);
    assert_eq!(unclaimed(&pool), 13);
    assert_eq!(pool.status(at(1000.0))[0].unclaimed, 0, "what a dead donor has is out of reach");
}

#[test]
fn unknown_chunks_taken_in_per_donor_are_bounded() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    open(&mut pool, S1, 10 * MIB, 0.0).expect("opened");
    pool.offer(&S1, &[chunk(2)]).expect("few");
    let listed = |names: std::ops::Range<u64>| {
        names.map(|n| Holding { name: chunk(n), len: 1 }).collect::<Vec<_>>()
    };
    pool.took_in(DonorId(1), (1 << 20) - 4);
    let mut unknown = listed(0..10);
    let taken = pool.take_given_up(DonorId(1), &mut unknown);
    assert_eq!(taken, [&listed(0..2)[..], &listed(3..5)].concat(), "what is being written is none");
    assert_eq!(unknown, [&listed(2..3)[..], &listed(5..10)].concat(), "the rest stays unknown");
    pool.took_in(DonorId(1), taken.len() as u64);
    assert!(pool.take_given_up(DonorId(1), &mut unknown).is_empty());
    pool.unused_gone(DonorId(1), 2);
    assert_eq!(pool.take_given_up(DonorId(1), &mut unknown), listed(5..7));
}

#[test]
fn a_member_has_so_many_chunks_offered_and_no_more() {
    let mut pool = pool();
    for donor in 1..=3 {
        register(&mut pool, donor, 7, 0.0);
    }
    let names = |session: u64, batch: u64| -> Vec<_> {
        (0..16_384).map(|n| chunk(session << 40 | batch << 20 | n)).collect()
    };
    let mut one_more = names(1, 0);
    one_more.push(chunk(u64::MAX));
    open(&mut pool, S1, 700 * MIB, 0.0).expect("opened");
    assert_eq!(pool.offer(&S1, &one_more), Err(TooManyOffered::AtOnce));
    // What is promised to each of the sessions would let it offer far more than this.
    open(&mut pool, S2, 200 * MIB, 0.0).expect("opened");
    for batch in 0..22 {
        pool.offer(&S1, &names(1, batch)).expect("few");
    }
    let mut offered = 22;
    let sessions = (3..).map(|n| SessionId([n; 16]));
    let mut last = S2;
    for (number, session) in sessions.enumerate() {
        open(&mut pool, session, 22 * MIB, 0.0).expect("opened");
        if offered == 64 {
            assert_eq!(pool.offer(&session, &[chunk(7)]), Err(TooManyOffered::OfMember));
            break;
        }
        pool.offer(&session, &names(3 + number as u64, 0)).expect("few");
        (offered, last) = (offered + 1, session);
    }
    // Offers that were committed in files are not open any more, and neither are those of sessions that ended a while
    // ago.
    pool.offers_committed(&S1, &names(1, 0).into_iter().collect());
    pool.offers_committed(&S1, &names(1, 0).into_iter().collect());
    pool.offer(&S2, &names(2, 0)).expect("as many as were committed");
    // Another session goes on where the first was, and has the same files.
    pool.offers_committed(&S1, &names(1, 1).into_iter().collect());
    pool.offer(&S2, &names(1, 1)).expect("as many as were committed");
    pool.offers_committed(&S2, &names(1, 1).into_iter().collect());
    pool.offer(&S2, &names(1, 0)).expect("as many as were committed");
    assert_eq!(pool.offer(&S2, &[chunk(7)]), Err(TooManyOffered::OfMember));
    assert!(pool.is_offered_by(&S1, &names(1, 0)[0]), "what files have is protected, too");
    pool.end_session(&last);
    pool.forget_session(&last);
    assert_eq!(pool.offer(&S2, &[chunk(7)]), Err(TooManyOffered::OfMember), "they are there yet");
    pool.enter(&S2, ME, at(16.0)).expect("open");
    pool.offer(&S2, &names(2, 1)).expect("as many as that had");
    pool.withdraw_offers(&S2, &names(2, 1).into_iter().collect());
    pool.offer(&S2, &names(2, 2)).expect("as many as were withdrawn");
    assert_eq!(pool.offer(&S2, &[chunk(7)]), Err(TooManyOffered::OfMember));
}

#[test]
fn leftover_names_of_ended_sessions_are_forgotten_when_none_count() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    open(&mut pool, S1, 22 * MIB, 0.0).expect("opened");
    let names: Vec<_> = (0..2048).map(chunk).collect();
    pool.offer(&S1, &names).expect("few");
    pool.end_session(&S1);
    pool.forget_session(&S1);
    // A thousand names a second count no more.
    pool.pass_time(at(1.5));
    assert_eq!(pool.left_names[&ME].count(at(1.5)), 512, "they are there yet");
    pool.pass_time(at(2.0));
    assert!(pool.left_names.is_empty(), "nobody has to come back for that");
}

#[test]
fn unused_chunks_kept_per_session_are_bounded() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    open(&mut pool, S1, 10 * MIB, 0.0).expect("opened");
    open(&mut pool, S2, 100 * MIB, 0.0).expect("opened");
    let kept = |bytes: u64| BTreeMap::from([(S1, bytes), (S2, bytes)]);
    assert!(pool.keep_too_much(&kept(90 * MIB)).is_empty());
    assert_eq!(pool.keep_too_much(&kept(200 * MIB)), [S1]);
    pool.end_session(&S1);
    assert!(pool.keep_too_much(&kept(200 * MIB)).is_empty(), "it has ended already");
}

#[test]
fn failed_session_returns_its_draw_to_the_reservation_f4() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    let path: PoolPath = "pot://lab/run".parse().expect("a path");
    let room = ReservedRoom { path: path.clone(), bytes: 100 * MIB, until_ms: 1000 };
    let new = |id, room| NewSession {
        id,
        member: ME,
        space: SpaceId(1),
        policy: Policy { sealed: false, ..Policy::default() },
        asked: AskedPolicy::default(),
        room,
        peer: None,
        link: None,
    };
    pool.open_session(new(S1, Some(room)), Some(100 * MIB), at(0.0)).expect("reserved");
    let left = |pool: &Pool| pool.reservations()[0].1.left;
    let file = path.join("file").expect("a path");
    let opened =
        pool.open_session_at(&file, new(S2, None), Some(40 * MIB), QuotaRoom::UNLIMITED, at(0.0));
    opened.expect("opened");
    assert_eq!(left(&pool), 60 * MIB);
    assert_eq!((pool.rooms.len(), pool.sessions_of(ME)), (1, vec![S1, S2]));
    pool.take_back(&S2);
    assert_eq!(left(&pool), 100 * MIB);
    pool.end_session(&S1);
    assert!(pool.reservations().is_empty() && pool.sessions_of(ME).is_empty(), "it ends");
    pool.forget_session(&S1);
    assert!(pool.rooms.is_empty() && pool.sessions_of.is_empty(), "nothing is left of either");
}
