//! Simulated donors: each is a task that registers, lists what it holds, sends a heartbeat each second and reports
//! what it is ordered to do as done at once, over a connection of its own.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use potluck_core::chunk::ChunkName;
use potluck_core::entropy::SystemEntropy;
use potluck_core::ids::DonorId;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Arrived, Heartbeat, HeartbeatReply, Holding, INVENTORY_PAGE, Inventory, Invite, Join,
    TaskFault, TaskOutcome, TaskResult, Work,
};
use potluck_wire::error::{ErrorKind, Failure};
use potluck_wire::identity::{About, Identity, fingerprint, new_key_and_request};
use potluck_wire::net::SystemNet;
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::Secret;
use potluck_wire::tls::TlsDial;
use potluck_wire::token::Role;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::fill::{INCARNATION, register};
use super::layout::{LEN, Layout};

/// The bytes that each donor can take.
pub const ROOM: u64 = 1 << 40;
/// The time from one heartbeat to the next, which is shorter when results of tasks wait.
const INTERVAL: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(200);
/// The time after which a call that failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// The first pause after the manager had no time for a list, which doubles twice.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// The number of donors that join side by side.
const JOINING: usize = 16;

/// The sums of what all donors have done so far.
#[derive(Default)]
pub struct Done {
    /// The number of donors whose lists were taken to their end.
    pub listed: AtomicU64,
    pub heartbeats: AtomicU64,
    pub failed_calls: AtomicU64,
    /// The number of times that the manager had no time for a list.
    pub put_off: AtomicU64,
    /// The sum of the times that heartbeats took, in microseconds.
    pub heartbeat_us: AtomicU64,
    /// The number of chunks that were stored by order.
    pub stored: AtomicU64,
}

/// Makes new members that may lend, and returns them in the order of their numbers.
pub async fn join(admin: &Identity, donors: usize) -> Result<Vec<Identity>> {
    let inviting = caller(admin)?;
    let mut joining = JoinSet::new();
    let mut joined = Vec::with_capacity(donors);
    for number in 0..donors {
        if joining.len() >= JOINING {
            joined.push(joining.join_next().await.context("one of them")???);
        }
        joining.spawn(join_one(inviting.clone(), admin.clone(), number));
    }
    while let Some(ended) = joining.join_next().await {
        joined.push(ended??);
    }
    joined.sort_by_key(|identity| identity.about.member);
    Ok(joined)
}

async fn join_one(inviting: Caller, admin: Identity, number: usize) -> Result<Identity> {
    let said = |why: Failure| anyhow!("{why}");
    let invite = Invite { role: Role::Donor, ttl_seconds: 3600, name: None };
    let secret = inviting.call(&invite).await.map_err(said)?.secret;
    let (key, request) = new_key_and_request()?;
    let dial = Arc::new(TlsDial::joining(fingerprint(&admin.ca)));
    let manager = admin.about.manager;
    let joining = Caller::new(Arc::new(SystemNet), dial, manager.clone());
    let name = format!("simulated-{number}");
    let join = Join { secret, request: Blob(request), name: name.clone(), ca: None };
    let joined = joining.call(&join).await.map_err(said)?;
    let (pool, pool_id) = (joined.pool, joined.pool_id);
    let (member, role) = (joined.member, joined.role);
    let about = About { pool, pool_id, manager, member, role, name };
    Ok(Identity::new(about, joined.ca.0, joined.certificate.0, key))
}

/// Makes a caller of the manager of an identity, with a connection of its own.
pub fn caller(identity: &Identity) -> Result<Caller> {
    let dial = TlsDial::member(identity).map_err(|why| anyhow!("{why}"))?;
    Ok(Caller::new(Arc::new(SystemNet), Arc::new(dial), identity.about.manager.clone()))
}

/// Returns the number of a donor that joined.
pub fn id(identity: &Identity) -> DonorId {
    DonorId(identity.about.member.0)
}

/// Opens one port for all donors, which answers every request that the donor is only starting, and returns its
/// number.
pub fn port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client that goes away meanwhile is not told.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 503 Starting\r\ncontent-length: 0\r\n\r\n");
        }
    });
    Ok(port)
}

/// A simulated donor.
pub struct Donor {
    pub layout: Arc<Layout>,
    pub place: usize,
    pub caller: Caller,
    pub key: Secret,
    pub port: u16,
    pub done: Arc<Done>,
    /// The task that sends its list to the manager, while heartbeats go on.
    listing: JoinSet<()>,
    added: Vec<Arrived>,
    removed: Vec<ChunkName>,
    sound: Vec<ChunkName>,
    results: Vec<TaskResult>,
    write_sequence: u64,
    /// The number of the changes in its next heartbeat.
    batch: u64,
}

impl Donor {
    pub fn new(
        layout: &Arc<Layout>,
        place: usize,
        identity: &Identity,
        port: u16,
        done: &Arc<Done>,
    ) -> Result<Self> {
        Ok(Self {
            layout: Arc::clone(layout),
            place,
            caller: caller(identity)?,
            key: Secret::generate(&SystemEntropy),
            port,
            done: Arc::clone(done),
            listing: JoinSet::new(),
            added: Vec::new(),
            removed: Vec::new(),
            sound: Vec::new(),
            results: Vec::new(),
            write_sequence: 0,
            batch: 1,
        })
    }

