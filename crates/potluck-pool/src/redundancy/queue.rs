//! Jobs that wait to be handed out, the most urgent first.

use super::job::{CopyToMake, RepairJob};
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound::{Excluded, Included, Unbounded};

/// The most jobs that are looked at in one round.
const ROUND: usize = 2048;
/// The number of jobs, the most urgent ones, that are looked at in every round.
const HEAD: usize = 512;

/// The priority of a job: its urgency, and its number in the scan. The urgency is the number of further deaths that the
/// unit survives; jobs for a redundancy that was not promised yet come after all these, and jobs that no donor can take
/// come last.
pub type RepairPriority = (u32, u64);

/// The jobs that wait to be handed out.
#[derive(Debug, Default)]
pub struct RepairQueue {
    jobs: BTreeMap<RepairPriority, RepairJob>,
    /// The priority of the last of the most urgent jobs in this round.
    head: Option<RepairPriority>,
    /// The priority of the last of the other jobs that was looked at.
    after: Option<RepairPriority>,
}

impl RepairQueue {
    /// Makes a queue of these jobs.
    pub fn new(jobs: BTreeMap<RepairPriority, RepairJob>) -> Self {
        Self { jobs, head: None, after: None }
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns the number of jobs that wait.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns the jobs to be looked at now: the most urgent, and of the others those behind the last that was looked
    /// at, so that jobs which wait for a busy donor do not hold up the rest.
    pub fn round(&mut self) -> Vec<RepairPriority> {
        let mut keys: Vec<RepairPriority> = self.jobs.keys().take(HEAD).copied().collect();
        let Some(head) = keys.last().copied() else { return keys };
        let from = self.after.map_or(head, |after| after.max(head));
        self.head = Some(head);
        let behind = self.jobs.range((Excluded(from), Unbounded));
        let around = self.jobs.range((Excluded(head), Included(from)));
        let others = behind.chain(around).map(|(key, _)| *key);
        keys.extend(others.take(ROUND - HEAD));
        keys
    }

    /// Takes a job out to be looked at.
    pub fn take(&mut self, key: RepairPriority) -> Option<RepairJob> {
        if Some(key) > self.head {
            self.after = Some(key);
        }
        self.jobs.remove(&key)
    }

    /// Puts the rest of a job back to wait.
    pub fn put_back(&mut self, key: RepairPriority, rest: RepairJob) {
        self.jobs.insert(key, rest);
    }

    /// Returns whether a job waits that restores promised redundancy.
    pub fn restores(&self) -> bool {
        self.jobs.values().any(|job| !job.is_goal())
    }

    /// Adds up the copies that all jobs make and that are not counted yet, where `making` says how many copies of a
    /// job's chunk are on their way.
    pub fn count(
        &self,
        sums: &mut RepairSums,
        counted: &mut CopiesInSums,
        making: impl Fn(&RepairJob) -> usize,
    ) {
        // The most urgent jobs come first, so that a copy counts under the fewest deaths that any
        // file survives.
        for job in self.jobs.values() {
            for (copy, bytes) in job.lacking(making(job)) {
                if counted.insert(copy) {
                    sums.add(job, bytes);
                }
            }
        }
    }
}

/// The copies to make that are counted already: one copy serves all files that use the chunk.
pub type CopiesInSums = HashSet<CopyToMake>;

/// Sums over chunks to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairSums {
    /// The number of chunks, by how many more deaths their units survive.
    pub chunks: Vec<u64>,
    /// The size of these chunks in stored bytes.
    pub bytes: u64,
    /// The stored bytes of the redundancy that files are being changed to, which was not promised yet.
    pub goal_bytes: u64,
}

impl RepairSums {
    fn add(&mut self, job: &RepairJob, bytes: u64) {
        if job.is_goal() {
            self.goal_bytes += bytes;
            return;
        }
        let slot = job.tolerates as usize;
        if self.chunks.len() <= slot {
            self.chunks.resize(slot + 1, 0);
        }
        self.chunks[slot] += 1;
        self.bytes += bytes;
    }

    /// Adds the sums of `other` to these.
    pub fn with(mut self, other: &Self) -> Self {
        let slots = self.chunks.len().max(other.chunks.len());
        self.chunks.resize(slots, 0);
        self.chunks.iter_mut().zip(&other.chunks).for_each(|(all, more)| *all += more);
        self.bytes += other.bytes;
        self.goal_bytes += other.goal_bytes;
        self
    }

    /// Takes the sums of `part` from these.
    pub fn without(mut self, part: &Self) -> Self {
        let less = |(all, part): (&mut u64, &u64)| *all = all.saturating_sub(*part);
        self.chunks.iter_mut().zip(&part.chunks).for_each(less);
        self.bytes = self.bytes.saturating_sub(part.bytes);
        self.goal_bytes = self.goal_bytes.saturating_sub(part.goal_bytes);
        self
    }

    /// Returns the number of all chunks together.
    pub fn total(&self) -> u64 {
        self.chunks.iter().sum()
    }
}
