//! A manager that answers donors and remembers what they said.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, Epoch, SessionId};
use potluck_wire::addresses::Addresses;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Call, ChunkOrders, Done, Heartbeat, HeartbeatReply, Holding, Inventory, Locate, Located,
    Register, Registered, Task, TaskOutcome, Work,
};
use potluck_wire::net::{BoxFuture, BoxStream, Net, SystemNet};
use potluck_wire::packed::Packed;
use potluck_wire::tls::Dial;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The donor's number in every test.
pub const DONOR: DonorId = DonorId(4);

/// The calls that the manager heard, and the replies that it is going to give.
#[derive(Default)]
pub struct State {
    pub epoch: Epoch,
    pub start: u64,
    pub changes: u64,
    pub now_ms: u64,
    /// The time before which tickets that were issued are void.
    pub void_before: u64,
    /// The write sessions that are over.
    pub over: Vec<SessionId>,
    pub registers: Vec<Register>,
    pub heartbeats: Vec<Heartbeat>,
    /// The pages of the last inventory that was begun.
    pub pages: Vec<Inventory>,
    /// The numbers of all pages that came.
    pub page_numbers: Vec<u32>,
    /// The page whose answer is lost, once.
    pub lost_answer: Option<u32>,
    /// The page that is lost itself, once.
    pub lost_page: Option<u32>,
    /// The number of times that a donor which begins to list is told that there is no time for it.
    pub has_no_time: u32,
    /// The tasks, which are given with every heartbeat reply until they are answered.
    pub tasks: Vec<Task>,
    /// The chunk orders, which are given with every heartbeat reply until they are cleared.
    pub chunk_orders: ChunkOrders,
    /// The addresses of donors that the manager tells others.
    pub located: BTreeMap<DonorId, Addresses>,
    /// True to say that the owner takes everything back.
    pub leaving: bool,
    /// True to forget all donors: the next heartbeat is asked to register.
    pub forgetful: bool,
    /// True to say that a manager which the donor heard before has no proof.
    pub unproven: bool,
    /// True to refuse every call, as a manager behind a broken network seems to.
    pub away: bool,
}

impl State {
    /// Returns a stand-in for the proof of what the manager says of itself.
    pub fn proof(&self) -> Option<Digest> {
        let said = format!("{} {} {}", self.epoch, self.start, self.changes);
        Some(Digest::of(said.as_bytes()))
    }

    /// Returns the outcome of the task of this number, if the donor told it.
    pub fn answer(&self, task: u64) -> Option<TaskOutcome> {
        let mut results = self.heartbeats.iter().flat_map(|heartbeat| &heartbeat.results);
        results.find(|result| result.task == task).map(|result| result.outcome.clone())
    }

    /// Returns the last inventory, if it is complete.
    pub fn inventory(&self) -> Option<Vec<Holding>> {
        self.pages.last().filter(|page| page.last)?;
        Some(self.pages.iter().flat_map(|page| page.holdings.0.iter().copied()).collect())
    }
}

/// A manager on a port of its own.
#[derive(Clone)]
pub struct Manager {
    state: Arc<Mutex<State>>,
    address: String,
}

/// A connection without TLS.
pub struct Plain;

impl Dial for Plain {
    fn secure(&self, stream: BoxStream) -> BoxFuture<'_, io::Result<BoxStream>> {
        Box::pin(async { Ok(stream) })
    }
}

