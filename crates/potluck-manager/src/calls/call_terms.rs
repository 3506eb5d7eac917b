//! The terms on which each call is answered: whether it waits for a turn of its caller, and whether it ends when nobody
//! waits for its answer any more.
//!
//! Whatever reads the catalog holds a thread, a connection and its cache, and one member may have many hundred calls
//! under way. A new call does not compile before it is said here where its turn is.

use super::Verb;

/// Where a call waits for the turn in which it reads the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadsIn {
    /// The call waits behind other calls of its owner, and has its turn until it is answered.
    OneTurn,
    /// The call takes its turns itself, because it waits for other things besides.
    TurnsOfItsOwn,
    /// The call reads nothing of the catalog, or few rows by their keys, or it is written to the catalog with others of
    /// many callers at once.
    NoTurn,
}

impl Verb {
    /// Returns where the call waits for its turn.
    pub(super) fn reads_in(self) -> ReadsIn {
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
            | Self::InvitationRemove
            | Self::MemberList
            | Self::AuditRead
            | Self::QuotaSet
            | Self::QuotaList
            | Self::RoomReserve
            | Self::RoomReservationList
            | Self::RoomRelease
            | Self::RepairStatus
            | Self::LostParts
            | Self::OwnStatus => ReadsIn::OneTurn,
            Self::Join
            | Self::Offer
            | Self::Open
            | Self::OpenPart
            | Self::OldFiles
            | Self::List
            | Self::Stat
            | Self::Usage
            | Self::KeptList
            | Self::CheckpointList
            | Self::Watch
            | Self::Refresh
            | Self::Fsck
            | Self::Status
            | Self::Check
            | Self::Register
            | Self::Inventory
            | Self::Heartbeat => ReadsIn::TurnsOfItsOwn,
            Self::Reserve
            | Self::Grow
            | Self::Renew
            | Self::Abort
            | Self::Commit
            | Self::RenewLeases
            | Self::Report
            | Self::Unreached
            | Self::MakeDir
            | Self::MakeLinks
            | Self::SetAttributes
            | Self::LockTake
            | Self::LockKeep
            | Self::LockGive
            | Self::SharedClaim
            | Self::SharedLeave
            | Self::SharedTurn
            | Self::SharedWriters
            | Self::Locate
            | Self::Find
            | Self::GcResume
            | Self::ReclaimUnknown
            | Self::RepairControl
            | Self::Away
            | Self::Trust
            | Self::ScrubNow
            | Self::NameReserve
            | Self::NameFree => ReadsIn::NoTurn,
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
                | Self::RepairStatus
                | Self::SpaceList
                | Self::QuotaList
                | Self::OwnStatus
        )
    }
}
