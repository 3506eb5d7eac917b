//! The caller's side of the control plane: typed calls to the manager over kept connections.

use crate::control::{Call, MAX_MESSAGE};
use crate::error::{ErrorKind, Failure, code};
use crate::net::SharedNet;
use crate::tls::Dial;
use crate::version;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Calls one manager. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Caller {
    shared: Arc<Shared>,
}

struct Shared {
    net: SharedNet,
    dial: Arc<dyn Dial>,
    manager: String,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

/// Why a call brought no answer of its type.
enum Broken {
    /// The connection was gone before the request left; asking again is safe.
    NotSent(String),
    /// Anything else.
    Failed(Failure),
}

/// A call that brought no reply of its type.
#[derive(Debug, Clone)]
pub struct Unanswered {
    /// What the manager refused, or why it did not answer.
    pub failure: Failure,
    /// Whether the request may have reached the manager. What is asked for may be done then, also
    /// when no answer came.
    pub sent: bool,
}

impl Caller {
    /// Will call the manager at `host:port`.
    pub fn new(net: SharedNet, dial: Arc<dyn Dial>, manager: impl Into<String>) -> Self {
        let shared = Shared { net, dial, manager: manager.into(), idle: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The manager's `host:port`.
    pub fn manager(&self) -> &str {
        &self.shared.manager
    }

    /// Makes one call within [`Call::DEADLINE`].
    ///
    /// Errors: what the manager refused; [`ErrorKind::Retry`] when no manager answers.
    pub async fn call<C: Call>(&self, request: &C) -> Result<C::Reply, Failure> {
        self.attempt(request).await.map_err(|unanswered| unanswered.failure)
    }

    /// The same for a caller that may ask again, and has to know whether it was heard.
    pub async fn attempt<C: Call>(&self, request: &C) -> Result<C::Reply, Unanswered> {
        let sent = AtomicBool::new(false);
        let unanswered = |failure| Unanswered { failure, sent: sent.load(Ordering::Relaxed) };
        let body = serde_json::to_vec(request).map_err(|why| {
            unanswered(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, why.to_string()))
        })?;
        let exchange = self.exchange::<C>(body.into(), &sent);
        match tokio::time::timeout(C::DEADLINE, exchange).await {
            Ok(result) => result.map_err(unanswered),
            Err(_) => Err(unanswered(self.away("it did not answer in time"))),
        }
    }

    async fn exchange<C: Call>(&self, body: Bytes, sent: &AtomicBool) -> Result<C::Reply, Failure> {
        loop {
            let kept = self.shared.idle.lock().expect("no holder panics").pop();
            let (sender, fresh) = match kept {
                Some(sender) => (sender, false),
                None => (self.connect().await.map_err(|why| self.unreachable(&why))?, true),
            };
            sent.store(true, Ordering::Relaxed);
            match self.send::<C>(sender, body.clone()).await {
                Ok(reply) => return Ok(reply),
                Err(Broken::NotSent(why)) => {
                    sent.store(false, Ordering::Relaxed);
                    if fresh {
                        return Err(self.away(&why));
                    }
                    // The kept connection had been closed: asked again on another.
                }
                Err(Broken::Failed(failure)) => return Err(failure),
            }
        }
    }

    async fn connect(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let stream = self.shared.net.connect(&self.shared.manager).await?;
        let stream = self.shared.dial.secure(stream).await?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn send<C: Call>(
        &self,
        mut sender: SendRequest<Full<Bytes>>,
        body: Bytes,
    ) -> Result<C::Reply, Broken> {
        sender.ready().await.map_err(|why| Broken::NotSent(why.to_string()))?;
        let request = Request::post(format!("{}/{}", version::CONTROL, C::NAME))
            .header(header::HOST, &self.shared.manager)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|why| Broken::Failed(self.away(&why.to_string())))?;
        let response = sender.send_request(request).await.map_err(|why| {
            if why.is_canceled() {
                Broken::NotSent(why.to_string())
            } else {
                Broken::Failed(self.away(&why.to_string()))
            }
        })?;
        let status = response.status();
        let text = Limited::new(response.into_body(), MAX_MESSAGE)
            .collect()
            .await
            .map_err(|why| Broken::Failed(self.away(&why.to_string())))?
            .to_bytes();
        self.shared.idle.lock().expect("no holder panics").push(sender);
        if status == StatusCode::OK {
            return serde_json::from_slice(&text).map_err(|why| {
                Broken::Failed(self.away(&format!("its answer is unreadable: {why}")))
            });
        }
        Err(Broken::Failed(
            serde_json::from_slice(&text)
                .unwrap_or_else(|_| self.away(&format!("it answered HTTP {status}"))),
        ))
    }

    fn away(&self, why: &str) -> Failure {
        let what = format!("the manager at {} does not answer: {why}", self.shared.manager);
        Failure::new(ErrorKind::Retry, code::NO_MANAGER, what)
            .hint("check that it runs (`potluck up` or `potluck manager`) and can be reached, then try again")
    }

    fn unreachable(&self, why: &io::Error) -> Failure {
        let tls = why.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(tls) => {
                let what = format!(
                    "the manager at {} is not the pool expected: {tls}",
                    self.shared.manager
                );
                Failure::new(ErrorKind::Auth, code::WRONG_POOL, what)
                    .hint("somebody else answers at this address, or the pool was made anew: ask an admin for a new token (`potluck invite`)")
            }
            None => self.away(&why.to_string()),
        }
    }
}
