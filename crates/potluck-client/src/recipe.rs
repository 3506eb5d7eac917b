//! Recipes of opened files: the manager's answer about a file, believed as far as it is consistent.

use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::clock::Tick;
use potluck_core::erasure::Ec;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::merkle::SEGMENT;
use potluck_core::policy::Race;
use potluck_core::read_plan::{Piece, chunks_of_range};
use potluck_core::recipe::{self, Content, Entry, Span};
use potluck_core::seal::{Meaning, SpaceKey, SpaceKeys};
use potluck_wire::control::OpenFile;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A file as it was when it was opened.
pub struct Recipe {
    /// The manager's answer about the file, without its holders, pages and inline content, which the other fields have.
    pub file: OpenFile,
    /// The key that opens the chunks, if they are sealed.
    pub key: Option<SpaceKey>,
    /// The version of the file and the number of the part, where this is a part of a file.
    pub part: Option<(VersionId, u32)>,
    /// The bytes of the file that come before this part of it; 0 where this is a whole file.
    pub begins_at: u64,
    holders: Mutex<Arc<Holders>>,
    /// The moment at which the manager was last asked where the chunks are. The lock is held during such a call.
    pub(crate) reopened: tokio::sync::Mutex<Option<Tick>>,
    /// True if another version, or none, was at the path of the file when the manager was last asked.
    changed: AtomicBool,
    /// The chunks of the file in order.
    pub entries: Vec<Entry>,
    /// The bytes of the file that each chunk has; all others are zeros.
    places: Vec<Range<u64>>,
    /// The content of a file that lives in the catalog, as plaintext.
    pub inline: Option<Vec<u8>>,
}

/// Returns the key of those that the manager gave which opens a file, if the file is sealed.
///
/// Errors: [`code::CHANGED`] where that key is not among them; [`code::WRONG_BYTES`] for a file that is not sealed as its
/// space is.
pub fn key_of<'k>(keys: &'k SpaceKeys, file: &OpenFile) -> Result<Option<&'k SpaceKey>, Failure> {
    match file.key {
        // What is empty, or in parts, has no content of its own.
        None if keys.is_empty() || file.size == 0 || file.part_count > 0 => Ok(None),
        None => {
            let what = format!("“{}” is not sealed as its space is", file.path);
            Err(Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
                .hint("the catalog is damaged: tell the pool's admin"))
        }
        Some(number) => keys.get(number).map(Some).ok_or_else(|| changed(&file.path)),
    }
}

/// Returns the failure of a read of a version whose chunks are not there any more (promise A5).
pub fn changed(path: &str) -> Failure {
    let what = format!("“{path}” was replaced, moved or removed while it was read");
    Failure::new(ErrorKind::Retry, code::CHANGED, what)
        .hint("read it again: what was read until now is of the version that was there before")
}

/// The donors that have the chunks of a file, as the manager said last, live ones first.
struct Holders {
    data: Vec<Vec<DonorId>>,
    parity: Vec<Vec<DonorId>>,
}

impl Holders {
    fn take_from(file: &mut OpenFile) -> Mutex<Arc<Self>> {
        let (data, parity) = (&mut file.holders, &mut file.parity_holders);
        Mutex::new(Arc::new(Self { data: std::mem::take(data), parity: std::mem::take(parity) }))
    }
}

