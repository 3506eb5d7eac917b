//! Files that a program writes piece by piece, any number of them in one session.
//!
//! Each writer cuts what it is given; the chunks go the same way as those of local files
//! ([`crate::write::sliding_window`]), and count against the one memory of all writers of a pool handle. In addition a
//! writer keeps the bytes that do not fill a chunk yet, or a group.

use crate::attributes::Attributes;
use crate::content_reader::{ContentReader, LocalBytes};
use crate::file::File;
use crate::source::{Cut, Cutter, Input, hole_of_rows};
use crate::suspended::{BroughtChunks, Suspended, SuspendedSession};
use crate::write::pushes::{Finished, Push, SessionHandle, VisibleFile, ended};
use potluck_core::chunk::INLINE_MAX;
use potluck_core::file_metadata::FileMetadata;
use potluck_core::ids::VersionId;
use potluck_core::origin::Origin;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Policy};
use potluck_core::recipe::part_bytes;
use potluck_wire::bulk::PIECE;
use potluck_wire::control::Condition;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Cursor, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::sync::oneshot;

/// A writer of one file. Nothing is visible before [`Writer::finish`]; a writer that is dropped before is aborted.
pub struct Writer {
    /// The session of the file; `None` once the writer is finished.
    shared: Option<Arc<SessionHandle>>,
    file: u32,
    path: PoolPath,
    attributes: Attributes,
    metadata: Option<Box<FileMetadata>>,
    /// The condition under which the file may replace what is at its path; `None` for that of its session.
    condition: Option<Condition>,
    /// The place that the file is imported from, if it is.
    origin: Option<Box<Origin>>,
    /// The cutter; `None` after a call that failed or was dropped in the middle, after which the file cannot be
    /// finished.
    cutter: Option<Box<Cutter>>,
    /// The bytes that the cutter has not taken yet, less than a unit between calls.
    feed: Feed,
    written: u64,
    /// The number of zeros that follow what was written, and were not cut yet: they may be a hole.
    zeros: u64,
    /// The number of bytes that were written when the last flush returned.
    flushed: u64,
    brought: BroughtChunks,
    /// True if the file survives a power cut when it is visible, whatever [`crate::PutOptions::soon`] says.
    synced: bool,
}

impl Writer {
    /// Begins a new file of a session.
    pub(crate) fn new(shared: Arc<SessionHandle>, path: PoolPath, attributes: Attributes) -> Self {
        let feed = Feed::default();
        let (file, cutter) = shared.cutter(path.clone(), Input::Fed(Box::new(feed.clone())));
        Self {
            file,
            shared: Some(shared),
            path,
            attributes,
            metadata: None,
            condition: None,
            origin: None,
            cutter: Some(Box::new(cutter)),
            feed,
            written: 0,
            zeros: 0,
            flushed: 0,
            brought: BroughtChunks::new(),
            synced: false,
        }
    }

    /// Begins a file anew whose writing was suspended, in the same session. Whole chunks that the new file keeps of
    /// [`Suspended::file`] are not sent again.
    pub fn anew(session: &SuspendedSession, attributes: Attributes) -> Self {
        Self::new(Arc::clone(&session.handle), session.path().clone(), attributes)
    }

    /// Returns the number of bytes written so far.
    pub fn written(&self) -> u64 {
        self.written + self.zeros
    }

