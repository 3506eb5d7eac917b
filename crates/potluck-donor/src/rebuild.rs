//! Chunks that are computed from others of their group for a task of the manager: a lost chunk, or parity. The chunks
//! that are needed are received side by side, piece by piece, so memory holds one piece of each chunk whatever its
//! size.

use crate::copy::NewCopy;
use crate::peer_connections::ChunkFetch;
use crate::service::Service;
use crate::store::{ChunkOrigin, IncomingChunk};
use crate::task_failure::{TaskFailure, not_placed};
use potluck_core::chunk::{ChunkKind, ChunkName, Verifier};
use potluck_core::erasure::{Codec, Ec};
use potluck_core::policy::AckLevel;
use potluck_wire::bulk::PIECE;
use potluck_wire::control::{Shard, TaskFault};

/// A group of which chunks are to be computed, and the chunks of it that can be fetched.
pub(crate) struct RebuiltGroup {
    /// The erasure code of the group.
    pub ec: Ec,
    /// The number of data chunks in the group; the other data positions of the code stand for zeros.
    pub data: usize,
    /// The chunks of the group that can be fetched.
    pub shards: Vec<Shard>,
}

/// A chunk of the group as it comes in.
struct Stream<'s> {
    shard: &'s Shard,
    fetch: ChunkFetch<'s>,
    verifier: Verifier,
    piece: Vec<u8>,
    /// The number of bytes of `piece` that were received last; a chunk may end before others of its group do.
    filled: usize,
}

/// The failure of a source of a shard.
struct Failed {
    position: u8,
    fault: TaskFailure,
}

impl RebuiltGroup {
    /// Returns the length of the longest chunk that can be fetched; `None` where the group is not a valid one: a
    /// position out of range or given twice, an empty chunk, or no chunk at all.
    fn longest(&self) -> Option<u32> {
        let mut seen = vec![false; self.ec.width()];
        // A short group has zeros in these positions, which no donor holds.
        seen.iter_mut().take(self.ec.data()).skip(self.data).for_each(|seen| *seen = true);
        for shard in &self.shards {
            let seen = seen.get_mut(usize::from(shard.position))?;
            if std::mem::replace(seen, true) || shard.len == 0 {
                return None;
            }
        }
        self.shards.iter().map(|shard| shard.len).max()
    }

    fn zeros(&self) -> usize {
        self.ec.data().saturating_sub(self.data)
    }
}

/// Rebuilds `wanted`, at `position` of its group, from enough other chunks of the group, and stores it; does nothing
/// where it is held already.
///
/// Errors: [`TaskFault::WrongResult`] for a group that is not valid; a fault of this donor, or the worst fault of the
/// sources.
pub(crate) async fn rebuild(
    service: &Service,
    wanted: &NewCopy,
    position: usize,
    mut group: RebuiltGroup,
) -> Result<(), TaskFailure> {
    if service.store.list_if_held(wanted.chunk, wanted.len, wanted.ack) {
        return Ok(());
    }
    let impossible = TaskFailure::here(TaskFault::WrongResult);
    group.shards.retain(|shard| usize::from(shard.position) != position);
    if position >= group.ec.width() || group.longest().is_none() {
        return Err(impossible);
    }
    let codec = Codec::new(group.ec);
    let mut worst: Option<TaskFailure> = None;
    loop {
        let need = group.ec.data() - group.zeros();
        let having = group.shards.iter().filter(|shard| !shard.from.is_empty());
        let chosen: Vec<&Shard> = having.take(need).collect();
        if chosen.len() < need {
            return Err(worst.unwrap_or(TaskFailure::here(TaskFault::SourceMissing)));
        }
        let rebuilding = rebuild_from(service, wanted, position, &group, &chosen, &codec);
        let failed = match rebuilding.await {
            Ok(placed) => return placed,
            Err(failed) => failed,
        };
        tracing::debug!("cannot rebuild chunk {}: {:?}", wanted.chunk, failed.fault);
        worst = Some(worst.map_or(failed.fault, |worst| worst.or_worse(failed.fault)));
        give_up(&mut group.shards, failed.position);
    }
}

/// Computes all parity of a group whose data chunks are all in `group`, and stores it here; returns its names by
/// position.
///
/// Errors: those of [`rebuild`].
pub(crate) async fn encode(
    service: &Service,
    ack: AckLevel,
    mut group: RebuiltGroup,
) -> Result<Vec<ChunkName>, TaskFailure> {
    let impossible = TaskFailure::here(TaskFault::WrongResult);
    let longest = group.longest().ok_or(impossible)?;
    group.shards.sort_by_key(|shard| shard.position);
    let places = group.shards.iter().map(|shard| usize::from(shard.position));
    if !places.eq(0..group.data) || group.data > group.ec.data() {
        return Err(impossible);
    }
    let codec = Codec::new(group.ec);
    let mut worst: Option<TaskFailure> = None;
    loop {
        if group.shards.iter().any(|shard| shard.from.is_empty()) {
            return Err(worst.unwrap_or(TaskFailure::here(TaskFault::SourceMissing)));
        }
        let chosen: Vec<&Shard> = group.shards.iter().collect();
        let failed = match encode_from(service, ack, &chosen, longest, &codec).await {
            Ok(encoded) => return encoded,
            Err(failed) => failed,
        };
        tracing::debug!("cannot encode a group: {:?}", failed.fault);
        worst = Some(worst.map_or(failed.fault, |worst| worst.or_worse(failed.fault)));
        give_up(&mut group.shards, failed.position);
    }
}