impl Recipe {
    /// Checks that the manager's answer is consistent: the chunks must add up to the size and, as far as they tell it,
    /// to the digest of the file, and be sealed exactly if there is a `key`.
    ///
    /// Errors: [`code::WRONG_BYTES`] where the answer is not consistent.
    pub fn check(mut file: OpenFile, key: Option<&SpaceKey>) -> Result<Self, Failure> {
        let wrong = |what: String| {
            Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
                .hint("the catalog is damaged: tell the pool's admin")
        };
        let not_its_digest = format!("“{}” is not what its digest says", file.path);
        let (mut entries, mut places) = (Vec::new(), Vec::new());
        let size;
        let inline = match file.inline.take() {
            Some(blob) => {
                let mut content = blob.0;
                if let Some(key) = key {
                    key.cipher(Meaning::Inline, &file.digest).apply(0, &mut content);
                }
                size = content.len() as u64;
                if Digest::of(&content) != file.digest {
                    return Err(wrong(not_its_digest));
                }
                Some(content)
            }
            None => {
                let pages = std::mem::take(&mut file.pages);
                let pages = pages.iter().map(|page| &page.0[..]);
                let content = recipe::unpack(&file.digest, pages)
                    .map_err(|why| wrong(format!("“{}”: {why}", file.path)))?;
                if content.digest().is_some_and(|digest| digest != file.digest) {
                    return Err(wrong(not_its_digest));
                }
                // Without its key a sealed chunk is not the content, whatever its name says; and
                // in a sealed space nothing else is stored.
                if content.chunks.iter().any(|entry| entry.sealed != key.is_some()) {
                    let what = format!("“{}” is not sealed as its space is", file.path);
                    return Err(wrong(what));
                }
                size = content.size();
                places = places_of(&content);
                entries = content.chunks;
                None
            }
        };
        if size != file.size {
            return Err(wrong(format!("the recipe of “{}” does not add up", file.path)));
        }
        let parity = file.ec.map_or(0, |ec| ec.group_count(entries.len()) * ec.parity());
        if file.parity.0.len() != parity {
            return Err(wrong(format!("the parity of “{}” does not add up", file.path)));
        }
        let holders = Holders::take_from(&mut file);
        let (part, begins_at, reopened, changed) = Default::default();
        let key = key.cloned();
        Ok(Self { file, key, part, begins_at, holders, reopened, changed, entries, places, inline })
    }

    /// Returns the donors that have a chunk.
    pub fn holders(&self, chunk: usize) -> Vec<DonorId> {
        self.holders_now().data.get(chunk).cloned().unwrap_or_default()
    }

    fn holders_now(&self) -> Arc<Holders> {
        Arc::clone(&self.holders.lock().expect("no holder panics"))
    }

    /// Lists the names of the chunks, data before parity.
    pub fn names(&self) -> impl Iterator<Item = ChunkName> {
        self.entries.iter().map(|entry| entry.name).chain(self.file.parity.0.iter().copied())
    }

    /// Takes over which donors have the chunks now; a chunk that is not in `at` has none.
    pub fn located(&self, at: &BTreeMap<ChunkName, Vec<DonorId>>) {
        let holders = |name: &ChunkName| at.get(name).cloned().unwrap_or_default();
        let data = self.entries.iter().map(|entry| holders(&entry.name)).collect();
        let parity = self.file.parity.0.iter().map(holders).collect();
        *self.holders.lock().expect("no holder panics") = Arc::new(Holders { data, parity });
    }

    /// Takes over where the chunks are from the manager's new answer `now` for the path. If there is another version,
    /// or no file, only that is noted: this version may be gone.
    pub fn moved(&self, now: Option<OpenFile>) {
        // Sealed with another key, a version has other chunks.
        let same = |file: &OpenFile| (file.version, file.key) == (self.file.version, self.file.key);
        let now = now.filter(same);
        self.changed.store(now.is_none(), Ordering::Relaxed);
        if let Some(mut now) = now {
            let now = Holders::take_from(&mut now).into_inner().expect("no holder panics");
            *self.holders.lock().expect("no holder panics") = now;
        }
    }

    /// Returns whether the file was replaced, moved or removed when the manager was last asked.
    pub fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// Returns the offset at which a chunk begins in the file.
    pub fn offset(&self, chunk: usize) -> u64 {
        self.places[chunk].start
    }

    /// Returns the first bytes from `at` on that chunks have; `None` where only zeros follow.
    pub fn data_from(&self, at: u64) -> Option<Range<u64>> {
        let first = self.places.partition_point(|place| place.end <= at);
        let mut rest = self.places[first..].iter();
        let found = rest.next()?.clone();
        let joined =
            |end, next: &Range<u64>| if next.start == end { Ok(next.end) } else { Err(end) };
        let end = rest.try_fold(found.end, joined).unwrap_or_else(|end| end);
        Some(found.start.max(at)..end)
    }

    /// Returns the pieces of a range that are not zeros, in order, by the units that are fetched together: the whole
    /// chunks of a group, or one chunk without an erasure code. A chunk of which only some segments are needed is a unit
    /// of its own.
    pub fn units(&self, range: Range<u64>) -> Vec<Vec<Piece>> {
        let size = self.file.ec.map_or(1, Ec::data);
        let pieces = chunks_of_range(&self.places, range);
        let whole = |piece: &Piece| self.segments(piece).is_none();
        let same = |a: &Piece, b: &Piece| a.index / size == b.index / size && whole(a) && whole(b);
        pieces.chunk_by(same).map(<[Piece]>::to_vec).collect()
    }

