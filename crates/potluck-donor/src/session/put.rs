//! Storing a chunk: each piece is received, hashed while it is warm in the cache, and written.

use super::Session;
use super::get::status_of;
use crate::service::Service;
use crate::socket::Peer;
use crate::store::{Incoming, NotPlaced, Store, TRAILER};
use crate::tickets::Spending;
use potluck_core::chunk::{ChunkName, Verifier};
use potluck_core::ids::SessionId;
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::{FrameError, PIECE, Reply, Status};
use potluck_wire::ticket::{Ops, Receipt};
use std::sync::Arc;

/// A put as asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Put {
    pub name: ChunkName,
    pub ack: AckLevel,
    pub len: u32,
}

/// Where the body goes. Whatever it is, the whole body is read: the next request follows it.
enum Landing<'s> {
    /// To the disk.
    Fresh(Incoming<'s>, Spending<'s>, SessionId),
    /// Nowhere, for it is there; but only who has the bytes gets a receipt for them.
    Held(Verifier, SessionId),
    /// Nowhere.
    Refused(Status),
}

impl Session {
    /// Receives the body and gives the answer.
    pub(super) async fn put(&mut self, io: &mut impl Peer, put: Put) -> Result<Reply, FrameError> {
        let service = Arc::clone(&self.service);
        let mut landing = self.landing(&service, &put);
        self.piece.resize(PIECE + TRAILER, 0);
        let mut left = put.len as usize;
        while left > PIECE {
            self.fill(io, PIECE).await?;
            left -= PIECE;
            landing.append(&self.piece[..PIECE]);
        }
        self.fill(io, left).await?;
        let piece = &mut self.piece[..left + TRAILER];
        Ok(match landing.finish(&service.store, &put, piece) {
            Ok(session) => {
                let receipt = Receipt::issue(&service.key, &session, &put.name, put.len, put.ack);
                Reply::stored(put.ack, receipt)
            }
            Err(status) => Reply::bare(status),
        })
    }

    /// Receives exactly the next `want` bytes of the body.
    async fn fill(&mut self, io: &mut impl Peer, want: usize) -> Result<(), FrameError> {
        let mut filled = 0;
        while filled < want {
            filled += self.inbox.body(io, &mut self.piece[filled..want]).await?;
        }
        Ok(())
    }

    fn landing<'s>(&self, service: &'s Service, put: &Put) -> Landing<'s> {
        let (now, session) = match (self.allowed(Ops::PUT), self.grant.session) {
            (Ok(now), Some(session)) => (now, session),
            (Ok(_), None) => return Landing::Refused(Status::Denied),
            (Err(status), _) => return Landing::Refused(status),
        };
        if service.store.touch_if_held(&put.name, put.len) {
            return Landing::Held(Verifier::new(put.name), session);
        }
        let Some(spending) = service.tickets.spend(&self.grant, put.len, now) else {
            return Landing::Refused(Status::Denied);
        };
        match service.store.accept(put.name, put.len) {
            Ok(incoming) => Landing::Fresh(incoming, spending, session),
            Err(refusal) => Landing::Refused(status_of(refusal)),
        }
    }
}

impl Landing<'_> {
    fn append(&mut self, piece: &[u8]) {
        match self {
            Self::Fresh(incoming, ..) => {
                if let Err(refusal) = incoming.append(piece) {
                    *self = Self::Refused(status_of(refusal));
                }
            }
            Self::Held(verifier, _) => verifier.update(piece),
            Self::Refused(_) => {}
        }
    }

    /// Adds the last piece, which ends in room for the trailer; gives the session to whom a receipt
    /// is due.
    fn finish(self, store: &Store, put: &Put, piece: &mut [u8]) -> Result<SessionId, Status> {
        match self {
            Self::Fresh(incoming, spending, session) => {
                incoming.place(piece, session, put.ack).map_err(|why| match why {
                    NotPlaced::Mismatch => Status::Mismatch,
                    NotPlaced::Refused(refusal) => status_of(refusal),
                })?;
                spending.keep();
                Ok(session)
            }
            Self::Held(mut verifier, session) => {
                verifier.update(&piece[..piece.len() - TRAILER]);
                verifier.finish().map_err(|_| Status::Mismatch)?;
                store.confirm_held(&put.name, put.len, put.ack).map_err(status_of)?;
                Ok(session)
            }
            Self::Refused(status) => Err(status),
        }
    }
}
