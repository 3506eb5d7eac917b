//! The file that is being cut: what was read of it, and what is known of its parts.

use super::{Cut, Facts, Input};
use crate::attributes::Attributes;
use crate::body::Body;
use crate::content_reader::{ContentReader, HoleAhead, LocalBytes, StreamedBytes};
use potluck_core::attributes::{FileOwner, FileTime, Permissions};
use potluck_core::chunk::{ChunkName, Digest, INLINE_MAX};
use potluck_core::erasure::Ec;
use potluck_core::file_digest::{FileDigest, digest_of_zeros};
use potluck_core::merkle::Tree;
use potluck_core::path::PoolPath;
use potluck_core::recipe::{Entry, PART_CHUNKS};
use potluck_wire::bulk::PIECE;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

/// A file that is being cut.
pub(super) struct Current {
    pub(super) file: u32,
    pub(super) path: PoolPath,
    pub(super) reader: Box<dyn ContentReader>,
    /// The number of bytes that the length of the file promises beyond those read; `None` for a stream, and for a file
    /// that has grown.
    pub(super) left: Option<u64>,
    /// True once the last chunk was cut; bytes that a growing file gets after that are not stored.
    pub(super) ended: bool,
    /// The number of bytes that were read.
    pub(super) size: u64,
    /// The last bytes that were read and are in no chunk yet, because the content ended the last chunk before them.
    pub(super) uncut: Vec<u8>,
    /// The number of chunks of the part that is being cut, with those that its holes take the place of.
    pub(super) in_part: usize,
    /// True if the part that is being cut has chunks or holes.
    pub(super) part_begun: bool,
    /// The digest of the part that is being cut.
    pub(super) digest: FileDigest,
    /// The digest of the last complete part, until it is known that more follows.
    pub(super) whole_part: Option<Digest>,
    /// The digests of all parts that are complete and followed by more.
    pub(super) parts: Tree,
    pub(super) mtime: Option<FileTime>,
    pub(super) permissions: Permissions,
    pub(super) owner: Option<FileOwner>,
    pub(super) stream: bool,
    /// The local file that is read, with its length and time of modification when it was opened.
    pub(super) opened: Option<(Arc<File>, u64, Option<FileTime>)>,
}

