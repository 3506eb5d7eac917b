//! `potluck invite`: makes, lists and removes tokens that let a machine or person join.

use super::Ending;
use super::members::called;
use crate::args::{self, InviteAction, NewTokenArgs};
use crate::command_settings::CommandSettings;
use crate::output::{Output, duration, in_zone, table, time};
use potluck_client::Pool;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::{
    Find, Invitation, InvitationList, InvitationRemove, Invitations, Invite, MemberList,
};
use potluck_wire::error::Failure;
use potluck_wire::token::Role;

pub async fn run(
    args: args::InviteArgs,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    match args.action {
        None => invite(args.token, client, settings, output).await,
        Some(InviteAction::Ls) => list(client, output).await,
        Some(InviteAction::Rm(args)) => {
            for invitation in &args.invitations {
                client.call(&InvitationRemove { invitation: *invitation }).await?;
            }
            output.result(&serde_json::json!({ "removed": args.invitations }), |_| String::new());
            Ok(Ending::Done)
        }
    }
}

async fn list(client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let all = client.call(&MemberList {}).await?.members;
    let invitations = client.call(&InvitationList {}).await?;
    output.result(&invitations, |Invitations { invitations }| {
        let row = |token: &Invitation| {
            let state = match (token.used_by, token.left_seconds) {
                (Some(member), _) => format!("used: {} joined", called(member, &all)),
                (None, 0) => "expired".into(),
                (None, left) => format!("open for {}", duration(left)),
            };
            let (by, made) = (called(token.by, &all), time(token.made_wall_ms));
            let role = match &token.name {
                Some(name) => format!("{} “{name}”", token.role),
                None => token.role.to_string(),
            };
            vec![token.invitation.to_string(), role, by, made, state]
        };
        let rows: Vec<_> = invitations.iter().map(row).collect();
        table(&["no", "role", "by", &in_zone("made"), "state"], &[0], &rows)
    });
    Ok(Ending::Done)
}

/// Returns the addresses that the manager tells now, which may differ from those when this admin joined. If it tells
/// none that are signed, returns the latter.
async fn told(client: &Pool, settings: &CommandSettings) -> Result<Addresses, Failure> {
    let found = client.call(&Find {}).await.ok().and_then(|found| found.manager);
    let identity = settings.identity()?;
    let said = found.and_then(|signed| signed.verified(&identity.ca)).map(|said| said.addresses);
    Ok(said.unwrap_or(identity.about.manager))
}

async fn invite(
    args: NewTokenArgs,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let invited = client
        .call(&Invite { role: args.role, ttl_seconds: args.ttl.as_secs(), name: args.name.clone() })
        .await?;
    let told = told(client, settings).await?;
    // The calls may have led this member to another authority, which the token is to pin.
    let identity = settings.identity()?;
    let manager = match args.manager.is_empty() {
        true => told.for_others(),
        false => Addresses::new(args.manager),
    };
    let is_local = manager.are_local();
    let token = identity.token(manager, args.role, invited.secret);
    let shown = serde_json::json!({ "token": token.to_string(), "invitation": invited.invitation, "role": args.role, "ttl_seconds": args.ttl.as_secs(), "manager": token.manager });
    output.answer(&shown, |_| match output.is_quiet() {
        true => token.to_string(),
        // `echo` belongs to the shell: no process has the token on its command line.
        false => format!("echo {token} | potluck join -"),
    });
    let then = match args.role {
        Role::Donor => ", and then `potluck lend DIR`",
        _ => "",
    };
    let ttl = duration(args.ttl.as_secs());
    output.note(&format!("Run this on the other machine within {ttl}{then}. It works once. To take it back: `potluck invite rm {}`.", invited.invitation));
    if is_local {
        output.note("The token works on this machine alone, for the manager is known by its loopback address: for others name it with --manager HOST, or start the manager with --advertise HOST.");
    }
    Ok(Ending::Done)
}
