//! A file that is being written, until it is published whole.

use crate::errno::errno;
use potluck_client::{Attributes, File, Pool, PutOptions, Writer};
use potluck_core::path::PoolPath;
use potluck_wire::control::Condition;
use rustix::io::Errno;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes that a spool file is read and written by at a time.
const PIECE: usize = 1 << 20;

/// A file that is being written through this mount. Nobody else sees any of it before [`Draft::publish`].
pub struct Draft {
    pool: Pool,
    content: Content,
    attributes: Attributes,
    condition: Condition,
    /// Whether something was written, cut off or set since it was published last.
    is_dirty: bool,
}

/// Where the bytes are that were written.
enum Content {
    /// They go to donors as they come, in order (the sliding window).
    Streamed { writer: Option<Box<Writer>>, written: u64 },
    /// They are in a file without a name on this machine, and go to donors when it is published.
    Spooled { spool: Arc<std::fs::File>, size: u64 },
    /// They were streamed and are published; nothing was written since.
    Published { size: u64 },
    /// They were streamed, and could not be published. A second try would publish a file without them.
    Lost { why: Errno, size: u64 },
}

impl Draft {
    /// A new file, which goes to donors as it is written.
    pub fn streamed(pool: Pool, condition: Condition, attributes: Attributes) -> Self {
        let content = Content::Streamed { writer: None, written: 0 };
        Self { pool, content, attributes, condition, is_dirty: true }
    }

    /// A file that may be read and written anywhere: what is in `base`, or nothing.
    pub async fn spooled(
        pool: Pool,
        dir: &Path,
        base: Option<&File>,
        attributes: Attributes,
    ) -> Result<Self, Errno> {
        let condition = Condition::Always;
        let (spool, size) = new_spool(dir, base).await?;
        let content = Content::Spooled { spool, size };
        Ok(Self { pool, content, attributes, condition, is_dirty: base.is_none() })
    }

    /// Publishes under `condition` alone.
    pub fn with_condition(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }

