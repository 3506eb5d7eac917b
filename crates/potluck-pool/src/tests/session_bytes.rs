//! Tests of what write sessions may store.

use super::{ME, MIB, S1, S2, at, chunk, open, pool, register, send_heartbeat};
use crate::{NewSession, Pool, QuotaRoom, TooManyOffered};
use potluck_core::erasure::{Ec, MIN_SHARD};
use potluck_core::ids::{DonorId, SessionId, SpaceId};
use potluck_core::path::PoolPath;
use potluck_core::placement::Refusal;
use potluck_core::policy::{AskedPolicy, Policy};

/// The bytes that a member's sessions may store in all beyond three times what is promised to them.
const MEMBERS_SLACK: u64 = 64 * MIB;

fn new_session(number: u8, policy: Policy) -> NewSession {
    NewSession {
        id: SessionId([number; 16]),
        member: ME,
        space: SpaceId(1),
        policy,
        asked: AskedPolicy::default(),
        room: None,
        peer: None,
        link: None,
    }
}

/// Returns the bytes that all donors together may take of a session.
fn may_store(pool: &Pool, id: &SessionId) -> u64 {
    pool.ticketed(id).expect("open").budgets().values().sum()
}

#[test]
fn many_small_sessions_store_little_beyond_their_reservations() {
    let mut pool = pool();
    let donors: Vec<DonorId> = (1..=3).map(DonorId).collect();
    for donor in &donors {
        register(&mut pool, donor.0, 7, 0.0);
    }
    let sessions: Vec<SessionId> = (1..=70).map(|number| SessionId([number; 16])).collect();
    for session in &sessions {
        open(&mut pool, *session, 5000, 0.0).expect("opened");
        pool.allow_more(session, &donors);
        let names: Vec<_> = (0..4096).map(|n| chunk(u64::from(session.0[0]) << 32 | n)).collect();
        assert_eq!(pool.offer(session, &names), Err(TooManyOffered::Reserved));
    }
    for _ in 0..1000 {
        sessions.iter().for_each(|session| pool.allow_more(session, &donors));
    }
    let promised = pool.status(at(0.0)).iter().map(|donor| donor.promised).sum::<u64>();
    let all: u64 = sessions.iter().map(|session| may_store(&pool, session)).sum();
    assert_eq!(all, 3 * promised + MEMBERS_SLACK);
    // The room of a session is there for others when it is over.
    for session in &sessions {
        pool.end_session(session);
        pool.forget_session(session);
    }
    open(&mut pool, S1, 5000, 0.0).expect("opened");
    (0..100).for_each(|_| pool.allow_more(&S1, &donors));
    let promised: u64 = pool.status(at(0.0)).iter().map(|donor| donor.promised).sum();
    assert_eq!(may_store(&pool, &S1), 3 * promised + MEMBERS_SLACK);
}

#[test]
fn session_budget_is_capped_by_quotas() {
    let mut pool = pool();
    let donors: Vec<DonorId> = (1..=3).map(DonorId).collect();
    for donor in &donors {
        register(&mut pool, donor.0, 7, 0.0);
    }
    let (root, quota) = ("pot://own".parse::<PoolPath>().expect("a path"), MIB);
    let policy = Policy { sealed: false, ..Policy::default() };
    let copies = u64::from(policy.redundancy().donors());
    let new = new_session(1, policy);
    let room = QuotaRoom { left: quota, whole: quota };
    // The session writes a tree, so which files it replaces is known only at its commit.
    pool.open_session_at(&root, new, Some(600 * MIB), room, at(0.0)).expect("opened");
    // The bound is exact but for what dividing leaves.
    let most = 3 * copies * quota + MEMBERS_SLACK + 1024;
    let within = |pool: &Pool| may_store(pool, &S1) <= most;
    for _ in 0..100 {
        pool.allow_more(&S1, &donors);
        assert!(within(&pool), "{} bytes", may_store(&pool, &S1));
        let none = QuotaRoom { left: 0, whole: 0 };
        pool.grow_session_within(&S1, 4 * MIB, none, (&[], false), at(0.0)).expect("places");
    }
    assert!(within(&pool), "{} bytes", may_store(&pool, &S1));
    // Files that took the place of others are paid for.
    pool.note_visible(&S1, quota);
    let none = QuotaRoom { left: 0, whole: quota };
    let before = may_store(&pool, &S1);
    pool.grow_session_within(&S1, MIB, none, (&[], false), at(0.0)).expect("places");
    assert!(may_store(&pool, &S1) >= before + MIB, "{} of {before}", may_store(&pool, &S1));
}

