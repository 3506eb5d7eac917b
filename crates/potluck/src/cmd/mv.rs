//! `potluck mv`: moves or renames files or directories inside a space.

use super::cp::{CopyPlace, Landing, PlacedAt, same_place, target};
use super::several::Several;
use super::{Ending, patterns};
use crate::args::MvArgs;
use crate::confirm::confirm;
use crate::output::{Output, can_ask};
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_wire::control::EntryKind;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::HashMap;

#[derive(Serialize)]
struct Moved {
    from: PoolPath,
    to: PoolPath,
}

/// The moves of several sources.
#[derive(Serialize)]
struct MovedAll {
    moved: Vec<Moved>,
    #[serde(flatten)]
    several: Several,
}

pub async fn run(args: MvArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let place = CopyPlace::target(&args.to)?;
    let PlacedAt::Pool(to) = &place.at else {
        let what = "a file is moved inside the pool";
        return Err(Failure::new(ErrorKind::Usage, code::BAD_PATH, what)
            .hint("write pot://SPACE/PATH; to take it out of the pool, copy it, then remove it"));
    };
    let sources = patterns::expand(&args.from, client).await?;
    check_names(&sources)?;
    let is_dir = client.kind(to).await? == Some(EntryKind::Dir);
    let landing = Landing { into: place.into, is_dir, several: sources.len() > 1 };
    landing.check()?;
    if let [from] = sources.as_slice() {
        let moved = one(&args, from, to, landing, client).await?;
        output.result(&moved, |_| String::new());
        return Ok(Ending::Done);
    }
    let mut all = MovedAll { moved: Vec::new(), several: Several::default() };
    for from in &sources {
        let moved = one(&args, from, to, landing, client).await;
        all.several.note(from, moved.map(|moved| all.moved.push(moved)));
    }
    output.result(&all, |_| String::new());
    all.several.end(output)
}

/// Refuses spaces, and several sources of one name, of which the last would replace the others.
fn check_names(sources: &[PoolPath]) -> Result<(), Failure> {
    let mut seen: HashMap<&str, &PoolPath> = HashMap::new();
    for source in sources {
        let Some(name) = source.file_name() else {
            return Err(Failure::new(ErrorKind::Usage, code::BAD_PATH, "a space cannot be moved")
                .hint("move what is in it"));
        };
        if let Some(first) = seen.insert(name, source) {
            return Err(same_place(first, source, name));
        }
    }
    Ok(())
}

async fn one(
    args: &MvArgs,
    from: &PoolPath,
    to: &PoolPath,
    landing: Landing,
    client: &Pool,
) -> Result<Moved, Failure> {
    let kind = client.stat_unjudged(from).await?.entry.kind;
    let name = from.file_name().filter(|_| landing.takes_in(kind == EntryKind::Dir));
    let to = target(to, name)?;
    rename(args, (from, &to), kind, client).await?;
    Ok(Moved { from: from.clone(), to })
}

/// Moves, and replaces a file only with `-y` or after the user agreed. A directory replaces only an empty one, with which
/// nothing is lost.
async fn rename(
    args: &MvArgs,
    (from, to): (&PoolPath, &PoolPath),
    kind: EntryKind,
    client: &Pool,
) -> Result<(), Failure> {
    let no_replace = args.no_replace || (kind != EntryKind::Dir && !args.yes);
    let refused = match client.rename(from, to, no_replace).await {
        Err(refused) if refused.code == code::EXISTS && !args.no_replace => refused,
        result => return result,
    };
    let advice = "add -y to replace it";
    if !can_ask() {
        return Err(refused.hint(advice));
    }
    confirm(&format!("replace {to}, which is lost then?"), advice).await?;
    client.rename(from, to, false).await
}
