//! The caller's side of the control plane: typed calls to the manager over kept connections.

use crate::addresses::{Address, Addresses};
use crate::control::{Call, MAX_MESSAGE};
use crate::env;
use crate::error::{ErrorKind, Failure, code};
use crate::mdns::Nearby;
use crate::net::{BoxFuture, BoxStream, SharedNet};
use crate::race::{NoneReached, first_of};
use crate::succession::{AUTHORITY, Succession};
use crate::tls::Dial;
use crate::version;
use crate::whereabouts::{Guide, SignedWhereabouts};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use potluck_core::chunk::Digest;
use serde::de::DeserializeOwned;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A caller of one manager. To clone it is cheap, and clones share connections.
#[derive(Clone)]
pub struct Caller {
    shared: Arc<Shared>,
    /// The access key by which a gateway acts on behalf of a user; `None` where a member acts for itself.
    key: Option<Arc<str>>,
}

/// The header by which a gateway names the access key of the user on whose behalf it calls.
pub const ACCESS_KEY: &str = "potluck-access-key";

struct Shared {
    net: SharedNet,
    dial: Mutex<Arc<dyn Dial>>,
    /// The addresses of the manager, beginning with the one at which it answered last.
    manager: Mutex<Addresses>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    /// The sender that tells all open connections to end, with the calls that wait on them, because they may lead to
    /// addresses that the manager has left.
    gone: watch::Sender<()>,
    /// The guide that knows where else to look for a manager that moved.
    guide: Option<Guide>,
    /// The pool of the manager, where it is known, by which the manager is looked for on this network.
    pool: Option<Digest>,
    /// The time of the next look for the manager on this network, and the time from that look to the one after it.
    look: Mutex<(Instant, Duration)>,
    /// The time before which the caller does not try again to follow the pool to another authority. It is locked while
    /// a call tries.
    follow: tokio::sync::Mutex<Instant>,
}

/// The time that it may take to find out whether the manager proves another authority.
const FOLLOW_DEADLINE: Duration = Duration::from_secs(2);
/// The time until it is tried again to follow the pool to another authority.
const FOLLOW_AGAIN: Duration = Duration::from_secs(10);

/// The time from the first look for a manager on this network to the next; it doubles up to [`LOOK_AT_MOST`].
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The longest time between two looks on this network for a manager that is away.
const LOOK_AT_MOST: Duration = Duration::from_secs(60);

/// The reason why a call brought no answer of its type.
enum Broken {
    /// The connection was gone before the request left; asking again is safe.
    NotSent(String),
    /// The call failed for any other reason.
    Failed(Failure),
}

/// A request as it crosses the wire, whatever its type.
pub struct EncodedCall {
    name: &'static str,
    deadline: Duration,
    is_repeatable: bool,
    body: Bytes,
}

impl EncodedCall {
    /// Encodes a request.
    ///
    /// Errors: it cannot be JSON.
    pub fn of<C: Call>(request: &C) -> Result<Self, Failure> {
        let body = serde_json::to_vec(request)
            .map_err(|why| Failure::new(ErrorKind::Usage, code::BAD_REQUEST, why.to_string()))?;
        let (deadline, is_repeatable) = (C::DEADLINE, request.is_repeatable());
        Ok(Self { name: C::NAME, deadline, is_repeatable, body: body.into() })
    }

    /// Returns [`Call::is_repeatable`] of the request.
    pub fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }
}

/// The failure of a call that brought no reply of its type.
#[derive(Debug, Clone)]
pub struct Unanswered {
    /// The refusal of the manager, or the reason why it did not answer.
    pub failure: Failure,
    /// True if the request may have reached the manager. It may then have been carried out, also when no answer came.
    pub sent: bool,
}

impl Caller {
    /// Makes a caller of the manager that is at one of these addresses.
    pub fn new(net: SharedNet, dial: Arc<dyn Dial>, manager: Addresses) -> Self {
        Self::with(net, dial, manager, None, None)
    }

