//! Changes of policy, and conversions of versions to the redundancy that follows.

pub(crate) mod conversions;
