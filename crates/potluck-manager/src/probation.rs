//! Probation of a quarantined donor: when an admin asks to trust it again, other donors first fetch a sample of its
//! chunks. The donor stays in quarantine until all of the sample proved right.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::shared_pool::SharedPool;
use crate::tasks::audit::Audit;
use potluck_catalog::{Catalog, DonorNote, Error};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_pool::ProbationResult;
use potluck_wire::control::TaskOutcome;
use potluck_wire::env::Env;
use std::sync::Arc;

handles! {
    /// The handles for testing quarantined donors.
    pub struct Probation {
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        scan_state: Arc<ScanState>,
        audit: Audit,
    }
}

/// The number of chunks that are fetched from a donor on probation, spread over all it holds. A donor that lost or
/// changed a quarter of its chunks passes once in a hundred probations.
const SAMPLE: usize = 16;

impl Probation {
    /// Begins to test a donor. A donor that holds nothing, or that is the only one of the pool, is trusted on the
    /// admin's word.
    pub async fn begin(&self, donor: DonorId) -> Result<(), Error> {
        let Some(why) = self.pool.lock().why_quarantined(donor) else { return Ok(()) };
        let offset = self.env.entropy.u64();
        let sample = self.catalog.sample(donor, SAMPLE, offset).await?;
        let alone = self.pool.lock().donor_count() < 2;
        if sample.is_empty() || alone {
            return self.release(donor).await;
        }
        let sample = sample.into_iter().map(|drawn| (drawn.name, drawn.len)).collect();
        self.pool.lock().try_again(donor, why, sample);
        self.go_on();
        Ok(())
    }

    /// Asks for the tests that are due.
    pub fn go_on(&self) {
        let now = self.time.tick();
        let due = self.pool.lock().due_tests(now);
        for (suspect, chunk, len) in due {
            let testers = self.pool.lock().testers(suspect, now);
            self.audit.probe(chunk, len, suspect, &testers);
        }
    }

    /// Takes the outcome of another donor's try to fetch a chunk from `suspect`.
    pub async fn heard(
        &self,
        suspect: DonorId,
        chunk: ChunkName,
        outcome: &TaskOutcome,
    ) -> Result<(), Error> {
        let verdict = self.pool.lock().tested(suspect, &chunk, outcome);
        match verdict {
            None => Ok(()),
            Some(ProbationResult::Right) => self.release(suspect).await,
            Some(ProbationResult::Wrong(why)) => self.audit.quarantine(suspect, why).await,
        }
    }

    async fn release(&self, donor: DonorId) -> Result<(), Error> {
        self.catalog.note_donor(donor, DonorNote::Quarantined(None)).await?;
        self.pool.lock().forgive(donor);
        self.scan_state.hurry(self.time.tick());
        Ok(())
    }
}
