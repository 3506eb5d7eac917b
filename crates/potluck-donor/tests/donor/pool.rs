//! One donor, its directories, and clients of it.

use crate::manager::{DONOR, Manager, Plain};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::entropy::{Entropy, SeededEntropy, SystemEntropy};
use potluck_core::ids::{DonorId, SessionId};
use potluck_core::owner_limits::{KeepFree, Limits};
use potluck_core::policy::AckLevel;
use potluck_donor::disk::{Disk, SystemDisk};
use potluck_donor::{Claiming, Donor, DonorConfig, DonorControls, DonorError, Lender, Owner};
use potluck_wire::bulk::{BulkIo, BulkStatus, FrameError, ReadBody, Reply, Request, SlicedBody};
use potluck_wire::call::Caller;
use potluck_wire::control::Source;
use potluck_wire::env::Env;
use potluck_wire::net::{BoxFuture, BoxStream, Listener, Net, SharedNet, SystemNet};
use potluck_wire::ticket::{Caveat, Ops, Receipt, Secret, Ticket};
use potluck_wire::upgrade::{OpenedBulk, UpgradeError, open};
use potluck_wire::whereabouts::Guide;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const SESSION: SessionId = SessionId([9; 16]);
pub const GIB: u64 = 1 << 30;

/// A directory for a donor's store and state.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: TempDir::new().expect("a directory") }
    }

    pub fn lent(&self) -> PathBuf {
        self.dir.path().join("lent")
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn config(&self, max: u64) -> DonorConfig {
        self.config_with(Limits { max, keep_free: KeepFree::Bytes(0) })
    }

    pub fn config_with(&self, limits: Limits) -> DonorConfig {
        let config = DonorConfig::new(self.lent(), self.state(), limits);
        DonorConfig { listen: "127.0.0.1:0".into(), ..config }
    }

    pub fn chunk(&self, name: &ChunkName) -> PathBuf {
        let hex = name.to_string();
        self.lent().join("chunks").join(&hex[..2]).join(hex)
    }

    /// Returns the names and sizes of the files in a directory of the store.
    pub fn files(&self, of: &str) -> BTreeMap<String, u64> {
        let entries = std::fs::read_dir(self.lent().join(of)).expect("a store");
        entries
            .map(|entry| {
                let entry = entry.expect("entry");
                let name = entry.file_name().into_string().expect("our names");
                (name, entry.metadata().expect("metadata").len())
            })
            .collect()
    }
}

/// Returns a donor of the tests' pool, with its claim on a store.
pub fn lender(donor: DonorId, claiming: Claiming) -> Lender {
    let (pool_name, name) = ("lab".into(), format!("donor {donor}"));
    Lender { owner: Owner { pool: Digest([1; 32]), donor, pool_name, name }, claiming }
}

/// Returns the sum of the sizes of all files below `dir`.
pub fn bytes_below(dir: &Path) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => sum += bytes_below(&entry.path()),
            Ok(metadata) => sum += metadata.len(),
            Err(_) => {} // removed just now
        }
    }
    sum
}

/// A donor that runs, and its manager.
pub struct Pool {
    pub place: Place,
    pub manager: Manager,
    pub address: SocketAddr,
    pub key: Secret,
    pub controls: DonorControls,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), DonorError>>,
}

impl Pool {
    /// Starts a donor that lends lots of room.
    pub async fn start() -> Self {
        Self::lending(GIB).await
    }

    pub async fn lending(max: u64) -> Self {
        Self::at(Place::new(), max, Arc::new(SystemDisk)).await
    }

    pub async fn at(place: Place, max: u64, disk: Arc<dyn Disk>) -> Self {
        Self::under(Manager::start().await, place, max, disk).await
    }

    pub async fn under(manager: Manager, place: Place, max: u64, disk: Arc<dyn Disk>) -> Self {
        let config = place.config(max);
        let caller = manager.caller();
        Self::run(manager, caller, place, config, disk).await
    }

