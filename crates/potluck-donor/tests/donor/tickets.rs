//! Tests that a ticket allows what it says, and nothing more (promise X2).

use crate::manager::DONOR;
use crate::pool::{Pool, SESSION, content};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use potluck_core::chunk::ChunkName;
use potluck_core::entropy::{Entropy, SystemEntropy};
use potluck_core::ids::{DonorId, SessionId};
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::{BulkStatus, Inbox, Reply, Request, SessionKeys, StreamIo};
use potluck_wire::net::{BoxStream, Net, SystemNet};
use potluck_wire::ticket::{Caveat, Ops, PublicTicket, Secret, Ticket};
use potluck_wire::upgrade::{NONCE_HEADER, PATH, TICKET_HEADER, UpgradeError};
use potluck_wire::version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PUT: Ops = Ops::PUT;

/// Connects with `ticket`, puts a chunk, and returns the answer; `None` if the donor turned the peer away.
async fn attempt(pool: &Pool, ticket: &Ticket) -> Option<BulkStatus> {
    let bytes = content(7, 5000);
    let mut client = pool.open(ticket).await.ok()?;
    let reply = client.put_as(ChunkName::of(&bytes), &bytes, AckLevel::Memory).await;
    reply.ok().flatten().map(|reply| reply.status)
}

fn refused(opened: Result<crate::pool::Client, UpgradeError>) -> StatusCode {
    match opened {
        Err(UpgradeError::Refused(status)) => status,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the donor let it in"),
    }
}

#[tokio::test]
async fn a_ticket_of_another_key_or_donor_or_time_opens_nothing() {
    let pool = Pool::start().await;
    let forged_key = Secret::generate(&SystemEntropy);
    let caveats = [Caveat::Donor(DONOR), Caveat::Ops(PUT), Caveat::Session(SESSION)];
    let forged = Ticket::issue(&forged_key, &SystemEntropy, &caveats);
    assert_eq!(attempt(&pool, &forged).await, None, "its bearer cannot key a frame");

    let elsewhere = Ticket::issue(&pool.key, &SystemEntropy, &[Caveat::Donor(DonorId(5))]);
    assert_eq!(refused(pool.open(&elsewhere).await), StatusCode::FORBIDDEN);
    let anywhere = Ticket::issue(&pool.key, &SystemEntropy, &[Caveat::Ops(PUT)]);
    assert_eq!(refused(pool.open(&anywhere).await), StatusCode::FORBIDDEN);
    let expired = pool.ticket(&[Caveat::Expires(1000)]);
    assert_eq!(refused(pool.open(&expired).await), StatusCode::FORBIDDEN);
    pool.still_serves().await;
}

#[tokio::test]
async fn no_changed_ticket_is_worth_anything() {
    let pool = Pool::start().await;
    let ticket = pool.ticket(&[Caveat::Ops(Ops::GET), Caveat::Bytes(1)]);
    let text = ticket.public.to_string();
    // Every fourth character is changed, for each is a connection; the property test over all bits
    // is wire's.
    for at in (0..text.len()).step_by(4) {
        let mut changed = text.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("ASCII");
        let Ok(public) = changed.parse::<PublicTicket>() else { continue };
        if public == ticket.public {
            continue; // bits that base64 does not use
        }
        let changed = Ticket { public, secret: ticket.secret.clone() };
        assert_eq!(attempt(&pool, &changed).await, None, "character {at}");
    }
    let raw = URL_SAFE_NO_PAD.decode(&text).expect("base64");
    let cut = URL_SAFE_NO_PAD.encode(&raw[..raw.len() - 10]); // without the last caveat
    let cut = Ticket { public: cut.parse().expect("a ticket"), secret: ticket.secret.clone() };
    assert_eq!(attempt(&pool, &cut).await, None, "a restriction cannot be taken off");
}

