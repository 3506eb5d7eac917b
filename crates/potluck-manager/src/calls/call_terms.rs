//! The terms on which each call is answered: what it waits for, and whether it ends when nobody waits for its answer any
//! more.
//!
//! Whatever reads the catalog holds a thread, a connection and its cache, and one member may have many hundred calls
//! under way. So the handles of a call read the catalog on behalf of its caller, in turns ([`potluck_catalog::ReadFor`]),
//! and a new call does not compile before it is said here in which.

use super::Verb;

/// What a call waits for besides what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// The call waits behind other such calls of its member, and has its turn until it is answered, for it gathers much,
    /// or takes long to write. Its reads wait behind those of all members besides.
    Throughout,
    /// Each read of the call waits behind the reads of all members.
    ReadByRead,
    /// Each read of the call waits behind those of the same owner only: it reads few rows by their keys, or is not to
    /// wait for other members.
    AmongOwn,
}

impl Verb {
    /// Returns what the call waits for.
    pub(super) fn waits(self) -> Waits {
        match self {
            Self::Move
            | Self::Remove
            | Self::CopyFiles
            | Self::PolicySet
            | Self::Departing
            | Self::GiveBack
            | Self::GiveBackStatus
            | Self::Revoke
            | Self::Leave
            | Self::CheckpointBegin
            | Self::CheckpointCommit
            | Self::CheckpointAbort
            | Self::BringBack
            | Self::LetGo
            | Self::SnapshotTake
            | Self::SnapshotRemove
            | Self::SnapshotList
            | Self::SeriesPurge
            | Self::Evict
            | Self::Pin
            | Self::SpaceCreate
            | Self::SpaceRemove
            | Self::SpaceRekey
            | Self::SpaceList
            | Self::SpaceGrant
            | Self::SpaceRevoke
            | Self::SpaceWho
            | Self::GroupCreate
            | Self::GroupRemove
            | Self::GroupChange
            | Self::GroupList
            | Self::Invite
            | Self::InvitationList
            | Self::AccessKeyCreate
            | Self::AccessKeyList
            | Self::AccessKeyRemove
            | Self::InvitationRemove
            | Self::MemberList
            | Self::AuditRead
            | Self::AuthorityReplace
            | Self::QuotaSet
            | Self::QuotaList
            | Self::RoomReserve
            | Self::RoomReservationList
            | Self::RoomRelease
            | Self::RepairStatus
            | Self::LostParts => Waits::Throughout,
            Self::Join
            | Self::Offer
            | Self::Open
            | Self::OpenPart
            | Self::OldFiles
            | Self::List
            | Self::Stat
            | Self::KeptList
            | Self::Watch
            | Self::Refresh
            | Self::Fsck => Waits::ReadByRead,
            Self::Usage
            | Self::CheckpointList
            | Self::Status
            | Self::Check
            | Self::OwnStatus
            | Self::Register
            | Self::Inventory
            | Self::Heartbeat
            | Self::Reserve
            | Self::Grow
            | Self::Renew
            | Self::Abort
            | Self::Commit
            | Self::RenewLeases
            | Self::Report
            | Self::TellTraffic
            | Self::Unreached
            | Self::MakeDir
            | Self::MakeLinks
            | Self::SetAttributes
            | Self::SyncChanges
            | Self::LockTake
            | Self::LockKeep
            | Self::LockGive
            | Self::SharedClaim
            | Self::SharedLeave
            | Self::SharedTurn
            | Self::SharedWriters
            | Self::AccessKeyShow
            | Self::Locate
            | Self::Find
            | Self::GcResume
            | Self::ReclaimUnknown
            | Self::RepairControl
            | Self::Away
            | Self::Trust
            | Self::ScrubNow
            | Self::NameReserve
            | Self::NameFree => Waits::AmongOwn,
        }
    }

    /// Returns whether the call only looks at something that takes long to look at: it ends when its caller goes away. A
    /// call that changes something is done whole.
    pub(super) fn ends_with_its_caller(self) -> bool {
        matches!(
            self,
            Self::List
                | Self::Stat
                | Self::Usage
                | Self::KeptList
                | Self::SnapshotList
                | Self::CheckpointList
                | Self::Fsck
                | Self::Departing
                | Self::GiveBackStatus
                | Self::AuditRead
                | Self::AuthorityReplace
                | Self::RepairStatus
                | Self::SpaceList
                | Self::QuotaList
                | Self::OwnStatus
        )
    }
}
