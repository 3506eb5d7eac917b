//! Copies that may be too many, and the votes of versions that can do without them.

use super::layout::Version;
use crate::{DonorView, LeavingRule};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::origin::CacheState;
use potluck_core::policy::Redundancy;
use std::collections::BTreeSet;

/// The most copies in excess that are remembered; more are found when these are gone.
pub const MAX_EXCESS: usize = 65_536;
/// The most votes that are remembered for all copies in excess: some fifty megabytes.
pub const MAX_VOTES: usize = 16 * MAX_EXCESS;

/// The ground on which a version can do without a copy; the ground that has to be checked again the most comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ground {
    /// The version has all the redundancy that it should without the copy.
    Whole,
    /// The donor gives space back under this rule, and what there is elsewhere suffices for that.
    Leaves(LeavingRule),
    /// The version is cached and its donor gives space back under this rule: the bytes are at the file's origin.
    Cached(LeavingRule),
    /// The version was evicted.
    Evicted,
    /// The loss of the copy was agreed to when the donor began to give its space back at once.
    Agreed,
}

impl Ground {
    /// Returns whether the ground still holds for a copy of `version` at this donor.
    pub fn holds(self, status: Option<&DonorView>, name: &ChunkName, version: &Version) -> bool {
        let leaves = |rule: LeavingRule| {
            status.is_some_and(|at| at.leaves(name) && at.rule_of(name) >= rule)
        };
        match self {
            Self::Whole => true,
            Self::Leaves(rule) => leaves(rule),
            Self::Cached(rule) => leaves(rule) && !version.cache.is_kept(),
            Self::Evicted => version.cache == CacheState::Evicted,
            Self::Agreed => {
                leaves(LeavingRule::AtOnce) && status.is_some_and(|at| at.may_lose(version.id))
            }
        }
    }
}

/// The finding that a version can do without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// The version that can do without the copy.
    pub version: VersionId,
    /// The number of the version's file in the scan.
    pub seen: u64,
    /// The version's redundancy and its goal, by which it was judged.
    pub judged_by: (Redundancy, Option<Redundancy>),
    /// The ground on which the copy is too much.
    pub ground: Ground,
    /// The number of the references to the chunk that are the version's.
    pub uses: u32,
}

/// The votes of versions on a copy that none of them may need.
#[derive(Debug, Clone, Default)]
pub struct Excess {
    /// The votes of versions that can do without the copy.
    pub votes: Vec<Vote>,
    /// True if some unit needs the copy, or too many versions voted for all votes to be remembered.
    pub needed: bool,
    /// The number of references that the chunk had.
    pub refs: i64,
    /// The copies that must be there when this one is deleted.
    pub keep: BTreeSet<(ChunkName, DonorId)>,
    /// The bytes freed by the deletion of the copy.
    pub len: u32,
}

impl Excess {
    /// Adds the vote of a unit of a version that can do without the copy while `keep` is there. Returns whether it is
    /// the first vote of the version.
    pub fn add(
        &mut self,
        vote: Vote,
        keep: impl IntoIterator<Item = (ChunkName, DonorId)>,
    ) -> bool {
        self.keep.extend(keep);
        match self.votes.last_mut() {
            Some(last) if last.seen == vote.seen => {
                last.uses += vote.uses;
                last.ground = last.ground.max(vote.ground);
                false
            }
            _ => {
                self.votes.push(vote);
                true
            }
        }
    }

    /// Returns how many references belong to versions that can do without the copy.
    pub fn uses(&self) -> i64 {
        self.votes.iter().map(|vote| i64::from(vote.uses)).sum()
    }

    /// Returns whether every version that uses the chunk was seen and can do without the copy. A version that was
    /// seen twice, because it was moved during the scan, must not stand in for another.
    pub fn is_agreed(&self) -> bool {
        let mut voters: Vec<VersionId> = self.votes.iter().map(|vote| vote.version).collect();
        voters.sort_unstable();
        voters.dedup();
        !self.needed && voters.len() == self.votes.len() && self.uses() == self.refs
    }
}