    /// Sets the attributes that the file is to have when it is finished.
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.attributes = attributes;
    }

    /// Sets what the file is to have noted of it for other programs when it is finished.
    pub fn set_metadata(&mut self, metadata: FileMetadata) {
        self.metadata = Some(Box::new(metadata));
    }

    /// Sets another path of the space at which the file becomes visible, and the condition under which it may replace
    /// what is there.
    pub fn set_place(&mut self, path: PoolPath, condition: Condition) {
        (self.path, self.condition) = (path, Some(condition));
    }

    /// Notes the place that the file is imported from, which the pool keeps with it.
    pub fn set_origin(&mut self, origin: Origin) {
        self.origin = Some(Box::new(origin));
    }

    /// Makes the file survive a power cut from the moment at which it is visible, whatever [`crate::PutOptions::soon`]
    /// says.
    pub fn set_synced(&mut self, synced: bool) {
        self.synced = synced;
    }

    /// Adds bytes at the end of the file. Returns when they are taken: bytes that fill chunks are on their way to
    /// donors, as far as memory and the session's reservation allow.
    ///
    /// Errors: the failure that ended the session, such as one of kind [`ErrorKind::NoSpace`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.cut_zeros().await?;
        self.feed_bytes(bytes).await
    }

    async fn feed_bytes(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        let unit = unit(&self.shared()?.policy);
        while !bytes.is_empty() {
            let most = unit.saturating_sub(self.feed.len()).max(1);
            let (now, later) = bytes.split_at(bytes.len().min(most));
            self.feed.push(now);
            self.written += now.len() as u64;
            bytes = later;
            self.cut_whole_units().await?;
        }
        Ok(())
    }

    /// Adds zeros at the end. Those that fill whole chunks, or whole groups of an erasure code, are a hole: they are not
    /// stored, and cost the same however many they are.
    ///
    /// Errors: those of [`Writer::write`], and [`code::LOCAL_IO`] for a file of more parts than can be counted.
    pub async fn write_zeros(&mut self, len: u64) -> Result<(), Failure> {
        self.shared()?;
        self.zeros += len;
        Ok(())
    }

    /// Cuts the zeros that were added last, because other bytes follow them.
    async fn cut_zeros(&mut self) -> Result<(), Failure> {
        while self.zeros > 0 {
            let hole = self.hole(self.zeros)?;
            if hole > 0 {
                self.cut_hole(hole).await?;
            } else {
                let len = self.zeros.min(self.left_in_row()?).min(ZEROS.len() as u64);
                self.zeros -= len;
                self.feed_bytes(&ZEROS[..len as usize]).await?;
                self.cut_to_row_end().await?;
            }
        }
        Ok(())
    }

    /// Returns how many of the next `len` zeros can be a hole.
    fn hole(&self, len: u64) -> Result<u64, Failure> {
        let (row, part) = rows(&self.shared()?.policy);
        Ok(if self.has_rest() { 0 } else { hole_of_rows(row, part, self.written, len) })
    }

    /// Adds a hole of so many of the zeros that were added last.
    async fn cut_hole(&mut self, len: u64) -> Result<(), Failure> {
        let shared = self.shared()?;
        shared.room().await?;
        let cutter = self.cutter.as_mut().ok_or_else(|| shared.ended())?;
        let cuts = cutter.hole(len).map_err(|error| error.failure())?;
        self.brought.add(&cuts);
        self.zeros -= len;
        self.written += len;
        shared.push(Push::Cuts(cuts))
    }

    fn left_in_row(&self) -> Result<u64, Failure> {
        let (row, part) = rows(&self.shared()?.policy);
        let in_part = self.written % part;
        Ok((row - in_part % row).min(part - in_part))
    }

    /// Cuts all that was written where a row ends. A row that ends a part may be shorter than a unit.
    async fn cut_to_row_end(&mut self) -> Result<(), Failure> {
        let shared = self.shared()?;
        let (row, part) = rows(&shared.policy);
        while self.has_rest() && (self.written % part).is_multiple_of(row) {
            let cuts = self.cut(&shared).await?;
            shared.push(Push::Cuts(cuts))?;
        }
        Ok(())
    }

    /// Returns whether bytes were written that are in no chunk yet.
    fn has_rest(&self) -> bool {
        self.feed.len() > 0 || self.cutter.as_ref().is_some_and(|it| !it.uncut().is_empty())
    }

    /// Adds bytes as [`Writer::write`] does, but takes ownership of them, which saves a copy.
    ///
    /// Errors: those of [`Writer::write`].
    pub async fn write_owned(&mut self, bytes: Vec<u8>) -> Result<(), Failure> {
        self.shared()?;
        self.cut_zeros().await?;
        self.written += bytes.len() as u64;
        self.feed.push_owned(bytes);
        self.cut_whole_units().await
    }

    /// Cuts the bytes that fill whole units, and has the chunks sent.
    async fn cut_whole_units(&mut self) -> Result<(), Failure> {
        let shared = self.shared()?;
        let unit = unit(&shared.policy);
        while self.feed.len() >= unit {
            let cuts = self.cut(&shared).await?;
            shared.push(Push::Cuts(cuts))?;
        }
        Ok(())
    }

    /// Adds one unit, which is as many bytes as are cut together; the bytes before must fill whole units. Returns a
    /// spare buffer for the next unit.
    ///
    /// Errors: those of [`Writer::write`].
    pub(crate) async fn write_unit(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let shared = self.shared()?;
        self.written += bytes.len() as u64;
        let spare = self.feed.replace(bytes);
        let cuts = self.cut(&shared).await?;
        shared.push(Push::Cuts(cuts))?;
        Ok(spare)
    }

    /// Adds one unit, which is as many bytes as are cut together, of a local file from `at` on; the bytes before must
    /// fill whole units, and no part of this file may end within one: what is left of the local file would make way for
    /// the next unit. Bytes that are stored as they are stay in their file until they are sent.
    ///
    /// Errors: those of [`Writer::write`], and [`code::LOCAL_IO`] where the file cannot be read or is shorter.
    pub(crate) async fn write_unit_of(
        &mut self,
        file: &Arc<fs::File>,
        at: u64,
    ) -> Result<(), Failure> {
        let shared = self.shared()?;
        let unit = unit(&shared.policy);
        self.written += unit as u64;
        self.feed.push_file(LocalBytes::new(Arc::clone(file), at), unit);
        let cuts = self.cut(&shared).await?;
        shared.push(Push::Cuts(cuts))
    }

    /// Adds a range of another version at the end. Whole chunks that come to the same offset as in that version are
    /// neither read nor sent, as long as the pool has enough copies of them; other bytes are read, and written as by
    /// [`Writer::write`].
    ///
    /// Errors: those of [`Writer::write`], and of reading the other version.
    pub async fn keep(&mut self, base: &File, range: Range<u64>) -> Result<(), Failure> {
        self.take_over(base, range, false).await
    }

    /// Adds a whole other version at the end, wherever that is. Whole chunks of it that can be chunks of this file are
    /// neither read nor sent; other bytes are read, and written as by [`Writer::write`].
    ///
    /// Errors: those of [`Writer::keep`].
    pub async fn append(&mut self, part: &File) -> Result<(), Failure> {
        self.take_over(part, 0..part.size(), true).await
    }

    /// Adds a range of another version at the end, of which whole chunks are taken over where they come to the same
    /// offset, or `anywhere`.
    async fn take_over(
        &mut self,
        base: &File,
        range: Range<u64>,
        anywhere: bool,
    ) -> Result<(), Failure> {
        let shared = self.shared()?;
        let unit = unit(&shared.policy) as u64;
        let mut at = range.start;
        while at < range.end {
            let is_at_place = at == self.written() || anywhere;
            if is_at_place {
                at += self.keep_rows(base, at..range.end).await?;
            }
            let hole = base.hole_in(&(at..range.end)).await?;
            if hole > 0 {
                self.write_zeros(hole).await?;
                at += hole;
                continue;
            }
            let data = base.data_from(at).await?.map_or(range.end, |data| data.end.min(range.end));
            // After each row, the next may be the same again.
            let is_cut_alike = base.is_cut_by(&shared.policy)
                && (!anywhere || (self.written() % unit) == (at % unit));
            let end = match is_cut_alike {
                true => data.min(at + unit - self.written() % unit),
                false => data,
            };
            let mut reader = base.read(at..end);
            while let Some(part) = reader.next().await {
                self.write(&part?).await?;
            }
            at = end;
        }
        Ok(())
    }

    /// Adds the whole rows with which a range of another version begins, if they can be rows of this file, without
    /// reading them; returns the number of their bytes.
    ///
    /// Errors: those of [`Writer::keep`].
    pub(crate) async fn keep_rows(
        &mut self,
        base: &File,
        range: Range<u64>,
    ) -> Result<u64, Failure> {
        let shared = self.shared()?;
        let (policy, unit) = (&shared.policy, unit(&shared.policy) as u64);
        let mut at = range.start;
        while at + unit <= range.end && base.is_cut_by(policy) {
            let of_part = part_bytes(policy.chunk_size, false);
            let in_part = self.written() % of_part;
            let begins_row = in_part.is_multiple_of(unit) && in_part + unit <= of_part;
            if !begins_row {
                break;
            }
            let key = shared.key.as_ref();
            let Some(row) = base.row_at(at, key).await? else { break };
            self.cut_zeros().await?;
            if self.has_rest() {
                break;
            }
            shared.room().await?;
            let cutter = self.cutter.as_mut().ok_or_else(|| shared.ended())?;
            let cuts = cutter.keep(row.chunks());
            self.brought.add(&cuts);
            shared.push(Push::Cuts(cuts))?;
            self.written += row.len();
            at += row.len();
        }
        Ok(at - range.start)
    }

    /// Returns the policy by which the file is stored.
    pub(crate) fn policy(&self) -> Result<Policy, Failure> {
        Ok(self.shared()?.policy.clone())
    }

    /// Waits until donors have acknowledged all that was written, and returns the session's [`AckLevel`]. Bytes that do
    /// not fill a chunk, or a group, are stored by themselves for now, and once more with later bytes, so flush seldom.
    ///
    /// Errors: the failure that ended the session, such as one of kind [`ErrorKind::NoSpace`]; [`code::BAD_REQUEST`]
    /// after an earlier call that failed or was dropped.
    pub async fn flush(&mut self) -> Result<AckLevel, Failure> {
        let shared = self.shared()?;
        if self.flushed == self.written() {
            return Ok(shared.policy.ack);
        }
        self.cut_zeros().await?;
        let rest = match self.has_rest() {
            false => None,
            true => Some(self.store_rest(&shared).await?),
        };
        for file in [Some(self.file), rest.as_ref().map(|rest| rest.0)].into_iter().flatten() {
            stored(&shared, file).await?;
        }
        self.flushed = self.written;
        Ok(shared.policy.ack)
    }

    /// Ends the writing, and returns the file as written so far: its whole chunks are at donors and can be read, and
    /// the bytes after them are in memory.
    ///
    /// Errors: the failure that ended the session; [`code::BAD_REQUEST`] for a file of too many chunks, and after an
    /// earlier call that failed or was dropped.
    pub async fn suspend(mut self) -> Result<Suspended, Failure> {
        let shared = self.shared()?;
        self.cut_zeros().await?;
        stored(&shared, self.file).await?;
        let uncut = self.cutter.as_ref().map_or(&[][..], |cutter| cutter.uncut());
        let rest = [uncut, &self.feed.copy()].concat();
        let brought = std::mem::take(&mut self.brought);
        // The session forgets the file when this writer is dropped, and keeps what it knows of the chunks.
        Suspended::new(shared, self.path.clone(), brought, rest).await
    }

    /// Makes the whole file visible, in place of any file at its path.
    ///
    /// Errors: one of kind [`ErrorKind::Conflict`] where the condition for replacing does not hold; the failure that
    /// ended the session.
    pub async fn finish(self) -> Result<VersionId, Failure> {
        Ok(self.make_visible().await?.version)
    }

    /// Finishes the file as [`Writer::finish`] does, and also tells how its directory changed.
    ///
    /// Errors: those of [`Writer::finish`].
    pub async fn make_visible(self) -> Result<VisibleFile, Failure> {
        self.end().await?.visible().await
    }

    /// Ends the file without waiting until it is visible. Of the files of a session that are [made visible in
    /// order](crate::PutOptions::in_order), those that were begun before come first.
    ///
    /// Errors: the failure that ended the session.
    pub async fn end(mut self) -> Result<EndedFile, Failure> {
        let shared = self.shared()?;
        self.end_zeros().await?;
        let mut cuts = self.cut(&shared).await?;
        // The remaining bytes may make whole chunks or groups before the end of the file. These are brought before
        // memory for more is claimed: writers that held some and waited for more would wait for one another.
        while !cuts.iter().any(|cut| matches!(cut, Cut::End { .. })) {
            shared.push(Push::Cuts(cuts))?;
            cuts = self.cut(&shared).await?;
        }
        let (tell, visible) = oneshot::channel();
        let done = Finished { tell, synced: self.synced };
        shared.push(Push::Await(self.file, done))?;
        shared.push(Push::Cuts(cuts))?;
        self.shared = None;
        let failure = shared.failure.clone();
        drop(shared); // the last writer of a session closes it with the same commit
        Ok(EndedFile { visible, failure })
    }

    /// Cuts the zeros with which the file ends. A hole there need not fill a row.
    async fn end_zeros(&mut self) -> Result<(), Failure> {
        if self.written() <= INLINE_MAX {
            return self.cut_zeros().await;
        }
        while self.zeros > 0 {
            let begins_row = self.hole(u64::MAX >> 2)? > 0;
            if begins_row {
                return self.cut_hole(self.zeros).await;
            }
            let later = self.zeros.saturating_sub(self.left_in_row()?);
            self.zeros -= later;
            self.cut_zeros().await?;
            self.zeros = later;
        }
        Ok(())
    }

    /// Gives the file up; nothing of it becomes visible.
    pub fn abort(self) {}

    fn shared(&self) -> Result<Arc<SessionHandle>, Failure> {
        self.shared.clone().filter(|_| self.cutter.is_some()).ok_or_else(|| {
            let what = format!("an earlier call that wrote {} failed or was given up", self.path);
            Failure::new(ErrorKind::Other, code::BAD_REQUEST, what).hint("write the file anew")
        })
    }

    /// Cuts bytes of the feed: one unit, or what is left with the end of the file.
    async fn cut(&mut self, shared: &SessionHandle) -> Result<Vec<Cut>, Failure> {
        shared.room().await?;
        let Some(cutter) = self.cutter.take() else { return Err(shared.ended()) };
        let bytes = cutter.uncut().len() + self.feed.len();
        let (cutter, mut cuts) = shared.cut(cutter, bytes).await;
        if let Some(Cut::End { facts, .. }) = cuts.last_mut() {
            facts.path = self.path.clone();
            facts.attributes = self.attributes;
            facts.metadata = self.metadata.clone();
            facts.condition = self.condition;
            facts.origin.clone_from(&self.origin);
        }
        if let Some(Cut::Failed { error, .. }) =
            cuts.pop_if(|cut| matches!(cut, Cut::Failed { .. }))
        {
            return Err(error.failure());
        }
        self.cutter = Some(cutter);
        self.brought.add(&cuts);
        Ok(cuts)
    }

    /// Stores the bytes that are in no chunk yet as the content of a file that never becomes visible.
    async fn store_rest(&mut self, shared: &Arc<SessionHandle>) -> Result<Hidden, Failure> {
        let cut_before = self.cutter.as_ref().map_or(&[][..], |cutter| cutter.uncut());
        let content = [cut_before, &self.feed.copy()].concat();
        let bytes = content.len();
        let content = Box::new(Cursor::new(content));
        let (file, cutter) = shared.cutter(self.path.clone(), Input::Stream(content));
        let hidden = Hidden(file, Arc::clone(shared));
        let (_, mut cuts) = shared.cut(Box::new(cutter.without_inline()), bytes).await;
        cuts.retain(|cut| !matches!(cut, Cut::End { .. }));
        shared.push(Push::Cuts(cuts))?;
        Ok(hidden)
    }
}

