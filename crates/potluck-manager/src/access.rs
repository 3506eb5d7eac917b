//! The rights of each role: which calls a member may make.

use crate::callers::Caller;
use crate::calls::Verb;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;

/// Whether a member with `role` may make the call. Join is for everybody, and not asked here.
fn may(role: Role, verb: Verb) -> bool {
    match verb {
        Verb::Join | Verb::Find => true,
        Verb::Leave => true,
        // A donor for further directories of its own machine.
        Verb::Invite => matches!(role, Role::Donor | Role::Admin),
        Verb::InvitationList
        | Verb::InvitationRemove
        | Verb::MemberList
        | Verb::Revoke
        | Verb::SpaceCreate
        | Verb::SpaceRemove
        | Verb::GcResume
        | Verb::ReclaimUnknown
        | Verb::RepairControl
        | Verb::Trust
        | Verb::ScrubNow => role == Role::Admin,
        // A donor for itself, an admin for any.
        Verb::GiveBack | Verb::GiveBackStatus | Verb::Departing | Verb::Away => {
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
        | Verb::Unreached
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
        | Verb::Check
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
    let needed = needed.map_or("nobody", article);
    let what = format!(
        "{} is for {needed}, and this is the identity of {}",
        action(verb),
        article(who.role)
    );
    Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what)
        .hint(format!("use the identity of {needed}")))
}

/// Returns the command by which people make a call, for the names of calls are in no document of theirs.
fn action(verb: Verb) -> &'static str {
    match verb {
        Verb::Join => "`potluck join`",
        Verb::Leave => "`potluck leave`",
        Verb::Find => "`potluck find-manager`",
        Verb::Invite | Verb::InvitationList | Verb::InvitationRemove => "`potluck invite`",
        Verb::MemberList | Verb::Revoke => "`potluck members`",
        Verb::SpaceCreate | Verb::SpaceRemove => "`potluck space create` or `rm`",
        Verb::SpaceList => "`potluck space ls`",
        Verb::PolicySet => "`potluck policy set`",
        Verb::GcResume => "`potluck gc resume`",
        Verb::ReclaimUnknown => "`potluck gc unknown reclaim`",
        Verb::RepairControl => "`potluck repair now`, `pause` or `resume`",
        Verb::RepairStatus => "`potluck repair status`",
        Verb::Trust => "`potluck nodes trust`",
        Verb::ScrubNow => "`potluck scrub now`",
        Verb::GiveBack | Verb::GiveBackStatus | Verb::Departing => {
            "`potluck give-back` or `nodes drain`"
        }
        Verb::Away => "`potluck away` or `nodes away`",
        Verb::Fsck => "`potluck fsck`",
        Verb::Status | Verb::Check => "`potluck status`",
        Verb::Reserve | Verb::Offer | Verb::Grow | Verb::Renew | Verb::Commit | Verb::Abort => {
            "writing files"
        }
        Verb::Open | Verb::Report | Verb::Unreached => "reading files",
        Verb::List | Verb::Stat | Verb::Usage => "looking at files",
        Verb::MakeDir | Verb::Move | Verb::CopyFiles | Verb::Remove => "changing files",
        Verb::Register | Verb::Inventory | Verb::Heartbeat | Verb::Locate => "what a donor reports",
    }
}

fn article(role: Role) -> &'static str {
    match role {
        Role::Admin => "an admin",
        Role::User => "a user",
        Role::Donor => "a donor",
    }
}
