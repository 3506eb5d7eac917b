//! The port of a gateway: connections, TLS, and which protocol a request speaks.

use crate::s3::calls::{S3Calls, Secrets, SpaceNames};
use crate::users::Users;
use crate::webdav::service::DavService;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use potluck_client::Pool;
use potluck_wire::net::{BoxStream, Listener, SharedNet};
use rustls::ServerConfig;
use s3s::service::{S3Service, S3ServiceBuilder};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// The most connections at once; more wait to be accepted.
const MOST_CONNECTIONS: usize = 4096;
/// The time within which a handshake ends, and the whole head of the next request arrives.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for which a stop waits for requests under way.
const DRAIN: Duration = Duration::from_secs(30);
/// The pause after a connection could not be accepted, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The protocols that a gateway speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocols {
    /// The gateway speaks S3 alone.
    S3,
    /// The gateway speaks WebDAV alone.
    WebDav,
    /// All protocols on one port: requests that are signed as S3 requests are go to S3, others to WebDAV.
    All,
}

/// The options of a gateway.
pub struct GatewayOptions {
    /// The protocols that are spoken.
    pub protocols: Protocols,
    /// The certificate that clients are shown; `None` to speak plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

type Answer = Response<UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>>;

/// A gateway that listens.
pub struct Gateway {
    listener: Box<dyn Listener>,
    tls: Option<TlsAcceptor>,
    inner: Arc<Inner>,
}

struct Inner {
    protocols: Protocols,
    users: Arc<Users>,
    s3: S3Service,
    webdav: DavService,
}

impl Gateway {
    /// Listens at an address, for programs that reach `pool` through this gateway. The pool's handle is that of a member
    /// with the role of a gateway.
    ///
    /// Errors: the address cannot be listened at.
    pub async fn listen(
        net: &SharedNet,
        pool: Pool,
        at: &str,
        options: GatewayOptions,
    ) -> io::Result<Self> {
        let listener = net.listen(at).await?;
        let users = Arc::new(Users::new(pool));
        let mut builder = S3ServiceBuilder::new(S3Calls::new(Arc::clone(&users)));
        builder.set_auth(Secrets(Arc::clone(&users)));
        builder.set_validation(SpaceNames);
        let s3 = builder.build();
        let webdav = DavService::new(Arc::clone(&users));
        let inner = Arc::new(Inner { protocols: options.protocols, users, s3, webdav });
        Ok(Self { listener, tls: options.tls.map(TlsAcceptor::from), inner })
    }

    /// Returns the address that it listens at.
    ///
    /// Errors: those of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` completes, and then until the requests under way are answered, or [`DRAIN`] has passed.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { mut listener, tls, inner } = self;
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let arrival = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (listener.accept().await, place)
            };
            let (accepted, place) = tokio::select! {
                arrival = arrival => arrival,
                () = &mut shutdown => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(why) => {
                    tracing::warn!(%why, "a connection cannot be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (inner, tls, watcher) = (Arc::clone(&inner), tls.clone(), graceful.watcher());
            tokio::spawn(async move {
                let _place = place;
                talk(inner, tls, stream, watcher).await;
            });
        }
        drop(listener);
        if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests were still under way at the stop");
        }
        inner.users.settle().await;
    }
}

/// Answers over a connection until it ends.
async fn talk(
    inner: Arc<Inner>,
    tls: Option<TlsAcceptor>,
    stream: BoxStream,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let Some(tls) = tls else { return speak(inner, stream, watcher).await };
    match tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => speak(inner, stream, watcher).await,
        Ok(Err(why)) => tracing::debug!(%why, "a handshake failed"),
        Err(_) => tracing::debug!("a handshake did not end in time"),
    }
}

async fn speak(
    inner: Arc<Inner>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let service = service_fn(move |request| {
        let inner = Arc::clone(&inner);
        async move { Ok::<_, Infallible>(inner.answer(request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    if let Err(why) = watcher.watch(connection).await {
        tracing::debug!(%why, "a connection ended badly");
    }
}

impl Inner {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if request.uri().path() == "/healthz" && request.method() == http::Method::GET {
            return plain(StatusCode::OK, "ok\n");
        }
        let is_s3 = match self.protocols {
            Protocols::S3 => true,
            Protocols::WebDav => false,
            Protocols::All => is_signed(&request),
        };
        if !is_s3 {
            let answer = self.webdav.answer(request).await;
            return answer.map(|body| body.map_err(Into::into).boxed_unsync());
        }
        match self.s3.call(request.map(s3s::Body::from)).await {
            Ok(answer) => answer.map(|body| body.map_err(Into::into).boxed_unsync()),
            Err(why) => {
                tracing::warn!("an S3 request could not be answered: {why:?}");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be answered\n")
            }
        }
    }
}

/// Returns whether a request is signed as S3 requests are, in its headers or in its query.
fn is_signed<B>(request: &Request<B>) -> bool {
    let shown = request.headers().get(header::AUTHORIZATION);
    let in_header = shown.is_some_and(|shown| shown.as_bytes().starts_with(b"AWS"));
    let query = request.uri().query().unwrap_or_default();
    let in_query = query
        .split('&')
        .any(|pair| ["X-Amz-Signature=", "Signature="].iter().any(|name| pair.starts_with(name)));
    in_header || in_query
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    let body = Full::new(Bytes::from_static(text.as_bytes()));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_requests_are_told_from_others() {
        let request = |uri: &str, authorization: Option<&str>| {
            let mut request = Request::builder().uri(uri);
            if let Some(authorization) = authorization {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            request.body(()).expect("a request")
        };
        assert!(is_signed(&request("/lab", Some("AWS4-HMAC-SHA256 Credential=x"))));
        assert!(is_signed(&request("/lab/a?X-Amz-Expires=3&X-Amz-Signature=ab", None)));
        assert!(!is_signed(&request("/lab/a", Some("Basic abc"))));
        assert!(!is_signed(&request("/lab/a?list", None)));
    }
}
