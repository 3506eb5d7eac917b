//! `potluck ls`: lists directories and spaces.

use super::several::Several;
use super::{Ending, patterns};
use crate::args::LsArgs;
use crate::output::{Output, in_zone, name, table, time};
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_core::size::format_size;
use potluck_wire::control::{EntryKind, ListedEntry};
use potluck_wire::error::Failure;
use serde::Serialize;
use std::cmp::Reverse;

#[derive(Serialize)]
struct Entries {
    path: PoolPath,
    entries: Vec<ListedEntry>,
}

/// The lists of several paths.
#[derive(Serialize)]
struct Listings {
    listings: Vec<Entries>,
    #[serde(flatten)]
    several: Several,
}

pub async fn run(args: LsArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let paths = patterns::expand(&args.paths, client).await?;
    let rows = |rows: &[Named]| if args.long { long(rows, args.bytes) } else { short(rows) };
    let text = |listed: &Entries| rows(&listed.named(false));
    if let [path] = paths.as_slice() {
        output.result(&list(path, &args, client).await?, text);
        return Ok(Ending::Done);
    }
    let mut all = Listings { listings: Vec::new(), several: Several::default() };
    for path in &paths {
        let listed = list(path, &args, client).await;
        all.several.note(path, listed.map(|listed| all.listings.push(listed)));
    }
    output.result(&all, |all| {
        // As of `ls`: first the files that were named, then each directory.
        let (files, dirs): (Vec<_>, Vec<_>) = all.listings.iter().partition(|it| it.is_file());
        let files: Vec<Named> = files.iter().flat_map(|listed| listed.named(true)).collect();
        let files = (!files.is_empty()).then(|| rows(&files));
        let dir =
            |listed: &Entries| format!("{}:\n{}", name(&listed.path.to_string()), text(listed));
        files.into_iter().chain(dirs.into_iter().map(dir)).collect::<Vec<_>>().join("\n")
    });
    all.several.end(output)
}

async fn list(path: &PoolPath, args: &LsArgs, client: &Pool) -> Result<Entries, Failure> {
    let mut entries = client.list(path, args.recursive).await?;
    if args.by_time {
        entries.sort_by_key(|entry| Reverse(entry.mtime.0));
    } else if args.by_size {
        entries.sort_by_key(|entry| Reverse(entry.size));
    }
    Ok(Entries { path: path.clone(), entries })
}

/// An entry with the name under which it is shown.
struct Named<'a> {
    shown: String,
    entry: &'a ListedEntry,
}

impl Entries {
    /// Returns whether the path is that of one file or link, and not of a directory.
    fn is_file(&self) -> bool {
        matches!(self.entries.as_slice(), [only] if only.path.is_empty())
    }

    /// Returns the entries with their names; that of a file by itself is its last one, or with `whole` its path.
    fn named(&self, whole: bool) -> Vec<Named<'_>> {
        let named = |entry| Named { shown: self.shown_name(entry, whole), entry };
        self.entries.iter().map(named).collect()
    }

    fn shown_name(&self, entry: &ListedEntry, whole: bool) -> String {
        let path = self.path.to_string();
        let shown = match entry.path.as_str() {
            "" if whole => &path,
            "" => self.path.file_name().unwrap_or(""),
            below => below,
        };
        let shown = name(shown);
        match entry.kind {
            EntryKind::Dir => format!("{shown}/"),
            EntryKind::File => shown.into_owned(),
            EntryKind::Link => format!("{shown}@"),
        }
    }
}

impl Named<'_> {
    /// Formats the name of the entry, and for a link its target.
    fn with_target(&self) -> String {
        match &self.entry.target {
            Some(target) => {
                format!("{} -> {}", self.shown.trim_end_matches('@'), name(target.as_str()))
            }
            None => self.shown.clone(),
        }
    }
}

fn short(entries: &[Named]) -> String {
    entries.iter().map(|named| named.shown.clone() + "\n").collect()
}

/// Returns the number of copies or the erasure code of a file, or `catalog` for one that is on no donor.
fn kept_as(entry: &ListedEntry) -> Option<String> {
    if entry.in_catalog {
        return Some("catalog".into());
    }
    entry.ec.map(|ec| ec.to_string()).or(entry.copies.map(|copies| copies.to_string()))
}

fn long(entries: &[Named], exact: bool) -> String {
    let shown = |size: u64| if exact { size.to_string() } else { format_size(size) };
    let rows: Vec<_> = entries
        .iter()
        .map(|named| {
            let entry = named.entry;
            let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
            let size = (entry.kind == EntryKind::File).then(|| shown(entry.size));
            vec![
                or_dash(size),
                time(entry.mtime.ms()),
                or_dash(entry.version.map(|version| version.to_string())),
                or_dash(kept_as(entry)),
                named.with_target(),
            ]
        })
        .collect();
    table(&["size", &in_zone("modified"), "version", "copies", "name"], &[0, 2, 3], &rows)
}
