//! Tests which jobs wait, which are given up, and what is said of them.

use super::{Purpose, UNREACHABLE};
use crate::redundancy::Make;
use crate::redundancy::queue::RepairSums;
use crate::redundancy::{Encode, Findings, RepairJob, ShardAt};
use crate::tests::{MIB, at, chunk, pool, register, send_heartbeat};
use crate::{Pool, PoolLimits};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::ids::{DonorId, Incarnation, VersionId};
use potluck_wire::control::{Holding, Task, Work};
use std::collections::BTreeSet;

const CHUNK: u64 = 4 * MIB;
/// The room on a disk that a chunk takes.
const ON_DISK: u64 = CHUNK + 4096;

/// Makes a pool of so many live donors, with room for 10,000 chunks each.
fn with_donors(donors: u32) -> Pool {
    let mut pool = pool();
    for donor in 1..=donors {
        register(&mut pool, donor, 7, 0.0);
        pool.donors.registration_mut(DonorId(donor)).expect("registered").room = 10_000 * CHUNK;
    }
    pool
}

fn shard(n: u64, from: u32) -> ShardAt {
    let from = vec![DonorId(from)];
    ShardAt { position: 0, name: chunk(n), len: CHUNK as u32, at: from.clone(), from }
}

/// Makes a job for a chunk that only `from` has and that lacks a copy.
fn job(n: u64, tolerates: u32, from: u32) -> RepairJob {
    RepairJob {
        unit: (VersionId(n), 0, false),
        kind: ChunkKind::Data,
        tolerates,
        over_quota: false,
        group: None,
        shards: vec![shard(n, from)],
        make: vec![Make { shard: 0, missing: false }],
        used: vec![(DonorId(from), from)],
    }
}

fn found(jobs: impl Iterator<Item = RepairJob>) -> Findings {
    let mut findings = Findings::default();
    for (number, job) in jobs.enumerate() {
        findings.queue.insert((job.tolerates, number as u64), job);
    }
    findings
}

/// Returns the names of the chunks that donors are making.
fn making(pool: &Pool, donors: u32) -> BTreeSet<ChunkName> {
    let tasks = (1..=donors).flat_map(|donor| pool.repairs.tasks.of(DonorId(donor)));
    let chunk = |purpose: &Purpose| match purpose {
        Purpose::Make { chunk, .. } => Some(*chunk),
        _ => None,
    };
    tasks.filter_map(|task| chunk(&task.purpose)).collect()
}

/// Has every donor send a heartbeat and answer its tasks as done.
fn work(pool: &mut Pool, donors: u32, now: f64) {
    for donor in 1..=donors {
        assert!(send_heartbeat(pool, donor, 7, 0, now));
        for Task { number, .. } in pool.tasks_for(DonorId(donor)) {
            if let Some(Purpose::Make { chunk, len, .. }) =
                pool.task_answered(DonorId(donor), number, at(now))
            {
                pool.chunk_made(chunk, len, at(now));
            }
        }
    }
}

#[test]
fn slow_source_does_not_block_other_repairs_a3() {
    // Donor 1 may be asked for one chunk in four seconds, and so may donor 2.
    let limits = PoolLimits { repair_rate: 400 * MIB, repair_donor_rate: MIB, ..pool().limits };
    let mut pool = with_donors(6);
    pool.limits = limits;
    pool.repairs = super::Repairs::new(limits.repair_rate, limits.repair_donor_rate, at(0.0));
    let slow = (0..10_000).map(|n| job(n, 0, 1));
    let others = (10_000..10_100).map(|n| job(n, 1, 2));
    pool.repairs.take_findings(&mut found(slow.chain(others)), at(0.0), at(0.0));
    let mut seen = BTreeSet::new();
    for step in 0..24 {
        let now = f64::from(step) / 4.0;
        pool.hand_out(at(now), &|_| None);
        seen.extend(making(&pool, 6));
        if step % 4 == 0 {
            work(&mut pool, 6, now);
        }
    }
    let of = |range: std::ops::Range<u64>| range.filter(|n| seen.contains(&chunk(*n))).count();
    assert!(of(0..10_000) >= 1, "the most urgent go on");
    assert!(of(10_000..10_100) >= 1, "and so does what another donor has");
}

