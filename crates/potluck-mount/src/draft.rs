//! A file that is being written, until it is published whole.

mod publishing;

use crate::edit::Edit;
use crate::errno::errno;
use crate::joint_content::JointContent;
use crate::record::DraftNote;
use crate::small_files::{SmallFile, SmallFiles};
use crate::spool::Spool;
use crate::stream::FileStream;
use crate::write_protocol::WriteLimits;
use crate::write_rates::{AllCopies, WrittenFiles};
use potluck_client::{
    Attributes, File, PendingReport, Pool, PutOptions, Suspended, VisibleFile, Writer,
};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::clock::Tick;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_wire::control::Condition;
use potluck_wire::error::code;
use rustix::io::Errno;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// The growth of a file in the spool, in bytes, after which the quota of the space is looked at again.
const SPOOL_STEP: u64 = 32 << 20;
/// The number of zero bytes that are streamed at a time.
const PIECE: u64 = 1 << 20;

/// A file that is being written through this mount. Nobody else sees any of it before [`Draft::publish`].
pub struct Draft {
    pool: Pool,
    small_files: Arc<SmallFiles>,
    spool: Arc<Spool>,
    limits: Arc<WriteLimits>,
    written_files: Arc<WrittenFiles>,
    /// The draft's place in the mount's record, for the case that the mount dies.
    note: DraftNote,
    content: Content,
    /// The report of the session by which the file is streamed.
    report: Option<PendingReport>,
    /// The time at which a program opened the file.
    opened: Tick,
    attributes: Attributes,
    condition: Condition,
    /// Whether something was written or cut off since the file was published last.
    is_dirty: bool,
    /// Whether more was done than that the file was made, or cut off when it was opened: a shell does so before it
    /// has another program write it.
    is_written: bool,
    /// The error that a program got that wrote to the file in vain. Nothing is published without that write.
    failure: Option<Errno>,
    /// Whether the file's name leads nowhere any more, or elsewhere: programs that have it open go on, and nobody
    /// else sees it.
    is_nameless: bool,
    /// The version that was opened, or published last.
    version: Option<VersionId>,
    /// Bytes that the file had in the spool when the quota of the space was looked at last.
    spool_checked: u64,
    /// Whether attributes were set since the file was published last.
    has_new_attributes: bool,
    /// Whether the mount's record says that what is dirty could not be published.
    failure_noted: bool,
}

/// The change of the pool that publishing a draft made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedChange {
    /// Nothing changed: all of the draft was there.
    Nothing,
    /// The draft has other attributes than before.
    Attributes,
    /// The file is another version; with the time at which its directory was modified, unless it replaced one.
    Content { dir_modified: Option<FileTime> },
}

/// The change that a draft made, and when all its copies are there.
type Finished = (VisibleFile, AllCopies);

/// The surroundings that a draft is made with.
pub struct DraftPlace {
    /// The pool in which the draft appears.
    pub pool: Pool,
    /// The sessions that the draft is written in while it is small.
    pub small_files: Arc<SmallFiles>,
    /// The spool in which the draft is kept if it is not written in order.
    pub spool: Arc<Spool>,
    /// The limits that all drafts of the mount that are written in order share.
    pub limits: Arc<WriteLimits>,
    /// The place where it is noted how fast the draft was written.
    pub written_files: Arc<WrittenFiles>,
    /// The place of the draft in the mount's record.
    pub note: DraftNote,
}

/// The place where the bytes are that were written.
enum Content {
    /// The bytes come in order. A program may have said how large the file is to be before it wrote all of it.
    Streamed { stream: Streamed, written: u64, size: u64 },
    /// The bytes are those of the version that was opened, or that donors were given, and what was written since,
    /// which is on this machine and goes to donors when it is synced or published.
    Edited(Box<Edit>),
    /// Other mounts write other bytes of the file at the same time.
    Shared(Box<JointContent>),
    /// The bytes were streamed and are published; nothing was written since.
    Published { size: u64 },
    /// The bytes were streamed, and could not be published. A second try would publish a file without them.
    Lost { why: Errno, size: u64 },
}

