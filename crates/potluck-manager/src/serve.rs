//! Waiting: accepts connections, finds out who is there, and hands their requests to the calls.
//!
//! Whatever arrives on the port, it costs its sender's connection and nothing else: handshakes,
//! headers and bodies have deadlines, strangers have little room and few connections, and a panic
//! ends one call.

use crate::callers::Caller;
use crate::calls::{self, Verb};
use crate::failure;
use crate::reach;
use crate::service::Service;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::{StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use potluck_core::chunk::Digest;
use potluck_wire::control::MAX_MESSAGE;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::{BoxStream, Listener};
use potluck_wire::tls::Admit;
use potluck_wire::version;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Members' connections at once: below the 1024 files that a process may usually open.
const MEMBERS: usize = 800;
/// Connections of those who have not shown who they are; more are closed at once.
const STRANGERS: usize = 128;
/// How long a stranger may take for a request, from its first byte to its last.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest body of a stranger: a join.
const STRANGER_BODY: usize = 16 << 10;
/// How long a member's connection may be idle.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a member's body may take.
const BODY_DEADLINE: Duration = Duration::from_secs(60);
/// How long a stop waits for answers under way.
const STOP_DEADLINE: Duration = Duration::from_secs(3);

/// The service that answers the requests of whoever connects.
pub trait Answers: Send + Sync + 'static {
    /// Answers a call: JSON in, JSON out.
    fn answer(
        self: Arc<Self>,
        peer: Peer,
        call: String,
        body: Body,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send;

    /// Whether calls can be answered, or why not.
    fn ready(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// A member's connection ended, not because of a stop.
    fn connection_ended(self: Arc<Self>, connection: u64) -> impl Future<Output = ()> + Send;
}

/// Serves until `shutdown` completes.
pub async fn serve<S: Answers>(
    service: Arc<S>,
    mut listener: Box<dyn Listener>,
    admit: Arc<dyn Admit>,
    shutdown: impl Future<Output = ()>,
) {
    let server = Arc::new(Server {
        router: router(Arc::clone(&service)),
        service,
        connections: AtomicU64::new(0),
        admit,
        members: Arc::new(Semaphore::new(MEMBERS)),
        strangers: Arc::new(Semaphore::new(STRANGERS)),
    });
    let (stop, stopped) = watch::channel(());
    tokio::select! {
        () = accept(&mut *listener, &server, &stopped) => {}
        () = shutdown => {}
    }
    drop(listener);
    drop(stop);
    server.wait_until_empty().await;
}

async fn accept<S: Answers>(
    listener: &mut dyn Listener,
    server: &Arc<Server<S>>,
    stopped: &watch::Receiver<()>,
) {
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                failing = false;
                // Too many strangers: better to turn one away than to keep everybody waiting.
                let Ok(permit) = Arc::clone(&server.strangers).try_acquire_owned() else {
                    tracing::debug!(%peer, "too many connections without a certificate");
                    continue;
                };
                tokio::spawn(Arc::clone(server).let_in(stream, peer, permit, stopped.clone()));
            }
            Err(why) => {
                // Out of files or memory: connections that end will help.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%why, "cannot accept connections");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

struct Server<S> {
    router: Router,
    service: Arc<S>,
    /// How many there were.
    connections: AtomicU64,
    admit: Arc<dyn Admit>,
    members: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The fingerprint of the certificate of the pool that was shown; none of strangers.
    pub certificate: Option<Digest>,
    /// Where the connection comes from.
    pub address: SocketAddr,
    /// Counts connections, from 1.
    pub connection: u64,
}

impl<S: Answers> Server<S> {
    async fn let_in(
        self: Arc<Self>,
        stream: BoxStream,
        address: SocketAddr,
        stranger: OwnedSemaphorePermit,
        stopped: watch::Receiver<()>,
    ) {
        let (stream, certificate) = match self.admit.admit(stream).await {
            Ok(admitted) => admitted,
            Err(why) => {
                tracing::debug!(%address, %why, "not admitted");
                return;
            }
        };
        let permit = match certificate {
            None => stranger,
            Some(_) => match Arc::clone(&self.members).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => {
                    tracing::warn!(%address, "too many connections");
                    return;
                }
            },
        };
        let connection = 1 + self.connections.fetch_add(1, Ordering::Relaxed);
        let peer = Peer { certificate, address, connection };
        let stopping = self.talk(stream, peer, stopped).await;
        drop(permit);
        if certificate.is_some() && !stopping {
            Arc::clone(&self.service).connection_ended(connection).await;
        }
    }

    /// Answers over a connection until it ends; whether it ended because the manager stops.
    async fn talk(&self, stream: BoxStream, peer: Peer, mut stopped: watch::Receiver<()>) -> bool {
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new());
        match peer.certificate {
            Some(_) => http.header_read_timeout(MEMBER_TIMEOUT),
            None => http.header_read_timeout(STRANGER_TIMEOUT).max_buf_size(STRANGER_BODY),
        };
        let service = TowerToHyperService::new(self.router.clone().layer(Extension(peer)));
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
        let (result, stopping) = tokio::select! {
            result = &mut connection => (result, false),
            _ = stopped.changed() => {
                connection.as_mut().graceful_shutdown();
                (connection.await, true)
            }
        };
        if let Err(why) = result {
            tracing::debug!(address = %peer.address, %why, "a connection ended badly");
        }
        stopping
    }

    async fn wait_until_empty(&self) {
        let empty = async {
            let _ = self.members.acquire_many(MEMBERS as u32).await;
            let _ = self.strangers.acquire_many(STRANGERS as u32).await;
        };
        if tokio::time::timeout(STOP_DEADLINE, empty).await.is_err() {
            tracing::debug!("connections were still open at the stop");
        }
    }
}

fn router<S: Answers>(service: Arc<S>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready::<S>))
        .route(&format!("{}/{{call}}", version::CONTROL), post(call::<S>))
        .fallback(|| async { respond(Err(no_such_call("this path"))) })
        .with_state(service)
}

