//! The parity of versions that are being changed to an erasure code. Nobody knows it beforehand, so two donors compute
//! it and are believed when they agree; where there is only one donor, it is believed alone.

use super::job::{Encode, GroupInCode};
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::repair_plan::Helper;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The groups whose parity is to be computed.
#[derive(Debug, Default)]
pub struct Encodings {
    pub(super) waiting: VecDeque<Encode>,
    /// The number of unanswered tasks of each group.
    pub(super) out: BTreeMap<GroupInCode, usize>,
    /// The donors that computed different parity of each group. Other pairs are asked next, not the same two again.
    pub(super) differed: BTreeMap<GroupInCode, Differed>,
}

/// The disagreements of donors on one group's parity.
#[derive(Debug, Default)]
pub(super) struct Differed {
    /// The pairs of donors that do not agree, each in the order of their numbers.
    pub(super) pairs: BTreeSet<[DonorId; 2]>,
    /// The time at which the last disagreement was found.
    pub(super) last: Tick,
}

impl Differed {
    pub(super) fn has(&self, one: &Helper, other: &Helper) -> bool {
        let mut pair = [one.donor, other.donor];
        pair.sort_unstable();
        self.pairs.contains(&pair)
    }

    /// Returns the number of donors with which a donor disagreed.
    pub(super) fn doubts(&self, donor: DonorId) -> usize {
        self.pairs.iter().filter(|pair| pair.contains(&donor)).count()
    }

    /// Returns the first two of `able` that have not disagreed yet, so that two donors that are right meet in the end;
    /// or one, where there is only one; or none. `None` where all disagree, or the only one disagreed with another: its
    /// word alone could make wrong parity a version's own.
    pub(super) fn two_of(&self, able: &[Helper]) -> Option<Vec<Helper>> {
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
    /// Takes over the groups that a scan found.
    pub(super) fn take(&mut self, found: Vec<Encode>) {
        let groups: BTreeSet<GroupInCode> = found.iter().map(Encode::key).collect();
        self.differed.retain(|group, _| groups.contains(group));
        self.waiting = found.into();
    }

    /// Notes that a task was answered or given up.
    pub(super) fn landed(&mut self, group: &Encode) {
        let key = group.key();
        if let Some(out) = self.out.get_mut(&key) {
            *out -= 1;
            if *out == 0 {
                self.out.remove(&key);
            }
        }
    }

    /// Returns whether no donor is computing parity.
    pub(super) fn idle(&self) -> bool {
        self.out.is_empty()
    }

    /// Returns the number of tasks that are not answered yet.
    pub(super) fn under_way(&self) -> u64 {
        self.out.values().map(|tasks| *tasks as u64).sum()
    }

    /// Returns the stored bytes of the parity that nobody was asked for yet.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(Encode::parity_bytes).sum()
    }

    /// Returns the groups of which an answer is awaited.
    pub fn awaited(&self) -> BTreeSet<GroupInCode> {
        self.out.keys().copied().collect()
    }
}
