//! Decides who may do what: the calls that a role may make, and the rights of a member in a space.
//!
//! Every call that names a space or a path asks [`Access`] for the right that it needs there. A member without any
//! right in a space gets the same answer as for a space that does not exist.

use crate::callers::CallingMember;
use crate::calls::Verb;
use crate::handles::handles;
use potluck_catalog::{Catalog, Error, SeenSpaces};
use potluck_core::path::PoolPath;
use potluck_core::rights::{Right, Rights};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::token::Role;

handles! {
    /// The handles for deciding what members may do in spaces.
    pub struct Access {
        catalog: Catalog,
    }
}

impl Access {
    /// Returns the rights of a caller in the space called `space`. Admins have all rights in every space, donors none.
    pub async fn rights(&self, caller: &CallingMember, space: &str) -> Result<Rights, Failure> {
        let who = caller.member()?;
        match who.role {
            Role::Admin => Ok(Rights::ALL),
            Role::User => {
                Ok(self.catalog.rights(who.member, Some(space.into())).await?.rights(space))
            }
            Role::Donor => Ok(Rights::NONE),
        }
    }

    /// Returns the rights of a caller in a space, and refuses a caller that they do not allow `right`.
    pub async fn need_in(
        &self,
        caller: &CallingMember,
        right: Right,
        space: &str,
    ) -> Result<Rights, Failure> {
        let rights = self.rights(caller, space).await?;
        if rights.allow(right) {
            return Ok(rights);
        }
        if !rights.allow(Right::List) {
            return Err(Error::NoSpaceNamed(space.into()).into());
        }
        let what =
            format!("this needs the right to {right} in the space {space}, which you do not have");
        Err(Failure::new(ErrorKind::Auth, code::NO_RIGHT, what).hint(format!(
            "`potluck space who {space}` shows who manages it; they grant it with `potluck space grant`"
        )))
    }

    /// Returns the rights of a caller in the space of `path`, and refuses a caller that they do not allow `right`. The
    /// root of the pool is in no space and needs no right; only the spaces of [`Self::seen`] are shown there.
    pub async fn need(
        &self,
        caller: &CallingMember,
        right: Right,
        path: &PoolPath,
    ) -> Result<Rights, Failure> {
        match path.space() {
            "" => Ok(Rights::NONE),
            space => self.need_in(caller, right, space).await,
        }
    }

    /// Returns the rights as [`Self::need`] does, but refuses the root of the pool, for calls that work only in spaces.
    pub async fn need_in_a_space(
        &self,
        caller: &CallingMember,
        right: Right,
        path: &PoolPath,
    ) -> Result<Rights, Failure> {
        if path.space().is_empty() {
            let what = "this is done in a space, and the path names none";
            return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                .hint("name one: `potluck space ls` lists those that you may see"));
        }
        self.need(caller, right, path).await
    }

    /// Returns the spaces that are shown to a caller who asks about the whole pool.
    pub async fn seen(&self, caller: &CallingMember) -> Result<SeenSpaces, Failure> {
        let who = caller.member()?;
        match who.role {
            Role::Admin => Ok(SeenSpaces::ALL),
            _ => Ok(self.catalog.rights(who.member, None).await?),
        }
    }

    /// Returns the spaces that are shown to a caller who asks about `path`: for the pool's root those of
    /// [`Self::seen`], for another path its own space, which the caller must have the right to list.
    pub async fn seen_at(
        &self,
        caller: &CallingMember,
        path: &PoolPath,
    ) -> Result<SeenSpaces, Failure> {
        if path.space().is_empty() {
            return self.seen(caller).await;
        }
        let rights = self.need(caller, Right::List, path).await?;
        Ok(SeenSpaces::only([(path.space().to_owned(), rights)].into()))
    }
}

/// Returns whether a member with `role` may make the call. Join is allowed to everybody, also without a membership.
fn may(role: Role, verb: Verb) -> bool {
    match verb {
        Verb::Join | Verb::Find | Verb::Leave => true,
        // A donor makes invitations for further directories of its own machine.
        Verb::Invite => matches!(role, Role::Donor | Role::Admin),
        Verb::InvitationList
        | Verb::InvitationRemove
        | Verb::MemberList
        | Verb::Revoke
        | Verb::GroupCreate
        | Verb::GroupRemove
        | Verb::GroupChange
        | Verb::GroupList
        | Verb::AuditRead
        | Verb::AuthorityReplace
        | Verb::QuotaSet
        | Verb::GcResume
        | Verb::ReclaimUnknown
        | Verb::RepairControl
        | Verb::Trust
        | Verb::ScrubNow => role == Role::Admin,
        // A donor may do this for itself, an admin for any donor.
        Verb::GiveBack | Verb::GiveBackStatus | Verb::Departing | Verb::Away => {
            matches!(role, Role::Donor | Role::Admin)
        }
        // For calls about spaces, the rights in the space decide further.
        Verb::SpaceCreate
        | Verb::SpaceRemove
        | Verb::SpaceRekey
        | Verb::OldFiles
        | Verb::SpaceList
        | Verb::SpaceGrant
        | Verb::SpaceRevoke
        | Verb::SpaceWho
        | Verb::QuotaList
        | Verb::Reserve
        | Verb::Offer
        | Verb::Grow
        | Verb::Renew
        | Verb::Commit
        | Verb::LostParts
        | Verb::Abort
        | Verb::Open
        | Verb::OpenPart
        | Verb::RenewLeases
        | Verb::Report
        | Verb::Unreached
        | Verb::List
        | Verb::Stat
        | Verb::MakeDir
        | Verb::MakeLinks
        | Verb::SetAttributes
        | Verb::Move
        | Verb::CopyFiles
        | Verb::CheckpointBegin
        | Verb::CheckpointCommit
        | Verb::CheckpointAbort
        | Verb::CheckpointList
        | Verb::Remove
        | Verb::KeptList
        | Verb::BringBack
        | Verb::LetGo
        | Verb::SnapshotTake
        | Verb::SnapshotRemove
        | Verb::SnapshotList
        | Verb::SeriesPurge
        | Verb::Pin
        | Verb::SyncChanges
        | Verb::Usage
        | Verb::Watch
        | Verb::Refresh
        | Verb::LockTake
        | Verb::LockKeep
        | Verb::LockGive
        | Verb::NameReserve
        | Verb::NameFree
        | Verb::SharedClaim
        | Verb::SharedLeave
        | Verb::SharedTurn
        | Verb::SharedWriters
        | Verb::RoomReserve
        | Verb::RoomReservationList
        | Verb::RoomRelease
        | Verb::PolicySet
        | Verb::RepairStatus
        | Verb::Fsck
        | Verb::Check
        | Verb::Status => matches!(role, Role::User | Role::Admin),
        Verb::Register | Verb::Inventory | Verb::Heartbeat | Verb::Locate | Verb::OwnStatus => {
            role == Role::Donor
        }
    }
}

