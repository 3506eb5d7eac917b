//! The paths of a store. Names from the network become paths only here, as hex digits.

use super::marker::StoreError;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::Incarnation;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The marker's file name.
pub(crate) const MARKER: &str = "potluck-store.json";

/// The paths below one lent directory.
#[derive(Debug, Clone)]
pub(crate) struct StoreLayout {
    root: PathBuf,
    chunks: PathBuf,
    temp: PathBuf,
    quarantine: PathBuf,
    marker: PathBuf,
}

impl StoreLayout {
    /// Makes the paths below `root`, which must be absolute.
    pub fn new(root: &Path) -> Self {
        Self {
            chunks: root.join("chunks"),
            temp: root.join("temp"),
            quarantine: root.join("quarantine"),
            marker: root.join(MARKER),
            root: root.to_owned(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn chunks(&self) -> &Path {
        &self.chunks
    }

    pub fn temp(&self) -> &Path {
        &self.temp
    }

    pub fn quarantine(&self) -> &Path {
        &self.quarantine
    }

    pub fn marker(&self) -> &Path {
        &self.marker
    }

    /// Returns the directory of all chunks whose names begin with `first`.
    pub fn bucket(&self, first: u8) -> PathBuf {
        self.chunks.join(format!("{first:02x}"))
    }

    pub fn chunk_dir(&self, name: &ChunkName) -> PathBuf {
        self.bucket(name.0[0])
    }

    pub fn chunk(&self, name: &ChunkName) -> PathBuf {
        let mut path = self.chunk_dir(name);
        path.push(name.to_string());
        path
    }

    /// Returns the path of a temporary file that no earlier incarnation or serial number had.
    pub fn temp_file(&self, incarnation: Incarnation, serial: u64) -> PathBuf {
        self.temp.join(format!("{incarnation:016x}-{serial}", incarnation = incarnation.0))
    }

    /// Returns the path at which a quarantined file that was called `name` is kept.
    pub fn quarantined(&self, name: &str, incarnation: Incarnation, serial: u64) -> PathBuf {
        self.quarantine
            .join(format!("{name}.{incarnation:016x}-{serial}", incarnation = incarnation.0))
    }

    pub fn failed(&self, doing: &'static str, why: io::Error) -> StoreError {
        StoreError::Io { doing, dir: self.root.clone(), why }
    }
}

/// Returns the chunk whose file in the bucket `first` has this name, if any.
pub(crate) fn chunk_of(first: u8, file_name: &OsStr) -> Option<ChunkName> {
    let text = file_name.to_str()?;
    let ours = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let name: ChunkName = text.parse().ok().filter(|_| text.bytes().all(ours))?;
    (name.0[0] == first).then_some(name)
}