#[test]
fn chunks_whose_only_source_sends_nothing_are_stuck() {
    let mut pool = with_donors(4);
    pool.leave_alone(DonorId(1), at(0.0));
    let silent = (0..3000).map(|n| job(n, 0, 1));
    let others = (3000..3010).map(|n| job(n, 1, 2));
    pool.repairs.take_findings(&mut found(silent.chain(others)), at(0.0), at(0.0));
    for step in 0..8 {
        pool.hand_out(at(f64::from(step) / 4.0), &|_| None);
    }
    assert_eq!(making(&pool, 4), (3000..3010).map(chunk).collect());
    let state = pool.repair_state(at(2.0));
    assert_eq!((state.stuck, state.stuck_why.as_deref()), (3000, Some(UNREACHABLE)));
    assert!(pool.repairs.is_stuck(), "so that it is looked at again soon");
    assert_eq!(state.bytes_left, 10 * CHUNK, "and the others are all that has an end");
}

#[test]
fn one_failed_task_of_the_only_source_raises_no_alarm() {
    let mut pool = with_donors(3);
    pool.let_rest(DonorId(1), at(0.0));
    pool.let_rest(DonorId(1), at(0.1)); // a task that was under way at the same time
    pool.repairs.take_findings(&mut found((0..10).map(|n| job(n, 0, 1))), at(0.0), at(0.0));
    pool.hand_out(at(0.5), &|_| None);
    assert_eq!(making(&pool, 3).len(), 0, "it rests for a moment");
    assert_eq!(pool.repair_state(at(0.5)).stuck, 0);
    pool.hand_out(at(2.0), &|_| None);
    assert_eq!(making(&pool, 3).len(), 10, "without another scan");

    // If it goes on failing, that is told, until it does what it is asked for.
    for now in [3.0, 8.0, 17.0] {
        assert!(!pool.repairs.is_failing(DonorId(1), at(now)));
        pool.let_rest(DonorId(1), at(now));
    }
    assert!(pool.repairs.is_failing(DonorId(1), at(17.0)));
    pool.worked(DonorId(1), at(18.0));
    assert!(pool.repairs.is_failing(DonorId(1), at(18.0)), "that was asked of it before");
    pool.worked(DonorId(1), at(50.0));
    pool.let_rest(DonorId(1), at(51.0));
    assert!(!pool.repairs.is_failing(DonorId(1), at(51.0)), "it begins anew");
    pool.worked(DonorId(1), at(51.5));
    assert!(!pool.repairs.is_left_alone(DonorId(1), at(51.5)), "it failed only once");
}

#[test]
fn donor_with_a_wrong_answer_is_backed_off() {
    let mut pool = with_donors(3);
    pool.leave_alone(DonorId(1), at(0.0));
    pool.worked(DonorId(1), at(0.1));
    assert!(pool.repairs.is_left_alone(DonorId(1), at(0.2)));
}

#[test]
fn registration_resets_failed_task_backoff() {
    let mut pool = with_donors(3);
    let give = |pool: &mut Pool| pool.order_scrub(DonorId(2), 1, at(0.0));
    give(&mut pool);
    let before = pool.repairs.tasks.last();
    pool.source_is_away(DonorId(1), before, at(1.0));
    assert!(pool.repairs.is_left_alone(DonorId(1), at(2.0)));
    register(&mut pool, 1, 8, 2.0);
    assert!(!pool.repairs.is_left_alone(DonorId(1), at(2.0)), "it is there");
    pool.source_is_away(DonorId(1), before, at(3.0));
    assert!(!pool.repairs.is_left_alone(DonorId(1), at(3.0)), "it was asked for elsewhere");
    give(&mut pool);
    pool.source_is_away(DonorId(1), pool.repairs.tasks.last(), at(4.0));
    assert!(pool.repairs.is_left_alone(DonorId(1), at(4.0)), "it is away again");
}

