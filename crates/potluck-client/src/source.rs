//! The sources of stored files: local files and streams, which are cut into named chunks, with an erasure code into
//! groups of chunks with their parity.

mod by_content;
mod current;
mod parity;

use crate::attributes::Attributes;
use crate::body::{Body, FileRange};
use crate::buffer::{Buffer, Claim};
use crate::content_reader::ContentReader;
use current::Current;
use parity::Grouping;
use potluck_core::attributes::{FileOwner, FileTime, Permissions};
use potluck_core::chunk::{ChunkHasher, ChunkName, Digest, INLINE_MAX};
use potluck_core::erasure::Ec;
use potluck_core::file_metadata::FileMetadata;
use potluck_core::merkle::SegmentHashes;
use potluck_core::origin::Origin;
use potluck_core::path::PoolPath;
use potluck_core::policy::Policy;
use potluck_core::recipe::{self, Entry};
use potluck_core::seal::{Meaning, SpaceKey};
use potluck_wire::bulk::PIECE;
use potluck_wire::control::Condition;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The size from which chunks are left in their local file, if they are stored as they are there. Each such chunk keeps
/// its file open; smaller chunks that are cut ahead could be more than the files that a process may open.
const LEFT_IN_FILE: usize = 1 << 20;
/// The most small files that are cut in one go, so that handing work between threads costs less than the work.
const FILES_PER_UNIT: usize = 64;

/// The source of a file's bytes.
pub enum Input {
    /// A local file, which is opened when its turn comes, and stored with the permission bits of its mode but no owner.
    File(PathBuf),
    /// A local file that is stored with its owner and all bits of its mode.
    Archived(PathBuf),
    /// A stream of unknown length.
    Stream(Box<dyn Read + Send>),
    /// The bytes that a writer feeds its cutter.
    #[doc(hidden)]
    Fed(Box<dyn ContentReader>),
    /// A file from elsewhere, with what is known of it.
    Reader {
        /// The reader of its content.
        reader: Box<dyn ContentReader>,
        /// The size of the file in bytes, as far as is known before it is read.
        bytes: u64,
        /// The time at which the file was modified.
        mtime: FileTime,
        /// The permissions of the file.
        permissions: Permissions,
        /// The owner of the file, if it is known.
        owner: Option<FileOwner>,
    },
}

/// One file to store.
pub struct Item {
    /// The path at which the file becomes visible.
    pub path: PoolPath,
    /// The source of the file's bytes.
    pub input: Input,
}

impl Item {
    /// Returns the item once more; `None` if its source can be read only once.
    pub(crate) fn again(&self) -> Option<Self> {
        let input = match &self.input {
            Input::File(local) => Input::File(local.clone()),
            Input::Archived(local) => Input::Archived(local.clone()),
            Input::Stream(_) | Input::Fed(_) | Input::Reader { .. } => return None,
        };
        Some(Self { path: self.path.clone(), input })
    }
}

/// The files to store, in order. The iterator may find files while earlier ones are being sent.
pub type Items = Box<dyn Iterator<Item = Item> + Send>;

/// A result of cutting, in the order of the files' bytes.
pub enum Cut {
    /// A group of file number `file`; without an erasure code one chunk.
    Group {
        /// The number of the file in its session.
        file: u32,
        /// The data chunks of the group in order: what goes into the recipe, and the bytes to store.
        data: Vec<(Entry, Body)>,
        /// The parity chunks of the group in order; none without an erasure code.
        parity: Vec<(ChunkName, Body)>,
    },
    /// File number `file` has so many zeros next, which are stored in no chunk. They are all in one part.
    Hole {
        /// The number of the file in its session.
        file: u32,
        /// The number of zeros.
        len: u64,
    },
    /// File number `file` has so many whole parts of zeros next, and more follows.
    HoleParts {
        /// The number of the file in its session.
        file: u32,
        /// The number of parts.
        count: u32,
    },
    /// File number `file` has the chunks of a part so far, and more follow.
    PartEnd {
        /// The number of the file in its session.
        file: u32,
        /// The path at which the file becomes visible.
        path: PoolPath,
        /// The digest of the part.
        digest: Digest,
    },
    /// File number `file` is complete.
    End {
        /// The number of the file in its session.
        file: u32,
        /// The facts about the file.
        facts: Facts,
    },
    /// File number `file` could not be cut.
    Failed {
        /// The number of the file in its session.
        file: u32,
        /// The path of the file in the pool.
        path: PoolPath,
        /// The reason why the file could not be cut.
        error: CutError,
    },
}

