//! Answers to the manager's questions about chunks that this donor holds, without moving them.

use crate::disk::read_exact_at;
use crate::service::Service;
use crate::store::{Cursor, Store};
use crate::task_failure::TaskFailure;
use potluck_core::chunk::{ChunkKind, ChunkName, Digest};
use potluck_wire::bulk::PIECE;
use potluck_wire::control::{Holding, TaskFault, TaskOutcome};
use potluck_wire::packed::Packed;
use std::io;
use std::sync::Arc;

/// The number of chunks whose trailers are read in one piece of work on another thread.
const AT_ONCE: usize = 256;

/// Computes the BLAKE3 hash under `key` of `len` bytes from `offset` of a chunk. A donor that has not kept the bytes
/// cannot know it, because the key is new.
///
/// Errors: [`TaskFault::NotHere`] also where the chunk is too short; [`TaskFault::Disk`].
pub(crate) fn audit(
    store: &Store,
    chunk: &ChunkName,
    key: &Digest,
    offset: u32,
    len: u32,
) -> Result<Digest, TaskFailure> {
    let found = store.find(chunk)?.ok_or(TaskFailure::here(TaskFault::NotHere))?;
    if u64::from(offset) + u64::from(len) > u64::from(found.len) {
        return Err(TaskFailure::here(TaskFault::NotHere));
    }
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    let mut piece = vec![0; PIECE.min(len as usize)];
    let mut at = 0;
    while at < len as usize {
        let want = piece.len().min(len as usize - at);
        let read = read_exact_at(&*found.file, &mut piece[..want], u64::from(offset) + at as u64);
        read.map_err(|why| {
            tracing::warn!("cannot read chunk {chunk}: {why}");
            TaskFailure::here(TaskFault::Disk)
        })?;
        hasher.update(&piece[..want]);
        at += want;
    }
    Ok(Digest(*hasher.finalize().as_bytes()))
}

/// Lists the blocks of the metadata log that this donor holds.
pub(crate) async fn describe(service: &Service) -> Result<TaskOutcome, TaskFailure> {
    let mut blocks = Vec::new();
    let mut cursor = Some(Cursor::default());
    while let Some(at) = cursor {
        let store = Arc::clone(&service.store);
        let listed = service.env.offload.run(move || kinds_of(&store, at)).await;
        let (kinds, next) = listed.map_err(|why| {
            tracing::warn!("cannot list the store: {why}");
            TaskFailure::here(TaskFault::Disk)
        })?;
        let logs = kinds.into_iter().filter(|(_, kind)| *kind == ChunkKind::Log);
        blocks.extend(logs.map(|(holding, _)| holding));
        cursor = next;
        tokio::task::yield_now().await;
    }
    Ok(TaskOutcome::Described { blocks: Packed(blocks) })
}

type Kinds = Vec<(Holding, ChunkKind)>;

fn kinds_of(store: &Store, cursor: Cursor) -> io::Result<(Kinds, Option<Cursor>)> {
    let page = store.page_of(cursor, AT_ONCE)?;
    let kind = |holding: Holding| Some((holding, store.kind(&holding)?));
    Ok((page.holdings.into_iter().filter_map(kind).collect(), page.next))
}