#[test]
fn conversion_does_not_use_reserved_room() {
    let mut pool = with_donors(3);
    let goal = |n| RepairJob { unit: (VersionId(n), 0, true), ..job(n, 0, 1) };
    // There is room for one chunk, at one donor; the file that lacks a copy survives one more
    // death.
    for full in [1, 3] {
        pool.donors.registration_mut(DonorId(full)).expect("registered").room = 0;
    }
    pool.donors.registration_mut(DonorId(2)).expect("registered").room = ON_DISK;
    let mut findings = found([goal(1), goal(2), job(3, 1, 1)].into_iter());
    pool.repairs.take_findings(&mut findings, at(0.0), at(0.0));
    assert_eq!(pool.repair_state(at(0.0)).queued, [0, 1], "no goal is called endangered");
    pool.hand_out(at(0.0), &|_| None);
    assert_eq!(making(&pool, 3), [chunk(3)].into());

    // Copies that were promised lack room, so goals wait, and are not handed out where they would
    // fit.
    let big = |n| {
        let mut big = job(n, 1, 1);
        big.shards[0].len = 2 * CHUNK as u32;
        big
    };
    let mut pool = with_donors(2);
    pool.donors.registration_mut(DonorId(2)).expect("registered").room = ON_DISK;
    let mut findings = found([big(3), goal(1)].into_iter());
    pool.repairs.take_findings(&mut findings, at(0.0), at(0.0));
    (0..4).for_each(|step| pool.hand_out(at(f64::from(step) / 4.0), &|_| None));
    let state = pool.repair_state(at(1.0));
    assert_eq!((making(&pool, 2).len(), state.stuck, state.changing_stuck), (0, 1, 0));

    // A goal alone that finds no room is stuck, and nothing that was promised is.
    pool.donors.registration_mut(DonorId(2)).expect("registered").room = 0;
    pool.repairs.take_findings(&mut found([goal(1)].into_iter()), at(2.0), at(2.0));
    pool.hand_out(at(2.0), &|_| None);
    let state = pool.repair_state(at(2.0));
    assert_eq!((state.stuck, state.changing_stuck), (0, 1));
    assert_eq!(state.changing_stuck_why.as_deref(), Some(super::NO_ROOM));
    assert!(pool.repairs.is_stuck(), "so that it is looked at again soon");
}

#[test]
fn work_beyond_queue_capacity_is_counted_until_the_next_scan() {
    let mut pool = with_donors(4);
    let mut findings = found((0..2).map(|n| job(n, 1, 1)));
    (findings.lacking, findings.lacking_bytes) = (vec![0, 50, 30], 80 * CHUNK);
    findings.more = true;
    pool.repairs.take_findings(&mut findings, at(0.0), at(0.0));
    let state = pool.repair_state(at(0.0));
    assert_eq!((state.queued, state.more), (vec![0, 50, 30], 78));
    assert_eq!(state.bytes_left, 80 * CHUNK);
    assert_eq!(state.eta_seconds, Some(80 * CHUNK / (400 * MIB) + 1), "by the budget");
    pool.hand_out(at(0.0), &|_| None);
    work(&mut pool, 4, 0.5);
    let state = pool.repair_state(at(1.0));
    assert_eq!((state.made, state.queued, state.more), (2, vec![0, 48, 30], 78));
    assert_eq!(state.bytes_left, 78 * CHUNK);
    assert!(pool.repairs.wants_more());
    pool.repairs.take_findings(&mut Findings::default(), at(2.0), at(2.0));
    assert_eq!(pool.repairs.beyond, RepairSums::default());
}

#[test]
fn a_copy_that_serves_several_files_is_counted_once() {
    let mut pool = with_donors(4);
    let of = |version, tolerates| RepairJob {
        unit: (VersionId(version), 0, false),
        ..job(9, tolerates, 1)
    };
    let two = vec![Make { shard: 0, missing: false }; 2];
    let jobs = [of(1, 0), of(2, 1), RepairJob { make: two, ..of(3, 1) }, job(7, 1, 1)];
    pool.repairs.take_findings(&mut found(jobs.into_iter()), at(0.0), at(0.0));
    let state = pool.repair_state(at(0.0));
    assert_eq!(state.queued, [1, 2], "as urgent as for whom it is most urgent");
    assert_eq!((state.bytes_left, state.more), (3 * CHUNK, 0));
    pool.hand_out(at(0.0), &|_| None);
    let state = pool.repair_state(at(0.0));
    let left = state.queued.iter().sum::<u64>();
    assert_eq!((state.under_way, left, state.bytes_left), (2, 1, 3 * CHUNK));
    work(&mut pool, 4, 0.5);
    let state = pool.repair_state(at(1.0));
    assert_eq!((state.made, state.bytes_left), (2, CHUNK), "what is made is not left");
}