/// The reason why a file could not be cut.
#[derive(Debug, thiserror::Error)]
pub enum CutError {
    /// The source could not be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The source changed while it was read, so that what was read may never have been its content.
    #[error("the local file changed while it was read, so nothing of it is stored")]
    Changed,
    /// The encoded chunks do not decode to what they were made from (promise I2).
    #[error("its erasure code does not give back what was encoded")]
    Miscoded,
}

impl CutError {
    /// Returns the failure by which people are told of the error.
    pub fn failure(&self) -> Failure {
        match self {
            CutError::Read(error) => {
                // The file that is read may itself be in a pool.
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Failure>());
                if let Some(failure) = inner {
                    return failure.clone();
                }
                Failure::new(ErrorKind::Other, code::LOCAL_IO, format!("cannot read it: {error}"))
                    .hint("check that the file exists and that you may read it")
            }
            CutError::Changed => Failure::new(ErrorKind::Partial, code::CHANGED, self.to_string())
                .hint("copy it when nothing writes to it; --allow-changing stores a log as it is read"),
            CutError::Miscoded => {
                Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, self.to_string())
                    .hint("check the memory of this machine; nothing of the file was stored")
            }
        }
    }
}

/// The facts about a file that was read to its end.
pub struct Facts {
    /// The path at which the file becomes visible.
    pub path: PoolPath,
    /// The size of the file in bytes of plaintext.
    pub size: u64,
    /// The digest of the file's plaintext.
    pub digest: Digest,
    /// The digest of the last part of the file; for a file without parts, that of the whole file.
    pub last_part: Digest,
    /// The attributes of the file, as far as its source tells.
    pub attributes: Attributes,
    /// What the writer notes of the file for other programs.
    pub metadata: Option<Box<FileMetadata>>,
    /// True if the length of the file was not known when it was opened.
    pub stream: bool,
    /// The condition under which the file may replace what is at its path; `None` for that of its session.
    pub condition: Option<Condition>,
    /// The place that the file is imported from, if it is.
    pub origin: Option<Box<Origin>>,
    /// The content, when it fits the catalog; sealed in a sealed space.
    pub inline: Option<Vec<u8>>,
}

/// A cutter of files into chunks. It blocks on reading and uses the CPU for hashing and sealing, so it belongs on a
/// thread that may do both.
pub struct Cutter {
    items: Items,
    chunk_size: usize,
    /// True if the content says where chunks end.
    by_content: bool,
    /// The size of each part of a file but the last, in bytes.
    part_bytes: u64,
    key: Option<SpaceKey>,
    grouping: Option<Grouping>,
    /// True if small content goes into the catalog.
    inline: bool,
    /// True if local files may change while they are read.
    allow_changing: bool,
    next_file: Arc<AtomicU32>,
    current: Option<Current>,
    /// A buffer for pieces of chunks that are left in their file; empty until the first such chunk.
    piece: Vec<u8>,
}

impl Cutter {
    /// Makes a cutter of `items` as `policy` says, which seals with `key` if there is one, and numbers files from
    /// `next_file` on.
    pub fn new(
        items: Items,
        policy: &Policy,
        key: Option<SpaceKey>,
        next_file: Arc<AtomicU32>,
    ) -> Self {
        Self {
            items,
            chunk_size: policy.chunk_size as usize,
            by_content: policy.is_cut_by_content(),
            part_bytes: recipe::part_bytes(policy.chunk_size, policy.is_cut_by_content()),
            key,
            grouping: policy.ec.map(Grouping::new),
            inline: true,
            allow_changing: false,
            next_file,
            current: None,
            piece: Vec::new(),
        }
    }

    /// Returns this cutter set to cut even the smallest content into chunks.
    pub fn without_inline(self) -> Self {
        Self { inline: false, ..self }
    }

    /// Returns this cutter set to take local files as they are read, if `allowed`, though they change meanwhile.
    pub fn allowing_changes(self, allowed: bool) -> Self {
        Self { allow_changing: allowed, ..self }
    }

