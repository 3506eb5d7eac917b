//! A manager in this process, members who call it, and donors that store nothing but answer as
//! donors do.

use potluck_core::attributes::{FileTime, Permissions};
use potluck_core::chunk::{ChunkName, DEFAULT_CHUNK, Digest};
use potluck_core::ids::{DonorId, Epoch, Incarnation, SessionId};
use potluck_core::load::Load;
use potluck_core::owner_limits::DiskState;
use potluck_core::policy::{AckLevel, Policy};
use potluck_core::recipe::{self, Content, Entry};
use potluck_core::rights::Right;
use potluck_core::traffic::BothWays;
use potluck_manager::{Manager, ManagerConfig, StateError, init};
use potluck_recovery::ca::Ca;
use potluck_wire::addresses::Addresses;
use potluck_wire::call::Caller;
use potluck_wire::control::{
    Call, Commit, Committed, Condition, FileCommit, Heartbeat, HeartbeatReply, Holding, Inventory,
    Invite, Join, Offer, Offered, Outcome, Register, Registered, Reserve, Reserved, SpaceCreate,
    SpaceGrant, SpaceRevoke,
};
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use potluck_wire::identity::{About, Identity, new_key_and_request};
use potluck_wire::packed::{Blob, Packed};
use potluck_wire::ticket::{Acknowledged, Receipt, Secret};
use potluck_wire::tls::{TlsDial, install_provider};
use potluck_wire::token::{JoinToken, Role};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The number of the next batch of changes, of any donor: each heartbeat brings another one, unless it is sent
/// again.
static BATCH: AtomicU64 = AtomicU64::new(1);

pub struct Lab {
    _dir: TempDir,
    pub config: ManagerConfig,
    pub env: Env,
    pub address: SocketAddr,
    running: Option<Running>,
}

struct Running {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), StateError>>,
}

impl Lab {
    /// Makes a new pool with quick leases and little grace, so that tests need not wait long.
    pub async fn new() -> Self {
        Self::with(|_| ()).await
    }

    pub async fn with(change: impl FnOnce(&mut ManagerConfig)) -> Self {
        Self::within(Env::system(), change).await
    }

    /// Makes a new pool with quick leases and little grace, in the outside world `env`.
    pub async fn within(env: Env, change: impl FnOnce(&mut ManagerConfig)) -> Self {
        install_provider();
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = ManagerConfig {
            listen: "127.0.0.1:0".into(),
            state: dir.path().join("state"),
            pool_name: Some("test pool".into()),
            gc_delay: Duration::from_millis(300),
            // A chunk that nobody commits is reclaimed at once.
            resume_window: Duration::ZERO,
            // Donors send no heartbeats between the calls of a test, however long these take.
            suspect_after: NEVER_SUSPECT,
            // Donors here store nothing, and have no line.
            diagnose_donors: false,
            metadata_copies: 0,
            ..ManagerConfig::default()
        };
        change(&mut config);
        init(&config, &env).expect("a pool").keep();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut lab = Self { _dir: dir, config, env, address, running: None };
        lab.start().await;
        let policy = Policy { sealed: false, ..Policy::default() };
        let space = SpaceCreate { name: "lab".into(), policy };
        lab.admin().call(&space).await.expect("a space");
        lab.grant("lab", "everyone", &Right::ALL).await;
        lab
    }

    pub async fn start(&mut self) {
        let manager =
            Manager::start(self.config.clone(), self.env.clone(), None).await.expect("started");
        self.address = manager.address();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(manager.run(async {
            let _ = stopped.await;
        }));
        self.running = Some(Running { stop, ended });
    }

    pub async fn stop(&mut self) {
        let running = self.running.take().expect("running");
        running.stop.send(()).expect("still running");
        running.ended.await.expect("no panic").expect("stopped well");
        // A query that nobody waits for any more ends in a thread, which closes the catalog only then.
        let open = || {
            let files = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
            let mut files = files.filter_map(|file| fs::read_link(file.path()).ok());
            files.any(|path| path.starts_with(&self.config.state))
        };
        eventually("all its files to be closed", async || (!open()).then_some(())).await;
    }