#[test]
fn conversion_progress_has_a_rate_and_an_estimated_end() {
    let mut pool = with_donors(4);
    let goal = RepairJob { unit: (VersionId(1), 0, true), ..job(1, 0, 1) };
    let group = Encode {
        version: VersionId(2),
        group: 0,
        ec: "2+1".parse().expect("a code"),
        shards: vec![shard(5, 1), ShardAt { position: 1, ..shard(6, 2) }],
    };
    let mut findings = found([goal].into_iter());
    findings.encode.push(group.clone());
    findings.lacking_goal_bytes = 500 * CHUNK;
    pool.repairs.take_findings(&mut findings, at(0.0), at(0.0));
    let state = pool.repair_state(at(0.0));
    assert_eq!((state.bytes_left, state.eta_seconds), (0, Some(0)), "nothing promised lacks");
    assert_eq!(state.changing_eta_seconds, Some(5), "by the budget");
    pool.parity_made(&group, at(1.0));
    let state = pool.repair_state(at(1.0));
    assert_eq!(state.rate, CHUNK / 10, "parity counts in the rate");
    assert_eq!(state.changing_eta_seconds, Some((500 * CHUNK).div_ceil(CHUNK / 10)));
    pool.repairs.take_findings(&mut Findings::default(), at(2.0), at(2.0));
    assert_eq!(pool.repair_state(at(2.0)).changing_eta_seconds, None, "not known yet");
}

#[test]
fn queued_tasks_do_not_expire_behind_others() {
    let mut pool = with_donors(2);
    let jobs = (0..40).map(|n| RepairJob { over_quota: true, ..job(n, 1, 1) });
    let mut findings = Findings::default();
    findings.over_quota.extend(jobs.enumerate().map(|(n, job)| ((1, n as u64), job)));
    pool.repairs.take_findings(&mut findings, at(0.0), at(0.0));
    pool.hand_out(at(0.0), &|_| None);
    assert_eq!(making(&pool, 2).len(), 40);
    let mut tasks = pool.tasks_for(DonorId(2));
    assert!(tasks.iter().all(|task| matches!(task.work, Work::Copy { .. })));
    // A task is answered every ten seconds, but the fourth never is.
    let withheld = tasks.remove(3).number;
    for (n, task) in tasks.iter().enumerate() {
        let now = (n as f64 + 1.0) * 10.0;
        pool.drop_expired(at(now));
        assert!(pool.task_answered(DonorId(2), task.number, at(now)).is_some(), "after {now} s");
        let kept = pool.repairs.tasks.of(DonorId(2)).count();
        assert!(now < 90.0 || kept == tasks.len() - n - 1, "{withheld} is given to others");
    }
    assert!(pool.repairs.idle());
    assert!(pool.repairs.wants_more(), "as soon as it is looked for");
}

#[test]
fn parity_that_is_being_computed_is_not_shown_as_unknown() {
    let mut pool = with_donors(4);
    (1..=4).for_each(|donor| assert!(send_heartbeat(&mut pool, donor, 7, 0, 0.0)));
    let ec = "2+1".parse().expect("a code");
    let group = Encode { version: VersionId(1), group: 0, ec, shards: vec![shard(1, 4)] };
    let mut findings = Findings::default();
    findings.encode.push(group);
    pool.repairs.take_findings(&mut findings, at(0.0), at(0.0));
    pool.hand_out(at(0.0), &|_| None);
    let (asked, others): (Vec<u32>, Vec<u32>) =
        (1..=4).partition(|donor| pool.repairs.computes(DonorId(*donor)));
    assert!(!asked.is_empty() && !others.is_empty(), "{asked:?} compute, {others:?} do not");
    let parity = Holding { name: chunk(77), len: CHUNK as u32 };
    for donor in [asked[0], others[0]] {
        pool.unknown_at(DonorId(donor), Incarnation(7), &[parity]);
    }
    let unclaimed = |pool: &Pool, donor: u32| pool.unclaimed(DonorId(donor));
    assert_eq!((unclaimed(&pool, asked[0]), unclaimed(&pool, others[0])), (0, 1));
    // The catalog learns of it.
    for donor in [asked[0], others[0]] {
        pool.claimed(DonorId(donor), 1);
    }
    assert_eq!((unclaimed(&pool, asked[0]), unclaimed(&pool, others[0])), (0, 0));
}