    /// Returns the bytes of buffers that are to be claimed for one call of [`Cutter::next`] under `policy`.
    pub fn room(policy: &Policy) -> usize {
        // The last group of a unit may begin when almost a chunk's worth is cut already.
        policy.chunk_size as usize * policy.ec.map_or(1, |ec| ec.width() + 1)
    }

    /// Cuts until a chunk's worth of bytes is reached, or the next chunk would exceed it, or a number of small files are
    /// done, into buffers that count against `claim` ([`Cutter::room`]); returns nothing when all files are done.
    pub fn next(&mut self, mut claim: Claim) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let (mut bytes, mut files) = (0, 0);
        while bytes < self.chunk_size && files < FILES_PER_UNIT {
            let Some(mut current) = self.current.take().or_else(|| self.open_next(&mut cuts))
            else {
                break;
            };
            // With an erasure code the claim has room for another whole group.
            if bytes > 0
                && self.grouping.is_none()
                && bytes + current.next_len(self.chunk_size) > self.chunk_size
            {
                self.current = Some(current);
                break;
            }
            let cut = self.cut_one(&mut current, &mut claim).and_then(|piece| match piece {
                Some(Piece::Hole(len)) => {
                    let chunk = self.chunk_size as u64;
                    current.add_hole(len, chunk, self.part_bytes, &mut cuts)?;
                    Ok(piece)
                }
                piece => Ok(piece),
            });
            match cut {
                Ok(Some(Piece::Hole(_))) => self.current = Some(current),
                Ok(Some(Piece::Group { data, parity })) => {
                    bytes += data.iter().map(|(_, body)| body.len()).sum::<usize>();
                    bytes += parity.iter().map(|(_, body)| body.len()).sum::<usize>();
                    let goes_on = self.by_content && !current.ended;
                    current.add(data, parity, &mut cuts);
                    self.current = Some(current);
                    if goes_on {
                        break; // a writer has fed its file no more than one chunk takes
                    }
                }
                Ok(Some(Piece::Inline(content))) => {
                    bytes += content.len();
                    files += 1;
                    cuts.push(current.end(Some(content)));
                }
                Ok(None) => {
                    files += 1;
                    cuts.push(current.end(None));
                }
                Err(error) => {
                    files += 1;
                    cuts.push(Cut::Failed { file: current.file, path: current.path, error });
                }
            }
        }
        cuts
    }

    /// Adds a chunk or group that the pool has, without reading it. All bytes of the file before it must be in chunks.
    pub fn keep(&mut self, (data, parity): RowBodies) -> Vec<Cut> {
        let mut cuts = Vec::new();
        let Some(mut current) = self.current.take().or_else(|| self.open_next(&mut cuts)) else {
            return cuts;
        };
        current.begin_part(self.part_bytes);
        for (entry, _) in &data {
            current.digest.push_chunk(&entry.digest, u64::from(entry.segments()));
            current.size += u64::from(entry.len);
        }
        current.add(data, parity, &mut cuts);
        self.current = Some(current);
        cuts
    }

    /// Adds zeros that no chunk is to have. All bytes of the file before them must be in chunks, or in holes, and fill
    /// whole rows ([`hole_of_rows`]); so must the zeros, unless they end the file.
    ///
    /// Errors: [`io::ErrorKind::FileTooLarge`] for a file of more parts than can be counted.
    pub fn hole(&mut self, len: u64) -> Result<Vec<Cut>, CutError> {
        let mut cuts = Vec::new();
        let Some(mut current) = self.current.take().or_else(|| self.open_next(&mut cuts)) else {
            return Ok(cuts);
        };
        current.add_hole(len, self.chunk_size as u64, self.part_bytes, &mut cuts)?;
        self.current = Some(current);
        Ok(cuts)
    }

    /// Returns the bytes that were read and are in no chunk yet.
    pub fn uncut(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |current| &current.uncut)
    }

    fn hole_of_rows(&self, at: u64, len: u64) -> u64 {
        let data = self.grouping.as_ref().map_or(1, |grouping| grouping.ec().data());
        let row = match self.by_content {
            true => self.part_bytes,
            false => (self.chunk_size * data) as u64,
        };
        hole_of_rows(row, self.part_bytes, at, len)
    }

    fn open_next(&mut self, cuts: &mut Vec<Cut>) -> Option<Current> {
        loop {
            let Item { path, input } = self.items.next()?;
            let file = self.next_file.fetch_add(1, Ordering::Relaxed);
            match Current::open(file, path.clone(), input) {
                Ok(current) => return Some(current),
                Err(error) => cuts.push(Cut::Failed { file, path, error: error.into() }),
            }
        }
    }

    fn cut_one(
        &mut self,
        current: &mut Current,
        claim: &mut Claim,
    ) -> Result<Option<Piece>, CutError> {
        let piece = self.cut_piece(current, claim)?;
        let is_last = !matches!(piece, Some(Piece::Group { .. } | Piece::Hole(_)));
        match is_last && !self.allow_changing && current.has_changed()? {
            true => Err(CutError::Changed),
            false => Ok(piece),
        }
    }

    fn cut_piece(
        &mut self,
        current: &mut Current,
        claim: &mut Claim,
    ) -> Result<Option<Piece>, CutError> {
        if current.ended {
            return Ok(None);
        }
        current.begin_part(self.part_bytes);
        if current.size == 0 && current.left.is_some_and(|left| left <= INLINE_MAX) {
            if let Some(content) = current.read_whole_if_small()? {
                return Ok(Some(Piece::Inline(self.seal_inline(content, current))));
            }
        } else if current.left == Some(0) && current.uncut.is_empty() && current.at_end()? {
            return Ok(None);
        }
        if let Some(hole) = current.skip_hole(|at, len| self.hole_of_rows(at, len))? {
            return Ok(Some(Piece::Hole(hole)));
        }
        match self.grouping.as_ref().map(Grouping::ec) {
            Some(ec) => self.cut_group(ec, current, claim),
            None if self.by_content => Ok(self.cut_by_content(current, claim)?),
            None => Ok(self.cut_chunk(current, claim)?),
        }
    }

    /// Cuts the next chunk of a local file and leaves its bytes there: it is hashed piece by piece, and not kept in
    /// memory. `None` at the end of the file, or for another source.
    fn cut_in_file(
        &mut self,
        current: &mut Current,
        claim: &mut Claim,
    ) -> io::Result<Option<Piece>> {
        let Some((file, offset)) = current.reader.local() else { return Ok(None) };
        let mut len = 0;
        let mut hasher = ChunkHasher::default();
        self.piece.resize(PIECE, 0);
        while len < self.chunk_size {
            let piece = &mut self.piece[..PIECE.min(self.chunk_size - len)];
            let read = current.fill(piece, |bytes| hasher.update(bytes))?;
            len += read;
            if read < piece.len() {
                break;
            }
        }
        current.ended = len < self.chunk_size;
        let hashes = hasher.finish();
        current.digest.push(&hashes);
        let digest = Digest(hashes.root());
        let (name, len) = (ChunkName(digest.0), len as u32);
        let entry = Entry { name, digest, len, sealed: false };
        let claim = claim.split(len as usize);
        let body = Body::File(FileRange::new(file, offset, len, claim));
        Ok((len > 0).then(|| Piece::Group { data: vec![(entry, body)], parity: Vec::new() }))
    }

    fn cut_chunk(&mut self, current: &mut Current, claim: &mut Claim) -> io::Result<Option<Piece>> {
        // The length of a stream is not known: a chunk that is not whole means its end.
        let want = current.most_left().clamp(1, self.chunk_size);
        let may_stay = self.key.is_none() && !self.allow_changing;
        if may_stay && want >= LEFT_IN_FILE && current.reader.local().is_some() {
            return self.cut_in_file(current, claim);
        }
        let mut body = claim.split(want).buffer(want);
        let mut hasher = ChunkHasher::default();
        let mut len = current.fill(&mut body, |bytes| hasher.update(bytes))?;
        if len < self.chunk_size && current.left == Some(0) && !current.at_end()? {
            // The file grew meanwhile, so a whole chunk is read, for only the last may be short.
            body.bytes_mut().resize(self.chunk_size, 0);
            len += current.fill(&mut body[len..], |bytes| hasher.update(bytes))?;
        }
        current.ended = len < self.chunk_size;
        body.bytes_mut().truncate(len);
        if len == 0 {
            return Ok(None);
        }
        if self.inline && current.is_small_stream() {
            return Ok(Some(Piece::Inline(self.seal_inline(body.to_vec(), current))));
        }
        let hashes = hasher.finish();
        current.digest.push(&hashes);
        let entry = self.seal_chunk(Digest(hashes.root()), &mut body);
        Ok(Some(Piece::Group { data: vec![(entry, Body::Memory(body))], parity: Vec::new() }))
    }

    fn cut_group(
        &mut self,
        ec: Ec,
        current: &mut Current,
        claim: &mut Claim,
    ) -> Result<Option<Piece>, CutError> {
        let raw = parity::read(ec, self.chunk_size, current, claim)?;
        if raw.is_empty() {
            return Ok(None);
        }
        if self.inline && current.is_small_stream() {
            let content = raw[0].1.to_vec();
            return Ok(Some(Piece::Inline(self.seal_inline(content, current))));
        }
        parity::add_to_digest(&mut current.digest, &raw);
        let seal = |(hashes, mut body): (SegmentHashes, Buffer)| {
            (self.seal_chunk(Digest(hashes.root()), &mut body), body)
        };
        let data: Vec<_> = raw.into_iter().map(seal).collect();
        let Some(grouping) = &mut self.grouping else { return Ok(None) };
        let parity = grouping.parity(&data, claim)?;
        let data = data.into_iter().map(|(entry, body)| (entry, Body::Memory(body))).collect();
        let parity = parity.into_iter().map(|(name, body)| (name, Body::Memory(body))).collect();
        Ok(Some(Piece::Group { data, parity }))
    }

    /// Seals the next chunk of a file if its space is sealed, and names it.
    fn seal_chunk(&self, digest: Digest, body: &mut Buffer) -> Entry {
        let len = body.len() as u32;
        let name = match &self.key {
            Some(key) => {
                key.cipher(Meaning::Chunk, &digest).apply(0, body.bytes_mut());
                ChunkName::of(body)
            }
            None => ChunkName(digest.0),
        };
        Entry { name, digest, len, sealed: self.key.is_some() }
    }

    fn seal_inline(&self, mut content: Vec<u8>, current: &mut Current) -> Vec<u8> {
        if content.is_empty() {
            return content;
        }
        let hashes = SegmentHashes::of(&content);
        current.digest.push(&hashes);
        let digest = Digest(hashes.root());
        if let Some(key) = &self.key {
            key.cipher(Meaning::Inline, &digest).apply(0, &mut content);
        }
        content
    }
}

