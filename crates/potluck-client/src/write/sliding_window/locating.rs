//! Locating: a client that reads a file that is not visible yet is told which donors have its chunks.

use super::{Event, Window};
use crate::fetch::LocatedChunks;
use potluck_core::chunk::ChunkName;
use potluck_wire::error::Failure;
use tokio::sync::oneshot;

impl Window {
    /// Tells through `done` which donors have these chunks, by their acknowledgements or else by what the manager says.
    pub(super) fn locate(
        &mut self,
        chunks: Vec<ChunkName>,
        done: oneshot::Sender<Result<LocatedChunks, Failure>>,
    ) {
        let known = chunks.into_iter().map(|name| (name, self.groups.holders(&name))).collect();
        let (calls, ack) = (self.session.calls(), self.session.reserved.policy.ack);
        self.events.push(Box::pin(async move {
            let _ = done.send(calls.locate(known, ack).await); // the reader may be gone
            Event::Located
        }));
    }
}