    /// Returns what another manager of this pool, in a term of its own, says of itself.
    pub fn another_manager(&self, epoch: Epoch, start: u64) -> HeartbeatReply {
        let ca = Ca::load(&self.config.state.join("ca")).expect("the pool's authority");
        let proof = Some(ca.terms().prove(epoch, start, 9));
        HeartbeatReply { epoch, start, changes: 9, proof, ..HeartbeatReply::default() }
    }

    pub fn admin_identity(&self) -> Identity {
        Identity::load(&self.config.state.join("admin")).expect("the admin's identity")
    }

    pub fn caller(&self, identity: &Identity) -> Caller {
        let dial = TlsDial::member(identity).expect("a member");
        Caller::new(Arc::clone(&self.env.net), Arc::new(dial), self.address.into())
    }

    pub fn admin(&self) -> Caller {
        self.caller(&self.admin_identity())
    }

    pub async fn token(&self, role: Role) -> JoinToken {
        let invited = self.admin().call(&Invite { role, ttl_seconds: 3600, name: None }).await;
        let secret = invited.expect("invited").secret;
        self.admin_identity().token(self.address.into(), role, secret)
    }

    /// Joins as any new member does: with a token and without a certificate.
    pub async fn join_with(&self, token: &JoinToken, name: &str) -> Result<Identity, Failure> {
        let (key, request) = new_key_and_request().expect("a key");
        let dial = Arc::new(TlsDial::joining(token.ca));
        let caller = Caller::new(Arc::clone(&self.env.net), dial, token.manager.clone());
        let (secret, ca) = (token.secret, Some(token.ca));
        let join = Join { secret, request: Blob(request), name: name.into(), ca };
        let joined = caller.call(&join).await?;
        let about = About {
            pool: joined.pool,
            pool_id: joined.pool_id,
            manager: token.manager.clone(),
            member: joined.member,
            role: joined.role,
            name: joined.name,
        };
        Ok(Identity::new(about, joined.ca.0, joined.certificate.0, key))
    }

    pub async fn join(&self, role: Role, name: &str) -> Identity {
        let token = self.token(role).await;
        self.join_with(&token, name).await.expect("joined")
    }

    pub async fn user(&self) -> Caller {
        self.caller(&self.join(Role::User, "ada").await)
    }

    /// Grants rights in a space, as an admin.
    pub async fn grant(&self, space: &str, who: &str, rights: &[Right]) {
        let (space, who) = (space.into(), who.into());
        let grant = SpaceGrant { space, who, rights: rights.iter().copied().collect() };
        self.admin().call(&grant).await.expect("granted");
    }

    /// Takes rights in a space away, as an admin.
    pub async fn take(&self, space: &str, who: &str, rights: &[Right]) {
        let (space, who) = (space.into(), who.into());
        let revoke = SpaceRevoke { space, who, rights: rights.iter().copied().collect() };
        self.admin().call(&revoke).await.expect("taken");
    }

    /// Makes a donor that has joined and registered, and listed that it holds nothing.
    pub async fn donor(&self, name: &str) -> Donor {
        let identity = self.join(Role::Donor, name).await;
        let mut donor = Donor {
            id: DonorId(identity.about.member.0),
            caller: self.caller(&identity),
            identity,
            key: Secret::generate(&*self.env.entropy),
            incarnation: Incarnation(1),
            heard: Default::default(),
            heard_changes: 0,
            heard_proof: None,
            label: None,
            port: donor_port(),
            registered_before: false,
        };
        donor.report(&[]).await;
        donor.registered_before = true;
        donor
    }
}

/// A time that is longer than any test takes.
const NEVER_SUSPECT: Duration = Duration::from_secs(600);

/// Waits until `done` returns something, for half a minute at least.
pub async fn eventually<T>(what: &str, mut done: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = done().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("did not happen within 30 s: {what}");
}

