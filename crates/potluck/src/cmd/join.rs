//! `potluck join`: a token becomes an identity.

use super::Ending;
use crate::args;
use crate::output::Output;
use crate::settings::Settings;
use potluck_core::chunk::Digest;
use potluck_wire::call::Caller;
use potluck_wire::control::Join;
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity, new_key_and_request};
use potluck_wire::packed::Blob;
use potluck_wire::tls::TlsDial;
use potluck_wire::token::{JoinToken, NotAToken, Role};
use std::path::Path;
use std::sync::Arc;

pub async fn run(
    args: args::Join,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    let token = parse(&args.token)?;
    let identity = join(&token, args.name).await?;
    let dir = args.state.unwrap_or_else(|| match token.role {
        Role::Donor => settings.donor_dir(),
        Role::User | Role::Admin => settings.pools_dir().join(&identity.about.pool),
    });
    save(&identity, &dir)?;
    output.result(&identity.about, |about| {
        let next = match about.role {
            Role::Donor => "lend with: potluck lend DIR --max 200GiB",
            Role::User | Role::Admin => "look around with: potluck ls",
        };
        format!("joined pool {} as {} “{}”\n{next}", about.pool, about.role, about.name)
    });
    Ok(Ending::Done)
}

/// Reads a token's text.
pub fn parse(text: &str) -> Result<JoinToken, Failure> {
    text.parse()
        .map_err(|why: NotAToken| Failure::new(ErrorKind::Auth, code::BAD_TOKEN, why.to_string()))
}

/// Writes an identity where it will be looked for.
pub fn save(identity: &Identity, dir: &Path) -> Result<(), Failure> {
    identity.save(dir).map_err(|error| {
        let what = format!("cannot write the identity to {}: {error}", dir.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
            .hint("the token is used up: make the directory writable and ask for a new one")
    })
}

/// Joins with a token. The manager proves the token's CA before anything is sent.
pub async fn join(token: &JoinToken, name: Option<String>) -> Result<Identity, Failure> {
    let broken = |why: String| Failure::new(ErrorKind::Other, code::LOCAL_IO, why);
    let name = name.unwrap_or_else(machine_name);
    let (key, request) = new_key_and_request().map_err(|why| broken(why.to_string()))?;
    let dial = Arc::new(TlsDial::joining(token.ca));
    let caller = Caller::new(Env::system().net, dial, &token.manager);
    let call = Join { secret: token.secret, request: Blob(request), name: name.clone() };
    let joined = caller.call(&call).await?;
    if Digest::of(&joined.ca.0) != token.ca {
        return Err(Failure::new(
            ErrorKind::Auth,
            code::WRONG_POOL,
            "the manager sent another CA than the token pins",
        ));
    }
    let about = About {
        pool: joined.pool,
        manager: token.manager.clone(),
        member: joined.member,
        role: joined.role,
        name,
    };
    Ok(Identity::new(about, joined.ca.0, joined.certificate.0, key))
}

/// What this machine is called.
pub fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "unnamed".into() } else { name }
}
