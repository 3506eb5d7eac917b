//! Tests of the state machine by itself, at times that the tests make up.

mod bounds;
mod budgets;
mod complaints;
mod failure_domains;
mod graces;
mod session_bytes;
mod snapshots;
mod traffic;
mod writing_machine;

use super::{Enlisted, Giving, NewSession, NoSession, PageDone, Pool, PoolLimits};
use crate::{InUseAgain, TooManyOffered};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{ChunkId, DonorId, Incarnation, MemberId, SessionId, SpaceId};
use potluck_core::load::Load;
use potluck_core::owner_limits::DiskState;
use potluck_core::placement::{Plan, Refusal, Section};
use potluck_core::policy::{AskedPolicy, Policy};
use potluck_core::traffic::BothWays;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{Arrived, DiskFault, DonorState, Heartbeat, Holding, Register};
use potluck_wire::packed::Packed;
use potluck_wire::ticket::Secret;
use std::time::Duration;

pub(super) const MIB: u64 = 1 << 20;
const ME: MemberId = MemberId(9);
const S1: SessionId = SessionId([1; 16]);
const S2: SessionId = SessionId([2; 16]);

pub(crate) fn at(seconds: f64) -> Tick {
    Duration::from_secs_f64(seconds)
}

pub(crate) fn chunk(n: u64) -> ChunkName {
    ChunkName::of(&n.to_le_bytes())
}

pub(crate) fn pool() -> Pool {
    Pool::new(PoolLimits {
        lease: at(30.0),
        suspect_after: at(5.0),
        silent_after: at(60.0),
        grace: at(600.0),
        longest_absence: at(86_400.0),
        repair_rate: 400 << 20,
        repair_donor_rate: 100 << 20,
    })
}

pub(crate) fn register(pool: &mut Pool, donor: u32, incarnation: u64, now: f64) -> Enlisted {
    register_in(pool, donor, incarnation, now, None)
}

/// Registers a donor whose owner may have given it a label, as donors with one label fail together.
pub(crate) fn register_in(
    pool: &mut Pool,
    donor: u32,
    incarnation: u64,
    now: f64,
    label: Option<&str>,
) -> Enlisted {
    pool.add_donor(DonorId(donor), &format!("d{donor}"), None);
    let register = Register {
        incarnation: Incarnation(incarnation),
        key: Secret::from_bytes([donor as u8; 32]),
        addresses: Addresses::default(),
        port: None,
        version: "0.1".into(),
        disk: DiskState::default(),
        room: 1000 * MIB,
        label: label.map(str::to_owned),
        grace_ms: None,
        heard: Default::default(),
        heard_changes: 0,
        heard_proof: None,
        disk_fault: None,
        new_store: false,
        registered_before: false,
        does: Default::default(),
    };
    let addresses = format!("10.0.0.{donor}:7701").parse().expect("an address");
    pool.register(DonorId(donor), &register, addresses, at(now))
}

pub(super) fn heartbeat(incarnation: u64, write_sequence: u64) -> Heartbeat {
    Heartbeat {
        incarnation: Incarnation(incarnation),
        write_sequence,
        load: Load::default(),
        traffic: BothWays::default(),
        disk: DiskState::default(),
        room: 1000 * MIB,
        lends: None,
        batch: 0,
        added: Packed::default(),
        removed: Packed::default(),
        spoiled: Packed::default(),
        unreadable: Packed::default(),
        quarantined: Packed::default(),
        sound: Packed::default(),
        results: Vec::new(),
        excess: 0,
        disk_lacks: 0,
        scrub: Default::default(),
        disk_fault: None,
        settings_fault: None,
        follows: None,
        sessions: Packed::default(),
        does: Default::default(),
    }
}

pub(super) fn send_heartbeat(
    pool: &mut Pool,
    donor: u32,
    incarnation: u64,
    write_sequence: u64,
    now: f64,
) -> bool {
    pool.heartbeat(DonorId(donor), &heartbeat(incarnation, write_sequence), at(now))
}

