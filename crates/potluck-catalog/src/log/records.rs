//! The catalog as records: a change, or a piece of a whole state, in terms of the domain and of no
//! engine.
//!
//! [`super::export`] reads a catalog as records, and [`super::replay`] makes one of them. A record never
//! holds more than a page of a recipe, so that each is short whatever the size of the file: what belongs
//! to a version goes before it in records of its own.

use crate::checkpoints::open_checkpoint::OpenCheckpoint;
use crate::history::{
    bygone_name::BygoneName, kept_entry::KeptEntry, taken_snapshot::TakenSnapshot,
};
use crate::members::stored_member::StoredMember;
use crate::pool_records::{
    logged_reservation::LoggedReservation, space_keys::KeyRing, spaces::Space,
    stored_donor::StoredDonor,
};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::checkpoint::CommitStyle;
use potluck_core::chunk::ChunkName;
use potluck_core::erasure::Ec;
use potluck_core::ids::{KeyNumber, MemberId, SessionId, SnapshotId, VersionId};
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Override, Policy, Redundancy};
use potluck_core::quota::{Quota, QuotaOf};
use potluck_core::rights::{Grantee, Rights};
use potluck_pool::redundancy::Version;
use potluck_wire::packed::{Blob, Packed};
use serde::{Deserialize, Serialize};

