//! One bulk connection after its first frame: requests in, answers out, in order.

mod get;
mod put;
mod route;

use crate::mirror::Routes;
use crate::service::Service;
use crate::socket::PeerIo;
use crate::stall_timeout::Phase;
use potluck_wire::bulk::{FrameError, Inbox, Lane, Reply, Request, Status};
use potluck_wire::ticket::{Grant, Ops};
use std::sync::Arc;

/// A bulk connection whose peer has proved its ticket.
pub(crate) struct Session {
    service: Arc<Service>,
    grant: Grant,
    inbox: Inbox,
    lane: Lane,
    /// Receives bodies piece by piece; empty until the first put.
    piece: Vec<u8>,
    /// Whom puts can be forwarded to.
    routes: Routes,
}

impl Session {
    /// Serves what `grant` allows; answers are signed on `lane`.
    pub fn new(service: Arc<Service>, grant: Grant, inbox: Inbox, lane: Lane) -> Self {
        Self { service, grant, inbox, lane, piece: Vec::new(), routes: Routes::default() }
    }

    /// Answers `first` and every later request, until the peer closes or breaks the protocol.
    pub async fn run(
        mut self,
        io: &mut impl PeerIo,
        first: (u32, Request),
    ) -> Result<(), FrameError> {
        let mut next = Some(first);
        while let Some((tag, request)) = next {
            io.expect(Phase::Body);
            match request {
                Request::Put { name, ack, len, kind, forward } => {
                    let put = put::Put { name, ack, len, kind };
                    let reply = self.put(io, put, &forward).await?;
                    self.answer(io, tag, reply).await?;
                }
                Request::Route { number, len } => {
                    let status = self.route(io, number, len).await?;
                    self.answer(io, tag, Reply::bare(status)).await?;
                }
                Request::Get { name, part } => self.get(io, tag, &name, part).await?,
            }
            io.expect(Phase::Idle);
            next = self.inbox.request(io).await?;
        }
        Ok(())
    }

    async fn answer(
        &mut self,
        io: &mut impl PeerIo,
        tag: u32,
        reply: Reply,
    ) -> Result<(), FrameError> {
        Ok(io.write(&reply.encode(tag, &mut self.lane), &[]).await?)
    }

    /// Checks that the ticket still allows `ops`; gives the manager's time.
    fn allowed(&self, ops: Ops) -> Result<u64, Status> {
        if self.service.closing() {
            return Err(Status::Away);
        }
        match self.service.registration.now() {
            Some((_, now)) if now < self.grant.expires && self.grant.ops.allows(ops) => Ok(now),
            _ => Err(Status::Denied),
        }
    }
}
