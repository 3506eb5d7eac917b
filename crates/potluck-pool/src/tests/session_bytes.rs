//! What write sessions may store.

use super::{MIB, S1, at, open, pool, register};
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
