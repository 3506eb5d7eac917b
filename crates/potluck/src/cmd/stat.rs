//! `potluck stat`: shows everything known about a path.

use super::{Ending, health};
use crate::args;
use crate::output::{Output, count, name, stated_time, table, told};
use potluck_client::Pool;
use potluck_core::ids::DonorId;
use potluck_core::origin::CacheState;
use potluck_core::policy::Redundancy;
use potluck_core::size::format_size;
use potluck_wire::control::{ChunkFacts, EntryKind, ListedEntry, MirrorState, Stated};
use potluck_wire::error::Failure;
use serde::Serialize;
use std::fmt::Write;

pub async fn run(args: args::StatArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let stated = match args.chunks {
        true => client.stat_chunks(&args.path).await?,
        false => client.stat(&args.path).await?,
    };
    let shown = Shown { path: args.path.to_string(), stated };
    // The root is not in the catalog, and has no time of modification and no policy.
    let is_root = args.path.space().is_empty();
    output.result(&shown, |shown| text(&shown.path, is_root, &shown.stated));
    Ok(Ending::Done)
}

#[derive(Serialize)]
struct Shown {
    path: String,
    #[serde(flatten)]
    stated: Stated,
}

fn text(path: &str, is_root: bool, stated: &Stated) -> String {
    let mut text = String::new();
    let entry = &stated.entry;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {value}"); // writing to a string cannot fail
    };
    line("path", name(path).into());
    let policy = &stated.policy;
    let sealing = if policy.sealed { "sealed" } else { "plain" };
    if let Some(target) = &entry.target {
        line("kind", "link".into());
        line("leads to", name(target.as_str()).into());
        line("modified", stated_time(entry.mtime.ms()));
        return text;
    }
    if entry.kind == EntryKind::Dir {
        line("kind", "directory".into());
        line("mode", mode(entry));
        if !is_root {
            line("modified", stated_time(entry.mtime.ms()));
            line("policy", health::policy(policy));
        }
        return text;
    }
    if !policy.keep_versions.is_none() {
        line("versions", format!("{} are kept", policy.keep_versions));
    }
    line("size", format!("{} ({})", format_size(entry.size), count(entry.size, "byte")));
    if entry.holes > 0 {
        line("holes", format!("{}, which are stored nowhere", format_size(entry.holes)));
    }
    line("modified", stated_time(entry.mtime.ms()));
    line("mode", mode(entry));
    if let (Some(version), Some(digest)) = (entry.version, entry.digest) {
        line("version", version.to_string());
        line("digest", digest.to_string());
    }
    if let Some(origin) = &entry.origin {
        let imported = stated_time(origin.imported_wall_ms);
        line("origin", format!("{}, imported {imported}", told(&origin.uri)));
    }
    match entry.cache {
        CacheState::Kept => {}
        CacheState::Cached => {
            line("cached", "it may be evicted, and comes from its origin then".into())
        }
        CacheState::Evicted => line("cached", "it was evicted, and comes from its origin".into()),
    }
    if stated.inline || stated.chunks == 0 {
        line("stored", format!("in the catalog, {sealing}"));
    } else {
        let chunks = count(stated.chunks, "chunk");
        let largest = format_size(stated.chunk_size.into());
        line("stored", format!("{chunks} of up to {largest}, {sealing}"));
        line("kept as", kept_as(stated).to_string());
        if entry.ec.is_none() {
            let asked = entry.copies.unwrap_or(policy.copies);
            line("copies", format!("{} of {asked} live", stated.live_copies.min(asked)));
        }
    }
    if let Some(found) = &stated.health {
        line("health", health::sentence(found));
        if let Some(window) = health::window(found) {
            line("", window);
        }
        if let Some(goal) = found.changing_to {
            line("changing", format!("to {goal}; until then it keeps what it has"));
        }
    }
    if !stated.donors.is_empty() {
        let rows: Vec<_> = stated
            .donors
            .iter()
            .map(|share| {
                vec![
                    share.name.clone(),
                    share.state.word().into(),
                    share.chunks.to_string(),
                    format_size(share.bytes),
                ]
            })
            .collect();
        text.push('\n');
        text.push_str(&table(&["donor", "state", "chunks", "stored"], &[2, 3], &rows));
    }
    if !stated.chunk_list.is_empty() {
        text.push_str(&format!("\n{}", chunk_table(stated)));
    }
    text
}

/// Formats the mode in octal, and the owner as numbers if one is kept.
fn mode(entry: &ListedEntry) -> String {
    match entry.owner {
        Some(owner) => format!("{}, of {owner}", entry.permissions),
        None => entry.permissions.to_string(),
    }
}

/// Returns the redundancy of the file. The protocol by which its copies were made is not recorded.
fn kept_as(stated: &Stated) -> Redundancy {
    let copies = stated.entry.copies.unwrap_or(stated.policy.copies);
    stated.entry.ec.map_or(Redundancy::Copies(copies), Redundancy::Ec)
}

fn chunk_table(stated: &Stated) -> String {
    let rows: Vec<_> = stated.chunk_list.iter().map(|chunk| chunk_row(stated, chunk)).collect();
    table(&["chunk", "part", "group", "stored", "state", "live donors"], &[2, 3], &rows)
}

fn chunk_row(stated: &Stated, chunk: &ChunkFacts) -> Vec<String> {
    let name = |donor: &DonorId| {
        let share = stated.donors.iter().find(|share| share.donor == *donor);
        share.map_or_else(|| donor.to_string(), |share| share.name.clone())
    };
    let state = match chunk.state {
        MirrorState::Complete => "complete",
        MirrorState::Pending => "pending",
        MirrorState::Rebuildable => "rebuildable",
        MirrorState::Unreadable => "unreadable",
    };
    vec![
        chunk.name.to_string().chars().take(12).collect(),
        if chunk.parity { "parity" } else { "data" }.into(),
        chunk.group.map_or_else(|| "-".into(), |group| group.to_string()),
        format_size(chunk.len.into()),
        state.into(),
        chunk.donors.iter().map(name).collect::<Vec<_>>().join(", "),
    ]
}