/// Refuses a call that its caller may not make.
pub fn check(caller: &CallingMember, verb: Verb) -> Result<(), Failure> {
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

/// Returns the command by which people make a call, because the documents for users do not name calls.
fn action(verb: Verb) -> &'static str {
    match verb {
        Verb::Join => "`potluck join`",
        Verb::Leave => "`potluck leave`",
        Verb::Find => "`potluck find-manager`",
        Verb::Invite | Verb::InvitationList | Verb::InvitationRemove => "`potluck invite`",
        Verb::MemberList | Verb::Revoke => "`potluck members`",
        Verb::SpaceCreate | Verb::SpaceRemove => "`potluck space create` or `rm`",
        Verb::SpaceRekey | Verb::OldFiles => "`potluck space rekey`",
        Verb::SpaceList | Verb::SpaceWho => "`potluck space ls` or `who`",
        Verb::SpaceGrant | Verb::SpaceRevoke => "`potluck space grant` or `revoke`",
        Verb::GroupCreate | Verb::GroupRemove | Verb::GroupChange | Verb::GroupList => {
            "`potluck group`"
        }
        Verb::PolicySet => "`potluck policy set`",
        Verb::AuditRead => "`potluck audit`",
        Verb::AuthorityReplace => "`potluck manager rotate-authority`",
        Verb::QuotaSet => "`potluck quota set`",
        Verb::QuotaList => "`potluck quota ls`",
        Verb::GcResume => "`potluck gc resume`",
        Verb::ReclaimUnknown => "`potluck gc unknown reclaim`",
        Verb::RepairControl => "`potluck repair now`, `pause` or `resume`",
        Verb::RepairStatus => "`potluck repair status`",
        Verb::Trust => "`potluck nodes trust`",
        Verb::ScrubNow => "`potluck scrub now`",
        Verb::GiveBack | Verb::GiveBackStatus | Verb::Departing => "`potluck give-back` or `drain`",
        Verb::Away => "`potluck away` or `nodes away`",
        Verb::CheckpointBegin
        | Verb::CheckpointCommit
        | Verb::CheckpointAbort
        | Verb::CheckpointList => "`potluck ckpt`",
        Verb::KeptList => "`potluck versions` or `trash ls`",
        Verb::BringBack => "`potluck revert` or `undelete`",
        Verb::LetGo => "`potluck trash empty`",
        Verb::SeriesPurge => "`potluck ckpt purge`",
        Verb::Pin => "`potluck pin` or `unpin`",
        Verb::SnapshotTake | Verb::SnapshotRemove | Verb::SnapshotList => "`potluck snapshot`",
        Verb::Fsck => "`potluck fsck`",
        Verb::Status | Verb::Check => "`potluck status`",
        Verb::OwnStatus => "`potluck lend status`",
        Verb::Reserve
        | Verb::Offer
        | Verb::Grow
        | Verb::Renew
        | Verb::Commit
        | Verb::LostParts
        | Verb::NameReserve
        | Verb::NameFree
        | Verb::SyncChanges
        | Verb::Abort => "writing files",
        Verb::Open | Verb::OpenPart | Verb::RenewLeases | Verb::Report | Verb::Unreached => {
            "reading files"
        }
        Verb::RoomReserve | Verb::RoomReservationList | Verb::RoomRelease => "`potluck reserve`",
        Verb::SharedClaim | Verb::SharedLeave | Verb::SharedTurn | Verb::SharedWriters => {
            "`potluck write-shared`"
        }
        Verb::LockTake | Verb::LockKeep | Verb::LockGive => "locking files",
        Verb::List | Verb::Stat | Verb::Usage | Verb::Watch | Verb::Refresh => "looking at files",
        Verb::MakeDir
        | Verb::MakeLinks
        | Verb::SetAttributes
        | Verb::Move
        | Verb::CopyFiles
        | Verb::Remove => "changing files",
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
