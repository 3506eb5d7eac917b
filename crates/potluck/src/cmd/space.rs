//! `potluck space`: makes, lists and removes spaces, and manages the rights in them.

use super::Ending;
use super::cp::{policy_override, with_retention};
use crate::args::{SpaceArgs, SpaceCreateArgs, SpaceGrantArgs, SpaceRevokeArgs, SpaceRmArgs};
use crate::confirm::confirm;
use crate::output::{Output, count, table};
use potluck_client::Pool;
use potluck_core::policy::{Follows, Policy};
use potluck_core::rights::{Grantee, Rights};
use potluck_core::size::format_size;
use potluck_wire::control::{self, Granted, SpaceCreated, SpaceGrants, Spaces};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeSet;

mod rekey;

pub async fn run(
    args: SpaceArgs,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    match args {
        SpaceArgs::Rekey(args) => return rekey::run(args, client, output, shown).await,
        SpaceArgs::Create(args) => create(args, client, output).await?,
        SpaceArgs::Rm(args) => remove(args, client, output).await?,
        SpaceArgs::Grant(SpaceGrantArgs { space, who, rights }) => {
            let rights = rights.into_iter().collect();
            let call = control::SpaceGrant { space, who, rights };
            granted(&call.space, &client.call(&call).await?, output);
        }
        SpaceArgs::Revoke(SpaceRevokeArgs { space, who, rights }) => {
            let rights = if rights.is_empty() { Rights::ALL } else { rights.into_iter().collect() };
            let call = control::SpaceRevoke { space, who, rights };
            granted(&call.space, &client.call(&call).await?, output);
            let advised = rekey_advised(client).await?;
            advise_rekey(advised.iter().filter(|name| **name == call.space), output);
        }
        SpaceArgs::Who(args) => {
            let call = control::SpaceWho { space: args.space };
            output.result(&client.call(&call).await?, who);
        }
        SpaceArgs::Ls => output.result(&Spaces { spaces: client.spaces().await? }, text),
    }
    Ok(Ending::Done)
}

/// Returns the names of the spaces that should get a new key, because somebody who could read them cannot any more.
pub async fn rekey_advised(client: &Pool) -> Result<BTreeSet<String>, Failure> {
    let advised = client.spaces().await?.into_iter().filter(|space| space.rekey_advised);
    Ok(advised.map(|space| space.name).collect())
}

/// Says that spaces should get a new key.
pub fn advise_rekey<'a>(spaces: impl Iterator<Item = &'a String>, output: &Output) {
    for space in spaces {
        output.note(&format!(
            "who could read the space {space} may have kept its key: potluck space rekey {space}"
        ));
    }
}

async fn create(args: SpaceCreateArgs, client: &Pool, output: &Output) -> Result<(), Failure> {
    let base = Policy { sealed: !args.plain, follows: Follows::ALL, ..Policy::default() };
    let policy = base
        .with(&with_retention(policy_override(&args.policy)?, &args.retention))
        .map_err(|why| Failure::new(ErrorKind::Usage, code::BAD_POLICY, why.to_string()))?;
    let SpaceCreated { policy, chosen, advice } = client.create_space(&args.name, policy).await?;
    let shown = serde_json::json!({ "name": args.name, "policy": policy, "chosen": chosen });
    output.result(&shown, |_| {
        let name = &args.name;
        let chosen: String = chosen.iter().map(|what| format!("{what}\n")).collect();
        format!(
            "space {name} is ready: potluck cp FILE pot://{name}/\n{chosen}\
             it is yours alone until you let others in: potluck space grant {name} everyone read write"
        )
    });
    advice.iter().for_each(|advice| output.note(advice));
    Ok(())
}

/// Removes a space. The user is asked first if the space has files and is to be removed with them, unless `--yes` is
/// given; with `--dry-run` nothing is removed.
async fn remove(args: SpaceRmArgs, client: &Pool, output: &Output) -> Result<(), Failure> {
    let SpaceRmArgs { name, recursive, caution } = args;
    let spaces = client.spaces().await?;
    let (files, bytes) = match spaces.iter().find(|space| space.name == name) {
        Some(space) => (space.files, space.bytes),
        None => (0, 0), // the manager says what is wrong with the name
    };
    let losing = format!("{name} with {}, {}", count(files, "file"), format_size(bytes));
    let done = |removed| serde_json::json!({ "space": name, "removed": removed, "files": files, "bytes": bytes });
    if caution.dry_run {
        output.result(&done(false), |_| format!("would remove the space {losing}"));
        return Ok(());
    }
    if files > 0 && recursive && !caution.yes {
        let question = format!("remove the space {losing} for ever?");
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    client.remove_space(&name, recursive).await?;
    output.result(&done(true), |_| String::new());
    Ok(())
}

/// Formats the member or group to whom rights are granted.
fn called(granted: &Granted) -> String {
    match &granted.to {
        Grantee::Member(member) => {
            format!("{} ({member})", granted.name.as_deref().unwrap_or_default())
        }
        Grantee::Group(name) => format!("group {name}"),
    }
}

fn granted(space: &str, granted: &Granted, output: &Output) {
    let shown = serde_json::json!({ "space": space, "grant": granted });
    output.result(&shown, |_| format!("{} in {space}: {}", called(granted), granted.rights));
}

fn who(grants: &SpaceGrants) -> String {
    let row = |granted: &Granted| vec![called(granted), granted.rights.to_string()];
    let admins = vec!["admins".into(), "everything".into()];
    let rows: Vec<_> = grants.grants.iter().map(row).chain([admins]).collect();
    table(&["who", "may"], &[], &rows)
}

fn text(spaces: &Spaces) -> String {
    let rows: Vec<_> = spaces
        .spaces
        .iter()
        .map(|space| {
            let policy = &space.policy;
            vec![
                space.name.clone(),
                space.files.to_string(),
                format_size(space.bytes),
                format!(
                    "{}{}{}",
                    policy.redundancy(),
                    if policy.follows.redundancy { " (pool's default)" } else { "" },
                    if policy.strict { ", strict" } else { "" }
                ),
                policy.stripe_width.to_string(),
                format_size(policy.chunk_size.into()),
                policy.ack.to_string(),
                match (policy.sealed, space.rekey_advised) {
                    (true, true) => "sealed, rekey advised",
                    (true, false) => "sealed",
                    (false, _) => "plain",
                }
                .into(),
            ]
        })
        .collect();
    let head = ["space", "files", "size", "kept as", "width", "chunk", "ack", ""];
    table(&head, &[1, 2, 4, 5], &rows)
}
