//! Places other than donors where a chunk may be: file trees near the reader (lookaside caching, docs/papers.md), and
//! the origin of a file that is cached.

use potluck_core::chunk::Digest;
use potluck_core::origin::Origin;
use potluck_wire::error::Failure;
use potluck_wire::net::BoxFuture;
use std::ops::Range;
use std::time::Duration;

/// A place, other than the donors, where chunks of files may be. What it returns is believed only once it is proved: a
/// wrong source costs time.
pub trait ChunkSource: Send + Sync {
    /// Returns whether nothing can be there at this moment, which takes no time to know.
    fn is_empty(&self) -> bool;

    /// Reads the chunk whose plaintext has this digest and this length in bytes, or returns `None` if it is not there.
    /// Bytes are the chunk's if `is_right` says so, which hashes them. May wait for a disk.
    fn read(&self, digest: &Digest, len: u32, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>>;

    /// Returns how long a chunk of `len` bytes takes, by those that were read so far; `None` before the first.
    fn expected(&self, len: u32) -> Option<Duration>;
}

/// The way to the origins of files, from which chunks of cached files are fetched that no donor has. As with every
/// source, what it returns is believed only once it is proved.
pub trait OriginSource: Send + Sync {
    /// Reads these bytes of what is at an origin now; fewer where it has become shorter.
    ///
    /// Errors: [`code::ORIGIN_AWAY`](potluck_wire::error::code::ORIGIN_AWAY) where the origin does not answer,
    /// [`code::ORIGIN_REFUSED`](potluck_wire::error::code::ORIGIN_REFUSED) where this machine may not ask it or it has no
    /// such file any more.
    fn read<'a>(
        &'a self,
        origin: &'a Origin,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Vec<u8>, Failure>>;
}
