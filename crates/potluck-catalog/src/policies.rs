//! Policies that change, and the versions that follow.

pub(crate) mod conversions;
pub(crate) mod policy_changes;