fn open(pool: &mut Pool, id: SessionId, bytes: u64, now: f64) -> Result<(), Refusal> {
    let policy = Policy { sealed: false, ..Policy::default() };
    let new = NewSession {
        id,
        member: ME,
        space: SpaceId(1),
        policy,
        asked: AskedPolicy::default(),
        room: None,
        peer: None,
        link: None,
    };
    pool.open_session(new, Some(bytes), at(now)).map(|_| ())
}

fn grow(
    pool: &mut Pool,
    id: &SessionId,
    bytes: u64,
    places: (&[DonorId], bool),
    now: f64,
) -> Result<Plan, Refusal> {
    pool.grow_session(id, (bytes, u64::MAX), places, at(now))
}

/// Has chunks arrive at a donor, of which the catalog knows the `known`; returns those that it is to be told of.
fn arrive(
    pool: &mut Pool,
    donor: u32,
    incarnation: u64,
    known: &[Holding],
    unknown: &[Holding],
) -> Vec<Holding> {
    let (donor, incarnation) = (DonorId(donor), Incarnation(incarnation));
    let brought = |holding: &Holding| Arrived { holding: *holding, session: Some(S1) };
    let unknown = unknown.iter().map(brought);
    let arrived = pool.unknown_arrived(donor, incarnation, unknown, |_| true);
    let batch = pool.donors.registration(donor).map_or(0, |registration| registration.batch) + 1;
    for attempt in 0..2 {
        // The reply to the donor is lost the first time, which changes nothing.
        assert_eq!(pool.has_written(donor, incarnation, batch), attempt > 0);
        pool.arrivals_written(donor, (incarnation, batch), &arrived, known);
    }
    arrived.unwanted
}

/// Orders the deletion of chunk 1 at donor 1, as a step of garbage collection does.
fn collect(pool: &mut Pool, still: bool, now: f64) {
    let name = chunk(1);
    let decided = pool.decide([(&name, &[DonorId(1)][..])].into_iter(), at(now));
    let names = if still { decided.names() } else { Vec::new() };
    pool.order_deletions(&decided, &names, at(now));
}

fn deletions(pool: &mut Pool, now: f64) -> Vec<(u64, u64)> {
    let orders = pool.chunk_orders_for(DonorId(1), at(now));
    orders
        .delete
        .iter()
        .map(|tombstone| (tombstone.incarnation.0, tombstone.write_sequence))
        .collect()
}

#[test]
fn silence_makes_a_suspect_and_then_a_silent_donor() {
    let mut pool = pool();
    pool.add_donor(DonorId(1), "d1", None);
    let state = |pool: &Pool, now| pool.status(at(now))[0].state;
    assert_eq!(state(&pool, 9999.0), DonorState::Joined, "nobody misses what was never there");
    register(&mut pool, 1, 7, 10.0);
    assert_eq!(state(&pool, 15.0), DonorState::Live);
    assert_eq!(state(&pool, 15.1), DonorState::Suspect);
    assert_eq!(state(&pool, 70.1), DonorState::Silent);
    assert!(send_heartbeat(&mut pool, 1, 7, 0, 80.0));
    assert_eq!(state(&pool, 80.0), DonorState::Live);
    assert!(!pool.contact(DonorId(1), at(86.0)).expect("known").live);
}

#[test]
fn a_daemon_without_its_disk_is_given_up_like_a_silent_machine() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    pool.inventory_done(DonorId(1), Incarnation(7));
    assert!(send_heartbeat(&mut pool, 1, 7, 0, 10.0) && pool.vouches(DonorId(1), at(10.0)));
    assert_eq!(pool.takers(at(10.0)).len(), 1);
    let fault = Some(DiskFault { missing: true, why: "pulled".into() });
    let pulled = Heartbeat { disk_fault: fault, ..heartbeat(7, 0) };
    for second in 11..700 {
        assert!(pool.heartbeat(DonorId(1), &pulled, at(second.into())), "its incarnation goes on");
        pool.pass_time(at(second.into()));
        assert!(!pool.vouches(DonorId(1), at(second.into())), "second {second}");
        assert!(pool.takers(at(second.into())).is_empty());
        let gone = pool.is_dead(DonorId(1), at(second.into()));
        assert_eq!(gone, second > 610, "second {second}");
    }
    // The donor is back: because it was given up, its inventory has to be compared first.
    register(&mut pool, 1, 7, 700.0);
    assert!(!pool.is_dead(DonorId(1), at(700.0)) && !pool.vouches(DonorId(1), at(700.0)));
    pool.inventory_done(DonorId(1), Incarnation(7));
    assert!(pool.vouches(DonorId(1), at(701.0)));
}

