//! Finds the donor that a call is about.

use crate::callers::CallingMember;
use crate::shared_pool::SharedPool;
use potluck_core::ids::DonorId;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;

/// Returns the donor that a call is about. A donor may only call about itself, and need not name itself.
pub fn concerned(
    pool: &SharedPool,
    caller: &CallingMember,
    named: Option<DonorId>,
) -> Result<DonorId, Failure> {
    let who = caller.member()?;
    let own = (who.role == Role::Donor).then_some(DonorId(who.member.0));
    match (own, named) {
        (Some(own), Some(named)) if own != named => {
            let what = format!("donor {own} may not decide about donor {named}");
            Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
                .hint("use the identity of an admin"))
        }
        (own, named) => match own.or(named) {
            Some(donor) if pool.lock().knows_donor(donor) => Ok(donor),
            Some(donor) => Err(no_donor(donor)),
            None => Err(Failure::bad_request("the request names no donor")),
        },
    }
}

/// Returns the failure of a call about a donor that does not exist.
pub fn no_donor(donor: DonorId) -> Failure {
    let what = format!("the pool has no donor {donor}");
    Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
        .hint("`potluck status` lists the donors")
}
