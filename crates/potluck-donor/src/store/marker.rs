//! The marker file, which makes a directory a store and names its owner.

use super::layout::{MARKER, StoreLayout};
use crate::disk::{Disk, TEMP_EXTENSION, read_small, replace_durably};
use potluck_core::chunk::Digest;
use potluck_core::entropy::Entropy;
use potluck_core::ids::DonorId;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The format of chunk files. A store is only read by a release of its own format: chunk files of another one would
/// count as damaged.
const FORMAT: u32 = 2;
const BEGINNING: &str = "beginning the store";
/// The most bytes that are read of a marker; no marker is nearly as long.
const MAX_MARKER: u64 = 4096;

/// The id of a store. A store that is adopted gets a new one.
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
    /// The id of the store.
    pub id: StoreId,
    /// The directory in which the store was.
    pub dir: PathBuf,
}

/// The donor that a store belongs to: one membership of one pool. Two donors never share a store, whatever directory or
/// machine it is reached by.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Owner {
    /// The pool, by its CA's fingerprint.
    pub pool: Digest,
    /// The donor's number in that pool.
    pub donor: DonorId,
    /// The name of the pool, which is shown to people.
    pub pool_name: String,
    /// The name that people call the donor by.
    pub name: String,
}

impl Owner {
    /// Returns whether both owners are the same membership, whatever their names.
    pub fn is(&self, other: &Self) -> bool {
        (self.pool, self.donor) == (other.pool, other.donor)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "donor {} (“{}”) of pool {}", self.donor, self.name, self.pool_name)
    }
}

/// The claim of a donor on the directory it is to lend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Claiming {
    /// The donor claims its own store; it makes a new one only where it never had one.
    #[default]
    Own,
    /// The donor also claims a store of this pool that was another donor's, or its own before.
    Adopt,
    /// The donor claims a new store in place of its own, which is lost.
    Anew,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Marker {
    format: u32,
    store: StoreId,
    owner: Owner,
    #[serde(default)]
    about: String,
}

const ABOUT: &str = "Potluck keeps chunks of other people's files here. Leave the directory alone. \
                     To take it back, run `potluck leave` as its donor: that moves what is needed \
                     to other donors first, and then takes away what is here.";

/// The reasons why a directory cannot be lent.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system failed.
    #[error("{} in {} failed: {why}", doing, dir.display())]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The path of the lent directory.
        dir: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// A process lends the directory.
    #[error("{} is lent already, by a process that is running: stop that first, or lend another directory", .0.display())]
    Locked(PathBuf),
    /// The directory has no marker, and is not empty.
    #[error("{} is not empty and not a Potluck store: lend an empty directory, so that your files and the pool's never mix", .0.display())]
    Foreign(PathBuf),
    /// The directory should be the donor's store, and it or its marker is missing.
    #[error("{dir} should hold this donor's store, but its {MARKER} is missing: mount the disk if it is not mounted, then start again. If the store is lost for good, `potluck lend {dir} --new-store` begins an empty one, and the pool makes what it held again from other copies", dir = .0.display())]
    Missing(PathBuf),
    /// The donor's store is elsewhere.
    #[error("this donor's store is at {}, not at {dir}: lend the former, or move the store there whole while no donor runs. If it is lost for good, `potluck lend {dir} --new-store` begins an empty one", known.display(), dir = dir.display())]
    Elsewhere {
        /// The path of the lent directory.
        dir: PathBuf,
        /// The directory in which the donor's store was.
        known: PathBuf,
    },
    /// The donor's store is in another directory, and it is asked to take a second one.
    #[error("this donor's store is at {}, and is there: a donor has one. Lend that, or give it back first: `potluck leave`", .0.display())]
    HasOne(PathBuf),
    /// The directory is a store that this donor had before.
    #[error("{dir} is a store that this donor had before; the one it has now is at {}: lend that. If that is lost for good, `potluck lend {dir} --adopt-store` takes this one, with all that is in it", known.display(), dir = dir.display())]
    Earlier {
        /// The path of the lent directory.
        dir: PathBuf,
        /// The path of the store that the donor has now.
        known: PathBuf,
    },
    /// The directory is the store of another donor of this pool.
    #[error("{dir} is the store of {owner}, and this is donor {own}: lend an empty directory, or start that donor, with its --state. If its identity is lost for good, `potluck lend {dir} --adopt-store` takes the store over, with all that is in it", dir = dir.display())]
    Other {
        /// The path of the lent directory.
        dir: PathBuf,
        /// The donor that the store belongs to.
        owner: Box<Owner>,
        /// The donor that would lend the store.
        own: DonorId,
    },
    /// The directory is a store of another pool.
    #[error("{} is the store of {owner}, which is another pool: lend an empty directory. `potluck leave`, as that donor, gives back what is here", dir.display())]
    OtherPool {
        /// The path of the lent directory.
        dir: PathBuf,
        /// The donor that the store belongs to.
        owner: Box<Owner>,
    },
    /// The store was written by a newer release.
    #[error("the store in {} has format {format}, and this Potluck reads format {FORMAT}: use the newer Potluck that wrote it", dir.display())]
    TooNew {
        /// The path of the lent directory.
        dir: PathBuf,
        /// The format of the store.
        format: u32,
    },
    /// The store was written by an older release.
    #[error("the store in {dir} has format {format}, which an older Potluck wrote, and this one reads format {FORMAT} only: give it back with the older one (`potluck leave`), or, if what it holds may be lost, delete what is in {dir} and begin an empty store with `potluck lend {dir} --new-store`", dir = dir.display())]
    TooOld {
        /// The path of the lent directory.
        dir: PathBuf,
        /// The format of the store.
        format: u32,
    },
}