#[test]
fn unregistered_incarnation_is_not_believed() {
    let mut pool = pool();
    assert!(!send_heartbeat(&mut pool, 1, 7, 0, 0.0), "not even a member");
    assert_eq!(register(&mut pool, 1, 7, 0.0), Enlisted::Anew);
    assert!(!send_heartbeat(&mut pool, 1, 6, 100, 1.0));
    assert!(send_heartbeat(&mut pool, 1, 7, 3, 1.0));
    assert_eq!(register(&mut pool, 1, 7, 2.0), Enlisted::Again);
    // A restart is no news, and two incarnations that replace each other are.
    assert_eq!(register(&mut pool, 1, 8, 3.0), Enlisted::Anew);
    assert_eq!(register(&mut pool, 1, 7, 4.0), Enlisted::InTurns);
    assert_eq!(register(&mut pool, 1, 9, 30.0), Enlisted::Anew);
}

#[test]
fn donors_that_one_donor_invited_fail_with_it_whatever_they_say() {
    let mut pool = pool();
    for (donor, label) in [(1, None), (2, Some("room")), (3, Some("attic")), (4, None)] {
        register_in(&mut pool, donor, 7, 0.0, label);
    }
    for further in [2, 3] {
        pool.add_donor(DonorId(further), "further", Some(DonorId(1)));
    }
    let domains: Vec<_> = pool.takers(at(0.0)).iter().map(|taker| taker.domain).collect();
    assert_eq!(domains[..3], [domains[0]; 3]);
    assert_ne!(domains[3], domains[0]);
    // Three donors of nine go, which are one machine of seven.
    (5..=9).for_each(|donor| {
        register(&mut pool, donor, 7, 0.0);
    });
    let mut late = 0.0;
    while pool.too_many_dead().is_none() && late < 3600.0 {
        late += 10.0;
        for donor in 4..=9 {
            send_heartbeat(&mut pool, donor, 7, 0, late);
        }
        pool.pass_time(at(late));
    }
    assert!(pool.is_dead(DonorId(1), at(late)) && pool.is_dead(DonorId(3), at(late)));
    assert_eq!(pool.too_many_dead(), None, "one machine of seven");
}

#[test]
fn a_session_lives_by_its_calls_and_never_ends_during_one() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    open(&mut pool, S1, 10 * MIB, 0.0).expect("opened");
    pool.enter(&S1, ME, at(29.0)).expect("in time");
    assert!(pool.expired(at(100.0)).is_empty(), "a call is being answered");
    pool.leave(&S1, at(100.0));
    assert!(pool.expired(at(130.0)).is_empty());
    assert_eq!(pool.expired(at(130.1)), [S1]);
    assert_eq!(pool.enter(&S1, MemberId(10), at(101.0)).err(), Some(NoSession), "not theirs");
    pool.end_session(&S1);
    assert!(pool.expired(at(200.0)).is_empty());
    assert_eq!(pool.enter(&S1, ME, at(131.0)).err(), Some(NoSession));
}

