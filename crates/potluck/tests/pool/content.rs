//! Makes bytes and files to store, which are incompressible and the same for the same seed, and reads trees.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns `len` bytes that no other seed gives.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

/// A sequence of numbers from a seed, for moments and victims drawn by lot.
pub struct Lots(blake3::OutputReader);

impl Lots {
    /// Starts a sequence, and prints its seed so that a failure can be repeated.
    pub fn new(what: &str, seed: u64) -> Self {
        println!("{what}: seed {seed}");
        Self(blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof())
    }

    /// Returns a number below `end`, or 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % end.max(1)
    }
}

/// Writes a file of [`bytes`], and returns its path and content.
pub fn file(dir: &Path, name: &str, seed: u64, len: usize) -> (PathBuf, Vec<u8>) {
    let (path, content) = (dir.join(name), bytes(seed, len));
    fs::write(&path, &content).expect("a file in the test's own directory");
    (path, content)
}

/// Returns a path as an argument of a command.
pub fn arg(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// Fails the test unless both are equal, without printing megabytes.
#[track_caller]
pub fn assert_same(actual: &[u8], expected: &[u8], what: &str) {
    if actual == expected {
        return;
    }
    let differ = actual.iter().zip(expected).position(|(a, b)| a != b);
    let (actual, expected) = (actual.len(), expected.len());
    panic!("{what}: {actual} bytes instead of {expected}; first difference at {differ:?}");
}

/// Returns all that is below `root` by its relative path: `None` for a directory, content and permission bits for a
/// file.
pub fn tree_of(root: &Path) -> BTreeMap<PathBuf, Option<(Vec<u8>, u32)>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![root.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a directory of the test") {
            let path = entry.expect("an entry").path();
            let relative = path.strip_prefix(root).expect("below the root").to_path_buf();
            if path.is_dir() {
                found.insert(relative, None);
                dirs.push(path);
            } else {
                let mode = fs::metadata(&path).expect("metadata").permissions().mode() & 0o777;
                found.insert(relative, Some((fs::read(&path).expect("a file"), mode)));
            }
        }
    }
    found
}
