//! Serving a chunk: no byte of it passes through this process, and none is checked; its reader
//! knows what it must hash to.

use super::Session;
use crate::socket::PeerIo;
use crate::store::Refusal;
use potluck_core::chunk::ChunkName;
use potluck_wire::bulk::{FrameError, Reply, SendFileError, Status};
use potluck_wire::ticket::Ops;
use std::sync::Arc;

impl Session {
    /// Sends the chunk, or says why not.
    pub(super) async fn get(
        &mut self,
        io: &mut impl PeerIo,
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
        match io.send_file(&head, &*chunk.file, chunk.len.into()).await {
            Ok(()) => {
                self.service.store.count_served(chunk.len);
                Ok(())
            }
            Err(SendFileError::Stream(why)) => Err(why.into()),
            Err(SendFileError::File(why)) => {
                tracing::warn!("cannot read chunk {name} to its end: {why}");
                io.meanwhile(self.doubt(*name)).await;
                Err(why.into())
            }
        }
    }

    /// Has a chunk read back by a task of its own, which quarantines it and tells the manager if it
    /// is spoiled. The reader, who was promised a length and knows nothing until it is hung up on,
    /// does not wait for that.
    async fn doubt(&self, name: ChunkName) {
        let (store, offload) = (Arc::clone(&self.service.store), self.service.env.offload);
        tokio::spawn(async move {
            if let Err(why) = offload.run(move || store.verify(&name)).await {
                tracing::warn!("cannot read chunk {name} back: {why:?}");
            }
        });
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
