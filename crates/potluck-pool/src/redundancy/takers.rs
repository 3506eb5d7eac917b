//! The donors that would take the copies that a scan finds lacking, as far as there is room for all of them.

use super::job::{Make, RepairJob, ShardAt};
use crate::{DonorView, PoolView};
use potluck_core::ids::{Domain, DonorId};

/// Donors that took copies when the scan began, with the room that is left for more.
#[derive(Debug, Default)]
pub struct Takers {
    all: Vec<Taker>,
    /// The index of the donor that is asked first: donors take turns, so that what is reserved is spread about as
    /// repair spreads it.
    turn: usize,
}

#[derive(Debug)]
struct Taker {
    donor: DonorId,
    domain: Domain,
    free: u64,
}

impl Takers {
    /// Picks the donors that take chunks from those in `view`.
    pub fn new(view: &PoolView) -> Self {
        let taker = |(donor, status): (DonorId, &DonorView)| {
            let DonorView { domain, free, takes, .. } = *status;
            takes.then_some(Taker { donor, domain, free })
        };
        Self { all: view.iter().filter_map(taker).collect(), turn: 0 }
    }

    /// Returns the index of the donor that would take each copy that a job makes, if any would (core's
    /// `repair_plan::target`).
    pub fn plan(&self, job: &RepairJob) -> Vec<Option<usize>> {
        let mut used = job.used.clone();
        let mut planned = Vec::with_capacity(job.make.len());
        for make in &job.make {
            let taker = self.taker(&job.shards[make.shard], make, &used);
            used.extend(taker.map(|at| (self.all[at].donor, self.all[at].domain)));
            planned.push(taker);
        }
        planned
    }

    /// Returns a donor that would take a copy of a shard whose unit uses these donors.
    fn taker(&self, shard: &ShardAt, make: &Make, used: &[(DonorId, Domain)]) -> Option<usize> {
        let count = self.all.len();
        let turns = || (0..count).map(|at| (self.turn + at) % count);
        let able = || turns().filter(|at| !shard.at.contains(&self.all[*at].donor));
        let far = |at: &usize| used.iter().all(|(_, domain)| *domain != self.all[*at].domain);
        let fresh = |at: &usize| used.iter().all(|(donor, _)| *donor != self.all[*at].donor);
        let roomy = |at: &usize| self.all[*at].free >= u64::from(shard.len);
        if !make.missing || able().any(|at| far(&at)) {
            return able().filter(far).find(roomy);
        }
        able().filter(fresh).find(roomy)
    }

    /// Reserves room for a chunk to be made, so that no other job counts on it: chunks that fit one by one may not fit
    /// all together.
    pub fn reserve(&mut self, at: usize, bytes: u64) {
        self.all[at].free = self.all[at].free.saturating_sub(bytes);
        self.turn = (at + 1) % self.all.len();
    }
}
