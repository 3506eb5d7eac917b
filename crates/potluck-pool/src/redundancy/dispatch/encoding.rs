//! Parity of versions on their way to a code. Nobody knows it beforehand, so two donors compute it
//! and are believed when they agree.

use super::{Handed, LEFT_ALONE, Purpose, Round};
use crate::Pool;
use crate::redundancy::{Encode, ShardAt};
use potluck_core::clock::Tick;
use potluck_core::erasure::Ec;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::AckLevel;
use potluck_core::repair_plan::Helper;
use potluck_wire::control::Work;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A group of a version, in a code.
pub type Group = (VersionId, Ec, u32);

/// Groups whose parity is to be computed.
#[derive(Debug, Default)]
pub struct Encodings {
    pub(super) waiting: VecDeque<Encode>,
    /// Tasks that are not answered yet.
    out: BTreeMap<Group, usize>,
    /// Donors that computed different parity: who is right is found by asking others, not the same
    /// two again.
    differed: BTreeMap<Group, Differed>,
}

/// Donors that do not agree on a group's parity.
#[derive(Debug, Default)]
struct Differed {
    /// In pairs, by number.
    pairs: BTreeSet<[DonorId; 2]>,
    /// When the last of them answered.
    last: Tick,
}

impl Differed {
    fn has(&self, one: &Helper, other: &Helper) -> bool {
        let mut pair = [one.donor, other.donor];
        pair.sort_unstable();
        self.pairs.contains(&pair)
    }

    /// How often a donor was of another opinion.
    fn doubts(&self, donor: DonorId) -> usize {
        self.pairs.iter().filter(|pair| pair.contains(&donor)).count()
    }

    /// The first two of `able` that did not differ yet, so that any two who are right meet in the
    /// end; one, where there is only one. `None` where all differ, or the only one did from some
    /// other: its word alone would make wrong parity a version's own.
    fn two_of(&self, able: &[Helper]) -> Option<Vec<Helper>> {
        if able.len() < 2 {
            let doubted = able.iter().any(|only| self.doubts(only.donor) > 0);
            return (!doubted).then(|| able.to_vec());
        }
        let mut firsts = able.iter().enumerate();
        firsts.find_map(|(at, first)| {
            let second = able[at + 1..].iter().find(|second| !self.has(first, second))?;
            Some(vec![first.clone(), second.clone()])
        })
    }
}

impl Encodings {
    /// Takes over what a scan found.
    pub(super) fn take(&mut self, found: Vec<Encode>) {
        let groups: BTreeSet<Group> = found.iter().map(Encode::key).collect();
        self.differed.retain(|group, _| groups.contains(group));
        self.waiting = found.into();
    }

    /// A task was answered or given up.
    pub(super) fn landed(&mut self, group: &Encode) {
        let key = group.key();
        if let Some(out) = self.out.get_mut(&key) {
            *out -= 1;
            if *out == 0 {
                self.out.remove(&key);
            }
        }
    }

    /// Whether nobody computes anything.
    pub(super) fn idle(&self) -> bool {
        self.out.is_empty()
    }

    /// Tasks that are not answered yet.
    pub(super) fn under_way(&self) -> u64 {
        self.out.values().map(|tasks| *tasks as u64).sum()
    }

    /// The stored bytes of the parity that nobody was asked for yet.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(Encode::parity_bytes).sum()
    }

    /// Groups of which an answer is awaited.
    pub fn awaited(&self) -> BTreeSet<Group> {
        self.out.keys().copied().collect()
    }
}

impl Pool {
    /// Hands out groups, as far as budgets allow.
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

    /// Has two donors compute a group's parity, so that they can be believed; one, where there is
    /// only one. Gives it back if that cannot be now.
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
            self.repairs.encodings.differed.remove(&key); // perhaps it was the memory of one
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

    /// Two donors computed different parity of a group: one of them at least is wrong, and it is
    /// not known which.
    pub fn parity_differs(&mut self, group: Group, mut donors: [DonorId; 2], now: Tick) {
        donors.sort_unstable();
        let differed = self.repairs.encodings.differed.entry(group).or_default();
        differed.pairs.insert(donors);
        differed.last = now;
    }
}
