//! A version of a file and the changes to it. Changed bytes are in the spool; all others are read from the version when
//! they are wanted, and chunks without a change are not stored again. So the cost of an edit does not depend on the
//! size of the file.
//!
//! Instead of a version, the base may be the chunks that a write session has of a file that is not visible yet: those
//! of a file that was streamed, or those in which a full spool was stored.

use crate::errno::errno;
use crate::reading::{ReadBytes, Reading};
use crate::spool::{Spool, SpoolFile};
use crate::write_rates::AllCopies;
use potluck_client::{Attributes, File, Pool, PutOptions, Suspended, SuspendedSession, Writer};
use potluck_core::path::PoolPath;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// The most bytes that are passed to a writer at a time.
const PIECE: u64 = 1 << 20;

/// A file that is being changed.
pub struct Edit {
    /// The base: a version of the file, or the part that a write session has of it.
    base: Option<Reading>,
    /// The write session that has the base, if it is not a version.
    session: Option<SuspendedSession>,
    /// The number of bytes at the start of the base that were never cut off.
    kept: u64,
    /// The bytes that were written and are not in the base.
    changed: SpoolFile,
    size: u64,
    /// True if donors have all of the file.
    is_stored: bool,
}

/// The place of the bytes of a run.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// The run is as it was in the base.
    Base,
    /// The run was written, and is in the spool.
    Changed,
    /// The run was never written: the file was extended there by zeros.
    Zeros,
}

impl Edit {
    /// Makes an edit of an empty file without a base.
    pub fn empty(spool: &Arc<Spool>) -> Self {
        let changed = SpoolFile::new(spool);
        Self { base: None, session: None, kept: 0, changed, size: 0, is_stored: false }
    }

    /// Makes an edit of a version of which nothing is changed yet.
    pub fn of(base: File, spool: &Arc<Spool>) -> Self {
        let size = base.size();
        let base = Some(Reading::new(base));
        Self { base, kept: size, size, is_stored: true, ..Self::empty(spool) }
    }

    /// Makes an edit whose base is the part of a file that was streamed so far.
    ///
    /// Errors: [`Errno::NOSPC`] if the rest, which fills no chunk, does not fit into the spool.
    pub fn of_streamed(suspended: &Suspended, spool: &Arc<Spool>) -> Result<Self, Errno> {
        let mut edit = Self::empty(spool);
        edit.go_on_from(suspended)?;
        Ok(edit)
    }

    /// Makes the part of the file that a session has the base, and keeps only the rest in the spool.
    fn go_on_from(&mut self, suspended: &Suspended) -> Result<(), Errno> {
        let (base, rest) = (suspended.file().clone(), suspended.rest());
        self.changed.replace(base.size(), rest)?;
        self.kept = base.size();
        self.size = self.kept + rest.len() as u64;
        self.base = Some(Reading::new(base));
        self.session = Some(suspended.session());
        Ok(())
    }

    /// Returns the size in bytes of the file as it is now.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns how many bytes of the file are in holes, or fewer: what was written of the base counts twice.
    pub fn holes(&self) -> u64 {
        let base = self.base.as_ref().map_or(0, |base| base.file().data());
        self.size.saturating_sub(self.changed.taken() + self.kept.min(base))
    }

