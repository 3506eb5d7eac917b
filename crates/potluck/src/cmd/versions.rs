//! `potluck versions`: lists the versions that are kept of a file.

use super::Ending;
use crate::args::VersionsArgs;
use crate::output::{Output, in_zone, table, time};
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_core::size::{duration, format_size};
use potluck_wire::control::{EntryKind, KeptAbout, KeptListed, ListedEntry};
use potluck_wire::error::Failure;
use serde::Serialize;

#[derive(Serialize)]
struct Listed {
    path: PoolPath,
    #[serde(flatten)]
    listed: KeptListed,
}

pub async fn run(args: VersionsArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let listed = client.versions(&args.path).await?;
    let shown = Listed { path: args.path, listed };
    output.result(&shown, |shown| text(&shown.listed));
    Ok(Ending::Done)
}

fn text(listed: &KeptListed) -> String {
    let current = listed.current.as_ref().map(|entry| {
        let number = entry.version.map_or_else(|| "-".into(), |version| version.to_string());
        row(number, entry, ["current".into(), "-".into(), "-".into()])
    });
    let kept = listed.kept.iter().map(|about| {
        let became = if about.removed { "removed" } else { "replaced" };
        let became = format!("{became} {}", time(about.kept_wall_ms));
        row(about.number.to_string(), &about.entry, [became, by(about), left(about)])
    });
    let rows: Vec<_> = current.into_iter().chain(kept).collect();
    table(
        &["version", "size", &in_zone("modified"), &in_zone("state"), "by", "kept for"],
        &[0, 1],
        &rows,
    )
}

fn row(number: String, entry: &ListedEntry, [state, by, left]: [String; 3]) -> Vec<String> {
    vec![number, size(entry), time(entry.mtime.ms()), state, by, left]
}

/// Formats the size of a file, or the kind of another entry.
pub fn size(entry: &ListedEntry) -> String {
    match entry.kind {
        EntryKind::File => format_size(entry.size),
        EntryKind::Dir => "directory".into(),
        EntryKind::Link => "link".into(),
    }
}

/// Returns who replaced or removed the entry.
pub fn by(about: &KeptAbout) -> String {
    let number = || about.member.map_or_else(|| "-".into(), |member| member.to_string());
    about.by.clone().unwrap_or_else(number)
}

/// Says for how long an entry is still kept, or for which reason.
pub fn left(about: &KeptAbout) -> String {
    match about.left_ms {
        Some(ms) => duration(ms / 1000),
        None if about.shown => "a snapshot".into(),
        None => "as one of the newest".into(),
    }
}