    /// Starts a donor that is led to its manager by what the authority with this certificate signs.
    pub async fn led_by(authority: CertificateDer<'static>) -> Self {
        let (manager, place) = (Manager::start().await, Place::new());
        std::fs::create_dir_all(place.state()).expect("a directory");
        let net: SharedNet = Arc::new(SystemNet);
        let guide = Guide::open(Arc::clone(&net), Digest([7; 32]), authority, &place.state());
        let caller = Caller::guided(net, Arc::new(Plain), &manager.caller().manager(), guide);
        let config = place.config(GIB);
        Self::run(manager, caller, place, config, Arc::new(SystemDisk)).await
    }

    pub async fn with(place: Place, limits: Limits, disk: Arc<dyn Disk>) -> Self {
        let config = place.config_with(limits);
        let manager = Manager::start().await;
        let caller = manager.caller();
        Self::run(manager, caller, place, config, disk).await
    }

    async fn run(
        manager: Manager,
        caller: Caller,
        place: Place,
        config: DonorConfig,
        disk: Arc<dyn Disk>,
    ) -> Self {
        let registered = manager.state().registers.len();
        let lender = lender(DONOR, Claiming::Own);
        let started = Donor::start(config, lender, Env::system(), disk, caller).await;
        let donor = started.expect("the donor starts");
        let (address, controls) = (donor.address(), donor.controls());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(donor.run(async { drop(stopped.await) }));
        let said =
            manager.until("a registration", |state| state.registers.get(registered).cloned()).await;
        assert_eq!(said.addresses, address.into());
        // The donor learns its number from the answer, a moment after the manager gave it.
        manager.heartbeats(1).await;
        Self { place, manager, address, key: said.key, controls, stop, running }
    }

    /// Stops the donor, and returns its directory and its manager.
    pub async fn stop(self) -> (Place, Manager) {
        drop((self.stop, self.controls));
        self.running.await.expect("no panic").expect("a clean end");
        // Threads of a donor that was stopped in this process end a moment later, and keep the directory until then.
        let lent = self.place.lent();
        while lent.exists() && SystemDisk.lock(&lent).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        (self.place, self.manager)
    }

    /// Returns a ticket for everything but what `caveats` take away.
    pub fn ticket(&self, caveats: &[Caveat]) -> Ticket {
        let mut all = vec![
            Caveat::Donor(DONOR),
            Caveat::Ops(Ops::GET.and(Ops::PUT)),
            Caveat::Session(SESSION),
        ];
        all.extend_from_slice(caveats);
        Ticket::issue(&self.key, &SystemEntropy, &all)
    }

    /// Returns this donor as the manager names it to another one.
    pub fn source(&self) -> Source {
        let ticket = self.ticket(&[Caveat::Ops(Ops::GET)]);
        Source { donor: DONOR, addresses: self.address.into(), ticket }
    }

    pub async fn open(&self, ticket: &Ticket) -> Result<Client, UpgradeError> {
        let opened = open(&SystemNet, &SystemEntropy, &self.address.into(), ticket).await?;
        Ok(Client { opened, tag: 0 })
    }

    /// Connects a client that may do everything.
    pub async fn client(&self) -> Client {
        self.open(&self.ticket(&[])).await.expect("the donor answers")
    }

    /// Connects a client that may do everything, from an address of its own.
    pub async fn client_from(&self, ip: IpAddr) -> Client {
        let (ticket, address) = (self.ticket(&[]), self.address.into());
        let opened = open(&From(ip), &SystemEntropy, &address, &ticket).await;
        Client { opened: opened.expect("the donor answers"), tag: 0 }
    }

    /// Checks that the donor still serves, however it was treated.
    pub async fn still_serves(&self) {
        let bytes = content(u64::MAX, 10_000);
        let mut client = self.client().await;
        assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
        assert_eq!(client.get(&ChunkName::of(&bytes)).await, Some(bytes));
    }
}

/// Opens connections from one of the machine's addresses.
struct From(IpAddr);

