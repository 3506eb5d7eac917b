//! Files that programs have closed and that the pool does not have yet, of a mount whose close() waits for this machine
//! alone. Each is in the spool directory with a description beside it, so that it outlives the mount, and the machine's
//! restart: the next mount of the pool publishes it.

use crate::spool::SpoolFile;
use potluck_core::attributes::AttributesToSet;
use potluck_core::chunk::Digest;
use potluck_core::path::PoolPath;
use potluck_wire::private_dir;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The directory in the spool's.
const DIR: &str = "closed";
/// The extension of the name of a description; the file itself has none.
const DESCRIPTION: &str = "json";
/// The extension of the name of a description that is being written.
const UNFINISHED: &str = "new";

/// The description of a file that was closed and is not published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedFile {
    /// The pool, by the fingerprint of its certificate authority.
    pub pool: Digest,
    /// The path of the file in the pool.
    pub path: PoolPath,
    /// The size of the file in bytes.
    pub size: u64,
    /// The ranges that were written; the others are holes.
    pub written: Vec<Range<u64>>,
    /// The attributes that the file is published with.
    pub attributes: AttributesToSet,
    /// True if the file may not replace another.
    pub must_be_new: bool,
}

/// A file that a program has closed and that this machine alone has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitingFile {
    /// The path that it will have in the pool.
    pub path: PoolPath,
    /// The size of the file in bytes.
    pub size: u64,
}

/// Returns the files that mounts with the spool directory `spool_dir` have closed and that a pool does not have yet, in
/// the order in which they were closed.
pub fn waiting_files(spool_dir: &Path, pool: Digest) -> io::Result<Vec<WaitingFile>> {
    ClosedFiles::new(spool_dir).waiting(pool)
}

/// The closed files of a user's mounts on this machine.
#[derive(Debug)]
pub struct ClosedFiles {
    dir: PathBuf,
    last: AtomicU64,
}

/// A closed file on this machine. It stays there when this is dropped, for the next mount.
#[derive(Debug)]
pub struct KeptFile {
    place: PathBuf,
    /// The file, whose lock says that a process is going to publish it.
    file: File,
}

impl ClosedFiles {
    /// Returns those in a spool directory.
    pub fn new(spool_dir: &Path) -> Self {
        Self { dir: spool_dir.join(DIR), last: AtomicU64::new(0) }
    }

    /// Keeps a file that was closed at `now`, milliseconds since 1970. With `synced` no power cut undoes it.
    pub fn keep(
        &self,
        spooled: &mut SpoolFile,
        about: &ClosedFile,
        now: i64,
        synced: bool,
    ) -> io::Result<KeptFile> {
        private_dir::make(&self.dir)?;
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        // The names follow the order in which files were closed, also those of several mounts.
        let name = format!("{now:014}-{:07}-{number:010}", std::process::id());
        let kept = KeptFile { place: self.dir.join(name), file: spooled.handle()? };
        kept.file.try_lock().map_err(io::Error::from)?; // before others find it
        spooled.link(&kept.place, synced)?;
        let described = kept.describe(about, synced).and_then(|()| match synced {
            true => File::open(&self.dir)?.sync_all(),
            false => Ok(()),
        });
        if let Err(why) = described {
            kept.is_published();
            return Err(why);
        }
        Ok(kept)
    }

    /// Takes the files of a pool that no process is going to publish, in the order in which they were closed.
    pub fn take_left(&self, pool: Digest) -> io::Result<Vec<(KeptFile, ClosedFile)>> {
        let mut left = Vec::new();
        for (place, about) in self.described()? {
            if about.pool != pool {
                continue;
            }
            let file = match OpenOptions::new().read(true).write(true).open(&place) {
                Ok(file) => file,
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                Err(why) => return Err(why),
            };
            match file.try_lock() {
                // It may have been published between the two calls.
                Ok(()) if place.exists() => left.push((KeptFile { place, file }, about)),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(why)) => return Err(why),
            }
        }
        Ok(left)
    }

    /// Returns the files of a pool that are waiting now, in the order in which they were closed, whoever publishes them.
    pub fn waiting(&self, pool: Digest) -> io::Result<Vec<WaitingFile>> {
        let of_pool = self.described()?.into_iter().filter(|(_, about)| about.pool == pool);
        Ok(of_pool.map(|(_, ClosedFile { path, size, .. })| WaitingFile { path, size }).collect())
    }

    fn described(&self) -> io::Result<Vec<(PathBuf, ClosedFile)>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut places = Vec::new();
        for entry in entries {
            let place = entry?.path();
            if place.extension().is_some_and(|extension| extension == DESCRIPTION) {
                places.push(place);
            }
        }
        places.sort();
        let mut described = Vec::new();
        for place in places {
            let text = match fs::read(&place) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue, // published meanwhile
                text => text?,
            };
            match serde_json::from_slice(&text) {
                Ok(about) => described.push((place.with_extension(""), about)),
                Err(why) => tracing::warn!("cannot read {}: {why}", place.display()),
            }
        }
        Ok(described)
    }
}

impl KeptFile {
    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns where the file is.
    pub fn place(&self) -> &Path {
        &self.place
    }

    fn describe(&self, about: &ClosedFile, synced: bool) -> io::Result<()> {
        let unfinished = self.place.with_extension(UNFINISHED);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(&serde_json::to_vec(about)?)?;
        if synced {
            file.sync_all()?;
        }
        fs::rename(unfinished, self.place.with_extension(DESCRIPTION))
    }

    /// Removes the file, because the pool has it, or a program was told that it does not.
    pub fn is_published(&self) {
        let description = self.place.with_extension(DESCRIPTION);
        for name in [&description, &self.place] {
            if let Err(why) = fs::remove_file(name)
                && why.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!("cannot remove {}: {why}", name.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::Spool;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    #[test]
    fn closed_files_outlive_their_mount_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Arc::new(Spool::new(dir.path().into(), 1000));
        let closed = ClosedFiles::new(dir.path());
        let pool = Digest::of(b"a pool");
        let about = |name: &str| ClosedFile {
            pool,
            path: format!("pot://lab/{name}").parse().expect("a path"),
            size: 5,
            written: vec![0..3; 1],
            attributes: AttributesToSet::default(),
            must_be_new: false,
        };
        let keep = |name: &str, now| {
            let mut file = SpoolFile::new(&spool);
            file.write(0, name.as_bytes()).expect("written");
            closed.keep(&mut file, &about(name), now, true).expect("kept")
        };
        let (second, first) = (keep("two", 8), keep("one", 7));
        keep("three", 9).is_published();
        let waiting = waiting_files(dir.path(), pool).expect("read");
        let waiting: Vec<_> = waiting.iter().map(|file| file.path.to_string()).collect();
        assert_eq!(waiting, ["pot://lab/one", "pot://lab/two"], "also those that a process has");
        let left = || ClosedFiles::new(dir.path()).take_left(pool).expect("read");
        assert!(left().is_empty(), "a process has them");
        drop((first, second));
        assert!(closed.take_left(Digest::of(b"another")).expect("read").is_empty());
        let taken = left();
        let paths: Vec<_> = taken.iter().map(|(_, about)| about.path.to_string()).collect();
        assert_eq!(paths, ["pot://lab/one", "pot://lab/two"]);
        let mut bytes = [0; 3];
        taken[1].0.file().read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(&bytes, b"two");
        taken.iter().for_each(|(kept, _)| kept.is_published());
        drop(taken);
        assert!(left().is_empty());
    }
}
