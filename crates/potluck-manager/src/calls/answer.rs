//! The trait by which a group of calls is answered.

use crate::callers::CallingMember;
use crate::handles::Handles;
use potluck_wire::control::Call;
use potluck_wire::error::Failure;

/// Answers calls of one kind, by the handles of the group that they belong to.
///
/// The future runs to its end even when the caller goes away, and may be dropped only with the
/// whole runtime.
pub trait Answer<C: Call>: for<'a> From<&'a Handles> + Send + 'static {
    /// Answers `caller`, who may make this call.
    fn answer(
        self,
        call: C,
        caller: CallingMember,
    ) -> impl Future<Output = Result<C::Reply, Failure>> + Send;
}
