//! `potluck join`: turns a token into an identity.

use super::Ending;
use crate::args;
use crate::command_settings::{self, CommandSettings};
use crate::enrolment::{self, EnrolPlace};
use crate::output::Output;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity};
use potluck_wire::token::{JoinToken, NotAToken, Role};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Joined<'a> {
    #[serde(flatten)]
    about: &'a About,
    /// The directory of the identity.
    dir: &'a Path,
}

pub async fn run(
    args: args::JoinArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let token = parse(&args.token.join(" "))?;
    let (donor_dir, pools) = (settings.donor_dir(), settings.pools_dir());
    let place = match (&args.state, token.role) {
        (Some(dir), _) => EnrolPlace::Dir(dir),
        (None, Role::Donor) => EnrolPlace::Dir(&donor_dir),
        (None, Role::User | Role::Admin) => EnrolPlace::Pools(&pools),
    };
    let (identity, dir) = enrolment::join(&token, args.name, place).await?;
    output.result(&Joined { about: &identity.about, dir: &dir }, |Joined { about, dir }| {
        let next = match about.role {
            Role::Donor => "lend with: potluck lend DIR (a quarter of what is free on its disk; --max SIZE sets another cap)",
            Role::User | Role::Admin => "look around with: potluck ls",
        };
        let About { pool, role, name, .. } = about;
        format!(
            "joined pool {pool} as {role} “{name}”; the identity is in {}\n{next}",
            dir.display()
        )
    });
    Ok(Ending::Done)
}

/// Parses a token, or the whole line that `potluck invite` prints.
fn parse(text: &str) -> Result<JoinToken, Failure> {
    let words: Vec<_> = text.split_whitespace().collect();
    let token = match words[..] {
        ["potluck", "join", token] => token,
        _ => text,
    };
    token.parse().map_err(|why: NotAToken| {
        Failure::new(ErrorKind::Auth, code::BAD_TOKEN, why.to_string())
            .hint("copy all of it from what `potluck invite` printed")
    })
}

/// Returns the donor's identity in `dir`, and joins with the token first if there is none.
///
/// Errors: the identity in `dir` is of another pool than the token.
pub async fn donor(token: &str, name: Option<String>, dir: &Path) -> Result<Identity, Failure> {
    let token = parse(token)?;
    if !Identity::exists(dir) {
        let (identity, _) = enrolment::join(&token, name, EnrolPlace::Dir(dir)).await?;
        return Ok(identity);
    }
    let identity = command_settings::load_identity(dir)?;
    match identity.pool() == token.ca {
        true => Ok(identity),
        false => Err(enrolment::is_taken(dir)),
    }
}
