//! Asking donors what they have of the pool's own metadata, before there is a catalog.
//!
//! Whoever shows a certificate of the pool is listened to as a donor under a number that holds for
//! this collection alone. Nothing of what they say is believed: what is fetched proves itself by the
//! recovery key, or is not used.

use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_wire::control::{Holding, Order, OrderOutcome, OrderResult};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Every donor is asked one thing, once.
const ONLY_ORDER: u64 = 1;

/// What donors said.
#[derive(Debug, Default)]
pub struct Collecting(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    described: BTreeSet<DonorId>,
    heads: BTreeMap<ChunkName, (u32, BTreeSet<DonorId>)>,
}

/// A head of a checkpoint that donors have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub name: ChunkName,
    /// Stored bytes.
    pub len: u32,
    /// Who has it.
    pub donors: Vec<DonorId>,
}

impl Collecting {
    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        self.0.lock().expect("no holder panics")
    }

    /// What a donor is to do.
    pub fn orders_for(&self, donor: DonorId) -> Vec<Order> {
        match self.said().described.contains(&donor) {
            true => Vec::new(),
            false => vec![Order::Describe { order: ONLY_ORDER }],
        }
    }

    /// What came of it.
    pub fn heard(&self, donor: DonorId, results: &[OrderResult]) {
        let mut said = self.said();
        for result in results {
            match &result.outcome {
                OrderOutcome::Described { checkpoints, .. } => {
                    said.described.insert(donor);
                    for Holding { name, len } in &checkpoints.0 {
                        let seen = said.heads.entry(*name).or_insert((*len, BTreeSet::new()));
                        seen.1.insert(donor);
                    }
                }
                other => tracing::warn!(%donor, ?other, "a donor cannot say what it has"),
            }
        }
    }

    /// Donors that have said all.
    pub fn described(&self) -> usize {
        self.said().described.len()
    }

    /// All heads that were seen.
    pub fn heads(&self) -> Vec<Seen> {
        let said = self.said();
        let seen = said.heads.iter().map(|(name, (len, donors))| Seen {
            name: *name,
            len: *len,
            donors: donors.iter().copied().collect(),
        });
        seen.collect()
    }
}