/// A file that its writer has ended, and that becomes visible even if this is dropped.
pub struct EndedFile {
    visible: oneshot::Receiver<Result<VisibleFile, Failure>>,
    /// The failure that ended the session.
    failure: Arc<OnceLock<Failure>>,
}

impl EndedFile {
    /// Waits until the file is visible.
    ///
    /// Errors: those of [`Writer::make_visible`].
    pub async fn visible(self) -> Result<VisibleFile, Failure> {
        self.visible.await.unwrap_or_else(|_| Err(ended(&self.failure)))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            let _ = shared.push(Push::Abort(self.file)); // a session that has ended has no file
        }
    }
}

/// Waits until donors have acknowledged all chunks that were cut of a file.
async fn stored(session: &SessionHandle, file: u32) -> Result<(), Failure> {
    let (done, stored) = oneshot::channel();
    session.push(Push::Flush(file, done))?;
    stored.await.map_err(|_| session.ended())
}

/// A file that never becomes visible, and that its session forgets when this is dropped.
struct Hidden(u32, Arc<SessionHandle>);

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = self.1.push(Push::Abort(self.0)); // a session that has ended has no file
    }
}

/// Zeros that are written because they fill no row.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// Returns the bytes of a row, beside which holes begin and end under a policy, and of a part.
fn rows(policy: &Policy) -> (u64, u64) {
    let part = part_bytes(policy.chunk_size, policy.is_cut_by_content());
    (if policy.is_cut_by_content() { part } else { unit(policy) as u64 }, part)
}

