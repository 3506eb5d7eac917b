//! Hands out groups whose parity is to be computed, and notes donors whose parity differs.

use super::Round;
use crate::pool::Pool;
use crate::redundancy::GroupInCode;
use crate::redundancy::encodings::Differed;
use crate::redundancy::repairs::{Handed, LEFT_ALONE, Purpose};
use crate::redundancy::{Encode, ShardAt};
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::policy::AckLevel;
use potluck_core::repair_plan::Helper;
use potluck_wire::control::Work;
use std::cmp::Reverse;

impl Pool {
    /// Hands out groups to be encoded, as far as budgets allow.
    pub(super) fn hand_out_encodings(&mut self, round: &mut Round<'_>) {
        for _ in 0..self.repairs.encodings.waiting.len() {
            if !self.repairs.pool.ready(round.now) || round.all_busy() {
                return;
            }
            let Some(group) = self.repairs.encodings.waiting.pop_front() else { return };
            if let Some(later) = self.hand_out_encode(group, round) {
                self.repairs.encodings.waiting.push_back(later);
            }
        }
    }

    /// Orders two donors to compute a group's parity, so that they can be believed; one, where there is only one.
    /// Returns the group if it has to wait for budgets; a group that is stuck is left to the next scan.
    fn hand_out_encode(&mut self, group: Encode, round: &mut Round<'_>) -> Option<Encode> {
        let key = group.key();
        if self.repairs.encodings.out.contains_key(&key) {
            return None;
        }
        let bytes = group.parity_bytes();
        let mut able: Vec<Helper> =
            round.takers.iter().filter(|taker| taker.free >= bytes).cloned().collect();
        if let Some(differed) = self.repairs.encodings.differed.get(&key)
            && able.len() > 1
            && differed.two_of(&able).is_none()
            && round.now.saturating_sub(differed.last) >= LEFT_ALONE
        {
            self.repairs.encodings.differed.remove(&key); // one donor's memory may be at fault
        }
        let none = Differed::default();
        let differed = self.repairs.encodings.differed.get(&key).unwrap_or(&none);
        able.sort_by_key(|taker| {
            (!taker.allowed, differed.doubts(taker.donor), Reverse(taker.free), taker.donor)
        });
        let Some(able) = differed.two_of(&able) else {
            self.repairs
                .note_stuck("the donors that could compute parity do not agree on it", true);
            return None;
        };
        if able.is_empty() {
            self.repairs.note_stuck("no donor has room for parity", true);
            return None;
        }
        let all: Vec<&ShardAt> = group.shards.iter().collect();
        if able.iter().any(|taker| !taker.allowed) {
            return Some(group);
        }
        let (mut shards, reads) = match self.sources(&all, all.len(), round) {
            Ok(found) => found,
            Err(Handed::Stuck(why)) => {
                self.repairs.note_stuck(why, true);
                return None;
            }
            Err(_) => return Some(group), // later
        };
        shards.sort_by_key(|shard| shard.position);
        let asked = able.len();
        for taker in able {
            let (ec, shards) = (group.ec, shards.clone());
            let group = Box::new(group.clone());
            let purpose = Purpose::Encode { group, asked, reads: reads.clone() };
            let work = Work::Encode { ec, ack: AckLevel::Disk, shards };
            self.repairs.tasks.give(taker.donor, round.now, purpose, work);
            self.charge(taker.donor, bytes, &reads, round);
        }
        self.repairs.encodings.out.insert(key, asked);
        None
    }

    /// Notes that two donors computed different parity of a group: one of them at least is wrong, and it is not known
    /// which.
    pub fn parity_differs(&mut self, group: GroupInCode, mut donors: [DonorId; 2], now: Tick) {
        donors.sort_unstable();
        let differed = self.repairs.encodings.differed.entry(group).or_default();
        differed.pairs.insert(donors);
        differed.last = now;
    }
}
