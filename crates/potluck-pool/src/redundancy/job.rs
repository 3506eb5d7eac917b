//! Work that a scan found: units to be made whole, and groups to be encoded.

use potluck_core::chunk::{ChunkKind, ChunkName};
use potluck_core::erasure::Ec;
use potluck_core::ids::{Domain, DonorId, VersionId};

/// A unit that lacks something.
#[derive(Debug, Clone)]
pub struct RepairJob {
    /// The version, the number of its unit, and whether the unit is of what the version is being changed to.
    pub unit: (VersionId, u32, bool),
    /// The kind of the unit's chunks.
    pub kind: ChunkKind,
    /// The number of further deaths that the unit survives.
    pub tolerates: u32,
    /// True if an owner who needs the space waits for the job.
    pub over_quota: bool,
    /// The code and the number of data chunks of the group; `None` where the unit is copies of one chunk.
    pub group: Option<(Ec, usize)>,
    /// The chunks of the unit in the order of its shards; one alone where the unit is copies of one chunk.
    pub shards: Vec<ShardAt>,
    /// The copies or chunks to make.
    pub make: Vec<Make>,
    /// The donors that the unit relies on.
    pub used: Vec<(DonorId, Domain)>,
}

/// A chunk of a unit.
#[derive(Debug, Clone)]
pub struct ShardAt {
    /// The position of the chunk in the code.
    pub position: u8,
    /// The name of the chunk.
    pub name: ChunkName,
    /// The size of the chunk in stored bytes.
    pub len: u32,
    /// The donors that can send the chunk now, the trusted first.
    pub from: Vec<DonorId>,
    /// The donors that have the chunk, in whatever state.
    pub at: Vec<DonorId>,
}

/// A copy to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Make {
    /// The index of the chunk in [`RepairJob::shards`].
    pub shard: usize,
    /// True if no copy that counts is left for this shard: there is none, or the unit's other shards rely on all
    /// there are. Then it may go to a donor in a failure domain that is already in use, which is better than nowhere.
    pub missing: bool,
}

impl RepairJob {
    /// Returns whether the job is of what a version is being changed to, and not of what was promised.
    pub fn is_goal(&self) -> bool {
        self.unit.2
    }

    /// Returns whether the donors that `sends` allows can send all that is needed for `make`.
    pub fn has_source(&self, make: &Make, sends: &dyn Fn(&DonorId) -> bool) -> bool {
        let there = |shard: &ShardAt| shard.from.iter().any(sends);
        let enough = |data| self.shards.iter().filter(|shard| there(shard)).count() >= data;
        there(&self.shards[make.shard]) || self.group.is_some_and(|(_, data)| enough(data))
    }
}

/// A copy to make: the chunk, the number of the copy, and whether it is of what a version is being changed to. One
/// copy serves all files that use the chunk.
pub type CopyToMake = (ChunkName, usize, bool);

impl RepairJob {
    /// Returns the copies that are still to make, each with its stored bytes, where `made` copies of each are on
    /// their way.
    pub fn lacking(&self, made: usize) -> impl Iterator<Item = (CopyToMake, u64)> {
        let name = |make: &Make| self.shards[make.shard].name;
        self.make.iter().enumerate().map(move |(at, make)| {
            let chunk = name(make);
            let before = self.make[..at].iter().filter(|make| name(make) == chunk).count();
            let bytes = u64::from(self.shards[make.shard].len);
            ((chunk, made + before, self.is_goal()), bytes)
        })
    }
}

/// A group whose parity is to be computed.
#[derive(Debug, Clone)]
pub struct Encode {
    /// The version that the group belongs to.
    pub version: VersionId,
    /// The number of the group.
    pub group: u32,
    /// The erasure code of the group.
    pub ec: Ec,
    /// The data chunks of the group.
    pub shards: Vec<ShardAt>,
}

impl Encode {
    /// Returns the key of the group: its version, its code and its number.
    pub fn key(&self) -> GroupInCode {
        (self.version, self.ec, self.group)
    }

    /// Returns the stored bytes of the group's parity.
    pub fn parity_bytes(&self) -> u64 {
        parity_bytes(self.longest(), self.ec)
    }

    /// Returns the stored bytes of the group's longest chunk, which each chunk of parity has.
    pub fn longest(&self) -> u32 {
        self.shards.iter().map(|shard| shard.len).max().unwrap_or(0)
    }
}

/// A group of a version, in a code.
pub type GroupInCode = (VersionId, Ec, u32);

/// Returns the stored bytes of the parity of a group whose longest chunk has `longest` stored bytes.
pub fn parity_bytes(longest: u32, ec: Ec) -> u64 {
    u64::from(longest) * ec.parity() as u64
}