/// The data chunks of a row, which are stored together, and its parity, with their names.
pub type RowBodies = (Vec<(Entry, Body)>, Vec<(ChunkName, Body)>);

/// The stored bytes of the data chunks of a row, and of its parity.
pub type RowBytes = (Vec<(Entry, Buffer)>, Vec<(ChunkName, Buffer)>);

/// Seals data chunks that were read again, and computes the parity of a group, so that both are the bytes that were
/// stored; the buffers for the parity count against `claim`.
///
/// Errors: [`CutError::Miscoded`].
pub fn cut_again(
    mut data: Vec<(Entry, Buffer)>,
    ec: Option<Ec>,
    key: Option<&SpaceKey>,
    mut claim: Claim,
) -> Result<RowBytes, CutError> {
    if let Some(key) = key {
        for (entry, body) in &mut data {
            key.cipher(Meaning::Chunk, &entry.digest).apply(0, body.bytes_mut());
        }
    }
    let parity = match ec {
        Some(ec) => Grouping::new(ec).parity(&data, &mut claim)?,
        None => Vec::new(),
    };
    Ok((data, parity))
}

/// Returns how many of the `len` zeros from `at` on can be a hole of a file that is cut into rows of `row` bytes: those of
/// its whole rows, so that the chunks around the hole are those that the file would have without it. The last row of a part
/// may be shorter. Where the content says where chunks end, only whole parts are rows.
pub fn hole_of_rows(row: u64, part: u64, at: u64, len: u64) -> u64 {
    let in_part = at % part;
    let left_in_part = part - in_part;
    match in_part % row {
        0 if len >= left_in_part => {
            let beyond = len - left_in_part;
            len - beyond % part % row
        }
        0 => len / row * row,
        _ => 0,
    }
}

enum Piece {
    Group {
        data: Vec<(Entry, Body)>,
        parity: Vec<(ChunkName, Body)>,
    },
    /// This many zeros are a hole, as the source says.
    Hole(u64),
    Inline(Vec<u8>),
}

#[cfg(test)]
mod tests;
