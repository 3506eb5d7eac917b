//! Serves a chunk or a part of it. The bytes are not checked here: the reader knows what they must hash to. The proof
//! of a part is made of the segment hashes that are stored after the chunk.

use super::BulkSession;
use crate::socket::PeerIo;
use crate::store::{FoundChunk, StoreRefusal};
use crate::throttle::PausedByOwner;
use potluck_core::chunk::ChunkName;
use potluck_core::fair_turns::TurnCost;
use potluck_core::merkle::whole_segments;
use potluck_core::traffic::Direction;
use potluck_wire::bulk::{
    BODY_STOPPED, BulkStatus, ChunkPart, FrameError, PIECE, Reply, SLICE_FOLLOWS, SendFileError,
    slices,
};
use potluck_wire::env;
use potluck_wire::ticket::Ops;
use std::io;
use std::ops::Range;
use std::sync::Arc;

impl BulkSession {
    /// Sends the chunk or the part of it, or a status that says why not.
    pub(super) async fn get(
        &mut self,
        io: &mut impl PeerIo,
        tag: u32,
        name: &ChunkName,
        part: Option<ChunkPart>,
    ) -> Result<(), FrameError> {
        let serving = self.service.traffic.begin(Direction::Read, self.visitor());
        let store = &self.service.store;
        let found = match self.allowed(Ops::GET) {
            Ok(_) if part.is_some() => store.find_to_read_parts(name).map_err(status_of),
            // A client that reads all of a chunk does not come back for more of it, so its file is not kept
            // open.
            Ok(_) => store.find(name).map(|found| found.map(Arc::new)).map_err(status_of),
            Err(status) => Err(status),
        };
        let chunk = match found {
            Ok(Some(chunk)) => chunk,
            Ok(None) => {
                return self.answer(io, tag, Reply::bare(BulkStatus::NotFound), false).await;
            }
            Err(status) => return self.answer(io, tag, Reply::bare(status), false).await,
        };
        let Some((proof, range)) = what_to_send(&chunk, name, part) else {
            // The reader reports a copy that cannot be read to the manager, which then has this donor verify it.
            return self.answer(io, tag, Reply::bare(BulkStatus::DiskFailed), false).await;
        };
        let len = range.end - range.start;
        if self.turn(io, tag, self.cost_of(&range, 1)).await?.is_err() {
            return self.answer(io, tag, Reply::bare(BulkStatus::Away), false).await;
        }
        let body = proof.len() as u32 + len;
        let found = Reply { limit: self.limit(), ..Reply::found(body) };
        let mut head = found.encode(tag, &mut self.lane);
        head.extend_from_slice(&proof);
        let mut sent = proof.len() as u32;
        for slice in slices(proof.len() as u32, range.clone()) {
            if slice.start > range.start {
                // A pause stops the body as its reader does: the connection stays of use.
                let is_stopped = self.ahead.read(&mut self.inbox, io, tag)?
                    || self.turn_within(io, self.cost_of(&slice, 0)).await.is_err();
                if is_stopped {
                    io.write(&BODY_STOPPED, &[]).await?;
                    serving.served(sent);
                    return Ok(());
                }
                head = SLICE_FOLLOWS.to_vec();
            }
            sent += slice.end - slice.start;
            match self.send_in_turns(io, &head, &chunk, slice).await {
                Ok(()) => {}
                Err(SendFileError::Stream(why)) => return Err(why.into()),
                Err(SendFileError::File(why)) => {
                    tracing::warn!("cannot read chunk {name} to its end: {why}");
                    io.meanwhile(self.doubt(*name)).await;
                    return Err(why.into());
                }
            }
        }
        serving.served(body);
        // The next answers may not be wanted any more after this one took a while.
        if body as usize >= PIECE {
            self.ahead.read(&mut self.inbox, io, tag)?;
        }
        Ok(())
    }

    /// Returns the cost of the first turn for a range of a chunk.
    fn cost_of(&self, range: &Range<u32>, requests: u32) -> TurnCost {
        let bytes = self.service.throttle.slice((range.end - range.start).into()) as u32;
        TurnCost { direction: Direction::Read, bytes, requests }
    }

    /// Waits for a turn in the middle of a body, where nothing can be said meanwhile.
    async fn turn_within(&self, io: &mut impl PeerIo, cost: TurnCost) -> Result<(), PausedByOwner> {
        let throttle = &self.service.throttle;
        match throttle.is_limited() {
            true => io.meanwhile(throttle.turn(self.flow(), cost)).await,
            false => Ok(()),
        }
    }

    /// Sends `head` and a slice of the chunk, in as many turns as the throttle asks for. The first turn was had before.
    async fn send_in_turns(
        &self,
        io: &mut impl PeerIo,
        head: &[u8],
        chunk: &FoundChunk,
        slice: Range<u32>,
    ) -> Result<(), SendFileError> {
        let (mut at, end) = (u64::from(slice.start), u64::from(slice.end));
        let mut head = head;
        loop {
            let until = at + self.service.throttle.slice(end - at);
            io.send_file(std::mem::take(&mut head), &*chunk.file, at..until).await?;
            self.service.throttle.moved(until - at);
            at = until;
            if at == end {
                return Ok(());
            }
            // If the owner pauses, the slice that was promised cannot be sent to its end, so the connection ends.
            let turn = self.turn_within(io, self.cost_of(&(at as u32..slice.end), 0)).await;
            turn.map_err(io::Error::from)?;
        }
    }

    /// Verifies a chunk in a task of its own, which quarantines the chunk and reports it if it is bad. The reader does
    /// not wait for that: it was promised more bytes, and learns of the failure when the connection closes.
    async fn doubt(&self, name: ChunkName) {
        let (store, offload) = (Arc::clone(&self.service.store), self.service.env.offload);
        env::spawn(async move {
            if let Err(why) = offload.run(move || store.verify(&name)).await {
                tracing::warn!("cannot read chunk {name} back: {why:?}");
            }
        });
    }
}

/// Returns the proof of a part (empty for the whole chunk), and the range of the chunk to send; `None` if the stored
/// chunk does not have such a part, or its segment hashes are bad.
fn what_to_send(
    chunk: &FoundChunk,
    name: &ChunkName,
    part: Option<ChunkPart>,
) -> Option<(Vec<u8>, Range<u32>)> {
    let Some(part) = part else { return Some((Vec::new(), 0..chunk.len)) };
    let range = part.offset..part.offset.checked_add(part.len)?;
    let segments = whole_segments(&range, chunk.len)?;
    let proof = chunk.tree(name)?.proof(&segments);
    Some((proof.as_bytes().to_vec(), range))
}

/// Returns the status that tells a peer of a refusal.
pub(super) fn status_of(refusal: StoreRefusal) -> BulkStatus {
    match refusal {
        StoreRefusal::Full => BulkStatus::Full,
        StoreRefusal::Disk => BulkStatus::DiskFailed,
        StoreRefusal::Lost => BulkStatus::Away,
    }
}
