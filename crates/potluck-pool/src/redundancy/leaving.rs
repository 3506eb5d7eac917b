//! Counts the copies that leave donors, as a scan finds them.

use super::assess::Findings;
use super::job::RepairJob;
use super::layout::LayoutChunk;
use super::layout::Version;
use crate::DonorView;
use potluck_core::policy::Redundancy;
use potluck_core::repair_plan::Worth;
use std::collections::BTreeSet;

/// The chunks that are still to leave a donor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moving {
    /// The number of chunks that have to be made elsewhere first, counted for each use.
    pub chunks: u64,
    /// The size of these chunks in stored bytes.
    pub bytes: u64,
}

/// The leaving chunks that cannot be made elsewhere in the pool as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Blocked {
    /// The number of chunks that no other donor takes.
    pub chunks: u64,
    /// The redundancy of one of these chunks, of that which needs most donors.
    pub widest: Option<Redundancy>,
}

impl Findings {
    /// Counts a chunk that lacks copies at each of its donors whose copy would be of use if the donor were heard: a
    /// silent donor that the chunk is leaving, or a donor that was given up.
    pub(super) fn note_unreached(&mut self, piece: &LayoutChunk) {
        for (donor, _) in piece.holders.iter().filter(|_| !self.own) {
            let status = self.view.get(*donor);
            let is_of_use = |at: &DonorView| match at.worth {
                Worth::Silent => at.leaves(&piece.name),
                Worth::Lost => true,
                Worth::Counts | Worth::Source => false,
            };
            if status.is_some_and(is_of_use) {
                *self.unreached.entry(*donor).or_default() += 1;
            }
        }
    }

    /// Counts the copies that are to leave donors and that no other donor takes, where each copy goes as `planned`.
    pub(super) fn note_blocked(
        &mut self,
        version: &Version,
        job: &RepairJob,
        planned: &[Option<usize>],
    ) {
        let stays = job.make.iter().zip(planned).filter(|(_, taker)| taker.is_none());
        // A chunk may lack several copies, but counts once for each donor that it leaves.
        let mut counted = BTreeSet::new();
        for (make, _) in stays {
            let shard = &job.shards[make.shard];
            // If a copy that stays fails together with the leaving one, the file was no safer before.
            let adds = |at: &DonorView| {
                make.missing || job.used.iter().all(|(_, domain)| *domain != at.domain)
            };
            let leaves =
                |at: &DonorView| at.leaves(&shard.name) && at.worth != Worth::Lost && adds(at);
            for donor in &shard.at {
                if !self.view.get(*donor).is_some_and(leaves)
                    || !counted.insert((make.shard, *donor))
                {
                    continue;
                }
                let blocked = self.blocked.entry(*donor).or_default();
                blocked.chunks += 1;
                let wide = Some(version.redundancy());
                let donors = |wide: Option<Redundancy>| wide.map(Redundancy::donors);
                if donors(wide) > donors(blocked.widest) {
                    blocked.widest = wide;
                }
            }
        }
    }
}
