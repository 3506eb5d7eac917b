//! Tasks that fetch chunks from other donors: only what was asked for, never over the cap, and each
//! task once.

use crate::manager::{DONOR, Manager};
use crate::pool::{Client, Pool, bytes_below, content};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::ids::DonorId;
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::control::{Source, Task, TaskFault, TaskOutcome, Work};
use potluck_wire::net::{Net, SystemNet};
use std::fs;
use tokio::io::AsyncReadExt;

const LEN: usize = 1_200_000;

async fn put(client: &mut Client, number: u64) -> ChunkName {
    let bytes = content(number, LEN);
    assert_eq!(client.put(&bytes, AckLevel::Memory).await, BulkStatus::Ok);
    ChunkName::of(&bytes)
}

fn copy(chunk: ChunkName, from: &[Source]) -> Work {
    let (len, ack, kind) = (LEN as u32, AckLevel::Disk, ChunkKind::Data);
    Work::Copy { chunk, len, ack, kind, from: from.to_vec() }
}

fn failed(why: TaskFault, donor: Option<DonorId>) -> TaskOutcome {
    TaskOutcome::Failed { why, donor }
}

/// Returns how often the manager was told that `chunk` is here.
fn added(manager: &Manager, chunk: ChunkName) -> usize {
    let state = manager.state();
    let added = state.heartbeats.iter().flat_map(|heartbeat| &heartbeat.added.0);
    added.filter(|arrived| arrived.holding.name == chunk).count()
}

/// Returns `source` with an address at which nobody listens.
fn dead(source: &Source) -> Source {
    Source { addresses: "127.0.0.1:9".parse().expect("an address"), ..source.clone() }
}

#[tokio::test]
async fn copy_task_uses_the_first_source_once() {
    let (rich, poor) = (Pool::start().await, Pool::start().await);
    let name = put(&mut rich.client().await, 1).await;
    let elsewhere = rich.source();
    let empty = poor.source();
    let task = copy(name, &[dead(&elsewhere), empty, elsewhere]);
    assert_eq!(poor.manager.ask(7, task).await, TaskOutcome::Done);
    assert_eq!(poor.client().await.get(&name).await, Some(content(1, LEN)));
    assert_eq!(added(&poor.manager, name), 1);

    // A new task for a chunk that is here is answered, and the chunk is told again.
    assert_eq!(poor.manager.ask(8, copy(name, &[])).await, TaskOutcome::Done);
    assert_eq!(added(&poor.manager, name), 2);
    let (trailer, kind) = (LEN + 624..LEN + 640, LEN + 617); // after the hashes of 19 segments
    let file = fs::read(poor.place.chunk(&name)).expect("stored");
    assert_eq!((&file[trailer], file[kind]), (&[0; 16][..], 0), "no session stored it");
}

#[tokio::test]
async fn concurrent_copy_tasks_run_once_and_promptly() {
    let (rich, poor) = (Pool::start().await, Pool::start().await);
    let mut client = rich.client().await;
    let source = [rich.source()];
    let mut names = Vec::new();
    for number in 0..40 {
        names.push(put(&mut client, number).await);
    }
    let task = |(number, name): (u64, &ChunkName)| Task { number, work: copy(*name, &source) };
    let heard = poor.manager.state().heartbeats.len();
    // All tasks are repeated with each heartbeat until they are answered.
    poor.manager.state().tasks = (0..).zip(&names).map(task).collect();
    poor.manager
        .until("all answers", |state| {
            (0..40).all(|task| state.answer(task).is_some()).then_some(())
        })
        .await;
    assert!(names.iter().all(|name| added(&poor.manager, *name) == 1));
    let state = poor.manager.state();
    assert!((0..40).all(|task| state.answer(task) == Some(TaskOutcome::Done)));
    assert!(state.heartbeats.len() - heard < 12);
}

/// Returns a source that leads to `pool` by connections that are cut after `bytes` have come from it.
async fn cut_after(pool: &Pool, bytes: u64) -> Source {
    let listener = tokio::net::TcpListener::from_std({
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        listener
    });
    let listener = listener.expect("a socket");
    let addresses = listener.local_addr().expect("an address").into();
    let behind = pool.address.to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let donor = SystemNet.connect(&behind).await.expect("the donor answers");
            let (from_donor, mut to_donor) = tokio::io::split(donor);
            let (mut from_peer, mut to_peer) = stream.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_peer, &mut to_donor).await });
            tokio::spawn(async move {
                let mut some = from_donor.take(bytes);
                let _ = tokio::io::copy(&mut some, &mut to_peer).await; // the peer may be faster
            });
        }
    });
    Source { addresses, ..pool.source() }
}

