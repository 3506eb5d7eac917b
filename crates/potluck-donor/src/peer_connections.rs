//! Connections to other donors, which are opened for tasks of the manager and for deferred copies, and kept for a while
//! because both come in crowds.

use crate::task_failure::TaskFailure;
use crate::throttle::Throttle;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::fair_turns::{Flow, TurnCost};
use potluck_core::ids::DonorId;
use potluck_core::traffic::Direction;
use potluck_wire::addresses::Addresses;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::control::{Source, TaskFault};
use potluck_wire::env::Env;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The most idle connections that are kept.
const MOST: usize = 16;
/// The time since its last use after which an idle connection is closed, well before the other donor would close it.
const KEPT: Duration = Duration::from_secs(30);

/// The rate in bytes a second below which a source is given up: a source that sends hardly anything must not hold up a
/// task for ever, and there may be a better one.
const SLOWEST: u32 = 256 << 10;
/// The time that every chunk may take in addition, whatever its size.
const ROUND_TRIP: Duration = Duration::from_secs(10);

/// Returns the longest time that a source may take to send `len` bytes.
fn deadline(len: u32) -> Duration {
    ROUND_TRIP + Duration::from_secs(u64::from(len / SLOWEST))
}

/// Waits for the answer of a source, which may say again and again that it yields to its owner.
async fn in_time(
    len: u32,
    asked: impl Future<Output = Result<(), PeerError>>,
) -> Result<(), PeerError> {
    tokio::time::timeout(deadline(len), asked).await.unwrap_or(Err(PeerError::Silent))
}

/// The idle connections, the oldest first.
#[derive(Default)]
pub(crate) struct PeerConnections {
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    to: Peer,
    connection: PeerConnection,
    since: Tick,
}

/// The donor that a connection reaches, and the ticket by which it was opened: the rights of the connection depend on
/// both.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Peer {
    donor: DonorId,
    addresses: Addresses,
    ticket: String,
}

impl Peer {
    fn of(source: &Source) -> Self {
        let (addresses, ticket) = (source.addresses.clone(), source.ticket.public.to_string());
        Self { donor: source.donor, addresses, ticket }
    }
}

impl PeerConnections {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().expect("no holder panics")
    }

    /// Asks `source` for the chunk `name` of `len` stored bytes.
    ///
    /// Errors: a fault of the source.
    pub async fn fetch<'s>(
        &'s self,
        env: &'s Env,
        throttle: &'s Throttle,
        source: &Source,
        name: ChunkName,
        len: u32,
    ) -> Result<ChunkFetch<'s>, TaskFailure> {
        let to = Peer::of(source);
        let asked = match self.take(&to) {
            Some(mut connection) => {
                let asked = in_time(len, connection.begin_get(name, len)).await;
                match asked {
                    // The connection was closed while it was idle, which is no fault of the donor.
                    Err(PeerError::Broken(_) | PeerError::Silent) => None,
                    asked => Some((connection, asked)),
                }
            }
            None => None,
        };
        let (connection, asked) = match asked {
            Some(asked) => asked,
            None => {
                let mut connection =
                    self.open(env, source).await.map_err(|why| fault(source, &why))?;
                let asked = in_time(len, connection.begin_get(name, len)).await;
                (connection, asked)
            }
        };
        match asked {
            Ok(()) => {
                let (left, in_time) = (len as usize, deadline(len));
                Ok(ChunkFetch { kept_by: self, env, throttle, to, connection, left, in_time })
            }
            Err(why) => {
                if matches!(why, PeerError::Refused(_)) {
                    self.keep(to, connection, env.clock.now());
                }
                Err(fault(source, &why))
            }
        }
    }

    /// Returns a new connection to `to`; with `kept`, an idle one instead, or `None` if there is none.
    pub async fn connect(
        &self,
        env: &Env,
        to: &Source,
        kept: bool,
    ) -> Result<Option<PeerConnection>, PeerError> {
        if kept {
            return Ok(self.take(&Peer::of(to)));
        }
        self.open(env, to).await.map(Some)
    }

    /// Keeps a connection on which no answer is outstanding.
    pub fn put_back(&self, env: &Env, to: &Source, connection: PeerConnection) {
        self.keep(Peer::of(to), connection, env.clock.now());
    }

    async fn open(&self, env: &Env, source: &Source) -> Result<PeerConnection, PeerError> {
        PeerConnection::open(&*env.net, &*env.entropy, &source.addresses, &source.ticket).await
    }

    fn take(&self, to: &Peer) -> Option<PeerConnection> {
        let mut idle = self.idle();
        let at = idle.iter().rposition(|idle| idle.to == *to)?;
        Some(idle.remove(at).connection)
    }

    fn keep(&self, to: Peer, connection: PeerConnection, since: Tick) {
        let mut idle = self.idle();
        if idle.len() >= MOST {
            idle.remove(0);
        }
        idle.push(Idle { to, connection, since });
    }

    /// Closes connections that have been idle for long.
    pub fn close_idle(&self, now: Tick) {
        self.idle().retain(|idle| now.saturating_sub(idle.since) < KEPT);
    }
}