#[test]
fn promises_are_kept_apart_turned_into_bytes_and_given_back() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    open(&mut pool, S1, 600 * MIB, 0.0).expect("fits");
    assert!(matches!(open(&mut pool, S2, 600 * MIB, 0.0), Err(Refusal::NoSpace { .. })));
    let promised = |pool: &Pool| pool.status(at(0.0))[0].promised;
    assert_eq!(promised(&pool), 600 * MIB);

    // A stored chunk shows in the donor's own room, and is promised no more.
    pool.offer(&S1, &[chunk(1)]).expect("few");
    let stored = Holding { name: chunk(1), len: 4 << 20 };
    for _ in 0..2 {
        // The heartbeat is sent again, as when its answer was lost.
        arrive(&mut pool, 1, 7, &[], &[stored]);
        assert_eq!(promised(&pool), 596 * MIB);
    }
    pool.offer(&S1, &[chunk(2)]).expect("few");
    arrive(&mut pool, 1, 7, &[Holding { name: chunk(2), ..stored }], &[]);
    assert_eq!(promised(&pool), 592 * MIB, "also of what a file has by now");
    grow(&mut pool, &S1, 100 * MIB, (&[], false), 1.0).expect("grown");
    assert_eq!(promised(&pool), 692 * MIB);
    pool.end_session(&S1);
    assert_eq!(promised(&pool), 0);
    assert!(!pool.unoffered(&[chunk(1)]).contains(&chunk(1)), "protected until accounted for");
    pool.forget_session(&S1);
    assert_eq!(pool.unoffered(&[chunk(1)]), [chunk(1)]);
}

#[test]
fn plans_name_live_donors_only_and_nothing_needs_none() {
    let mut pool = pool();
    assert_eq!(open(&mut pool, S1, 1, 0.0), Err(Refusal::NoDonors));
    open(&mut pool, S1, 0, 0.0).expect("no byte needs no donor");
    register(&mut pool, 1, 7, 0.0);
    register(&mut pool, 2, 7, 4.0);
    open(&mut pool, S2, 100 * MIB, 7.0).expect("opened");
    let plan = pool.ticketed(&S2).expect("open").plan;
    assert_eq!(plan.donors().into_iter().collect::<Vec<_>>(), [DonorId(2)], "1 is a suspect");
    send_heartbeat(&mut pool, 1, 7, 0, 8.0);
    let more = grow(&mut pool, &S2, 100 * MIB, (&[DonorId(2)], false), 8.0).expect("grown");
    assert_eq!(more.donors().into_iter().collect::<Vec<_>>(), [DonorId(1)], "2 is avoided");
}

#[test]
fn plan_omits_absent_donors_while_one_more_may_die() {
    let mut pool = pool();
    for donor in 1..=4 {
        register(&mut pool, donor, 7, 0.0);
    }
    let mut planned = |copies, strict, there: &[u32], whole| {
        for (id, now) in [(S1, 0.0), (S1, 7.0)] {
            there.iter().for_each(|donor| assert!(send_heartbeat(&mut pool, *donor, 7, 0, now)));
            pool.forget_session(&id);
        }
        let policy = Policy { copies, strict, ..Policy::default() };
        let new = NewSession {
            id: S1,
            member: ME,
            space: SpaceId(1),
            policy,
            asked: AskedPolicy::default(),
            room: None,
            peer: None,
            link: None,
        };
        let opened = pool.open_session(new, Some(MIB), at(7.0));
        let opened = opened.map(|ticketed| ticketed.plan.donors().len());
        opened.and_then(|donors| {
            let grown = grow(&mut pool, &S1, MIB, (&[DonorId(4)], whole), 7.0)?;
            assert_eq!(grown.is_short(), copies > 2);
            Ok(donors)
        })
    };
    assert_eq!(planned(4, false, &[2, 3, 4], false), Ok(3));
    let short = |have, need| Err(Refusal::TooFewDonors { have, need });
    assert_eq!(planned(4, true, &[], false), short(3, 4), "all is asked for");
    assert_eq!(planned(4, false, &[], true), short(2, 4), "to grow by all is asked for");
    assert_eq!(planned(1, false, &[], true), Ok(3));
}

