//! Who may do what.

use crate::calls::Verb;
use crate::members::Caller;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;

/// Whether a member with `role` may make the call. Join is for everybody, and not asked here.
fn may(role: Role, verb: Verb) -> bool {
    match verb {
        Verb::Join | Verb::Find => true,
        Verb::Leave => true,
        Verb::Invite
        | Verb::InvitationList
        | Verb::InvitationRemove
        | Verb::MemberList
        | Verb::Revoke
        | Verb::SpaceCreate
        | Verb::SpaceRemove
        | Verb::GcResume
        | Verb::RepairControl
        | Verb::Trust
        | Verb::ScrubNow => role == Role::Admin,
        // A donor for itself, an admin for any.
        Verb::GiveBack | Verb::GiveBackStatus | Verb::Away => {
            matches!(role, Role::Donor | Role::Admin)
        }
        Verb::SpaceList
        | Verb::Reserve
        | Verb::Offer
        | Verb::Grow
        | Verb::Renew
        | Verb::Commit
        | Verb::Abort
        | Verb::Open
        | Verb::Report
        | Verb::List
        | Verb::Stat
        | Verb::MakeDir
        | Verb::Move
        | Verb::CopyFiles
        | Verb::Remove
        | Verb::Usage
        | Verb::PolicySet
        | Verb::RepairStatus
        | Verb::Fsck
        | Verb::Status => matches!(role, Role::User | Role::Admin),
        Verb::Register | Verb::Inventory | Verb::Heartbeat | Verb::Locate => role == Role::Donor,
    }
}

/// Refuses a call that its caller may not make.
pub fn check(caller: &Caller, verb: Verb) -> Result<(), Failure> {
    if verb == Verb::Join {
        return Ok(());
    }
    let who = caller.member()?;
    if may(who.role, verb) {
        return Ok(());
    }
    let needed = [Role::User, Role::Admin, Role::Donor].into_iter().find(|role| may(*role, verb));
    let hint = match needed {
        Some(needed) => format!("use the identity of {}", article(needed)),
        None => String::new(),
    };
    let what = format!("{} may not call {}", article(who.role), verb.name());
    Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what).hint(hint))
}

fn article(role: Role) -> String {
    match role {
        Role::Admin => "an admin".into(),
        Role::User => "a user".into(),
        Role::Donor => "a donor".into(),
    }
}
