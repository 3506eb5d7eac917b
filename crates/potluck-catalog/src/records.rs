//! The catalog as records: a change, or a piece of a whole state, in terms of the domain and of no
//! engine.
//!
//! [`super::export`] reads a catalog as records, and [`super::replay`] makes one of them. A record never
//! holds more than a page of a recipe, so that each is short whatever the size of the file: what belongs
//! to a version goes before it in records of its own.

use super::bygone_name::BygoneName;
use super::donors::StoredDonor;
use super::kept_entry::KeptEntry;
use super::members::StoredMember;
use super::open_checkpoint::OpenCheckpoint;
use super::taken_snapshot::TakenSnapshot;
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::CommitStyle;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::erasure::Ec;
use potluck_core::ids::{MemberId, SnapshotId, VersionId};
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Override, Policy, Redundancy};
use potluck_core::quota::{Quota, QuotaOf};
use potluck_core::rights::{Grantee, Rights};
use potluck_core::seal::SpaceKey;
use potluck_pool::redundancy::Version;
use potluck_wire::packed::{Blob, Packed};
use serde::{Deserialize, Serialize};

/// Names of parity chunks in one record.
pub const PARITY_NAMES: usize = 2048;

/// A piece of the catalog's state, or a change to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A space is there, with this policy.
    Space {
        /// The name of the space.
        name: String,
        /// The policy of the space.
        policy: Policy,
        /// The secret of the space, when it is sealed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<SpaceKey>,
        /// Who made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        made_by: Option<MemberId>,
    },
    /// A space is gone with all that was in it.
    SpaceRemoved {
        /// The name that the space had.
        name: String,
    },
    /// A directory is there.
    Dir {
        /// The path of the directory.
        path: PoolPath,
        /// The attributes that it was made with.
        #[serde(flatten)]
        attributes: EntryAttributes,
    },
    /// A symbolic link is there, in the place of what was there.
    Link {
        /// The path of the link.
        path: PoolPath,
        /// Where it leads.
        target: LinkTarget,
        /// The attributes that it has.
        #[serde(flatten)]
        attributes: EntryAttributes,
    },
    /// The attributes of a directory, a link or a space are these now.
    PathAttributes {
        /// The path of the directory or link.
        path: PoolPath,
        /// The attributes that it has.
        #[serde(flatten)]
        attributes: EntryAttributes,
    },
    /// The attributes of a version are these now.
    VersionAttributes {
        /// The number of the version.
        version: VersionId,
        /// The attributes that it has.
        #[serde(flatten)]
        attributes: EntryAttributes,
    },
    /// The parts of the policy that a directory sets differently.
    Policy {
        /// The path of the directory.
        path: PoolPath,
        /// The parts that differ.
        over: Override,
    },
    /// The next page of a version's recipe; the version follows.
    Page {
        /// The version that the page belongs to.
        version: VersionId,
        /// The page as the catalog keeps it.
        page: Blob,
    },
    /// The next names of a version's parity chunks; the version follows.
    Parity {
        /// The version that the parity belongs to.
        version: VersionId,
        /// Names of parity chunks, in order.
        names: Packed<ChunkName>,
    },
    /// A version is part `number` of another, which follows when it became visible.
    Part {
        /// The version that is made of parts.
        whole: VersionId,
        /// The number of the part, from 0.
        number: u32,
        /// The number of the version that is the part.
        version: VersionId,
        /// The facts about the part.
        #[serde(flatten)]
        about: VersionFacts,
    },
    /// A version is at a path.
    File {
        /// The path of the file.
        path: PoolPath,
        /// The number of the version.
        version: VersionId,
        /// The facts about the version.
        #[serde(flatten)]
        about: VersionFacts,
    },
    /// The redundancy of a version is this now.
    Keeping {
        /// The number of the version.
        version: VersionId,
        /// How it is kept.
        #[serde(flatten)]
        keeping: Keeping,
    },
    /// The entry that was at a path at that time is no more: later records say how it ended.
    Passed {
        /// The path that the entry had at that time.
        path: PoolPath,
    },
    /// An entry was moved.
    Moved {
        /// The path of the entry before the move.
        from: PoolPath,
        /// The path of the entry after the move.
        to: PoolPath,
    },
    /// A checkpoint is open.
    Checkpoint(OpenCheckpoint),
    /// What a checkpoint staged became visible.
    Published {
        /// The path of its staging directory.
        from: PoolPath,
        /// The path of what it became, or was merged into.
        to: PoolPath,
        /// Whether it replaced what was there.
        style: CommitStyle,
    },
    /// An entry was removed, with all below it.
    Removed {
        /// The path that the entry had.
        path: PoolPath,
    },
    /// An entry is never purged, or as others.
    Pinned {
        /// The path of the entry.
        path: PoolPath,
        /// Whether it is never purged.
        pinned: bool,
    },
    /// A snapshot was taken.
    Snapshot(TakenSnapshot),
    /// A snapshot covers a directory that was moved away from the one that it is of.
    Covered {
        /// The path of the directory.
        path: PoolPath,
        /// The number of the snapshot.
        snapshot: SnapshotId,
    },
    /// A snapshot shows what a name leads to, or led to.
    Bygone(BygoneName),
    /// The first snapshot that shows what is at a path is this.
    Since {
        /// The path of the entry.
        path: PoolPath,
        /// The number of the snapshot, which may be yet to be taken.
        since: SnapshotId,
    },
    /// The number of the next snapshot is this, or a greater one.
    NextSnapshot {
        /// The least number that the next snapshot gets.
        next: SnapshotId,
    },
    /// Something is kept that was replaced or removed, and was moved to where it is.
    Kept(KeptEntry),
    /// What is kept of a name goes then, or sooner.
    KeptUntil {
        /// The path that it had.
        path: PoolPath,
        /// The pool's time at which it goes.
        until_ms: u64,
        /// Whether what goes at a time of its own stays until that.
        only_endless: bool,
    },
    /// What is granted in a space to a member or group is this now.
    Grant {
        /// The name of the space.
        space: String,
        /// The member or the group to whom it is granted.
        to: Grantee,
        /// All that is granted to them there.
        rights: Rights,
    },
    /// A group is there, or is gone with all that was granted to it.
    Group {
        /// The name of the group.
        name: String,
        /// Whether it is there.
        there: bool,
    },
    /// A member is in a group, or not any more.
    GroupMember {
        /// The name of the group.
        group: String,
        /// The member of the group.
        member: MemberId,
        /// Whether they are in it.
        within: bool,
    },
    /// A quota is this now; without limits there is none.
    Quota {
        /// The space or the member that the quota is of.
        of: QuotaOf,
        /// The limits of the quota.
        #[serde(flatten)]
        quota: Quota,
    },
    /// A member, as they are now.
    Member(StoredMember),
    /// The facts kept about a donor are these now.
    Donor(StoredDonor),
    /// A note that admins' decisions left: what it says now, or that it is gone.
    Note {
        /// The name of the note.
        key: String,
        /// The content of the note.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// The pool's time, by which donors' announcements go on.
    Time {
        /// The pool's time in milliseconds.
        pool_ms: u64,
    },
}

