//! The HTTP server of a control port: accepts connections, finds out who is there, and hands their requests to the
//! calls.
//!
//! Whatever arrives on the port, it costs its sender's connection and nothing else: handshakes,
//! headers, bodies and answers have deadlines, strangers have little room and few connections, and a panic
//! ends one call.
//!
//! A connection is first of an address, in the handshake; then of a member, or of a stranger. Each
//! of these has places of its own ([`crate::admission`]), so that strangers, however many, cost a
//! member none of its connections, and one member costs another none.

use crate::admission::{AdmittedPlace, PeerNetwork, STRANGERS_OF_A_MANAGER, SharedRoom};
use crate::bodies::OF_A_STRANGER;
use crate::call::ACCESS_KEY;
use crate::env;
use crate::error::{ErrorKind, Failure, code};
use crate::net::{BoxStream, Listener};
use crate::stalled_writes::StalledWrites;
use crate::succession::AUTHORITY;
use crate::tls::Admit;
use crate::version;
use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use potluck_core::chunk::Digest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// The most connections at once that are still in the handshake.
const ARRIVALS: usize = 4096;
/// The time within which the whole head of a stranger's next request has to arrive; its body has a deadline of its own.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time within which the whole head of a member's next request has to arrive, so that an idle connection ends.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(120);
/// The most bytes that are read at once from a member: a connection keeps this buffer for as long as it is open.
const READ_AT_ONCE: usize = 64 << 10;
/// The time for which a member's connection that lost its place is kept until the call under way is answered: longer
/// than any call takes.
const LAST_ANSWER: Duration = Duration::from_secs(90);
/// The time for which a stop waits for answers under way.
const STOP_DEADLINE: Duration = Duration::from_secs(3);

/// The call that a request names, and on whose behalf it is made.
#[derive(Debug, Clone)]
pub struct CalledName {
    /// The name of the call, as it stands in the path.
    pub call: String,
    /// The access key that the caller acts by, as [`ACCESS_KEY`] says; `None` where it acts for itself.
    pub key: Option<String>,
}

