//! Stores a chunk: each piece is received, hashed while it is warm in the cache, and written.

use super::get::status_of;
use super::{BulkSession, TOLD_EVERY};
use crate::mirror::{ForwardedPut, Mirrored};
use crate::service::Service;
use crate::session_budgets::Spending;
use crate::socket::PeerIo;
use crate::store::{ChunkOrigin, IncomingChunk, NotPlaced, Store};
use bytes::Bytes;
use potluck_core::chunk::{ChunkKind, ChunkName, Verifier};
use potluck_core::chunk_file::tail_len;
use potluck_core::fair_turns::TurnCost;
use potluck_core::ids::SessionId;
use potluck_core::policy::AckLevel;
use potluck_core::traffic::Direction;
use potluck_wire::bulk::{BulkStatus, Forward, Forwarded, FrameError, PIECE, Reply};
use potluck_wire::ticket::{Ops, Receipt};
use std::io;
use std::sync::Arc;

/// A put as the peer asked for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Put {
    pub name: ChunkName,
    pub ack: AckLevel,
    pub len: u32,
    pub kind: ChunkKind,
}

impl Put {
    fn mirrored(&self) -> Mirrored {
        let Self { name, ack, len, kind } = *self;
        Mirrored { name, len, kind, ack }
    }
}

/// The destination of the body. In each case the whole body is read, because the next request follows it.
enum Landing<'s> {
    /// The body is written to the disk.
    Fresh(IncomingChunk<'s>, Spending<'s>, SessionId),
    /// The body is only verified, for the chunk is held already; a peer gets a receipt only if it has the bytes.
    Held(Verifier, SessionId),
    /// The body is thrown away, for the put is refused.
    Refused(BulkStatus),
}

impl BulkSession {
    /// Receives the body, stores and forwards it, and returns the answer.
    pub(super) async fn put(
        &mut self,
        io: &mut impl PeerIo,
        tag: u32,
        put: Put,
        forward: &Forward,
    ) -> Result<Reply, FrameError> {
        let service = Arc::clone(&self.service);
        // The incarnation is taken now: a store that goes away and comes back meanwhile may lack what
        // was put before.
        let incarnation = service.store.incarnation();
        let serving = service.traffic.begin(Direction::Write, self.visitor());
        let mut landing = self.landing(&service, &put);
        let mut forwarding = match landing {
            Landing::Refused(_) => None,
            _ if !forward.wait || forward.routes().is_empty() => None,
            _ => {
                let begin = self.routes.begin(&service.env, put.mirrored(), forward.routes());
                io.meanwhile(service.unless_stopped(begin)).await
            }
        };
        let tail = tail_len(put.len);
        let most = self.piece.make_room(put.len, tail, &service.long_pieces);
        // Pieces wait in memory for the mirrors, so they are short ones.
        let most = if forwarding.is_some() { most.min(PIECE) } else { most };
        let mut left = put.len as usize;
        loop {
            let len = self.service.throttle.slice(left.min(most) as u64) as usize;
            let requests = u32::from(left == put.len as usize);
            let cost = TurnCost { direction: Direction::Write, bytes: len as u32, requests };
            self.turn(io, tag, cost).await?.map_err(io::Error::from)?;
            self.fill(io, len).await?;
            left -= len;
            service.throttle.moved(len as u64);
            // The piece goes to the mirrors first, so that they work while it is written here.
            if let Some(mut under_way) = forwarding.take() {
                let piece = Bytes::copy_from_slice(self.piece.first(len));
                let mut routes = std::mem::take(&mut self.routes);
                let passing = routes.pass_on(&service.env, &mut under_way, piece);
                let passed =
                    self.telling(io, tag, TOLD_EVERY, service.unless_stopped(passing)).await;
                self.routes = routes;
                match passed? {
                    Some(()) => forwarding = Some(under_way),
                    None => self.routes.cut(under_way),
                }
            }
            if left == 0 {
                let piece = self.piece.first(len + tail);
                let stored = landing.finish(&service.store, &put, piece);
                match stored {
                    Ok(_) => serving.served(put.len),
                    Err(_) => drop(serving),
                }
                let receipt = stored.map(|session| {
                    let Put { name, len, ack, .. } = &put;
                    Receipt::issue(&service.key, incarnation, &session, name, *len, *ack)
                });
                return self.answer_to(io, tag, &put, receipt, forwarding, forward).await;
            }
            let began = service.env.clock.now();
            landing.append(self.piece.first(len));
            if matches!(landing, Landing::Fresh(..)) {
                service
                    .governor
                    .own_writes
                    .wrote(len, service.env.clock.now().saturating_sub(began));
            }
            if matches!(landing, Landing::Refused(_)) {
                forwarding.take().into_iter().for_each(|put| self.routes.cut(put));
            }
        }
    }