#[test]
fn parked_and_ended_sessions_hold_no_promises() {
    let mut pool = pool();
    for donor in 1..=3 {
        register(&mut pool, donor, 7, 0.0);
    }
    open(&mut pool, S1, 5000, 0.0).expect("opened");
    pool.offer(&S1, &[chunk(1)]).expect("offered");
    let grow = |pool: &mut Pool| {
        let all = QuotaRoom::UNLIMITED;
        pool.grow_session_within(&S1, MIB, all, (&[], false), at(0.0)).map(drop)
    };
    assert_eq!(grow(&mut pool), Ok(()));
    assert!(pool.park_session(&S1, at(0.0)));
    assert_eq!(grow(&mut pool), Err(Refusal::NoDonors), "its call waited meanwhile");
    assert_eq!(pool.ledger.held_in_all(&S1), 0);
    pool.end_session(&S1);
    assert_eq!(grow(&mut pool), Err(Refusal::NoDonors));
    assert_eq!(pool.ledger.held_in_all(&S1), 0);
}

#[test]
fn reservation_covers_a_tree_of_tiny_files() {
    for (data, parity) in [(2, 1), (4, 2), (8, 3), (8, 4)] {
        let mut pool = pool();
        let donors = u32::from(data + parity);
        for donor in 1..=donors {
            register(&mut pool, donor, 7, 0.0);
        }
        let ec = Ec::new(data, parity).expect("a code");
        let policy = Policy { ec: Some(ec), ..Policy::default() };
        let (files, len) = (10_000, 4097);
        let shard = u64::from(ec.shard_len(len, policy.chunk_size));
        let each = len.div_ceil(u64::from(MIN_SHARD)) + u64::from(parity);
        pool.open_session(new_session(1, policy), Some(files * len), at(0.0)).expect("opened");
        let donors: Vec<DonorId> = (1..=donors).map(DonorId).collect();
        (0..100).for_each(|_| pool.allow_more(&S1, &donors));
        assert!(may_store(&pool, &S1) >= files * each * shard, "{data}+{parity}");
        let names: Vec<_> = (0..files * each).map(chunk).collect();
        for names in names.chunks(16_384) {
            pool.offer(&S1, names).expect("as many as it has files");
        }
    }
}

#[test]
fn session_tickets_are_bounded_by_its_promise() {
    let mut pool = pool();
    for donor in 1..=4 {
        register(&mut pool, donor, 7, 0.0);
    }
    open(&mut pool, S1, 100 * MIB, 0.0).expect("opened");
    let promised = pool.status(at(0.0)).iter().map(|donor| donor.promised).sum::<u64>();
    let budgets = |pool: &Pool| pool.ticketed(&S1).expect("open").budgets();
    let first = budgets(&pool);
    assert_eq!(budgets(&pool), first, "renewed tickets bring nothing");
    let all = |pool: &Pool| budgets(pool).values().sum::<u64>();
    let fast = *first.keys().next().expect("a donor");
    let mut before = first[&fast];
    // A fast donor may take all, and no donor gets more than there is, however often it is asked for.
    while budgets(&pool)[&fast] < promised {
        pool.allow_more(&S1, &[fast]);
        assert!(budgets(&pool)[&fast] > before, "{before} of {promised}");
        before = budgets(&pool)[&fast];
    }
    for _ in 0..1000 {
        pool.allow_more(&S1, &(1..=5).map(DonorId).collect::<Vec<_>>());
    }
    assert_eq!(all(&pool), 3 * promised + MEMBERS_SLACK);
    assert_eq!(all(&pool), pool.ticketed(&S1).expect("open").most_stored());
    assert!(!budgets(&pool).contains_key(&DonorId(5)), "it is not in the plan");
}

#[test]
fn unreported_stored_bytes_still_count_as_used() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    open(&mut pool, S1, 600 * MIB, 0.0).expect("fits");
    // All is stored and committed within a second, so no heartbeat has told of it.
    pool.note_committed(&S1, 500 * MIB, [(DonorId(1), 500 * MIB)].into_iter());
    pool.end_session(&S1);
    assert!(open(&mut pool, S2, 501 * MIB, 0.1).is_err(), "500 of 1000 MiB are taken");
    open(&mut pool, S2, 490 * MIB, 0.1).expect("what it did not need is free at once");
    pool.end_session(&S2);
    // What the donor says is believed; it may have room that it had not before.
    assert!(send_heartbeat(&mut pool, 1, 7, 1, 1.0));
    open(&mut pool, S2, 990 * MIB, 1.0).expect("room");
}

#[test]
fn a_session_that_stored_nothing_new_leaves_all_room_to_others() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    open(&mut pool, S1, 600 * MIB, 0.0).expect("fits");
    // The pool held all of it already: no donor gave a receipt.
    pool.note_committed(&S1, 600 * MIB, std::iter::empty());
    pool.end_session(&S1);
    open(&mut pool, S2, 990 * MIB, 0.1).expect("nothing was stored");
}