/// A directory that is this donor's store, and is locked.
pub(crate) struct StoreClaim {
    pub layout: StoreLayout,
    pub id: StoreId,
    pub lock: Box<dyn Send + Sync>,
}

/// The donor that claims a directory, and what it may make of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClaimRequest<'a> {
    pub owner: &'a Owner,
    /// The store that the donor's state remembers.
    pub known: Option<&'a KnownStore>,
    pub claiming: Claiming,
}

/// Makes `dir` this donor's store, or finds that it is already.
///
/// The directory is locked before the marker is read. A store that is adopted gets another id, by which the donor that
/// had it before finds that out when it looks again.
pub(crate) fn claim(
    disk: &dyn Disk,
    entropy: &dyn Entropy,
    dir: &Path,
    request: ClaimRequest<'_>,
) -> Result<StoreClaim, StoreError> {
    let layout = StoreLayout::new(dir);
    let ClaimRequest { owner, known, claiming } = request;
    let absent = |why: &io::Error| why.kind() == io::ErrorKind::NotFound;
    let lock = match (lock(disk, dir), known) {
        (Err(why), Some(known)) if absent(&why) && claiming != Claiming::Anew => {
            return Err(missing(known, dir));
        }
        (Err(why), _) if absent(&why) => {
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
    let begin = || begin(disk, entropy, &layout, owner);
    let id = match (found, known) {
        (Some(marker), _) if marker.format > FORMAT => {
            return Err(StoreError::TooNew { dir: dir.to_owned(), format: marker.format });
        }
        (Some(marker), _) if marker.format < FORMAT => {
            return Err(StoreError::TooOld { dir: dir.to_owned(), format: marker.format });
        }
        (Some(Marker { owner: other, .. }), _) if other.pool != owner.pool => {
            return Err(StoreError::OtherPool { dir: dir.to_owned(), owner: Box::new(other) });
        }
        (Some(marker), known) => {
            let another = known.filter(|known| known.id != marker.store);
            match (marker.owner.is(owner), another, claiming) {
                (true, None, _) => marker.store,
                (_, Some(known), Claiming::Adopt) if is_there(disk, known) => {
                    return Err(StoreError::HasOne(known.dir.clone()));
                }
                (_, _, Claiming::Adopt) => adopt(disk, entropy, &layout, owner)?,
                // This donor began the store and died before it could remember it.
                (true, Some(known), Claiming::Anew)
                    if !is_there(disk, known) && is_unused(disk, &layout)? =>
                {
                    begin()?
                }
                (true, Some(known), _) => {
                    let known = known.dir.clone();
                    return Err(StoreError::Earlier { dir: dir.to_owned(), known });
                }
                (false, ..) => {
                    let (dir, other) = (dir.to_owned(), Box::new(marker.owner));
                    return Err(StoreError::Other { dir, owner: other, own: owner.donor });
                }
            }
        }
        (None, Some(known)) if claiming == Claiming::Anew => {
            if is_there(disk, known) {
                return Err(StoreError::HasOne(known.dir.clone()));
            }
            begin()?
        }
        (None, Some(known)) => return Err(missing(known, dir)),
        (None, None) => begin()?,
    };
    // Only now is it known to be Potluck's: one that its owner made, with any umask, is closed to others, too.
    disk.make_dir(dir).map_err(|why| layout.failed("closing the directory to others", why))?;
    Ok(StoreClaim { layout, id, lock })
}

/// Returns whether a process has the store in this directory.
pub(crate) fn is_claimed(disk: &dyn Disk, dir: &Path) -> bool {
    lock(disk, dir).is_err_and(|why| why.kind() == io::ErrorKind::WouldBlock)
}

/// Returns whether the store that a donor remembers is where it was.
fn is_there(disk: &dyn Disk, known: &KnownStore) -> bool {
    let found = read_marker(disk, &StoreLayout::new(&known.dir));
    found.is_ok_and(|found| found.is_some_and(|marker| marker.store == known.id))
}

fn adopt(
    disk: &dyn Disk,
    entropy: &dyn Entropy,
    layout: &StoreLayout,
    owner: &Owner,
) -> Result<StoreId, StoreError> {
    write(disk, entropy, layout, owner).map_err(|why| layout.failed("taking the store over", why))
}

fn lock(disk: &dyn Disk, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
    disk.lock(dir)
}

fn lock_dir(disk: &dyn Disk, layout: &StoreLayout) -> Result<Box<dyn Send + Sync>, StoreError> {
    lock(disk, layout.root()).map_err(|why| match why.kind() {
        io::ErrorKind::WouldBlock => StoreError::Locked(layout.root().to_owned()),
        _ => layout.failed("locking the directory", why),
    })
}

fn missing(known: &KnownStore, dir: &Path) -> StoreError {
    let dir = dir.to_owned();
    if known.dir == dir {
        StoreError::Missing(dir)
    } else {
        StoreError::Elsewhere { dir, known: known.dir.clone() }
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

fn begin(
    disk: &dyn Disk,
    entropy: &dyn Entropy,
    layout: &StoreLayout,
    owner: &Owner,
) -> Result<StoreId, StoreError> {
    if !is_unused(disk, layout)? {
        return Err(StoreError::Foreign(layout.root().to_owned()));
    }
    write(disk, entropy, layout, owner).map_err(|why| layout.failed(BEGINNING, why))
}

/// Returns whether a directory holds nothing but the files of a fresh file system and those of a donor that died as it
/// began a store.
fn is_unused(disk: &dyn Disk, layout: &StoreLayout) -> Result<bool, StoreError> {
    let unfinished = Path::new(MARKER).with_extension(TEMP_EXTENSION);
    let harmless = [OsStr::new("lost+found"), OsStr::new(MARKER), unfinished.as_os_str()];
    let mut is_unused = true;
    disk.list(layout.root(), &mut |entry| is_unused &= harmless.contains(&entry.name))
        .map_err(|why| layout.failed(BEGINNING, why))?;
    Ok(is_unused)
}

/// Writes a marker with a new id for the store.
fn write(
    disk: &dyn Disk,
    entropy: &dyn Entropy,
    layout: &StoreLayout,
    owner: &Owner,
) -> io::Result<StoreId> {
    let id = StoreId::generate(entropy);
    let (store, owner) = (id.clone(), owner.clone());
    let marker = Marker { format: FORMAT, store, owner, about: ABOUT.into() };
    replace_durably(disk, layout.marker(), &serde_json::to_vec_pretty(&marker)?)?;
    Ok(id)
}

fn read_marker(disk: &dyn Disk, layout: &StoreLayout) -> io::Result<Option<Marker>> {
    match read_small(disk, layout.marker(), MAX_MARKER) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why),
    }
}

/// Reads which donor a store belongs to; returns `None` if there is no marker.
pub(crate) fn owner_of(disk: &dyn Disk, layout: &StoreLayout) -> io::Result<Option<Owner>> {
    Ok(read_marker(disk, layout)?.map(|marker| marker.owner))
}

/// Returns the id in the marker, if there is one.
pub(crate) fn read(disk: &dyn Disk, layout: &StoreLayout) -> io::Result<Option<StoreId>> {
    Ok(read_marker(disk, layout)?.map(|marker| marker.store))
}
