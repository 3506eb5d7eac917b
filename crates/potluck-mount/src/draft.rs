//! Drafts: files that are being written, until they are published whole.

mod closing;
mod publishing;
mod reading;

pub use closing::may_try_again;

use crate::closed_files::KeptFile;
use crate::edit::Edit;
use crate::errno::errno;
use crate::joint_content::JointContent;
use crate::locks::ReservedName;
use crate::record::DraftNote;
use crate::small_files::{SmallFile, SmallFiles};
use crate::spool::Spool;
use crate::stream::FileStream;
use crate::write_behind::FileBehind;
use crate::write_limits::WriteLimits;
use crate::write_rates::{AllCopies, WrittenFiles};
use potluck_client::{Attributes, File, PendingReport, Pool, PutOptions, VisibleFile};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::clock::Tick;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::recipe::LARGEST_FILE;
use potluck_wire::control::Condition;
use potluck_wire::error::code;
use rustix::io::Errno;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// The growth of a file in the spool, in bytes, after which quota and room are looked at again.
const SPOOL_STEP: u64 = 32 << 20;

/// A file that is being written through this mount. Other clients see none of it before [`Draft::publish`].
pub struct Draft {
    pool: Pool,
    small_files: Arc<SmallFiles>,
    spool: Arc<Spool>,
    limits: Arc<WriteLimits>,
    written_files: Arc<WrittenFiles>,
    /// The draft's place in the mount's record, which is read if the mount dies.
    note: DraftNote,
    content: Content,
    /// The pending report of the session in which the file is streamed.
    report: Option<PendingReport>,
    /// The time at which the draft was made, when a program opened the file.
    opened: Tick,
    attributes: Attributes,
    condition: Condition,
    /// The name of the file until it is published for the first time, if it was made with `O_EXCL`.
    reserved: Option<ReservedName>,
    /// True if something was written or cut off since the file was published last.
    is_dirty: bool,
    /// True if the file was changed after it was made, or cut off by open(). A shell makes a file or cuts it off before
    /// another program writes it.
    is_written: bool,
    /// The error of the first write that failed. Nothing is published without that write.
    failure: Option<Errno>,
    /// True if the file has lost its name: programs that have it open go on, and it is never published.
    is_nameless: bool,
    /// The version that was opened, or published last.
    version: Option<VersionId>,
    /// The number of bytes that the file had in the spool when quota and room were looked at last.
    spool_checked: u64,
    /// True if attributes were set since the file was published last.
    has_new_attributes: bool,
    /// True if the mount's record says that the unpublished changes could not be published.
    failure_noted: bool,
    /// True while a program waits until no power cut undoes what is published.
    is_synced: bool,
    /// The draft's place among the files that are published behind their close(), from close() on until then.
    behind: Option<Behind>,
}

/// The place of a draft among the files that are published behind their close().
struct Behind {
    /// The turn of the draft.
    file: FileBehind,
    /// The file on this machine by which the draft outlives the mount; `None` if it does not.
    kept: Option<KeptFile>,
}

/// The change of the pool that publishing a draft made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedChange {
    /// The pool had all of the draft already.
    Nothing,
    /// Attributes were set, unless another version has taken the file's place.
    Attributes,
    /// The file has a new version. `dir_modified` is the time at which its directory was modified; `None` if the
    /// version replaced another, or is shared with other mounts.
    Content { dir_modified: Option<FileTime> },
}

/// The file that became visible, and how it is known when all its copies are there.
type Finished = (VisibleFile, AllCopies);

/// The parts of a mount that a draft uses.
pub struct DraftPlace {
    /// The pool in which the draft appears.
    pub pool: Pool,
    /// The sessions in which the draft is written while it is small.
    pub small_files: Arc<SmallFiles>,
    /// The spool in which the draft is kept if it is not written in order.
    pub spool: Arc<Spool>,
    /// The limits that all drafts of the mount that are written in order share.
    pub limits: Arc<WriteLimits>,
    /// The rates of written files, where the draft's is noted.
    pub written_files: Arc<WrittenFiles>,
    /// The place of the draft in the mount's record.
    pub note: DraftNote,
}

/// The content of a draft, by the place where the written bytes are.
enum Content {
    /// The bytes are written in order: `written` of them so far. `size` is larger if a program extended the file beyond
    /// them.
    Streamed { stream: Streamed, written: u64, size: u64 },
    /// The content is a version, what donors were given before, or nothing, with the changes since then. The changes
    /// are on this machine, and go to donors when the file is synced or published.
    Edited(Box<Edit>),
    /// Other mounts may write other bytes of the file at the same time.
    Shared(Box<JointContent>),
    /// The content is that of the version that was published when the bytes had been streamed, or of one that others
    /// have put in its place; nothing was written since then.
    Published { size: u64, holes: u64 },
    /// The written bytes could not be written or published, and are lost. Nothing is published without them.
    Lost { why: Errno, size: u64 },
}

