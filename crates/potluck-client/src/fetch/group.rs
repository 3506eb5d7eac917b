//! Fetches chunks of an erasure-coded group. While all its donors are well, exactly the needed chunks are fetched,
//! unless the policy races a read of the whole group with extra chunks. If one cannot be had in time, as many others as
//! the code needs are fetched too, and exactly the missing chunk is rebuilt; for a read of a part the same segments of
//! the others are enough. A rebuilt whole chunk is proved by its name. A rebuilt part is right because every part that
//! it is rebuilt from is proved by the name of its chunk, and because together they give back a parity chunk that it was
//! rebuilt from (docs/format/erasure.md).

use super::gather::{Code, Gathered, Shard};
use super::{Fetched, Fetcher};
use crate::buffer::Buffer;
use crate::fetch::chunk_request;
use crate::link::{ChunkRequest, LinkError};
use crate::recipe::Group;
use potluck_core::chunk::{ChunkName, Verifier};
use potluck_core::erasure::{Codec, TooFew};
use potluck_core::merkle::SEGMENT;
use potluck_core::policy::Race;
use potluck_core::read_plan::ShardState;
use potluck_core::recipe::Entry;
use potluck_core::seal::{Meaning, SpaceKey};
use potluck_core::size::count;
use potluck_wire::bulk::PIECE;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use tokio::sync::OwnedSemaphorePermit;

/// Takes the needed chunks out of shards that were gathered or rebuilt.
fn taken(
    mut shards: Vec<Shard>,
    needed: &[usize],
    start: u32,
    ahead: &mut OwnedSemaphorePermit,
) -> Vec<Fetched> {
    let take = |position: &usize| {
        let bytes = shards[*position].had.take().expect("gathered or rebuilt");
        Fetched::new(bytes, start, ahead)
    };
    needed.iter().map(take).collect()
}

impl Fetcher {
    /// Fetches, verifies and opens the data chunks at positions `needed` of a group; with `segments` only those of a
    /// single chunk, or more if they cannot be rebuilt alone.
    pub(super) async fn group(
        &self,
        group: &Group<'_>,
        needed: &[usize],
        segments: Option<Range<u32>>,
        ahead: &mut OwnedSemaphorePermit,
    ) -> Result<Vec<Fetched>, Failure> {
        let whole = 0..group.len;
        let window = window(group, segments.as_ref());
        let start = segments.as_ref().map_or(0, |segments| segments.start * SEGMENT);
        if window != whole {
            match self.gather_part(group, needed, &window).await {
                // The parity does not fit its data, or the codec erred: whole chunks are proved by their names.
                Err(failure) if failure.kind == ErrorKind::Integrity => {}
                part => return Ok(taken(part?, needed, start, ahead)),
            }
            let _one = self.memory.whole_group.lock().await;
            let shards = self.gather_part(group, needed, &whole).await?;
            return Ok(taken(shards, needed, 0, ahead));
        }
        Ok(taken(self.gather_part(group, needed, &whole).await?, needed, 0, ahead))
    }

    /// Returns the most bytes that so many chunks of a group take while they are read.
    pub(super) fn most_of_group(
        &self,
        group: &Group<'_>,
        needed: usize,
        segments: Option<Range<u32>>,
    ) -> usize {
        let window = window(group, segments.as_ref());
        let rebuilt_at_most = needed.min(group.ec.parity());
        (window.end - window.start) as usize * (group.data.len() + rebuilt_at_most)
    }

    /// Fetches, or rebuilds, the stored bytes `window` of the needed chunks.
    async fn gather_part(
        &self,
        group: &Group<'_>,
        needed: &[usize],
        window: &Range<u32>,
    ) -> Result<Vec<Shard>, Failure> {
        let shard = |position| self.shard(group, position, needed, window);
        let mut shards: Vec<Shard> = (0..group.ec.width()).map(shard).collect();
        let extra = match group.race() {
            // A read of a part of the group asks for no extra chunks.
            Race::Extra(extra) if needed.len() == group.data.len() => extra.into(),
            _ => 0,
        };
        let code = Code { data: group.ec.data(), extra, hedged: group.race() != Race::Off };
        match self.gather(code, needed, &mut shards).await {
            Gathered::All => {}
            Gathered::Enough => self.rebuild(group, needed, &mut shards, window.clone()).await?,
            Gathered::TooFew => return Err(self.too_few(group, &shards)),
        }
        Ok(shards)
    }

    fn shard(
        &self,
        group: &Group<'_>,
        position: usize,
        needed: &[usize],
        window: &Range<u32>,
    ) -> Shard {
        let request = group.chunk(position).and_then(|(name, len)| {
            let here = clip(window, len);
            let part = (here != (0..len)).then(|| here.clone());
            // A chunk that only serves to rebuild others is needed as it is stored.
            let request = match group.entry(position).filter(|_| needed.contains(&position)) {
                Some(entry) => ChunkRequest { part, ..chunk_request(entry, group.key(), None) },
                None => ChunkRequest { name, len, part, seal: None },
            };
            (!here.is_empty()).then_some(request)
        });
        Shard::new(request, self.donors.sources(group.holders(position)))
    }