    /// Makes a caller of the manager that is led by `guide`: addresses that the guide knows are tried first, and when
    /// the manager is nowhere, the caller looks for it.
    pub fn guided(net: SharedNet, dial: Arc<dyn Dial>, manager: &Addresses, guide: Guide) -> Self {
        let pool = guide.pool();
        Self::with(net, dial, guide.addresses().and(manager), Some(guide), Some(pool))
    }

    /// Makes a caller of the manager that knows nothing of the pool but its fingerprint and some addresses.
    pub fn joining(net: SharedNet, dial: Arc<dyn Dial>, manager: Addresses, pool: Digest) -> Self {
        Self::with(net, dial, manager, None, Some(pool))
    }

    fn with(
        net: SharedNet,
        dial: Arc<dyn Dial>,
        manager: Addresses,
        guide: Option<Guide>,
        pool: Option<Digest>,
    ) -> Self {
        let (manager, idle, dial) = (Mutex::new(manager), Mutex::default(), Mutex::new(dial));
        let look = Mutex::new((Instant::now(), LOOK_AGAIN));
        let follow = tokio::sync::Mutex::new(Instant::now());
        let gone = watch::Sender::new(());
        let shared = Shared { net, dial, manager, idle, gone, guide, pool, look, follow };
        Self { shared: Arc::new(shared), key: None }
    }

    /// Returns a caller that shares the connections of this one, and calls on behalf of the user whose access key this
    /// is. The manager allows that to gateways alone.
    pub fn on_behalf(&self, key: &str) -> Self {
        Self { shared: Arc::clone(&self.shared), key: Some(key.into()) }
    }

    fn dial(&self) -> Arc<dyn Dial> {
        Arc::clone(&self.shared.dial.lock().expect("no holder panics"))
    }

    /// Returns the guide that leads to the manager, if there is one.
    pub fn guide(&self) -> Option<&Guide> {
        self.shared.guide.as_ref()
    }

    /// Takes over the addresses at which the manager is said to be, if the pool's authority signed that and it is later
    /// than what is known. Returns whether it was.
    pub fn learn(&self, shown: &SignedWhereabouts) -> bool {
        let Some(guide) = self.guide().filter(|guide| guide.learn(shown)) else { return false };
        self.go(&guide.addresses());
        true
    }

    /// Learns the whereabouts that the manager itself told: the address at which it answers is still tried first.
    pub fn learn_from_manager(&self, shown: &SignedWhereabouts) {
        let Some(guide) = self.guide().filter(|guide| guide.learn(shown)) else { return };
        let mut known = self.shared.manager.lock().expect("no holder panics");
        let answered: Vec<_> = known.first().cloned().into_iter().collect();
        *known = Addresses::from(answered).and(&guide.addresses()).and(&known);
    }

    /// Reads again what another process may have written down since: the guide's memory, and the `manager`'s
    /// addresses in the identity.
    pub fn read_again(&self, manager: &Addresses) {
        let shown = self.guide().and_then(Guide::written);
        let learnt = shown.is_some_and(|shown| self.learn(&shown));
        let known = self.manager();
        if !learnt && manager.first().is_some_and(|first| !known.contains(first)) {
            self.go(manager);
        }
    }

    /// Uses new connections from now on. A call that waits for an answer on an open connection is made again if it is
    /// repeatable, and fails otherwise. The open connections may lead from an address that this machine has lost, or to
    /// one that the manager has left, and such a connection does not break: it is silent.
    pub fn hang_up(&self) {
        self.shared.idle.lock().expect("no holder panics").clear();
        self.shared.gone.send_replace(());
    }

    fn go(&self, there: &Addresses) {
        let answered = {
            let mut known = self.shared.manager.lock().expect("no holder panics");
            let answered = known.first().cloned().filter(|address| there.contains(address));
            *known = there.and(&known).preferring(|address| Some(address) == answered.as_ref());
            answered
        };
        if answered.is_none() {
            self.hang_up();
        }
    }

    /// Returns the addresses of the manager, beginning with the one at which it answered last.
    pub fn manager(&self) -> Addresses {
        self.shared.manager.lock().expect("no holder panics").clone()
    }