#[test]
fn write_below_policy_waits_for_expected_donors_only() {
    let opened = |change: &dyn Fn(&mut Pool)| {
        let mut pool = pool();
        for donor in 1..=3 {
            register(&mut pool, donor, 7, 0.0);
        }
        change(&mut pool);
        (1..=2).for_each(|donor| assert!(send_heartbeat(&mut pool, donor, 7, 0, 20.0)));
        let policy = Policy { copies: 3, ..Policy::default() };
        let asked = AskedPolicy::default();
        let new = NewSession {
            id: S1,
            member: ME,
            space: SpaceId(1),
            policy,
            asked,
            room: None,
            peer: None,
            link: None,
        };
        pool.open_session(new, Some(MIB), at(20.0)).map(|ticketed| ticketed.plan.donors().len())
    };
    let away = DonorId(3);
    assert_eq!(opened(&|_| {}), Ok(2), "it is silent and comes back");
    let refused = Err(Refusal::TooFewDonors { have: 2, need: 3 });
    let giving = Giving { start: 0, at_once: false, lose: [].into(), since: at(0.0) };
    assert_eq!(opened(&|pool| pool.give_back(away, Some(giving.clone()))), refused);
    assert_eq!(opened(&|pool| pool.quarantine(away, Some("it lies".into()))), refused);
    let never_lent = |pool: &mut Pool| {
        pool.remove_donor(away);
        pool.add_donor(away, "d", None);
    };
    assert_eq!(opened(&never_lent), refused);
    let full = |pool: &mut Pool| {
        let room = pool.donors.registration(away).expect("registered").room;
        let plan = Plan {
            stripe_size: 1,
            sections: vec![Section { donors: vec![away], chunks: 1, bytes: room }],
            copies: 1,
            chunk_size: room as u32,
        };
        pool.ledger.reserve(S2, plan.promised());
    };
    assert_eq!(opened(&full), refused);
}

#[test]
fn an_unknown_size_is_promised_little_and_what_fits_of_that() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    open(&mut pool, S1, 989 * MIB, 0.0).expect("opened");
    let policy = Policy { sealed: false, ..Policy::default() };
    let new = |number, member| NewSession {
        id: SessionId([number; 16]),
        member,
        space: SpaceId(1),
        policy: policy.clone(),
        asked: AskedPolicy::default(),
        room: None,
        peer: None,
        link: None,
    };
    // 10 MiB are left beside what the files of chunks take: room for two whole starting amounts, and for half of one.
    for (number, promised) in [(8, 4 * MIB), (9, 4 * MIB), (10, 2 * MIB)] {
        let ticketed = pool.open_session(new(number, ME), None, at(0.0)).expect("opened");
        assert_eq!(ticketed.bytes, promised);
    }
    let refused = pool.open_session(new(11, MemberId(10)), None, at(0.0));
    assert!(refused.is_err(), "what is promised to others by guess stays promised");
    let asked = pool.open_session(new(12, ME), Some(8 * MIB), at(0.0)).expect("opened");
    assert_eq!(asked.bytes, 8 * MIB, "a member's own guesses make room for what it asks for");
}

#[test]
fn tombstone_names_a_safe_write_sequence_d5() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    collect(&mut pool, true, 0.5);
    assert!(deletions(&mut pool, 0.5).is_empty(), "no count was heard yet");
    send_heartbeat(&mut pool, 1, 7, 41, 1.0);
    collect(&mut pool, true, 1.0);
    send_heartbeat(&mut pool, 1, 7, 55, 2.0);
    assert_eq!(deletions(&mut pool, 2.0), [(7, 41)], "the count of the decision stands");
    assert_eq!(deletions(&mut pool, 3.0), [(7, 41)], "repeated until it is done");

    let mut done = heartbeat(7, 56);
    done.removed = Packed(vec![chunk(1)]);
    assert!(pool.heartbeat(DonorId(1), &done, at(4.0)));
    assert!(deletions(&mut pool, 4.0).is_empty());
}

