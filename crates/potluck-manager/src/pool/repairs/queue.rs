//! Jobs that wait to be handed out, the most urgent first.

use crate::survey::Job;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Jobs looked at in one round.
const ROUND: usize = 2048;
/// Of these, the most urgent, which are looked at in every round.
const HEAD: usize = 512;

/// How many more deaths a job's unit survives, and its number in the survey.
pub type Key = (u32, u64);

/// What waits.
#[derive(Debug, Default)]
pub struct Queue {
    jobs: BTreeMap<Key, Job>,
    /// The last of the most urgent in this round.
    head: Option<Key>,
    /// The last of the others that was looked at.
    after: Option<Key>,
}

impl Queue {
    /// A queue of these.
    pub fn new(jobs: BTreeMap<Key, Job>) -> Self {
        Self { jobs, head: None, after: None }
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The jobs to be looked at now: the most urgent, and of the others those behind the last that
    /// was looked at, so that jobs which wait for a busy donor keep nobody from the rest.
    pub fn round(&mut self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.jobs.keys().take(HEAD).copied().collect();
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
    pub fn take(&mut self, key: Key) -> Option<Job> {
        if Some(key) > self.head {
            self.after = Some(key);
        }
        self.jobs.remove(&key)
    }

    /// What is left of a job waits on.
    pub fn put_back(&mut self, key: Key, rest: Job) {
        self.jobs.insert(key, rest);
    }

    /// Whether it holds anything that was promised.
    pub fn restores(&self) -> bool {
        self.jobs.values().any(|job| !job.is_goal())
    }

    /// What all jobs come to, without those of what files are being changed to.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        self.jobs.values().for_each(|job| sums.add(job));
        sums
    }
}

/// Chunks to make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    /// By how many more deaths their units survive.
    pub chunks: Vec<u64>,
    /// Their stored bytes.
    pub bytes: u64,
}

impl Sums {
    fn add(&mut self, job: &Job) {
        if job.is_goal() {
            return; // nothing that was promised lacks
        }
        let slot = job.tolerates as usize;
        if self.chunks.len() <= slot {
            self.chunks.resize(slot + 1, 0);
        }
        self.chunks[slot] += job.make.len() as u64;
        let lens = job.make.iter().map(|make| u64::from(job.shards[make.shard].len));
        self.bytes += lens.sum::<u64>();
    }

    /// Both together.
    pub fn with(mut self, other: &Self) -> Self {
        let slots = self.chunks.len().max(other.chunks.len());
        self.chunks.resize(slots, 0);
        self.chunks.iter_mut().zip(&other.chunks).for_each(|(all, more)| *all += more);
        self.bytes += other.bytes;
        self
    }

    /// Without a part of it.
    pub fn without(mut self, part: &Self) -> Self {
        let less = |(all, part): (&mut u64, &u64)| *all = all.saturating_sub(*part);
        self.chunks.iter_mut().zip(&part.chunks).for_each(less);
        self.bytes = self.bytes.saturating_sub(part.bytes);
        self
    }

    /// All chunks.
    pub fn total(&self) -> u64 {
        self.chunks.iter().sum()
    }
}
