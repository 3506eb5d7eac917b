//! The judgement of a unit and the choice of a target, against the definition of what it survives; repair budgets.

use potluck_core::ids::DonorId;
use potluck_core::repair_plan::{Bucket, Copy, Helper, NoTarget, Stand, Worth, eta, judge, target};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

fn worth() -> impl Strategy<Value = Worth> {
    prop_oneof![
        4 => Just(Worth::Counts), 1 => Just(Worth::Silent),
        1 => Just(Worth::Source), 1 => Just(Worth::Lost),
    ]
}

/// Makes shards with copies at donors 0..9, of which two share a domain each. Every copy at a donor is worth the
/// same.
fn shards() -> impl Strategy<Value = Vec<Vec<Copy>>> {
    let holders = prop::collection::vec(prop::collection::btree_set(0_u32..9, 0..4), 1..7);
    (holders, prop::collection::vec(worth(), 9)).prop_map(|(shards, worths)| {
        let copy = |donor: u32| Copy {
            donor: DonorId(donor),
            domain: donor / 2,
            worth: worths[donor as usize],
        };
        shards.into_iter().map(|donors| donors.into_iter().map(copy).collect()).collect()
    })
}

fn slices(shards: &[Vec<Copy>]) -> Vec<&[Copy]> {
    shards.iter().map(Vec::as_slice).collect()
}

/// Returns the size of the largest matching, found by trying everything.
fn largest(shards: &[Vec<Copy>], used: &mut BTreeSet<u32>) -> usize {
    let Some((first, rest)) = shards.split_first() else { return 0 };
    let mut best = largest(rest, used);
    for copy in first.iter().filter(|copy| copy.worth.counts()) {
        if used.insert(copy.domain) {
            best = best.max(1 + largest(rest, used));
            used.remove(&copy.domain);
        }
    }
    best
}

fn readable_without(shards: &[Vec<Copy>], dead: &BTreeSet<u32>, need: usize) -> bool {
    let alive = |copy: &Copy| copy.worth.counts() && !dead.contains(&copy.domain);
    shards.iter().filter(|copies| copies.iter().any(alive)).count() >= need
}

fn helpers() -> impl Strategy<Value = Vec<Helper>> {
    prop::collection::vec((0_u64..100, any::<bool>()), 0..9).prop_map(|all| {
        let helper = |(at, (free, allowed)): (usize, (u64, bool))| Helper {
            donor: DonorId(at as u32),
            domain: at as u32 / 2,
            free,
            outstanding: 0,
            allowed,
        };
        all.into_iter().enumerate().map(helper).collect()
    })
}

