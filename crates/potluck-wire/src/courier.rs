//! A plain bulk connection: one request, then its answer. For those who move few chunks at a time
//! and want no more: donors that copy from each other, and the manager with its checkpoints. The
//! client has a pipelined one of its own.

use crate::bulk::{Forward, FrameError, PIECE, Reply, Request, Status};
use crate::net::Net;
use crate::ticket::{Receipt, Ticket};
use crate::upgrade::{self, OpenError, Opened};
use potluck_core::chunk::{ChunkKind, ChunkName, Verifier};
use potluck_core::entropy::Entropy;
use potluck_core::policy::AckLevel;
use std::time::Duration;

/// How long the other side may be silent while it owes something (PROMISES A2).
const PATIENCE: Duration = Duration::from_secs(8);

/// One connection to one donor.
pub struct Courier {
    opened: Opened,
    tag: u32,
}

/// Why a donor did not do what it was asked. After any but [`CourierError::Refused`] the
/// connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum CourierError {
    /// It cannot be reached.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The connection broke, or what came was no answer.
    #[error(transparent)]
    Broken(#[from] FrameError),
    /// It was silent for too long.
    #[error("it does not answer")]
    Silent,
    /// It refused.
    #[error("it refused: {0:?}")]
    Refused(Status),
    /// It sent bytes that are not the chunk.
    #[error("it sent bytes that are not the chunk")]
    WrongBytes,
}

impl Courier {
    /// Connects to the donor at `address` under `ticket`.
    pub async fn open(
        net: &dyn Net,
        entropy: &dyn Entropy,
        address: &str,
        ticket: &Ticket,
    ) -> Result<Self, CourierError> {
        Ok(Self { opened: upgrade::open(net, entropy, address, ticket).await?, tag: 0 })
    }

    /// Fetches the chunk `name` of `len` stored bytes, and verifies it.
    pub async fn get(&mut self, name: ChunkName, len: u32) -> Result<Vec<u8>, CourierError> {
        let mut bytes = Vec::new();
        let mut verifier = Verifier::new(name);
        self.get_pieces(name, len, |piece| {
            verifier.update(piece);
            bytes.extend_from_slice(piece);
            Ok::<(), std::convert::Infallible>(())
        })
        .await?
        .unwrap_or_else(|never| match never {});
        verifier.finish().map_err(|_| CourierError::WrongBytes)?;
        Ok(bytes)
    }

    /// Fetches the chunk `name` of `len` stored bytes piece by piece, unverified. An error of
    /// `take` ends it, and with it the connection's use; it is the inner result.
    pub async fn get_pieces<E>(
        &mut self,
        name: ChunkName,
        len: u32,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, CourierError> {
        let reply = self.ask(Request::Get { name }, &[]).await?;
        if reply.body != len {
            return Err(CourierError::WrongBytes);
        }
        let mut piece = vec![0; PIECE.min(len as usize)];
        let mut left = len as usize;
        while left > 0 {
            let want = piece.len().min(left);
            let mut filled = 0;
            while filled < want {
                let Opened { io, inbox, .. } = &mut self.opened;
                filled += patiently(inbox.body(io, &mut piece[filled..want])).await?;
            }
            if let Err(why) = take(&piece[..want]) {
                return Ok(Err(why));
            }
            left -= want;
        }
        Ok(Ok(()))
    }

    /// Stores `bytes` as `name`.
    pub async fn put(
        &mut self,
        name: ChunkName,
        ack: AckLevel,
        kind: ChunkKind,
        bytes: &[u8],
    ) -> Result<Receipt, CourierError> {
        let len = bytes.len() as u32;
        let put = Request::Put { name, ack, len, kind, forward: Forward::NONE };
        match self.ask(put, bytes).await?.receipt {
            Some((_, receipt)) => Ok(receipt),
            None => Err(FrameError::Malformed("a stored chunk without a receipt").into()),
        }
    }

    async fn ask(&mut self, request: Request, body: &[u8]) -> Result<Reply, CourierError> {
        use crate::bulk::BulkIo;
        let Opened { io, inbox, lane } = &mut self.opened;
        let tag = self.tag;
        self.tag = self.tag.wrapping_add(1);
        let head = request.encode(tag, lane);
        patiently(async { Ok(io.write(&head, body).await?) }).await?;
        match patiently(inbox.reply(io)).await? {
            Some((answered, reply)) if answered == tag => match reply.status {
                Status::Ok => Ok(reply),
                refused => Err(CourierError::Refused(refused)),
            },
            Some(_) => Err(FrameError::Malformed("an answer out of turn").into()),
            None => Err(FrameError::Truncated.into()),
        }
    }
}

async fn patiently<T>(
    work: impl Future<Output = Result<T, FrameError>>,
) -> Result<T, CourierError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(CourierError::Silent),
    }
}