/// A chunk on its way here. [`ChunkFetch::done`] keeps its connection when all of it was read.
pub(crate) struct ChunkFetch<'c> {
    kept_by: &'c PeerConnections,
    env: &'c Env,
    throttle: &'c Throttle,
    to: Peer,
    connection: PeerConnection,
    left: usize,
    /// The time that the source may still take. The turns that are waited for here are not the source's fault.
    in_time: Duration,
}

impl ChunkFetch<'_> {
    /// Fills `piece` with the next bytes, or a part of it with those that are left; returns their number. Waits for a
    /// turn before.
    ///
    /// Errors: a fault of the source, which may have taken too long; [`TaskFault::NotHere`] when the owner pauses.
    pub async fn next(&mut self, piece: &mut [u8]) -> Result<usize, TaskFailure> {
        let want = piece.len().min(self.left);
        if want == 0 {
            return Ok(0);
        }
        let cost = TurnCost { direction: Direction::Write, bytes: want as u32, requests: 0 };
        let turn = self.throttle.turn(Flow::Repair, cost).await;
        turn.map_err(|_| TaskFailure::here(TaskFault::NotHere))?;
        let began = self.env.clock.now();
        let reading = self.connection.read(&mut piece[..want]);
        let read = tokio::time::timeout(self.in_time, reading).await;
        let read = read.unwrap_or(Err(PeerError::Silent));
        read.map_err(|why| TaskFailure::of(self.to.donor, fault_of(&why)))?;
        let took = self.env.clock.now().saturating_sub(began);
        self.in_time = self.in_time.saturating_sub(took);
        self.left -= want;
        self.throttle.moved(want as u64);
        Ok(want)
    }

    /// Returns the donor that sends the chunk.
    pub fn donor(&self) -> DonorId {
        self.to.donor
    }

    /// Keeps the connection for the next chunk, if all of this one was read.
    pub fn done(self) {
        if self.left == 0 {
            self.kept_by.keep(self.to, self.connection, self.env.clock.now());
        }
    }
}

fn fault(source: &Source, why: &PeerError) -> TaskFailure {
    tracing::debug!("donor {} at {}: {why}", source.donor, source.addresses);
    TaskFailure::of(source.donor, fault_of(why))
}

fn fault_of(why: &PeerError) -> TaskFault {
    match why {
        PeerError::Refused(BulkStatus::NotFound) => TaskFault::SourceMissing,
        PeerError::WrongBytes => TaskFault::SourceWrong,
        PeerError::Open(_) | PeerError::Broken(_) | PeerError::Silent | PeerError::Refused(_) => {
            TaskFault::SourceAway
        }
    }
}
