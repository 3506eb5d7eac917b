//! A bulk connection after its first frame: its requests are answered in order.

mod ahead;
mod diagnose;
mod get;
mod piece;
mod put;
mod route;

use crate::mirror::Routes;
use crate::service::Service;
use crate::socket::PeerIo;
use crate::stall_timeout::Phase;
use crate::throttle::PausedByOwner;
use ahead::{NextRequest, ReadAhead};
pub(crate) use piece::LongPieces;
use piece::PieceBuffer;
use potluck_core::cost_history::Visitor;
use potluck_core::fair_turns::{Flow, TurnCost};
use potluck_core::policy::AckLevel;
use potluck_core::traffic::Direction;
use potluck_wire::bulk::{BulkStatus, FrameError, Inbox, Lane, PIECE, Reply, Request};
use potluck_wire::ticket::{Grant, Ops};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// The time for which a connection may keep a thread that others wait for. A request that has begun is finished.
const TURN: Duration = Duration::from_millis(50);

/// The time after which waiting answers are sent with the end of the next request: on a slow disk a peer would else
/// hear nothing while its puts are done one after the other.
const ANSWERED_WITHIN: Duration = Duration::from_millis(20);

/// The time after which a peer hears that its request still waits for a turn: well within its stall timeout.
const TOLD_EVERY: Duration = Duration::from_secs(2);
/// The time after which it hears so first: soon enough for a donor that passes the put on to know before it gives the mirror up.
const TOLD_FIRST: Duration = Duration::from_millis(200);

/// A bulk connection whose peer has proved its ticket.
pub(crate) struct BulkSession {
    service: Arc<Service>,
    grant: Grant,
    inbox: Inbox,
    lane: Lane,
    /// The requests that came while an earlier one was answered.
    ahead: ReadAhead,
    /// The memory into which bodies are received, piece by piece.
    piece: PieceBuffer,
    /// The donors to which puts can be forwarded.
    routes: Routes,
    /// True if the peer is on this machine: what it moves, it moves for the owner.
    is_local: bool,
    /// The direction of the request that is answered.
    direction: Direction,
}

/// The reasons why a connection gives up its thread, though it has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paused {
    /// The peer says nothing.
    Quiet,
    /// Other connections wait for a thread.
    TurnOver,
}

/// Returns whether a request is done in so short a time that earlier answers may wait for its own.
fn is_quick(request: &Request) -> bool {
    match request {
        Request::Put { ack, len, forward, .. } => {
            *ack == AckLevel::Memory && *len as usize <= PIECE && forward.routes().is_empty()
        }
        Request::Get { .. } | Request::Route { .. } | Request::Stop | Request::Diagnose { .. } => {
            false
        }
    }
}

impl BulkSession {
    /// Makes a session that serves the requests that `grant` allows; answers are signed on `lane`.
    pub fn new(service: Arc<Service>, grant: Grant, inbox: Inbox, lane: Lane) -> Self {
        Self {
            service,
            grant,
            inbox,
            lane,
            ahead: ReadAhead::default(),
            piece: PieceBuffer::default(),
            routes: Routes::default(),
            is_local: false,
            direction: Direction::Read,
        }
    }

    /// Notes that the peer is on this machine, so that the governor does not make it wait.
    pub fn serve_owner(&mut self) {
        self.is_local = true;
    }

    /// Returns whether the peer is on this machine.
    pub fn serves_owner(&self) -> bool {
        self.is_local
    }

    /// Answers `first` and every later request, until the peer closes or breaks the protocol, or the session pauses:
    /// because the peer is quiet, or because the thread is `wanted` and its turn is over.
    pub async fn run(
        &mut self,
        io: &mut impl PeerIo,
        first: Option<(u32, Request)>,
        wanted: impl Fn() -> bool,
    ) -> Result<Option<Paused>, FrameError> {
        let clock = self.service.env.clock.clone();
        let began = clock.now();
        let mut answered = began;
        let mut first = first;
        loop {
            let next = match first.take().map(NextRequest::from).or_else(|| self.ahead.next()) {
                Some(next) => Ok(Some(next)),
                None => self.inbox.request(io).await.map(|next| next.map(NextRequest::from)),
            };
            let NextRequest { tag, request, is_stopped } = match next {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(None),
                Err(FrameError::Io(why)) if why.kind() == io::ErrorKind::WouldBlock => {
                    // A client that only reads, or that is quiet for long, needs no buffer for pieces.
                    self.piece.release();
                    self.ahead = ReadAhead::default();
                    return Ok(Some(Paused::Quiet));
                }
                Err(why) => return Err(why),
            };
            io.expect(Phase::Body);
            let is_quick = is_quick(&request);
            if !is_quick {
                io.send_answers().await?;
            }
            match request {
                Request::Put { name, ack, len, kind, forward } => {
                    self.direction = Direction::Write;
                    let put = put::Put { name, ack, len, kind };
                    let reply = self.put(io, tag, put, &forward).await?;
                    self.answer(io, tag, reply, is_quick).await?;
                }
                Request::Route { number, len } => {
                    let status = self.route(io, number, len).await?;
                    self.answer(io, tag, Reply::bare(status), false).await?;
                }
                Request::Get { .. } if is_stopped => {
                    self.answer(io, tag, Reply::bare(BulkStatus::Stopped), false).await?;
                }
                Request::Get { name, part } => {
                    self.direction = Direction::Read;
                    self.get(io, tag, &name, part).await?;
                }
                Request::Diagnose { len, wanted } => {
                    self.diagnose(io, tag, len, wanted).await?;
                }
                Request::Stop => {} // what it stops was answered before this was read
            }
            // Bytes that are there already are the begin of the next request.
            io.expect(if self.inbox.is_empty() { Phase::Idle } else { Phase::Head });
            let now = clock.now();
            let is_over = now.saturating_sub(began) >= TURN && wanted();
            if is_over || now.saturating_sub(answered) >= ANSWERED_WITHIN {
                io.send_answers().await?;
                answered = now;
            }
            if is_over {
                return Ok(Some(Paused::TurnOver));
            }
        }
    }

