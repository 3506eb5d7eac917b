//! Answers the calls that grant and take rights in spaces, and those about groups.

use super::Answer;
use crate::access::Access;
use crate::audit_log::Auditor;
use crate::callers::{CallingMember, KnownMembers};
use crate::handles::handles;
use crate::lost_rights::LostRights;
use potluck_catalog::{Catalog, GroupEdit};
use potluck_core::ids::MemberId;
use potluck_core::path::check_space;
use potluck_core::rights::{EVERYONE, Grantee, Right, Rights};
use potluck_wire::control::{
    Call, Done, Granted, GroupAbout, GroupChange, GroupCreate, GroupList, GroupMember, GroupRemove,
    MemberGroups, SpaceGrant, SpaceGrants, SpaceRevoke, SpaceWho,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;

handles! {
    /// The handles for answering calls about rights.
    pub struct GrantCalls {
        catalog: Catalog,
        members: Arc<KnownMembers>,
        access: Access,
        lost_rights: LostRights,
        auditor: Auditor,
    }
}

impl Answer<SpaceGrant> for GrantCalls {
    async fn answer(self, call: SpaceGrant, caller: CallingMember) -> Result<Granted, Failure> {
        let SpaceGrant { space, who, rights } = call;
        self.access.need_in(&caller, Right::Manage, &space).await?;
        self.auditor.admit_change(&caller)?;
        let to = self.grantee(&who).await?;
        let (before, after) =
            self.catalog.change_rights(space.clone(), to.clone(), rights, Rights::NONE).await?;
        let granted = self.granted(to, after);
        if after != before {
            let what = format!("granted {rights} in {space} to {}", called(&granted));
            self.auditor.changed(&caller, SpaceGrant::NAME, what).await;
        }
        Ok(granted)
    }
}

impl Answer<SpaceRevoke> for GrantCalls {
    async fn answer(self, call: SpaceRevoke, caller: CallingMember) -> Result<Granted, Failure> {
        let SpaceRevoke { space, who, rights } = call;
        self.access.need_in(&caller, Right::Manage, &space).await?;
        self.auditor.admit_change(&caller)?;
        let from = self.grantee(&who).await?;
        let (before, after) =
            self.catalog.change_rights(space.clone(), from.clone(), Rights::NONE, rights).await?;
        let granted = self.granted(from, after);
        if after != before {
            let what =
                format!("took {} in {space} from {}", before.without(after), called(&granted));
            self.auditor.changed(&caller, SpaceRevoke::NAME, what).await;
        }
        self.lost_rights.end_sessions().await?;
        Ok(granted)
    }
}

impl Answer<SpaceWho> for GrantCalls {
    async fn answer(self, call: SpaceWho, caller: CallingMember) -> Result<SpaceGrants, Failure> {
        let space = call.space;
        self.access.need_in(&caller, Right::List, &space).await?;
        let grants = self.catalog.grants(space.clone()).await?;
        let grants = grants.into_iter().map(|(to, rights)| self.granted(to, rights)).collect();
        Ok(SpaceGrants { space, grants })
    }
}

impl Answer<GroupCreate> for GrantCalls {
    async fn answer(self, call: GroupCreate, caller: CallingMember) -> Result<Done, Failure> {
        // A number always means the member that has it, so no group is named by one.
        if check_space(&call.name).is_err() || call.name.parse::<u32>().is_ok() {
            let what = format!(
                "“{}” cannot be the name of a group: 1 to 63 of a-z 0-9 . _ - can, beginning with a letter \
                 or a digit, but for a number",
                call.name
            );
            return Err(
                Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint("choose another name")
            );
        }
        self.catalog.edit_group(call.name.clone(), GroupEdit::Create).await?;
        let what = format!("made the group {}", call.name);
        self.auditor.changed(&caller, GroupCreate::NAME, what).await;
        Ok(Done {})
    }
}

impl Answer<GroupRemove> for GrantCalls {
    async fn answer(self, call: GroupRemove, caller: CallingMember) -> Result<Done, Failure> {
        refuse_everyone(&call.name)?;
        self.catalog.edit_group(call.name.clone(), GroupEdit::Remove).await?;
        let what = format!("removed the group {}", call.name);
        self.auditor.changed(&caller, GroupRemove::NAME, what).await;
        self.lost_rights.end_sessions().await?;
        Ok(Done {})
    }
}

impl Answer<GroupChange> for GrantCalls {
    async fn answer(self, call: GroupChange, caller: CallingMember) -> Result<Done, Failure> {
        let GroupChange { name, add, remove } = call;
        refuse_everyone(&name)?;
        let numbers = |named: &[String]| -> Result<Vec<MemberId>, Failure> {
            named.iter().map(|who| self.members.named(who)).collect()
        };
        let (add, remove) = (numbers(&add)?, numbers(&remove)?);
        let edit = GroupEdit::Members { add: add.clone(), remove: remove.clone() };
        self.catalog.edit_group(name.clone(), edit).await?;
        for (members, how) in [(add, "put into"), (remove, "taken out of")] {
            for member in members {
                let what = format!("{how} the group {name}: {} ({member})", self.called(member));
                self.auditor.changed(&caller, GroupChange::NAME, what).await;
            }
        }
        self.lost_rights.end_sessions().await?;
        Ok(Done {})
    }
}

impl Answer<GroupList> for GrantCalls {
    async fn answer(self, _call: GroupList, _: CallingMember) -> Result<MemberGroups, Failure> {
        let groups = self.catalog.groups().await?;
        let named = |member| GroupMember { member, name: self.called(member) };
        let about = |(name, members): (String, Vec<MemberId>)| GroupAbout {
            name,
            members: members.into_iter().map(named).collect(),
        };
        Ok(MemberGroups { groups: groups.into_iter().map(about).collect() })
    }
}

fn refuse_everyone(group: &str) -> Result<(), Failure> {
    if group != EVERYONE {
        return Ok(());
    }
    let what =
        "every user and admin is in the group everyone, and nobody can be put in or taken out";
    Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
        .hint("make a group of your own: `potluck group create NAME`"))
}

impl GrantCalls {
    /// Finds the member or the group that a person means by `who`, a name or a number.
    async fn grantee(&self, who: &str) -> Result<Grantee, Failure> {
        if let Some(group) = who.strip_prefix("group:") {
            return Ok(Grantee::Group(group.into())); // the catalog refuses one that is not there
        }
        let is_group = who == EVERYONE || self.catalog.groups().await?.contains_key(who);
        match (is_group, self.members.named(who)) {
            (true, Ok(member)) => {
                let what = format!("“{who}” is both a group and a member");
                let hint = format!("say group:{who}, or the member's number, {member}");
                Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(hint))
            }
            (true, Err(_)) => Ok(Grantee::Group(who.into())),
            (false, found) => Ok(Grantee::Member(found?)),
        }
    }

    fn called(&self, member: MemberId) -> String {
        self.members.names(&[member]).pop().unwrap_or_default()
    }

    fn granted(&self, to: Grantee, rights: Rights) -> Granted {
        let name = match &to {
            Grantee::Member(member) => Some(self.called(*member)),
            Grantee::Group(_) => None,
        };
        Granted { to, name, rights }
    }
}

/// Returns a member or a group in words.
fn called(granted: &Granted) -> String {
    match &granted.to {
        Grantee::Member(member) => {
            format!("{} ({member})", granted.name.as_deref().unwrap_or_default())
        }
        Grantee::Group(name) => format!("the group {name}"),
    }
}