/// Removes the first source of this shard, which failed, so that it is not tried again.
fn give_up(shards: &mut [Shard], position: u8) {
    let shard = shards.iter_mut().find(|shard| shard.position == position);
    shard.into_iter().for_each(|shard| drop(shard.from.remove(0)));
}

async fn rebuild_from(
    service: &Service,
    wanted: &NewCopy,
    position: usize,
    group: &RebuiltGroup,
    chosen: &[&Shard],
    codec: &Codec,
) -> Result<Result<(), TaskFailure>, Failed> {
    let mut incoming = match service.store.accept(wanted.chunk, wanted.len) {
        Ok(incoming) => incoming,
        Err(refusal) => return Ok(Err(refusal.into())),
    };
    let (mut streams, longest) = open(service, chosen).await?;
    let mut out = vec![0; PIECE];
    for at in (0..longest).step_by(PIECE) {
        let len = PIECE.min(longest - at);
        next(&mut streams, len).await?;
        let mut shards: Vec<Option<&[u8]>> = vec![None; group.ec.width()];
        shards[group.data.min(group.ec.data())..group.ec.data()].fill(Some(&[]));
        for stream in &streams {
            shards[usize::from(stream.shard.position)] = Some(stream.here());
        }
        let rebuilt = codec.rebuild(&shards, &[position], &mut [&mut out[..len]]);
        let kept = len.min((wanted.len as usize).saturating_sub(at));
        let kept = match rebuilt {
            Ok(()) => incoming.append(&out[..kept]).map_err(TaskFailure::from),
            Err(_) => Err(TaskFailure::here(TaskFault::SourceMissing)),
        };
        if let Err(fault) = kept {
            return Ok(Err(fault));
        }
    }
    close(streams)?;
    let placed = place(incoming, wanted.kind, wanted.ack);
    Ok(placed.map(drop))
}

async fn encode_from(
    service: &Service,
    ack: AckLevel,
    chosen: &[&Shard],
    longest: u32,
    codec: &Codec,
) -> Result<Result<Vec<ChunkName>, TaskFailure>, Failed> {
    let count = codec.ec().parity();
    let begun: Result<Vec<_>, _> = (0..count).map(|_| service.store.compute(longest)).collect();
    let mut incoming = match begun {
        Ok(incoming) => incoming,
        Err(refusal) => return Ok(Err(refusal.into())),
    };
    let (mut streams, longest) = open(service, chosen).await?;
    let mut out = vec![vec![0; PIECE]; count];
    for at in (0..longest).step_by(PIECE) {
        let len = PIECE.min(longest - at);
        next(&mut streams, len).await?;
        let data: Vec<&[u8]> = streams.iter().map(Stream::here).collect();
        let mut parity: Vec<&mut [u8]> = out.iter_mut().map(|out| &mut out[..len]).collect();
        codec.encode(&data, &mut parity);
        for (incoming, parity) in incoming.iter_mut().zip(&parity) {
            if let Err(refusal) = incoming.append(parity) {
                return Ok(Err(refusal.into()));
            }
        }
    }
    close(streams)?;
    // Only now is it known that all streams brought the right bytes, so the parity can be kept.
    Ok(incoming.into_iter().map(|parity| place(parity, ChunkKind::Data, ack)).collect())
}

fn place(
    incoming: IncomingChunk<'_>,
    kind: ChunkKind,
    ack: AckLevel,
) -> Result<ChunkName, TaskFailure> {
    let mut tail = vec![0; incoming.tail_len()];
    let placed = incoming.place(&mut tail, ChunkOrigin::task(kind), ack);
    placed.map_err(|why| not_placed(why, None))
}

/// Asks the first source of each shard for its chunk; returns the streams and the length of the longest chunk.
async fn open<'s>(
    service: &'s Service,
    chosen: &[&'s Shard],
) -> Result<(Vec<Stream<'s>>, usize), Failed> {
    let mut streams = Vec::with_capacity(chosen.len());
    for shard in chosen {
        let asking = service.fetch(&shard.from[0], shard.chunk, shard.len);
        let failed = |fault| Failed { position: shard.position, fault };
        let fetch = asking.await.map_err(failed)?;
        let (verifier, piece) =
            (Verifier::new(shard.chunk), vec![0; PIECE.min(shard.len as usize)]);
        streams.push(Stream { shard, fetch, verifier, piece, filled: 0 });
    }
    let longest = chosen.iter().map(|shard| shard.len as usize).max().unwrap_or(0);
    Ok((streams, longest))
}

/// Receives the next `len` bytes of every chunk, or as many as are left of it.
async fn next(streams: &mut [Stream<'_>], len: usize) -> Result<(), Failed> {
    for stream in streams {
        let want = len.min(stream.piece.len());
        let read = stream.fetch.next(&mut stream.piece[..want]).await;
        let position = stream.shard.position;
        stream.filled = read.map_err(|fault| Failed { position, fault })?;
        stream.verifier.update(&stream.piece[..stream.filled]);
    }
    Ok(())
}

/// Checks, once all bytes were received, that every chunk has the hash in its name; keeps the connections.
fn close(streams: Vec<Stream<'_>>) -> Result<(), Failed> {
    for Stream { shard, fetch, verifier, .. } in streams {
        let donor = fetch.donor();
        fetch.done();
        verifier.finish().map(drop).map_err(|_| Failed {
            position: shard.position,
            fault: TaskFailure::of(donor, TaskFault::SourceWrong),
        })?;
    }
    Ok(())
}

impl Stream<'_> {
    fn here(&self) -> &[u8] {
        &self.piece[..self.filled]
    }
}
