//! The calls by name, as they are checked for access and dispatched.

use potluck_wire::bodies::BodyLimits;
use potluck_wire::control::{self, Call, Callers};

macro_rules! verbs {
    ($($verb:ident)*) => {
        /// A call that members can make.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Verb { $(
            #[doc = concat!("[`control::", stringify!($verb), "`]")]
            $verb,
        )* }

        impl Verb {
            /// Returns the call that a request's path names, if there is one.
            pub fn named(name: &str) -> Option<Self> {
                $(if name == <control::$verb as Call>::NAME {
                    return Some(Self::$verb);
                })*
                None
            }

            /// Returns the name of the call in paths.
            pub fn name(self) -> &'static str {
                match self { $(Self::$verb => <control::$verb as Call>::NAME,)* }
            }

            /// Returns the roles of those who may make the call.
            pub fn by(self) -> Callers {
                match self { $(Self::$verb => <control::$verb as Call>::BY,)* }
            }

            /// Returns what people do when they make the call.
            pub fn what(self) -> &'static str {
                match self { $(Self::$verb => <control::$verb as Call>::WHAT,)* }
            }

            /// Returns the bounds on the body of the call's requests.
            pub fn body_limits(self) -> BodyLimits {
                match self { $(Self::$verb => BodyLimits::of::<control::$verb>(),)* }
            }
        }
    };
}
potluck_wire::every_call!(verbs);

impl Verb {
    /// Returns whether gateways may make the call on behalf of users: the calls about files and names, and those that
    /// come with reading and writing. Whatever changes who may do what, or what others see of the pool, is done by
    /// members themselves.
    pub fn is_made_by_keys(self) -> bool {
        matches!(
            self,
            Self::List
                | Self::Stat
                | Self::Usage
                | Self::MakeDir
                | Self::SetAttributes
                | Self::Move
                | Self::Remove
                | Self::CopyFiles
                | Self::SyncChanges
                | Self::Open
                | Self::OpenPart
                | Self::RenewLeases
                | Self::Report
                | Self::TellTraffic
                | Self::Unreached
                | Self::Reserve
                | Self::Offer
                | Self::Grow
                | Self::Renew
                | Self::Commit
                | Self::LostParts
                | Self::Abort
                | Self::CheckpointBegin
                | Self::CheckpointCommit
                | Self::CheckpointAbort
                | Self::CheckpointList
                | Self::SpaceList
        )
    }
}
