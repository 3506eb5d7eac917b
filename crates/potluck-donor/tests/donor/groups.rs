//! Chunks computed from others of their group by task: right by name, or not there at all.

use crate::manager::DONOR;
use crate::pool::{Pool, content};
use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::erasure::{Codec, Ec};
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::control::{Shard, Source, TaskFault, TaskOutcome, Work};
use std::fs;

const LENS: [usize; 3] = [700_000, 700_000, 300_001];

/// A group of 3 data chunks under 4+2: the last data position is zeros.
struct RebuiltGroup {
    ec: Ec,
    chunks: Vec<(u8, Vec<u8>)>,
}

impl RebuiltGroup {
    fn new() -> Self {
        let ec = Ec::new(4, 2).expect("a code");
        let data: Vec<Vec<u8>> =
            (0u64..).zip(LENS).map(|(number, len)| content(number, len)).collect();
        let (mut p, mut q) = (vec![0; LENS[0]], vec![0; LENS[0]]);
        let pieces: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        Codec::new(ec).encode(&pieces, &mut [&mut p, &mut q]);
        let chunks = [0, 1, 2, 4, 5].into_iter().zip(data.into_iter().chain([p, q])).collect();
        Self { ec, chunks }
    }

    fn bytes(&self, position: u8) -> &[u8] {
        let found = self.chunks.iter().find(|(at, _)| *at == position);
        &found.expect("a chunk of the group").1
    }

    fn name(&self, position: u8) -> ChunkName {
        ChunkName::of(self.bytes(position))
    }

    /// Starts a donor that has all chunks of the group: where each is does not matter here.
    async fn store(&self) -> Pool {
        let pool = Pool::start().await;
        let mut client = pool.client().await;
        for (_, bytes) in &self.chunks {
            assert_eq!(client.put(bytes, AckLevel::Memory).await, BulkStatus::Ok);
        }
        pool
    }

    fn shards(&self, positions: &[u8], source: &Source) -> Vec<Shard> {
        let shard = |position: &u8| Shard {
            position: *position,
            chunk: self.name(*position),
            len: self.bytes(*position).len() as u32,
            from: vec![source.clone()],
        };
        positions.iter().map(shard).collect()
    }

    fn rebuild(&self, position: u8, shards: Vec<Shard>) -> Work {
        let (chunk, len) = (self.name(position), self.bytes(position).len() as u32);
        let (ack, kind) = (AckLevel::Memory, ChunkKind::Data);
        Work::Rebuild { chunk, len, ack, kind, ec: self.ec, position, data: 3, shards }
    }
}

#[tokio::test]
async fn any_enough_chunks_of_a_group_give_back_the_others() {
    let group = RebuiltGroup::new();
    let holder = group.store().await;
    let source = holder.source();
    for (lost, from) in [(0, [1, 4, 5]), (2, [0, 1, 4]), (4, [0, 1, 2]), (5, [4, 2, 0])] {
        let pool = Pool::start().await;
        let asked = group.rebuild(lost, group.shards(&from, &source));
        assert_eq!(pool.manager.ask(1, asked).await, TaskOutcome::Done, "{lost}");
        let got = pool.client().await.get(&group.name(lost)).await;
        assert!(got.as_deref() == Some(group.bytes(lost)), "{lost}");
    }
}

#[tokio::test]
async fn rebuild_replaces_a_bad_source_shard() {
    let group = RebuiltGroup::new();
    let holder = group.store().await;
    let path = holder.place.chunk(&group.name(1));
    let mut bytes = fs::read(&path).expect("stored");
    bytes[600_000] ^= 1;
    fs::write(&path, bytes).expect("spoiled");
    fs::remove_file(holder.place.chunk(&group.name(2))).expect("lost");
    let (pool, source) = (Pool::start().await, holder.source());
    // Chunk 0 is wanted, 1 is a lie and 2 is lost: too few are left.
    let few = group.rebuild(0, group.shards(&[1, 2, 4, 5], &source));
    let lie = TaskOutcome::Failed { why: TaskFault::SourceWrong, donor: Some(DONOR) };
    assert_eq!(pool.manager.ask(1, few).await, lie);
    assert!(pool.place.files("temp").is_empty());
    // With one good copy of chunk 2 there are enough.
    let other = group.store().await;
    let mut shards = group.shards(&[1, 2, 4, 5], &source);
    shards[1].from.push(other.source());
    let enough = group.rebuild(0, shards);
    assert_eq!(pool.manager.ask(2, enough).await, TaskOutcome::Done);
}

#[tokio::test]
async fn rebuilt_chunk_with_the_wrong_name_is_not_stored() {
    let group = RebuiltGroup::new();
    let holder = group.store().await;
    let pool = Pool::start().await;
    // Every chunk is what its name says, but 1 and 4 have changed places.
    let mut shards = group.shards(&[1, 4, 5], &holder.source());
    (shards[0].position, shards[1].position) = (4, 1);
    let wrong = TaskOutcome::Failed { why: TaskFault::WrongResult, donor: None };
    assert_eq!(pool.manager.ask(1, group.rebuild(0, shards)).await, wrong);
    assert_eq!(pool.client().await.get(&group.name(0)).await, None);
    assert!(pool.place.files("temp").is_empty());
}

#[tokio::test]
async fn parity_is_computed_where_it_is_stored() {
    let group = RebuiltGroup::new();
    let holder = group.store().await;
    let (pool, source) = (Pool::start().await, holder.source());
    let encode = |shards| Work::Encode { ec: group.ec, ack: AckLevel::Disk, shards };
    let answer = pool.manager.ask(1, encode(group.shards(&[0, 1, 2], &source))).await;
    let TaskOutcome::Encoded { parity } = answer else { panic!("{answer:?}") };
    assert_eq!(parity.0, [group.name(4), group.name(5)]);
    let mut client = pool.client().await;
    for position in [4, 5] {
        let got = client.get(&group.name(position)).await;
        assert!(got.as_deref() == Some(group.bytes(position)));
    }
    fs::remove_file(holder.place.chunk(&group.name(2))).expect("lost");
    let missing = TaskOutcome::Failed { why: TaskFault::SourceMissing, donor: Some(DONOR) };
    let asked = encode(group.shards(&[0, 1, 2], &source));
    assert_eq!(pool.manager.ask(2, asked).await, missing);
}
