//! Matching shards to donors, against a search of all assignments (promise D3).

use potluck_core::matching::{assign, matching};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Returns the size of the largest matching, found by trying everything.
fn best(shards: &[Vec<u8>], taken: &mut BTreeSet<u8>) -> usize {
    let Some((first, rest)) = shards.split_first() else { return 0 };
    let mut most = best(rest, taken);
    for holder in first {
        if taken.insert(*holder) {
            most = most.max(1 + best(rest, taken));
            taken.remove(holder);
        }
    }
    most
}

fn groups() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(0..7_u8, 0..4), 0..7)
}

proptest! {
    #[test]
    fn a_matching_is_as_large_as_any_d3(shards in groups()) {
        let views: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(matching(&views), best(&shards, &mut BTreeSet::new()));
    }

    #[test]
    fn matched_shards_have_distinct_holders_that_hold_them_d3(shards in groups()) {
        let views: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
        let mut seen = BTreeSet::new();
        for (holder, shard) in assign(&views).into_iter().zip(&shards) {
            let Some(holder) = holder else { continue };
            prop_assert!(shard.contains(&holder) && seen.insert(holder));
        }
    }

    #[test]
    fn a_shard_that_is_matched_stays_matched_when_others_follow_d3(shards in groups()) {
        let views: Vec<&[u8]> = shards.iter().map(Vec::as_slice).collect();
        let whole = assign(&views);
        for end in 0..views.len() {
            for (at, holder) in assign(&views[..end]).into_iter().enumerate() {
                prop_assert_eq!(holder.is_some(), whole[at].is_some());
            }
        }
    }
}

#[test]
fn two_shards_on_one_donor_count_once_d3() {
    assert_eq!(matching::<u8>(&[]), 0);
    assert_eq!(matching(&[&[1][..], &[1]]), 1);
    assert_eq!(matching(&[&[1, 2][..], &[1]]), 2, "the first moves out of the way");
    let copies = [3, 3, 5];
    assert_eq!(matching(&[&copies[..]; 3]), 2, "copies of one chunk, one donor listed twice");
}
