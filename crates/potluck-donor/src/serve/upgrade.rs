//! The upgrade of a connection from HTTP to bulk: the ticket is read, the keys are made, and the first frame
//! proves the peer.

use super::{Server, Stranger};
use crate::idle_thread::yield_for_good;
use crate::session::{BulkSession, Paused};
use crate::socket::{RuntimeIo, SocketIo, run_ready};
use crate::stall_timeout::{IDLE, StallTimeout};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use potluck_wire::admission::{AdmittedPlace, PeerNetwork};
use potluck_wire::bulk::{FrameError, Inbox, Lane, Request as Frame, SessionKeys, StreamIo};
use potluck_wire::env;
use potluck_wire::net::{BoxStream, Detached};
use potluck_wire::ticket::{Grant, PublicTicket};
use potluck_wire::turns::ServingTurn;
use potluck_wire::upgrade::{NONCE_HEADER, TICKET_HEADER, nonce_of, nonce_value};
use potluck_wire::version;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The time within which an upgraded peer must have sent an authentic frame.
const FIRST_FRAME_DEADLINE: Duration = Duration::from_secs(5);
/// The stack size of a thread in bytes. A session's future and a few frames of file system calls were measured at 40
/// KiB in debug builds; only pages in use cost memory.
const STACK: usize = 256 << 10;

/// A peer that has shown a ticket and has not proved yet that the ticket is its own.
struct PendingPeer {
    grant: Grant,
    keys: SessionKeys,
    stranger: Stranger,
}

/// A peer that has proved its ticket.
struct Peer {
    session: BulkSession,
    first: Option<(u32, Frame)>,
    origin: PeerNetwork,
    place: AdmittedPlace<PeerNetwork>,
}

/// A connection that waits for its next turn on a thread.
type Unfinished = (TcpStream, BulkSession, Paused);

impl Server {
    /// Answers a request for the upgrade to bulk; the stream is then served in the background.
    ///
    /// Errors: the HTTP status of the refusal.
    pub(super) fn upgrade(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        stranger: Stranger,
    ) -> Result<Response<Full<Bytes>>, StatusCode> {
        let headers = request.headers();
        if headers.get(header::UPGRADE).is_none_or(|protocol| protocol != version::BULK) {
            return Err(StatusCode::UPGRADE_REQUIRED);
        }
        if !request.body().is_end_stream() {
            return Err(StatusCode::BAD_REQUEST);
        }
        if self.service.owner.is_off() {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let ticket = headers.get(TICKET_HEADER).and_then(|value| value.to_str().ok());
        let ticket: PublicTicket =
            ticket.and_then(|text| text.parse().ok()).ok_or(StatusCode::FORBIDDEN)?;
        let nonce = nonce_of(headers).ok_or(StatusCode::BAD_REQUEST)?;
        let (me, time) = self.service.registration.now().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        let grant = ticket.grant(&self.service.key, me, time).map_err(|_| StatusCode::FORBIDDEN)?;

        let ours: [u8; 16] = self.service.env.entropy.bytes();
        let keys = SessionKeys::derive(&grant.secret, &nonce, &ours);
        let upgrading = hyper::upgrade::on(&mut request);
        env::spawn(Arc::clone(self).authenticate(upgrading, PendingPeer { grant, keys, stranger }));

        let mut response = super::plain(StatusCode::SWITCHING_PROTOCOLS, "");
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(version::BULK));
        headers.insert(NONCE_HEADER, nonce_value(&ours));
        Ok(response)
    }

    async fn authenticate(self: Arc<Self>, upgrading: OnUpgrade, pending: PendingPeer) {
        let proving = async {
            let upgraded = upgrading.await.map_err(|why| why.to_string())?;
            self.prove(upgraded, pending).await
        };
        let proved = tokio::time::timeout(FIRST_FRAME_DEADLINE, proving).await;
        let (stream, peer) = match proved.unwrap_or_else(|_| Err("no frame in time".into())) {
            Ok(proved) => proved,
            Err(why) => {
                tracing::debug!("a peer was turned away: {why}");
                return;
            }
        };
        match stream.detach() {
            Ok(Detached::Socket(socket)) => self.serve_in_turns(socket, peer).await,
            Ok(Detached::Stream(stream)) => self.serve_in_runtime(stream, peer).await,
            Err(why) => tracing::warn!("cannot take over a connection: {why}"),
        }
    }

    /// Waits for the first frame, which proves the ticket: the bearer of a ticket that is not its own does not have the
    /// key.
    async fn prove(
        &self,
        upgraded: Upgraded,
        pending: PendingPeer,
    ) -> Result<(BoxStream, Peer), String> {
        let PendingPeer { grant, keys, stranger } = pending;
        let parts = upgraded
            .downcast::<TokioIo<BoxStream>>()
            .map_err(|_| "the stream changed its type".to_owned())?;
        let mut io = StreamIo(parts.io.into_inner());
        let SessionKeys { client, donor } = keys;
        let (inbox, first) =
            first_frame(&mut io, client, &parts.read_buf).await.map_err(|why| why.to_string())?;
        let first = first.ok_or("it left")?;
        let place = self.connections.enter(stranger.origin);
        let origin = stranger.origin;
        drop(stranger);
        let session = BulkSession::new(Arc::clone(&self.service), grant, inbox, donor);
        Ok((io.0, Peer { session, first: Some(first), origin, place }))
    }

