//! Identifiers. Each is its own type, so that a donor is never taken for a space.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

macro_rules! numeric_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

numeric_id!(
    /// The number of a member: of anybody who holds a certificate of the pool, such as a donor, a user or an admin.
    MemberId(u32)
);
numeric_id!(
    /// The number of a donor; the same as that of its [`MemberId`].
    DonorId(u32)
);
numeric_id!(
    /// The number of a space.
    SpaceId(u32)
);
numeric_id!(
    /// The number of one immutable version of a file, which grows with every commit of the pool.
    VersionId(u64)
);
numeric_id!(
    /// The number of a key that seals the content of a space, which grows with every key of the pool.
    KeyNumber(u32)
);
numeric_id!(
    /// The number of a snapshot of a directory, which grows with every snapshot of the pool.
    SnapshotId(u64)
);
numeric_id!(
    /// The number of a manager's start over one catalog, which grows with every start. Managers are ordered by epochs,
    /// never by wall time; a donor refuses orders of an epoch below the highest that it saw.
    Epoch(u64)
);
numeric_id!(
    /// A number that is drawn anew at each start of a donor, and when its store comes back, so that what was said to
    /// and by an earlier incarnation is void.
    Incarnation(u64)
);

/// The number of a failure domain: donors of one domain fail together. The pool says which they are, and copies are
/// placed, written and judged by that alone.
pub type Domain = u32;

/// A number that stands for a chunk that the catalog knows: shorter than its name, for code that remembers millions of
/// chunks. The chunk has it as long as it is known. Only the catalog makes it and looks into it; all others use it only
/// as a place in an order, after which the next page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId(i64);

impl ChunkId {
    /// The number before those of all chunks, from which the first page goes on.
    pub const FIRST: Self = Self(0);

    /// Makes the number of a chunk from the catalog's own; for the catalog alone.
    pub const fn from_catalog(number: i64) -> Self {
        Self(number)
    }

    /// Returns the catalog's own number of the chunk; for the catalog alone.
    pub const fn catalog_number(self) -> i64 {
        self.0
    }
}

/// Writes bytes as lower-case hex.
pub fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

/// Reads exactly `N` bytes of hex.
pub fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; $len]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $crate::ids::write_hex(&self.0, f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $crate::ids::write_hex(&self.0[..6], f)
            }
        }
        impl FromStr for $name {
            type Err = $crate::ids::BadId;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::ids::parse_hex(text).map(Self).ok_or($crate::ids::BadId { bytes: $len })
            }
        }
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use hex_id;

hex_id!(
    /// The identifier of a write session, from reserve to commit or abort. One half says in which term of a manager the
    /// session was opened, the other is random.
    SessionId,
    16
);

impl SessionId {
    /// Makes the identifier of a session that is opened in the term whose manager drew `start`.
    pub fn in_term(start: u64, random: u64) -> Self {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&start.to_le_bytes());
        id[8..].copy_from_slice(&random.to_le_bytes());
        Self(id)
    }

    /// Returns whether the session was opened in the term whose manager drew `start`, which is never 0.
    pub fn is_of_term(&self, start: u64) -> bool {
        start != 0 && self.0[..8] == start.to_le_bytes()
    }
}

hex_id!(
    /// The identifier of a client's watch stream. It is random, so that no client names the stream of another.
    WatchId,
    16
);

hex_id!(
    /// The identifier of a client that takes the authority over locks of files, such as a mount. It is random, and
    /// counts for its member alone.
    LockHolderId,
    16
);

hex_id!(
    /// The identifier of a writer of a file that several write, from when it joins to when it has finished. It is
    /// random, and counts for its member alone.
    SharedWriterId,
    16
);

impl LockHolderId {
    /// The first identifier in order.
    pub const FIRST: Self = Self([0; 16]);
    /// The last identifier in order.
    pub const LAST: Self = Self([u8::MAX; 16]);
}

impl Default for WatchId {
    /// Returns an identifier that no stream has.
    fn default() -> Self {
        Self([0; 16])
    }
}

/// The error of a text that should have been hex of a known length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {} hex digits", bytes * 2)]
pub struct BadId {
    /// The number of bytes that were expected.
    pub bytes: usize,
}
