//! `potluck evict` and `warm`: let cached files go, and bring them back before they are read.

use super::Ending;
use super::import::{FetchedFile, Fetching};
use super::several::Several;
use crate::args::{EvictArgs, WarmArgs};
use crate::command_settings::CommandSettings;
use crate::output::{Output, count};
use crate::progress_bar;
use potluck_client::{Pool, PutOptions};
use potluck_core::origin::{CacheState, Origin};
use potluck_core::path::PoolPath;
use potluck_core::size::format_size;
use potluck_origin::{AllowedHosts, Origins};
use potluck_wire::control::{Condition, EntryKind, Evict, Evicted, ListedEntry};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;

#[derive(Default, Serialize)]
struct CachingReport {
    files: u64,
    bytes: u64,
    /// The number of files that stay because they are pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned: Option<u64>,
    #[serde(flatten)]
    several: Several,
}

pub async fn evict(args: EvictArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let mut report = CachingReport { pinned: Some(0), ..CachingReport::default() };
    for path in &args.paths {
        let done = evict_below(path, client).await;
        let done = done.map(|Evicted { files, bytes, pinned, .. }| {
            report.files += files;
            report.bytes += bytes;
            report.pinned = report.pinned.map(|before| before + pinned);
        });
        report.several.note(path, done);
    }
    let ending = report.several.end(output)?;
    output.result(&report, |report| {
        let mut text =
            format!("evicted {}, {}", count(report.files, "file"), format_size(report.bytes));
        if let Some(pinned) = report.pinned.filter(|pinned| *pinned > 0) {
            text.push_str(&format!("; {} stay, pinned", count(pinned, "file")));
        }
        text
    });
    Ok(ending)
}

async fn evict_below(path: &PoolPath, client: &Pool) -> Result<Evicted, Failure> {
    let (mut all, mut after) = (Evicted::default(), None);
    loop {
        let page = client.call(&Evict { path: path.clone(), after }).await?;
        all.files += page.files;
        all.bytes += page.bytes;
        all.pinned += page.pinned;
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

pub async fn warm(
    args: WarmArgs,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let connections = usize::from(args.connections);
    let allowed = AllowedHosts::new(settings.origins_allow.iter().cloned());
    let origins = Origins::new(allowed, connections)?;
    let mut report = CachingReport::default();
    for path in &args.paths {
        let evicted = match evicted_below(path, client).await {
            Ok(evicted) => evicted,
            Err(failure) => {
                report.several.note(path, Err(failure));
                continue;
            }
        };
        let bytes = evicted.iter().map(|(_, entry)| entry.size).sum();
        let progress = progress_bar::resumable(client, shown, bytes);
        for (path, entry) in evicted {
            let fetching =
                Fetching { client, origins: &origins, connections, progress: &*progress };
            let done = bring(&fetching, &path, &entry).await;
            report.several.note(
                &path,
                done.map(|()| {
                    report.files += 1;
                    report.bytes += entry.size;
                }),
            );
        }
    }
    let ending = report.several.end(output)?;
    output.result(&report, |report| {
        format!("brought back {}, {}", count(report.files, "file"), format_size(report.bytes))
    });
    Ok(ending)
}

/// Returns the evicted files at and below a path.
async fn evicted_below(
    path: &PoolPath,
    client: &Pool,
) -> Result<Vec<(PoolPath, ListedEntry)>, Failure> {
    let listed = client.list(path, true).await?.into_iter();
    let is_evicted =
        |entry: &ListedEntry| entry.kind == EntryKind::File && entry.cache == CacheState::Evicted;
    let at = |entry: ListedEntry| match entry.path.is_empty() {
        true => Some((path.clone(), entry)),
        false => Some((path.join_all(entry.path.split('/')).ok()?, entry)),
    };
    Ok(listed.filter(is_evicted).filter_map(at).collect())
}

/// Fetches an evicted file from its origin, if that is as it was, in the place of the version that was evicted.
async fn bring(
    fetching: &Fetching<'_>,
    path: &PoolPath,
    entry: &ListedEntry,
) -> Result<(), Failure> {
    let (Some(origin), Some(version)) = (entry.origin.as_deref(), entry.version) else {
        return Ok(());
    };
    let found = fetching.origins.stat(&origin.uri).await?;
    if !origin.is_unchanged(&found.origin) {
        return Err(changed(path, origin));
    }
    let condition = Condition::IfVersion(version);
    let options = PutOptions { bytes: Some(entry.size), condition, ..PutOptions::default() };
    let session = fetching.client.session(path, &options).await?;
    let file = FetchedFile { path: path.clone(), found, checksum: None };
    let (_, _, done) = fetching.file(&session, file).await;
    done?;
    session.finish().await.map(drop)
}

fn changed(path: &PoolPath, origin: &Origin) -> Failure {
    let what = format!("{path} has changed at its origin, {}", origin.uri);
    Failure::new(ErrorKind::Conflict, code::ORIGIN_CHANGED, what)
        .hint("`potluck import --refresh` takes over what is there now")
}
