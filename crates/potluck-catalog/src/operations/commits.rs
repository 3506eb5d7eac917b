//! Written files become visible.

use crate::commit::{self, Batch, CommitOutcome, Refused, StoredFile};
use crate::names::When;
use crate::{Catalog, Durability, Error, chunks, conversions, placements};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, SessionId};
use potluck_pool::DonorSnapshot;
use std::sync::Arc;

/// A batch that was committed.
#[derive(Debug)]
pub struct CommittedFiles<F> {
    /// The outcome of its files.
    pub outcome: CommitOutcome<F>,
    /// Whether one of them lacks copies that are still to be made.
    pub open: bool,
}

impl Catalog {
    /// Commits a batch, unless it was committed before. Copies count as their donors stood in the
    /// snapshot, without those that stopped to count while this waited for its turn.
    ///
    /// Who `waits` for donors that have gone gets the error [`Error::HoldersAway`] for the whole batch.
    ///
    /// `told` are copies that donors told of and no receipt names. `reply` writes down what the caller
    /// will be told, to repeat it when it is lost.
    pub async fn commit_files<F: Clone + Send + Sync + 'static>(
        &self,
        batch: Arc<Batch<F>>,
        waits: bool,
        told: Arc<[(ChunkName, DonorId)]>,
        donors: DonorSnapshot,
        when: When,
        reply: impl Fn(&[Result<StoredFile, Refused<F>>]) -> Result<String, Error> + Send + 'static,
    ) -> Result<CommittedFiles<F>, Error> {
        let work = move |db: &_| {
            let view = donors.current();
            let outcome =
                commit::commit(db, &batch, waits, &view, when.pool_ms, when.wall_ms, &reply)?;
            for (name, donor) in told.iter() {
                if let Some(chunk) = chunks::get(db, name)? {
                    placements::told_before(db, chunk.id, *donor)?;
                }
            }
            let open = match &outcome {
                CommitOutcome::Fresh { files, .. } => {
                    conversions::any_open(db, files.iter().flatten().map(|file| file.version))?
                }
                CommitOutcome::Repeated(_) => false,
            };
            Ok(CommittedFiles { outcome, open })
        };
        self.write(Durability::Disk, work).await
    }

    /// The reply of a batch that was committed before.
    pub async fn committed_before(
        &self,
        session: SessionId,
        batch: u32,
    ) -> Result<Option<String>, Error> {
        self.read(move |db| commit::repeated(db, &session, batch)).await
    }
}
