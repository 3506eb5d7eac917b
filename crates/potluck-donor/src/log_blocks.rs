//! The blocks of the metadata log that this donor holds, for a manager that lost its catalog.

use crate::service::Service;
use crate::store::{Cursor, Store};
use crate::task_failure::TaskFailure;
use potluck_core::chunk::ChunkKind;
use potluck_wire::control::{Holding, TaskFault, TaskOutcome};
use potluck_wire::packed::Packed;
use std::io;
use std::sync::Arc;

/// The number of chunks whose trailers are read in one piece of work on another thread.
const AT_ONCE: usize = 256;

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
