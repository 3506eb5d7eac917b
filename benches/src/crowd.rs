//! Measures crowds of strangers, members and clients: who is served, and how much later than alone.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use potluck_core::chunk::ChunkName;
use potluck_core::entropy::SystemEntropy;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Override};
use potluck_wire::bulk::{BulkIo, BulkStatus, Request};
use potluck_wire::call::Caller;
use potluck_wire::control::{Condition, DonorAccess, Reserve, Stat};
use potluck_wire::identity::{Identity, fingerprint};
use potluck_wire::net::{BoxStream, Net, SystemNet};
use potluck_wire::open_files;
use potluck_wire::tls::{Dial, TlsDial, install_provider};
use potluck_wire::upgrade::{self, OpenedBulk};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::measure;
use crate::outcome::{Figure, Limit};
use crate::plan::Plan;
use crate::pool::{Pool, Start};

/// The number of connections without a certificate, each of which asks for something and stays open.
const STRANGERS: usize = 5000;
/// The number of members that are connected to the manager at once.
const MEMBERS: usize = 2000;
/// The number of clients that are connected to one donor at once.
const CLIENTS: usize = 500;
/// The number of calls of one member, made one after another, each over a connection of its own.
const CALLS: usize = 300;
/// The size of the chunk that the first client puts, in bytes. Each further one puts a byte less, so that no two
/// are alike.
const CHUNK: u32 = 64 << 10;
/// The most times as long as alone that a member's calls may take beside a crowd.
const SLOWER: f64 = 2.0;
const SPACE: &str = "pot://crowd";

pub fn run(plan: &Plan, dir: &Path) -> Result<Vec<Figure>> {
    install_provider();
    let pool = Pool::start(Start {
        binary: &plan.potluck,
        dir: &dir.join("crowd"),
        donors: 1,
        lent: "20GiB",
        options: &[],
        network: None,
    })?;
    measure::run(pool.client().args(["space", "create", "crowd", "--plain", "--copies", "1"]))?;
    let needed = 2 * (STRANGERS + MEMBERS) as u64;
    let files = open_files::raise();
    ensure!(files >= needed, "the bench needs {needed} open files, and may have {files}");
    let identity = Identity::load(&pool.identity()).map_err(|why| anyhow!("{why}"))?;
    let member = Member { identity: Arc::new(identity) };
    Runtime::new().context("a runtime")?.block_on(measure_all(&member))
}

async fn measure_all(member: &Member) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut figure = |work: String, value: f64, unit, limit| {
        eprintln!("{work}: {value:.2} {unit}");
        figures.push(Figure { work, value, unit, limit });
    };
    let alone = member.calls().await;
    figure("a member's call on a new connection, p99, alone".into(), alone.p99, "ms", Limit::None);
    let slower = (10.0 * SLOWER * alone.p99).ceil() / 10.0;
    ensure!(alone.failed == 0, "calls failed without any crowd");

    let arriving = tokio::spawn(strangers(member.clone()));
    let during = member.calls().await;
    let (crowd, served) = arriving.await.context("the strangers")?;
    let after = member.calls().await;
    let work = |what: &str| format!("{what}, {STRANGERS} strangers at once");
    let failed = (during.failed + after.failed) as f64;
    figure(work("strangers that were answered"), served as f64, "", Limit::None);
    figure(work("calls of a member that failed"), failed, "", Limit::AtMost(0.0));
    figure(work("its p99 while they arrive"), during.p99, "ms", Limit::None);
    figure(work("its p99 while they stay"), after.p99, "ms", Limit::AtMost(slower));
    drop(crowd);

    let (crowd, failed) = members(member).await;
    let work = |what: &str| format!("{what}, {MEMBERS} members at once");
    figure(work("calls that failed"), failed as f64, "", Limit::AtMost(0.0));
    let with = member.calls().await;
    figure(work("another call, p99"), with.p99, "ms", Limit::AtMost(slower));
    drop(crowd);

    let begun = Instant::now();
    let failed = clients(member).await?;
    let work = |what: &str| format!("{what}, {CLIENTS} clients of one donor at once");
    figure(work("puts and gets that failed"), failed as f64, "", Limit::AtMost(0.0));
    figure(work("time for all"), begun.elapsed().as_secs_f64(), "s", Limit::None);
    Ok(figures)
}

/// A member that calls the manager.
#[derive(Clone)]
struct Member {
    identity: Arc<Identity>,
}

/// The outcome of many calls.
struct Calls {
    failed: usize,
    /// The time within which 99 of 100 calls were answered, in milliseconds.
    p99: f64,
}

impl Member {
    fn caller(&self) -> Result<Caller> {
        let dial = TlsDial::member(&self.identity).map_err(|why| anyhow!("{why}"))?;
        let manager = self.identity.about.manager.clone();
        Ok(Caller::new(Arc::new(SystemNet), Arc::new(dial), manager))
    }