#[test]
fn a_member_has_only_so_many_sessions_at_once() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    send_heartbeat(&mut pool, 1, 7, 1, 0.0);
    let session = |number: u16| {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        SessionId(id)
    };
    for number in 0..4096 {
        assert!(!pool.has_most_sessions(ME), "{number}");
        open(&mut pool, session(number), 0, 0.0).expect("opened");
    }
    assert!(pool.has_most_sessions(ME) && !pool.has_most_sessions(MemberId(ME.0 + 1)));
    pool.end_session(&session(7));
    assert!(pool.has_most_sessions(ME), "what it offered is not accounted for");
    pool.forget_session(&session(7));
    assert!(!pool.has_most_sessions(ME));
}

#[test]
fn a_chunk_that_a_session_offered_is_never_ordered_away_d5() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    send_heartbeat(&mut pool, 1, 7, 1, 0.0);
    open(&mut pool, S1, 0, 0.0).expect("opened");
    open(&mut pool, S2, 0, 0.0).expect("opened");
    assert_eq!(pool.offer(&S1, &[chunk(1), chunk(1)]), Ok(vec![chunk(1)]));
    assert_eq!(pool.offer(&S2, &[chunk(1)]), Ok(vec![chunk(1)]));
    assert_eq!(pool.offer(&S1, &[chunk(1)]), Ok(vec![]));
    // Names take memory, so no more are offered than the session may write chunks.
    let most = 1024;
    let many: Vec<_> = (2..=most + 1).map(chunk).collect();
    assert_eq!(pool.offer(&S1, &many), Err(TooManyOffered::Reserved));
    assert!(!pool.is_offered_by(&S1, &chunk(2)), "all or none of them");
    for session in [S1, S2] {
        collect(&mut pool, true, 1.0);
        assert!(deletions(&mut pool, 1.0).is_empty());
        pool.end_session(&session);
        pool.forget_session(&session);
    }
    collect(&mut pool, true, 1.0);
    assert_eq!(deletions(&mut pool, 1.0).len(), 1);
    let again = InUseAgain { condemned: vec![chunk(1)], doubtful: vec![(chunk(1), DonorId(1))] };
    pool.in_use_again(&again, at(1.0));
    assert!(deletions(&mut pool, 1.0).is_empty(), "in use again");
    assert!(pool.is_asked_about(DonorId(1), &chunk(1)), "it may have been deleted by then");
}

#[test]
fn chunks_no_longer_condemned_get_no_delete_order_d5() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    send_heartbeat(&mut pool, 1, 7, 1, 0.0);
    collect(&mut pool, false, 1.0);
    assert!(deletions(&mut pool, 1.0).is_empty());
}

#[test]
fn orders_expire_with_the_incarnation_d5() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    send_heartbeat(&mut pool, 1, 7, 1, 0.0);
    collect(&mut pool, true, 0.0);
    register(&mut pool, 1, 8, 1.0);
    assert!(deletions(&mut pool, 1.0).is_empty());
    collect(&mut pool, true, 1.0);
    assert!(deletions(&mut pool, 1.0).is_empty(), "the new incarnation has counted nothing yet");
    send_heartbeat(&mut pool, 1, 8, 3, 2.0);
    collect(&mut pool, true, 2.0);
    send_heartbeat(&mut pool, 1, 8, 9, 31.0);
    assert_eq!(deletions(&mut pool, 31.0), [(8, 3)]);
    // The donor refused the deletion, or the order was lost: it is decided anew with what is counted now.
    assert!(deletions(&mut pool, 32.0).is_empty());
    collect(&mut pool, true, 32.0);
    assert_eq!(deletions(&mut pool, 32.0), [(8, 9)]);
}

#[test]
fn a_suspect_is_ordered_nothing_new() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    send_heartbeat(&mut pool, 1, 7, 1, 0.0);
    collect(&mut pool, true, 6.0);
    assert!(deletions(&mut pool, 6.0).is_empty());
}

