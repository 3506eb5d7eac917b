//! Takes the results of donors' tasks: copies and parity that they made, and failures.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Computed, Encoded, Error, Learnt, ToldCopies};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_pool::redundancy::{Encode, Purpose};
use potluck_wire::control::{Holding, TaskFault, TaskOutcome, TaskResult};
use std::collections::BTreeSet;
use std::sync::Arc;

handles! {
    /// The handles for taking the results of tasks.
    pub struct ApplyingTaskResults {
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        scan_state: Arc<ScanState>,
    }
}

impl ApplyingTaskResults {
    /// Takes the results of a donor's tasks. All copies wait for the catalog's writer together, as does all parity:
    /// otherwise a busy donor would seem silent while its heartbeat waits behind commits of others.
    pub async fn take(&self, donor: DonorId, results: Vec<TaskResult>) -> Result<(), Error> {
        let now = self.time.tick();
        let (mut made, mut computed) = (Vec::new(), Vec::new());
        for TaskResult { task, outcome } in results {
            let purpose = self.pool.lock().task_answered(donor, task, now);
            match (purpose, outcome) {
                (Some(Purpose::Make { chunk, len, .. }), TaskOutcome::Done) => {
                    made.push((chunk, len));
                }
                (Some(Purpose::Encode { group, asked, .. }), TaskOutcome::Encoded { parity }) => {
                    self.pool.lock().parity_made(&group, now);
                    self.pool.lock().worked(donor, now);
                    computed.extend(self.compared(donor, &group, asked, parity.0));
                }
                (
                    Some(Purpose::Make { chunk, len, .. }),
                    TaskOutcome::Failed { why, donor: source },
                ) => {
                    let copy = Holding { name: chunk, len };
                    self.failed((donor, task), copy, why, source, now);
                }
                (
                    Some(Purpose::Encode { group, .. }),
                    TaskOutcome::Failed { why, donor: source },
                ) => {
                    let shard = &group.shards[0];
                    let copy = Holding { name: shard.name, len: shard.len };
                    self.failed((donor, task), copy, why, source, now);
                }
                (Some(Purpose::Make { .. } | Purpose::Encode { .. }), _) => {
                    // The answer does not fit the task, which counts as a failure of the donor itself.
                    self.pool.lock().leave_alone(donor, now);
                    self.scan_state.changed(now);
                }
                // A task that is not known is of an earlier term, or was given up.
                (Some(Purpose::Scrub) | None, _) => {}
            }
        }
        if !made.is_empty() {
            self.made(donor, made, now).await?;
        }
        if !computed.is_empty() {
            self.learn(computed).await?;
            self.finished(now);
        }
        Ok(())
    }

    /// Notes the chunks that a donor says it made. The same heartbeat has listed them before among the chunks that
    /// arrived. A donor that did not list a chunk does not have it and is left alone for a while; otherwise each scan
    /// might give it the same chunk to make again.
    async fn made(
        &self,
        donor: DonorId,
        made: Vec<(ChunkName, u32)>,
        now: Tick,
    ) -> Result<(), Error> {
        let names = made.iter().map(|(chunk, _)| *chunk).collect();
        let told = ToldCopies { on_disk: names, ..ToldCopies::default() };
        let written = self.catalog.tell(donor, told, self.time.now_ms()).await?;
        let not_there: BTreeSet<ChunkName> = written.not_there.into_iter().collect();
        {
            let mut pool = self.pool.lock();
            for (chunk, len) in made.into_iter().filter(|(chunk, _)| !not_there.contains(chunk)) {
                pool.chunk_made(chunk, len, now);
                pool.worked(donor, now);
            }
            if let Some(chunk) = not_there.first() {
                tracing::debug!(%donor, %chunk, "a donor says that it made what it does not list");
                pool.leave_alone(donor, now);
            }
        }
        if !not_there.is_empty() {
            self.scan_state.changed(now);
        }
        self.finished(now);
        Ok(())
    }

    /// Has a scan look again when no task is under way any more, because the chunks that were made complete versions.
    /// If nothing is left to be made either, the scan is hurried, so that the state shows at once that all is well.
    fn finished(&self, now: Tick) {
        let (idle, done) = {
            let pool = self.pool.lock();
            (pool.repairs.idle(), pool.repairs.is_unseen())
        };
        match (idle, done) {
            (_, true) => self.scan_state.hurry(now),
            (true, false) => self.scan_state.changed(now),
            (false, false) => {}
        }
    }

    fn failed(
        &self,
        (donor, task): (DonorId, u64),
        copy: Holding,
        why: TaskFault,
        source: Option<DonorId>,
        now: Tick,
    ) {
        let chunk = copy.name;
        tracing::debug!(%donor, %chunk, ?why, ?source, "a task of repair failed");
        let mut pool = self.pool.lock();
        match (why, source) {
            (TaskFault::SourceMissing | TaskFault::SourceWrong, Some(source)) => {
                pool.accuse(source, copy, Some(MemberId(donor.0)), now);
                pool.let_rest(source, now);
            }
            (TaskFault::SourceAway, Some(source)) => pool.source_is_away(source, task, now),
            _ => pool.let_rest(donor, now),
        }
        drop(pool);
        self.scan_state.changed(now);
    }

    /// Takes the answer of one of the donors that compute a group's parity. It is believed if another donor computed
    /// the same, or if only one could be asked. The first of two answers is kept until the second comes.
    fn compared(
        &self,
        donor: DonorId,
        group: &Encode,
        asked: usize,
        parity: Vec<ChunkName>,
    ) -> Vec<Computed> {
        let now = self.time.tick();
        if parity.len() != group.ec.parity() {
            self.pool.lock().leave_alone(donor, now);
            return Vec::new();
        }
        let len = group.longest();
        let mut encoded = Encoded {
            version: group.version,
            ec: group.ec,
            group: group.group,
            parity: parity.into_iter().map(|name| (name, len)).collect(),
            holders: vec![donor],
        };
        if asked == 1 {
            return vec![Computed::Believed(encoded)];
        }
        let key = group.key();
        let mut kept = self.scan_state.kept();
        let Some(first) = kept.encoded.remove(&key) else {
            kept.encoded.insert(key, encoded);
            return Vec::new();
        };
        let other = first.holders[0];
        if other == donor {
            kept.encoded.insert(key, encoded);
            return vec![Computed::Doubtful(first)];
        }
        drop(kept);
        if first.parity == encoded.parity {
            encoded.holders.push(other);
            return vec![Computed::Believed(encoded)];
        }
        tracing::error!(version = %group.version, group = group.group, %donor, %other,
        "two donors computed different parity; neither is believed");
        self.pool.lock().parity_differs(key, [donor, other], now);
        self.scan_state.changed(now);
        vec![Computed::Doubtful(first), Computed::Doubtful(encoded)]
    }

    /// Writes down the parity that donors computed: as that of a version, or for garbage collection to find.
    pub async fn learn(&self, computed: Vec<Computed>) -> Result<(), Error> {
        if computed.is_empty() {
            return Ok(());
        }
        let Learnt { again, claimed } =
            self.catalog.learn_parity(computed, self.time.now_ms()).await?;
        let now = self.time.tick();
        let mut pool = self.pool.lock();
        again.iter().for_each(|again| pool.in_use_again(again, now));
        claimed.into_iter().for_each(|(donor, chunks)| pool.claimed(donor, chunks));
        Ok(())
    }
}
