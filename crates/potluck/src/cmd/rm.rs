//! `potluck rm`: removes files or directories.

use super::several::Several;
use super::{Ending, patterns};
use crate::args::RmArgs;
use crate::confirm::confirm;
use crate::output::{Output, can_ask, count, told};
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_core::policy::KeptTime;
use potluck_core::size::format_size;
use potluck_wire::control::{EntryKind, Removed};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;

#[derive(Serialize)]
struct RemoveReport<'a> {
    #[serde(flatten)]
    removed: Removed,
    #[serde(flatten)]
    several: &'a Several,
}

pub async fn run(args: RmArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let (mut removed, mut several) = (Removed::default(), Several::default());
    let mut paths = Vec::new();
    for path in &args.paths {
        match patterns::expand(std::slice::from_ref(path), client).await {
            Err(failure) if args.force && failure.code == code::NO_ENTRY => {}
            found => paths.extend(found?),
        }
    }
    let asks = !args.caution.yes && !args.caution.dry_run && !args.force && can_ask();
    if asks && paths.len() > args.paths.len() {
        let named = paths.iter().take(3).map(|path| told(&path.to_string()).into_owned());
        let more = if paths.len() > 3 { ", …" } else { "" };
        let named = named.collect::<Vec<_>>().join(", ") + more;
        let question = format!("remove {}: {named}?", count(paths.len() as u64, "path"));
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    for path in &paths {
        let one = match remove(&args, path, client).await {
            Err(failure) if args.force && failure.code == code::NO_ENTRY => Ok(Removed::default()),
            result => result,
        };
        if let Ok(Removed { files, bytes, more, .. }) = &one {
            removed.files += files;
            removed.bytes += bytes;
            removed.more |= more;
        }
        several.note(path, one.map(drop));
    }
    let ending = several.end(output)?;
    output.result(&RemoveReport { removed: removed.clone(), several: &several }, |_| {
        match args.caution.dry_run {
            true => format!("would remove {}", sums(&removed)),
            false => String::new(),
        }
    });
    Ok(ending)
}

/// Removes what is at `path`, or with a dry run only looks. On a terminal the user is asked before a tree is removed; a
/// script is not.
async fn remove(args: &RmArgs, path: &PoolPath, client: &Pool) -> Result<Removed, Failure> {
    if path.names().is_empty() && !path.space().is_empty() {
        let space = path.space();
        let what = format!("{path} is a space, not a directory in one");
        return Err(Failure::new(ErrorKind::Usage, code::BAD_PATH, what)
            .hint(format!("`potluck space rm -r {space}` removes it with all that is in it")));
    }
    let asks = args.recursive && !args.caution.yes && !args.force && can_ask();
    if asks || args.caution.dry_run {
        let (would, kept) = look(path, args.recursive, client).await?;
        if args.caution.dry_run {
            return Ok(would);
        }
        if would.files > 0 {
            let question = match kept {
                kept if args.forever || kept.is_none() => {
                    format!("remove {path} with {} for ever?", sums(&would))
                }
                kept => format!("remove {path} with {}, to be kept for {kept}?", sums(&would)),
            };
            confirm(&question, "add -y to do it without asking, or -n to only look").await?;
        }
    }
    match args.forever {
        true => client.remove_forever(path, args.recursive).await,
        false => client.remove(path, args.recursive).await,
    }
}

/// Counts the files and bytes that would be removed, and returns how long they would be kept.
async fn look(
    path: &PoolPath,
    recursive: bool,
    client: &Pool,
) -> Result<(Removed, KeptTime), Failure> {
    let stated = client.stat_unjudged(path).await?;
    let (entry, kept) = (stated.entry, stated.policy.retention().removed);
    match entry.kind {
        EntryKind::File => {
            return Ok((Removed { files: 1, bytes: entry.data(), ..Removed::default() }, kept));
        }
        EntryKind::Link => return Ok((Removed { files: 1, ..Removed::default() }, kept)),
        EntryKind::Dir => {}
    }
    let used = client.usage(path).await?;
    if !recursive && used.files + used.dirs > 0 {
        let what = format!("{path} is a directory");
        return Err(Failure::new(ErrorKind::Usage, code::NOT_RECURSIVE, what)
            .hint("add -r to take it with all that is in it"));
    }
    Ok((Removed { files: used.files, bytes: used.bytes, ..Removed::default() }, kept))
}

fn sums(removed: &Removed) -> String {
    format!("{}, {}", count(removed.files, "file"), format_size(removed.bytes))
}
