//! Copies made after the answer: chunks are read back, mostly from the page cache, and put on the donors that their
//! writer named. If copies do not fit in the queue, the writer is told; copies that fail later are left to the
//! manager's repair.

use super::Mirrored;
use crate::disk::read_exact_at;
use crate::service::Service;
use potluck_wire::bulk::PIECE;
use potluck_wire::control::Source;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The most copies that wait to be made.
const MOST: usize = 1024;
/// The most copies that are made at once.
const AT_ONCE: usize = 2;

/// The queue of copies that are to be made.
pub(crate) struct Deferred {
    queue: Mutex<VecDeque<(Mirrored, Source)>>,
    /// A semaphore with a permit for each copy in the queue.
    waiting: Semaphore,
}

impl Default for Deferred {
    fn default() -> Self {
        Self { queue: Mutex::default(), waiting: Semaphore::new(0) }
    }
}

impl Deferred {
    /// Queues copies of a chunk that is stored here to each of `to`; returns false, and queues none, when there is no
    /// room for all.
    pub fn push(&self, chunk: Mirrored, to: Vec<Source>) -> bool {
        let mut queue = self.queue.lock().expect("no holder panics");
        let fits = queue.len() + to.len() <= MOST;
        if fits {
            self.waiting.add_permits(to.len());
            queue.extend(to.into_iter().map(|to| (chunk, to)));
        }
        fits
    }

    async fn next(&self) -> Option<(Mirrored, Source)> {
        self.waiting.acquire().await.expect("never closed").forget();
        self.queue.lock().expect("no holder panics").pop_front()
    }

    /// Makes copies until the future is dropped.
    pub async fn copy_for_ever(service: Arc<Service>) {
        let mut workers = JoinSet::new();
        for _ in 0..AT_ONCE {
            workers.spawn(work(Arc::clone(&service)));
        }
        while workers.join_next().await.is_some() {}
        // The workers end only when the donor shuts down.
        std::future::pending().await
    }
}

async fn work(service: Arc<Service>) {
    while !service.closing() {
        service.owner.on().await;
        let Some((chunk, to)) = service.deferred.next().await else { continue };
        let worker = Arc::clone(&service);
        let copying = async move { copy(&worker, &chunk, &to).await };
        Arc::clone(&service).run_blocking(copying).await;
    }
}

async fn copy(service: &Service, chunk: &Mirrored, to: &Source) {
    // A kept connection may have been closed meanwhile, so a new one is tried after it.
    for kept in [true, false] {
        let connected = service.peer_connections.connect(&service.env, to, kept).await;
        let sent = match connected {
            Ok(Some(mut connection)) => {
                let sent = send(service, chunk, &mut connection).await;
                if matches!(sent, Ok(()) | Err(PeerError::Refused(_))) {
                    service.peer_connections.put_back(&service.env, to, connection);
                }
                sent
            }
            Ok(None) => continue,
            Err(why) => Err(why),
        };
        match sent {
            Ok(()) => return,
            Err(why) => {
                let donor = to.donor;
                tracing::debug!("cannot copy chunk {} to donor {donor}: {why}", chunk.name);
            }
        }
    }
}

async fn send(
    service: &Service,
    chunk: &Mirrored,
    connection: &mut PeerConnection,
) -> Result<(), PeerError> {
    let Mirrored { name, len, kind, ack } = *chunk;
    let Ok(Some(found)) = service.store.find(&name) else { return Ok(()) }; // the chunk was deleted meanwhile
    if found.len != len {
        return Ok(());
    }
    connection.begin_put(name, ack, kind, len).await?;
    let mut piece = vec![0; PIECE.min(len as usize)];
    for at in (0..len as usize).step_by(PIECE) {
        let want = piece.len().min(len as usize - at);
        read_exact_at(&*found.file, &mut piece[..want], at as u64)
            .map_err(|why| PeerError::Broken(why.into()))?;
        connection.write(&piece[..want]).await?;
    }
    connection.finish_put().await.map(drop)
}