/// The place where bytes are that come in order.
enum Streamed {
    /// There are no bytes yet.
    Nothing,
    /// The bytes are few, and in memory.
    Small(SmallFile, OwnedSemaphorePermit),
    /// The bytes go to donors as they come.
    Stream(Box<FileStream>),
}

impl Draft {
    /// Makes a new file, which goes to donors as it is written for as long as that is in order.
    pub fn empty(place: DraftPlace, condition: Condition, attributes: Attributes) -> Self {
        let content = Content::Streamed { stream: Streamed::Nothing, written: 0, size: 0 };
        let mut draft = Self::new(place, content, attributes, condition, true);
        draft.is_modified_now();
        draft
    }

    /// Makes a draft of the content of a version, to be read and written anywhere.
    pub fn of_version(place: DraftPlace, base: File) -> Self {
        let EntryAttributes { mtime, permissions, owner } = base.attributes();
        let attributes = Attributes { mtime: Some(mtime), permissions, owner };
        let version = Some(base.version());
        let content = Content::Edited(Box::new(Edit::of(base, &place.spool)));
        let draft = Self::new(place, content, attributes, Condition::Always, false);
        Self { version, ..draft }
    }

    /// Makes a draft of what this mount writes of a file that others write, too.
    pub async fn shared(place: DraftPlace, path: &PoolPath, before: File) -> Result<Self, Errno> {
        let EntryAttributes { permissions, owner, .. } = before.attributes();
        let attributes = Attributes { mtime: None, permissions, owner };
        let version = Some(before.version());
        let shared = JointContent::join(&place.pool, path, before, attributes).await?;
        let content = Content::Shared(Box::new(shared));
        let draft = Self::new(place, content, attributes, Condition::Always, false);
        Ok(Self { version, ..draft })
    }

    /// Has a file that was opened, and of which nothing is written, be shared with other mounts.
    ///
    /// Errors: [`Errno::BUSY`] where something is written.
    pub async fn become_shared(&mut self, path: &PoolPath) -> Result<(), Errno> {
        if self.is_shared() {
            return Ok(());
        }
        if self.is_dirty && self.size() > 0 {
            return Err(Errno::BUSY);
        }
        self.publish(path).await?; // others are to find it
        let before = self.pool.open_leased(path).await.map_err(|failure| errno(&failure))?;
        self.version = Some(before.version());
        let shared = JointContent::join(&self.pool, path, before, self.attributes).await?;
        self.content = Content::Shared(Box::new(shared));
        Ok(())
    }

    /// Whether other mounts write the file, too.
    pub fn is_shared(&self) -> bool {
        matches!(self.content, Content::Shared(_))
    }

    fn new(
        place: DraftPlace,
        content: Content,
        attributes: Attributes,
        condition: Condition,
        is_dirty: bool,
    ) -> Self {
        let DraftPlace { pool, small_files, spool, limits, written_files, note } = place;
        let opened = pool.now();
        let (version, has_new_attributes, failure_noted) = (None, false, false);
        let (is_written, failure, is_nameless) = (false, None, false);
        Self {
            pool,
            small_files,
            spool,
            limits,
            written_files,
            note,
            content,
            report: None,
            opened,
            attributes,
            condition,
            is_dirty,
            is_written,
            failure,
            is_nameless,
            version,
            spool_checked: 0,
            has_new_attributes,
            failure_noted,
        }
    }