impl Current {
    pub(super) fn open(file: u32, path: PoolPath, input: Input) -> io::Result<Self> {
        let (mut owner, mut local) = (None, None);
        let is_archived = matches!(input, Input::Archived(_));
        let (reader, left, mtime, permissions): (Box<dyn ContentReader>, _, _, _) = match input {
            Input::Stream(reader) => {
                (Box::new(StreamedBytes(reader)), None, None, Permissions::FILE)
            }
            Input::Fed(reader) => (reader, None, None, Permissions::FILE),
            Input::Reader { reader, bytes, mtime, permissions, owner: given } => {
                owner = given;
                (reader, Some(bytes), Some(mtime), permissions)
            }
            Input::File(path) | Input::Archived(path) => {
                let opened = File::open(path)?;
                let about = opened.metadata()?;
                if about.is_dir() {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                // Devices and pipes report no length.
                let left = about.is_file().then_some(about.len());
                let mtime = about.modified().ok().map(FileTime::of_system);
                // The permissions of a pipe say nothing of the file that is made of what it brings.
                let mode = Permissions::of_mode(about.permissions().mode());
                let permissions = match (about.is_file(), is_archived) {
                    (true, true) => mode,
                    (true, false) => mode.nine_bits(),
                    (false, _) => Permissions::FILE,
                };
                let has_owner = is_archived && about.is_file();
                owner = has_owner.then(|| FileOwner { uid: about.uid(), gid: about.gid() });
                let reader: Box<dyn ContentReader> = match about.is_file() {
                    true => {
                        let opened = Arc::new(opened);
                        local = Some((Arc::clone(&opened), about.len(), mtime));
                        Box::new(LocalBytes::new(opened, 0))
                    }
                    false => Box::new(StreamedBytes(opened)),
                };
                (reader, left, mtime, permissions)
            }
        };
        Ok(Self {
            file,
            path,
            reader,
            left,
            ended: false,
            size: 0,
            uncut: Vec::new(),
            in_part: 0,
            part_begun: false,
            digest: FileDigest::default(),
            whole_part: None,
            parts: Tree::default(),
            mtime,
            permissions,
            owner,
            stream: left.is_none(),
            opened: local,
        })
    }

    /// Returns whether the local file that is read has another length or time of modification than when it was opened.
    pub(super) fn has_changed(&self) -> io::Result<bool> {
        let Some((file, len, mtime)) = &self.opened else { return Ok(false) };
        let about = file.metadata()?;
        let now = about.modified().ok().map(FileTime::of_system);
        Ok(about.len() != *len || now != *mtime)
    }

    /// Returns the most bytes that are still to be read; [`usize::MAX`] if that is not known. A buffer for no more of
    /// them is all that a chunk needs: one for a whole chunk would be filled with zeros for each small file.
    pub(super) fn most_left(&self) -> usize {
        let promised = self.left.map(|left| left as usize);
        promised.or_else(|| self.reader.left()).unwrap_or(usize::MAX)
    }

    /// Returns the most bytes that the next chunk may have.
    pub(super) fn next_len(&self, chunk_size: usize) -> usize {
        match (self.ended, self.left) {
            (true, _) => 0,
            (false, Some(left)) => chunk_size.min(self.uncut.len().saturating_add(left as usize)),
            (false, None) => chunk_size,
        }
    }

    /// Begins another part if the current one is full.
    pub(super) fn begin_part(&mut self, part_bytes: u64) {
        let cut = self.size - self.uncut.len() as u64;
        if self.part_begun && cut.is_multiple_of(part_bytes) {
            self.whole_part = Some(std::mem::take(&mut self.digest).finish());
            self.in_part = 0;
            self.part_begun = false;
        }
    }

    /// Adds the end of a part that is full to `cuts`, if more follows.
    fn end_part(&mut self, cuts: &mut Vec<Cut>) {
        if let Some(digest) = self.whole_part.take() {
            self.parts.push(digest.0);
            cuts.push(Cut::PartEnd { file: self.file, path: self.path.clone(), digest });
        }
    }

    /// Adds zeros that no chunk has to `cuts`. Parts that are nothing else are added together, but for the last, which the
    /// file may end with.
    ///
    /// Errors: [`io::ErrorKind::FileTooLarge`] for a file of more parts than can be counted.
    pub(super) fn add_hole(
        &mut self,
        len: u64,
        chunk_size: u64,
        part_bytes: u64,
        cuts: &mut Vec<Cut>,
    ) -> io::Result<()> {
        let (file, end) = (self.file, self.size.saturating_add(len));
        if end.div_ceil(part_bytes) > u32::MAX.into() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        while self.size < end {
            self.begin_part(part_bytes);
            self.end_part(cuts);
            let left = end - self.size;
            let parts = (left - 1) / part_bytes;
            if !self.part_begun && parts > 0 {
                self.parts.push_repeated(digest_of_zeros(part_bytes).0, 1, parts);
                cuts.push(Cut::HoleParts { file, count: parts as u32 });
                self.size += parts * part_bytes;
                continue;
            }
            let len = left.min(part_bytes - self.size % part_bytes);
            self.digest.push_zeros(len);
            self.size += len;
            self.in_part += len.div_ceil(chunk_size) as usize;
            self.part_begun = true;
            cuts.push(Cut::Hole { file, len });
        }
        Ok(())
    }

    /// Skips the hole that the source has next, as far as `hole_of` says that it can be one of the stored file, given its
    /// offset and length; returns how much it skipped.
    pub(super) fn skip_hole(
        &mut self,
        hole_of: impl Fn(u64, u64) -> u64,
    ) -> io::Result<Option<u64>> {
        let begins_row = hole_of(self.size, u64::MAX >> 2) > 0;
        let Some(left @ 1..) = self.left.filter(|_| begins_row && self.uncut.is_empty()) else {
            return Ok(None);
        };
        let hole = match self.reader.hole()? {
            HoleAhead::Zeros(zeros) if zeros < left => hole_of(self.size, zeros),
            HoleAhead::Zeros(_) | HoleAhead::ToTheEnd => left,
        };
        self.reader.skip(hole);
        self.left = Some(left - hole);
        Ok(Some(hole).filter(|hole| *hole > 0))
    }

    /// Adds a group to `cuts`, and before it the end of a part that is full.
    pub(super) fn add(
        &mut self,
        data: Vec<(Entry, Body)>,
        parity: Vec<(ChunkName, Body)>,
        cuts: &mut Vec<Cut>,
    ) {
        self.end_part(cuts);
        self.in_part += data.len();
        self.part_begun = true;
        cuts.push(Cut::Group { file: self.file, data, parity });
    }

    pub(super) fn end(mut self, inline: Option<Vec<u8>>) -> Cut {
        let last_part = self.whole_part.unwrap_or_else(|| self.digest.finish());
        self.parts.push(last_part.0);
        let Self { mtime, permissions, owner, .. } = self;
        let attributes = Attributes { mtime, permissions, owner, ..Attributes::default() };
        let facts = Facts {
            path: self.path,
            size: self.size,
            digest: Digest(self.parts.root()),
            last_part,
            attributes,
            metadata: None,
            stream: self.stream,
            condition: None,
            origin: None,
            inline,
        };
        Cut::End { file: self.file, facts }
    }

    /// Returns the most data chunks that the next group may have, as no group is in two parts.
    pub(super) fn most_of_group(&self, ec: Ec) -> usize {
        match PART_CHUNKS - self.in_part {
            0 => ec.data(),
            left => ec.data().min(left),
        }
    }

    /// Returns the whole content, if the file still fits the catalog; `None` for a stream, and for a file that has
    /// grown.
    pub(super) fn read_whole_if_small(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(left) = self.left else { return Ok(None) };
        let mut content = Vec::with_capacity(left as usize + 1);
        self.reader.by_ref().take(INLINE_MAX + 1).read_to_end(&mut content)?;
        self.size = content.len() as u64;
        self.left = Some(0);
        if self.size <= INLINE_MAX {
            return Ok(Some(content));
        }
        // The file has grown since, so the bytes that were read are taken as its beginning.
        self.put_back(content);
        self.size = 0;
        Ok(None)
    }

    /// Puts bytes back before those that are read next, where the file has more than its length promised.
    pub(super) fn put_back(&mut self, bytes: Vec<u8>) {
        let rest = std::mem::replace(&mut self.reader, Box::new(StreamedBytes(io::empty())));
        self.reader = Box::new(StreamedBytes(io::Cursor::new(bytes).chain(rest)));
        self.left = None;
    }

    /// Returns whether a stream brought so little that it fits the catalog. This is to be asked after a short read,
    /// which is the end of the stream.
    pub(super) fn is_small_stream(&self) -> bool {
        self.left.is_none() && self.size <= INLINE_MAX
    }

    /// Puts the bytes back that were read last, because the file has more than its length promised.
    pub(super) fn unread(&mut self, content: Vec<u8>) {
        self.size -= content.len() as u64;
        self.put_back(content);
    }

    /// Returns whether a file that has delivered its length has no more bytes; a file that has more is treated as a
    /// stream from now on.
    pub(super) fn at_end(&mut self) -> io::Result<bool> {
        let mut probe = [0];
        if self.reader.read(&mut probe)? == 0 {
            return Ok(true);
        }
        self.put_back(probe.to_vec());
        Ok(false)
    }

    /// Fills `body` as far as the input goes, and returns the number of bytes; `hash` is given each piece while it is
    /// in the processor's cache.
    pub(super) fn fill(
        &mut self,
        body: &mut [u8],
        mut hash: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let (mut filled, mut hashed) = (0, 0);
        loop {
            let end = (filled + PIECE).min(body.len());
            let read = match self.reader.read(&mut body[filled..end]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            };
            filled += read;
            let done = read == 0 || filled == body.len();
            if filled - hashed >= PIECE || done {
                hash(&body[hashed..filled]);
                hashed = filled;
            }
            if done {
                break;
            }
        }
        self.size += filled as u64;
        self.left = self.left.map(|left| left.saturating_sub(filled as u64));
        Ok(filled)
    }
}
