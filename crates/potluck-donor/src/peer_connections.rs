//! Connections to other donors, which are opened for tasks of the manager and for deferred copies, and kept for a while
//! because both come in crowds.

use crate::task_failure::TaskFailure;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
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
    pub async fn fetch(
        &self,
        env: &Env,
        source: &Source,
        name: ChunkName,
        len: u32,
    ) -> Result<ChunkFetch<'_>, TaskFailure> {
        let to = Peer::of(source);
        let asked = match self.take(&to) {
            Some(mut connection) => {
                let asked = connection.begin_get(name, len).await;
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
                let asked = connection.begin_get(name, len).await;
                (connection, asked)
            }
        };
        match asked {
            Ok(()) => {
                let now = env.clock.now();
                Ok(ChunkFetch { kept_by: self, to, connection, left: len as usize, now })
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
    to: Peer,
    connection: PeerConnection,
    left: usize,
    now: Tick,
}

impl ChunkFetch<'_> {
    /// Fills `piece` with the next bytes, or a part of it with those that are left; returns their number.
    pub async fn next(&mut self, piece: &mut [u8]) -> Result<usize, TaskFailure> {
        let want = piece.len().min(self.left);
        let read = self.connection.read(&mut piece[..want]).await;
        read.map_err(|why| TaskFailure::of(self.to.donor, fault_of(&why)))?;
        self.left -= want;
        Ok(want)
    }

    /// Returns the donor that sends the chunk.
    pub fn donor(&self) -> DonorId {
        self.to.donor
    }

    /// Keeps the connection for the next chunk, if all of this one was read.
    pub fn done(self) {
        if self.left == 0 {
            self.kept_by.keep(self.to, self.connection, self.now);
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
