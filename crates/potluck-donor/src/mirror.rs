//! Server-driven mirroring (docs/papers.md, CEFT): a client sends a chunk once, and its donor passes it on to others,
//! either while it receives the chunk, so that the answer can carry their receipts, or after the answer. No mirror can
//! fail a put or hold it up for long: a mirror that stalls is given up, and the copy is made later by the client or the
//! manager's repair. One that says that it yields to its owner is waited for longer, and the client is told so.

mod deferred;

pub(crate) use deferred::Deferred;

use bytes::Bytes;
use futures_util::future::join_all;
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::clock::Tick;
use potluck_core::hedging::THROTTLED_TIMEOUT;
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::KNOWN_ROUTES;
use potluck_wire::control::Source;
use potluck_wire::env;
use potluck_wire::env::Env;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use potluck_wire::ticket::Receipt;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;

/// The number of pieces that may wait for a slow mirror.
const WAITING: usize = 2;
/// The time that one put waits in all for a mirror to take its bytes, and after that for the receipts of all its
/// mirrors.
const STALL: Duration = Duration::from_secs(3);
/// These times are so long for a mirror that yields to its owner and says so.
const YIELDING: Duration = THROTTLED_TIMEOUT;
/// The time for which a mirror that was given up is left alone: a dead mirror must not slow every put.
const SHUNNED: Duration = Duration::from_secs(10);

/// The time after which a connection without puts is closed.
const IDLE: Duration = Duration::from_secs(60);

/// A chunk that is to be stored on another donor, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mirrored {
    pub name: ChunkName,
    pub len: u32,
    pub kind: ChunkKind,
    pub ack: AckLevel,
}

/// The donors that one connection's puts can be forwarded to.
#[derive(Default)]
pub(crate) struct Routes {
    routes: BTreeMap<u8, Route>,
}

struct Route {
    to: Source,
    line: Option<ForwardTask>,
    not_before: Tick,
}

/// A connection to a mirror with a task of its own, so that the mirrors of a put receive at the same time.
struct ForwardTask {
    pieces: mpsc::Sender<Message>,
    /// Whether the mirror says that it yields, and the put waits for a turn there.
    yields: Arc<Yields>,
    task: JoinHandle<()>,
}

impl Drop for ForwardTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether a mirror yields to its owner, as its connection hears it.
#[derive(Default)]
struct Yields(OnceLock<Arc<AtomicBool>>);

impl Yields {
    fn now(&self) -> bool {
        self.0.get().is_some_and(|says| says.load(Ordering::Relaxed))
    }
}

enum Message {
    Begin(Mirrored, oneshot::Sender<Receipt>),
    Piece(Bytes),
}

/// A put on its way to its mirrors.
pub(crate) struct ForwardedPut {
    /// The copies under way, in the order of the put's routes.
    copies: Vec<Copying>,
}

struct Copying {
    route: u8,
    /// The channel that brings the mirror's receipt; `None` when the mirror was given up.
    answer: Option<oneshot::Receiver<Receipt>>,
    /// The time for which the mirror was waited for.
    waited: Duration,
}

impl Routes {
    /// Learns how to reach a donor under the route `number`; returns false when there are too many routes.
    pub fn learn(&mut self, number: u8, to: Source) -> bool {
        if self.routes.len() >= KNOWN_ROUTES && !self.routes.contains_key(&number) {
            return false;
        }
        self.routes.insert(number, Route { to, line: None, not_before: Tick::ZERO });
        true
    }

    /// Returns the donor that a route's number stands for.
    pub fn get(&self, number: u8) -> Option<&Source> {
        self.routes.get(&number).map(|route| &route.to)
    }

    /// Begins to forward a put to the donors of `routes`; its pieces follow. This must be called in a runtime.
    pub async fn begin(&mut self, env: &Env, put: Mirrored, routes: &[u8]) -> ForwardedPut {
        let mut copies = Vec::with_capacity(routes.len());
        for route in routes {
            let mut copying = Copying { route: *route, answer: None, waited: Duration::ZERO };
            if self.open(env, *route) {
                let (tell, told) = oneshot::channel();
                copying.answer = Some(told);
                if self.send(env, &mut copying, Message::Begin(put, tell)).await.is_err() {
                    self.give_up(env, *route);
                }
            }
            copies.push(copying);
        }
        ForwardedPut { copies }
    }

    /// Forwards the next bytes of the put.
    pub async fn pass_on(&mut self, env: &Env, forwarding: &mut ForwardedPut, piece: Bytes) {
        if forwarding.copies.iter().all(|copying| copying.answer.is_none()) {
            return;
        }
        // Mirrors that stall at the same time hold up the put together, and not one after the other.
        let copies = forwarding.copies.iter_mut();
        let sending = copies.map(|copying| self.send(env, copying, Message::Piece(piece.clone())));
        for stalled in join_all(sending).await.into_iter().filter_map(Result::err) {
            self.give_up(env, stalled);
        }
    }