/// The service that answers the requests of peers.
pub trait Answers: Send + Sync + 'static {
    /// Answers a call: JSON in, JSON out.
    fn answer(
        self: Arc<Self>,
        peer: Peer,
        call: CalledName,
        body: Body,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send;

    /// Returns `Ok` if calls can be answered, and otherwise the reason why not.
    fn ready(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// Returns whether this is the certificate of a member. One that the pool's authority signed and that nobody has is
    /// a stranger's: it may be signed with an authority's key that was stolen.
    fn is_member(&self, _certificate: &Digest) -> bool {
        true
    }

    /// Learns which authority a peer trusts, by its fingerprint, and returns what it is to be told of the pool's
    /// authority, as [`AUTHORITY`] says.
    fn succession(&self, _peer: &Peer, _trusted: &str) -> Option<String> {
        None
    }

    /// Learns that a member's connection ended for another reason than a stop.
    fn connection_ended(self: Arc<Self>, connection: u64) -> impl Future<Output = ()> + Send;
}

/// Serves until `shutdown` completes, and then for a few seconds at most until the answers under way are given.
pub async fn serve<S: Answers>(
    service: Arc<S>,
    mut listener: Box<dyn Listener>,
    admit: Arc<dyn Admit>,
    shutdown: impl Future<Output = ()>,
) {
    let capacity = listener.capacity();
    let server = Arc::new(Server {
        router: router(Arc::clone(&service)),
        service,
        connections: AtomicU64::new(0),
        admit,
        arrivals: SharedRoom::new(ARRIVALS.min(capacity / 4)),
        members: SharedRoom::new(capacity / 2),
        strangers: SharedRoom::new(STRANGERS_OF_A_MANAGER.min(capacity / 8)),
        leaving: Semaphore::new(capacity / 8),
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
                let arrival = server.arrivals.enter(peer.into());
                env::spawn(Arc::clone(server).let_in(stream, peer, arrival, stopped.clone()));
            }
            Err(why) => {
                // The process is out of files or memory, and connections that end will help.
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
    /// The number of connections that have passed the handshake; each gets its number from it.
    connections: AtomicU64,
    admit: Arc<dyn Admit>,
    /// The places of connections in the handshake.
    arrivals: Arc<SharedRoom<PeerNetwork>>,
    /// The places of members' connections, by their certificates.
    members: Arc<SharedRoom<Digest>>,
    /// The places of connections whose handshake showed no certificate.
    strangers: Arc<SharedRoom<PeerNetwork>>,
    /// The places of members' connections that lost their own and are kept until a last answer; those beyond them end
    /// at once.
    leaving: Semaphore,
}

/// The place of a connection after its handshake.
enum Admitted {
    Member(AdmittedPlace<Digest>),
    Stranger(AdmittedPlace<PeerNetwork>),
}

impl Admitted {
    /// Waits until the place was given to somebody else.
    async fn evicted(&self) {
        match self {
            Self::Member(place) => place.evicted().await,
            Self::Stranger(place) => place.evicted().await,
        }
    }
}

/// The peer at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The fingerprint of the certificate of the pool that the peer showed; `None` for strangers.
    pub certificate: Option<Digest>,
    /// The address from which the connection comes.
    pub address: SocketAddr,
    /// The number of the connection, from 1.
    pub connection: u64,
}

impl<S: Answers> Server<S> {
    async fn let_in(
        self: Arc<Self>,
        stream: BoxStream,
        address: SocketAddr,
        arrival: AdmittedPlace<PeerNetwork>,
        stopped: watch::Receiver<()>,
    ) {
        let stream = Box::new(StalledWrites::watch(stream));
        let admitted = tokio::select! {
            admitted = self.admit.admit(stream) => admitted,
            () = arrival.evicted() => {
                tracing::debug!(%address, "too many connections in the handshake");
                return;
            }
        };
        let (stream, certificate) = match admitted {
            Ok(admitted) => admitted,
            Err(why) => {
                tracing::debug!(%address, %why, "not admitted");
                return;
            }
        };
        let place = match certificate.filter(|shown| self.service.is_member(shown)) {
            None => Admitted::Stranger(self.strangers.enter(address.into())),
            Some(member) => Admitted::Member(self.members.enter(member)),
        };
        drop(arrival);
        let connection = 1 + self.connections.fetch_add(1, Ordering::Relaxed);
        let peer = Peer { certificate, address, connection };
        let stopping = self.talk(stream, peer, &place, stopped).await;
        drop(place);
        if certificate.is_some() && !stopping {
            Arc::clone(&self.service).connection_ended(connection).await;
        }
    }

    /// Answers over a connection until it ends, and returns whether it ended because the manager stops.
    async fn talk(
        &self,
        stream: BoxStream,
        peer: Peer,
        place: &Admitted,
        mut stopped: watch::Receiver<()>,
    ) -> bool {
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new());
        match place {
            Admitted::Member(_) => {
                http.header_read_timeout(MEMBER_TIMEOUT).max_buf_size(READ_AT_ONCE)
            }
            Admitted::Stranger(_) => {
                http.header_read_timeout(STRANGER_TIMEOUT).max_buf_size(OF_A_STRANGER)
            }
        };
        let service = TowerToHyperService::new(self.router.clone().layer(Extension(peer)));
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
        let (result, stopping) = tokio::select! {
            result = &mut connection => (result, false),
            _ = stopped.changed() => {
                connection.as_mut().graceful_shutdown();
                (connection.await, true)
            }
            () = place.evicted() => {
                tracing::debug!(address = %peer.address, "too many connections: this one ends");
                // A member's call is answered first; a stranger may be one that never asks. A member that opens ever
                // more connections and reads nothing has only so many of them.
                let leaving = match place {
                    Admitted::Member(_) => self.leaving.try_acquire().ok(),
                    Admitted::Stranger(_) => None,
                };
                let Some(_leaves) = leaving else { return false };
                connection.as_mut().graceful_shutdown();
                let Ok(result) = tokio::time::timeout(LAST_ANSWER, connection).await else {
                    return false;
                };
                (result, false)
            }
        };
        if let Err(why) = result {
            tracing::debug!(address = %peer.address, %why, "a connection ended badly");
        }
        stopping
    }

    async fn wait_until_empty(&self) {
        let empty = async {
            self.members.empty().await;
            self.strangers.empty().await;
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
    headers: HeaderMap,
    body: Body,
) -> Response {
    let key = headers.get(ACCESS_KEY).map(|key| String::from_utf8_lossy(key.as_bytes()).into());
    let name = CalledName { call: name, key };
    let mut response = respond(Arc::clone(&service).answer(peer, name, body).await);
    // What changed while the call waited is told with its answer.
    let trusted = headers.get(AUTHORITY).and_then(|trusted| trusted.to_str().ok());
    let told = trusted.and_then(|trusted| service.succession(&peer, trusted));
    if let Some(told) = told.and_then(|told| header::HeaderValue::try_from(told).ok()) {
        response.headers_mut().insert(AUTHORITY, told);
    }
    response
}

/// Makes the answer to a call that the manager does not know.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::BoxFuture;
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    const MEMBER: Digest = Digest([1; 32]);

    /// Answers one call never, and another with more than any buffer takes.
    struct Slow;

    impl Answers for Slow {
        async fn answer(
            self: Arc<Self>,
            _: Peer,
            name: CalledName,
            _: Body,
        ) -> Result<Vec<u8>, Failure> {
            match &*name.call {
                "long" => Ok(vec![b' '; 1 << 20]),
                _ => std::future::pending().await,
            }
        }

        async fn ready(&self) -> Result<(), String> {
            Ok(())
        }

        async fn connection_ended(self: Arc<Self>, _: u64) {}
    }

    impl Admit for Slow {
        fn admit(
            &self,
            stream: BoxStream,
        ) -> BoxFuture<'_, std::io::Result<(BoxStream, Option<Digest>)>> {
            Box::pin(async move { Ok((stream, Some(MEMBER))) })
        }
    }

    fn server(places: usize) -> Arc<Server<Slow>> {
        Arc::new(Server {
            router: router(Arc::new(Slow)),
            service: Arc::new(Slow),
            connections: AtomicU64::new(0),
            admit: Arc::new(Slow),
            arrivals: SharedRoom::new(8),
            members: SharedRoom::new(places),
            strangers: SharedRoom::new(1),
            leaving: Semaphore::new(1),
        })
    }

    /// Opens a connection that asks for something and reads nothing, and returns the seconds for which it is kept.
    async fn asks(server: &Arc<Server<Slow>>, call: &str) -> u64 {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let address = SocketAddr::from(([10, 0, 0, 1], 1));
        let request = format!("POST /v1/{call} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        theirs.write_all(request.as_bytes()).await.expect("sent");
        let (_running, stopped) = watch::channel(());
        let (began, arrival) = (Instant::now(), server.arrivals.enter(address.into()));
        Arc::clone(server).let_in(Box::new(ours), address, arrival, stopped).await;
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_is_not_kept_for_long_x3() {
        let kept = asks(&server(1), "long").await;
        assert_eq!(kept, crate::stalled_writes::STALL_DEADLINE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn evicted_connection_ends_at_once_x3() {
        let server = server(1);
        let second = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            asks(&server, "never").await
        };
        let third = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            tokio::time::timeout(Duration::from_secs(200), asks(&server, "never")).await
        };
        let (first, second, third) = tokio::join!(asks(&server, "never"), second, third);
        assert_eq!(first, 1 + LAST_ANSWER.as_secs());
        assert_eq!(second, 1, "one is waited for at a time");
        assert!(third.is_err(), "this one has a place");
    }
}
