//! Lookaside caching (docs/papers.md): file trees near the reader, as on a USB disk or a file server of the building, in
//! which chunks are found by the digest of their plaintext instead of fetched from the pool.
//!
//! - `parts`: the digests of all parts of a file that may be a chunk of it, whatever the chunk size;
//! - `index`: the database in which these are, on the device or elsewhere;
//! - `indexing`: the walk that brings an index up to date;
//! - `trees`: the indexes that a user has added, in the order in which they are looked up, and what they have saved.
//!
//! Nothing here is trusted: who reads a part compares it with the digest that the pool's metadata has. A file that was
//! changed, a wrong index, or a device with errors costs time alone.

mod index;
mod indexing;
mod parts;
mod trees;

pub use index::{INDEX_NAME, IndexError, IndexFacts, LookasideIndex};
pub use indexing::{IndexProgress, IndexReport, Indexing};
pub use trees::{AddedTree, LookasideTrees, TreeCounts, TreeList};
