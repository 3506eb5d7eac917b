//! Locating: which donors have the chunks of a file that is not visible yet, for whoever reads it in the meantime.

use super::{Event, Window};
use crate::fetch::LocatedChunks;
use potluck_core::chunk::ChunkName;
use potluck_wire::error::Failure;
use tokio::sync::oneshot;

impl Window {
    /// Tells which donors have chunks of the session, by what they acknowledged or else by what the manager says.
    pub(super) fn locate(
        &mut self,
        chunks: Vec<ChunkName>,
        done: oneshot::Sender<Result<LocatedChunks, Failure>>,
    ) {
        let known = chunks.into_iter().map(|name| (name, self.groups.holders(&name))).collect();
        let (calls, ack) = (self.session.calls(), self.session.reserved.policy.ack);
        self.events.push(Box::pin(async move {
            let _ = done.send(calls.locate(known, ack).await); // whoever asked may be gone
            Event::Located
        }));
    }
}