    /// Bytes of the file as it is now.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Streamed { written, .. } => *written,
            Content::Spooled { size, .. }
            | Content::Published { size }
            | Content::Lost { size, .. } => *size,
        }
    }

    /// The attributes that it will be published with.
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Sets the attributes that it will be published with.
    pub fn set_attributes(&mut self, attributes: Attributes) {
        self.attributes = attributes;
        self.is_dirty = true;
    }

    /// Whether something of it is not published.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// Writes at `offset`, or where the file ends; `dir` is for spool files.
    ///
    /// Errors: what ended the write session; [`Errno::OPNOTSUPP`] where bytes that went to donors would have to
    /// change.
    pub async fn write(
        &mut self,
        path: &PoolPath,
        dir: &Path,
        offset: Option<u64>,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        self.fetch_back(path, dir).await?;
        self.is_dirty = true;
        self.attributes.mtime_ms = None;
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
            Content::Spooled { spool, size } => {
                spool.write_all_at(bytes, offset).map_err(local)?;
                *size = (*size).max(offset + bytes.len() as u64);
            }
            Content::Published { .. } => unreachable!("it was fetched back"),
            Content::Lost { why, .. } => return Err(*why),
        }
        Ok(())
    }

    /// The bytes at `offset` as they are now.
    ///
    /// Errors: [`Errno::OPNOTSUPP`] for one that goes to donors as it is written.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let (spool, size) = match &self.content {
            Content::Spooled { spool, size } => (spool, size),
            Content::Lost { why, .. } => return Err(*why),
            Content::Streamed { .. } | Content::Published { .. } => return Err(Errno::OPNOTSUPP),
        };
        let mut bytes = vec![0; len.min(size.saturating_sub(offset) as usize)];
        spool.read_exact_at(&mut bytes, offset).map_err(local)?;
        Ok(bytes)
    }

    /// Cuts the file off, or extends it by zeros.
    ///
    /// Errors: [`Errno::OPNOTSUPP`] where bytes that went to donors would have to change.
    pub async fn set_size(&mut self, path: &PoolPath, dir: &Path, new: u64) -> Result<(), Errno> {
        if new != self.size() {
            self.fetch_back(path, dir).await?;
        }
        match &mut self.content {
            Content::Streamed { written: size, .. } | Content::Published { size }
                if new == *size =>
            {
                return Ok(());
            }
            Content::Streamed { writer, written } if new == 0 => {
                *writer = None;
                *written = 0;
            }
            Content::Streamed { written, .. } if new > *written => {
                let missing = new - *written;
                for at in (0..missing).step_by(PIECE) {
                    let zeros = vec![0; (missing - at).min(PIECE as u64) as usize];
                    Box::pin(self.write(path, dir, None, &zeros)).await?;
                }
            }
            Content::Streamed { .. } | Content::Published { .. } => return Err(Errno::OPNOTSUPP),
            Content::Lost { why, .. } => return Err(*why),
            Content::Spooled { spool, size } => {
                spool.set_len(new).map_err(local)?;
                *size = new;
            }
        }
        self.is_dirty = true;
        Ok(())
    }

    /// Returns when donors have what was streamed so far, at the ack level of the policy. What is spooled is
    /// stored by then on this machine's disk alone.
    pub async fn sync(&mut self) -> Result<(), Errno> {
        match &mut self.content {
            Content::Streamed { writer: Some(writer), .. } => {
                writer.flush().await.map(drop).map_err(|failure| errno(&failure))
            }
            Content::Streamed { writer: None, .. } | Content::Published { .. } => Ok(()),
            Content::Lost { why, .. } => Err(*why),
            Content::Spooled { spool, .. } => {
                let spool = Arc::clone(spool);
                let synced = tokio::task::spawn_blocking(move || spool.sync_data()).await;
                synced.map_err(|_| Errno::IO)?.map_err(local)
            }
        }
    }

    /// Makes the file visible whole at `path`. What is written afterwards goes on from there.
    pub async fn publish(&mut self, path: &PoolPath, dir: &Path) -> Result<(), Errno> {
        if !self.is_dirty {
            return Ok(());
        }
        self.fetch_back(path, dir).await?; // only its attributes were set
        let options = PutOptions { condition: self.condition, ..PutOptions::default() };
        let size = self.size();
        let mut fresh = None;
        let was_streamed = match &mut self.content {
            Content::Streamed { writer, .. } => {
                fresh = writer.take();
                self.content = Content::Lost { why: Errno::IO, size }; // until it is there
                true
            }
            Content::Spooled { .. } => false,
            Content::Published { .. } => unreachable!("it was fetched back"),
            Content::Lost { why, .. } => return Err(*why),
        };
        let finished = self.finish(path, &options, fresh).await;
        if was_streamed {
            self.content = match finished {
                Ok(()) => Content::Published { size },
                Err(why) => Content::Lost { why, size },
            };
        }
        finished?;
        self.is_dirty = false;
        self.condition = Condition::Always;
        Ok(())
    }

    /// Brings what is spooled to the writer, if anything is, and finishes it.
    async fn finish(
        &mut self,
        path: &PoolPath,
        options: &PutOptions,
        mut writer: Option<Box<Writer>>,
    ) -> Result<(), Errno> {
        let opened = open(&self.pool, path, options, self.attributes, &mut writer).await?;
        if let Content::Spooled { spool, size } = &self.content {
            let mut at = 0;
            while at < *size {
                let mut piece = vec![0; (*size - at).min(PIECE as u64) as usize];
                spool.read_exact_at(&mut piece, at).map_err(local)?;
                opened.write(&piece).await.map_err(|failure| errno(&failure))?;
                at += piece.len() as u64;
            }
        }
        opened.set_attributes(self.attributes);
        let writer = writer.expect("just opened");
        writer.finish().await.map(drop).map_err(|failure| errno(&failure))
    }

    /// Fetches what was published, if that is all there is, so that it can be changed.
    async fn fetch_back(&mut self, path: &PoolPath, dir: &Path) -> Result<(), Errno> {
        if let Content::Published { .. } = self.content {
            let base = self.pool.open(path).await.map_err(|failure| errno(&failure))?;
            let (spool, size) = new_spool(dir, Some(&base)).await?;
            self.content = Content::Spooled { spool, size };
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

/// A file without a name in `dir`, with what is in `base`, and its size.
async fn new_spool(dir: &Path, base: Option<&File>) -> Result<(Arc<std::fs::File>, u64), Errno> {
    std::fs::create_dir_all(dir).map_err(local)?;
    let spool = Arc::new(tempfile::tempfile_in(dir).map_err(local)?);
    let mut size = 0;
    if let Some(base) = base {
        let mut reader = base.read(0..base.size());
        while let Some(part) = reader.next().await {
            let part = part.map_err(|failure| errno(&failure))?;
            spool.write_all_at(&part, size).map_err(local)?;
            size += part.len() as u64;
        }
    }
    Ok((spool, size))
}

fn local(why: std::io::Error) -> Errno {
    tracing::warn!("the spool directory failed: {why}");
    Errno::from_io_error(&why).unwrap_or(Errno::IO)
}