/// Returns the number of plaintext bytes that are cut together under a policy.
pub(crate) fn unit(policy: &Policy) -> usize {
    policy.chunk_size as usize * policy.ec.map_or(1, |ec| ec.data())
}

/// The bytes between a writer and its cutter. The cutter takes an empty feed for the end of the file, so it is called
/// only with a whole unit in the feed, or at the end.
#[derive(Clone, Default)]
struct Feed(Arc<Mutex<Fed>>);

#[derive(Default)]
struct Fed {
    /// The pieces that were not read yet, in order; of the first piece only the bytes from `read` on.
    pieces: VecDeque<Vec<u8>>,
    read: usize,
    /// The number of unread bytes of all pieces.
    in_pieces: usize,
    /// The buffer of a piece that was read, kept for its memory.
    spare: Vec<u8>,
    /// The local file that is read once the pieces are read, and the number of bytes to read of it.
    file: Option<(LocalBytes, usize)>,
}

impl Fed {
    fn len(&self) -> usize {
        self.in_pieces + self.file.as_ref().map_or(0, |(_, left)| *left)
    }

    fn push(&mut self, piece: Vec<u8>) {
        if !piece.is_empty() {
            self.in_pieces += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Reads from the first piece, which must exist.
    fn read_piece(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (&self.pieces[0][self.read..]).read(buffer)?;
        self.read += read;
        self.in_pieces -= read;
        if self.read == self.pieces[0].len() {
            self.spare = self.pieces.pop_front().unwrap_or_default();
            self.read = 0;
        }
        Ok(read)
    }
}

impl Feed {
    fn fed(&self) -> MutexGuard<'_, Fed> {
        self.0.lock().expect("no holder panics")
    }

    /// Adds a copy of `bytes`, to the last piece if that is small.
    fn push(&self, bytes: &[u8]) {
        let mut fed = self.fed();
        if let Some(last) = fed.pieces.back_mut()
            && last.len() + bytes.len() <= last.capacity().max(PIECE)
        {
            last.extend_from_slice(bytes);
            fed.in_pieces += bytes.len();
            return;
        }
        let mut piece = std::mem::take(&mut fed.spare);
        piece.clear();
        piece.extend_from_slice(bytes);
        fed.push(piece);
    }

    fn push_owned(&self, bytes: Vec<u8>) {
        self.fed().push(bytes);
    }

    /// Adds `bytes` without a copy, and returns the buffer of a piece that was read, for more bytes.
    fn replace(&self, bytes: Vec<u8>) -> Vec<u8> {
        let mut fed = self.fed();
        fed.push(bytes);
        std::mem::take(&mut fed.spare)
    }

    fn push_file(&self, file: LocalBytes, len: usize) {
        self.fed().file = Some((file, len));
    }

    fn len(&self) -> usize {
        self.fed().len()
    }

    fn copy(&self) -> Vec<u8> {
        let fed = self.fed();
        let pieces: Vec<&[u8]> = fed.pieces.iter().map(Vec::as_slice).collect();
        let mut bytes = pieces.concat();
        bytes.drain(..fed.read);
        bytes
    }
}

impl Read for Feed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut fed = self.fed();
        if !fed.pieces.is_empty() {
            return fed.read_piece(buffer);
        }
        let Some((file, left)) = &mut fed.file else { return Ok(0) };
        let most = buffer.len().min(*left);
        let read = file.read(&mut buffer[..most])?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into()); // the file was truncated meanwhile
        }
        *left -= read;
        if *left == 0 {
            fed.file = None;
        }
        Ok(read)
    }
}

impl ContentReader for Feed {
    fn local(&self) -> Option<(Arc<fs::File>, u64)> {
        let fed = self.fed();
        fed.file.as_ref().filter(|_| fed.pieces.is_empty()).and_then(|(file, _)| file.local())
    }

    fn left(&self) -> Option<usize> {
        Some(self.len())
    }
}
