//! `potluck stat`: everything known of a path.

use super::Ending;
use crate::args::PathArgs;
use crate::output::{Output, table, time};
use potluck_client::pool::Client;
use potluck_core::size::format_size;
use potluck_wire::control::{EntryKind, Stat, Stated};
use potluck_wire::error::Failure;
use std::fmt::Write;

pub async fn run(args: PathArgs, client: &Client, output: &Output) -> Result<Ending, Failure> {
    let stated = client.call(&Stat { path: args.path.clone(), chunks: false }).await?;
    output.result(&stated, |stated| text(&args.path.to_string(), stated));
    Ok(Ending::Done)
}

fn text(path: &str, stated: &Stated) -> String {
    let mut text = String::new();
    let entry = &stated.entry;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {value}"); // writing to a string cannot fail
    };
    line("path", path.into());
    let policy = &stated.policy;
    let sealing = if policy.sealed { "sealed" } else { "plain" };
    if entry.kind == EntryKind::Dir {
        line("kind", "directory".into());
        line(
            "policy",
            format!(
                "{} copies, stripes of {} donors, chunks of {}, ack {}, {sealing}",
                policy.copies,
                policy.stripe_width,
                format_size(policy.chunk_size.into()),
                policy.ack
            ),
        );
        return text;
    }
    line("size", format!("{} ({} bytes)", format_size(entry.size), entry.size));
    line("modified", format!("{} UTC", time(entry.mtime_ms)));
    if let (Some(version), Some(digest)) = (entry.version, entry.digest) {
        line("version", version.to_string());
        line("digest", digest.to_string());
    }
    let asked = entry.copies.unwrap_or(policy.copies);
    match stated.inline || stated.chunks == 0 {
        true => line("stored", format!("in the catalog, {sealing}")),
        false => {
            line(
                "stored",
                format!(
                    "{} chunks of up to {}, {sealing}",
                    stated.chunks,
                    format_size(stated.chunk_size.into())
                ),
            );
            line("copies", format!("{} of {asked} live", stated.live_copies.min(asked)));
        }
    }
    if !stated.donors.is_empty() {
        let rows: Vec<_> = stated
            .donors
            .iter()
            .map(|share| {
                let state = if share.live { "live" } else { "away" };
                vec![
                    share.name.clone(),
                    state.into(),
                    share.chunks.to_string(),
                    format_size(share.bytes),
                ]
            })
            .collect();
        text.push('\n');
        text.push_str(&table(&["donor", "state", "chunks", "stored"], &[2, 3], &rows));
    }
    text
}
