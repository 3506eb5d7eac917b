//! The donor's port: an HTTP/1.1 server that `curl` can talk to, and the upgrade to bulk.
//!
//! A peer that has proved nothing gets a task, two small buffers and a few seconds. Only a peer whose first frame is
//! authentic gets a thread and, with its first put, a buffer for pieces (promise X3).
//!
//! There may be many more connections than threads: each has a thread while there are requests on it ([`turns`]), and
//! waits in the runtime otherwise. Where there are too many connections even so, the network that has most of them
//! loses its oldest ([`potluck_wire::admission`]).

mod sockets;
mod upgrade;

pub(crate) use sockets::Sockets;

use crate::metrics;
use crate::service::Service;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use potluck_wire::admission::{AdmittedPlace, PeerNetwork, STRANGERS_OF_A_DONOR, SharedRoom};
use potluck_wire::bulk::HEAD_BUFFER;
use potluck_wire::env;
use potluck_wire::metrics::CONTENT_TYPE;
use potluck_wire::net::{BoxStream, Listener};
use potluck_wire::turns::Turns;
use potluck_wire::upgrade::PATH;
use potluck_wire::whereabouts::{self, Guide};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The most bulk connections at once. Each takes a few kilobytes while it waits for its turn.
const CONNECTIONS: usize = 4096;
/// The most bulk connections that are served at once: each has a thread and, once it puts, a piece of memory.
const THREADS: usize = 128;
/// The most threads that connections from one [`PeerNetwork`] have at once.
const THREADS_EACH: usize = THREADS * 3 / 4;
/// The time that a peer may take to send the head of a request, or the whereabouts of the manager.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);
/// The time that requests in progress may take to finish once the owner has the donor do nothing.
const CUT_AFTER: Duration = Duration::from_millis(400);
/// The pause before connections are accepted again after the system refused one, for example because too many files are
/// open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The size in bytes of a request's buffer: hyper wants at least this, and the whole head of a request must fit.
const REQUEST_BUFFER: usize = 8 << 10;

const _: () = assert!(REQUEST_BUFFER + HEAD_BUFFER <= 64 << 10, "promise X3");

/// The server at the donor's port.
pub(crate) struct Server {
    service: Arc<Service>,
    sockets: Arc<Sockets>,
    strangers: Arc<SharedRoom<PeerNetwork>>,
    connections: Arc<SharedRoom<PeerNetwork>>,
    turns: Turns<PeerNetwork>,
}

/// The peer of a connection that has proved no ticket yet. The HTTP side and the upgrade of the connection share its
/// place.
#[derive(Clone)]
struct Stranger {
    origin: PeerNetwork,
    /// True if the peer is on this machine.
    is_here: bool,
    place: Arc<AdmittedPlace<PeerNetwork>>,
}

