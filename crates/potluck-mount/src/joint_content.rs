//! A shared file: several mounts write different bytes of it at the same time (docs/notes/0016-shared-writers.md).

use crate::errno::errno;
use potluck_client::{Attributes, File, Pool, PutOptions, SharedWriter};
use potluck_core::byte_ranges::ByteRanges;
use potluck_core::path::PoolPath;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Mutex;

/// The bytes that programs of this mount write of a shared file, and the version before, which they read.
pub struct JointContent {
    before: File,
    /// The writer of this mount, until the last program has closed the file. (A writer is not `Sync`.)
    writer: Mutex<Option<SharedWriter>>,
    /// The process that claimed each range, if it is known, since the mount last finished its part.
    processes: ByteRanges<Option<u32>>,
    /// The largest size in bytes that this mount's part had when it was finished; 0 before.
    closed_size: u64,
    /// The reason why the bytes of this mount are in no version. Every program that closes or uses the file gets this
    /// error.
    failure: Option<Errno>,
}

impl JointContent {
    /// Joins the mounts that write the file at `path`, whose present version is `before`.
    pub async fn join(
        pool: &Pool,
        path: &PoolPath,
        before: File,
        attributes: Attributes,
    ) -> Result<Self, Errno> {
        let options = PutOptions::default();
        let writer = pool.shared_writer(path, None, &options, attributes).await;
        let writer = writer.map_err(|failure| errno(&failure))?;
        let (writer, processes) = (Mutex::new(Some(writer)), ByteRanges::default());
        Ok(Self { before, writer, processes, closed_size: 0, failure: None })
    }

    fn writer(&mut self) -> &mut Option<SharedWriter> {
        self.writer.get_mut().expect("no holder panics")
    }

    /// Returns the size in bytes of the file as far as this mount knows.
    pub fn size(&self) -> u64 {
        let writer = self.writer.lock().expect("no holder panics");
        let written = writer.as_ref().map_or(0, SharedWriter::size);
        self.before.size().max(written).max(self.closed_size)
    }

    /// Returns the version that the file had when it was opened; bytes that are written are in the next one.
    pub fn before(&self) -> &File {
        &self.before
    }

    /// Notes that a process of this machine is going to write a range.
    ///
    /// Errors: [`Errno::BUSY`] if another process has claimed some of it, as it would be for processes of two mounts.
    pub fn claim(&mut self, process: Option<u32>, range: Range<u64>) -> Result<(), Errno> {
        if self.processes.taken(&range, process).is_some() {
            return Err(Errno::BUSY);
        }
        self.processes.add(range, process);
        Ok(())
    }

    /// Withdraws the bytes that programs of this mount wrote.
    pub async fn withdraw(&mut self) {
        if let Some(writer) = self.writer().take()
            && let Err(failure) = writer.abort().await
        {
            tracing::debug!(%failure, "what was written of a shared file that is gone stays until it expires");
        }
    }

    /// Writes at `offset`, where no other mount may have written since the last version.
    ///
    /// Errors: [`Errno::BUSY`] if another mount has; nothing is written then, and other bytes may still be written. The
    /// error of a part that could not be finished.
    pub async fn write(
        &mut self,
        pool: &Pool,
        path: &PoolPath,
        offset: u64,
        bytes: &[u8],
        attributes: Attributes,
    ) -> Result<(), Errno> {
        self.check()?;
        let writer = self.joined_writer(pool, path, attributes).await?;
        writer.write_at(offset, bytes).await.map_err(|failure| errno(&failure))
    }

    /// Makes the file larger.
    ///
    /// Errors: [`Errno::OPNOTSUPP`] for a smaller size, because other mounts may be writing the file.
    pub async fn set_size(
        &mut self,
        pool: &Pool,
        path: &PoolPath,
        size: u64,
        attributes: Attributes,
    ) -> Result<(), Errno> {
        self.check()?;
        if size < self.size() {
            return Err(Errno::OPNOTSUPP);
        }
        let writer = self.joined_writer(pool, path, attributes).await?;
        writer.extend(size).map_err(|_| Errno::FBIG)
    }

    /// Returns the writer of this mount, which joins again if it has finished: a descriptor that another process
    /// inherited may still be open.
    async fn joined_writer(
        &mut self,
        pool: &Pool,
        path: &PoolPath,
        attributes: Attributes,
    ) -> Result<&mut SharedWriter, Errno> {
        match self.writer() {
            Some(writer) => Ok(writer),
            none => {
                let options = PutOptions::default();
                let joined = pool.shared_writer(path, None, &options, attributes).await;
                Ok(none.insert(joined.map_err(|failure| errno(&failure))?))
            }
        }
    }

    fn check(&self) -> Result<(), Errno> {
        self.failure.map_or(Ok(()), Err)
    }

    /// Returns when donors have the bytes that were written.
    pub async fn sync(&mut self) -> Result<(), Errno> {
        self.check()?;
        match self.writer() {
            Some(writer) => writer.flush().await.map(drop).map_err(|failure| errno(&failure)),
            None => Ok(()),
        }
    }

    /// Finishes the part of this mount; the last mount that finishes makes the version. A failure is returned again by
    /// later calls: a file is finished when it is flushed, and when it is released.
    pub async fn finish(&mut self) -> Result<(), Errno> {
        let Some(writer) = self.writer().take() else { return self.check() };
        self.closed_size = self.closed_size.max(writer.size());
        self.processes = ByteRanges::default();
        self.failure = writer.finish().await.err().map(|failure| errno(&failure));
        self.check()
    }
}
