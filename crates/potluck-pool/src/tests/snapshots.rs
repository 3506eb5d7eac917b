//! Tests of what a snapshot says of donors after things happened to them.

use super::{at, chunk, heartbeat, pool, register};
use crate::{DonorSnapshot, Giving, Pool};
use potluck_core::chunk::PARTS;
use potluck_core::ids::{DonorId, Incarnation};
use potluck_wire::control::Heartbeat;
use std::collections::BTreeSet;
use std::sync::Mutex;

#[test]
fn snapshot_excludes_donors_with_later_losses() {
    let mut pool = pool();
    register(&mut pool, 2, 9, 0.0);
    let mut outdates = |what: &str, outdates: bool, happens: &mut dyn FnMut(&mut Pool)| {
        let snapshot = pool.snapshot(at(1.0));
        let knows = |donor| snapshot.current().is_live(DonorId(donor));
        let knew = knows(1);
        happens(&mut pool);
        assert_eq!(knew && !knows(1), outdates, "{what}");
        assert!(knows(2), "{what}");
    };
    let donor = DonorId(1);
    outdates("one that nothing counted on", false, &mut |pool| {
        register(pool, 1, 7, 0.0);
    });
    outdates("its inventory", false, &mut |pool| pool.inventory_done(donor, Incarnation(7)));
    outdates("a heartbeat", false, &mut |pool| {
        pool.heartbeat(donor, &heartbeat(7, 1), at(1.0));
    });
    outdates("a removal", true, &mut |pool| pool.condemn_donor(donor));
    outdates("that is taken back", false, &mut |pool| pool.spare_donor(donor));
    outdates("a quarantine", true, &mut |pool| pool.quarantine(donor, Some("it lied".into())));
    outdates("a give-back", true, &mut |pool| {
        let giving = Giving { start: 0, at_once: false, lose: [].into(), since: at(1.0) };
        pool.give_back(donor, Some(giving));
    });
    outdates("a part of it", true, &mut |pool| pool.leave_below(donor, 9, 0));
    outdates("another incarnation", true, &mut |pool| {
        register(pool, 1, 8, 1.0);
    });
    outdates("that registers again and again", false, &mut |pool| {
        register(pool, 1, 8, 1.0);
    });
    outdates("a death", true, &mut |pool| {
        pool.heartbeat(DonorId(2), &heartbeat(9, 1), at(999.0));
        pool.pass_time(at(1000.0));
    });
    outdates("the end", true, &mut |pool| pool.remove_donor(donor));
}

/// A receipt from before the restart stands for a store that may be another by now.
#[test]
fn restarted_donor_does_not_count_for_earlier_work_d3() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    register(&mut pool, 2, 9, 0.0);
    let began = pool.losses();
    register(&mut pool, 1, 8, 1.0);
    pool.inventory_done(DonorId(1), Incarnation(8));
    let known =
        |snapshot: DonorSnapshot| [1, 2].map(|donor| snapshot.current().is_live(DonorId(donor)));
    let snapshot = pool.snapshot(at(1.0)).for_work_begun_at(began);
    assert_eq!(snapshot.restarted(), [DonorId(1)].into());
    assert_eq!(known(snapshot), [false, true]);
    assert_eq!(known(pool.snapshot(at(1.0))), [true, true], "what begins now does");
}

/// A transaction of the catalog asks a snapshot while calls change the pool, and may run again.
#[test]
fn a_snapshot_is_current_while_somebody_else_has_the_pool() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    pool.inventory_done(DonorId(1), Incarnation(7));
    let pool = Mutex::new(pool);
    let snapshot = pool.lock().expect("held by nobody").snapshot(at(1.0));
    let lives = || {
        let judge = || snapshot.current().is_live(DonorId(1));
        std::thread::scope(|scope| scope.spawn(judge).join().expect("judged"))
    };
    let mut held = pool.lock().expect("held by nobody");
    assert!(lives());
    held.quarantine(DonorId(1), Some("it lied".into()));
    assert!(!lives(), "what happens to it is seen at once");
    assert!(!lives(), "and each time");
}

#[test]
fn copies_at_a_donor_under_removal_justify_no_deletion() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    pool.inventory_done(DonorId(1), Incarnation(7));
    let counts = |pool: &Pool| {
        let snapshot = pool.snapshot(at(1.0));
        snapshot.current().counts(DonorId(1), &chunk(1))
    };
    assert!(counts(&pool));
    pool.condemn_donor(DonorId(1));
    assert!(!counts(&pool));
    assert!(pool.view(at(1.0)).counts(DonorId(1), &chunk(1)), "who looks sees it there");
    pool.spare_donor(DonorId(1));
    assert!(counts(&pool));
}

#[test]
fn relies_on_agrees_with_the_full_view() {
    let mut pool = pool();
    let mut seen = BTreeSet::new();
    let mut alike = |pool: &Pool, now: f64| {
        let view = pool.view(at(now));
        for (donor, name) in (0..4).flat_map(|donor| (0..64).map(move |n| (donor, chunk(n)))) {
            let counts = pool.relies_on(DonorId(donor), &name, at(now));
            assert_eq!(counts, view.counts(DonorId(donor), &name), "{donor} at {now}");
            seen.insert((donor, counts));
        }
    };
    for donor in 1..4 {
        register(&mut pool, donor, 7, 0.0);
        alike(&pool, 0.0);
    }
    for donor in 1..4 {
        pool.inventory_done(DonorId(donor), Incarnation(7));
        alike(&pool, 0.0);
    }
    // Of donor 1 half of all copies leave.
    let over = Heartbeat { excess: 1, ..heartbeat(7, 1) };
    pool.heartbeat(DonorId(1), &over, at(1.0));
    pool.leave_below(DonorId(1), PARTS / 2, 0);
    alike(&pool, 1.0);
    let giving = Giving { start: 0, at_once: false, lose: [].into(), since: at(1.0) };
    pool.give_back(DonorId(2), Some(giving));
    alike(&pool, 1.0);
    pool.quarantine(DonorId(3), Some("it lied".into()));
    alike(&pool, 1.0);
    alike(&pool, 100.0);
    pool.remove_donor(DonorId(1));
    alike(&pool, 100.0);
    let both = (1..4).flat_map(|donor| [(donor, false), (donor, true)]);
    assert!(seen.into_iter().eq([(0, false)].into_iter().chain(both)));
}
