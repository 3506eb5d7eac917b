//! The control plane's messages: each call's request and reply together.
//!
//! Every call is `POST /v1/NAME` with a JSON body, over mutual TLS; only a join comes without a client certificate. A
//! refusal is a [`crate::error::Failure`] with the HTTP status of its kind. Unknown fields are ignored and new ones
//! have defaults, because desktops never upgrade together.

mod access_keys;
mod audit;
mod authority;
mod caching;
mod checkpoints;
mod donors;
mod grants;
mod history;
mod links;
mod locks;
mod membership;
mod names;
mod quotas;
mod reading;
mod reservations;
mod safety;
mod series;
mod shared_files;
mod spaces;
mod status;
mod traffic;
mod watching;
mod writing;

pub use access_keys::{
    AccessKeyAbout, AccessKeyCreate, AccessKeyCreated, AccessKeyList, AccessKeyRemove,
    AccessKeyShow, AccessKeyShown, AccessKeys, MOST_KEY_SPACES,
};
pub use audit::{AuditEntry, AuditKind, AuditPage, AuditRead};
pub use authority::{AuthorityReplace, AuthorityState, AuthorityStep};
pub use caching::{Evict, Evicted};
pub use checkpoints::{
    CheckpointAbort, CheckpointAbout, CheckpointBegin, CheckpointBegun, CheckpointCommit,
    CheckpointCommitted, CheckpointList, Checkpoints, OwnCommitted,
};
pub use donors::{
    Arrived, ChunkOrders, DiskFault, DonorDoes, Heartbeat, HeartbeatReply, Holding, INVENTORY_PAGE,
    Inventory, Locate, Located, Register, Registered, Scrubbed, Shard, Source, Task, TaskFault,
    TaskOutcome, TaskResult, Tombstone, Work,
};
pub use grants::{
    Granted, GroupAbout, GroupChange, GroupCreate, GroupList, GroupMember, GroupRemove,
    MemberGroups, SpaceGrant, SpaceGrants, SpaceRevoke, SpaceWho,
};
pub use history::{
    BringBack, BroughtBackAs, KeptAbout, KeptList, KeptListed, KeptScope, LetGo, MOST_LET_GO,
    SnapshotAbout, SnapshotList, SnapshotRemove, SnapshotTake, Snapshots,
};
pub use links::{MAX_LINKS, MadeLinks, MakeLinks, NewLink, NotMade};
pub use locks::{
    LOCK_LEASE, LOCK_WAIT, LockAuthority, LockGive, LockKeep, LockKept, LockLevel, LockTake,
    LockTaken, NameFree, NameReserve, NameReserved,
};
pub use membership::{
    Find, Found, Invitation, InvitationList, InvitationRemove, Invitations, Invite, Invited, Join,
    Joined, Leave, MemberAbout, MemberList, Members, Revoke,
};
pub use names::{
    ChildUse, ChunkFacts, CopiedFile, CopiedFiles, CopyFiles, EntryKind, Health, HealthLevel, List,
    ListedEntry, Listing, MOST_DESCRIBED, MakeDir, MirrorState, Move, NamesChanged, NotCopied,
    OnlyIf, Remove, Removed, SetAttributes, Share, Stat, Stated, SyncChanges, Usage, Used,
    UsedUpTo,
};
pub use quotas::{QuotaList, QuotaSet, QuotaUse, Quotas};
pub use reading::{
    CopyFault, DonorLoad, Open, OpenDir, OpenFile, OpenLink, OpenPart, Opened, RenewLeases,
    RenewedLeases, Report, Reported, StoredPart, Unreached,
};
pub use reservations::{
    RoomRelease, RoomReservation, RoomReservationList, RoomReservations, RoomReserve,
};
pub use safety::{
    Away, Damage, Departing, Fsck, FsckOutcome, FsckReport, GcResume, GiveBack, GiveBackStatus,
    GivingBack, Going, HeldOf, HeldSpace, MOST_HELD_SPACES, MayGo, PolicyChanged, PolicySet,
    ReclaimUnknown, ReclaimingUnknown, RemovalNeeds, RepairAction, RepairControl, RepairState,
    RepairStatus, SLOWEST_SCRUB, ScrubNow, Trust,
};
pub use series::{Pin, SeriesPurge, SeriesSteps, StepAbout, StepFate};
pub use shared_files::{
    CLAIM_LEASE, LONGEST_WRITER_NAME, MOST_CLAIMED, SharedClaim, SharedClaimed, SharedLeave,
    SharedLeft, SharedTurn, SharedTurnOver, SharedTurnTaken, SharedWriterAbout, SharedWriters,
    SharedWritersHeard,
};
pub use spaces::{
    OldContent, OldFiles, OpenedOldFiles, RekeyStep, SpaceCreate, SpaceCreated, SpaceInfo,
    SpaceList, SpaceRekey, SpaceRemove, Spaces,
};
pub use status::{
    Alarm, AlarmKind, Check, DonorState, DonorStatus, MetadataHealth, OwnDonorStatus, OwnStatus,
    PoolState, PoolStatus, SpaceHealth, Status, Verdict,
};
pub use traffic::{DonorRates, DonorTraffic, MOST_TOLD, TellTraffic};
pub use watching::{
    DirChange, DirDigest, DirNews, KnownDir, KnownName, MAX_REFRESHED, OWN_NAME, Refresh,
    Refreshed, WATCH_WAIT, Watch, WatchNews, refreshed_at_once,
};
pub use writing::{
    Abort, Commit, Committed, CommittedParts, Condition, DonorAccess, FileCommit, Grow,
    GrowingFile, Grown, Held, InParts, Interrupted, LostParts, Offer, Offered, Outcome, Renew,
    Renewed, Reserve, Reserved,
};

