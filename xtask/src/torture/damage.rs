//! Damages the chunk files of a donor behind its back, as bad disks and lying owners do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::chance::Chance;

/// A way to spoil a chunk file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// One bit of the file is flipped.
    Flip,
    /// The end is missing, as after a crash of some file systems.
    Torn,
    /// The file has more bytes than it had.
    Longer,
    /// A part of the file is zeros.
    Zeros,
    /// The whole file is zeros.
    AllZeros,
    /// The file has random bytes, and the length it had.
    Garbage,
    /// The file has no bytes.
    Empty,
    /// The file is gone.
    Missing,
    /// The file has the content of another valid chunk file, trailer included.
    Another,
    /// Two valid chunk files have each other's names.
    Swapped,
    /// A symbolic link to another chunk file stands in its place.
    Link,
}

impl Damage {
    /// All kinds of damage.
    pub const ALL: [Self; 11] = [
        Self::Flip,
        Self::Torn,
        Self::Longer,
        Self::Zeros,
        Self::AllZeros,
        Self::Garbage,
        Self::Empty,
        Self::Missing,
        Self::Another,
        Self::Swapped,
        Self::Link,
    ];

    /// Returns the name under which the damage is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flip => "bit flipped in a chunk file",
            Self::Torn => "chunk file torn",
            Self::Longer => "chunk file made longer",
            Self::Zeros => "part of a chunk file zeroed",
            Self::AllZeros => "chunk file zeroed",
            Self::Garbage => "chunk file filled with garbage",
            Self::Empty => "chunk file emptied",
            Self::Missing => "chunk file removed",
            Self::Another => "chunk file replaced by another's",
            Self::Swapped => "chunk files swapped",
            Self::Link => "chunk file replaced by a link",
        }
    }

    /// Spoils `path`, with `other` for the kinds that take two files. Returns false if nothing was changed: the
    /// donor, which runs, had removed a file, or there was nothing to change.
    pub fn inflict(self, path: &Path, other: &Path, chance: &mut Chance) -> io::Result<bool> {
        match self.spoil(path, other, chance) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(why) if why.kind() == io::ErrorKind::StorageFull => {
                let _ = fs::write(path, []); // where that takes room, too, the file is gone
                Ok(true)
            }
            done => done,
        }
    }

    fn spoil(self, path: &Path, other: &Path, chance: &mut Chance) -> io::Result<bool> {
        let mut bytes = fs::read(path)?;
        let two = matches!(self, Self::Another | Self::Swapped | Self::Link);
        if bytes.is_empty() || (two && (path == other || fs::read(other)? == bytes)) {
            return Ok(false);
        }
        let len = bytes.len();
        match self {
            Self::Flip => bytes[chance.index(len)] ^= 1 << chance.below(8),
            Self::Torn => bytes.truncate(chance.index(len)),
            Self::Longer => bytes.extend(vec![chance.below(256) as u8; 1 + chance.index(5000)]),
            Self::Zeros => {
                let from = chance.index(len);
                let to = from + 1 + chance.index(len - from);
                bytes[from..to].fill(0);
            }
            Self::AllZeros => bytes.fill(0),
            Self::Garbage => chance.fill(&mut bytes),
            Self::Empty => bytes.clear(),
            Self::Missing => return fs::remove_file(path).map(|()| true),
            Self::Another => bytes = fs::read(other)?,
            Self::Swapped => {
                let others = fs::read(other)?;
                fs::write(other, &bytes)?;
                bytes = others;
            }
            Self::Link => {
                fs::remove_file(path)?;
                return std::os::unix::fs::symlink(other, path).map(|()| true);
            }
        }
        // The file is changed in place, as by rot: a process that has it open sees the change.
        fs::write(path, bytes)?;
        Ok(true)
    }
}

/// Returns the chunk files below a lent directory, sorted, so that their order does not depend on the file system.
pub fn chunk_files(lent: &Path) -> Vec<PathBuf> {
    let buckets = entries(&lent.join("chunks"));
    let mut files: Vec<_> = buckets.iter().flat_map(|bucket| entries(bucket)).collect();
    files.sort();
    files
}

/// Returns the entries of a directory that its donor changes meanwhile; none if it does not exist any more.
fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::small_disk::{SmallDisk, fill};
    use super::*;
    use std::io::Write;

    #[test]
    fn every_damage_changes_what_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        for (number, damage) in (0..).zip(Damage::ALL) {
            let (whole, others) = (vec![7; 1000], vec![9; 500]);
            fs::write(&path, &whole).expect("a file");
            fs::write(&other, &others).expect("a file");
            let mut chance = Chance::new(number, "damage");
            assert!(damage.inflict(&path, &other, &mut chance).expect("spoiled"), "{damage:?}");
            assert_ne!(fs::read(&path).ok(), Some(whole), "{damage:?}");
            let link = fs::symlink_metadata(&path).is_ok_and(|file| file.is_symlink());
            assert_eq!(link, damage == Damage::Link);
            let _ = fs::remove_file(&path); // Some damage has removed it.
        }
    }

    #[test]
    fn damage_on_a_full_disk_is_applied() {
        let dir = tempfile::tempdir().expect("a directory");
        let Some(_disk) = SmallDisk::mount(dir.path(), 1 << 20).expect("a disk") else {
            let name = "damage_on_a_full_disk_is_applied";
            let line = format!("SKIPPED {name}: mounting takes root\n");
            io::stderr().write_all(line.as_bytes()).expect("said");
            return;
        };
        let (path, whole) = (dir.path().join("a"), vec![7; 4096]);
        fs::write(&path, &whole).expect("a file");
        fill(dir.path(), 0).expect("filled");
        let mut chance = Chance::new(1, "damage");
        assert!(Damage::Longer.inflict(&path, &path, &mut chance).expect("spoiled"));
        assert!(fs::read(&path).expect("the file") != whole, "it is as it was");
    }

    #[test]
    fn missing_file_is_no_damage() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        let mut chance = Chance::new(1, "damage");
        assert!(!Damage::Flip.inflict(&path, &path, &mut chance).expect("nothing there"));
    }
}
