//! Rows of a file that the pool has, or had. A row is a chunk, or with an erasure code the chunks that are encoded
//! together. Its data chunks are read as by any reader, or from the local file that they were cut from, and then sealed
//! and encoded again as they were stored.

use crate::body::{Body, KeptChunk, ReadRow};
use crate::buffer::{Buffer, Claim};
use crate::fetch::Fetcher;
use crate::recipe::Recipe;
use crate::source::{RowBodies, RowBytes, cut_again};
use potluck_core::chunk::Digest;
use potluck_core::read_plan::Piece;
use potluck_core::recipe::Entry;
use potluck_core::seal::SpaceKey;
use potluck_wire::env::Offload;
use potluck_wire::error::Failure;
use potluck_wire::net::BoxFuture;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
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
    /// The local file that the rows were cut from, if there is one.
    pub local: Option<LocalRows>,
}

/// The part of a local file that rows were cut from.
#[derive(Clone)]
pub(crate) struct LocalRows {
    /// The path of the local file.
    pub path: PathBuf,
    /// The offset in the file at which the first row begins, in bytes.
    pub offset: u64,
}

impl LocalRows {
    /// Reads the plaintext of chunks that follow one another from `at` bytes after the first row, into buffers that
    /// count against `claim`; `None` if the file cannot be read, or has other bytes by now. It blocks.
    fn read(&self, entries: Vec<Entry>, at: u64, mut claim: Claim) -> Option<Vec<(Entry, Buffer)>> {
        // If there is a pipe at the path by now, opening it could wait for ever.
        if !fs::metadata(&self.path).ok()?.is_file() {
            return None;
        }
        let file = File::open(&self.path).ok()?;
        let mut at = self.offset + at;
        let mut read = Vec::with_capacity(entries.len());
        for entry in entries {
            let len = entry.len as usize;
            let mut bytes = claim.split(len).buffer(len);
            file.read_exact_at(&mut bytes, at).ok()?;
            if Digest::of(&bytes) != entry.digest {
                return None;
            }
            at += u64::from(entry.len);
            read.push((entry, bytes));
        }
        Some(read)
    }
}

impl StoredRows {
    /// Reads the data chunks of a row, and makes the stored bytes of the whole row from them.
    pub async fn read(&self, data: Range<usize>) -> Result<RowBytes, Failure> {
        let Self { recipe, fetcher, key, offload, .. } = self;
        let entries = &recipe.entries[data.clone()];
        let piece =
            |(index, entry): (usize, &Entry)| Piece { index, skip: 0, take: entry.len, at: 0 };
        let pieces: Vec<Piece> = data.clone().zip(entries).map(piece).collect();
        let place = fetcher.memory.on_demand(fetcher.need(recipe, &pieces)).await;
        let read = match self.read_locally(data.clone()).await {
            Some(read) => read,
            None => {
                let read = fetcher.unit(recipe, &pieces, place).await?;
                let bodies = read.into_iter().map(|fetched| fetched.bytes);
                entries.iter().copied().zip(bodies).collect()
            }
        };
        let ec = recipe.file.ec;
        let parity = ec.map_or(0, |ec| ec.parity() * recipe.group(ec, data.start).len as usize);
        let claim = fetcher.memory.buffers.claim(parity).await;
        let key = key.clone();
        let again = offload.run(move || cut_again(read, ec, key.as_ref(), claim)).await;
        again.map_err(|error| error.failure())
    }

    /// Reads the data chunks of a row from the local file that they were cut from; `None` if there is none, or it has
    /// other bytes by now.
    async fn read_locally(&self, data: Range<usize>) -> Option<Vec<(Entry, Buffer)>> {
        let local = self.local.clone()?;
        let at = self.recipe.offset(data.start);
        let entries = self.recipe.entries[data].to_vec();
        let bytes = entries.iter().map(|entry| entry.len as usize).sum();
        let claim = self.fetcher.memory.buffers.claim(bytes).await;
        self.offload.run(move || local.read(entries, at, claim)).await
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
        let data = data.map(|(at, entry)| (*entry, body(at, entry.len, entry.len))).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffers;
    use potluck_core::chunk::ChunkName;

    #[tokio::test]
    async fn chunks_are_reread_from_an_unchanged_local_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        let content: Vec<u8> = (0..300_000_u32).map(|at| (at / 1000) as u8).collect();
        fs::write(&path, &content).expect("written");
        let local = LocalRows { path: path.clone(), offset: 50_000 };
        let entry = |bytes: &[u8]| {
            let digest = Digest::of(bytes);
            Entry { name: ChunkName(digest.0), digest, len: bytes.len() as u32, sealed: false }
        };
        let entries = vec![entry(&content[60_000..160_000]), entry(&content[160_000..200_000])];
        let buffers = Buffers::new(1 << 20);
        let claim = || buffers.claim(140_000);
        let read = local.read(entries.clone(), 10_000, claim().await).expect("as it was cut");
        let read: Vec<&[u8]> = read.iter().map(|(_, bytes)| &bytes[..]).collect();
        assert!(read.concat() == content[60_000..200_000]);
        assert!(local.read(entries.clone(), 10_001, claim().await).is_none(), "other bytes");
        fs::write(&path, &content[..199_999]).expect("written");
        assert!(local.read(entries.clone(), 10_000, claim().await).is_none(), "too short");
        fs::remove_file(&path).expect("removed");
        assert!(local.read(entries, 10_000, claim().await).is_none(), "no file");
    }
}