pub struct Donor {
    pub id: DonorId,
    pub identity: Identity,
    pub caller: Caller,
    pub key: Secret,
    pub incarnation: Incarnation,
    /// The highest epoch that it heard, and the start of the manager that told it.
    pub heard: (Epoch, u64),
    /// The most changes that this start told of.
    pub heard_changes: u64,
    /// The manager's proof of both.
    pub heard_proof: Option<Digest>,
    /// The label of its failure domain: donors with one label fail together.
    pub label: Option<String>,
    /// The port at which the donor is reached.
    pub port: u16,
    /// True if the donor says that its incarnation registered before.
    pub registered_before: bool,
}

pub const LEN: u32 = 1000;

/// Returns the port at which all donors of these tests are reached. Every request there is answered that the donor
/// is only starting.
pub fn donor_port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                // A client that goes away meanwhile is not told.
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream
                    .write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
            }
        });
        port
    })
}

impl Donor {
    /// Remembers what a manager said of itself.
    pub fn hear(&mut self, said: &HeartbeatReply) {
        self.heard = (said.epoch, said.start);
        (self.heard_changes, self.heard_proof) = (said.changes, said.proof);
    }

    pub async fn register(&self) -> Registered {
        let register = Register {
            incarnation: self.incarnation,
            key: self.key.clone(),
            addresses: Addresses::default(),
            port: Some(self.port),
            version: "0.1.0".into(),
            disk: DiskState::default(),
            room: 10 << 30,
            label: self.label.clone(),
            grace_ms: None,
            heard: self.heard,
            heard_changes: self.heard_changes,
            heard_proof: self.heard_proof,
            disk_fault: None,
            new_store: false,
            registered_before: self.registered_before,
            does: Default::default(),
        };
        let registered = self.caller.call(&register).await.expect("registered");
        assert_eq!(registered.donor, self.id);
        registered
    }

    pub async fn inventory(&self, names: &[ChunkName]) {
        let holdings = names.iter().map(|name| Holding { name: *name, len: LEN }).collect();
        let inventory = Inventory {
            incarnation: self.incarnation,
            page: 0,
            holdings: Packed(holdings),
            last: true,
        };
        self.caller.call(&inventory).await.expect("listed");
    }

    /// Registers, lists `names` as all that the donor holds, and sends a heartbeat.
    pub async fn report(&self, names: &[ChunkName]) {
        self.register().await;
        self.inventory(names).await;
        self.send_heartbeat(self.heartbeat(0)).await;
    }

    pub fn heartbeat(&self, write_sequence: u64) -> Heartbeat {
        Heartbeat {
            incarnation: self.incarnation,
            write_sequence,
            load: Load::default(),
            traffic: BothWays::default(),
            disk: DiskState::default(),
            room: 10 << 30,
            lends: None,
            batch: BATCH.fetch_add(1, Ordering::Relaxed),
            added: Packed::default(),
            removed: Packed::default(),
            spoiled: Packed::default(),
            unreadable: Packed::default(),
            quarantined: Packed::default(),
            sound: Packed::default(),
            results: Vec::new(),
            excess: 0,
            disk_lacks: 0,
            scrub: Default::default(),
            disk_fault: None,
            settings_fault: None,
            follows: None,
            sessions: Packed::default(),
            does: Default::default(),
        }
    }

    pub async fn send_heartbeat(&self, heartbeat: Heartbeat) -> HeartbeatReply {
        self.caller.call(&heartbeat).await.expect("answered")
    }

    /// Sends a heartbeat, and returns the chunks that the manager wants deleted, each with the write sequence up to
    /// which it may be.
    pub async fn tombstones(&self, write_sequence: u64) -> Vec<(ChunkName, u64)> {
        let orders = self.send_heartbeat(self.heartbeat(write_sequence)).await.chunk_orders;
        orders.delete.iter().map(|tombstone| (tombstone.chunk, tombstone.write_sequence)).collect()
    }

    pub async fn removed(&self, write_sequence: u64, names: &[ChunkName]) {
        let mut heartbeat = self.heartbeat(write_sequence);
        heartbeat.removed = Packed(names.to_vec());
        self.send_heartbeat(heartbeat).await;
    }