    async fn answer_to(
        &mut self,
        io: &mut impl PeerIo,
        tag: u32,
        put: &Put,
        receipt: Result<Receipt, BulkStatus>,
        forwarding: Option<ForwardedPut>,
        forward: &Forward,
    ) -> Result<Reply, FrameError> {
        let service = Arc::clone(&self.service);
        let receipt = match receipt {
            Ok(receipt) => receipt,
            // All bytes were passed on, so the frames to the mirrors are whole; the mirrors' answers are not needed.
            Err(status) => return Ok(Reply::bare(status)),
        };
        let mut reply = Reply::stored(put.ack, receipt);
        if let Some(forwarding) = forwarding {
            let mut routes = std::mem::take(&mut self.routes);
            let receipts = service.unless_stopped(routes.receipts(&service.env, forwarding));
            // While the donor closes, its mirrors are not waited for, and none of their copies counts as made.
            let receipts = self.telling(io, tag, TOLD_EVERY, receipts).await;
            self.routes = routes;
            reply.forwarded =
                Forwarded::of(&receipts?.unwrap_or_else(|| vec![None; forward.routes().len()]));
        } else if !forward.routes().is_empty() {
            // Copies are made on all routes or on none: the answer can only carry receipts, and there are none yet. Those
            // that were to be waited for were given up, because the donor closes.
            let to = forward.routes().iter().map(|route| self.routes.get(*route).cloned());
            let to = to.collect::<Option<Vec<_>>>().filter(|_| !forward.wait);
            let are_deferred = to.is_some_and(|to| service.deferred.push(put.mirrored(), to));
            if !are_deferred {
                reply.forwarded = Forwarded::of(&vec![None; forward.routes().len()]);
            }
        }
        Ok(reply)
    }

    /// Receives exactly the next `want` bytes of the body.
    pub(super) async fn fill(
        &mut self,
        io: &mut impl PeerIo,
        want: usize,
    ) -> Result<(), FrameError> {
        let mut filled = 0;
        while filled < want {
            filled += self.inbox.body(io, &mut self.piece.first(want)[filled..]).await?;
        }
        Ok(())
    }

    fn landing<'s>(&self, service: &'s Service, put: &Put) -> Landing<'s> {
        let ops = match put.kind {
            ChunkKind::Data => Ops::PUT,
            ChunkKind::Log => Ops::PUT.and(Ops::RECORD),
        };
        let session = match (self.allowed(ops), self.grant.session) {
            (Ok(()), Some(session)) => session,
            (Ok(()), None) => return Landing::Refused(BulkStatus::Denied),
            (Err(status), _) => return Landing::Refused(status),
        };
        match service.store.count_put_if_held(&put.name, put.len) {
            Ok(true) => return Landing::Held(Verifier::new(put.name), session),
            Ok(false) => {}
            Err(refusal) => return Landing::Refused(status_of(refusal)),
        }
        let Some(spending) = service.tickets.spend(&self.grant, session, put.len) else {
            return Landing::Refused(BulkStatus::Denied);
        };
        match service.store.accept_beside(put.name, put.len, spending.promised_to_others()) {
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

    /// Adds the last piece, which ends in room for the hashes and the trailer; returns the session that gets the
    /// receipt.
    fn finish(self, store: &Store, put: &Put, piece: &mut [u8]) -> Result<SessionId, BulkStatus> {
        match self {
            Self::Fresh(incoming, spending, session) => {
                let origin = ChunkOrigin { session, kind: put.kind };
                incoming.place(piece, origin, put.ack).map_err(|why| match why {
                    NotPlaced::Mismatch => BulkStatus::Mismatch,
                    NotPlaced::Refused(refusal) => status_of(refusal),
                })?;
                spending.keep();
                Ok(session)
            }
            Self::Held(mut verifier, session) => {
                verifier.update(&piece[..piece.len() - tail_len(put.len)]);
                verifier.finish().map_err(|_| BulkStatus::Mismatch)?;
                store.confirm_held(&put.name, put.len, put.ack).map_err(status_of)?;
                Ok(session)
            }
            Self::Refused(status) => Err(status),
        }
    }
}