    /// Writes bytes at `offset`.
    ///
    /// Errors: [`Errno::NOSPC`] if the spool or its disk is full. If the disk is, bytes that were to be overwritten may
    /// be lost; otherwise the file is as it was.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        self.changed.write(offset, bytes)?;
        self.is_stored = false;
        self.size = self.size.max(end);
        Ok(())
    }

    /// Cuts the file off, or extends it by zeros.
    pub fn set_size(&mut self, size: u64) -> Result<(), Errno> {
        self.changed.cut_off(size)?;
        self.is_stored = false;
        self.kept = self.kept.min(size);
        self.size = size;
        Ok(())
    }

    /// Returns the bytes at `offset`, as many as are asked for or the file has.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        for (run, source) in self.runs(offset..offset.saturating_add(len as u64)) {
            bytes.extend(self.read_run(run, &source).await?);
        }
        Ok(bytes)
    }

    /// Returns the first bytes from `at` on that are no hole, as many as are known to follow one another; `None` where only
    /// a hole follows.
    pub async fn data_from(&self, at: u64) -> Result<Option<Range<u64>>, Errno> {
        for (run, source) in self.runs(at..self.size) {
            let data = match (source, &self.base) {
                (Source::Changed, _) => Some(run.clone()),
                (Source::Base, Some(base)) => {
                    let found = base.file().data_from(run.start).await;
                    found.map_err(|failure| errno(&failure))?
                }
                (Source::Base, None) | (Source::Zeros, _) => None,
            };
            if let Some(data) = data.filter(|data| data.start < run.end) {
                return Ok(Some(data.start..data.end.min(run.end)));
            }
        }
        Ok(None)
    }

    /// Passes the whole file to a writer that has nothing yet.
    pub async fn write_to(&self, writer: &mut Writer) -> Result<(), Errno> {
        for (run, source) in self.runs(0..self.size) {
            if let (Source::Base, Some(base)) = (&source, &self.base) {
                let kept = writer.keep(base.file(), run).await;
                kept.map_err(|failure| errno(&failure))?;
                continue;
            }
            if source == Source::Zeros {
                let zeros = writer.write_zeros(run.end - run.start).await;
                zeros.map_err(|failure| errno(&failure))?;
                continue;
            }
            let mut at = run.start;
            while at < run.end {
                let end = run.end.min(at + PIECE);
                let piece = self.read_run(at..end, &source).await?;
                writer.write(&piece).await.map_err(|failure| errno(&failure))?;
                at = end;
            }
        }
        Ok(())
    }

    /// Returns a writer for the whole file, in the session that has the base, or else in a new one; and the way to
    /// learn when all copies of the file are there.
    pub async fn writer(
        &self,
        pool: &Pool,
        path: &PoolPath,
        options: &PutOptions,
        attributes: Attributes,
    ) -> Result<(Writer, AllCopies), Errno> {
        match &self.session {
            Some(session) => {
                // The report of a session comes at its end, and this session goes on as long as the file is open.
                let copies = match session.policy().mirror.is_async() {
                    true => AllCopies::Unknown,
                    false => AllCopies::WhenVisible,
                };
                let mut writer = Writer::anew(session, attributes);
                writer.set_place(path.clone(), options.condition); // the file may have another name by now
                Ok((writer, copies))
            }
            None => {
                let session = pool.session(path, options).await;
                let session = session.map_err(|failure| errno(&failure))?;
                let writer = session.create(path.clone(), attributes);
                Ok((writer, AllCopies::Reported(session.pending_report())))
            }
        }
    }

    /// Passes the file to a `writer` of [`Edit::writer`] and returns when donors have it, at the ack level of the
    /// policy. Only the rest, which fills no chunk, stays in the spool.
    ///
    /// Errors: those of writing; the file is then as it was.
    pub async fn store(&mut self, mut writer: Writer) -> Result<(), Errno> {
        self.write_to(&mut writer).await?;
        writer.flush().await.map_err(|failure| errno(&failure))?;
        let suspended = writer.suspend().await.map_err(|failure| errno(&failure))?;
        self.go_on_from(&suspended)?;
        self.is_stored = true;
        Ok(())
    }

    /// Returns the spool file, if all of the file is in it.
    pub fn all_in_spool(&mut self) -> Option<&mut SpoolFile> {
        (self.base.is_none() && self.session.is_none()).then_some(&mut self.changed)
    }

    /// Returns whether a write session has the base.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the number of bytes of the file that are in the spool.
    pub fn spooled(&self) -> u64 {
        self.changed.taken()
    }

    /// Returns whether donors have all of the file.
    pub fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// Returns the runs of bytes in a range, up to the end of the file, in order.
    fn runs(&self, range: Range<u64>) -> Vec<(Range<u64>, Source)> {
        let range = range.start..range.end.min(self.size);
        let mut runs = Vec::new();
        let mut at = range.start;
        for changed in self.changed.written(&range) {
            self.unchanged(at..changed.start, &mut runs);
            at = changed.end;
            runs.push((changed, Source::Changed));
        }
        self.unchanged(at..range.end, &mut runs);
        runs
    }

    fn unchanged(&self, range: Range<u64>, runs: &mut Vec<(Range<u64>, Source)>) {
        let end = self.kept.clamp(range.start, range.end.max(range.start));
        let both = [(range.start..end, Source::Base), (end..range.end, Source::Zeros)];
        runs.extend(both.into_iter().filter(|(run, _)| !run.is_empty()));
    }

    async fn read_run(&self, run: Range<u64>, source: &Source) -> Result<Vec<u8>, Errno> {
        let len = (run.end - run.start) as usize;
        match (source, &self.base) {
            (Source::Base, Some(base)) => {
                let read = base.read(run.start, len).await;
                read.map(ReadBytes::into_vec).map_err(|failure| errno(&failure))
            }
            (Source::Base, None) | (Source::Zeros, _) => Ok(vec![0; len]),
            (Source::Changed, _) => self.changed.read(run.start, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_overlays_writes_and_truncated_bytes_stay_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Arc::new(Spool::new(dir.path().into(), 1000));
        let mut edit = Edit { kept: 100, size: 100, ..Edit::empty(&spool) };
        let runs = |edit: &Edit, range| {
            let run = |(run, source): (Range<u64>, Source)| (run.start, run.end, source);
            edit.runs(range).into_iter().map(run).collect::<Vec<_>>()
        };
        edit.write(10, &[1; 20]).expect("written");
        edit.write(30, &[2; 5]).expect("written");
        use Source::{Base, Changed, Zeros};
        assert_eq!(runs(&edit, 0..200), [(0, 10, Base), (10, 35, Changed), (35, 100, Base)]);
        assert_eq!(runs(&edit, 12..32), [(12, 32, Changed)]);
        edit.set_size(20).expect("cut off");
        edit.set_size(50).expect("extended");
        assert_eq!(runs(&edit, 0..50), [(0, 10, Base), (10, 20, Changed), (20, 50, Zeros)]);
        edit.write(60, &[3; 1]).expect("written");
        assert_eq!(runs(&edit, 40..99), [(40, 60, Zeros), (60, 61, Changed)]);
        assert_eq!(edit.write(0, &[4; 1001]), Err(Errno::NOSPC));
        assert_eq!(edit.size(), 61);
        assert_eq!(runs(&edit, 99..120), []);
    }
}
