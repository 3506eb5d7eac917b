//! Operations on chunks that no file uses and that are on their way out.

use crate::chunks::unused_chunks::{self, Condemned, InMemory, UnusedSince};
use crate::{Catalog, Durability, Error};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{ChunkId, DonorId};

/// The most steps in which a donor's copies of unused chunks are looked for in one transaction. Each finds one at most.
const STEPS: usize = 1024;

impl Catalog {
    /// Returns a page of the chunks that no file has used since `before_ms` and that are not condemned, longest unused
    /// first.
    pub async fn unused_chunks(
        &self,
        before_ms: u64,
        after: UnusedSince,
        limit: usize,
    ) -> Result<Vec<(UnusedSince, ChunkName)>, Error> {
        self.read(move |db| unused_chunks::unused(db, before_ms, after, limit)).await
    }

    /// Stops counting the copies at a donor that was started again, of chunks that no file uses, that it acknowledged in
    /// memory only: it may have lost them with its power, and lists them all the same. Works in several transactions,
    /// each for some of the chunks. What falls out of use meanwhile may count on.
    pub async fn doubt_in_memory(&self, donor: DonorId) -> Result<(), Error> {
        let mut rest = Some(ChunkId::FIRST);
        while let Some(from) = rest {
            let page = move |db: &_| unused_chunks::in_memory(db, donor, from, STEPS);
            let InMemory { chunks, next } = self.read(page).await?;
            rest = next;
            if !chunks.is_empty() {
                let doubt = move |db: &_| unused_chunks::doubt_in_memory(db, donor, &chunks);
                self.write(Durability::Process, doubt).await?;
            }
        }
        Ok(())
    }

    /// Condemns those chunks of `names` that no file has used since `before_ms`.
    pub async fn condemn(&self, names: Vec<ChunkName>, before_ms: u64) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| unused_chunks::condemn(db, &names, before_ms)).await
    }

    /// Returns a page of the chunks that are condemned, in order of their numbers.
    pub async fn condemned_chunks(
        &self,
        after: ChunkId,
        limit: usize,
    ) -> Result<Vec<Condemned>, Error> {
        self.read(move |db| unused_chunks::condemned(db, after, limit)).await
    }

    /// Forgets the copies of condemned chunks at donors that were removed from the pool, for which no order to delete
    /// is needed.
    pub async fn forget_copies(
        &self,
        copies: Vec<(ChunkId, Vec<DonorId>)>,
        now_ms: u64,
    ) -> Result<(), Error> {
        let forget = move |db: &_| {
            let mut all = copies.iter();
            all.try_for_each(|(chunk, donors)| {
                unused_chunks::forget_copies(db, *chunk, donors, now_ms)
            })
        };
        self.write(Durability::Process, forget).await
    }
}
