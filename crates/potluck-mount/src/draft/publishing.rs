//! The publishing of drafts: a file that was written becomes visible whole, wherever its content is.

use super::{Content, Draft, Finished, PublishedChange, Streamed};
use crate::edit::Edit;
use crate::errno::errno;
use crate::locks::ReservedName;
use crate::small_files::SmallFile;
use crate::stream::FileStream;
use crate::write_rates::{AllCopies, Published};
use potluck_client::{Attributes, PutOptions, VisibleFile, Writer};
use potluck_core::attributes::AttributesToSet;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, SetAttributes};
use potluck_wire::error::code;
use rustix::io::Errno;

/// The bytes of a published edit that may stay in the spool: each fsync stores these again.
const MOST_SPOOLED: u64 = 4 << 20;

/// The time in milliseconds from a change to its publication in which nobody is expected to make a backup.
const SEEN_AT_ONCE_MS: i64 = 1000;

impl Draft {
    /// Makes the draft that of a file whose name is reserved until it is published.
    pub fn with_reserved(mut self, name: Option<ReservedName>) -> Self {
        self.reserved = name;
        self
    }

    /// Frees the name that is reserved for the file, because it is published under another, or not at all.
    pub async fn free_name(&mut self) {
        if let Some(name) = self.reserved.take() {
            name.free().await;
        }
    }

    /// Makes the mount's record say that the draft is not published at `path`, if it has unpublished changes and a
    /// name.
    pub fn note(&mut self, path: &PoolPath) {
        if self.is_dirty && !self.is_nameless {
            self.note.unpublished(path);
        }
    }

    /// Returns the small file that the draft is, if it can be published at `path` behind its close(): all of it is in
    /// memory, it goes with others of its session, and nothing has failed so far.
    pub fn small_file(&mut self, path: &PoolPath) -> Option<&mut SmallFile> {
        let may_be_published = self.is_dirty && self.failure.is_none() && !self.is_nameless;
        let may_be_published = may_be_published && SmallFile::may_have(self.size());
        match &mut self.content {
            Content::Streamed { stream: Streamed::Small(small, _), .. } => {
                Some(small).filter(|small| may_be_published && small.is_in_directory_of(path))
            }
            _ => None,
        }
    }

    /// Returns whether [`Self::publish`] has something to make visible.
    pub fn has_unpublished(&self) -> bool {
        let is_changed = self.is_dirty || self.has_new_attributes || self.is_shared();
        is_changed && !self.is_nameless
    }

    /// Returns the error of the first write that failed, without which nothing of the draft is published.
    pub fn failure(&self) -> Option<Errno> {
        self.failure
    }

    /// Returns the version that was opened, or published last, if it is known.
    pub fn version(&self) -> Option<VersionId> {
        self.version
    }

    /// Sets whether a program waits until no power cut undoes what is published next.
    pub fn set_synced(&mut self, synced: bool) {
        self.is_synced = synced;
    }

    /// Returns whether [`Self::set_synced`] was called with `true` last.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Makes the file visible whole at `path`. Later writes change the published version.
    pub async fn publish(&mut self, path: &PoolPath) -> Result<PublishedChange, Errno> {
        if self.is_shared() {
            return self.finish_shared(path).await;
        }
        if !self.is_dirty {
            return self.publish_attributes(path).await;
        }
        if let Some(why) = self.failure {
            return Err(why);
        }
        if let Some(name) = &self.reserved {
            name.is_still_reserved().await?;
        }
        if !self.outlives_mount() {
            self.note.publishing(path);
        }
        self.change_is_told();
        let options = self.options();
        let finished = match self.content {
            Content::Streamed { .. } => self.finish_stream(path, &options).await,
            Content::Edited(_) => self.finish_edit(path, &options).await,
            Content::Published { .. } | Content::Shared(_) => {
                unreachable!("nothing of it was changed")
            }
            Content::Lost { why, .. } => return Err(why),
        };
        let (visible, copies) = finished.inspect_err(|_| {
            if !self.outlives_mount() {
                self.note.unpublished(path);
            }
        })?;
        if let Some(name) = self.reserved.take() {
            name.published();
        }
        self.version = Some(visible.version);
        let took = self.pool.now().saturating_sub(self.opened);
        let published = Published { path: path.clone(), bytes: self.size() - self.holes(), took };
        let copies = if visible.below_policy { AllCopies::Unknown } else { copies };
        self.written_files.published(published, copies);
        self.note.published();
        (self.is_dirty, self.is_written, self.has_new_attributes) = (false, false, false);
        self.condition = Condition::Always;
        Ok(PublishedChange::Content { dir_modified: visible.dir_modified })
    }

