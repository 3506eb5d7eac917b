//! Tests of how long a silent donor is waited for.

use super::{at, heartbeat, pool, register, send_heartbeat};
use crate::{DonorRecord, Pool};
use potluck_core::ids::{DonorId, Incarnation};
use potluck_core::lend_mode::LendMode;
use potluck_core::repair_plan::Worth;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{DonorDoes, DonorState, Heartbeat};

#[test]
fn donor_back_after_its_grace_gets_a_new_grace_a3() {
    let mut pool = pool();
    let (donor, incarnation) = (DonorId(1), Incarnation(7));
    let worth = |pool: &Pool, now| pool.view(at(now)).get(donor).expect("known").worth;
    register(&mut pool, 1, 7, 0.0);
    pool.inventory_done(donor, incarnation);
    assert_eq!(pool.pass_time(at(700.0)).dead, [donor]);
    assert_eq!(worth(&pool, 700.0), Worth::Lost);
    assert!(
        send_heartbeat(&mut pool, 1, 7, 0, 701.0),
        "the same incarnation: it registers and lists nothing"
    );
    assert_eq!(pool.pass_time(at(701.0)).back, [donor]);
    assert_eq!(worth(&pool, 701.0), Worth::Counts);
    pool.pass_time(at(711.0));
    assert_eq!(worth(&pool, 711.0), Worth::Silent, "it has its grace again");

    // A new incarnation counts for nothing before it has listed (promise D6), silent or not.
    pool.pass_time(at(1400.0));
    register(&mut pool, 1, 8, 1401.0);
    pool.pass_time(at(1401.0));
    assert_eq!(worth(&pool, 1401.0), Worth::Lost);
    pool.pass_time(at(1411.0));
    assert_eq!(worth(&pool, 1411.0), Worth::Lost);
    pool.inventory_done(donor, Incarnation(8));
    assert_eq!(worth(&pool, 1411.0), Worth::Silent);
}

#[test]
fn claimed_grace_is_capped_by_the_longest_absence() {
    let mut pool = pool();
    let (donor, hour) = (DonorId(1), 3600.0);
    register(&mut pool, 1, 7, 0.0);
    let mut hours_until_dead = |grace: f64| {
        pool.donors.get_mut(donor).expect("known").record.grace = Some(at(grace * hour));
        let state = |hours| pool.donors.state(donor, at(f64::from(hours) * hour), &pool.limits);
        (1..24 * 400).find(|hours| state(*hours) == DonorState::Dead)
    };
    assert_eq!(hours_until_dead(0.0), Some(1), "after the pool's ten minutes");
    assert_eq!(hours_until_dead(5.0), Some(6));
    assert_eq!(hours_until_dead(365.0 * 24.0), Some(25), "after the day that the pool grants");
}

#[test]
fn donor_that_is_off_is_away_for_no_longer_than_granted() {
    let mut pool = pool();
    let (donor, hour) = (DonorId(1), 3600.0);
    register(&mut pool, 1, 7, 0.0);
    pool.inventory_done(donor, Incarnation(7));
    let does = |mode, for_ms| Heartbeat {
        does: DonorDoes { mode, for_ms, stops: false },
        ..heartbeat(7, 0)
    };
    // It claims a year, and its heartbeats go on.
    let off = does(LendMode::Off, Some(365 * 24 * 3_600_000));
    let mut state = |now: f64| {
        assert!(pool.heartbeat(donor, &off, at(now)), "its incarnation goes on");
        (pool.donors.state(donor, at(now), &pool.limits), pool.takers(at(now)).len())
    };
    assert_eq!(state(1.0), (DonorState::Away, 0), "at once");
    assert_eq!(state(23.0 * hour), (DonorState::Away, 0));
    assert_eq!(state(25.0 * hour), (DonorState::Dead, 0), "the pool grants a day");
    // It goes on, politely: it is live, and repair puts nothing there.
    pool.heartbeat(donor, &does(LendMode::Polite, None), at(26.0 * hour));
    assert_eq!(pool.donors.state(donor, at(26.0 * hour), &pool.limits), DonorState::Live);
    assert!(pool.takes(donor, at(26.0 * hour)) && !pool.takes_repair(donor));
    pool.heartbeat(donor, &does(LendMode::Full, None), at(27.0 * hour));
    assert!(pool.takes_repair(donor));
}

#[test]
fn restarted_manager_ignores_donors_that_never_lent() {
    let mut pool = pool();
    for donor in 1..=4 {
        pool.add_donor(DonorId(donor), "d", None);
    }
    let heard = |seconds| DonorRecord { silent_before: Some(at(seconds)), ..Default::default() };
    pool.recall(DonorId(1), heard(1.0));
    pool.recall(DonorId(2), heard(61.0));
    let addresses: Addresses = "10.0.0.7:7000".parse().expect("an address");
    pool.recall(DonorId(3), DonorRecord { addresses, ..Default::default() });
    pool.expect_donors();
    let expected = (1..=4).filter(|donor| pool.expects_report(DonorId(*donor)));
    assert_eq!(expected.collect::<Vec<_>>(), [1, 3], "it may have registered just before");
}
