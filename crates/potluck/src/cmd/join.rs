//! `potluck join`: turns a token into an identity.

use super::Ending;
use crate::args;
use crate::command_settings::CommandSettings;
use crate::enrolment::{self, EnrolPlace};
use crate::output::{self, Output};
use potluck_config::own_pools;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{About, Identity};
use potluck_wire::token::{JoinToken, NotAToken, Role};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// The most bytes that are read where a token is looked for.
const MOST_TEXT: u64 = 64 << 10;

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
    let typed = args.token.join(" ");
    let token = match &args.token_file {
        Some(file) => token_in(file).await?,
        None if typed == "-" => token_in(Path::new("-")).await?,
        None => {
            output.note(
                "everybody on this machine could read that token while the command ran, and shells and sudo keep \
                 it: `potluck join -` reads it from a paste, --token-file FILE from a file",
            );
            parse(&typed)?
        }
    };
    let (donor_dir, pools) = (settings.donor_dir(), settings.pools_dir());
    let gateway_dir = settings.gateway_dir();
    let place = match (&args.state, token.role) {
        (Some(dir), _) => EnrolPlace::Dir(dir),
        (None, Role::Donor) => EnrolPlace::Dir(&donor_dir),
        (None, Role::Gateway) => EnrolPlace::Dir(&gateway_dir),
        (None, Role::User | Role::Admin) => EnrolPlace::Pools(&pools),
    };
    let (identity, dir) = enrolment::join(&token, args.name, place).await?;
    output.result(&Joined { about: &identity.about, dir: &dir }, |Joined { about, dir }| {
        let next = match about.role {
            Role::Donor => "lend with: potluck lend DIR (a quarter of what is free on its disk; --max SIZE sets another cap)",
            Role::Gateway => "serve S3 tools and WebDAV clients with: potluck serve all",
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

/// Reads the token in a file, or on standard input if the file is `-`, where a terminal is asked for it.
pub async fn token_in(file: &Path) -> Result<JoinToken, Failure> {
    let (file, shown) = (file.to_owned(), file.display().to_string());
    // It is read on another thread, so that Ctrl-C works meanwhile.
    let read = tokio::task::spawn_blocking(move || {
        if file != Path::new("-") {
            return first_line(BufReader::new(File::open(file)?));
        }
        if output::can_ask() {
            output::ask("paste the token: ")?;
        }
        first_line(io::stdin().lock())
    });
    let text = read.await.map_err(io::Error::other).and_then(|text| text);
    let text = text.map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Other,
        };
        Failure::new(kind, code::LOCAL_IO, format!("cannot read a token from {shown}: {error}"))
            .hint("`potluck invite -q > FILE` writes one to a file; `-` is standard input")
    })?;
    parse(&text)
}

/// Returns the first line that is not empty.
fn first_line(from: impl BufRead) -> io::Result<String> {
    let mut from = from.take(MOST_TEXT);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 && line.trim_ascii().is_empty() {
        line.clear();
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Parses a token, or the whole line that `potluck invite` prints.
fn parse(text: &str) -> Result<JoinToken, Failure> {
    text.parse().map_err(|why: NotAToken| {
        Failure::new(ErrorKind::Auth, code::BAD_TOKEN, why.to_string())
            .hint("copy all of it from what `potluck invite` printed")
    })
}

/// Returns the donor's identity in `dir`, and joins with the token first if there is none.
///
/// Errors: the identity in `dir` is of another pool than the token.
pub async fn donor(
    token: &JoinToken,
    name: Option<String>,
    dir: &Path,
) -> Result<Identity, Failure> {
    if !Identity::exists(dir) {
        let (identity, _) = enrolment::join(token, name, EnrolPlace::Dir(dir)).await?;
        return Ok(identity);
    }
    let identity = own_pools::load_identity(dir)?;
    match identity.pool() == token.pool() {
        true => Ok(identity),
        false => Err(enrolment::is_taken(dir)),
    }
}