    /// Does what a donor does until this is dropped, whether the manager is there or not.
    pub async fn run(mut self) {
        loop {
            if let Err(why) = self.be_there().await {
                self.done.failed_calls.fetch_add(1, Ordering::Relaxed);
                if why.kind != ErrorKind::Retry {
                    eprintln!("donor {}: {why}", self.place);
                }
                sleep(PAUSE).await;
            }
        }
    }

    /// Registers, and sends heartbeats until it has to register again or a call fails.
    async fn be_there(&mut self) -> Result<(), Failure> {
        self.caller.call(&register(self.key.clone(), Some(self.port))).await?;
        self.list();
        // Donors do not all begin in the same moment.
        let mut next =
            Instant::now() + INTERVAL * self.place as u32 / self.layout.donors.len() as u32;
        loop {
            sleep(next.saturating_duration_since(Instant::now())).await;
            let began = Instant::now();
            let reply = self.caller.call(&self.heartbeat()).await?;
            self.done.heartbeats.fetch_add(1, Ordering::Relaxed);
            let took = began.elapsed().as_micros() as u64;
            self.done.heartbeat_us.fetch_add(took, Ordering::Relaxed);
            self.batch += 1;
            (self.added, self.removed) = Default::default();
            (self.sound, self.results) = Default::default();
            if reply.register {
                return Ok(());
            }
            self.obey(reply);
            let soon = !self.results.is_empty();
            next = began + if soon { SHORTEST } else { INTERVAL };
        }
    }

    /// Begins to send its list, unless one is on the way.
    fn list(&mut self) {
        while self.listing.try_join_next().is_some() {}
        if self.listing.is_empty() {
            let (layout, place) = (Arc::clone(&self.layout), self.place);
            self.listing.spawn(list(layout, place, self.caller.clone(), Arc::clone(&self.done)));
        }
    }

    fn heartbeat(&self) -> Heartbeat {
        Heartbeat {
            incarnation: INCARNATION,
            write_sequence: self.write_sequence,
            load: Default::default(),
            traffic: Default::default(),
            disk: Default::default(),
            room: ROOM,
            lends: Some(ROOM),
            batch: self.batch,
            added: Packed(self.added.clone()),
            removed: Packed(self.removed.clone()),
            spoiled: Packed::default(),
            unreadable: Packed::default(),
            quarantined: Packed::default(),
            sound: Packed(self.sound.clone()),
            results: self.results.clone(),
            excess: 0,
            disk_lacks: 0,
            does: Default::default(),
            scrub: Default::default(),
            disk_fault: None,
            settings_fault: None,
            follows: None,
            sessions: Packed::default(),
        }
    }

    fn obey(&mut self, reply: HeartbeatReply) {
        for task in reply.tasks {
            let outcome = match task.work {
                Work::Copy { chunk, len, .. } | Work::Rebuild { chunk, len, .. } => {
                    self.write_sequence += 1;
                    self.added.push(Holding { name: chunk, len }.into());
                    self.done.stored.fetch_add(1, Ordering::Relaxed);
                    TaskOutcome::Done
                }
                Work::Scrub { .. } | Work::Describe => TaskOutcome::Done,
                // A donor of this bench has no bytes of which it could make anything.
                Work::Encode { .. } => TaskOutcome::Failed { why: TaskFault::Unknown, donor: None },
            };
            self.results.push(TaskResult { task: task.number, outcome });
        }
        let deleted = reply.chunk_orders.delete.iter().map(|tombstone| tombstone.chunk);
        self.removed.extend(deleted);
        self.sound.extend(reply.chunk_orders.verify.0);
        if reply.list {
            self.list();
        }
    }
}

/// Sends a donor's list page by page, until the manager has all of it.
async fn list(layout: Arc<Layout>, place: usize, caller: Caller, done: Arc<Done>) {
    let holding = |chunk| Holding { name: layout.name(chunk), len: LEN };
    let mut page = 0;
    let mut held: Vec<Holding> = Vec::new();
    let mut put_off = 0;
    loop {
        // Page 0 is empty: it asks whether the manager has time.
        let from = held.len().min(INVENTORY_PAGE * (page as usize).saturating_sub(1));
        let to = held.len().min(INVENTORY_PAGE * page as usize);
        let last = page > 0 && to - from < INVENTORY_PAGE;
        let holdings = Packed(held[from..to].to_vec());
        let inventory = Inventory { incarnation: INCARNATION, page, holdings, last };
        match caller.call(&inventory).await {
            Ok(_) if last => break,
            Ok(_) => {
                if page == 0 {
                    held = layout.held_by(place).map(holding).collect();
                    // A donor lists its chunks in the order of their names.
                    held.sort_unstable_by_key(|holding| holding.name);
                }
                (page, put_off) = (page + 1, 0);
            }
            Err(why) if page == 0 && why.kind == ErrorKind::Retry => {
                done.put_off.fetch_add(1, Ordering::Relaxed);
                // The pause differs, so that not all of them ask again in the same moment.
                let share = 0.5 + 0.5 * (place as f64 / layout.donors.len() as f64);
                sleep(LIST_PAUSE.mul_f64(share * f64::from(1 << put_off))).await;
                put_off = (put_off + 1).min(2);
            }
            Err(why) => {
                done.failed_calls.fetch_add(1, Ordering::Relaxed);
                if why.kind == ErrorKind::Conflict {
                    page = 0;
                }
                sleep(PAUSE).await;
            }
        }
    }
    done.listed.fetch_add(1, Ordering::Relaxed);
}
