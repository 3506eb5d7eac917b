//! `potluck invite`: a token that lets a machine or person join.

use super::Ending;
use crate::args;
use crate::output::{Output, duration};
use crate::settings::Settings;
use potluck_client::pool::Client;
use potluck_wire::control::Invite;
use potluck_wire::error::Failure;
use potluck_wire::identity::fingerprint;
use potluck_wire::token::{JoinToken, Role};

pub async fn run(
    args: args::Invite,
    client: &Client,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    let identity = settings.identity()?;
    let invited = client.call(&Invite { role: args.role, ttl_seconds: args.ttl.as_secs() }).await?;
    let token = JoinToken {
        manager: args.manager.unwrap_or(identity.about.manager),
        ca: fingerprint(&identity.ca),
        role: args.role,
        secret: invited.secret,
    };
    let is_local = token.manager.starts_with("127.") || token.manager.starts_with("localhost");
    let shown = serde_json::json!({ "token": token.to_string(), "role": args.role, "ttl_seconds": args.ttl.as_secs() });
    output.answer(&shown, |_| format!("potluck join {token}"));
    let then = match args.role {
        Role::Donor => ", and then `potluck lend DIR --max 200GiB`",
        _ => "",
    };
    let ttl = duration(args.ttl.as_secs());
    output.note(&format!("Run this on the other machine within {ttl}{then}. It works once."));
    if is_local {
        output.note("The token names this machine by its loopback address: give --manager HOST:PORT for other machines.");
    }
    Ok(Ending::Done)
}
