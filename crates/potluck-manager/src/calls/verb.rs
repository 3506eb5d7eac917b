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
potluck_wire::every_call!(verbs);