proptest! {
    #[test]
    fn safety_is_the_largest_matching_of_shards_to_domains_d3(shards in shards()) {
        let judged = judge(1, &slices(&shards));
        prop_assert_eq!(judged.matching, largest(&shards, &mut BTreeSet::new()));
        let apart: Vec<(usize, DonorId)> = judged.shards.iter().enumerate()
            .filter_map(|(at, stand)| match stand { Stand::Apart(donor) => Some((at, *donor)), _ => None })
            .collect();
        prop_assert_eq!(apart.len(), judged.matching);
        let domains: BTreeSet<u32> = apart.iter().map(|(_, donor)| donor.0 / 2).collect();
        prop_assert_eq!(domains.len(), apart.len(), "each in a domain of its own");
        for (at, donor) in apart {
            prop_assert!(shards[at].iter().any(|copy| copy.donor == donor && copy.worth.counts()));
        }
    }

    #[test]
    fn unit_survives_any_loss_it_is_said_to_tolerate(
        shards in shards(), need in 1_usize..4, dead in prop::collection::btree_set(0_u32..5, 0..5),
    ) {
        let judged = judge(need, &slices(&shards));
        if judged.matching >= need && dead.len() <= judged.matching - need {
            prop_assert!(readable_without(&shards, &dead, need));
        }
    }

    #[test]
    fn unit_survives_tolerated_loss_without_silent_donors(
        shards in shards(), need in 1_usize..4, dead in prop::collection::btree_set(0_u32..5, 0..5),
    ) {
        let judged = judge(need, &slices(&shards));
        prop_assert!(judged.awake <= judged.matching);
        if judged.awake >= need && dead.len() <= judged.awake - need {
            let mut awake = shards;
            awake.iter_mut().for_each(|copies| copies.retain(|copy| copy.worth == Worth::Counts));
            prop_assert!(readable_without(&awake, &dead, need));
        }
    }

    #[test]
    fn dropping_what_no_shard_relies_on_changes_nothing_d3(shards in shards()) {
        let judged = judge(1, &slices(&shards));
        let kept: Vec<Vec<Copy>> = shards.iter().zip(&judged.shards).map(|(copies, stand)| {
            let keep = match stand { Stand::Apart(donor) => Some(*donor), _ => None };
            copies.iter().filter(|copy| Some(copy.donor) == keep).copied().collect()
        }).collect();
        prop_assert_eq!(judge(1, &slices(&kept)).matching, judged.matching);
    }

    #[test]
    fn equal_shards_are_copies_and_only_distinct_domains_count(
        donors in prop::collection::btree_set(0_u32..9, 0..6), wanted in 1_usize..5,
    ) {
        let copies: Vec<Copy> = donors.iter()
            .map(|donor| Copy { donor: DonorId(*donor), domain: donor / 2, worth: Worth::Counts })
            .collect();
        let domains: BTreeSet<u32> = donors.iter().map(|donor| donor / 2).collect();
        let judged = judge(1, &vec![copies.as_slice(); wanted]);
        prop_assert_eq!(judged.matching, wanted.min(domains.len()));
        prop_assert_eq!(judged.complete(), domains.len() >= wanted);
        prop_assert_eq!(judged.readable, !donors.is_empty());
        prop_assert_eq!(judged.lacking().count(), wanted - judged.matching);
    }

    #[test]
    fn no_target_shares_a_domain_while_another_exists(
        helpers in helpers(), used in prop::collection::btree_set(0_u32..9, 0..5),
        len in 0_u64..100, missing in any::<bool>(),
    ) {
        let used: Vec<(DonorId, u32)> =
            used.into_iter().map(|donor| (DonorId(donor), donor / 2)).collect();
        let apart = |helper: &&Helper| used.iter().all(|(_, domain)| *domain != helper.domain);
        match target(&helpers, len, &used, missing) {
            Ok(chosen) => {
                prop_assert!(chosen.free >= len && chosen.allowed);
                prop_assert!(used.iter().all(|(donor, _)| *donor != chosen.donor));
                if !apart(&chosen) {
                    prop_assert!(missing && !helpers.iter().any(|helper| apart(&helper)));
                }
                let rival = |helper: &&Helper| {
                    helper.allowed && helper.free > chosen.free && apart(helper) == apart(&chosen)
                        && used.iter().all(|(donor, _)| *donor != helper.donor)
                };
                prop_assert!(!helpers.iter().any(|helper| rival(&helper)), "most room first");
            }
            Err(NoTarget::Later) => {
                prop_assert!(helpers.iter().any(|helper| !helper.allowed && helper.free >= len));
            }
            Err(NoTarget::Full) => {
                prop_assert!(helpers.iter().filter(apart).all(|helper| helper.free < len));
            }
            Err(NoTarget::NoneApart) => prop_assert!(!helpers.iter().any(|helper| apart(&helper))),
        }
    }

    #[test]
    fn a_budget_is_never_exceeded_and_mostly_used_a3(
        rate in 1_000_u64..1_000_000, piece in 1_u64..100_000, steps in 10_u64..200,
    ) {
        let step = Duration::from_millis(250);
        let mut bucket = Bucket::new(rate, Duration::ZERO);
        let mut taken = 0;
        for at in 0..steps {
            while bucket.ready(step * at as u32) {
                bucket.take(piece);
                taken += piece;
            }
        }
        let due = rate * 250 * (steps - 1) / 1000;
        prop_assert!(taken <= due + rate + piece);
        prop_assert!(taken + 1 + steps >= due);
    }
}

#[test]
fn when_it_is_done_is_said_only_when_something_moves() {
    assert_eq!((eta(0, 0), eta(10, 0), eta(10, 4)), (Some(0), None, Some(3)));
}
