//! A file that is being written, until it is published whole.

use crate::edit::Edit;
use crate::errno::errno;
use crate::record::DraftNote;
use crate::spool::Spool;
use potluck_client::{Attributes, File, Pool, PutOptions, Writer};
use potluck_core::attributes::FileTime;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, SetAttributes};
use potluck_wire::error::code;
use rustix::io::Errno;
use std::sync::Arc;

/// Bytes of zeros that are streamed at a time.
const PIECE: usize = 1 << 20;

/// A file that is being written through this mount. Nobody else sees any of it before [`Draft::publish`].
pub struct Draft {
    pool: Pool,
    spool: Arc<Spool>,
    /// What the mount's record says of it, for the case that the mount dies.
    note: DraftNote,
    content: Content,
    attributes: Attributes,
    condition: Condition,
    /// Whether something was written or cut off since it was published last.
    is_dirty: bool,
    /// The version that was opened, or published last.
    version: Option<VersionId>,
    /// Whether attributes were set since then.
    has_new_attributes: bool,
    /// Whether the mount's record says that what is dirty could not be published.
    failure_noted: bool,
}

/// What a draft is made with.
pub struct DraftPlace {
    /// The pool in which it appears.
    pub pool: Pool,
    /// Where it is kept if it is not written in order.
    pub spool: Arc<Spool>,
    /// The place of the draft in the mount's record.
    pub note: DraftNote,
}

/// Where the bytes are that were written.
enum Content {
    /// They go to donors as they come, in order (the sliding window).
    Streamed { writer: Option<Box<Writer>>, written: u64 },
    /// They are those of the version that was opened, if there was one, and what was written since, which is on this
    /// machine and goes to donors when it is published.
    Edited(Box<Edit>),
    /// They were streamed and are published; nothing was written since.
    Published { size: u64 },
    /// They were streamed, and could not be published. A second try would publish a file without them.
    Lost { why: Errno, size: u64 },
}

impl Draft {
    /// A new file, which goes to donors as it is written.
    pub fn streamed(place: DraftPlace, condition: Condition, attributes: Attributes) -> Self {
        let content = Content::Streamed { writer: None, written: 0 };
        Self::new(place, content, attributes, condition, true)
    }

    /// An empty file that may be read and written anywhere.
    pub fn empty(place: DraftPlace, attributes: Attributes) -> Self {
        let content = Content::Edited(Box::new(Edit::empty(&place.spool)));
        Self::new(place, content, attributes, Condition::Always, true)
    }

    /// What is in a version, to be read and written anywhere.
    pub fn of_version(place: DraftPlace, base: File) -> Self {
        let (mtime, permissions) = (Some(base.attributes().mtime), base.attributes().permissions);
        let attributes = Attributes { mtime, permissions };
        let version = Some(base.version());
        let content = Content::Edited(Box::new(Edit::of(base, &place.spool)));
        let draft = Self::new(place, content, attributes, Condition::Always, false);
        Self { version, ..draft }
    }

    fn new(
        place: DraftPlace,
        content: Content,
        attributes: Attributes,
        condition: Condition,
        is_dirty: bool,
    ) -> Self {
        let DraftPlace { pool, spool, note } = place;
        let (version, has_new_attributes, failure_noted) = (None, false, false);
        Self {
            pool,
            spool,
            note,
            content,
            attributes,
            condition,
            is_dirty,
            version,
            has_new_attributes,
            failure_noted,
        }
    }

    /// Publishes under `condition` alone.
    pub fn with_condition(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }

    /// Bytes of the file as it is now.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Streamed { written, .. } => *written,
            Content::Edited(edit) => edit.size(),
            Content::Published { size } | Content::Lost { size, .. } => *size,
        }
    }

    /// The attributes that it will be published with.
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Sets the attributes that it will be published with.
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.attributes = attributes;
        self.has_new_attributes = true;
    }

    /// It could not be published at `path`, which the mount's record says until it is.
    pub fn failed(&mut self, path: &PoolPath, why: Errno) {
        match self.failure_noted {
            true => self.note.is_over(),
            false => self.note.failed(path, why.to_string()),
        }
        self.failure_noted = true;
    }

    /// Has the mount's record say under which name it is not published, if anything of it is not.
    pub fn note(&mut self, path: &PoolPath) {
        if self.is_dirty {
            self.note.unpublished(path);
        }
    }

    /// The mount's record is silent about a draft whose name leads nowhere any more, or elsewhere.
    pub fn has_no_name(&mut self) {
        self.note.is_over();
    }

    /// Writes at `offset`, or where the file ends.
    ///
    /// Errors: what ended the write session; [`Errno::OPNOTSUPP`] where bytes that went to donors would have to
    /// change; [`Errno::NOSPC`] where the spool is full; [`Errno::STALE`] where others replaced what was published.
    pub async fn write(
        &mut self,
        path: &PoolPath,
        offset: Option<u64>,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        self.open_again(path).await?;
        (self.is_dirty, self.failure_noted) = (true, false);
        self.note(path);
        self.attributes.mtime = None;
        let offset = offset.unwrap_or_else(|| self.size());
        match &mut self.content {
            Content::Streamed { writer, written } => {
                if offset != *written {
                    tracing::warn!(
                        "{path} is not written in order: open it for reading and writing"
                    );
                    return Err(Errno::OPNOTSUPP);
                }
                let options = PutOptions { condition: self.condition, ..PutOptions::default() };
                let writer = open(&self.pool, path, &options, self.attributes, writer).await?;
                writer.write(bytes).await.map_err(|failure| errno(&failure))?;
                *written += bytes.len() as u64;
            }
            Content::Edited(edit) => edit.write(offset, bytes)?,
            Content::Published { .. } => unreachable!("it was opened again"),
            Content::Lost { why, .. } => return Err(*why),
        }
        Ok(())
    }

    /// The bytes at `offset` as they are now.
    ///
    /// Errors: [`Errno::OPNOTSUPP`] for one that goes to donors as it is written.
    pub async fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        match &mut self.content {
            Content::Edited(edit) => edit.read(offset, len).await,
            Content::Lost { why, .. } => Err(*why),
            Content::Streamed { .. } | Content::Published { .. } => Err(Errno::OPNOTSUPP),
        }
    }

    /// Cuts the file off, or extends it by zeros.
    ///
    /// Errors: [`Errno::OPNOTSUPP`] where bytes that went to donors would have to change; [`Errno::NOSPC`] where
    /// the spool is full; [`Errno::STALE`] where others replaced what was published.
    pub async fn set_size(&mut self, path: &PoolPath, new: u64) -> Result<(), Errno> {
        if new == self.size() && !matches!(self.content, Content::Lost { .. }) {
            return Ok(());
        }
        self.open_again(path).await?;
        self.attributes.mtime = None;
        match &mut self.content {
            Content::Streamed { writer, written } if new == 0 => {
                *writer = None;
                *written = 0;
            }
            Content::Streamed { written, .. } if new > *written => {
                let missing = new - *written;
                for at in (0..missing).step_by(PIECE) {
                    let zeros = vec![0; (missing - at).min(PIECE as u64) as usize];
                    Box::pin(self.write(path, None, &zeros)).await?;
                }
            }
            Content::Streamed { .. } | Content::Published { .. } => return Err(Errno::OPNOTSUPP),
            Content::Lost { why, .. } => return Err(*why),
            Content::Edited(edit) => edit.set_size(new)?,
        }
        (self.is_dirty, self.failure_noted) = (true, false);
        self.note(path);
        Ok(())
    }

    /// Returns when donors have what was streamed so far, at the ack level of the policy. What was not written in order
    /// is stored by then on this machine's disk alone.
    pub async fn sync(&mut self) -> Result<(), Errno> {
        match &mut self.content {
            Content::Streamed { writer: Some(writer), .. } => {
                writer.flush().await.map(drop).map_err(|failure| errno(&failure))
            }
            Content::Streamed { writer: None, .. } | Content::Published { .. } => Ok(()),
            Content::Lost { why, .. } => Err(*why),
            Content::Edited(edit) => edit.sync().await,
        }
    }

    /// Makes the file visible whole at `path`. What is written afterwards goes on from there.
    pub async fn publish(&mut self, path: &PoolPath) -> Result<(), Errno> {
        if !self.is_dirty {
            return self.publish_attributes(path).await;
        }
        self.note.publishing(path);
        let options = PutOptions { condition: self.condition, ..PutOptions::default() };
        // The time that is shown of it before is that which it has.
        self.attributes.mtime.get_or_insert(FileTime::of_ms(self.pool.wall_ms()));
        let size = self.size();
        let mut fresh = None;
        let was_streamed = match &mut self.content {
            Content::Streamed { writer, .. } => {
                fresh = writer.take();
                self.content = Content::Lost { why: Errno::IO, size }; // until it is there
                true
            }
            Content::Edited(_) => false,
            Content::Published { .. } => unreachable!("nothing of it was changed"),
            Content::Lost { why, .. } => return Err(*why),
        };
        let finished = self.finish(path, &options, fresh).await;
        if was_streamed {
            self.content = match finished {
                Ok(_) => Content::Published { size },
                Err(why) => Content::Lost { why, size },
            };
        }
        self.version = match finished {
            Ok(version) => Some(version),
            Err(why) => {
                self.note.unpublished(path);
                return Err(why);
            }
        };
        self.note.published();
        (self.is_dirty, self.has_new_attributes) = (false, false);
        self.condition = Condition::Always;
        Ok(())
    }

    /// Sets the attributes at `path`, if any were set since its content was published, and that is as it was.
    async fn publish_attributes(&mut self, path: &PoolPath) -> Result<(), Errno> {
        if self.is_dirty || !self.has_new_attributes {
            return Ok(());
        }
        let Attributes { mtime, permissions } = self.attributes;
        let (path, permissions) = (path.clone(), Some(permissions));
        let set = SetAttributes { path, version: self.version, mtime, permissions };
        match self.pool.set_attributes(&set).await {
            // Another version took its place since, as it may do after.
            Err(failure) if failure.code == code::WRONG_VERSION => {}
            set => set.map_err(|failure| errno(&failure))?,
        }
        self.has_new_attributes = false;
        Ok(())
    }

    /// Brings what was not streamed to the writer, and finishes it.
    async fn finish(
        &mut self,
        path: &PoolPath,
        options: &PutOptions,
        mut writer: Option<Box<Writer>>,
    ) -> Result<VersionId, Errno> {
        let opened = open(&self.pool, path, options, self.attributes, &mut writer).await?;
        if let Content::Edited(edit) = &self.content {
            edit.write_to(opened).await?;
        }
        opened.set_attributes(self.attributes);
        let writer = writer.expect("just opened");
        writer.finish().await.map_err(|failure| errno(&failure))
    }

    /// Opens what was streamed and published, if that is all there is, so that it can be changed.
    async fn open_again(&mut self, path: &PoolPath) -> Result<(), Errno> {
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

/// The writer of a file, which is opened when its first bytes come.
async fn open<'a>(
    pool: &Pool,
    path: &PoolPath,
    options: &PutOptions,
    attributes: Attributes,
    writer: &'a mut Option<Box<Writer>>,
) -> Result<&'a mut Writer, Errno> {
    if writer.is_none() {
        let opened = pool.create(path, options, attributes).await;
        *writer = Some(Box::new(opened.map_err(|failure| errno(&failure))?));
    }
    Ok(writer.as_mut().expect("just made"))
}