/// The destination of bytes that are written in order.
enum Streamed {
    /// There are no bytes yet.
    Nothing,
    /// The bytes are few, and in memory.
    Small(SmallFile, OwnedSemaphorePermit),
    /// The bytes go to donors as they come.
    Stream(Box<FileStream>),
}

impl Draft {
    /// Makes a draft of a new file, which goes to donors as it is written, for as long as it is written in order.
    pub fn empty(place: DraftPlace, attributes: Attributes) -> Self {
        let content = Content::Streamed { stream: Streamed::Nothing, written: 0, size: 0 };
        let mut draft = Self::new(place, content, attributes, true);
        draft.is_modified_now();
        draft
    }

    /// Makes a draft of a version that was cut off to nothing when it was opened.
    pub fn cut_off_version(place: DraftPlace, cut: &File) -> Self {
        let draft = Self::empty(place, cut.attributes().into());
        Self { version: Some(cut.version()), ..draft }
    }

    /// Makes a draft of the content of a version, to be read and written anywhere.
    pub fn of_version(place: DraftPlace, base: File) -> Self {
        let (attributes, version) = (base.attributes().into(), Some(base.version()));
        let content = Content::Edited(Box::new(Edit::of(base, &place.spool)));
        let draft = Self::new(place, content, attributes, false);
        Self { version, ..draft }
    }

    /// Makes a draft for the bytes that this mount writes of a file that other mounts write, too.
    pub async fn shared(place: DraftPlace, path: &PoolPath, before: File) -> Result<Self, Errno> {
        let EntryAttributes { permissions, owner, .. } = before.attributes();
        let attributes = Attributes { permissions, owner, ..Attributes::default() };
        let version = Some(before.version());
        let shared = JointContent::join(&place.pool, path, before, attributes).await?;
        let content = Content::Shared(Box::new(shared));
        let draft = Self::new(place, content, attributes, false);
        Ok(Self { version, ..draft })
    }

    /// Makes a file that is open shared with other mounts.
    ///
    /// Errors: [`Errno::BUSY`] if the file is not empty and has changes that are not published.
    pub async fn become_shared(&mut self, path: &PoolPath) -> Result<(), Errno> {
        if self.is_shared() {
            return Ok(());
        }
        if self.is_dirty && self.size() > 0 {
            return Err(Errno::BUSY);
        }
        self.publish(path).await?; // so that other mounts find the file
        let before = self.pool.open_leased(path).await.map_err(|failure| errno(&failure))?;
        self.version = Some(before.version());
        let shared = JointContent::join(&self.pool, path, before, self.attributes).await?;
        self.content = Content::Shared(Box::new(shared));
        Ok(())
    }

    /// Returns whether other mounts may write the file, too.
    pub fn is_shared(&self) -> bool {
        matches!(self.content, Content::Shared(_))
    }