    /// Rebuilds the stored bytes `window` of the needed chunks that are not there, and verifies them.
    async fn rebuild(
        &self,
        group: &Group<'_>,
        needed: &[usize],
        shards: &mut [Shard],
        window: Range<u32>,
    ) -> Result<(), Failure> {
        let lacking: Vec<usize> =
            needed.iter().copied().filter(|at| shards[*at].had.is_none()).collect();
        let len = (window.end - window.start) as usize;
        let mut rebuilt = Vec::with_capacity(lacking.len());
        for _ in &lacking {
            rebuilt.push(self.memory.buffers.claim(len).await.buffer(len));
        }
        let work = Rebuild {
            codec: Codec::new(group.ec),
            key: group.key().cloned(),
            entries: (0..group.data.len())
                .filter_map(|position| group.entry(position).copied())
                .collect(),
            had: shards.iter_mut().map(|shard| shard.had.take()).collect(),
            opened: shards
                .iter()
                .map(|shard| shard.request.as_ref().is_some_and(|asked| asked.seal.is_some()))
                .collect(),
            whole: window == (0..group.len),
            window,
            lacking,
            rebuilt,
        };
        let count = work.lacking.len() as u64;
        tracing::debug!(lacking = ?work.lacking, "rebuilding chunks of a group");
        let whole = self.client.env.offload.run(move || work.run()).await.map_err(|name| {
            let what = format!("chunk {}… is not what its group gives back", short(&name));
            Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
                .hint("its parity does not fit its data: restore the file from its source")
        })?;
        for (shard, had) in shards.iter_mut().zip(whole) {
            shard.had = had;
        }
        self.failovers.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn too_few(&self, group: &Group<'_>, shards: &[Shard]) -> Failure {
        let states = self.states(shards);
        let is_lost = |(_, state): &(_, &ShardState)| **state == ShardState::Lost;
        let lost = || shards.iter().zip(&states).filter(is_lost).map(|(shard, _)| shard);
        let reasons: BTreeSet<String> = lost()
            .flat_map(|shard| &shard.faults)
            .map(|(donor, error)| self.donors.fault(*donor, error))
            .collect();
        let unknown = lost().filter(|shard| shard.requests.no_source()).count();
        let mut what = format!(
            "of a group of {} that needs {}, {} cannot be had",
            count((group.data.len() + group.ec.parity()) as u64, "chunk"),
            group.data.len(),
            lost().count()
        );
        if !reasons.is_empty() {
            what += ": ";
            what += &reasons.into_iter().collect::<Vec<_>>().join("; ");
        }
        if unknown > 0 {
            what += &format!("; {unknown} on no donor that is known");
        }
        let spoiled = |shard: &Shard| {
            !shard.faults.is_empty()
                && shard.faults.iter().all(|(_, error)| *error == LinkError::WrongBytes)
        };
        if lost().all(spoiled) {
            return Failure::new(ErrorKind::Integrity, code::UNREADABLE, what)
                .hint("too many chunks are damaged: restore the file from its source");
        }
        Failure::new(ErrorKind::Retry, code::UNREADABLE, what)
            .hint("see `potluck status`, and try again when the donors are back")
    }
}

fn short(name: &ChunkName) -> String {
    name.to_string()[..12].to_owned()
}

/// The input of rebuilding, which takes much CPU time, so that it runs on another thread.
struct Rebuild {
    codec: Codec,
    key: Option<SpaceKey>,
    /// The data chunks' entries in the recipe.
    entries: Vec<Entry>,
    /// The chunks that were had, by position.
    had: Vec<Option<Buffer>>,
    /// True for each chunk of a sealed space that is to end as plaintext, which those that were had are already.
    opened: Vec<bool>,
    /// The range of stored bytes of every chunk that is rebuilt, in whole segments.
    window: Range<u32>,
    /// True if the range covers the whole chunks.
    whole: bool,
    lacking: Vec<usize>,
    /// Buffers for the chunks that are rebuilt.
    rebuilt: Vec<Buffer>,
}

impl Rebuild {
    /// Rebuilds the missing chunks and returns the group, as plaintext where it is needed; fails with the name of a
    /// chunk that came out wrong.
    fn run(mut self) -> Result<Vec<Option<Buffer>>, ChunkName> {
        // Chunks that were opened on arrival are sealed again, which costs less than to fetch them sealed.
        self.apply_ciphers();
        let lacking = self.lacking.iter().map(|position| &self.entries[*position]);
        let mut verifiers: Vec<_> = lacking.map(|entry| Verifier::new(entry.name)).collect();
        let len = self.rebuilt.first().map_or(0, |bytes| bytes.len());
        for at in (0..len).step_by(PIECE) {
            let piece = at..(at + PIECE).min(len);
            self.rebuild_piece(&piece).map_err(|_| self.entries[self.lacking[0]].name)?;
            // The piece is hashed while it is in the processor's cache.
            let named = self.lacking.iter().zip(&self.rebuilt).zip(&mut verifiers);
            for ((position, bytes), verifier) in named {
                let stored = &bytes[..self.part(*position).len()];
                verifier.update(part(stored, &piece));
            }
        }
        let rebuilt = std::mem::take(&mut self.rebuilt);
        let rebuilt = self.lacking.iter().zip(rebuilt).zip(verifiers);
        for ((position, mut bytes), verifier) in rebuilt {
            let entry = &self.entries[*position];
            bytes.bytes_mut().truncate(self.part(*position).len());
            let right = match self.whole {
                true => verifier.finish().is_ok(),
                false => self.gives_back(*position, &bytes),
            };
            if !right {
                return Err(entry.name);
            }
            self.had[*position] = Some(bytes);
            self.opened[*position] = entry.sealed;
        }
        self.apply_ciphers();
        Ok(self.had)
    }

