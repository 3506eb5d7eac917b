//! A machine: the state that lasts while processes come and go on it.

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

/// The correct wall clock time when the simulation begins, in milliseconds since 1970: 2026-11-01.
const EPOCH_MS: i64 = 1_793_491_200_000;

/// The secrets of the tokens that the admin has made, by the machine that may join with each.
pub type Invitations = Arc<Mutex<BTreeMap<Who, Digest>>>;

/// A machine. Clones are the same machine.
#[derive(Clone)]
pub struct Host {
    /// The part that the machine plays.
    pub who: Who,
    trace: Trace,
    draw: Draw,
    /// The error of its wall clock in milliseconds.
    skew: Arc<AtomicI64>,
    sent: Arc<AtomicU64>,
    member: Arc<Mutex<Option<Digest>>>,
}

impl Host {
    /// Makes a machine whose wall clock is wrong by `skew_ms`.
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

    /// Moves the wall clock by `by_ms` milliseconds.
    pub fn jump(&self, by_ms: i64) {
        self.skew.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Sets the count of sent bytes to 0. What is sent while joining differs between runs, because the lengths of
    /// certificates do.
    pub fn forget_sent(&self) {
        self.sent.store(0, Ordering::Relaxed);
    }

    /// Returns the number of bytes sent since [`Host::forget_sent`].
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Makes the environment of a process that starts now. Call it inside the host's runtime.
    pub fn env(&self) -> Env {
        Env {
            clock: Arc::new(SimClock::start(Arc::clone(&self.skew), self.trace.clone())),
            // The draws go on where those of the last process stopped, so that no two processes draw the
            // same.
            entropy: self.draw.entropy(),
            net: Arc::new(self.net()),
            offload: Offload::Inline,
        }
    }

    fn net(&self) -> SimNet {
        let sent = Arc::clone(&self.sent);
        SimNet { who: self.who, trace: self.trace.clone(), sent }
    }

    /// Returns whether the machine has joined the pool.
    pub fn is_member(&self) -> bool {
        self.identity().is_some()
    }

    fn identity(&self) -> Option<Digest> {
        *self.member.lock().expect("no holder panics")
    }

    /// Makes the machine the member with this certificate from now on.
    pub fn become_member(&self, certificate: &[u8]) {
        let fingerprint = fingerprint(&certificate.to_vec().into());
        *self.member.lock().expect("no holder panics") = Some(fingerprint);
    }

    /// Makes a caller of the manager, as the member that the machine is, or as a stranger before it has joined.
    pub fn caller(&self) -> Caller {
        let dial = SayWho(self.identity());
        let manager = Who::Manager.address().parse().expect("a name and a port");
        Caller::new(Arc::new(self.net()), Arc::new(dial), manager)
    }

    /// Joins the pool once there is an invitation; returns at once if the machine is a member.
    pub async fn join(&self, invitations: &Invitations) {
        while !self.is_member() {
            let invitation = invitations.lock().expect("no holder panics").get(&self.who).copied();
            if let Some(secret) = invitation {
                // The key does not follow from the seed, but neither it nor the certificate reaches
                // the trace.
                let (_key, request) = new_key_and_request().expect("a key");
                let name = self.who.to_string();
                let join = Join { secret, request: Blob(request), name, ca: None };
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

/// The clock of one process, which shows simulated time.
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
        // Outside of its runtime, as when a crash drops the process, tokio would show real time.
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
