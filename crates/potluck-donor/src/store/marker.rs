//! What makes a directory a store, and whose it is.

use super::layout::{Layout, MARKER};
use crate::disk::{Disk, TEMP_EXTENSION, read_small, replace_durably};
use potluck_core::entropy::Entropy;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

const FORMAT: u32 = 1;
/// No marker is nearly as long.
const MAX_MARKER: u64 = 4096;

/// Names a store for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreId(String);

impl StoreId {
    fn generate(entropy: &dyn Entropy) -> Self {
        let bytes: [u8; 16] = entropy.bytes();
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The store that a donor remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownStore {
    /// Which store.
    pub id: StoreId,
    /// Where it was.
    pub dir: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    format: u32,
    store: StoreId,
    #[serde(default)]
    about: String,
}

const ABOUT: &str = "Potluck keeps chunks of other people's files here. Leave the directory alone; \
                     to take it back, stop the donor, let the pool repair what it held, and delete it whole.";

/// Why a directory cannot be lent.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system failed.
    #[error("{} in {} failed: {why}", doing, dir.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The lent directory.
        dir: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// Another donor has it.
    #[error("another donor is running on {}: stop it first, or lend another directory", .0.display())]
    Locked(PathBuf),
    /// The owner's files are there.
    #[error("{} is not empty and not a Potluck store: lend an empty directory, so that your files and the pool's never mix", .0.display())]
    Foreign(PathBuf),
    /// It was a store and is not one now.
    #[error("{} should hold this donor's store, but its {MARKER} is missing: mount the disk if it is not mounted, then start again. If the store is lost for good, delete {} and start again; the pool then repairs what it held", dir.display(), state.display())]
    Missing {
        /// The lent directory.
        dir: PathBuf,
        /// What to delete.
        state: PathBuf,
    },
    /// The donor's store is elsewhere.
    #[error("this donor's store is at {}, not at {}: lend the former, or move the store there. To begin an empty store instead, delete {}", known.display(), dir.display(), state.display())]
    Elsewhere {
        /// The lent directory.
        dir: PathBuf,
        /// Where the store was.
        known: PathBuf,
        /// What to delete.
        state: PathBuf,
    },
    /// It is some other donor's store.
    #[error("{} is the store of another donor: lend the directory that this donor used before. To take over this store instead, delete {}", dir.display(), state.display())]
    Other {
        /// The lent directory.
        dir: PathBuf,
        /// What to delete.
        state: PathBuf,
    },
    /// Written by a newer release.
    #[error("the store in {} has format {format}, and this Potluck reads up to {FORMAT}: use the newer Potluck that wrote it", dir.display())]
    TooNew {
        /// The lent directory.
        dir: PathBuf,
        /// Its format.
        format: u32,
    },
}

/// A directory that is this donor's store and nobody else's.
pub(crate) struct Claim {
    pub layout: Layout,
    pub id: StoreId,
    pub lock: Box<dyn Send + Sync>,
}

/// Makes `dir` this donor's store, or finds that it is; `known` is what the donor's state, in the
/// file `state`, remembers.
pub(crate) fn claim(
    disk: &dyn Disk,
    entropy: &dyn Entropy,
    dir: &Path,
    known: Option<&KnownStore>,
    state: &Path,
) -> Result<Claim, StoreError> {
    let layout = Layout::new(dir);
    let missing = |known: &KnownStore| missing(known, dir, state);
    let absent = |why: &io::Error| why.kind() == io::ErrorKind::NotFound;
    let lock = match (lock(disk, dir), known) {
        (Err(why), Some(known)) if absent(&why) => return Err(missing(known)),
        (Err(why), None) if absent(&why) => {
            make_dirs(disk, dir).map_err(|why| layout.failed("making the directory", why))?;
            lock_dir(disk, &layout)?
        }
        (Err(why), _) if why.kind() == io::ErrorKind::WouldBlock => {
            return Err(StoreError::Locked(dir.to_owned()));
        }
        (lock, _) => lock.map_err(|why| layout.failed("locking the directory", why))?,
    };
    let found =
        read_marker(disk, &layout).map_err(|why| layout.failed("reading the marker", why))?;
    let id = match (found, known) {
        (Some(marker), _) if marker.format > FORMAT => {
            return Err(StoreError::TooNew { dir: dir.to_owned(), format: marker.format });
        }
        (Some(marker), Some(known)) if marker.store != known.id => {
            return Err(StoreError::Other { dir: dir.to_owned(), state: state.to_owned() });
        }
        (Some(marker), _) => marker.store,
        (None, Some(known)) => return Err(missing(known)),
        (None, None) => begin(disk, entropy, &layout)?,
    };
    Ok(Claim { layout, id, lock })
}

fn lock(disk: &dyn Disk, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
    disk.lock(dir)
}

fn lock_dir(disk: &dyn Disk, layout: &Layout) -> Result<Box<dyn Send + Sync>, StoreError> {
    lock(disk, layout.root()).map_err(|why| match why.kind() {
        io::ErrorKind::WouldBlock => StoreError::Locked(layout.root().to_owned()),
        _ => layout.failed("locking the directory", why),
    })
}

fn missing(known: &KnownStore, dir: &Path, state: &Path) -> StoreError {
    let (dir, state) = (dir.to_owned(), state.to_owned());
    if known.dir == dir {
        StoreError::Missing { dir, state }
    } else {
        StoreError::Elsewhere { dir, known: known.dir.clone(), state }
    }
}

/// Makes a directory and those above it.
pub(crate) fn make_dirs(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    match (disk.make_dir(dir), dir.parent()) {
        (Err(why), Some(parent)) if why.kind() == io::ErrorKind::NotFound => {
            make_dirs(disk, parent)?;
            disk.make_dir(dir)
        }
        (made, _) => made,
    }
}

fn begin(disk: &dyn Disk, entropy: &dyn Entropy, layout: &Layout) -> Result<StoreId, StoreError> {
    let failed = |why| layout.failed("beginning the store", why);
    let unfinished = Path::new(MARKER).with_extension(TEMP_EXTENSION);
    let mut foreign = false;
    disk.list(layout.root(), &mut |entry| {
        // A fresh file system has the former; a donor that died right here leaves the latter.
        foreign |= entry.name != "lost+found" && entry.name != unfinished.as_os_str();
    })
    .map_err(failed)?;
    if foreign {
        return Err(StoreError::Foreign(layout.root().to_owned()));
    }
    let id = StoreId::generate(entropy);
    let marker = Marker { format: FORMAT, store: id.clone(), about: ABOUT.into() };
    let text = serde_json::to_vec_pretty(&marker).map_err(|why| failed(why.into()))?;
    replace_durably(disk, layout.marker(), &text).map_err(failed)?;
    Ok(id)
}

fn read_marker(disk: &dyn Disk, layout: &Layout) -> io::Result<Option<Marker>> {
    match read_small(disk, layout.marker(), MAX_MARKER) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why),
    }
}

/// The id in the marker, if there is one.
pub(crate) fn read(disk: &dyn Disk, layout: &Layout) -> io::Result<Option<StoreId>> {
    Ok(read_marker(disk, layout)?.map(|marker| marker.store))
}
