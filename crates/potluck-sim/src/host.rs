//! A machine: what lasts while processes come and go on it.

use crate::cast::Who;
use crate::draw::Draw;
use crate::net::{SayWho, SimNet};
use crate::trace::Trace;
use potluck_core::chunk::Digest;
use potluck_core::clock::{Clock, Tick, UnixMillis};
use potluck_wire::call::Caller;
use potluck_wire::control::Join;
use potluck_wire::env::{Env, Offload};
use potluck_wire::identity::{fingerprint, new_key_and_request};
use potluck_wire::packed::Blob;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Where every wall clock would stand if none were wrong: 2026-11-01.
const EPOCH_MS: i64 = 1_793_491_200_000;

/// Tokens that the admin has made for those who have not joined.
pub type Invitations = Arc<Mutex<BTreeMap<Who, Digest>>>;

/// One machine. Clones are the same machine.
#[derive(Clone)]
pub struct Host {
    /// The part that the machine plays.
    pub who: Who,
    trace: Trace,
    draw: Draw,
    /// Milliseconds by which its wall clock is wrong.
    skew: Arc<AtomicI64>,
    sent: Arc<AtomicU64>,
    member: Arc<Mutex<Option<Digest>>>,
}

impl Host {
    /// A machine whose wall clock is `skew_ms` wrong.
    pub fn new(who: Who, seed: u64, skew_ms: i64, trace: Trace) -> Self {
        Self {
            who,
            trace,
            draw: Draw::new(seed, &format!("entropy of {who}")),
            skew: Arc::new(AtomicI64::new(skew_ms)),
            sent: Arc::default(),
            member: Arc::default(),
        }
    }

    /// Moves the wall clock.
    pub fn jump(&self, by_ms: i64) {
        self.skew.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Forgets what was sent so far: certificates differ in length from run to run.
    pub fn forget_sent(&self) {
        self.sent.store(0, Ordering::Relaxed);
    }

    /// Returns the bytes sent since they were counted anew.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The outside world for a process that starts now; called inside the host's runtime.
    pub fn env(&self) -> Env {
        Env {
            clock: Arc::new(SimClock::start(Arc::clone(&self.skew), self.trace.clone())),
            // The draws go on where the last process stopped: what was drawn once is never drawn
            // again.
            entropy: self.draw.entropy(),
            net: Arc::new(self.net()),
            offload: Offload::Inline,
        }
    }

    fn net(&self) -> SimNet {
        let sent = Arc::clone(&self.sent);
        SimNet { who: self.who, trace: self.trace.clone(), sent }
    }

    /// Whether it has joined.
    pub fn is_member(&self) -> bool {
        self.identity().is_some()
    }

    fn identity(&self) -> Option<Digest> {
        *self.member.lock().expect("no holder panics")
    }

    /// Makes the host the member with this certificate from now on.
    pub fn become_member(&self, certificate: &[u8]) {
        let fingerprint = fingerprint(&certificate.to_vec().into());
        *self.member.lock().expect("no holder panics") = Some(fingerprint);
    }

    /// Calls the manager as whoever it is.
    pub fn caller(&self) -> Caller {
        let dial = SayWho(self.identity());
        let manager = Who::Manager.address().parse().expect("a name and a port");
        Caller::new(Arc::new(self.net()), Arc::new(dial), manager)
    }

    /// Joins, once there is an invitation, unless it has.
    pub async fn join(&self, invitations: &Invitations) {
        while !self.is_member() {
            let invitation = invitations.lock().expect("no holder panics").get(&self.who).copied();
            if let Some(secret) = invitation {
                // The key does not follow from the seed, but neither it nor the certificate reaches
                // the trace.
                let (_key, request) = new_key_and_request().expect("a key");
                let join = Join { secret, request: Blob(request), name: self.who.to_string() };
                match self.caller().call(&join).await {
                    Ok(joined) => {
                        self.become_member(&joined.certificate.0);
                        let (member, role) = (joined.member, joined.role);
                        self.trace.say(self.who, format_args!("joined as {role} {member}"));
                    }
                    Err(why) => self.trace.say(self.who, format_args!("cannot join: {why}")),
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Simulated time for one process.
struct SimClock {
    started: Instant,
    latest_ns: AtomicU64,
    skew: Arc<AtomicI64>,
    trace: Trace,
}

impl SimClock {
    fn start(skew: Arc<AtomicI64>, trace: Trace) -> Self {
        Self { started: Instant::now(), latest_ns: AtomicU64::new(0), skew, trace }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Tick {
        // Outside its runtime, as when a crash drops everything, tokio would show real time.
        if tokio::runtime::Handle::try_current().is_ok() {
            let now = self.started.elapsed().as_nanos() as u64;
            self.latest_ns.fetch_max(now, Ordering::Relaxed);
        }
        Duration::from_nanos(self.latest_ns.load(Ordering::Relaxed))
    }

    fn wall(&self) -> UnixMillis {
        EPOCH_MS + self.trace.now().as_millis() as i64 + self.skew.load(Ordering::Relaxed)
    }
}
