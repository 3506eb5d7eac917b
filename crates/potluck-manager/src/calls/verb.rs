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
