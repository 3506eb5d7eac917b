//! What write sessions may store.

use super::{MIB, S1, S2, at, open, pool, register, send_heartbeat};
use crate::Pool;
use potluck_core::ids::DonorId;

#[test]
fn all_tickets_of_a_session_together_are_bounded_by_what_was_promised_to_it() {
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
    // A fast donor may take all, and nobody gets more than there is, whoever asks how often.
    while budgets(&pool)[&fast] < promised {
        pool.allow_more(&S1, &[fast]);
        assert!(budgets(&pool)[&fast] > before, "{before} of {promised}");
        before = budgets(&pool)[&fast];
    }
    for _ in 0..1000 {
        pool.allow_more(&S1, &(1..=5).map(DonorId).collect::<Vec<_>>());
    }
    let slack = (64 << 20) + 4 * (8 << 20);
    assert_eq!(all(&pool), 3 * promised + slack);
    assert_eq!(all(&pool), pool.ticketed(&S1).expect("open").most_stored());
    assert!(!budgets(&pool).contains_key(&DonorId(5)), "it is not in the plan");
}

#[test]
fn what_a_session_stored_is_no_room_for_others_before_its_donor_has_told_of_it() {
    let mut pool = pool();
    register(&mut pool, 1, 7, 0.0);
    open(&mut pool, S1, 600 * MIB, 0.0).expect("fits");
    // Stored and committed within a second: no heartbeat has told of it.
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