    /// Makes the file change now if its last change was so long ago that somebody may have made a backup since, who has not
    /// seen it, and goes by these times the next time. Otherwise the time stays that of the last write, because programs as
    /// `git` compare it with that from before close().
    fn change_is_told(&mut self) {
        let now = self.now();
        if self.attributes.changed.is_some_and(|changed| now.ms() - changed.ms() > SEEN_AT_ONCE_MS)
        {
            self.attributes.changed = Some(now);
        }
    }

    /// Returns the content of a file that is in memory as a whole.
    pub fn small_content(&self) -> Option<Vec<u8>> {
        let size = Some(self.size()).filter(|size| SmallFile::may_have(*size))?;
        self.read_in_memory(0, size as usize)
    }

    /// Keeps the content that was just published at `path` within reach of a program that goes on writing, for others may
    /// replace or remove that version at once. The content of a `small` file goes to the spool; any other is read from
    /// the version, which is leased, so that the spool does not grow with what was published.
    pub async fn goes_on(&mut self, path: &PoolPath, small: Option<Vec<u8>>) {
        let is_in_spool = match &self.content {
            Content::Published { .. } => false,
            Content::Edited(edit) => edit.spooled() < MOST_SPOOLED,
            Content::Streamed { .. } | Content::Shared(_) | Content::Lost { .. } => return,
        };
        if self.is_dirty || self.is_nameless || is_in_spool {
            return;
        }
        if let (true, Some(small)) = (self.is_published(), small) {
            let mut edit = Box::new(Edit::empty(&self.spool));
            if edit.write(0, &small).is_ok() {
                self.content = Content::Edited(edit);
                return;
            }
        }
        // If others were faster, or nobody answers, the content is where it is.
        let base = self.pool.open_leased(path).await.ok();
        if let Some(base) = base.filter(|base| Some(base.version()) == self.version) {
            self.content = Content::Edited(Box::new(Edit::of(base, &self.spool)));
        }
    }

    /// Ends this mount's part of the next version of a shared file.
    async fn finish_shared(&mut self, path: &PoolPath) -> Result<PublishedChange, Errno> {
        let Content::Shared(shared) = &mut self.content else {
            return Ok(PublishedChange::Nothing);
        };
        self.note.publishing(path);
        shared.finish().await.inspect_err(|_| self.note.unpublished(path))?;
        self.note.published();
        (self.is_dirty, self.version) = (false, None); // the next version is not known here
        self.publish_attributes(path).await?;
        Ok(PublishedChange::Content { dir_modified: None })
    }

    /// Sets the attributes at `path`, if any were set since the content was published, and no content is unpublished.
    async fn publish_attributes(&mut self, path: &PoolPath) -> Result<PublishedChange, Errno> {
        if self.is_dirty || !self.has_new_attributes {
            return Ok(PublishedChange::Nothing);
        }
        let Attributes { mtime, permissions, owner, changed, accessed } = self.attributes;
        let permissions = Some(permissions);
        let attributes = AttributesToSet { mtime, permissions, owner, accessed, changed };
        let set = SetAttributes { path: path.clone(), version: self.version, attributes };
        match self.pool.set_attributes(&set).await {
            // Another version has taken the file's place, as it might have done just after this call.
            Err(failure) if failure.code == code::WRONG_VERSION => {}
            set => set.map_err(|failure| errno(&failure))?,
        }
        self.has_new_attributes = false;
        Ok(PublishedChange::Attributes)
    }

    /// Publishes bytes that were written in order. If this fails the content is lost: a second try would publish a file
    /// without what donors were given.
    async fn finish_stream(
        &mut self,
        path: &PoolPath,
        options: &PutOptions,
    ) -> Result<Finished, Errno> {
        let (size, holes) = (self.size(), self.holes());
        let lost = |why| Content::Lost { why, size };
        let content = std::mem::replace(&mut self.content, lost(Errno::IO)); // until it is published
        let Content::Streamed { stream, .. } = content else { return Err(Errno::IO) };
        let finished = match stream {
            Streamed::Stream(stream) => self.finish_begun(*stream, path, options, size).await,
            Streamed::Small(small, slot) => {
                drop(slot); // the next file that is written in order may have it
                self.finish_small(small, path, options, size).await
            }
            Streamed::Nothing => match self.small_files.begin(path).await {
                Ok(Some(small)) => self.finish_small(small, path, options, size).await,
                Ok(None) => self.finish_alone(&[], path, options, size).await,
                Err(failure) => Err(errno(&failure)),
            },
        };
        self.content = match finished {
            Ok(_) => Content::Published { size, holes },
            Err(why) => lost(why),
        };
        finished
    }