    /// Returns the size in bytes of the file as it is now.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Streamed { size, .. } => *size,
            Content::Edited(edit) => edit.size(),
            Content::Shared(shared) => shared.size(),
            Content::Published { size } | Content::Lost { size, .. } => *size,
        }
    }

    /// The time of its last change is that which programs are told from now on, also after it was published. A file
    /// that others write, too, has the time at which all are done.
    fn is_modified_now(&mut self) {
        let now = FileTime::of_ms(self.pool.wall_ms());
        self.attributes.mtime = (!self.is_shared()).then_some(now);
    }

    /// Returns the attributes that the draft will be published with.
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Sets the attributes that the draft will be published with.
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.attributes = attributes;
        self.has_new_attributes = true;
    }

    /// Notes that the draft could not be published at `path`, which the mount's record says until it is.
    pub fn failed(&mut self, path: &PoolPath, why: Errno) {
        match self.failure_noted {
            true => self.note.is_over(),
            false => self.note.failed(path, why.to_string()),
        }
        self.failure_noted = true;
    }

    /// Whether [`Draft::read`] gives what was written.
    pub fn is_readable(&self) -> bool {
        !matches!(self.content, Content::Lost { .. })
    }

    /// Notes that what was written is never published: it rests on what others have changed since.
    pub fn lose(&mut self, why: Errno) {
        if self.is_dirty {
            self.content = Content::Lost { why, size: self.size() };
        }
    }

    /// Takes over another version that others may have published at `path`, unless something was written to
    /// this one since it was published.
    pub async fn refresh(&mut self, path: &PoolPath) -> Result<(), Errno> {
        if self.is_dirty || matches!(self.content, Content::Lost { .. } | Content::Shared(_)) {
            return Ok(());
        }
        let base = match self.pool.open_leased(path).await {
            Err(failure) if failure.code == code::NO_ENTRY => return Ok(()), // it was removed
            base => base.map_err(|failure| errno(&failure))?,
        };
        if Some(base.version()) != self.version {
            let EntryAttributes { mtime, permissions, owner } = base.attributes();
            self.attributes = Attributes { mtime: Some(mtime), permissions, owner };
            self.version = Some(base.version());
            self.content = Content::Edited(Box::new(Edit::of(base, &self.spool)));
        }
        Ok(())
    }

    /// Makes the mount's record say under which name the draft is not published, if anything of it is not.
    pub fn note(&mut self, path: &PoolPath) {
        if self.is_dirty && !self.is_nameless {
            self.note.unpublished(path);
        }
    }

    /// Notes that the name leads nowhere any more, or elsewhere: the draft is never published, and the mount's record
    /// is silent about it.
    pub fn has_no_name(&mut self) {
        self.is_nameless = true;
        self.condition = Condition::Always;
        self.note.is_over();
    }

    /// Notes that a process is going to write so many bytes at `offset`, or where the file ends.
    ///
    /// Errors: [`Errno::BUSY`] where another process has written some of them in a file that mounts share.
    pub fn claim(
        &mut self,
        process: Option<u32>,
        offset: Option<u64>,
        len: usize,
    ) -> Result<(), Errno> {
        let start = offset.unwrap_or_else(|| self.size());
        match &mut self.content {
            Content::Shared(shared) => {
                shared.claim(process, start..start.saturating_add(len as u64))
            }
            _ => Ok(()),
        }
    }

    /// Gives up what was written of a shared file, as its name is gone.
    pub async fn withdraw(&mut self) {
        if let Content::Shared(shared) = &mut self.content {
            shared.withdraw().await;
        }
    }

    /// Whether [`Self::has_no_name`] was called.
    pub fn is_nameless(&self) -> bool {
        self.is_nameless
    }

    /// Notes that the draft has another name, where with `no_replace` nothing was.
    pub fn is_renamed(&mut self, no_replace: bool) {
        if !no_replace {
            self.condition = Condition::Always;
        }
    }

    /// Whether something was written or cut off since the draft was published last.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// Whether nothing was done with the draft since it was made, or cut off when it was opened.
    pub fn is_merely_begun(&self) -> bool {
        self.is_dirty && !self.is_written && self.failure.is_none()
    }

    /// Notes that a program was told that its bytes were not written: what there is of the file is not what it should
    /// be. Programs that lock the file (`is_locked`) know to undo what they wrote, as databases do.
    pub fn fail(&mut self, why: Errno, is_locked: bool) {
        if matches!(self.content, Content::Streamed { .. }) {
            self.content = Content::Lost { why, size: self.size() };
        }
        if self.is_dirty && !is_locked {
            self.failure.get_or_insert(why);
        }
    }

    /// Writes at `offset`, or where the file ends.
    ///
    /// Errors: what ended the write session; [`Errno::NOSPC`] where the spool is full, and what is in it cannot be
    /// stored; [`Errno::STALE`] where others replaced what was published.
    pub async fn write(
        &mut self,
        path: &PoolPath,
        offset: Option<u64>,
        bytes: Vec<u8>,
    ) -> Result<(), Errno> {
        self.open_again(path).await?;
        (self.is_dirty, self.is_written, self.failure_noted) = (true, true, false);
        self.note(path);
        self.is_modified_now();
        let offset = offset.unwrap_or_else(|| self.size());
        if let Content::Shared(shared) = &mut self.content {
            return shared.write(&self.pool, path, offset, &bytes, self.attributes).await;
        }
        if self.may_stream(path, offset).await? {
            return self.stream(path, bytes).await;
        }
        self.go_on_as_edit().await?;
        match self.edit()?.write(offset, &bytes) {
            Err(Errno::NOSPC) => {}
            written => return written,
        }
        self.store(path).await?;
        self.edit()?.write(offset, &bytes).inspect_err(|why| {
            if *why == Errno::NOSPC {
                self.spool.log_full();
            }
        })
    }

    /// Whether the file has so many more bytes in the spool than at the last look at the quota of the space that the
    /// quota is to be looked at again. A file without a name is never published, and needs no quota.
    pub fn is_quota_to_be_checked(&mut self) -> bool {
        let Content::Edited(edit) = &self.content else { return false };
        let spooled = edit.spooled();
        self.spool_checked = self.spool_checked.min(spooled); // some of it was stored, or cut off
        if self.is_nameless || spooled - self.spool_checked < SPOOL_STEP {
            return false;
        }
        self.spool_checked = spooled;
        true
    }

    /// Notes that the file exceeds the quota of the space: the next write that makes its part in the spool larger is
    /// refused as well. The kernel tells a program of a large write, of which the end was refused, that the rest was
    /// written; the program hears of the refusal from its next write. What is in the spool may be written over, as
    /// databases do that undo a change.
    pub fn exceeds_quota(&mut self) {
        self.spool_checked = self.spool_checked.saturating_sub(SPOOL_STEP - 1);
    }

    /// Whether bytes at `offset` can be streamed: they follow those that were, and the file is streamed or may be.
    /// With the first of them it is asked whether the file may be written.
    async fn may_stream(&mut self, path: &PoolPath, offset: u64) -> Result<bool, Errno> {
        let (stream, written) = match &mut self.content {
            Content::Streamed { stream, written, .. } => (stream, *written),
            Content::Lost { why, .. } => return Err(*why),
            Content::Edited(_) | Content::Published { .. } | Content::Shared(_) => {
                return Ok(false);
            }
        };
        if offset != written {
            return Ok(false);
        }
        if matches!(stream, Streamed::Nothing) {
            let Some(slot) = self.limits.stream() else { return Ok(false) };
            let small = self.small_files.begin(path).await;
            let begun = match small.map_err(|failure| errno(&failure))? {
                Some(small) => Streamed::Small(small, slot),
                None => Streamed::Stream(Box::new(self.begin_stream(path, slot).await?)),
            };
            if let Content::Streamed { stream, .. } = &mut self.content {
                *stream = begun;
            }
        }
        Ok(true)
    }

    /// Begins to stream the file in a session of its own.
    async fn begin_stream(
        &mut self,
        path: &PoolPath,
        slot: OwnedSemaphorePermit,
    ) -> Result<FileStream, Errno> {
        let options = PutOptions { condition: self.condition, ..PutOptions::default() };
        let session = self.pool.session(path, &options).await;
        let session = session.map_err(|failure| errno(&failure))?;
        let writer = Box::new(session.create(path.clone(), self.attributes));
        self.report = Some(session.pending_report());
        let (limits, spool) = (Arc::clone(&self.limits), Arc::clone(&self.spool));
        Ok(FileStream::begin(writer, limits, spool, slot))
    }

    /// Streams a file that was small until now.
    async fn stream_small(&mut self, path: &PoolPath) -> Result<(), Errno> {
        let Content::Streamed { stream, size, .. } = &mut self.content else { return Ok(()) };
        if !matches!(stream, Streamed::Small(..)) {
            return Ok(());
        }
        let size = *size;
        let Streamed::Small(small, slot) = std::mem::replace(stream, Streamed::Nothing) else {
            return Ok(());
        };
        let streamed = async {
            let mut stream = self.begin_stream(path, slot).await?;
            stream.write(small.bytes).await?;
            Ok(Streamed::Stream(Box::new(stream)))
        };
        match streamed.await {
            Ok(streamed) => {
                if let Content::Streamed { stream, .. } = &mut self.content {
                    *stream = streamed;
                }
                Ok(())
            }
            Err(why) => {
                self.content = Content::Lost { why, size };
                Err(why)
            }
        }
    }

    async fn stream(&mut self, path: &PoolPath, bytes: Vec<u8>) -> Result<(), Errno> {
        let len = bytes.len() as u64;
        if let Content::Streamed { written, .. } = &self.content
            && !SmallFile::may_have(*written + len)
        {
            self.stream_small(path).await?;
        }
        let Content::Streamed { stream, written, size } = &mut self.content else {
            return Err(Errno::IO);
        };
        match stream {
            Streamed::Nothing => return Err(Errno::IO),
            Streamed::Small(small, _) => small.bytes.extend_from_slice(&bytes),
            Streamed::Stream(stream) => stream.write(bytes).await?,
        }
        *written += len;
        *size = (*size).max(*written);
        Ok(())
    }

    /// Returns the bytes at `offset` as they are now.
    pub async fn read(
        &mut self,
        path: &PoolPath,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, Errno> {
        if let Content::Shared(shared) = &self.content {
            let read = shared.before().read_at(offset, len).await;
            return read.map_err(|failure| errno(&failure));
        }
        self.open_again(path).await?;
        self.go_on_as_edit().await?;
        self.edit()?.read(offset, len).await
    }

    /// Cuts the file off, or extends it by zeros.
    ///
    /// Errors: those of [`Draft::write`].
    pub async fn set_size(&mut self, path: &PoolPath, new: u64) -> Result<(), Errno> {
        if new == self.size() && !matches!(self.content, Content::Lost { .. }) {
            return Ok(());
        }
        self.open_again(path).await?;
        self.is_modified_now();
        match &mut self.content {
            Content::Shared(shared) => {
                shared.set_size(&self.pool, path, new, self.attributes).await?;
            }
            Content::Streamed { stream, written, size } if new == 0 => {
                (*stream, self.report) = (Streamed::Nothing, None);
                (*written, *size) = (0, 0);
            }
            // What is not written by the time it is published is zeros.
            Content::Streamed { written, size, .. } if new >= *written => *size = new,
            _ => {
                self.go_on_as_edit().await?;
                self.edit()?.set_size(new)?;
            }
        }
        (self.is_dirty, self.is_written, self.failure_noted) = (true, true, false);
        self.note(path);
        Ok(())
    }

    /// Notes that a program opened the file so that its content is cut off.
    ///
    /// Errors: those of [`Draft::set_size`].
    pub async fn cut_off(&mut self, path: &PoolPath) -> Result<(), Errno> {
        self.set_size(path, 0).await?;
        self.is_written = false;
        Ok(())
    }

    /// Returns when donors have what was written so far, at the ack level of the policy.
    pub async fn sync(&mut self, path: &PoolPath) -> Result<(), Errno> {
        self.stream_small(path).await?;
        match &mut self.content {
            Content::Streamed { stream: Streamed::Stream(stream), .. } => stream.flush().await,
            Content::Shared(shared) => shared.sync().await,
            Content::Streamed { .. } | Content::Published { .. } => Ok(()),
            Content::Lost { why, .. } => Err(*why),
            Content::Edited(edit) if edit.is_stored() || !self.is_dirty => Ok(()),
            Content::Edited(_) => self.store(path).await,
        }
    }

    /// Stores what was changed in a write session, so that it leaves the spool.
    async fn store(&mut self, path: &PoolPath) -> Result<(), Errno> {
        let options = PutOptions { condition: self.condition, ..PutOptions::default() };
        let Content::Edited(edit) = &mut self.content else { return Ok(()) };
        let (writer, _) = edit.writer(&self.pool, path, &options, self.attributes).await?;
        edit.store(writer).await
    }

    /// Has a file that was streamed go on as one that may be read and changed anywhere. What was streamed stays where
    /// it is.
    async fn go_on_as_edit(&mut self) -> Result<(), Errno> {
        let Content::Streamed { stream, written, size } = &mut self.content else { return Ok(()) };
        let (written, size) = (*written, *size);
        let begun = match stream {
            Streamed::Stream(_) => std::mem::replace(stream, Streamed::Nothing),
            in_memory => {
                let mut edit = Box::new(Edit::empty(&self.spool));
                if let Streamed::Small(small, _) = in_memory {
                    edit.write(0, &small.bytes)?;
                }
                edit.set_size(size)?;
                self.content = Content::Edited(edit);
                return Ok(());
            }
        };
        let Streamed::Stream(stream) = begun else { return Err(Errno::IO) };
        self.report = None; // what was streamed keeps the session open
        self.content = Content::Lost { why: Errno::IO, size }; // until it is known where it is
        let suspend = async {
            let writer = stream.end().await?;
            let suspended = writer.suspend().await.map_err(|failure| errno(&failure))?;
            let edit = Edit::of_streamed(&suspended, &self.spool).and_then(|mut edit| {
                edit.set_size(size)?;
                Ok(Content::Edited(Box::new(edit)))
            });
            match edit {
                Ok(edit) => Ok((edit, Ok(()))),
                // What does not fit into the spool goes on as a stream, without what the program just asked for.
                Err(why) => {
                    self.spool.log_full();
                    let stream = Streamed::Stream(Box::new(self.stream_on(suspended).await?));
                    Ok((Content::Streamed { stream, written, size }, Err(why)))
                }
            }
        };
        let (content, outcome) =
            suspend.await.unwrap_or_else(|why| (Content::Lost { why, size }, Err(why)));
        self.content = content;
        outcome
    }

    /// Goes on streaming a file that was to be changed.
    async fn stream_on(&self, suspended: Suspended) -> Result<FileStream, Errno> {
        let slot = self.limits.stream().ok_or(Errno::NOSPC)?;
        let mut writer = Box::new(Writer::anew(&suspended.session(), self.attributes));
        let streamed = async {
            writer.keep(suspended.file(), 0..suspended.file().size()).await?;
            writer.write(suspended.rest()).await
        };
        streamed.await.map_err(|failure| errno(&failure))?;
        Ok(FileStream::begin(writer, Arc::clone(&self.limits), Arc::clone(&self.spool), slot))
    }

    fn edit(&mut self) -> Result<&mut Edit, Errno> {
        match &mut self.content {
            Content::Edited(edit) => Ok(edit),
            Content::Lost { why, .. } => Err(*why),
            Content::Streamed { .. } | Content::Published { .. } | Content::Shared(_) => {
                Err(Errno::IO)
            }
        }
    }

    /// Opens what was streamed and published, if that is all there is, so that it can be changed, and read when it
    /// has no name any more.
    pub async fn open_again(&mut self, path: &PoolPath) -> Result<(), Errno> {
        if matches!(self.content, Content::Published { .. }) {
            let base = self.pool.open_leased(path).await.map_err(|failure| errno(&failure))?;
            if Some(base.version()) != self.version {
                return Err(Errno::STALE); // what was written is not what would be changed
            }
            self.content = Content::Edited(Box::new(Edit::of(base, &self.spool)));
        }
        Ok(())
    }
}
