//! The sources of the bytes of a file that is to be stored: a local file, in which they may stay until they are sent,
//! or any other reader.

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A reader of the bytes of a file, which may tell that they are in a local file.
pub trait ContentReader: Read + Send {
    /// Returns the local file that has the bytes that are read next, and their offset there; `None` if no local file
    /// has them.
    fn local(&self) -> Option<(Arc<File>, u64)> {
        None
    }

    /// Returns the number of bytes that are still to be read, if that is known without reading them: a writer feeds its
    /// cutter a whole unit, or all that is left of the file.
    fn left(&self) -> Option<usize> {
        None
    }

    /// Returns how many zeros come next that need not be read, as far as that is known.
    fn hole(&mut self) -> io::Result<HoleAhead> {
        Ok(HoleAhead::Zeros(0))
    }

    /// Skips so many of the zeros of a hole.
    fn skip(&mut self, _zeros: u64) {}
}

/// The hole that comes next in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoleAhead {
    /// This many zeros come before something else.
    Zeros(u64),
    /// Nothing but zeros.
    ToTheEnd,
}

/// A reader of a local file from an offset on.
pub struct LocalBytes {
    file: Arc<File>,
    at: u64,
}

impl LocalBytes {
    /// Makes a reader of the bytes of a local file from `at` on.
    pub fn new(file: Arc<File>, at: u64) -> Self {
        Self { file, at }
    }
}

impl Read for LocalBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl ContentReader for LocalBytes {
    fn local(&self) -> Option<(Arc<File>, u64)> {
        Some((Arc::clone(&self.file), self.at))
    }

    fn hole(&mut self) -> io::Result<HoleAhead> {
        Ok(match seek(&self.file, SeekFrom::Data(self.at)) {
            Ok(data) => HoleAhead::Zeros(data - self.at),
            Err(Errno::NXIO) => HoleAhead::ToTheEnd,
            Err(_) => HoleAhead::Zeros(0), // a file system that does not tell
        })
    }

    fn skip(&mut self, zeros: u64) {
        self.at += zeros;
    }
}

/// A reader of bytes that are in no local file.
pub struct StreamedBytes<R>(pub R);

impl<R: Read> Read for StreamedBytes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read + Send> ContentReader for StreamedBytes<R> {}