    /// Serves a connection until it ends: on a thread while there are requests, and waiting in the runtime otherwise.
    async fn serve_in_turns(self: Arc<Self>, socket: TcpStream, peer: Peer) {
        let Peer { session, first, origin, place } = peer;
        let serve = async {
            let (mut socket, mut session, mut first) = (socket, session, first);
            if is_local(&socket) {
                session.serve_owner();
            }
            loop {
                let Some(turn) = self.service.unless_stopped(self.turns.turn(origin)).await else {
                    return Ok(());
                };
                let unfinished = self.on_thread(socket, session, first.take(), turn).await;
                let Some((left, paused, why)) = unfinished else { return Ok(()) };
                (socket, session) = (left, paused);
                if why == Paused::Quiet {
                    let readable = self.service.unless_stopped(until_readable(socket)).await;
                    let Some(readable) = readable else { return Ok(()) };
                    socket = readable?;
                }
            }
        };
        tokio::select! {
            served = serve => log_end(&served),
            () = place.evicted() => tracing::debug!("too many bulk connections: one ends"),
        }
    }

    /// Answers requests on a thread until the connection ends or pauses; `None` if it ended, or there is no thread.
    async fn on_thread(
        self: &Arc<Self>,
        socket: TcpStream,
        mut session: BulkSession,
        first: Option<(u32, Frame)>,
        turn: ServingTurn,
    ) -> Option<Unfinished> {
        let timeout = StallTimeout::new(self.service.env.clock.clone());
        let entered = match self.sockets.enter(&socket) {
            Ok(entered) => entered,
            Err(why) => {
                tracing::warn!("cannot take over a connection: {why}");
                return None;
            }
        };
        let (runtime, server) = (tokio::runtime::Handle::current(), Arc::clone(self));
        let (tell, told) = tokio::sync::oneshot::channel();
        // Programs of this machine are the owner's, who waits for what they read and write.
        let yields = self.service.governor.yields() && !session.serves_owner();
        let serve = move || {
            if yields {
                yield_for_good();
            }
            let ran = SocketIo::new(socket, timeout, runtime).map_err(FrameError::Io).and_then(
                |mut io| {
                    let paused = run_ready(session.run(&mut io, first, || server.turns.wanted()))?;
                    Ok(paused.map(|paused| (io.into_socket(), paused)))
                },
            );
            log_end(&ran);
            drop((entered, turn));
            // If the donor shuts down or the place was lost, nobody receives this any more.
            let _ = tell.send(ran.ok().flatten().map(|(socket, paused)| (socket, session, paused)));
        };
        let thread = std::thread::Builder::new().name("potluck-bulk".into()).stack_size(STACK);
        if let Err(why) = thread.spawn(serve) {
            tracing::warn!("cannot start a thread for a connection: {why}");
        }
        // If the thread could not be started, its end of the channel was dropped and this is an error.
        told.await.ok().flatten()
    }

    async fn serve_in_runtime(&self, stream: BoxStream, peer: Peer) {
        let Peer { mut session, first, origin: _, place } = peer;
        let timeout = StallTimeout::new(self.service.env.clock.clone());
        let mut io = RuntimeIo::new(stream, timeout);
        tokio::select! {
            served = session.run(&mut io, first, || false) => log_end(&served),
            () = place.evicted() => {}
            () = self.service.closed() => {}
            () = self.service.owner.off() => {}
        }
    }
}

/// Returns whether the peer of a socket is on this machine: it then has the same address at both ends.
fn is_local(socket: &TcpStream) -> bool {
    let (Ok(here), Ok(peer)) = (socket.local_addr(), socket.peer_addr()) else { return false };
    let peer = peer.ip().to_canonical();
    peer.is_loopback() || peer == here.ip().to_canonical()
}

/// Waits until the peer sends something or closes the connection.
///
/// Errors: one of kind `TimedOut` where the peer has been idle for too long.
async fn until_readable(socket: TcpStream) -> Result<TcpStream, FrameError> {
    socket.set_nonblocking(true)?;
    let socket = tokio::net::TcpStream::from_std(socket)?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the peer is too slow");
    tokio::time::timeout(IDLE, socket.readable()).await.map_err(late)??;
    let socket = socket.into_std()?;
    socket.set_nonblocking(false)?;
    Ok(socket)
}

async fn first_frame(
    io: &mut StreamIo<BoxStream>,
    lane: Lane,
    early: &[u8],
) -> Result<(Inbox, Option<(u32, Frame)>), FrameError> {
    let mut inbox = Inbox::new(lane, early)?;
    let first = inbox.request(io).await?;
    Ok((inbox, first))
}

fn log_end<T>(served: &Result<T, FrameError>) {
    if let Err(why) = served {
        tracing::debug!("a bulk connection ended: {why}");
    }
}
