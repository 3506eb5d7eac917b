//! Compares what is read back with the local file it came from.

use potluck_wire::error::{ErrorKind, Failure, code};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A writer that compares the bytes that it gets with those of a file.
pub struct Compare {
    file: File,
    expected: Vec<u8>,
    equal: Arc<AtomicU64>,
}

/// The state of a comparison.
pub struct Comparison {
    equal: Arc<AtomicU64>,
    len: u64,
}

impl Compare {
    /// Makes a writer that compares with the file at `path`, and the state of its comparison.
    pub fn with(path: &Path) -> Result<(Self, Comparison), Failure> {
        let open = || Ok::<_, io::Error>((File::open(path)?, path.metadata()?.len()));
        let (file, len) = open().map_err(|error| {
            Failure::new(
                ErrorKind::Other,
                code::LOCAL_IO,
                format!("cannot read {}: {error}", path.display()),
            )
        })?;
        let equal = Arc::new(AtomicU64::new(0));
        Ok((Self { file, expected: Vec::new(), equal: equal.clone() }, Comparison { equal, len }))
    }
}

impl Comparison {
    /// Returns whether the writer got exactly the bytes of the file.
    pub fn is_equal(&self) -> bool {
        self.equal.load(Ordering::Acquire) == self.len
    }
}

impl Write for Compare {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.expected.resize(bytes.len(), 0);
        self.file.read_exact(&mut self.expected)?;
        if self.expected != bytes {
            return Err(io::Error::other("the bytes differ from the local file's"));
        }
        self.equal.fetch_add(bytes.len() as u64, Ordering::Release);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