#[tokio::test]
async fn a_source_that_dies_in_the_middle_is_replaced_by_the_next() {
    let (rich, poor) = (Pool::start().await, Pool::start().await);
    let name = put(&mut rich.client().await, 1).await;
    let dying = cut_after(&rich, 700_000).await;
    let away = failed(TaskFault::SourceAway, Some(DONOR));
    let alone = copy(name, std::slice::from_ref(&dying));
    assert_eq!(poor.manager.ask(1, alone).await, away);
    assert!(poor.place.files("temp").is_empty());
    let task = copy(name, &[dying, rich.source()]);
    assert_eq!(poor.manager.ask(2, task).await, TaskOutcome::Done);
    assert_eq!(poor.client().await.get(&name).await, Some(content(1, LEN)));
}

#[tokio::test]
async fn a_second_manager_of_the_same_epoch_gives_no_tasks() {
    let pool = Pool::start().await;
    let name = put(&mut pool.client().await, 1).await;
    pool.manager.state().start = 77;
    pool.manager.heartbeats(3).await;
    assert_eq!(pool.manager.ask(1, copy(name, &[])).await, TaskOutcome::Done);
    let told = {
        let mut state = pool.manager.state();
        state.start = 78;
        state.tasks = vec![Task { number: 2, work: copy(name, &[]) }];
        state.registers.len()
    };
    // The donor registers with the other manager all the same, so that this one can see that it is not the only
    // one.
    let heard = |state: &crate::manager::State| state.registers.get(told).map(|said| said.heard);
    let heard = pool.manager.until("a registration", heard).await;
    assert_eq!((heard.0, heard.1), (pool.manager.state().epoch, 77));
    pool.manager.heartbeats(3).await;
    assert_eq!(pool.manager.state().answer(2), None);
    // The first one goes on where it was.
    pool.manager.state().start = 77;
    pool.manager.until("the answer", |state| state.answer(2)).await;
}

#[tokio::test]
async fn wrong_bytes_are_nobodys_chunk() {
    let (liar, victim) = (Pool::start().await, Pool::start().await);
    let name = put(&mut liar.client().await, 1).await;
    let path = liar.place.chunk(&name);
    let mut bytes = fs::read(&path).expect("stored");
    bytes[LEN / 2] ^= 1;
    fs::write(&path, bytes).expect("spoiled");
    let lie = failed(TaskFault::SourceWrong, Some(DONOR));
    let from = [liar.source(), victim.source()];
    assert_eq!(victim.manager.ask(1, copy(name, &from)).await, lie);
    assert_eq!(victim.client().await.get(&name).await, None);
    assert!(victim.place.files("temp").is_empty());

    let shorter = Work::Copy {
        chunk: name,
        len: 100,
        ack: AckLevel::Memory,
        kind: ChunkKind::Data,
        from: vec![liar.source()],
    };
    assert_eq!(victim.manager.ask(2, shorter).await, lie);
}

#[tokio::test]
async fn copies_and_puts_together_never_exceed_the_cap() {
    const CAP: u64 = 10 << 20;
    let (rich, poor) = (Pool::start().await, Pool::lending(CAP).await);
    let mut client = rich.client().await;
    let source = [rich.source()];
    let mut tasks = Vec::new();
    for number in 0..12 {
        let work = copy(put(&mut client, number).await, &source);
        tasks.push(Task { number, work });
    }
    poor.manager.state().tasks = tasks;
    let mut client = poor.client().await;
    let mut stored = 0;
    for number in 100..112 {
        match client.put(&content(number, LEN), AckLevel::Memory).await {
            BulkStatus::Ok => stored += 1,
            refused => assert_eq!(refused, BulkStatus::Full),
        }
        assert!(bytes_below(&poor.place.lent()) <= CAP);
    }
    let all = |state: &crate::manager::State| (0..12).map(|task| state.answer(task)).collect();
    let answers: Vec<_> = poor.manager.until("all answers", all).await;
    let copied = answers.iter().filter(|answer| **answer == TaskOutcome::Done).count();
    let full = failed(TaskFault::Full, None);
    assert_eq!(copied + answers.iter().filter(|answer| **answer == full).count(), 12);
    assert!(copied + stored == 8, "{copied} copied, {stored} put");
    assert!(bytes_below(&poor.place.lent()) <= CAP);
    assert!(poor.place.files("temp").is_empty());
}