impl Manager {
    pub async fn start() -> Self {
        let mut listener = SystemNet.listen("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("address").to_string();
        let state = State { epoch: Epoch(5), now_ms: 1000, ..State::default() };
        let manager = Self { state: Arc::new(Mutex::new(state)), address };
        let serving = manager.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let manager = serving.clone();
                let answer = service_fn(move |request| manager.clone().answer(request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer);
                tokio::spawn(connection);
            }
        });
        manager
    }

    pub fn caller(&self) -> Caller {
        Caller::new(Arc::new(SystemNet), Arc::new(Plain), self.address.parse().expect("an address"))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Refuses all calls from now on.
    pub fn hang_up(&self) {
        self.state().away = true;
    }

    /// Waits until the state shows what is looked for. It waits for half a minute at least, because chunks are read
    /// when the machine has nothing else to do.
    pub async fn until<T>(&self, what: &str, mut look: impl FnMut(&State) -> Option<T>) -> T {
        for _ in 0..1500 {
            if let Some(found) = look(&self.state()) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the manager never heard {what}");
    }

    /// Waits for `more` heartbeats. The first of them may have been composed before this call.
    pub async fn heartbeats(&self, more: usize) {
        let heard = self.state().heartbeats.len();
        self.until("heartbeats", |state| (state.heartbeats.len() >= heard + more).then_some(()))
            .await;
    }

    /// Gives a task until it is answered, and returns the answer.
    pub async fn ask(&self, number: u64, work: Work) -> TaskOutcome {
        self.state().tasks.push(Task { number, work });
        self.until("an answer", |state| state.answer(number)).await
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.expect("a body").to_bytes();
        if self.state().away {
            return Ok(away());
        }
        let text = if path.ends_with(Register::NAME) {
            let register: Register = serde_json::from_slice(&body).expect("register");
            let mut state = self.state();
            state.registers.push(register);
            state.pages.clear(); // all is listed anew, and what was listed before counts no more
            state.forgetful = false;
            let (epoch, start, changes) = (state.epoch, state.start, state.changes);
            let (proof, unproven, now_ms) = (state.proof(), state.unproven, state.now_ms);
            said(&Registered { donor: DONOR, epoch, start, changes, proof, unproven, now_ms })
        } else if path.ends_with(Inventory::NAME) {
            let page: Inventory = serde_json::from_slice(&body).expect("inventory");
            let mut state = self.state();
            let number = page.page;
            state.page_numbers.push(number);
            if number == 0 && state.has_no_time > 0 {
                state.has_no_time -= 1;
                return Ok(away());
            }
            if state.lost_page.take_if(|lost| *lost == number).is_some() {
                return Ok(away());
            }
            if number == 0 {
                state.pages.clear();
            }
            if number as usize + 1 == state.pages.len() {
                state.pages.pop(); // sent again
            }
            assert_eq!(number as usize, state.pages.len(), "pages in order");
            state.pages.push(page);
            if state.lost_answer.take_if(|lost| *lost == number).is_some() {
                return Ok(away());
            }
            said(&Done {})
        } else if path.ends_with(Locate::NAME) {
            let Locate { donor } = serde_json::from_slice(&body).expect("locate");
            said(&Located {
                addresses: self.state().located.get(&donor).cloned().unwrap_or_default(),
            })
        } else {
            let heartbeat: Heartbeat = serde_json::from_slice(&body).expect("heartbeat");
            let mut state = self.state();
            let answered = |number| heartbeat.results.iter().any(|result| result.task == number);
            state.tasks.retain(|task| !answered(task.number));
            let discard = heartbeat.quarantined.clone();
            let asked = heartbeat.sessions.0.clone();
            state.heartbeats.push(heartbeat);
            said(&HeartbeatReply {
                start: state.start,
                changes: state.changes,
                proof: state.proof(),
                epoch: state.epoch,
                now_ms: state.now_ms,
                register: state.forgetful,
                tasks: state.tasks.clone(),
                chunk_orders: state.chunk_orders.clone(),
                leaving: state.leaving,
                void_before: state.void_before,
                over: Packed(asked.into_iter().filter(|id| state.over.contains(id)).collect()),
                discard, // no file needs any
                ..HeartbeatReply::default()
            })
        };
        Ok(Response::new(Full::new(text.into())))
    }
}

fn away() -> Response<Full<Bytes>> {
    let mut refused = Response::new(Full::default());
    *refused.status_mut() = http::StatusCode::BAD_GATEWAY;
    refused
}

fn said(reply: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(reply).expect("plain data")
}