/// The most names of parity chunks in one record.
pub const PARITY_NAMES: usize = 2048;

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A piece of the catalog's state, or a change to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A space is there, with this policy and these keys.
    Space {
        /// The name of the space.
        name: String,
        /// The policy of the space.
        policy: Policy,
        /// The keys of the space, when it is sealed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys: Option<KeyRing>,
        /// The member that made the space.
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
        /// The number of directories above it that were made with it, and have the same attributes.
        #[serde(default, skip_serializing_if = "is_zero")]
        made_above: u64,
        /// The attributes of the directory.
        #[serde(flatten)]
        attributes: EntryAttributes,
    },
    /// A symbolic link is there, in the place of what was there.
    Link {
        /// The path of the link.
        path: PoolPath,
        /// The target of the link.
        target: LinkTarget,
        /// The attributes of the link.
        #[serde(flatten)]
        attributes: EntryAttributes,
    },
    /// The attributes of a directory, a link or a space were set to these.
    PathAttributes {
        /// The path of the directory, the link or the space.
        path: PoolPath,
        /// The new attributes.
        #[serde(flatten)]
        attributes: EntryAttributes,
    },
    /// A directory was modified, because entries came or went.
    DirModified {
        /// The path of the directory.
        path: PoolPath,
        /// The time at which it was modified.
        mtime_ns: FileTime,
    },
    /// The attributes of a version were set to these.
    VersionAttributes {
        /// The number of the version.
        version: VersionId,
        /// The new attributes.
        #[serde(flatten)]
        attributes: EntryAttributes,
    },
    /// A directory sets these parts of the policy differently.
    Policy {
        /// The path of the directory.
        path: PoolPath,
        /// The parts of the policy that the directory sets itself.
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
        /// The names of parity chunks, in order.
        names: Packed<ChunkName>,
    },
    /// A version is part `number` of another, whose own record follows once that is visible.
    Part {
        /// The version that is made of parts.
        whole: VersionId,
        /// The number of the part, from 0.
        number: u32,
        /// The version that is the part.
        #[serde(flatten)]
        version: Box<Version>,
    },
    /// A version is at a path.
    File {
        /// The path of the file.
        path: PoolPath,
        /// The version that is the file.
        #[serde(flatten)]
        version: Box<Version>,
        /// The content of the file, if the catalog itself has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Blob>,
    },
    /// The content of a version is sealed with another key, and so has other chunks; all else of it is as it was.
    SealedAgain {
        /// The number of the version.
        version: VersionId,
        /// The number of the key that seals the content now.
        key: KeyNumber,
        /// The sealed content, if the catalog itself has it; otherwise the recipe came before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inline: Option<Blob>,
        /// The redundancy of the version.
        #[serde(flatten)]
        keeping: Keeping,
    },
    /// The redundancy of a version was set to this.
    Keeping {
        /// The number of the version.
        version: VersionId,
        /// The redundancy that the version has now.
        #[serde(flatten)]
        keeping: Keeping,
    },
    /// A version that a commit put at a path was gone, or its record was damaged, when the log was written. If it was
    /// replaced or removed, a later record tells of that.
    Passed {
        /// The path at which the commit put the version.
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
    /// The staged files of a checkpoint became visible.
    Published {
        /// The path of the staging directory.
        from: PoolPath,
        /// The path of the directory that the checkpoint became, or was merged into.
        to: PoolPath,
        /// The way in which the files took their places.
        style: CommitStyle,
        /// The paths of the entries that were put into directories that were there; none where the staging directory
        /// became the target, and none in the log, which has the entries themselves.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        merged: Vec<PoolPath>,
    },
    /// An entry was removed, with all below it.
    Removed {
        /// The path that the entry had.
        path: PoolPath,
    },
    /// An entry was pinned, so that it is never purged, or its pin was taken away.
    Pinned {
        /// The path of the entry.
        path: PoolPath,
        /// True if the entry is pinned now.
        pinned: bool,
    },
    /// A snapshot was taken.
    Snapshot(TakenSnapshot),
    /// A snapshot covers a directory that was moved away from below the directory of the snapshot.
    Covered {
        /// The path of the directory.
        path: PoolPath,
        /// The number of the snapshot.
        snapshot: SnapshotId,
    },
    /// A snapshot shows what a name leads to, or led to.
    Bygone(BygoneName),
    /// The first snapshot that shows what is at a path was set to this.
    Since {
        /// The path of the entry.
        path: PoolPath,
        /// The number of the snapshot, which may be yet to be taken.
        since: SnapshotId,
    },
    /// The number of the next snapshot is this or a greater one.
    NextSnapshot {
        /// The least number that the next snapshot gets.
        next: SnapshotId,
    },
    /// An entry that was replaced or removed is kept at this place.
    Kept(KeptEntry),
    /// The things that are kept of a name are kept until a certain time at most.
    KeptUntil {
        /// The path of the name.
        path: PoolPath,
        /// The pool's time at which the things are let go, in milliseconds.
        until_ms: u64,
        /// True if this holds only for things that have no time of their own yet.
        only_endless: bool,
    },
    /// The rights in a space that a member or group has now.
    Grant {
        /// The name of the space.
        space: String,
        /// The member or the group that has the grant.
        to: Grantee,
        /// The rights that the grant gives.
        rights: Rights,
    },
    /// A group was made, or removed with all that was granted to it.
    Group {
        /// The name of the group.
        name: String,
        /// True if the group is there now.
        there: bool,
    },
    /// A member was put into a group, or taken out of it.
    GroupMember {
        /// The name of the group.
        group: String,
        /// The member that was put in or taken out.
        member: MemberId,
        /// True if the member is in the group now.
        within: bool,
    },
    /// A quota was set to this; without limits there is none.
    Quota {
        /// The space or the member that the quota is of.
        of: QuotaOf,
        /// The limits of the quota.
        #[serde(flatten)]
        quota: Quota,
    },
    /// Room is reserved, in its present state.
    Reservation(LoggedReservation),
    /// A reservation is over.
    ReservationEnded {
        /// The identifier that the reservation had.
        id: SessionId,
    },
    /// A member was added or changed, and is this now.
    Member(StoredMember),
    /// The facts kept about a donor were set to these.
    Donor(StoredDonor),
    /// A note about a pause of repair was set, or removed.
    Note {
        /// The key of the note.
        key: String,
        /// The content of the note; `None` if it was removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// The pool's time, by which donors' announcements and reservations go on.
    Time {
        /// The pool's time in milliseconds.
        pool_ms: u64,
        /// The milliseconds by which the pool's time leapt at all starts of managers together: promised times go on
        /// without these.
        #[serde(default, skip_serializing_if = "is_zero")]
        leapt_ms: u64,
    },
}

impl From<Space> for Record {
    fn from(Space { name, policy, keys, made_by, .. }: Space) -> Self {
        Self::Space { name, policy, keys, made_by }
    }
}

impl Record {
    /// Returns the space that the record is about, or whose entry or grant it tells of; `None` for a record that names
    /// no space.
    pub(crate) fn space(&self) -> Option<&str> {
        match self {
            Self::Space { name, .. } | Self::SpaceRemoved { name } => Some(name),
            Self::Grant { space, .. } | Self::Quota { of: QuotaOf::Space(space), .. } => {
                Some(space)
            }
            Self::Dir { path, .. }
            | Self::Link { path, .. }
            | Self::PathAttributes { path, .. }
            | Self::DirModified { path, .. }
            | Self::Policy { path, .. }
            | Self::File { path, .. }
            | Self::Passed { path }
            | Self::Moved { from: path, .. }
            | Self::Published { from: path, .. }
            | Self::Removed { path }
            | Self::Pinned { path, .. }
            | Self::Covered { path, .. }
            | Self::Since { path, .. }
            | Self::KeptUntil { path, .. } => Some(path.space()),
            Self::Checkpoint(open) => Some(open.staging.space()),
            Self::Snapshot(taken) => Some(taken.at.space()),
            Self::Bygone(bygone) => Some(bygone.path.space()),
            Self::Kept(entry) => Some(entry.at.space()),
            Self::Reservation(reservation) => Some(reservation.room.path.space()),
            Self::VersionAttributes { .. }
            | Self::Page { .. }
            | Self::Parity { .. }
            | Self::Part { .. }
            | Self::Keeping { .. }
            | Self::SealedAgain { .. }
            | Self::NextSnapshot { .. }
            | Self::Group { .. }
            | Self::GroupMember { .. }
            | Self::Quota { of: QuotaOf::Member(_), .. }
            | Self::Member(_)
            | Self::ReservationEnded { .. }
            | Self::Donor(_)
            | Self::Note { .. }
            | Self::Time { .. } => None,
        }
    }
}

/// The redundancy of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeping {
    /// The number of copies of each chunk; 1 beside an erasure code.
    pub copies: u32,
    /// The erasure code of the version; `None` where it has copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// The redundancy that the version is being changed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Redundancy>,
}

impl Keeping {
    /// Returns the redundancy of a version that the catalog has.
    pub fn of(version: &Version) -> Self {
        Self { copies: version.copies, ec: version.ec, goal: version.goal }
    }

    /// Returns the redundancy that the version has now.
    pub fn redundancy(&self) -> Redundancy {
        match self.ec {
            Some(ec) => Redundancy::Ec(ec),
            None => Redundancy::Copies(self.copies),
        }
    }
}
