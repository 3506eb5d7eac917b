//! Matching: how many chunks of a group lie where they can be lost only one at a time.
//!
//! Counting copies is not enough (promise D3): a donor that holds two chunks of a group is lost
//! with both. So the chunks are matched to distinct donors, or to distinct failure domains, by
//! augmenting paths (Kuhn's algorithm); a group has at most 24 chunks, each with a few holders.

use std::collections::{BTreeMap, BTreeSet};

/// Returns the largest number of `shards` that can each be matched to a holder of its own; `shards[i]` are the holders
/// of shard `i`, in any order and perhaps twice.
pub fn matching<D: Copy + Ord>(shards: &[&[D]]) -> usize {
    assign(shards).iter().flatten().count()
}

/// Gives as many of `shards` as possible a holder of their own; `None` stands for the others. A shard that has a
/// holder keeps one whatever follows, so the first `None` is where holders became too few.
pub fn assign<D: Copy + Ord>(shards: &[&[D]]) -> Vec<Option<D>> {
    let mut owners = BTreeMap::new();
    for shard in 0..shards.len() {
        augment(shards, shard, &mut owners, &mut BTreeSet::new());
    }
    let mut assigned = vec![None; shards.len()];
    owners.into_iter().for_each(|(holder, shard)| assigned[shard] = Some(holder));
    assigned
}

/// Finds a holder for `shard`, moving the shards in its way to other holders of theirs; returns whether there is one.
fn augment<D: Copy + Ord>(
    shards: &[&[D]],
    shard: usize,
    owners: &mut BTreeMap<D, usize>,
    tried: &mut BTreeSet<D>,
) -> bool {
    for holder in shards[shard] {
        if !tried.insert(*holder) {
            continue;
        }
        let free = match owners.get(holder).copied() {
            None => true,
            Some(owner) => augment(shards, owner, owners, tried),
        };
        if free {
            owners.insert(*holder, shard);
            return true;
        }
    }
    false
}