/// Hands out a group whose parity is to be computed, and has the donors answer; returns the donors that were asked.
fn computing(pool: &mut Pool, group: &Encode, now: f64) -> Vec<u32> {
    (1..=4).for_each(|donor| assert!(send_heartbeat(pool, donor, 7, 0, now)));
    let mut findings = Findings::default();
    findings.encode.push(group.clone());
    pool.repairs.take_findings(&mut findings, at(now), at(now));
    pool.hand_out(at(now), &|_| None);
    let asked = |donor: &u32| pool.repairs.tasks.count(DonorId(*donor)) > 0;
    let asked: Vec<u32> = (1..=4).filter(asked).collect();
    assert_eq!(pool.repairs.encodings.awaited().len(), asked.len() / 2);
    work(pool, 4, now);
    assert!(pool.repairs.idle());
    asked
}

#[test]
fn donors_with_differing_parity_are_not_paired_again() {
    let mut pool = with_donors(4);
    let ec = "2+1".parse().expect("a code");
    let group = Encode { version: VersionId(1), group: 0, ec, shards: vec![shard(1, 4)] };
    let mut pairs = BTreeSet::new();
    for round in 0..6 {
        let now = f64::from(round);
        let pair: [u32; 2] = computing(&mut pool, &group, now).try_into().expect("two");
        pool.parity_differs(group.key(), pair.map(DonorId), at(now));
        pairs.insert(pair);
        match round {
            1 => assert_eq!(pairs, [[1, 2], [3, 4]].into(), "whoever is wrong, two are right"),
            3 => assert_eq!(pairs, [[1, 2], [1, 3], [2, 4], [3, 4]].into(), "of any two wrong"),
            _ => {}
        }
    }
    assert_eq!(pairs.len(), 6, "everybody was asked with everybody");
    assert!(computing(&mut pool, &group, 7.0).is_empty());
    assert!(pool.repairs.is_stuck());
    let trust = |pool: &mut Pool, why: Option<&str>| {
        (2..=4).for_each(|donor| pool.quarantine(DonorId(donor), why.map(Into::into)));
    };
    trust(&mut pool, Some("it served wrong bytes"));
    assert!(computing(&mut pool, &group, 39.0).is_empty(), "nor is one of them believed alone");
    trust(&mut pool, None);
    assert_eq!(computing(&mut pool, &group, 40.0), [1, 2], "for a while only");
}

#[test]
fn the_rate_needs_no_more_memory_than_its_window() {
    let mut pool = with_donors(1);
    for n in 0..1000 {
        pool.chunk_made(chunk(n), CHUNK as u32, at(n as f64));
    }
    assert!(pool.repairs.lately.len() <= 12, "{}", pool.repairs.lately.len());
    assert_eq!(pool.repair_state(at(999.0)).rate, 11 * CHUNK / 10);
}

#[test]
fn conversion_reports_that_it_waits_for_reserved_room() {
    let mut pool = with_donors(2);
    let goal = RepairJob { unit: (VersionId(1), 0, true), ..job(1, 0, 1) };
    let mut big = job(3, 1, 1);
    big.shards[0].len = 2 * CHUNK as u32;
    pool.donors.registration_mut(DonorId(2)).expect("registered").room = ON_DISK;
    let why = |pool: &mut Pool, now| {
        // The first hand-out still has to try what is promised.
        (0..2).for_each(|_| pool.hand_out(at(now), &|_| None));
        pool.repair_state(at(now)).changing_stuck_why
    };
    pool.repairs.take_findings(&mut found([big, goal.clone()].into_iter()), at(0.0), at(0.0));
    assert_eq!(why(&mut pool, 0.0).as_deref(), Some(crate::redundancy::repairs::PROMISED_FIRST));
    pool.repairs.take_findings(&mut found([goal].into_iter()), at(1.0), at(1.0));
    assert_eq!(why(&mut pool, 1.0), None, "nothing else is wanted any more");
    assert_eq!(making(&pool, 2), [chunk(1)].into());
}