    async fn answer(
        &mut self,
        io: &mut impl PeerIo,
        tag: u32,
        reply: Reply,
        may_wait: bool,
    ) -> Result<(), FrameError> {
        let reply = Reply { limit: self.limit(), ..reply };
        Ok(io.answer(&reply.encode(tag, &mut self.lane), may_wait).await?)
    }

    /// Returns the party whose turns this connection takes. Tickets for copies between donors name no member and no
    /// session.
    fn flow(&self) -> Flow {
        match (self.grant.member, self.grant.session) {
            _ if self.is_local => Flow::Owner,
            (Some(member), _) => Flow::Client(member),
            (None, Some(_)) => Flow::Manager,
            (None, None) => Flow::Repair,
        }
    }

    /// Returns who moves data on this connection, as the ticket names them.
    fn visitor(&self) -> Visitor {
        self.grant.member.map_or(Visitor::Pool, Visitor::Member)
    }

    /// Waits for a turn, where there is a limit on what the donor moves. A peer that waits for the answer to `tag` is
    /// told so again and again, lest it takes the donor for a broken one.
    async fn turn(
        &mut self,
        io: &mut impl PeerIo,
        tag: u32,
        cost: TurnCost,
    ) -> Result<Result<(), PausedByOwner>, FrameError> {
        let service = Arc::clone(&self.service);
        if !service.throttle.is_limited() {
            return Ok(Ok(()));
        }
        let mut turn = pin!(service.throttle.turn(self.flow(), cost));
        self.telling(io, tag, TOLD_FIRST, turn.as_mut()).await
    }

    /// Runs work to its end. The peer that waits for the answer to `tag` is told after `first`, and then again and again, that
    /// its request waits.
    async fn telling<T: Send>(
        &mut self,
        io: &mut impl PeerIo,
        tag: u32,
        first: Duration,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, FrameError> {
        let mut work = pin!(work);
        let mut pause = first;
        loop {
            let in_time = async { tokio::time::timeout(pause, work.as_mut()).await };
            match io.meanwhile(in_time).await {
                Ok(done) => return Ok(done),
                Err(_) => {
                    self.answer(io, tag, Reply::bare(BulkStatus::Throttled), false).await?;
                    pause = TOLD_EVERY;
                }
            }
        }
    }

    /// Returns the bytes a second that the peer can have at most; `None` where there is no limit.
    fn limit(&self) -> Option<u64> {
        if !self.service.throttle.is_limited() {
            return None;
        }
        let in_force = self.service.throttle.in_force();
        let limits = if self.is_local { in_force.owner.bytes_s } else { in_force.limits() };
        *limits.of(self.direction)
    }

    /// Checks that the ticket still allows `ops`.
    ///
    /// Errors: [`BulkStatus::Denied`]; [`BulkStatus::Away`] once the donor is to stop; [`BulkStatus::Full`] for puts while
    /// its owner lets it be read from only.
    fn allowed(&self, ops: Ops) -> Result<(), BulkStatus> {
        if self.service.stopped() {
            return Err(BulkStatus::Away);
        }
        if ops.allows(Ops::PUT) && !self.service.owner.mode().takes_writes() {
            return Err(BulkStatus::Full);
        }
        let is_over = |session| self.service.tickets.is_over(session);
        if self.grant.session.as_ref().is_some_and(is_over) {
            return Err(BulkStatus::Denied);
        }
        match self.service.registration.now() {
            Some((_, time)) if self.grant.is_good(time) && self.grant.ops.allows(ops) => Ok(()),
            _ => Err(BulkStatus::Denied),
        }
    }
}