    /// Returns what this donor would answer to a put of chunk `index` of a file.
    pub fn receipt(&self, session: &SessionId, index: usize, name: &ChunkName) -> Acknowledged {
        let ack = AckLevel::Memory;
        let receipt = self.receipt_for(session, (name, LEN), ack);
        Acknowledged { chunk: index as u32, donor: self.id, ack, receipt }
    }

    /// Returns the receipt that this incarnation of the donor gives for so many bytes of a chunk.
    pub fn receipt_for(
        &self,
        session: &SessionId,
        (name, len): (&ChunkName, u32),
        ack: AckLevel,
    ) -> Receipt {
        Receipt::issue(&self.key, self.incarnation, session, name, len, ack)
    }
}

/// Returns the name of chunk number `n` of a test.
pub fn chunk(n: u64) -> ChunkName {
    ChunkName::of(&bytes(n))
}

/// Returns the [`LEN`] bytes of chunk number `n` of a test.
pub fn bytes(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(LEN as usize / 8)
}

pub async fn reserve(caller: &Caller, bytes: u64) -> Result<Reserved, Failure> {
    let path = "pot://lab".parse().expect("a path");
    let request = Reserve {
        path,
        bytes: Some(bytes),
        policy: potluck_core::policy::Override::default(),
        condition: Condition::Always,
        interrupted: Default::default(),
        link: None,
    };
    caller.call(&request).await
}

pub async fn offer(caller: &Caller, session: SessionId, chunks: &[u64]) -> Offered {
    let names = chunks.iter().copied().map(chunk).collect();
    caller
        .call(&Offer { session, chunks: Packed(names), ack: AckLevel::Memory, so_far: None })
        .await
        .expect("offered")
}

/// Returns a file of these chunks in a plain space, acknowledged by `donors`.
pub fn file(session: &SessionId, at: &str, chunks: &[u64], donors: &[&Donor]) -> FileCommit {
    let entry = |n: &u64| {
        let name = chunk(*n);
        Entry { name, digest: Digest(name.0), len: LEN, sealed: false }
    };
    let entries: Vec<_> = chunks.iter().map(entry).collect();
    let made_up =
        || Digest::of(&entries.iter().flat_map(|entry| entry.digest.0).collect::<Vec<_>>());
    let digest = Content::from(&entries[..]).digest().unwrap_or_else(made_up);
    let receipts = entries.iter().enumerate().flat_map(|(index, entry)| {
        donors.iter().map(move |donor| donor.receipt(session, index, &entry.name))
    });
    FileCommit {
        metadata: None,
        path: at.parse().expect("a path"),
        size: u64::from(LEN) * chunks.len() as u64,
        digest,
        mtime: FileTime::of_ms(7),
        permissions: Permissions::FILE,
        owner: None,
        changed: FileTime::default(),
        accessed: None,
        origin: None,
        chunk_size: DEFAULT_CHUNK,
        copies: 1,
        inline: None,
        pages: recipe::pack(&digest, &entries[..].into()).into_iter().map(Blob).collect(),
        ec: None,
        parity: Packed::default(),
        acknowledged: Packed(receipts.collect()),
        condition: Condition::Always,
        in_parts: None,
    }
}

pub async fn commit(
    caller: &Caller,
    session: SessionId,
    batch: u32,
    files: Vec<FileCommit>,
    done: bool,
) -> Result<Committed, Failure> {
    caller.call(&Commit { session, batch, files, done, soon: false, traffic: Vec::new() }).await
}

/// Writes one file of one chunk whole, in a session of its own.
pub async fn write(caller: &Caller, at: &str, n: u64, donor: &Donor) -> Outcome {
    let session = reserve(caller, 1 << 20).await.expect("reserved").session;
    offer(caller, session, &[n]).await;
    let file = file(&session, at, &[n], &[donor]);
    let committed = commit(caller, session, 0, vec![file], true).await.expect("committed");
    committed.files.into_iter().next().expect("one outcome")
}

pub async fn refused<C: Call>(caller: &Caller, request: &C) -> Failure {
    match caller.call(request).await {
        Ok(_) => panic!("{} was not refused", C::NAME),
        Err(failure) => failure,
    }
}