    /// Makes one call over a connection of its own, which is open as long as the caller that is returned.
    async fn call(&self) -> Result<Caller> {
        let caller = self.caller()?;
        let path: PoolPath = SPACE.parse().map_err(|why| anyhow!("{why}"))?;
        caller
            .call(&Stat { path, chunks: false, unjudged: false, room: false, after: None })
            .await
            .map_err(|why| anyhow!("{why}"))?;
        Ok(caller)
    }

    async fn calls(&self) -> Calls {
        let (mut failed, mut times) = (0, Vec::new());
        for _ in 0..CALLS {
            let begun = Instant::now();
            match self.call().await {
                Ok(_) => times.push(begun.elapsed().as_secs_f64() * 1e3),
                Err(why) => {
                    eprintln!("a call failed: {why}");
                    failed += 1;
                }
            }
        }
        times.sort_by(f64::total_cmp);
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(f64::INFINITY);
        Calls { failed, p99 }
    }
}

/// Lets strangers connect at once. Returns the connections of those that were answered, which are open, and their
/// number.
async fn strangers(member: Member) -> (Vec<BoxStream>, usize) {
    let mut asking = JoinSet::new();
    for _ in 0..STRANGERS {
        let member = member.clone();
        asking.spawn(async move {
            let manager = member.identity.about.manager.first().context("an address")?;
            let stream = SystemNet.connect(manager.as_str()).await?;
            let dial = TlsDial::joining(fingerprint(&member.identity.ca));
            let mut stream = dial.secure(stream).await?;
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await?;
            let answer = stream.read(&mut [0; 1024]).await?;
            ensure!(answer > 0, "hung up on");
            Ok(stream)
        });
    }
    let ended = asking.join_all().await;
    let held: Vec<BoxStream> = ended.into_iter().filter_map(Result::ok).collect();
    let served = held.len();
    (held, served)
}

/// Lets members call at once. Returns their callers, whose connections are open, and how many calls failed.
async fn members(member: &Member) -> (Vec<Caller>, usize) {
    let mut calling = JoinSet::new();
    for _ in 0..MEMBERS {
        let member = member.clone();
        calling.spawn(async move { member.call().await });
    }
    let ended = calling.join_all().await;
    let (mut held, mut failed) = (Vec::new(), 0);
    for ended in ended {
        match ended {
            Ok(caller) => held.push(caller),
            Err(why) => {
                eprintln!("a call failed: {why}");
                failed += 1;
            }
        }
    }
    (held, failed)
}

/// Returns how many clients could not put a chunk and get it back. All of them put before the first of them gets.
async fn clients(member: &Member) -> Result<usize> {
    let caller = member.caller()?;
    let path = format!("{SPACE}/file").parse().map_err(|why| anyhow!("{why}"))?;
    let bytes = Some(CLIENTS as u64 * u64::from(CHUNK));
    let (policy, condition) = (Override::default(), Condition::Always);
    let reserve =
        Reserve { path, bytes, policy, condition, interrupted: Default::default(), link: None };
    let session = caller.call(&reserve).await.map_err(|why| anyhow!("{why}"))?;
    let access = Arc::new(session.donors.into_iter().next().context("a donor")?);
    let all_there = Arc::new(Barrier::new(CLIENTS));
    let mut putting = JoinSet::new();
    for number in 0..CLIENTS {
        putting.spawn(client(Arc::clone(&access), number, Arc::clone(&all_there)));
    }
    let ended = tokio::time::timeout(Duration::from_secs(120), putting.join_all());
    let ended = ended.await.context("the clients were not served in time")?;
    let failed = ended.iter().filter_map(|ended| ended.as_ref().err());
    Ok(failed.inspect(|why| eprintln!("a client failed: {why}")).count())
}

async fn client(access: Arc<DonorAccess>, number: usize, all_there: Arc<Barrier>) -> Result<()> {
    let body = vec![number as u8; CHUNK as usize - number];
    let name = ChunkName::of(&body);
    let put = async {
        let ticket = access.ticket.as_ref().context("a ticket")?;
        let mut opened =
            upgrade::open(&SystemNet, &SystemEntropy, &access.addresses, ticket).await?;
        let put = Request::put(name, AckLevel::Memory, body.len() as u32);
        ask(&mut opened, put, &body).await?;
        anyhow::Ok(opened)
    };
    let opened = put.await;
    // A put that failed waits here as well, or the others would wait for it.
    all_there.wait().await;
    ask(&mut opened?, Request::Get { name, part: None }, &[]).await
}

async fn ask(opened: &mut OpenedBulk, request: Request, body: &[u8]) -> Result<()> {
    let head = request.encode(1, &mut opened.lane);
    opened.io.write(&head, body).await?;
    let reply = opened.inbox.reply(&mut opened.io).await?.context("an answer")?.1;
    ensure!(reply.status == BulkStatus::Ok, "answered {:?}", reply.status);
    Ok(())
}