impl Server {
    /// Makes a server of `service`'s chunks with no connection yet; the system allows `capacity` open sockets.
    pub fn new(service: Arc<Service>, capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            service,
            sockets: Arc::default(),
            strangers: SharedRoom::new(STRANGERS_OF_A_DONOR.min(capacity / 4)),
            // A connection that has a thread holds its socket twice, and a chunk's file.
            connections: SharedRoom::new(CONNECTIONS.min(capacity / 4)),
            turns: Turns::new(THREADS, THREADS_EACH),
        })
    }

    /// Accepts connections until dropped.
    pub async fn accept(self: Arc<Self>, mut listener: Box<dyn Listener>) {
        let mut failing = false;
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    failing = false;
                    env::spawn(Arc::clone(&self).serve_connection(stream, address));
                }
                Err(why) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!("cannot accept connections: {why}");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve_connection(self: Arc<Self>, stream: BoxStream, address: SocketAddr) {
        let origin = PeerNetwork::from(address);
        let is_here = address.ip().to_canonical().is_loopback();
        let stranger = Stranger { origin, is_here, place: Arc::new(self.strangers.enter(origin)) };
        let answer = service_fn(|request: Request<Incoming>| {
            let (server, stranger) = (Arc::clone(&self), stranger.clone());
            async move {
                if (request.method(), request.uri().path()) == (&Method::POST, whereabouts::PATH) {
                    server.learn_whereabouts(request).await;
                    return Ok::<_, Infallible>(server.show_whereabouts());
                }
                Ok(server.respond(request, stranger))
            }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_DEADLINE)
            .max_buf_size(REQUEST_BUFFER)
            .serve_connection(TokioIo::new(stream), answer)
            .with_upgrades();
        let served = tokio::select! {
            served = serving => served,
            () = stranger.place.evicted() => return tracing::debug!(%address, "too many connections"),
        };
        if let Err(why) = served {
            tracing::debug!("a connection ended: {why}");
        }
    }

    fn shows_metrics_to(&self, stranger: &Stranger) -> bool {
        stranger.is_here || self.service.metrics.open.load(Ordering::Relaxed)
    }

    fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        stranger: Stranger,
    ) -> Response<Full<Bytes>> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, PATH) => {
                self.upgrade(request, stranger).unwrap_or_else(|status| plain(status, ""))
            }
            // Who lends how much, and when it is used, is nobody's business; the port is reached by everybody.
            (&Method::GET, "/metrics") if !self.shows_metrics_to(&stranger) => plain(
                StatusCode::FORBIDDEN,
                "these figures are shown on this machine alone; for others: potluck set lend.metrics-open true\n",
            ),
            (&Method::GET, "/metrics") => {
                let text = metrics::text(&self.service, self.connections.count());
                let mut response = Response::new(Full::new(Bytes::from(text.to_string())));
                let openmetrics = HeaderValue::from_static(CONTENT_TYPE);
                response.headers_mut().insert(header::CONTENT_TYPE, openmetrics);
                response
            }
            (&Method::GET, whereabouts::PATH) => self.show_whereabouts(),
            (&Method::GET, "/healthz") => match self.service.store.broken() {
                false => plain(StatusCode::OK, "ok\n"),
                true => plain(StatusCode::SERVICE_UNAVAILABLE, "the disk has failed\n"),
            },
            _ => plain(StatusCode::NOT_FOUND, ""),
        }
    }

    /// Learns the whereabouts of the manager from a request, if the pool's authority signed them.
    async fn learn_whereabouts(&self, request: Request<Incoming>) {
        let body = Limited::new(request.into_body(), whereabouts::MAX).collect();
        let Ok(Ok(body)) = tokio::time::timeout(HEADER_DEADLINE, body).await else { return };
        let Ok(shown) = serde_json::from_slice(&body.to_bytes()) else { return };
        let caller = self.service.caller.clone();
        if self.service.env.offload.run(move || caller.learn(&shown)).await {
            tracing::info!("the manager is at {} now", self.service.caller.manager());
        }
    }

    /// Answers where the manager is, which is no secret in its network.
    fn show_whereabouts(&self) -> Response<Full<Bytes>> {
        match self.service.caller.guide().and_then(Guide::signed) {
            Some(known) => {
                Response::new(Full::new(serde_json::to_vec(&known).unwrap_or_default().into()))
            }
            None => plain(StatusCode::NOT_FOUND, ""),
        }
    }

    /// Cuts sessions off whenever the owner has the donor do nothing: between requests at first, and after
    /// [`CUT_AFTER`] in the middle of one. Runs until dropped.
    pub async fn cut_while_off(&self) {
        let owner = &self.service.owner;
        loop {
            owner.off().await;
            self.sockets.stop_reading();
            tokio::select! {
                () = tokio::time::sleep(CUT_AFTER) => self.sockets.cut(),
                () = owner.on() => {}
            }
            owner.on().await;
        }
    }

    /// Lets sessions finish their requests for at most `closing_timeout`, then closes their sockets.
    pub async fn close(&self, closing_timeout: Duration) {
        self.service.close();
        self.sockets.stop_reading();
        if tokio::time::timeout(closing_timeout, self.connections.empty()).await.is_err() {
            self.sockets.cut();
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}
