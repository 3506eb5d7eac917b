//! Makes fresh incompressible files. A pool never stores the same chunk twice, so a file that was sent once would
//! make the next round look free.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::interrupt;

const PIECE: usize = 1 << 20;

/// Writes `length` bytes that no other `name` has. They are in the page cache afterwards, and not synced.
pub fn write_file(path: &Path, name: &str, length: u64) -> Result<()> {
    let mut file =
        File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut stream = stream(name);
    let mut piece = vec![0; PIECE];
    let mut left = length;
    while left > 0 {
        interrupt::check()?;
        let now = left.min(PIECE as u64) as usize;
        stream.fill(&mut piece[..now]);
        file.write_all(&piece[..now])
            .with_context(|| format!("cannot write {}", path.display()))?;
        left -= now as u64;
    }
    Ok(())
}

/// Returns `length` bytes that no other `name` has.
pub fn bytes(name: &str, length: u64) -> Result<Vec<u8>> {
    let mut stream = stream(name);
    let mut bytes = vec![0; length as usize];
    for piece in bytes.chunks_mut(PIECE) {
        interrupt::check()?;
        stream.fill(piece);
    }
    Ok(bytes)
}

fn stream(name: &str) -> blake3::OutputReader {
    let mut hasher = blake3::Hasher::new_derive_key("potluck-bench content");
    hasher.update(name.as_bytes()).finalize_xof()
}

/// Makes a directory of `count` files of `length` bytes each.
pub fn write_directory(path: &Path, name: &str, count: usize, length: u64) -> Result<()> {
    fs::create_dir(path).with_context(|| format!("cannot create {}", path.display()))?;
    for number in 0..count {
        write_file(&path.join(format!("{number:05}")), &format!("{name}/{number}"), length)?;
    }
    Ok(())
}

/// Reads a file or a directory of files once, so that the page cache holds it.
pub fn warm(path: &Path) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            warm(&entry?.path())?;
        }
        return Ok(());
    }
    let (mut file, mut piece) = (File::open(path)?, vec![0; PIECE]);
    while file.read(&mut piece)? > 0 {
        interrupt::check()?;
    }
    Ok(())
}

/// Fails unless every file of `sent` arrived somewhere below `received` under its own name and with its own bytes.
pub fn compare(sent: &Path, received: &Path) -> Result<()> {
    let mut arrived = Vec::new();
    files_below(received, &mut arrived)?;
    let mut expected = 0;
    for entry in fs::read_dir(sent)? {
        let original = entry?.path();
        expected += 1;
        let copy = arrived.iter().find(|path| path.file_name() == original.file_name());
        let copy = copy.with_context(|| format!("{} did not come back", original.display()))?;
        ensure!(
            fs::read(&original)? == fs::read(copy)?,
            "{} came back with other bytes",
            original.display()
        );
    }
    ensure!(
        arrived.len() == expected,
        "{} files came back where {expected} were sent",
        arrived.len()
    );
    Ok(())
}

fn files_below(path: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Removes a file or a directory, if it is there.
pub fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