#[test]
fn a_complaint_is_looked_at_until_the_donor_answers() {
    let mut pool = pool();
    pool.order_verify(DonorId(1), chunk(1), at(0.0));
    assert!(pool.chunk_orders_for(DonorId(1), at(0.0)).is_empty(), "no such donor");
    register(&mut pool, 1, 7, 0.0);
    pool.order_verify(DonorId(1), chunk(1), at(0.0));
    assert_eq!(pool.chunk_orders_for(DonorId(1), at(1.0)).verify.0, [chunk(1)]);
    let mut looked = heartbeat(7, 0);
    looked.sound = Packed(vec![chunk(1)]);
    pool.heartbeat(DonorId(1), &looked, at(2.0));
    assert!(pool.chunk_orders_for(DonorId(1), at(2.0)).is_empty());
}

#[test]
fn donor_counts_after_its_whole_inventory_d6() {
    let mut pool = pool();
    let (donor, incarnation) = (DonorId(1), Incarnation(7));
    register(&mut pool, 1, 7, 0.0);
    assert!(!pool.vouches(donor, at(0.0)));
    assert_eq!(pool.inventory_page(donor, incarnation, 1).ok(), None, "begins with page 0");
    assert_eq!(pool.inventory_page(donor, incarnation, 0), Ok(PageDone::Next));
    pool.inventory_listed(donor, incarnation, &[5, 3].map(ChunkId::from_catalog));
    assert_eq!(pool.inventory_page(donor, incarnation, 1), Ok(PageDone::Next));
    assert_eq!(pool.inventory_page(donor, incarnation, 1), Ok(PageDone::Repeated));
    assert!(pool.inventory_page(donor, incarnation, 3).is_err());
    assert!(pool.inventory_page(donor, Incarnation(6), 2).is_err(), "another incarnation");
    pool.inventory_listed(donor, incarnation, &[ChunkId::from_catalog(1)]);
    assert_eq!(pool.inventoried(donor, incarnation), [1, 3, 5].map(ChunkId::from_catalog));
    assert!(!pool.vouches(donor, at(0.0)));
    pool.inventory_done(donor, incarnation);
    assert!(pool.vouches(donor, at(0.0)));
    register(&mut pool, 1, 8, 1.0);
    assert!(!pool.vouches(donor, at(1.0)), "a new incarnation begins anew");
}

#[test]
fn chunks_arriving_during_an_inventory_are_not_missing_d6() {
    let mut pool = pool();
    let (donor, incarnation) = (DonorId(1), Incarnation(7));
    register(&mut pool, 1, 7, 0.0);
    // The chunk is reported before the first page, though no page lists it.
    let added = Packed(vec![Holding { name: chunk(1), len: 1 }.into()]);
    pool.heartbeat(donor, &Heartbeat { added, ..heartbeat(7, 1) }, at(0.5));
    pool.inventory_page(donor, incarnation, 0).expect("a page");
    let acknowledged = chunk(2);
    pool.acknowledged([(donor, incarnation, &acknowledged)].into_iter());
    let unlisted = pool.unlisted(donor, incarnation, &[chunk(1), chunk(2), chunk(3)]);
    assert_eq!(unlisted.names, [chunk(3)]);
    pool.acknowledged([(donor, incarnation, &chunk(4))].into_iter());
    pool.acknowledged([(donor, Incarnation(6), &chunk(3))].into_iter());
    assert!(unlisted.is_current(), "another one arrived, and an earlier incarnation had one");
    pool.acknowledged([(donor, incarnation, &chunk(3))].into_iter());
    assert!(!unlisted.is_current(), "it has arrived by now");
    assert!(pool.unlisted(donor, incarnation, &unlisted.names).names.is_empty());
    assert!(
        pool.unlisted(donor, Incarnation(6), &[chunk(5)]).names.is_empty(),
        "another incarnation"
    );
    let unlisted = pool.unlisted(donor, incarnation, &[chunk(5)]);
    register(&mut pool, 1, 8, 1.0);
    assert!(!unlisted.is_current(), "a new incarnation lists anew");
}

