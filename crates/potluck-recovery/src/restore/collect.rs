//! Asks donors what they have of the pool's own metadata, before there is a catalog.
//!
//! Each peer that shows a certificate of the pool is listened to as a donor, under a number that holds for
//! this collection alone. Nothing that these peers say is believed: a fetched block opens with the
//! recovery key, or is not used.

use potluck_catalog::ListedNames;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_wire::control::{Holding, Task, TaskOutcome, TaskResult, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// The number of the one task that each donor is given.
const ONLY_TASK: u64 = 1;

/// The most chunks of one donor that are noted: 56 TiB of the default size, as many as a table of 150 MB
/// holds. A donor that lists without an end does not fill the memory.
const MAX_LISTED: usize = 7 << 21;

/// The answers of donors so far.
#[derive(Debug)]
pub struct Collecting {
    said: Mutex<Said>,
    /// The most chunks of one donor that are noted.
    most_listed: usize,
}

impl Default for Collecting {
    fn default() -> Self {
        Self { said: Mutex::default(), most_listed: MAX_LISTED }
    }
}

#[derive(Debug, Default)]
struct Said {
    described: BTreeSet<DonorId>,
    blocks: Holders,
    /// The donors whose inventories are complete.
    inventoried: BTreeSet<DonorId>,
    /// The names of the chunks that donors listed, up to [`Collecting::most_listed`] of each donor.
    listed: ListedNames,
    /// The number of names that donors listed and that are not noted.
    not_noted: usize,
    /// The number of chunks that each donor has listed so far.
    counts: BTreeMap<DonorId, usize>,
}

/// The donors that say that they have each chunk, with the chunk's stored bytes. Each donor is asked for the length
/// that it said, so that a lie about the length spoils only the copy of the donor that lied.
type Holders = BTreeMap<ChunkName, BTreeMap<DonorId, u32>>;

/// A block of the log that donors say they have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenMetadata {
    /// The name of the block.
    pub name: ChunkName,
    /// The donors that have the block, each with the stored bytes that it said.
    pub donors: Vec<(DonorId, u32)>,
}

/// The progress of the collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreProgress {
    /// The number of donors that have told all they have.
    pub answered: usize,
    /// The number of chunk names that were noted so far.
    pub listed: usize,
}

impl Collecting {
    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().expect("no holder panics")
    }

    /// Returns the tasks for a donor.
    pub fn tasks_for(&self, donor: DonorId) -> Vec<Task> {
        match self.said().described.contains(&donor) {
            true => Vec::new(),
            false => vec![Task { number: ONLY_TASK, work: Work::Describe }],
        }
    }

    /// Takes over the results of a donor's tasks.
    pub fn heard(&self, donor: DonorId, results: &[TaskResult]) {
        let mut said = self.said();
        for result in results {
            match &result.outcome {
                // A donor is asked once, and only its first answer counts.
                TaskOutcome::Described { .. } if said.described.contains(&donor) => {}
                TaskOutcome::Described { blocks } => {
                    said.described.insert(donor);
                    note(&mut said.blocks, donor, &blocks.0);
                }
                other => tracing::warn!(%donor, ?other, "a donor cannot say what it has"),
            }
        }
    }

    /// Takes a page of a donor's inventory.
    pub fn listed(&self, donor: DonorId, holdings: &[Holding], last: bool) {
        let mut said = self.said();
        let count = said.counts.entry(donor).or_default();
        *count += holdings.len();
        if *count <= self.most_listed {
            holdings.iter().for_each(|holding| said.listed.insert(&holding.name));
        } else {
            said.not_noted += holdings.len();
        }
        if last {
            said.inventoried.insert(donor);
        }
    }

    /// Returns the progress of the collection.
    pub fn progress(&self) -> RestoreProgress {
        let said = self.said();
        let answered = said.described.intersection(&said.inventoried).count();
        RestoreProgress { answered, listed: said.listed.count() }
    }

    /// Returns whether a donor has told all it has.
    pub fn has_answered(&self, donor: DonorId) -> bool {
        let said = self.said();
        said.described.contains(&donor) && said.inventoried.contains(&donor)
    }

    /// Returns all blocks of the log that donors told of.
    pub fn blocks(&self) -> Vec<SeenMetadata> {
        seen(&self.said().blocks)
    }

    /// Returns the number of listed names that were not noted, because their donors had listed so many before.
    pub fn not_noted(&self) -> usize {
        self.said().not_noted
    }

    /// Takes out the names of all chunks that were listed, as far as they were noted.
    pub fn take_listed(&self) -> ListedNames {
        std::mem::take(&mut self.said().listed)
    }
}

fn note(holders: &mut Holders, donor: DonorId, holdings: &[Holding]) {
    for Holding { name, len } in holdings {
        holders.entry(*name).or_default().insert(donor, *len);
    }
}

fn seen(holders: &Holders) -> Vec<SeenMetadata> {
    let seen = holders.iter().map(|(name, donors)| SeenMetadata {
        name: *name,
        donors: donors.iter().map(|(donor, len)| (*donor, *len)).collect(),
    });
    seen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::packed::Packed;

    #[test]
    fn endless_inventory_in_a_restore_is_bounded() {
        let collecting = Collecting { most_listed: 3, ..Collecting::default() };
        let list = |donor, names: &[u8]| {
            let holding = |name: &u8| Holding { name: ChunkName::of(&[*name]), len: 1 };
            let page: Vec<Holding> = names.iter().map(holding).collect();
            collecting.listed(DonorId(donor), &page, false);
        };
        list(1, &[1, 2]);
        list(1, &[3, 4]);
        list(1, &[5]);
        list(2, &[6]);
        assert_eq!((collecting.progress().listed, collecting.not_noted()), (3, 3));
    }

    #[test]
    fn a_donor_that_lies_about_a_length_spoils_no_other_donors_copy() {
        let collecting = Collecting::default();
        let tell = |donor, name: &[u8], len| {
            let blocks = Packed(vec![Holding { name: ChunkName::of(name), len }]);
            let outcome = TaskOutcome::Described { blocks };
            collecting.heard(donor, &[TaskResult { task: ONLY_TASK, outcome }]);
        };
        let donors = vec![(DonorId(1), 7), (DonorId(2), 500), (DonorId(3), 500)];
        donors.iter().for_each(|(donor, len)| tell(*donor, b"a block", *len));
        let seen = [SeenMetadata { name: ChunkName::of(b"a block"), donors }];
        assert_eq!(collecting.blocks(), seen);
        // A second answer of a donor does not count.
        tell(DonorId(1), b"another", 1);
        assert_eq!(collecting.blocks(), seen);
    }
}
