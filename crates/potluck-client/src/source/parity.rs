//! The encoding of groups while files are cut: data chunks that together get parity (docs/format/erasure.md).

use super::{Current, CutError};
use crate::buffer::{Buffer, Claim};
use potluck_core::chunk::{ChunkHasher, ChunkName};
use potluck_core::erasure::{Codec, Ec};
use potluck_core::file_digest::FileDigest;
use potluck_core::merkle::{SEGMENT, SegmentHashes};
use potluck_core::recipe::Entry;
use std::io;

/// One group in so many, beginning with the first of every cutter, is decoded again before it is sent: a codec that is
/// wrong on this machine is wrong from the start, one that errs now and then is found within a gigabyte or so, and the
/// check costs a sixtieth of what decoding every group would cost.
const CHECK_EVERY: u64 = 64;
/// The number of bytes of each chunk that are decoded at a time.
const CHECK_PIECE: usize = 256 << 10;

/// The encoder of groups, which computes their parity.
pub struct Grouping {
    codec: Codec,
    /// The number of groups that were encoded.
    count: u64,
}

impl Grouping {
    /// Makes a grouping for the erasure code `ec`.
    pub fn new(ec: Ec) -> Self {
        Self { codec: Codec::new(ec), count: 0 }
    }

    /// Returns the erasure code of the groups.
    pub fn ec(&self) -> Ec {
        self.codec.ec()
    }

    /// Computes the parity of a group from its data chunks as stored.
    ///
    /// Errors: [`CutError::Miscoded`] where the check of the encoding fails.
    pub fn parity(
        &mut self,
        data: &[(Entry, Buffer)],
        claim: &mut Claim,
    ) -> Result<Vec<(ChunkName, Buffer)>, CutError> {
        let data: Vec<&[u8]> = data.iter().map(|(_, body)| &body[..]).collect();
        let len = data.iter().map(|chunk| chunk.len()).max().unwrap_or_default();
        let mut parity: Vec<Buffer> =
            (0..self.ec().parity()).map(|_| claim.split(len).buffer(len)).collect();
        let mut out: Vec<&mut [u8]> = parity.iter_mut().map(|chunk| &mut chunk[..]).collect();
        self.codec.encode(&data, &mut out);
        let checked = self.count.is_multiple_of(CHECK_EVERY);
        self.count += 1;
        if checked && !self.decodes(&data, &parity) {
            return Err(CutError::Miscoded);
        }
        Ok(parity.into_iter().map(|chunk| (ChunkName::of(&chunk), chunk)).collect())
    }

    /// Returns whether the last data chunks of the group, as many as may be lost, can be decoded from the others.
    fn decodes(&self, data: &[&[u8]], parity: &[Buffer]) -> bool {
        let (m, k) = (self.ec().data(), self.ec().parity());
        let lost: Vec<usize> = (data.len().saturating_sub(k)..data.len()).collect();
        let len = parity[0].len();
        let mut scratch = vec![0; lost.len() * CHECK_PIECE.min(len)];
        (0..len).step_by(CHECK_PIECE).all(|at| {
            let piece = |chunk: &[u8]| {
                let end = (at + CHECK_PIECE).min(chunk.len());
                chunk.get(at..end).unwrap_or_default().len()
            };
            let of = |chunk: &'_ [u8]| at.min(chunk.len())..at.min(chunk.len()) + piece(chunk);
            let size = CHECK_PIECE.min(len - at);
            let mut shards: Vec<Option<&[u8]>> = Vec::with_capacity(m + k);
            shards.extend(data.iter().map(|chunk| Some(&chunk[of(chunk)])));
            shards.resize(m, Some(&[]));
            shards.extend(parity.iter().map(|chunk| Some(&chunk[of(chunk)])));
            lost.iter().for_each(|position| shards[*position] = None);
            let mut out: Vec<&mut [u8]> = scratch.chunks_mut(size).take(lost.len()).collect();
            if self.codec.rebuild(&shards, &lost, &mut out).is_err() {
                return false;
            }
            lost.iter().zip(&out).all(|(position, rebuilt)| {
                let (was, zeros) = rebuilt.split_at(piece(data[*position]));
                was == &data[*position][of(data[*position])] && zeros.iter().all(|byte| *byte == 0)
            })
        })
    }
}