async fn ready<S: Answers>(State(service): State<Arc<S>>) -> Response {
    match service.ready().await {
        Ok(()) => plain(StatusCode::OK, "ready\n".into()),
        Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn call<S: Answers>(
    State(service): State<Arc<S>>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    body: Body,
) -> Response {
    respond(service.answer(peer, name, body).await)
}

impl Answers for Service {
    async fn answer(
        self: Arc<Self>,
        peer: Peer,
        call: String,
        body: Body,
    ) -> Result<Vec<u8>, Failure> {
        let verb = Verb::named(&call).ok_or_else(|| no_such_call(&call))?;
        let who = match peer.certificate {
            Some(certificate) if verb != Verb::Join => {
                Some(self.members.identify(&certificate, self.time.wall_ms())?)
            }
            _ => None,
        };
        let caller = Caller { who, peer: peer.address.ip(), connection: peer.connection };
        let body = read_body(body, caller.who.is_some()).await?;
        calls::answer(&self, caller, verb, body).await
    }

    async fn ready(&self) -> Result<(), String> {
        self.catalog.pool_name().await.map(drop).map_err(|why| why.to_string())
    }

    async fn connection_ended(self: Arc<Self>, connection: u64) {
        reach::connection_ended(&self, connection).await;
    }
}

/// Reads a request's body, of which a stranger's is short.
pub async fn read_body(body: Body, member: bool) -> Result<Bytes, Failure> {
    let (limit, deadline) = match member {
        true => (MAX_MESSAGE, BODY_DEADLINE),
        false => (STRANGER_BODY, STRANGER_TIMEOUT),
    };
    match tokio::time::timeout(deadline, to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(why)) => Err(failure::bad_request(format!("the request's body: {why}"))),
        Err(_) => Err(failure::bad_request("the request's body did not arrive in time")),
    }
}

/// The answer to a call that nobody knows.
pub fn no_such_call(name: &str) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, format!("this manager has no call “{name}”"))
        .hint("the caller may be newer than the manager: bring the manager up to date")
}

fn respond(result: Result<Vec<u8>, Failure>) -> Response {
    let (status, body) = match result {
        Ok(reply) => (StatusCode::OK, reply),
        Err(failure) => {
            (failure.kind.http_status(), serde_json::to_vec(&failure).unwrap_or_default())
        }
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn plain(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
