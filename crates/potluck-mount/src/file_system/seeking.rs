//! Where an open file has data and where holes.

use super::FileSystem;
use crate::errno::errno;
use crate::handles::Handle;
use rustix::io::Errno;

impl FileSystem {
    /// Returns the offset of the next data of an open file from `offset` on, or with `hole` of the next hole; its end
    /// counts as one.
    ///
    /// Errors: [`Errno::NXIO`] at or behind the end of the file, or of its last data.
    pub async fn seek(&self, handle: u64, offset: u64, hole: bool) -> Result<u64, Errno> {
        let opened = self.handles().get(handle).ok_or(Errno::BADF)?;
        let size = match &opened.handle {
            Handle::Reading(reading) => reading.file().size(),
            Handle::ReadingDraft(draft) | Handle::Writing(draft) => draft.lock().await.size(),
            Handle::Listing(_) => return Err(Errno::ISDIR),
        };
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let mut at = offset;
        loop {
            let data = match &opened.handle {
                Handle::ReadingDraft(draft) | Handle::Writing(draft) => {
                    draft.lock().await.data_from(at).await?
                }
                Handle::Reading(reading) => {
                    let found = reading.file().data_from(at).await;
                    found.map_err(|failure| errno(&failure))?
                }
                Handle::Listing(_) => return Err(Errno::ISDIR),
            };
            match data {
                Some(data) if !hole => return Ok(data.start),
                None if !hole => return Err(Errno::NXIO),
                // What is known of the data may end before the data does.
                Some(data) if data.start <= at && data.end < size => at = data.end,
                Some(data) if data.start <= at => return Ok(size),
                _ => return Ok(at),
            }
        }
    }
}
