//! The trait by which a group of calls is answered.

use crate::callers::CallingMember;
use crate::handles::Handles;
use potluck_wire::control::Call;
use potluck_wire::error::Failure;

/// The answer to calls of one kind, given with the handles of the group that the calls belong to.
///
/// The future of a call that changes something runs to its end even when the caller goes away, and may be dropped only
/// with the whole runtime. That of a call that only looks ends with its caller.
pub trait Answer<C: Call>: for<'a> From<&'a Handles> + Send + 'static {
    /// Returns whether this call changes nothing, though others of its kind do.
    fn only_looks(_call: &C) -> bool {
        false
    }

    /// Answers `caller`, whose role was checked to allow this call.
    fn answer(
        self,
        call: C,
        caller: CallingMember,
    ) -> impl Future<Output = Result<C::Reply, Failure>> + Send;
}
