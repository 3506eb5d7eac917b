//! The calls about who may do what in spaces, and about groups of members.

use super::{Call, Callers, Done, call};
use potluck_core::ids::MemberId;
use potluck_core::rights::{Grantee, Rights};
use serde::{Deserialize, Serialize};

/// Grants rights in a space beside those that were granted before (members who manage the space).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceGrant {
    /// The name of the space.
    pub space: String,
    /// The member or group to whom rights are granted, as a person wrote it: a member's name or number, or a group.
    pub who: String,
    /// The rights that are granted.
    pub rights: Rights,
}
call!(SpaceGrant => Granted, "space-grant", Users, "`potluck space grant` or `revoke`");

/// Takes away rights in a space that were granted (members who manage the space).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceRevoke {
    /// The name of the space.
    pub space: String,
    /// The member or group that loses the rights, as a person wrote it.
    pub who: String,
    /// The rights that are taken away.
    pub rights: Rights,
}
call!(SpaceRevoke => Granted, "space-revoke", Users, "`potluck space grant` or `revoke`");

/// The rights that somebody was granted in a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The member or group that has the rights.
    pub to: Grantee,
    /// The name that people call the member by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The rights that were granted to this member or group itself; a member may have more through a group.
    pub rights: Rights,
}

/// Lists who may do what in a space (members who have a right in it).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceWho {
    /// The name of the space.
    pub space: String,
}
call!(SpaceWho => SpaceGrants, "space-who", Users, "`potluck space ls` or `who`");

/// All grants in a space. Admins may do all and need none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceGrants {
    /// The name of the space.
    pub space: String,
    /// All grants, those of groups first.
    pub grants: Vec<Granted>,
}

/// Makes a group of members (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupCreate {
    /// The name of the group.
    pub name: String,
}
call!(GroupCreate => Done, "group-create", Admins, "`potluck group`", once);

/// Removes a group, with all that was granted to it (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupRemove {
    /// The name of the group.
    pub name: String,
}
call!(GroupRemove => Done, "group-remove", Admins, "`potluck group`", once);

/// Puts members into a group, and takes others out (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupChange {
    /// The name of the group.
    pub name: String,
    /// The members that are put into the group, by name or number.
    #[serde(default)]
    pub add: Vec<String>,
    /// The members that are taken out of the group, by name or number.
    #[serde(default)]
    pub remove: Vec<String>,
}
call!(GroupChange => Done, "group-change", Admins, "`potluck group`", at most 1 << 20);

/// Lists the groups (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupList {}
call!(GroupList => MemberGroups, "groups", Admins, "`potluck group`");

/// All groups that admins made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MemberGroups {
    /// All groups, in order of their names.
    pub groups: Vec<GroupAbout>,
}

/// A group of members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAbout {
    /// The name of the group.
    pub name: String,
    /// The members of the group.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// The number of the member.
    pub member: MemberId,
    /// The name that people call the member by.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_members_are_put_into_a_group_at_once() {
        let add = vec!["m".repeat(255); 4000];
        let change = GroupChange { name: "g".repeat(63), add, remove: Vec::new() };
        let call = serde_json::to_vec(&change).expect("JSON");
        assert!(call.len() < GroupChange::MOST_BODY, "{} bytes", call.len());
    }
}
