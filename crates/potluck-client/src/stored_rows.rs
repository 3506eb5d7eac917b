//! Rows of a file that the pool has. A row is a chunk, or with an erasure code the chunks that are encoded together.
//! Its data chunks are read as by any reader, and then sealed and encoded again as they were stored.

use crate::body::{Body, KeptChunk, ReadRow};
use crate::fetch::Fetcher;
use crate::recipe::Recipe;
use crate::source::{RowBodies, RowBytes, cut_again};
use potluck_core::read_plan::Piece;
use potluck_core::recipe::Entry;
use potluck_core::seal::SpaceKey;
use potluck_wire::env::Offload;
use potluck_wire::error::Failure;
use potluck_wire::net::BoxFuture;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::{OnceCell, Semaphore};

/// The most kept rows of a file that are read at a time. There are few because each may wait for more memory while it
/// holds some.
const READ_AT_ONCE: usize = 4;

/// The rows of a file, or of a part of one.
pub(crate) struct StoredRows {
    /// The recipe that names the chunks of the rows.
    pub recipe: Arc<Recipe>,
    /// The reader of the chunks.
    pub fetcher: Fetcher,
    /// The key that seals the chunks again, in a sealed space.
    pub key: Option<SpaceKey>,
    /// The threads on which chunks are sealed and encoded.
    pub offload: Offload,
}

impl StoredRows {
    /// Reads the data chunks of a row, and makes the stored bytes of the whole row from them.
    pub async fn read(&self, data: Range<usize>) -> Result<RowBytes, Failure> {
        let Self { recipe, fetcher, key, offload } = self;
        let entries = &recipe.entries[data.clone()];
        let piece =
            |(index, entry): (usize, &Entry)| Piece { index, skip: 0, take: entry.len, at: 0 };
        let pieces: Vec<Piece> = data.clone().zip(entries).map(piece).collect();
        let place = fetcher.memory.on_demand(fetcher.need(recipe, &pieces)).await;
        let read = fetcher.unit(recipe, &pieces, place).await?;
        let bodies = read.into_iter().map(|fetched| fetched.bytes);
        let read: Vec<_> = entries.iter().copied().zip(bodies).collect();
        let ec = recipe.file.ec;
        let parity = ec.map_or(0, |ec| ec.parity() * recipe.group(ec, data.start).len as usize);
        let claim = fetcher.memory.buffers.claim(parity).await;
        let key = key.clone();
        let again = offload.run(move || cut_again(read, ec, key.as_ref(), claim)).await;
        again.map_err(|error| error.failure())
    }
}

/// A row of a stored file that a new file takes over whole, such as a row that did not change since the version before.
/// It is offered by the names of its chunks, and read only if the pool lacks copies of a chunk.
pub(crate) struct KeptRow {
    rows: StoredRows,
    data: Range<usize>,
    /// Permits that all rows of the file share, so that few are read at a time.
    turns: Arc<Semaphore>,
    /// The bodies of the row's chunks once they were read, data before parity. A row is a whole group, so the index is
    /// the position.
    read: OnceCell<Vec<Arc<Body>>>,
}

impl KeptRow {
    /// Makes the row of the data chunks `data` of `rows`; all rows of the file share `turns`.
    pub fn new(rows: StoredRows, data: Range<usize>, turns: Arc<Semaphore>) -> Self {
        Self { rows, data, turns, read: OnceCell::new() }
    }

    /// Makes the permits that the rows of a file share, each of which takes one while it is read.
    pub fn turns() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(READ_AT_ONCE))
    }

    /// Returns the number of plaintext bytes of the row.
    pub fn len(&self) -> u64 {
        self.entries().iter().map(|entry| u64::from(entry.len)).sum()
    }

    /// Returns the data chunks of the row and its parity, to be stored in the new file.
    pub fn chunks(self: &Arc<Self>) -> RowBodies {
        let entries = self.entries();
        let body = |position, len, plain| {
            Body::Kept(KeptChunk { row: Arc::clone(self) as _, position, len, plain })
        };
        let data = entries.iter().enumerate();
        let data =
            data.map(|(at, entry)| (*entry, body(at, entry.stored_len(), entry.len))).collect();
        let Some(ec) = self.rows.recipe.file.ec else { return (data, Vec::new()) };
        let group = self.rows.recipe.group(ec, self.data.start);
        let parity = (ec.data()..ec.width()).filter_map(|at| Some((at, group.chunk(at)?)));
        (data, parity.map(|(at, (name, len))| (name, body(at, len, 0))).collect())
    }

    fn entries(&self) -> &[Entry] {
        &self.rows.recipe.entries[self.data.clone()]
    }
}

impl ReadRow for KeptRow {
    fn read(&self, position: usize) -> BoxFuture<'_, Result<Arc<Body>, Failure>> {
        let read = async || {
            let _turn = self.turns.acquire().await;
            let (data, parity) = self.rows.read(self.data.clone()).await?;
            let parity = parity.into_iter().map(|(_, body)| body);
            let bodies = data.into_iter().map(|(_, body)| body).chain(parity);
            Ok(bodies.map(|body| Arc::new(Body::Memory(body))).collect())
        };
        Box::pin(async move {
            let bodies: &Vec<_> = self.read.get_or_try_init(read).await?;
            Ok(Arc::clone(&bodies[position]))
        })
    }
}