/// A version without recipe and parity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionFacts {
    /// Size of the file in bytes of plaintext.
    pub size: u64,
    /// Digest of the plaintext.
    pub digest: Digest,
    /// Modification time at the source, and permissions.
    #[serde(flatten)]
    pub attributes: EntryAttributes,
    /// Plaintext bytes per chunk.
    pub chunk_size: u32,
    /// Chunks in its recipe, or in those of its parts.
    pub chunks: u64,
    /// Parts that it is made of, all of which came before; 0 where its chunks are its own.
    #[serde(default, skip_serializing_if = "is_none")]
    pub parts: u64,
    /// The content of the file, if that lives in the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Blob>,
    /// When the version came to have all its redundancy, in milliseconds of wall time; `None` until it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_wall_ms: Option<i64>,
    /// How it is kept.
    #[serde(flatten)]
    pub keeping: Keeping,
}

/// The redundancy of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeping {
    /// Copies of each chunk; 1 beside a code.
    pub copies: u32,
    /// The erasure code of the version; `None` where it has copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// The redundancy that it is being changed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Redundancy>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl VersionFacts {
    /// The facts about a version that the catalog has.
    pub fn of(version: &Version, inline: Option<Vec<u8>>) -> Self {
        Self {
            size: version.size,
            digest: version.digest,
            attributes: version.attributes,
            chunk_size: version.chunk_size,
            chunks: version.chunks,
            parts: version.parts,
            inline: inline.map(Blob),
            safe_wall_ms: version.safe_wall_ms,
            keeping: Keeping::of(version),
        }
    }

    /// The version for the catalog.
    pub fn version(&self, id: VersionId) -> Version {
        Version {
            id,
            size: self.size,
            digest: self.digest,
            attributes: self.attributes,
            chunk_size: self.chunk_size,
            copies: self.keeping.copies,
            ec: self.keeping.ec,
            goal: self.keeping.goal,
            safe_wall_ms: self.safe_wall_ms,
            chunks: self.chunks,
            parts: self.parts,
            inline: self.inline.is_some(),
        }
    }
}

impl Keeping {
    /// The redundancy of a version that the catalog has.
    pub fn of(version: &Version) -> Self {
        Self { copies: version.copies, ec: version.ec, goal: version.goal }
    }

    /// Returns the redundancy that keeps the version now.
    pub fn redundancy(&self) -> Redundancy {
        match self.ec {
            Some(ec) => Redundancy::Ec(ec),
            None => Redundancy::Copies(self.copies),
        }
    }
}