    /// Makes one call within [`Call::DEADLINE`].
    ///
    /// Errors: what the manager refused; [`ErrorKind::Retry`] when no manager answers, or not in time;
    /// [`code::WRONG_POOL`] when only other pools answer.
    pub async fn call<C: Call>(&self, request: &C) -> Result<C::Reply, Failure> {
        self.attempt(request).await.map_err(|unanswered| unanswered.failure)
    }

    /// Makes one call for a caller that may ask again, and has to know whether the manager may have heard it.
    pub async fn attempt<C: Call>(&self, request: &C) -> Result<C::Reply, Unanswered> {
        let request =
            EncodedCall::of(request).map_err(|failure| Unanswered { failure, sent: false })?;
        let reply = self.attempt_encoded(&request).await?;
        self.decode(&reply).map_err(|failure| Unanswered { failure, sent: true })
    }

    /// Makes one call as [`Self::attempt`] does, and returns the reply as it came. One function serves calls of all
    /// types, so that it is compiled once.
    pub fn attempt_encoded<'a>(
        &'a self,
        request: &'a EncodedCall,
    ) -> BoxFuture<'a, Result<Bytes, Unanswered>> {
        Box::pin(async {
            let sent = AtomicBool::new(false);
            let unanswered = |failure| Unanswered { failure, sent: sent.load(Ordering::Relaxed) };
            match tokio::time::timeout(request.deadline, self.exchange(request, &sent)).await {
                Ok(result) => result.map_err(unanswered),
                Err(_) => {
                    // The others that are kept may be as dead as this one.
                    self.shared.idle.lock().expect("no holder panics").clear();
                    Err(unanswered(self.away("it did not answer in time")))
                }
            }
        })
    }

    /// Reads the reply to a call.
    pub fn decode<R: DeserializeOwned>(&self, reply: &[u8]) -> Result<R, Failure> {
        serde_json::from_slice(reply)
            .map_err(|why| self.away(&format!("its answer is unreadable: {why}")))
    }

    async fn exchange(&self, request: &EncodedCall, sent: &AtomicBool) -> Result<Bytes, Failure> {
        loop {
            let kept = self.shared.idle.lock().expect("no holder panics").pop();
            let (sender, fresh) = match kept {
                Some(sender) => (sender, false),
                None => (self.connect().await.map_err(|why| unreachable(&why))?, true),
            };
            let gone = self.shared.gone.subscribe();
            sent.store(true, Ordering::Relaxed);
            match self.send(sender, request).await {
                Ok(reply) => return Ok(reply),
                Err(Broken::NotSent(why)) => {
                    sent.store(false, Ordering::Relaxed);
                    if fresh {
                        return Err(self.away(&why));
                    }
                    // The kept connection had been closed, so the call is made again on another.
                }
                // The call was given up while it waited, so the manager is asked again on another
                // connection.
                Err(Broken::Failed(_))
                    if request.is_repeatable && gone.has_changed().unwrap_or(false) => {}
                Err(Broken::Failed(failure)) => return Err(failure),
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, NoneReached<io::Error>> {
        let mut gone = self.shared.gone.subscribe();
        let (at, stream) = loop {
            let addresses = self.manager();
            let tried = tokio::select! {
                tried = first_of(&addresses, |address| self.reach(address)) => tried,
                Ok(()) = gone.changed() => continue, // it is elsewhere now
            };
            match tried {
                Ok(reached) => break reached,
                Err(nowhere) => {
                    let found = self.seek(&addresses).await.ok_or(nowhere)?;
                    gone.mark_unchanged(); // what was learnt on the way led here
                    break found;
                }
            }
        };
        if self.manager().first() != Some(&at) {
            let mut known = self.shared.manager.lock().expect("no holder panics");
            *known = Addresses::from(at.clone()).and(&known);
        }
        let failed = |why| NoneReached(vec![(at, io::Error::other(why))]);
        self.open(stream, gone).await.map_err(failed)
    }

    /// Begins to speak over a stream on which the manager has proved itself.
    async fn open(
        &self,
        stream: BoxStream,
        mut gone: watch::Receiver<()>,
    ) -> Result<SendRequest<Full<Bytes>>, hyper::Error> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        env::spawn(async move {
            tokio::select! {
                _ = connection => {} // whoever waits for an answer hears of its end
                _ = gone.changed() => {}
            }
        });
        Ok(sender)
    }

    /// Follows the pool to the authority that the manager says came after the one which is trusted here. The manager
    /// has to prove the new one before anything is written down.
    async fn follow_authority(&self, said: &str) {
        let Some(guide) = self.guide() else { return };
        let Ok(mut again) = self.shared.follow.try_lock() else { return };
        let named = said.parse::<Succession>().ok().and_then(|it| it.verified(&guide.ca()));
        let Some(ca) = named.filter(|_| Instant::now() >= *again) else { return };
        *again = Instant::now() + FOLLOW_AGAIN;
        let Some(dial) = self.dial().trusting(&ca) else { return };
        let gone = self.shared.gone.subscribe();
        let manager = self.manager();
        let opened = async {
            let (_, stream) = first_of(&manager, |at| self.reach_by(&dial, at)).await.ok()?;
            self.open(stream, gone).await.ok()
        };
        let Ok(Some(sender)) = tokio::time::timeout(FOLLOW_DEADLINE, opened).await else {
            tracing::debug!("the manager does not prove the authority that it named");
            return;
        };
        if let Err(why) = guide.trust(ca) {
            tracing::warn!(
                "the pool has a new authority, which cannot be written down here: {why}"
            );
            return;
        }
        tracing::info!("the pool has a new authority, which is trusted from now on");
        self.trust(dial);
        self.shared.idle.lock().expect("no holder panics").push(sender);
    }

    /// Has new connections made by `dial`, which trusts another authority.
    fn trust(&self, dial: Arc<dyn Dial>) {
        *self.shared.dial.lock().expect("no holder panics") = dial;
        self.shared.idle.lock().expect("no holder panics").clear();
    }

    /// Trusts the authority to which another process of this member has followed the pool; returns whether one did.
    fn follow_identity(&self, guide: &Guide) -> bool {
        let Some(ca) = guide.ca_in_identity() else { return false };
        let Some(dial) = self.dial().trusting(&ca) else { return false };
        let trusted = guide.trust(ca).is_ok();
        if trusted {
            self.trust(dial);
        }
        trusted
    }

    /// Looks for a manager that is at none of the addresses that are known: tries this machine, reads what other
    /// processes noted, asks donors, and then the network that this machine is in.
    async fn seek(&self, known: &Addresses) -> Option<(Address, BoxStream)> {
        // A manager on this machine is still here when the machine's addresses have changed.
        let here = known.iter().map(|at| Address::of([127, 0, 0, 1].into(), at.port()));
        let here = Addresses::new(here.filter(|at| !known.contains(at)));
        if let Ok(reached) = first_of(&here, |at| self.reach(at)).await {
            return Some(reached);
        }
        if let Some(guide) = self.guide() {
            if self.follow_identity(guide)
                && let Ok(reached) = first_of(known, |at| self.reach(at)).await
            {
                return Some(reached);
            }
            self.read_again(&guide.in_identity());
            let noted = self.manager();
            let new = noted.iter().filter(|address| !known.contains(address)).cloned();
            if let Ok(reached) = first_of(&Addresses::new(new), |at| self.reach(at)).await {
                return Some(reached);
            }
        }
        if let Some(guide) = self.guide()
            && guide.seek().await
            && let Some(reached) = self.follow(guide).await
        {
            return Some(reached);
        }
        let nearby = self.look_around(known).await?;
        let found = first_of(&nearby.managers, |address| self.reach(address)).await.ok();
        match (found, self.guide()) {
            (Some(reached), guide) => {
                tracing::info!("the manager answers at {}, found by multicast DNS", reached.0);
                if let Some(guide) = guide {
                    guide.doubt();
                }
                Some(reached)
            }
            (None, Some(guide)) if guide.ask_at(nearby.donors.iter()).await => {
                self.follow(guide).await
            }
            (None, _) => None,
        }
    }

    async fn follow(&self, guide: &Guide) -> Option<(Address, BoxStream)> {
        let there = guide.addresses();
        self.go(&there);
        first_of(&there, |address| self.reach(address)).await.ok()
    }

    /// Asks who on this machine's networks says that it is of the pool; `None` where nobody is asked, because the pool
    /// is not known or is this machine's alone, or the last time was not long ago.
    async fn look_around(&self, known: &Addresses) -> Option<Nearby> {
        let pool = self.shared.pool.as_ref().filter(|_| !known.are_local())?;
        {
            let (mut look, now) =
                (self.shared.look.lock().expect("no holder panics"), Instant::now());
            if now < look.0 {
                return None;
            }
            *look = (now + look.1, (2 * look.1).min(LOOK_AT_MOST));
        }
        Some(self.shared.net.nearby(pool).await)
    }

    /// Opens a stream on which the manager has proved itself.
    async fn reach(&self, address: Address) -> io::Result<BoxStream> {
        self.reach_by(&self.dial(), address).await
    }

    async fn reach_by(&self, dial: &Arc<dyn Dial>, address: Address) -> io::Result<BoxStream> {
        let stream = self.shared.net.connect(address.as_str()).await?;
        dial.secure(stream).await
    }

    async fn send(
        &self,
        mut sender: SendRequest<Full<Bytes>>,
        request: &EncodedCall,
    ) -> Result<Bytes, Broken> {
        sender.ready().await.map_err(|why| Broken::NotSent(why.to_string()))?;
        let body = request.body.clone();
        let mut request = Request::post(format!("{}/{}", version::CONTROL, request.name))
            .header(header::HOST, self.manager().first().map_or("", Address::as_str))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(trusted) = self.guide().and(self.dial().authority()) {
            request = request.header(AUTHORITY, trusted.to_string());
        }
        if let Some(key) = &self.key {
            request = request.header(ACCESS_KEY, &**key);
        }
        let request = request
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
        let authority = response.headers().get(AUTHORITY).cloned();
        let text = Limited::new(response.into_body(), MAX_MESSAGE)
            .collect()
            .await
            .map_err(|why| Broken::Failed(self.away(&why.to_string())))?
            .to_bytes();
        self.shared.idle.lock().expect("no holder panics").push(sender);
        if let Some(said) = authority.as_ref().and_then(|said| said.to_str().ok()) {
            self.follow_authority(said).await;
        }
        if status == StatusCode::OK {
            return Ok(text);
        }
        Err(Broken::Failed(
            serde_json::from_slice(&text)
                .unwrap_or_else(|_| self.away(&format!("it answered HTTP {status}"))),
        ))
    }

    /// Says that the manager does not answer, and at which addresses.
    pub fn silence(&self) -> String {
        match self.manager() {
            none if none.is_empty() => "the manager has not said yet where it is".into(),
            known => format!("the manager at {known} does not answer"),
        }
    }

    fn away(&self, why: &str) -> Failure {
        no_manager(format!("{}: {why}", self.silence()))
    }
}

fn no_manager(what: String) -> Failure {
    Failure::new(ErrorKind::Retry, code::NO_MANAGER, what).hint(
        "check on its own machine that it runs (`potluck service status`, or what it was started with), and that it can \
         be reached from here; if it has another address: `potluck find-manager HOST`",
    )
}

/// Returns the failure of a call to a manager that answers at no address.
fn unreachable(unreached: &NoneReached<io::Error>) -> Failure {
    let is_other = |why: &io::Error| why.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    let tried = &unreached.0;
    if tried.is_empty() {
        let what = "the manager has not said yet where it is: it has just begun to start, or its start failed";
        return no_manager(what.into());
    }
    if !tried.iter().all(|(_, why)| is_other(why)) {
        return no_manager(format!("the manager does not answer: {unreached}"));
    }
    let what = format!("what answers is not the pool expected: {unreached}");
    Failure::new(ErrorKind::Auth, code::WRONG_POOL, what)
        .hint("somebody else has this address now, the pool was made anew, or its authority was replaced while this member was away: \
               ask an admin, who compares the addresses and makes a new token (`potluck invite`)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Callers;
    use crate::net::{BoxFuture, Net, SystemNet};
    use serde::{Deserialize, Serialize};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::mpsc;

    const POOL: Digest = Digest([7; 32]);

    struct Plain;

    impl Dial for Plain {
        fn secure(&self, stream: BoxStream) -> BoxFuture<'_, io::Result<BoxStream>> {
            Box::pin(async { Ok(stream) })
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Ask {}

    #[derive(Debug, Serialize, Deserialize)]
    struct Answer {}

    impl Call for Ask {
        const NAME: &'static str = "ask";
        const BY: Callers = Callers::Everybody;
        const WHAT: &'static str = "asking";
        const DEADLINE: Duration = Duration::from_secs(120);
        type Reply = Answer;
    }

    /// Answers one call on its first connection and every one on others; tells of each that it hears.
    async fn manager() -> (Addresses, mpsc::UnboundedReceiver<()>) {
        let mut listener = SystemNet.listen("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let tell = tell.clone();
                tokio::spawn(async move {
                    for call in 0.. {
                        let (mut request, mut part) = (Vec::new(), [0; 1024]);
                        while !request.ends_with(b"{}") {
                            match stream.read(&mut part).await {
                                Ok(read) if read > 0 => request.extend(&part[..read]),
                                _ => return,
                            }
                        }
                        let _ = tell.send(()); // the test may have ended
                        if connection > 0 || call == 0 {
                            let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                            stream.write_all(reply).await.expect("sent");
                        }
                    }
                });
            }
        });
        (address.into(), heard)
    }

    #[tokio::test]
    async fn call_on_an_abandoned_connection_is_retried() {
        let (address, mut heard) = manager().await;
        let caller = Caller::new(Arc::new(SystemNet), Arc::new(Plain), address);
        caller.call(&Ask {}).await.expect("answered");
        heard.recv().await.expect("a call");
        let waits = tokio::spawn({
            let caller = caller.clone();
            async move { caller.call(&Ask {}).await }
        });
        heard.recv().await.expect("a call that is not answered");
        caller.hang_up();
        let asked_again = tokio::time::timeout(Ask::DEADLINE / 2, waits).await.expect("at once");
        asked_again.expect("it ran").expect("answered on another connection");
    }

    #[tokio::test]
    async fn local_manager_is_found_after_an_address_change() {
        let (address, _heard) = manager().await;
        let port = address.first().expect("an address").port();
        let gone: Addresses = Address::of([127, 0, 0, 2].into(), port).into();
        let caller = Caller::new(Arc::new(SystemNet), Arc::new(Plain), gone);
        caller.call(&Ask {}).await.expect("answered");
        assert_eq!(caller.manager().first(), address.first());
    }

    #[tokio::test]
    async fn manager_address_noted_later_is_used_by_the_next_call() {
        let dir = tempfile::tempdir().expect("a directory");
        let note = |manager: &Addresses| {
            let about = serde_json::json!({
                "pool": "lab", "pool_id": POOL, "manager": manager, "member": 1, "role": "admin", "name": "admin"
            });
            std::fs::write(dir.path().join("identity.json"), about.to_string()).expect("written");
        };
        note(&Addresses::default());
        let net: SharedNet = Arc::new(SystemNet);
        let guide = Guide::open(Arc::clone(&net), POOL, vec![].into(), dir.path());
        let caller = Caller::guided(net, Arc::new(Plain), &Addresses::default(), guide);
        let why = caller.call(&Ask {}).await.expect_err("nobody said where the manager is");
        assert_eq!(why.code, code::NO_MANAGER);
        assert!(why.message.contains("has not said yet where it is"), "{why}");
        let (address, _heard) = manager().await;
        note(&address);
        caller.call(&Ask {}).await.expect("answered");
    }
}