    /// Returns the segments that a piece is in, if they are not all segments of its chunk.
    pub fn segments(&self, piece: &Piece) -> Option<Range<u32>> {
        let segments = piece.skip / SEGMENT..(piece.skip + piece.take).div_ceil(SEGMENT);
        (segments != (0..self.entries[piece.index].segments())).then_some(segments)
    }

    /// Returns the stored bytes of the longest chunk.
    pub fn largest_chunk(&self) -> usize {
        self.entries.iter().map(|entry| entry.len).max().unwrap_or(0) as usize
    }

    /// Returns the most stored bytes that reading one unit takes: all chunks of a group, parity included.
    pub fn largest_unit(&self) -> usize {
        self.largest_chunk() * self.file.ec.map_or(1, Ec::width)
    }

    /// Returns the group that a chunk is in.
    pub fn group(&self, ec: Ec, chunk: usize) -> Group<'_> {
        let number = chunk / ec.data();
        let first = number * ec.data();
        let last = (first + ec.data()).min(self.entries.len());
        let (data, parity) = (first..last, number * ec.parity()..(number + 1) * ec.parity());
        let len = self.entries[data.clone()].iter().map(|entry| entry.len).max().unwrap_or(0);
        Group { recipe: self, holders: self.holders_now(), ec, data, parity, len }
    }
}

fn places_of(content: &Content) -> Vec<Range<u64>> {
    let (mut places, mut at) = (Vec::with_capacity(content.chunks.len()), 0);
    for span in content.spans() {
        if let Span::Chunk(_) = span {
            places.push(at..at + span.bytes());
        }
        at += span.bytes();
    }
    places
}

/// Returns [`Recipe::largest_chunk`] and [`Recipe::largest_unit`] of a file whose recipe is not checked yet, or more.
pub fn largest(file: &OpenFile) -> (usize, usize) {
    let first = || recipe::unpack_page(&file.pages.first()?.0).ok()?.chunks.first().copied();
    // In a file that is cut by size the first chunk is no shorter than the others. One that is cut by content has no
    // erasure code, and its chunks may have up to `chunk_size` bytes, wherever the first ends.
    let most = file.chunk_size.min(u32::try_from(file.size).unwrap_or(u32::MAX));
    let longest = |first: Entry| match file.ec {
        Some(_) => first,
        None => Entry { len: first.len.max(most), ..first },
    };
    let chunk = match file.part_count == 0 {
        true => first().map_or(0, |first| longest(first).len),
        false => file.chunk_size,
    } as usize;
    (chunk, chunk * file.ec.map_or(1, Ec::width))
}

/// A group of an erasure-coded file. Its chunks are counted by position: data from 0, parity from m. Positions between,
/// which a short group does not fill, stand for zeros.
#[derive(Clone)]
pub struct Group<'a> {
    recipe: &'a Recipe,
    holders: Arc<Holders>,
    /// The erasure code of the group.
    pub ec: Ec,
    /// The indexes of the group's data chunks in the file.
    pub data: Range<usize>,
    /// The indexes of the group's parity chunks among all parity chunks of the file.
    parity: Range<usize>,
    /// The stored bytes of the longest chunk of the group.
    pub len: u32,
}

impl Group<'_> {
    /// Returns the key that opens the data chunks, if they are sealed.
    pub fn key(&self) -> Option<&SpaceKey> {
        self.recipe.key.as_ref()
    }

    /// Returns the data chunk at a position; `None` for zeros and parity.
    pub fn entry(&self, position: usize) -> Option<&Entry> {
        self.recipe.entries[self.data.clone()].get(position)
    }

    /// Returns the name and stored bytes of the chunk at a position; `None` for zeros.
    pub fn chunk(&self, position: usize) -> Option<(ChunkName, u32)> {
        match position.checked_sub(self.ec.data()) {
            None => self.entry(position).map(|entry| (entry.name, entry.len)),
            Some(at) => Some((self.recipe.file.parity.0[self.parity.clone()][at], self.len)),
        }
    }

    /// Returns the donors that hold the chunk at a position.
    pub fn holders(&self, position: usize) -> &[DonorId] {
        let holders = match position.checked_sub(self.ec.data()) {
            None if position < self.data.len() => self.holders.data.get(self.data.start + position),
            None => None,
            Some(at) => self.holders.parity.get(self.parity.start + at),
        };
        holders.map_or(&[], Vec::as_slice)
    }

    /// Returns how the requests for chunks of this group race.
    pub fn race(&self) -> Race {
        self.recipe.file.race
    }
}

#[cfg(test)]
mod tests;