use crate::token::Role;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The largest body that either side reads: a commit of several hundred thousand chunks.
pub const MAX_MESSAGE: usize = 96 << 20;

/// A call: its request type names the path and the reply.
pub trait Call: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The last part of the path, after `/v1/`.
    const NAME: &'static str;
    /// The roles of those who may make the call. For calls about spaces, the rights in the space decide further.
    const BY: Callers;
    /// What people do when they make the call, such as the command; documents for users do not name calls.
    const WHAT: &'static str;
    /// The time for which the caller waits for the reply before it counts the manager as away.
    const DEADLINE: Duration = Duration::from_secs(15);
    /// The largest request that is read, in bytes of JSON. The default is enough for calls without lists, which are a
    /// path or two and some numbers; it is small because what one caller may send is memory that all others lack.
    const MOST_BODY: usize = 64 << 10;
    /// The reply to the call.
    type Reply: Serialize + DeserializeOwned + Send + 'static;

    /// Returns whether a request that may have been carried out can be repeated without harm and with the same reply. A
    /// repeated call that moves or removes names gets another reply: it finds that the work was done before.
    fn is_repeatable(&self) -> bool {
        true
    }
}

/// The roles whose members may make a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Members of any role may make the call.
    Everybody,
    /// Users and admins may make the call.
    Users,
    /// Only admins may make the call.
    Admins,
    /// Only donors may make the call.
    Donors,
    /// Only gateways may make the call, as themselves.
    Gateways,
    /// A donor may make the call for itself or its own machine, and an admin for any donor.
    DonorsAndAdmins,
}

impl Callers {
    /// Returns whether members with `role` may make the call.
    pub fn include(self, role: Role) -> bool {
        match self {
            Self::Everybody => true,
            Self::Users => matches!(role, Role::User | Role::Admin),
            Self::Admins => role == Role::Admin,
            Self::Donors => role == Role::Donor,
            Self::Gateways => role == Role::Gateway,
            Self::DonorsAndAdmins => matches!(role, Role::Donor | Role::Admin),
        }
    }
}

/// The [`Call::DEADLINE`] of calls that look at all files of the pool, or of a tree. With 10^7 chunks that takes one minute
/// to five.
const LOOK_AT_ALL: Duration = Duration::from_secs(600);

/// Declares a call: `call!(Pin => Done, "pin", Users, "`potluck pin` or `unpin`")`, and behind that what is not as usual.
macro_rules! call {
    ($request:ident => $reply:ty, $name:literal, $by:ident, $what:literal $($term:tt)*) => {
        impl Call for $request {
            const NAME: &'static str = $name;
            const BY: Callers = Callers::$by;
            const WHAT: &'static str = $what;
            type Reply = $reply;
            call!(@ $($term)*);
        }
    };
    (@) => {};
    (@, at most $most:expr) => {
        const MOST_BODY: usize = $most;
    };
    (@, within $deadline:expr) => {
        const DEADLINE: Duration = $deadline;
    };
    (@, once) => {
        fn is_repeatable(&self) -> bool {
            false
        }
    };
}

use call;

/// Gives the names of all calls to the macro `then`: `every_call!(then)` is `then! { Join Leave … }`. The manager
/// routes by it, so that a call that is left out is not answered.
#[macro_export]
macro_rules! every_call {
    ($then:ident) => {
        $then! {
            AccessKeyCreate AccessKeyList AccessKeyRemove AccessKeyShow
            AuditRead
            AuthorityReplace
            CheckpointBegin CheckpointCommit CheckpointAbort CheckpointList
            Register Inventory Heartbeat Locate
            SpaceGrant SpaceRevoke SpaceWho GroupCreate GroupRemove GroupChange GroupList
            KeptList BringBack LetGo SnapshotTake SnapshotRemove SnapshotList
            MakeLinks
            LockTake LockKeep LockGive NameReserve NameFree
            Join Invite InvitationList InvitationRemove MemberList Leave Find Revoke
            List Stat MakeDir SetAttributes Move CopyFiles Remove SyncChanges Usage
            QuotaSet QuotaList
            Open OpenPart RenewLeases Report TellTraffic Unreached
            RoomReserve RoomReservationList RoomRelease
            PolicySet RepairStatus RepairControl GiveBack Departing GiveBackStatus Away Trust ScrubNow GcResume ReclaimUnknown Fsck
            SeriesPurge Pin
            Evict
            SharedClaim SharedLeave SharedTurn SharedWriters
            SpaceCreate SpaceRemove SpaceList SpaceRekey OldFiles
            Status Check OwnStatus
            Watch Refresh
            Reserve Offer Grow Renew Commit LostParts Abort
        }
    };
}

/// The empty reply of calls that have nothing to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Done {}
