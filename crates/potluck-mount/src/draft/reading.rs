//! The reading of drafts: a file that goes to donors as it is written is turned into one that can be read and changed
//! anywhere.

use super::{Content, Draft, Streamed};
use crate::edit::Edit;
use crate::errno::errno;
use crate::stream::FileStream;
use potluck_client::{Suspended, Writer};
use potluck_core::path::PoolPath;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

impl Draft {
    /// Returns the bytes at `offset` as they are now; those of a shared file as they were before this mount wrote.
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
        if offset >= self.size() && self.is_readable() {
            return Ok(Vec::new()); // a file that is streamed goes on as a stream while others wait for its next bytes
        }
        if let Some(read) = self.read_in_memory(offset, len) {
            return Ok(read);
        }
        self.open_again(path).await?;
        self.go_on_as_edit().await?;
        self.edit()?.read(offset, len).await
    }

    /// Returns the first bytes from `at` on that are no hole, as far as that is known; `None` where only a hole follows.
    pub async fn data_from(&self, at: u64) -> Result<Option<Range<u64>>, Errno> {
        let end = match &self.content {
            Content::Edited(edit) => return edit.data_from(at).await,
            Content::Streamed { written, .. } => *written,
            Content::Shared(_) | Content::Published { .. } | Content::Lost { .. } => self.size(),
        };
        Ok((at < end).then_some(at..end))
    }

    /// Returns the bytes at `offset` of a file that is in memory as a whole.
    pub(super) fn read_in_memory(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let Content::Streamed { stream, size, .. } = &self.content else { return None };
        let bytes = match stream {
            Streamed::Nothing => &[][..],
            Streamed::Small(small, _) => &small.bytes,
            Streamed::Stream(_) => return None,
        };
        let end = offset.saturating_add(len as u64).min(*size);
        let mut read = vec![0; end.saturating_sub(offset) as usize]; // zeros where the file was extended
        if let Some(written) = bytes.get(offset as usize..) {
            let both = written.len().min(read.len());
            read[..both].copy_from_slice(&written[..both]);
        }
        Some(read)
    }

    /// Turns a streamed file into one that can be read and changed anywhere. The chunks that were streamed stay with
    /// their donors.
    pub(super) async fn go_on_as_edit(&mut self) -> Result<(), Errno> {
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
        self.report = None; // the streamed chunks keep the session open
        self.content = Content::Lost { why: Errno::IO, size }; // until it is known where the bytes are
        let suspend = async {
            let writer = stream.end().await?;
            let suspended = writer.suspend().await.map_err(|failure| errno(&failure))?;
            let edit = Edit::of_streamed(&suspended, &self.spool).and_then(|mut edit| {
                edit.set_size(size)?;
                Ok(Content::Edited(Box::new(edit)))
            });
            match edit {
                Ok(edit) => Ok((edit, Ok(()))),
                // If the rest does not fit into the spool, the file goes on as a stream, and the program's request
                // fails.
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

    /// Keeps the content of the file within reach of programs that read it by this draft, once it is published: others
    /// may replace or remove that version at once.
    pub async fn stays_readable(&mut self) {
        // If there is no room in the spool, the file is published as it is, and may not be read after that.
        let _ = self.go_on_as_edit().await;
    }

    /// Goes on streaming a file that could not be turned into an edit.
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

    /// Opens the published version of a file that was streamed, so that it can be read and changed, even once the file
    /// has lost its name after that.
    pub async fn open_again(&mut self, path: &PoolPath) -> Result<(), Errno> {
        if self.is_published() {
            if self.is_nameless {
                return Err(Errno::STALE); // what is written would never be published
            }
            let base = self.pool.open_leased(path).await.map_err(|failure| errno(&failure))?;
            if Some(base.version()) != self.version {
                return Err(Errno::STALE); // another version would be changed than the one that was written
            }
            self.content = Content::Edited(Box::new(Edit::of(base, &self.spool)));
        }
        Ok(())
    }
}
