//! Every call by its name, for who may make it and for who answers it.

use potluck_wire::bodies::BodyLimits;
use potluck_wire::control::{self, Call};

macro_rules! verbs {
    ($($verb:ident)*) => {
        /// Every call there is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Verb { $(
            #[doc = concat!("[`control::", stringify!($verb), "`]")]
            $verb,
        )* }

        impl Verb {
            /// The call that a path names.
            pub fn named(name: &str) -> Option<Self> {
                $(if name == <control::$verb as Call>::NAME {
                    return Some(Self::$verb);
                })*
                None
            }

            /// The name of the call in paths.
            pub fn name(self) -> &'static str {
                match self { $(Self::$verb => <control::$verb as Call>::NAME,)* }
            }

            /// The bounds of the body of a request.
            pub fn body_limits(self) -> BodyLimits {
                match self { $(Self::$verb => BodyLimits::of::<control::$verb>(),)* }
            }
        }
    };
}
verbs! {
    Join Invite InvitationList InvitationRemove MemberList Revoke Leave SpaceCreate SpaceRemove
    SpaceList Reserve Offer Grow Renew Abort Commit LostParts Open OpenPart RenewLeases Report Unreached List Stat
    MakeDir MakeLinks SetAttributes Move Remove Usage CopyFiles Status Check PolicySet
    Register Inventory Heartbeat Locate Find
    GcResume ReclaimUnknown RepairStatus RepairControl Away Trust ScrubNow GiveBack
    GiveBackStatus Departing Fsck SpaceGrant SpaceRevoke SpaceWho GroupCreate GroupRemove
    CheckpointBegin CheckpointCommit CheckpointAbort CheckpointList
    SeriesPurge Pin KeptList BringBack LetGo SnapshotTake SnapshotRemove SnapshotList
    GroupChange GroupList AuditRead QuotaSet QuotaList Watch Refresh LockTake LockKeep LockGive
    RoomReserve RoomReservationList RoomRelease SharedClaim SharedLeave SharedTurn SharedWriters
}