/// Adds a group's plaintext to the digest of its file. The hashes of the chunks' segments serve for that if all chunks
/// but the last are whole segments. They are not in a short last group with chunks below a megabyte, whose plaintext is
/// hashed once more.
pub fn add_to_digest(digest: &mut FileDigest, group: &[(SegmentHashes, Buffer)]) {
    let whole = |body: &Buffer| body.len().is_multiple_of(SEGMENT as usize);
    let before_last = &group[..group.len().saturating_sub(1)];
    match before_last.iter().all(|(_, body)| whole(body)) {
        true => group.iter().for_each(|(hashes, _)| digest.push(hashes)),
        false => group.iter().for_each(|(_, body)| digest.update(body)),
    }
}

/// Reads the next group's data chunks with the hashes of their segments; returns none at the end of the input.
///
/// The rest of a file tells the length of the chunks. A stream is read into whole chunks, and its last group is spread
/// evenly. A group that ends a part may have fewer chunks, which are whole.
pub fn read(
    ec: Ec,
    chunk_size: usize,
    current: &mut Current,
    claim: &mut Claim,
) -> io::Result<Vec<(SegmentHashes, Buffer)>> {
    let most = current.most_of_group(ec);
    let ends_part = most < ec.data();
    let shard_len = |left: u64| match ends_part {
        true => chunk_size,
        false => ec.shard_len(left, chunk_size as u32) as usize,
    };
    loop {
        let shard = current.left.map_or(chunk_size, shard_len);
        let mut chunks = read_up_to(most, shard, current, claim)?;
        let total: usize = chunks.iter().map(|(_, body)| body.len()).sum();
        let whole = total == most * chunk_size;
        if !whole && total > 0 && current.left == Some(0) && !current.at_end()? {
            // The file has grown since it was measured. Only the last group may be short, so this one is
            // read once more, as of a stream.
            current.unread(chunks.iter().flat_map(|(_, body)| body.iter().copied()).collect());
            continue;
        }
        current.ended = !whole;
        let even = shard_len(total as u64);
        if !whole && !current.is_small_stream() && even < shard {
            chunks = respread(chunks, total, shard, even, claim);
        }
        return Ok(chunks);
    }
}

/// Reads up to `count` chunks of `len` bytes, and fewer or shorter ones only at the end of the input.
fn read_up_to(
    count: usize,
    len: usize,
    current: &mut Current,
    claim: &mut Claim,
) -> io::Result<Vec<(SegmentHashes, Buffer)>> {
    let mut chunks = Vec::with_capacity(count);
    let mut hasher = ChunkHasher::default();
    while chunks.len() < count {
        let want = len.min(current.most_left());
        if want == 0 {
            break;
        }
        let mut body = claim.split(want).buffer(want);
        let filled = current.fill(&mut body, |bytes| hasher.update(bytes))?;
        let hashes = hasher.finish();
        body.bytes_mut().truncate(filled);
        if filled > 0 {
            chunks.push((hashes, body));
        }
        if filled < want {
            break;
        }
    }
    Ok(chunks)
}

/// Spreads `total` bytes in chunks of `from` bytes over more chunks of `to` bytes, in place.
fn respread(
    chunks: Vec<(SegmentHashes, Buffer)>,
    total: usize,
    from: usize,
    to: usize,
    claim: &mut Claim,
) -> Vec<(SegmentHashes, Buffer)> {
    let mut bodies: Vec<Buffer> = chunks.into_iter().map(|(_, body)| body).collect();
    let count = total.div_ceil(to);
    bodies.resize_with(count, || claim.split(to).buffer(to));
    // The bodies are filled from the last to the first, because each takes bytes from itself and from earlier ones.
    for at in (0..count).rev() {
        let (sources, rest) = bodies.split_at_mut(at);
        let target = rest[0].bytes_mut();
        let (start, mut end) = (at * to, total.min((at + 1) * to));
        let len = end - start;
        if target.len() < len {
            target.resize(len, 0);
        }
        while end > start {
            let source = (end - 1) / from;
            let begin = start.max(source * from);
            let (taken, place) = (begin - source * from..end - source * from, begin - start);
            match source == at {
                true => target.copy_within(taken, place),
                false => {
                    target[place..place + (end - begin)].copy_from_slice(&sources[source][taken])
                }
            }
            end = begin;
        }
        target.truncate(len);
    }
    bodies.into_iter().map(|body| (SegmentHashes::of(&body), body)).collect()
}
