//! Serving a chunk: no byte of it passes through this process, and none is checked; its reader
//! knows what it must hash to.

use super::Session;
use crate::socket::Peer;
use crate::store::Refusal;
use potluck_core::chunk::ChunkName;
use potluck_wire::bulk::{FrameError, Reply, Status};
use potluck_wire::ticket::Ops;

impl Session {
    /// Sends the chunk, or says why not.
    pub(super) async fn get(
        &mut self,
        io: &mut impl Peer,
        tag: u32,
        name: &ChunkName,
    ) -> Result<(), FrameError> {
        let found = match self.allowed(Ops::GET) {
            Ok(_) => self.service.store.find(name).map_err(status_of),
            Err(status) => Err(status),
        };
        let chunk = match found {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return self.answer(io, tag, Reply::bare(Status::NotFound)).await,
            Err(status) => return self.answer(io, tag, Reply::bare(status)).await,
        };
        let reply = Reply::found(chunk.len);
        let head = reply.encode(tag, &mut self.lane);
        // A disk that fails from here on ends the connection: the length has been promised.
        io.send_file(&head, &*chunk.file, chunk.len.into()).await?;
        self.service.store.count_served(chunk.len);
        Ok(())
    }
}

/// What a peer is told of a refusal.
pub(super) fn status_of(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Full => Status::Full,
        Refusal::Disk => Status::DiskFailed,
        Refusal::Lost => Status::Away,
    }
}