#[tokio::test]
async fn operations_need_their_permission_and_puts_a_session() {
    let pool = Pool::start().await;
    let bytes = content(1, 70_000);
    let name = ChunkName::of(&bytes);
    let mut reader = pool.open(&pool.ticket(&[Caveat::Ops(Ops::GET)])).await.expect("open");
    let mut writer = pool.open(&pool.ticket(&[Caveat::Ops(PUT)])).await.expect("open");
    let all = Ops::GET.and(PUT);
    let nobody = [Caveat::Donor(DONOR), Caveat::Ops(all)];
    let nobody = Ticket::issue(&pool.key, &SystemEntropy, &nobody);
    let mut nobody = pool.open(&nobody).await.expect("open");

    assert_eq!(reader.put(&bytes, AckLevel::Memory).await, BulkStatus::Denied);
    assert_eq!(nobody.put(&bytes, AckLevel::Memory).await, BulkStatus::Denied);
    assert_eq!(writer.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    writer.send(Request::Get { name, part: None }, &[]).await.expect("sent");
    assert_eq!(writer.reply().await.expect("io"), Some(Reply::bare(BulkStatus::Denied)));
    // A refusal does not end the connection.
    assert_eq!(reader.get(&name).await, Some(bytes));

    let two = pool.ticket(&[Caveat::Session(SessionId([1; 16]))]);
    assert_eq!(refused(pool.open(&two).await), StatusCode::FORBIDDEN, "two sessions are none");
}

#[tokio::test]
async fn a_byte_budget_is_kept_over_all_connections() {
    let pool = Pool::start().await;
    let ticket = pool.ticket(&[Caveat::Bytes(250_000)]);
    let mut one = pool.open(&ticket).await.expect("open");
    let mut two = pool.open(&ticket).await.expect("open");
    assert_eq!(one.put(&content(1, 100_000), AckLevel::Memory).await, BulkStatus::Ok);
    assert_eq!(two.put(&content(2, 100_000), AckLevel::Memory).await, BulkStatus::Ok);
    assert_eq!(one.put(&content(3, 50_001), AckLevel::Memory).await, BulkStatus::Denied);
    // A put that stores nothing costs nothing: the client may have lost the first answer.
    assert_eq!(two.put(&content(1, 100_000), AckLevel::Memory).await, BulkStatus::Ok);
    assert_eq!(two.put(&content(4, 50_000), AckLevel::Memory).await, BulkStatus::Ok);
    assert_eq!(one.put(&content(5, 1), AckLevel::Memory).await, BulkStatus::Denied);
    let mut narrowed = ticket.clone();
    narrowed.narrow(&Caveat::Bytes(1));
    let mut narrowed = pool.open(&narrowed).await.expect("open");
    assert_eq!(narrowed.put(&content(5, 1), AckLevel::Memory).await, BulkStatus::Denied);
}

#[tokio::test]
async fn a_ticket_ends_by_the_managers_clock_in_open_connections_too() {
    let pool = Pool::start().await;
    let ticket = pool.ticket(&[Caveat::Expires(1_000_000)]);
    let mut client = pool.open(&ticket).await.expect("open");
    assert_eq!(client.put(&content(1, 10), AckLevel::Memory).await, BulkStatus::Ok);
    pool.manager.state().now_ms = 1_000_000;
    pool.manager.heartbeats(2).await;
    assert_eq!(client.put(&content(2, 10), AckLevel::Memory).await, BulkStatus::Denied);
    assert_eq!(refused(pool.open(&ticket).await), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn revocation_voids_tickets_on_open_connections_x5() {
    let pool = Pool::start().await;
    let (old, new) = (pool.ticket(&[Caveat::Issued(999)]), pool.ticket(&[Caveat::Issued(1000)]));
    let mut client = pool.open(&old).await.expect("open");
    assert_eq!(client.put(&content(1, 10), AckLevel::Memory).await, BulkStatus::Ok);
    pool.manager.state().void_before = 1000;
    pool.manager.heartbeats(2).await;
    assert_eq!(client.put(&content(2, 10), AckLevel::Memory).await, BulkStatus::Denied);
    assert_eq!(refused(pool.open(&old).await), StatusCode::FORBIDDEN);
    assert!(pool.open(&new).await.is_ok());
    // A manager that was started since then tells nothing of it.
    pool.manager.state().void_before = 0;
    pool.manager.heartbeats(2).await;
    assert_eq!(refused(pool.open(&old).await), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn restored_manager_revokes_rights_anew_x5() {
    const LATER: u64 = 50_000_000;
    let pool = Pool::start().await;
    let time = |now_ms, void_before| {
        let mut state = pool.manager.state();
        (state.now_ms, state.void_before) = (now_ms, void_before);
    };
    time(LATER, LATER);
    pool.manager.heartbeats(2).await;
    let forgotten = pool.ticket(&[Caveat::Issued(LATER)]);
    assert!(pool.open(&forgotten).await.is_ok());
    // The manager goes on from its backup, and does not know that rights ended.
    time(1000, 0);
    pool.manager.heartbeats(2).await;
    let before = pool.ticket(&[Caveat::Issued(1000)]);
    assert!(pool.open(&before).await.is_ok());
    assert_eq!(refused(pool.open(&forgotten).await), StatusCode::FORBIDDEN);
    time(2000, 2000);
    pool.manager.heartbeats(2).await;
    assert_eq!(refused(pool.open(&before).await), StatusCode::FORBIDDEN);
    assert!(pool.open(&pool.ticket(&[Caveat::Issued(2000)])).await.is_ok());
}

#[tokio::test]
async fn ended_session_cannot_store_with_old_tickets() {
    let pool = Pool::start().await;
    let mut client = pool.client().await;
    assert_eq!(client.put(&content(1, 10), AckLevel::Memory).await, BulkStatus::Ok);
    let asked = |state: &crate::manager::State| {
        state.heartbeats.iter().any(|heartbeat| heartbeat.sessions.0 == [SESSION])
    };
    pool.manager.until("a question", |state| asked(state).then_some(())).await;
    pool.manager.state().over = vec![SESSION];
    pool.manager.heartbeats(2).await;
    assert_eq!(client.put(&content(3, 10), AckLevel::Memory).await, BulkStatus::Denied);
    let mut renewed = pool.client().await;
    assert_eq!(renewed.put(&content(3, 10), AckLevel::Memory).await, BulkStatus::Denied);
    let read = Request::Get { name: ChunkName::of(&content(1, 10)), part: None };
    assert_eq!(renewed.ask(read).await.status, BulkStatus::Denied, "nor reads");
}

/// Upgrades by hand, so that the test can send the same bytes again.
async fn upgrade_raw(pool: &Pool, ticket: &Ticket, nonce: &str) -> (BoxStream, [u8; 16]) {
    let mut stream = SystemNet.connect(&pool.address.to_string()).await.expect("connect");
    let text = format!(
        "GET {PATH} HTTP/1.1\r\nhost: donor\r\nconnection: upgrade\r\nupgrade: {}\r\n\
         {TICKET_HEADER}: {}\r\n{NONCE_HEADER}: {nonce}\r\n\r\n",
        version::BULK,
        ticket.public
    );
    stream.write_all(text.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("an answer"));
    }
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let theirs = answer.lines().find_map(|line| line.strip_prefix("potluck-nonce: "));
    let theirs = potluck_core::ids::parse_hex(theirs.expect("a nonce")).expect("hex");
    (stream, theirs)
}

#[tokio::test]
async fn recorded_bytes_played_back_do_nothing() {
    let pool = Pool::start().await;
    let ticket = pool.ticket(&[]);
    let bytes = content(1, 1000);
    let put = Request::put(ChunkName::of(&bytes), AckLevel::Memory, 1000);
    let nonce = [0x11; 16];
    let hex = "11".repeat(16);

    let (mut stream, theirs) = upgrade_raw(&pool, &ticket, &hex).await;
    let mut keys = SessionKeys::derive(&ticket.secret, &nonce, &theirs);
    let recorded = [put.encode(1, &mut keys.client), bytes].concat();
    stream.write_all(&recorded).await.expect("sent");
    let mut io = StreamIo(stream);
    let mut inbox = Inbox::new(keys.donor, &[]).expect("empty");
    let reply = inbox.reply(&mut io).await.expect("io").expect("an answer");
    assert_eq!(reply.1.status, BulkStatus::Ok);
    // On the same connection the sequence number does not fit any more.
    io.0.write_all(&recorded).await.expect("sent");
    assert!(!matches!(inbox.reply(&mut io).await, Ok(Some(_))));

    // On a new connection the donor's nonce is another.
    let (mut stream, _) = upgrade_raw(&pool, &ticket, &hex).await;
    stream.write_all(&recorded).await.expect("sent");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await; // ends or resets; either way says nothing
    assert!(rest.is_empty());
    pool.manager.heartbeats(2).await;
    assert_eq!(pool.manager.state().heartbeats.last().expect("one").write_sequence, 1);
}

#[tokio::test]
async fn before_the_manager_was_heard_nobody_is_let_in() {
    let pool = Pool::start().await;
    let ticket = pool.ticket(&[]);
    let (place, manager) = pool.stop().await;
    // The same donor runs once more, while no manager answers.
    let nobody = potluck_wire::call::Caller::new(
        std::sync::Arc::new(SystemNet),
        std::sync::Arc::new(crate::manager::Plain),
        "127.0.0.1:1".parse().expect("an address"),
    );
    let env = potluck_wire::env::Env::system();
    let disk = std::sync::Arc::new(potluck_donor::disk::SystemDisk);
    let lender = crate::pool::lender(DONOR, potluck_donor::Claiming::Own);
    let donor =
        potluck_donor::Donor::start(place.config(crate::pool::GIB), lender, env, disk, nobody)
            .await
            .expect("starts without a manager");
    let address = donor.address().into();
    tokio::spawn(donor.run(std::future::pending()));
    let entropy: &dyn Entropy = &SystemEntropy;
    let opened = potluck_wire::upgrade::open(&SystemNet, entropy, &address, &ticket).await;
    assert!(matches!(opened, Err(UpgradeError::Refused(StatusCode::SERVICE_UNAVAILABLE))));
    drop(manager);
}

#[tokio::test]
async fn reads_go_on_while_the_manager_is_away() {
    let pool = Pool::start().await;
    let bytes = content(1, 100_000);
    let mut client = pool.client().await;
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    pool.manager.hang_up();
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    let mut late = pool.client().await;
    assert_eq!(late.get(&ChunkName::of(&bytes)).await, Some(bytes));
}
