//! Checks the promises that must hold once repair has had time: the manager reports every space as safe as its
//! policy promises, and the disks show the same (R1, R2, L1).

use crate::cast::Who;
use crate::world::{LENT, World};
use potluck_core::chunk::ChunkName;
use potluck_core::merkle::SEGMENT;
use potluck_core::policy::Redundancy;
use potluck_wire::control::{PoolStatus, SpaceHealth};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// The time within which every disk is scrubbed, lost copies are made again and excess copies are deleted: a
/// scrub of a few seconds, and several scans.
pub const HEALED: Duration = Duration::from_secs(240);

/// The donors that hold a whole copy, by chunk.
type Holders = BTreeMap<ChunkName, BTreeSet<Who>>;

impl World {
    /// Has the admin trust all donors again and order a scrub of every disk.
    pub fn ask_for_healing(&self) {
        self.stage.board().healing = true;
    }

    /// Returns why not everything is as safe as `redundancy` promises; `None` if it is, by the manager's status and by
    /// the disks.
    pub fn danger(&self, redundancy: Redundancy) -> Option<String> {
        self.danger_told(redundancy).or_else(|| self.danger_seen(redundancy))
    }

    fn danger_told(&self, redundancy: Redundancy) -> Option<String> {
        let board = self.stage.board();
        let Some(status) = &board.status else { return Some("the manager does not answer".into()) };
        let PoolStatus { spaces, repair, donors, .. } = status;
        let Some(before) = &board.scrubbed else { return Some("no scrub was ordered".into()) };
        for donor in donors {
            let since = donor.scrub.rounds.saturating_sub(before.get(&donor.donor).copied()?);
            if since == 0 || donor.scrub.hurried {
                return Some(format!("{} is being read back", donor.name));
            }
            if let Some(why) = &donor.quarantined {
                return Some(format!("{} is not trusted: {why}", donor.name));
            }
        }
        let unsafe_space = spaces.iter().find(|space| {
            let SpaceHealth { tolerates, unreadable, incomplete, changing, scanned, .. } = space;
            let promised = space.all_in_catalog || *tolerates == Some(redundancy.tolerates());
            !promised || !scanned || unreadable + incomplete + changing > 0
        });
        if let Some(space) = unsafe_space {
            return Some(format!("{space:?}; {repair:?}"));
        }
        let busy = repair.queued.iter().sum::<u64>() + repair.under_way + repair.excess;
        (busy + repair.stuck > 0).then(|| format!("{repair:?}"))
    }

    fn danger_seen(&self, redundancy: Redundancy) -> Option<String> {
        let (holders, board) = (self.holders(), self.stage.board());
        let none = BTreeSet::new();
        let of = |name: &ChunkName| holders.get(name).unwrap_or(&none);
        match redundancy {
            Redundancy::Copies(copies) => {
                let wrong = board.needed.iter().find(|name| of(name).len() != copies as usize);
                wrong.map(|name| format!("{name} is on {:?}, not on {copies} donors", of(name)))
            }
            Redundancy::Ec(_) => {
                let apart = |group: &&Vec<ChunkName>| {
                    let shards: Vec<_> = group.iter().map(of).collect();
                    !each_on_its_own(&shards)
                };
                let wrong = board.groups.iter().find(apart);
                wrong.map(|group| {
                    let placed: Vec<_> = group.iter().map(of).collect();
                    format!("the chunks {group:?} of one group are on {placed:?}")
                })
            }
        }
    }

    /// Returns the donors that hold each chunk whole.
    pub fn holders(&self) -> Holders {
        let mut holders = Holders::new();
        for (number, drive) in (0..).zip(&self.drives) {
            for (path, file) in drive.files(&Path::new(LENT).join("chunks")) {
                let name = path.file_name().and_then(|name| name.to_str()?.parse().ok());
                let chunk = chunk_in(&file).map(ChunkName::of);
                if let Some(name) = name.filter(|_| name == chunk) {
                    holders.entry(name).or_default().insert(Who::Donor(number));
                }
            }
        }
        holders
    }
}

/// Returns the chunk in a chunk file, which ends in the hashes of the chunk's segments and a trailer.
fn chunk_in(file: &[u8]) -> Option<&[u8]> {
    let (front, _) = file.split_last_chunk::<64>()?;
    let segments = front.len().div_ceil(SEGMENT as usize + 32);
    front.get(..front.len().checked_sub(32 * segments)?)
}

/// Returns whether each shard can be read from a donor of its own, by a bipartite matching of shards and donors.
fn each_on_its_own(shards: &[&BTreeSet<Who>]) -> bool {
    fn settle(
        shard: usize,
        shards: &[&BTreeSet<Who>],
        taken: &mut BTreeMap<Who, usize>,
        tried: &mut BTreeSet<Who>,
    ) -> bool {
        for donor in shards[shard] {
            if !tried.insert(*donor) {
                continue;
            }
            let free = match taken.get(donor).copied() {
                None => true,
                Some(other) => settle(other, shards, taken, tried),
            };
            if free {
                taken.insert(*donor, shard);
                return true;
            }
        }
        false
    }
    let mut taken = BTreeMap::new();
    (0..shards.len()).all(|shard| settle(shard, shards, &mut taken, &mut BTreeSet::new()))
}