    fn new(place: DraftPlace, content: Content, attributes: Attributes, is_dirty: bool) -> Self {
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
            condition: Condition::Always,
            reserved: None,
            is_dirty,
            is_written,
            failure,
            is_nameless,
            version,
            spool_checked: 0,
            has_new_attributes,
            failure_noted,
            is_synced: false,
            behind: None,
        }
    }

    /// Returns the size in bytes of the file as it is now.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Streamed { size, .. } => *size,
            Content::Edited(edit) => edit.size(),
            Content::Shared(shared) => shared.size(),
            Content::Published { size, .. } | Content::Lost { size, .. } => *size,
        }
    }

    /// Returns how many bytes of the file are in holes, as far as that is known without a look at all its parts.
    pub fn holes(&self) -> u64 {
        match &self.content {
            Content::Streamed { written, size, .. } => size - written,
            Content::Edited(edit) => edit.holes(),
            Content::Published { holes, .. } => *holes,
            // Other mounts may write where this one knows of a hole.
            Content::Shared(_) | Content::Lost { .. } => 0,
        }
    }

    /// Sets the times of modification and change to now; they are kept when the file is published. Those of a shared file
    /// are set when all mounts have finished.
    fn is_modified_now(&mut self) {
        let now = (!self.is_shared()).then(|| self.now());
        (self.attributes.mtime, self.attributes.changed) = (now, now);
    }

    fn now(&self) -> FileTime {
        FileTime::of_ms(self.pool.wall_ms())
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

    /// Notes in the mount's record that the draft could not be published at `path`, unless the record says so already.
    pub fn failed(&mut self, path: &PoolPath, why: Errno) {
        if self.outlives_mount() && may_try_again(why) {
            return self.note.kept(path);
        }
        match self.failure_noted {
            true => self.note.is_over(),
            false => self.note.failed(path, why.to_string()),
        }
        self.failure_noted = true;
    }

    /// Notes whether a program was told that the draft could not be published at `path`. If it was, the mount's record
    /// does not say so until somebody closes the file who is not told.
    pub fn is_told(&mut self, is_told: bool, path: &PoolPath, why: Errno) {
        match is_told {
            true if self.failure_noted => self.note.is_told(),
            true => {}
            false => self.note.is_not_told(path, why.to_string()),
        }
    }

    /// Returns whether the draft can be read: false if what was written is lost.
    pub fn is_readable(&self) -> bool {
        !matches!(self.content, Content::Lost { .. })
    }

    /// Gives up unpublished changes: they were made under locks that were lost, so others may have changed the file.
    pub fn lose(&mut self, why: Errno) {
        if self.is_dirty {
            self.content = Content::Lost { why, size: self.size() };
        }
    }

    /// Takes over the version at `path` if others have published one, unless this draft has unpublished changes, is
    /// lost or is shared.
    pub async fn refresh(&mut self, path: &PoolPath) -> Result<(), Errno> {
        if self.is_dirty || matches!(self.content, Content::Lost { .. } | Content::Shared(_)) {
            return Ok(());
        }
        let base = match self.pool.open_leased(path).await {
            Err(failure) if failure.code == code::NO_ENTRY => return Ok(()), // the file was removed
            base => base.map_err(|failure| errno(&failure))?,
        };
        if Some(base.version()) != self.version {
            self.goes_on_from(&base);
            self.content = Content::Edited(Box::new(Edit::of(base, &self.spool)));
        }
        Ok(())
    }

    /// Takes over the version at `path` if others have published one, for a program that opens the file. A draft that has
    /// unpublished changes, is lost or is shared does not. Returns false if there is no file any more and the draft's
    /// content was in that file alone.
    pub async fn take_over(&mut self, path: &PoolPath) -> Result<bool, Errno> {
        if self.is_dirty || !self.is_common() {
            return Ok(true);
        }
        let there = match self.pool.open(path).await {
            Ok(there) => there,
            Err(failure) => match failure.code.as_str() {
                code::NO_ENTRY | code::NOT_RECURSIVE | code::WRONG_KIND => {
                    return Ok(!self.is_published());
                }
                _ => return Err(errno(&failure)),
            },
        };
        if Some(there.version()) != self.version {
            self.goes_on_from(&there);
            self.content =
                Content::Published { size: there.size(), holes: there.size() - there.data() };
        }
        Ok(true)
    }

    /// Notes that others have published the version that this draft has now.
    fn goes_on_from(&mut self, there: &File) {
        self.attributes = there.attributes().into();
        self.version = Some(there.version());
        self.has_new_attributes = false;
    }

    /// Notes that the file has lost its name: the draft is never published, and the mount's record does not name it.
    pub fn has_no_name(&mut self) {
        self.is_nameless = true;
        self.condition = Condition::Always;
        self.note.is_over();
    }

    /// Notes that a process is going to write `len` bytes at `offset`, or at the end of the file if that is `None`.
    ///
    /// Errors: [`Errno::BUSY`] if the file is shared and another process has written some of these bytes;
    /// [`Errno::FBIG`] beyond the largest size of a file. The file is then as it was.
    pub fn claim(
        &mut self,
        process: Option<u32>,
        offset: Option<u64>,
        len: usize,
    ) -> Result<(), Errno> {
        let start = offset.unwrap_or_else(|| self.size());
        let end = start.saturating_add(len as u64);
        match &mut self.content {
            _ if end > LARGEST_FILE => Err(Errno::FBIG),
            Content::Shared(shared) => shared.claim(process, start..end),
            _ => Ok(()),
        }
    }

    /// Gives up what this mount wrote of a shared file that has lost its name.
    pub async fn withdraw(&mut self) {
        if let Content::Shared(shared) = &mut self.content {
            shared.withdraw().await;
        }
    }

    /// Returns whether [`Self::has_no_name`] was called.
    pub fn is_nameless(&self) -> bool {
        self.is_nameless
    }

    /// Makes the draft that of a file which is published only if its name is still free.
    pub fn must_be_new(&mut self) {
        self.condition = Condition::IfAbsent;
    }

    /// Notes that the draft was renamed: it replaces what has the new name.
    pub fn is_renamed(&mut self) {
        self.attributes.changed = Some(self.now());
        self.condition = Condition::Always;
    }

    /// Returns whether something was written or cut off since the draft was published last.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// Returns whether the file was written in order and published, and nothing was done with it since: its content is
    /// in the published version alone.
    pub fn is_published(&self) -> bool {
        matches!(self.content, Content::Published { .. })
    }

    /// Returns whether all programs of the mount that have the file open can read it by this draft: false for one that
    /// is lost, and for one that is shared with other mounts, of which programs read the version before.
    pub fn is_common(&self) -> bool {
        self.is_readable() && !self.is_shared()
    }

    /// Returns whether the draft has changes that a program which opens the file in this mount is to read.
    pub fn is_changed(&self) -> bool {
        self.is_dirty && self.failure.is_none() && self.is_common()
    }

    /// Returns whether the draft is not published, and nothing was written since it was made, or cut off by open().
    pub fn is_merely_begun(&self) -> bool {
        self.is_dirty && !self.is_written && self.failure.is_none()
    }

    /// Notes that a write failed, so that the file does not have the content that the program meant. A streamed file is
    /// lost then. An edit is not published either, unless the file is locked (`is_locked`): programs that lock files,
    /// such as databases, undo what they wrote. Of a shared file the other bytes are published all the same.
    pub fn fail(&mut self, why: Errno, is_locked: bool) {
        if matches!(self.content, Content::Streamed { .. }) {
            self.content = Content::Lost { why, size: self.size() };
        }
        if self.is_dirty && !is_locked && !self.is_shared() {
            self.failure.get_or_insert(why);
        }
    }

    /// Writes at `offset`, or at the end of the file if that is `None`.
    ///
    /// Errors: what ended the write session; [`Errno::NOSPC`] if the spool is full and its content cannot be stored;
    /// [`Errno::STALE`] if others replaced the version that this draft published.
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

    /// Returns the bytes of the file in the spool if quota and room are to be checked again, because these have grown by
    /// [`SPOOL_STEP`] since the last check. A file without a name is never published, and needs neither.
    pub fn spooled_to_be_checked(&mut self) -> Option<u64> {
        let Content::Edited(edit) = &self.content else { return None };
        let spooled = edit.spooled();
        self.spool_checked = self.spool_checked.min(spooled); // spooled bytes may have been stored, or cut off
        if self.is_nameless || spooled - self.spool_checked < SPOOL_STEP {
            return None;
        }
        self.spool_checked = spooled;
        Some(spooled)
    }

    /// Notes that there is no quota or no room for the file: both are checked again at the next write that makes the
    /// file's part of the spool larger. If only the end of a large write was refused, the kernel reports a short write,
    /// and the program gets the error from its next write. Bytes in the spool may be overwritten, as databases do to
    /// undo a change.
    pub fn is_refused(&mut self) {
        self.spool_checked = self.spool_checked.saturating_sub(SPOOL_STEP - 1);
    }

    /// Returns whether bytes at `offset` can be streamed: they follow the streamed ones, and the file is streamed or
    /// may be. The first call opens a write session, which checks that the file may be written.
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

    /// Returns the options of a write session of the file's own.
    fn options(&self) -> PutOptions {
        PutOptions { condition: self.condition, soon: true, ..PutOptions::default() }
    }

    /// Begins to stream the file in a write session of its own.
    async fn begin_stream(
        &mut self,
        path: &PoolPath,
        slot: OwnedSemaphorePermit,
    ) -> Result<FileStream, Errno> {
        let options = self.options();
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
            // Bytes that are not written by the time of publishing are zeros.
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

    /// Cuts the file off to nothing, as a program opened it with `O_TRUNC`. If it has no unpublished changes, that holds
    /// for what others have published since, too.
    ///
    /// Errors: those of [`Draft::set_size`], and of opening what others have published.
    pub async fn cut_off(&mut self, path: &PoolPath) -> Result<(), Errno> {
        match self.content {
            // Nothing of the version is kept, whichever it is: the file may be written in order again.
            Content::Published { size, .. } if size > 0 => {
                self.content = Content::Streamed { stream: Streamed::Nothing, written: 0, size };
            }
            _ => self.refresh(path).await?,
        }
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

    /// Stores the changes of an edit in a write session, so that they leave the spool.
    async fn store(&mut self, path: &PoolPath) -> Result<(), Errno> {
        let options = self.options();
        let Content::Edited(edit) = &mut self.content else { return Ok(()) };
        let (writer, _) = edit.writer(&self.pool, path, &options, self.attributes).await?;
        edit.store(writer).await
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
}