    async fn finish_begun(
        &mut self,
        stream: FileStream,
        path: &PoolPath,
        options: &PutOptions,
        size: u64,
    ) -> Result<Finished, Errno> {
        let mut writer = *stream.end().await?;
        writer.set_place(path.clone(), options.condition); // the file may have another name by now
        let report = self.report.take();
        let copies = report.map_or(AllCopies::Unknown, AllCopies::Reported);
        Ok((self.finish_writer(writer, size).await?, copies))
    }

    /// Publishes a small file in the session that it shares with others of its directory; in a session of its own if it
    /// is too large or in another directory by now, or if the shared session has failed.
    async fn finish_small(
        &mut self,
        mut small: SmallFile,
        path: &PoolPath,
        options: &PutOptions,
        size: u64,
    ) -> Result<Finished, Errno> {
        if SmallFile::may_have(size) && small.is_in_directory_of(path) {
            small.bytes.resize(size as usize, 0);
            let (attributes, condition) = (self.attributes, self.condition);
            match small.make_visible(path, attributes, condition, self.is_synced).await {
                Ok(visible) => return Ok((visible, AllCopies::WhenVisible)),
                Err(failure) if small.may_try_alone(&failure) => {}
                Err(failure) => return Err(errno(&failure)),
            }
        }
        small.has_turn().await;
        self.finish_alone(&small.bytes, path, options, size).await
    }

    async fn finish_alone(
        &mut self,
        bytes: &[u8],
        path: &PoolPath,
        options: &PutOptions,
        size: u64,
    ) -> Result<Finished, Errno> {
        let session = self.pool.session(path, options).await;
        let session = session.map_err(|failure| errno(&failure))?;
        let mut writer = session.create(path.clone(), self.attributes);
        let copies = AllCopies::Reported(session.pending_report());
        writer.write(bytes).await.map_err(|failure| errno(&failure))?;
        Ok((self.finish_writer(writer, size).await?, copies))
    }

    /// Fills a file up to `size` bytes with zeros, and makes it visible.
    async fn finish_writer(&self, mut writer: Writer, size: u64) -> Result<VisibleFile, Errno> {
        let zeros = size.saturating_sub(writer.written());
        writer.write_zeros(zeros).await.map_err(|failure| errno(&failure))?;
        writer.set_attributes(self.attributes);
        writer.set_synced(self.is_synced);
        writer.make_visible().await.map_err(|failure| errno(&failure))
    }

    /// Publishes an edit. One of a few bytes that is synced, or behind its close(), goes into the session that small files of its
    /// directory share: programs that sync each record would open one for each. If this fails it can be tried again.
    async fn finish_edit(
        &mut self,
        path: &PoolPath,
        options: &PutOptions,
    ) -> Result<Finished, Errno> {
        let Content::Edited(edit) = &self.content else { return Err(Errno::IO) };
        let is_one_of_many = self.is_synced || self.is_behind();
        if is_one_of_many && edit.spooled() < MOST_SPOOLED && !edit.has_session() {
            let session = self.small_files.session(path).await;
            if let Some(session) = session.map_err(|failure| errno(&failure))? {
                let mut writer = session.create(path.clone(), self.attributes);
                writer.set_place(path.clone(), options.condition);
                let finished = self.finish_edit_by(edit, writer).await;
                // The session may have failed because of other files.
                if finished.is_ok() || !session.has_failed() {
                    return Ok((finished?, AllCopies::WhenVisible));
                }
            }
        }
        let (writer, copies) = edit.writer(&self.pool, path, options, self.attributes).await?;
        Ok((self.finish_edit_by(edit, writer).await?, copies))
    }

    async fn finish_edit_by(&self, edit: &Edit, mut writer: Writer) -> Result<VisibleFile, Errno> {
        edit.write_to(&mut writer).await?;
        writer.set_attributes(self.attributes);
        writer.set_synced(self.is_synced);
        writer.make_visible().await.map_err(|failure| errno(&failure))
    }
}