#[test]
fn bad_copy_reports_are_rate_limited() {
    let mut pool = pool();
    let at = |seconds: u64| Tick::from_secs(100 + seconds);
    let mut heard = |member, now| (0..100).filter(|_| pool.hears(member, now)).count();
    assert_eq!(heard(ME, at(0)), 32);
    assert_eq!(heard(ME, at(0)), 0);
    assert_eq!(heard(ME, at(5)), 5);
    assert_eq!(heard(MemberId(ME.0 + 1), at(5)), 32, "each for itself");
    assert_eq!(heard(ME, at(1000)), 32);
}

#[test]
fn unknown_chunks_are_given_up_for_one_list_of_each_donor_that_is_there() {
    let (mut pool, now) = (pool(), at(1.0));
    let all = [DonorId(1), DonorId(2)];
    let list = |pool: &mut Pool, donor: DonorId| {
        let incarnation = Incarnation(1);
        assert_eq!(pool.inventory_page(donor, incarnation, 0), Ok(PageDone::Next));
        assert!(!pool.is_to_list(donor), "it does");
        pool.inventory_done(donor, incarnation);
    };
    for donor in all {
        register(&mut pool, donor.0, 1, 0.0);
        list(&mut pool, donor);
    }
    assert!(!all.iter().any(|donor| pool.is_to_list(*donor)), "nobody gave anything up");

    pool.add_donor(DonorId(99), "away", None);
    assert_eq!(pool.give_up_unknown(now), (all.to_vec(), vec![DonorId(99)]));
    for donor in all {
        assert!(pool.is_to_list(donor) && pool.is_given_up(donor));
        list(&mut pool, donor);
        assert!(!pool.is_given_up(donor), "it has listed all");
    }

    // A list that had begun before is not enough: its first pages were taken as they were.
    let _ = pool.inventory_page(DonorId(1), Incarnation(1), 0);
    pool.give_up_unknown(now);
    pool.inventory_done(DonorId(1), Incarnation(1));
    assert!(pool.is_to_list(DonorId(1)));
    // Another incarnation of a donor may hold other things, and so may another catalog.
    register(&mut pool, 1, 2, 2.0);
    assert!(!pool.is_given_up(DonorId(1)) && pool.is_given_up(DonorId(2)));
    pool.keep_unknown();
    assert!(!all.iter().any(|donor| pool.is_given_up(*donor)));
}

#[test]
fn briefly_silent_donor_counts_and_dead_one_needs_a_receipt_d3() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    pool.inventory_done(DonorId(1), Incarnation(7));
    let keeps_and_proves = |pool: &Pool, seconds| {
        let view = pool.view(at(seconds));
        (view.keeps(DonorId(1), &chunk(1)), view.proves(DonorId(1), &chunk(1)))
    };
    assert_eq!(keeps_and_proves(&pool, 100.0), (true, true));
    assert_eq!(keeps_and_proves(&pool, 601.0), (false, true));
    pool.remove_donor(DonorId(1));
    assert_eq!(keeps_and_proves(&pool, 0.0), (false, false));
}

#[test]
fn while_a_donor_is_about_to_be_removed_no_file_counts_on_it() {
    let mut pool = pool();
    for donor in 1..=2 {
        register(&mut pool, donor, 7, 0.0);
    }
    let counts = |pool: &Pool| {
        let proves = pool.view(at(0.0)).proves(DonorId(1), &chunk(1));
        assert_eq!(pool.takes(DonorId(1), at(0.0)), proves, "and nothing new goes there");
        proves
    };
    assert!(counts(&pool));
    pool.condemn_donor(DonorId(1));
    pool.condemn_donor(DonorId(1));
    assert!(!counts(&pool));
    pool.spare_donor(DonorId(1));
    assert!(!counts(&pool), "another still looks");
    pool.spare_donor(DonorId(1));
    assert!(counts(&pool));
    pool.condemn_donor(DonorId(2));
    pool.remove_donor(DonorId(2));
    pool.spare_donor(DonorId(2));
    assert!(!pool.knows_donor(DonorId(2)));
}