    /// Waits for the receipts of a put whose bytes were all forwarded. Returns them in the order of its routes, with
    /// `None` for mirrors that were given up or refused.
    pub async fn receipts(&mut self, env: &Env, forwarding: ForwardedPut) -> Vec<Option<Receipt>> {
        let began = env.clock.now();
        let mut receipts = Vec::with_capacity(forwarding.copies.len());
        for Copying { route, answer, .. } in forwarding.copies {
            let Some(answer) = answer else {
                receipts.push(None);
                continue;
            };
            let waited = env.clock.now().saturating_sub(began);
            let answered = self.in_time(route, waited, answer).await;
            if answered.is_err() {
                self.give_up(env, route);
            }
            receipts.push(answered.ok().and_then(Result::ok));
        }
        receipts
    }

    /// Closes the connections to the mirrors of a put that will not be finished, since they have got a part of a frame.
    pub fn cut(&mut self, forwarding: ForwardedPut) {
        for copying in forwarding.copies {
            if let Some(route) = self.routes.get_mut(&copying.route) {
                route.line = None;
            }
        }
    }

    /// Begins to connect to the mirror unless it is connected; returns false for an unknown route, and for a mirror
    /// that is left alone.
    fn open(&mut self, env: &Env, number: u8) -> bool {
        let Some(route) = self.routes.get_mut(&number) else { return false };
        if env.clock.now() < route.not_before {
            return false;
        }
        let alive = route.line.as_ref().is_some_and(|line| !line.task.is_finished());
        if !alive {
            let (pieces, received) = mpsc::channel(WAITING);
            let yields = Arc::new(Yields::default());
            let heard = Arc::clone(&yields);
            let task = env::spawn(drive(env.clone(), route.to.clone(), heard, received));
            route.line = Some(ForwardTask { pieces, yields, task });
        }
        true
    }

    /// Sends a message to one mirror, if it was not given up.
    ///
    /// Errors: the route of a mirror that is to be given up.
    async fn send(&self, env: &Env, copying: &mut Copying, message: Message) -> Result<(), u8> {
        if copying.answer.is_none() {
            return Ok(());
        }
        let line = self.routes.get(&copying.route).and_then(|route| route.line.as_ref());
        let began = env.clock.now();
        let Some(line) = line else {
            copying.answer = None;
            return Ok(());
        };
        let sent = self.in_time(copying.route, copying.waited, line.pieces.send(message)).await;
        copying.waited += env.clock.now().saturating_sub(began);
        if matches!(sent, Ok(Ok(()))) {
            return Ok(());
        }
        copying.answer = None;
        Err(copying.route)
    }

    /// Waits for a mirror that was `waited` for already, for as long as one may take that yields, or does not.
    async fn in_time<T>(
        &self,
        number: u8,
        waited: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut work = pin!(work);
        let stalled = tokio::time::timeout(STALL.saturating_sub(waited), work.as_mut()).await;
        let line = self.routes.get(&number).and_then(|route| route.line.as_ref());
        match stalled {
            Err(_) if line.is_some_and(|line| line.yields.now()) => {
                tokio::time::timeout(YIELDING.saturating_sub(waited.max(STALL)), work).await
            }
            done => done,
        }
    }

    fn give_up(&mut self, env: &Env, number: u8) {
        if let Some(route) = self.routes.get_mut(&number) {
            tracing::debug!("donor {} at {} does not keep up", route.to.donor, route.to.addresses);
            route.line = None;
            route.not_before = env.clock.now() + SHUNNED;
        }
    }
}

async fn drive(env: Env, to: Source, yields: Arc<Yields>, received: mpsc::Receiver<Message>) {
    if let Err(why) = forward(&env, &to, &yields, received).await {
        tracing::debug!("cannot forward to donor {} at {}: {why}", to.donor, to.addresses);
    }
}

async fn forward(
    env: &Env,
    to: &Source,
    yields: &Yields,
    mut received: mpsc::Receiver<Message>,
) -> Result<(), PeerError> {
    let mut connection =
        PeerConnection::open(&*env.net, &*env.entropy, &to.addresses, &to.ticket).await?;
    yields.0.get_or_init(|| connection.waits_for_turn());
    let mut due = None;
    loop {
        let next = match due {
            Some(_) => received.recv().await,
            // This ends before the mirror would close the connection: a put that found it closed would get no copy
            // there.
            None => tokio::time::timeout(IDLE, received.recv()).await.unwrap_or(None),
        };
        let Some(message) = next else { return Ok(()) };
        match message {
            Message::Begin(Mirrored { name, len, kind, ack }, tell) => {
                connection.begin_put(name, ack, kind, len).await?;
                due = Some((len as usize, tell));
            }
            Message::Piece(piece) => {
                connection.write(&piece).await?;
                let Some((left, tell)) = due.take() else { continue };
                if left > piece.len() {
                    due = Some((left - piece.len(), tell));
                    continue;
                }
                match connection.finish_put().await {
                    Ok(receipt) => drop(tell.send(receipt)),
                    Err(PeerError::Refused(status)) => {
                        tracing::debug!("donor {} refused a forwarded chunk: {status:?}", to.donor);
                    }
                    Err(why) => return Err(why),
                }
            }
        }
    }
}