    /// Returns the stored bytes of a data chunk that are inside the range.
    fn part(&self, position: usize) -> Range<u32> {
        clip(&self.window, self.entries[position].len)
    }

    /// Rebuilds a piece of every missing chunk from the same piece of those that were had.
    fn rebuild_piece(&mut self, piece: &Range<usize>) -> Result<(), TooFew> {
        let mut rebuilt = std::mem::take(&mut self.rebuilt);
        let mut out: Vec<&mut [u8]> =
            rebuilt.iter_mut().map(|bytes| &mut bytes[piece.clone()]).collect();
        let outcome = self.codec.rebuild(&self.shards(piece), &self.lacking, &mut out);
        self.rebuilt = rebuilt;
        outcome
    }

    /// Returns this piece of every chunk that was had.
    fn shards<'a>(&'a self, piece: &Range<usize>) -> Vec<Option<&'a [u8]>> {
        let data = self.codec.ec().data();
        // The rest of a short group or of a short chunk is zeros.
        let zeros = |position: usize| {
            position < data
                && self.entries.get(position).is_none_or(|_| self.part(position).is_empty())
        };
        let shard = |(position, had): (usize, &'a Option<Buffer>)| match had {
            _ if zeros(position) => Some(&[][..]),
            had => had.as_ref().map(|bytes| part(bytes, piece)),
        };
        self.had.iter().enumerate().map(shard).collect()
    }

    /// Returns whether a rebuilt chunk, together with the others that it was rebuilt from, gives back a parity chunk
    /// that it was rebuilt from, too. Codecs that compute with the widest registers have been wrong in silence.
    fn gives_back(&self, position: usize, rebuilt: &[u8]) -> bool {
        let (data, len) = (self.codec.ec().data(), (self.window.end - self.window.start) as usize);
        let Some(parity) = (data..self.had.len()).find(|at| self.had[*at].is_some()) else {
            return false;
        };
        let mut shards = self.shards(&(0..len));
        (shards[position], shards[parity]) = (Some(rebuilt), None);
        let mut again = vec![0; len];
        let rebuilt = self.codec.rebuild(&shards, &[parity], &mut [&mut again]);
        rebuilt.is_ok() && self.had[parity].as_deref() == Some(&again)
    }

    /// Seals the data chunks that are to end as plaintext, or opens them.
    fn apply_ciphers(&mut self) {
        let Some(key) = &self.key else { return };
        for (position, entry) in self.entries.iter().enumerate() {
            if let (Some(bytes), true) = (&mut self.had[position], self.opened[position]) {
                let cipher = key.cipher(Meaning::Chunk, &entry.digest);
                cipher.apply(self.window.start / SEGMENT, bytes.bytes_mut());
            }
        }
    }
}

/// Returns the range of bytes that is read of each chunk of a group for these segments of one of them, which may end
/// before others.
fn window(group: &Group<'_>, segments: Option<&Range<u32>>) -> Range<u32> {
    segments.map_or(0..group.len, |segments| {
        segments.start * SEGMENT..(segments.end * SEGMENT).min(group.len)
    })
}

/// Returns the part of a window that a chunk of `len` stored bytes has.
fn clip(window: &Range<u32>, len: u32) -> Range<u32> {
    window.start.min(len)..window.end.min(len)
}

/// Returns the part of a piece that a chunk, which may be a shorter one, has.
fn part<'a>(chunk: &'a [u8], piece: &Range<usize>) -> &'a [u8] {
    &chunk[piece.start.min(chunk.len())..piece.end.min(chunk.len())]
}

#[cfg(test)]
mod tests;
