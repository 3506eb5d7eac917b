//! Tests of repair under budgets (promise A3): second for second, and to the byte.

use super::{MIB, at, chunk, pool, register, send_heartbeat};
use crate::redundancy::{Findings, Make, Purpose, RepairJob, ShardAt};
use crate::{Pool, PoolLimits};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::ids::{DonorId, VersionId};
use std::collections::{BTreeMap, BTreeSet};

const CHUNK: u64 = 4 * MIB;
const POOL_RATE: u64 = 40 * MIB;
const DONOR_RATE: u64 = 16 * MIB;
/// The number of donors. Each chunk that lacks a copy is at two of donors 1 to 4.
const DONORS: u32 = 8;
const SECONDS: u64 = 30;

/// Makes a job for a chunk that two donors have and a third is to have.
fn job(n: u64) -> RepairJob {
    let from = [1 + n as u32 % 4, 1 + (n as u32 + 1) % 4].map(DonorId);
    let shard = ShardAt {
        position: 0,
        name: chunk(n),
        len: CHUNK as u32,
        from: from.into(),
        at: from.into(),
    };
    RepairJob {
        unit: (VersionId(n), 0, false),
        kind: ChunkKind::Data,
        tolerates: 1,
        over_quota: false,
        group: None,
        shards: vec![shard],
        make: vec![Make { shard: 0, missing: false }],
        used: from.map(|donor| (donor, donor.0)).into(),
    }
}

/// The bytes that were ordered so far.
#[derive(Default)]
struct Ordered {
    seen: BTreeSet<ChunkName>,
    all: u64,
    writes: BTreeMap<DonorId, u64>,
    reads: BTreeMap<DonorId, u64>,
}

impl Ordered {
    fn look(&mut self, pool: &Pool) {
        for taker in (1..=DONORS).map(DonorId) {
            for flight in pool.repairs.tasks.of(taker) {
                let Purpose::Make { chunk, len, reads, .. } = &flight.purpose else { continue };
                if self.seen.insert(*chunk) {
                    self.all += u64::from(*len);
                    *self.writes.entry(taker).or_default() += u64::from(*len);
                    for (source, bytes) in reads {
                        *self.reads.entry(*source).or_default() += bytes;
                    }
                }
            }
        }
    }

    /// Checks that no more was ordered than was due, but for a second's worth and one chunk at once.
    fn check(&self, now: f64) {
        let due = |rate: u64| (rate as f64 * (now + 1.0)) as u64 + CHUNK;
        assert!(self.all <= due(POOL_RATE), "{} in all after {now} s", self.all);
        for (donor, bytes) in self.writes.iter().chain(&self.reads) {
            assert!(*bytes <= due(DONOR_RATE), "{bytes} at {donor} after {now} s");
        }
    }
}

#[test]
fn repair_uses_its_budgets_and_never_more_a3() {
    let limits =
        PoolLimits { repair_rate: POOL_RATE, repair_donor_rate: DONOR_RATE, ..pool().limits };
    let mut pool = Pool::new(limits);
    for donor in 1..=DONORS {
        register(&mut pool, donor, 7, 0.0);
        pool.donors.registration_mut(DonorId(donor)).expect("registered").room = 1000 * CHUNK;
    }
    let mut findings = Findings::default();
    findings.queue.extend((0..1000).map(|n| ((1, n), job(n))));
    pool.repairs.take_findings(&mut findings, at(0.0), at(0.0));

    let mut ordered = Ordered::default();
    // A donor has done by its next heartbeat all that it was told at the last.
    let mut told: BTreeMap<DonorId, Vec<u64>> = BTreeMap::new();
    for step in 0..SECONDS * 8 {
        let now = step as f64 / 8.0;
        if step % 2 == 0 {
            pool.hand_out(at(now), &|_| None);
            ordered.look(&pool);
            ordered.check(now);
        }
        // Each donor heartbeats once a second, each at a moment of its own.
        let donor = DonorId(1 + (step % 8) as u32);
        assert!(send_heartbeat(&mut pool, donor.0, 7, 0, now));
        for task in told.remove(&donor).unwrap_or_default() {
            if let Some(Purpose::Make { chunk, len, .. }) = pool.task_answered(donor, task, at(now))
            {
                pool.chunk_made(chunk, len, at(now));
            }
        }
        let numbers = pool.tasks_for(donor).into_iter().map(|task| task.number);
        told.insert(donor, numbers.collect());
    }
    let share = ordered.all as f64 / (POOL_RATE * SECONDS) as f64;
    assert!(share >= 0.9, "only {share:.2} of the budget was used");
    let state = pool.repair_state(at(SECONDS as f64));
    assert!(state.rate <= POOL_RATE && state.rate >= POOL_RATE * 7 / 10, "{state:?}");
}
