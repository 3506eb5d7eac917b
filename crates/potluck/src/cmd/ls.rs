//! `potluck ls`: lists directories and spaces.

use super::Ending;
use crate::args::LsArgs;
use crate::output::{Output, name, table, time};
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_core::size::format_size;
use potluck_wire::control::{EntryKind, ListedEntry};
use potluck_wire::error::Failure;
use serde::Serialize;

#[derive(Serialize)]
struct Entries {
    path: String,
    entries: Vec<ListedEntry>,
}

pub async fn run(args: LsArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let entries = client.list(&args.path, args.recursive).await?;
    let listed = Entries { path: args.path.to_string(), entries };
    output.result(&listed, |listed| match args.long {
        true => long(&args.path, &listed.entries, args.bytes),
        false => short(&args.path, &listed.entries),
    });
    Ok(Ending::Done)
}

fn shown_name(asked: &PoolPath, entry: &ListedEntry) -> String {
    let shown = if entry.path.is_empty() { asked.file_name().unwrap_or("") } else { &entry.path };
    let shown = name(shown);
    match entry.kind {
        EntryKind::Dir => format!("{shown}/"),
        EntryKind::File => shown.into_owned(),
        EntryKind::Link => format!("{shown}@"),
    }
}

/// Formats the name of an entry, and for a link its target.
fn name_and_target(asked: &PoolPath, entry: &ListedEntry) -> String {
    let shown = shown_name(asked, entry);
    match &entry.target {
        Some(target) => format!("{} -> {}", shown.trim_end_matches('@'), name(target.as_str())),
        None => shown,
    }
}

fn short(asked: &PoolPath, entries: &[ListedEntry]) -> String {
    entries.iter().map(|entry| shown_name(asked, entry) + "\n").collect()
}

/// Returns the number of copies or the erasure code of a file, or `catalog` for one that is on no donor.
fn kept_as(entry: &ListedEntry) -> Option<String> {
    if entry.in_catalog {
        return Some("catalog".into());
    }
    entry.ec.map(|ec| ec.to_string()).or(entry.copies.map(|copies| copies.to_string()))
}

fn long(asked: &PoolPath, entries: &[ListedEntry], exact: bool) -> String {
    let shown = |size: u64| if exact { size.to_string() } else { format_size(size) };
    let rows: Vec<_> = entries
        .iter()
        .map(|entry| {
            let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
            let size = (entry.kind == EntryKind::File).then(|| shown(entry.size));
            vec![
                or_dash(size),
                time(entry.mtime.ms()),
                or_dash(entry.version.map(|version| version.to_string())),
                or_dash(kept_as(entry)),
                name_and_target(asked, entry),
            ]
        })
        .collect();
    table(&["size", "modified (UTC)", "version", "copies", "name"], &[0, 2, 3], &rows)
}
