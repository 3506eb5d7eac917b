//! Chunks that are copied from another donor for a task of the manager, such as repair or relocation. Each piece is
//! hashed and written as it arrives, exactly as if a client had put it, so the cap and the owner's reserve hold here,
//! too.

use crate::service::Service;
use crate::store::ChunkOrigin;
use crate::task_failure::{TaskFailure, not_placed};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::PIECE;
use potluck_wire::control::{Source, TaskFault};

/// A chunk of which the manager wants a copy on this donor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewCopy {
    /// The name of the chunk.
    pub chunk: ChunkName,
    /// The size of the chunk in stored bytes.
    pub len: u32,
    /// The ack level at which the copy counts as stored.
    pub ack: AckLevel,
    /// The kind of the chunk.
    pub kind: ChunkKind,
}

/// Fetches `wanted` from the first source that has it, verifies and stores it; does nothing where the chunk is held
/// already.
///
/// Errors: a fault of this donor, or the worst fault of the sources.
pub(crate) async fn copy(
    service: &Service,
    wanted: &NewCopy,
    from: &[Source],
) -> Result<(), TaskFailure> {
    if service.store.list_if_held(wanted.chunk, wanted.len, wanted.ack) {
        return Ok(());
    }
    let mut worst = None;
    for source in from {
        match copy_from(service, wanted, source).await {
            Ok(()) => return Ok(()),
            Err(fault @ TaskFailure { donor: None, .. }) => return Err(fault),
            Err(fault) => {
                tracing::debug!("cannot copy chunk {}: {fault:?}", wanted.chunk);
                worst = Some(worst.map_or(fault, |worst: TaskFailure| worst.or_worse(fault)));
            }
        }
    }
    Err(worst.unwrap_or(TaskFailure::here(TaskFault::SourceMissing)))
}

async fn copy_from(
    service: &Service,
    wanted: &NewCopy,
    source: &Source,
) -> Result<(), TaskFailure> {
    let NewCopy { chunk, len, ack, kind } = *wanted;
    // Room is taken first, so that no donor sends bytes that cannot be kept.
    let mut incoming = service.store.accept(chunk, len)?;
    let mut fetch = service.fetch(source, chunk, len).await?;
    let mut piece = vec![0; PIECE.min(len as usize) + incoming.tail_len()];
    let mut left = len as usize;
    while left > PIECE {
        left -= fetch.next(&mut piece[..PIECE]).await?;
        incoming.append(&piece[..PIECE])?;
    }
    fetch.next(&mut piece[..left]).await?;
    fetch.done();
    let last = &mut piece[..left + incoming.tail_len()];
    let placed = incoming.place(last, ChunkOrigin::task(kind), ack);
    placed.map(drop).map_err(|why| not_placed(why, Some(source.donor)))
}