impl Net for From {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(self.0, 0))?;
            let address = address.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
            Ok(Box::new(socket.connect(address).await?) as BoxStream)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        SystemNet.listen(address)
    }

    fn own_hosts(&self) -> BoxFuture<'_, Vec<String>> {
        SystemNet.own_hosts()
    }
}

/// A client's bulk connection to the donor.
pub struct Client {
    pub opened: OpenedBulk,
    tag: u32,
}

impl Client {
    pub async fn send(&mut self, request: Request, body: &[u8]) -> Result<(), FrameError> {
        self.tag += 1;
        let head = request.encode(self.tag, &mut self.opened.lane);
        Ok(self.opened.io.write(&head, body).await?)
    }

    /// Waits for the next answer; `None` if the donor hung up.
    pub async fn reply(&mut self) -> Result<Option<Reply>, FrameError> {
        Ok(self.opened.inbox.reply(&mut self.opened.io).await?.map(|(_, reply)| reply))
    }

    /// Receives a body of `len` bytes, or as much of it as comes before it is stopped.
    pub async fn body(&mut self, len: u32) -> Result<Vec<u8>, FrameError> {
        let (mut receiving, mut body) = (SlicedBody::new(len), vec![0; len as usize]);
        let mut at = 0;
        while at < body.len() {
            let OpenedBulk { io, inbox, .. } = &mut self.opened;
            match receiving.read(inbox, io, &mut body[at..]).await? {
                ReadBody::Bytes(read) => at += read,
                ReadBody::Stopped => body.truncate(at),
            }
        }
        Ok(body)
    }

    /// Stops the gets that were sent so many requests before the last one, all at once.
    pub async fn stop(&mut self, back: &[u32]) {
        let lane = &mut self.opened.lane;
        let head = |back: &u32| Request::Stop.encode(self.tag - back, lane);
        let heads: Vec<u8> = back.iter().flat_map(head).collect();
        self.opened.io.write(&heads, &[]).await.expect("a connection");
    }

    pub async fn put_as(
        &mut self,
        name: ChunkName,
        bytes: &[u8],
        ack: AckLevel,
    ) -> Result<Option<Reply>, FrameError> {
        self.send(Request::put(name, ack, bytes.len() as u32), bytes).await?;
        self.reply().await
    }

    /// Puts a chunk under its own name.
    pub async fn put(&mut self, bytes: &[u8], ack: AckLevel) -> BulkStatus {
        self.put_reply(bytes, ack).await.status
    }

    pub async fn put_reply(&mut self, bytes: &[u8], ack: AckLevel) -> Reply {
        let reply = self.put_as(ChunkName::of(bytes), bytes, ack).await;
        reply.expect("a connection").expect("an answer")
    }

    /// Asks for something without a body, and returns the answer.
    pub async fn ask(&mut self, request: Request) -> Reply {
        self.send(request, &[]).await.expect("a connection");
        self.reply().await.expect("a connection").expect("an answer")
    }

    /// Gets a chunk; `None` if it is not there.
    pub async fn get(&mut self, name: &ChunkName) -> Option<Vec<u8>> {
        let reply = self.ask(Request::Get { name: *name, part: None }).await;
        match reply.status {
            BulkStatus::Ok => Some(self.body(reply.body).await.expect("the body")),
            BulkStatus::NotFound => None,
            other => panic!("a get was answered {other:?}"),
        }
    }
}

/// Returns the receipt that is due for these bytes.
pub fn receipt(pool: &Pool, bytes: &[u8], ack: AckLevel) -> Option<(AckLevel, Receipt)> {
    let (name, len) = (ChunkName::of(bytes), bytes.len() as u32);
    let incarnation = pool.manager.state().registers.last().expect("registered").incarnation;
    Some((ack, Receipt::issue(&pool.key, incarnation, &SESSION, &name, len, ack)))
}

/// Returns `len` bytes that no other number has.
pub fn content(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SeededEntropy::new(number).fill(&mut bytes);
    bytes
}
