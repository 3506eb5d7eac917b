//! `potluck group`: manages groups of members, to whom rights are granted together.

use super::Ending;
use crate::args::{self, GroupMembers};
use crate::output::{Output, table};
use potluck_client::Pool;
use potluck_wire::control::{
    GroupAbout, GroupChange, GroupCreate, GroupList, GroupMember, GroupRemove, MemberGroups,
};
use potluck_wire::error::Failure;

pub async fn run(args: args::GroupArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        args::GroupArgs::Create(args) => {
            client.call(&GroupCreate { name: args.name.clone() }).await?;
            done(&args.name, output);
        }
        args::GroupArgs::Rm(args) => {
            client.call(&GroupRemove { name: args.name.clone() }).await?;
            done(&args.name, output);
        }
        args::GroupArgs::Add(GroupMembers { name, members }) => {
            let change = GroupChange { name, add: members, remove: Vec::new() };
            client.call(&change).await?;
            done(&change.name, output);
        }
        args::GroupArgs::Remove(GroupMembers { name, members }) => {
            let change = GroupChange { name, add: Vec::new(), remove: members };
            client.call(&change).await?;
            done(&change.name, output);
        }
        args::GroupArgs::Ls => output.result(&client.call(&GroupList {}).await?, text),
    }
    Ok(Ending::Done)
}

fn done(group: &str, output: &Output) {
    output.result(&serde_json::json!({ "group": group }), |_| String::new());
}

fn text(groups: &MemberGroups) -> String {
    let member = |member: &GroupMember| format!("{} ({})", member.name, member.member);
    let members =
        |group: &GroupAbout| group.members.iter().map(member).collect::<Vec<_>>().join(", ");
    let rows = groups.groups.iter().map(|group| vec![group.name.clone(), members(group)]);
    let everyone = vec!["everyone".into(), "all users and admins".into()];
    table(&["group", "members"], &[], &rows.chain([everyone]).collect::<Vec<_>>())
}
