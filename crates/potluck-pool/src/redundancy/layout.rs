//! The layout of a version of a file: its chunks, where they are, and which of them live and die together.

use potluck_core::attributes::EntryAttributes;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::erasure::Ec;
use potluck_core::file_metadata::FileMetadata;
use potluck_core::ids::{DonorId, KeyNumber, VersionId};
use potluck_core::origin::{CacheState, Origin};
use potluck_core::policy::Redundancy;
use serde::{Deserialize, Serialize};

/// A version without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The number of the version.
    pub id: VersionId,
    /// The size of the file in bytes of plaintext.
    pub size: u64,
    /// The bytes of the file that are in holes, which are stored nowhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub holes: u64,
    /// The digest of the plaintext.
    pub digest: Digest,
    /// The modification time at the source, and the permissions.
    #[serde(flatten)]
    pub attributes: EntryAttributes,
    /// The plaintext bytes of a full chunk.
    pub chunk_size: u32,
    /// The number of copies that the version's policy asks for.
    pub copies: u32,
    /// The erasure code of the version, instead of copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// The redundancy that the version is being changed to, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Redundancy>,
    /// The wall time at which the version came to have all its redundancy, in milliseconds; `None` until it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_wall_ms: Option<i64>,
    /// The number of chunks in the version's recipe, or in those of its parts.
    pub chunks: u64,
    /// The number of parts that the version is made of; 0 where its chunks are its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parts: u64,
    /// True if the content lives in the catalog.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inline: bool,
    /// What the writer noted of the file for other programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FileMetadata>,
    /// The number of the key that seals the version's own content; `None` if it has none, or is not sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyNumber>,
    /// The place that the file was imported from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
    /// What the pool promises of the version.
    #[serde(default, skip_serializing_if = "CacheState::is_kept")]
    pub cache: CacheState,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Version {
    /// Returns the number of bytes of the file that are in no hole: what it uses of a quota.
    pub fn data(&self) -> u64 {
        self.size.saturating_sub(self.holes)
    }

    /// Returns the redundancy that keeps the version.
    pub fn redundancy(&self) -> Redundancy {
        match self.ec {
            Some(ec) => Redundancy::Ec(ec),
            None => Redundancy::Copies(self.copies),
        }
    }
}

/// A chunk of a version, and where it is.
#[derive(Debug, Clone)]
pub struct LayoutChunk {
    /// The name of the chunk.
    pub name: ChunkName,
    /// The size of the chunk in stored bytes.
    pub len: u32,
    /// The number of references to the chunk in the whole catalog.
    pub refs: i64,
    /// The donors that have the chunk, each with whether its copy is being deleted.
    pub holders: Vec<(DonorId, bool)>,
}

impl LayoutChunk {
    /// Returns whether a donor's copy is being deleted.
    pub fn is_being_deleted(&self, donor: DonorId) -> bool {
        self.holders.contains(&(donor, true))
    }
}

/// The chunks of a version whose redundancy is counted together: the copies of one chunk, or one erasure-coded group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// The number of the unit in its version, from 0.
    pub number: u32,
    /// The code and the number of data chunks of the group; `None` for copies of one chunk.
    pub group: Option<(Ec, usize)>,
    /// The index of each shard's piece, data before parity; for copies the same index again and again.
    pub shards: Vec<usize>,
}

impl Unit {
    /// Returns how many shards suffice to read the unit's data.
    pub fn need(&self) -> usize {
        self.group.map_or(1, |(_, data)| data)
    }

    /// Returns the position of a shard in its code: data from 0, parity from the number of data chunks of a full group.
    pub fn position(&self, shard: usize) -> u8 {
        let position = match self.group {
            Some((ec, data)) if shard >= data => ec.data() + shard - data,
            _ => shard,
        };
        position as u8
    }
}

/// A version's pieces and units.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// The data chunks in order, then parity.
    pub pieces: Vec<LayoutChunk>,
    /// The number of data chunks among the pieces.
    pub data: usize,
    /// The units that keep the version now.
    pub units: Vec<Unit>,
    /// The units that are to keep the version once it is changed, as far as its parity is known; empty without a goal.
    pub goal: Vec<Unit>,
    /// The groups of the goal whose parity is not known yet.
    pub unencoded: Vec<u32>,
}

/// Returns the units of `data` chunks, and the numbers of the groups without parity. `parity` gives the index of the
/// first parity piece of a group.
pub fn units(
    data: usize,
    redundancy: Redundancy,
    parity: impl Fn(usize, Ec) -> Option<usize>,
) -> (Vec<Unit>, Vec<u32>) {
    match redundancy {
        Redundancy::Copies(copies) => {
            let unit = |chunk: usize| Unit {
                number: chunk as u32,
                group: None,
                shards: vec![chunk; copies.max(1) as usize],
            };
            ((0..data).map(unit).collect(), Vec::new())
        }
        Redundancy::Ec(ec) => {
            let (mut units, mut without) = (Vec::new(), Vec::new());
            for (number, range) in ec.groups(data).enumerate() {
                let Some(first) = parity(number, ec) else {
                    without.push(number as u32);
                    continue;
                };
                units.push(Unit {
                    number: number as u32,
                    group: Some((ec, range.len())),
                    shards: range.chain(first..first + ec.parity()).collect(),
                });
            }
            (units, without)
        }
    }
}
