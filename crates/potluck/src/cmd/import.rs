//! `potluck import`: brings files from their origins into the pool. What is unchanged is passed over, so that the same
//! command goes on where an earlier run was stopped, whatever stopped it.

mod fetching;
mod remote_files;

use super::Ending;
use super::cp::{CopyPlace, PlacedAt, policy_override};
use crate::args::ImportArgs;
use crate::command_settings::CommandSettings;
use crate::output::{Output, count, told};
use crate::progress_bar;
pub use fetching::{FetchedFile, Fetching};
use futures_util::{StreamExt, stream};
use potluck_client::{Pool, PutOptions};
use potluck_core::origin::Origin;
use potluck_core::path::PoolPath;
use potluck_core::size::format_size;
use potluck_origin::{AllowedHosts, FoundOrigin, Origins, parse};
use potluck_wire::control::ListedEntry;
use potluck_wire::error::{ErrorKind, Failure, code};
use remote_files::RemoteFile;
use serde::Serialize;
use std::collections::HashMap;

/// The text that says what an interrupted import leaves.
pub const WHEN_INTERRUPTED: &str =
    "interrupted: files that were whole are there, and the same command imports the rest";

/// The most files that are asked about, or fetched, at once.
const FILES_AT_ONCE: usize = 16;

/// The report of an import, as `--json` shows it.
#[derive(Debug, Default, Serialize)]
struct ImportReport {
    files: u64,
    bytes: u64,
    /// The number of files that were there already, and are unchanged at their origin.
    unchanged: u64,
    seconds: f64,
    mib_s: f64,
    /// True if nothing was imported, because the command was only to say what would be.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    imported: Vec<ImportedFile>,
    failed: Vec<FailedImport>,
}

#[derive(Debug, Serialize)]
struct ImportedFile {
    path: PoolPath,
    #[serde(flatten)]
    origin: Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

#[derive(Debug, Serialize)]
struct FailedImport {
    uri: String,
    path: PoolPath,
    error: Failure,
}

/// What an origin has, compared with what the pool has.
enum Compared {
    /// The file is there, and unchanged.
    Unchanged,
    /// The file is to be imported.
    ToImport(PoolPath, FoundOrigin),
}

pub async fn run(
    args: ImportArgs,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let started = client.now();
    let to = CopyPlace::target(&args.to)?;
    let PlacedAt::Pool(target) = &to.at else {
        return Err(usage("files are imported into the pool")
            .hint("write pot://SPACE/PATH as the last argument"));
    };
    let addresses = remote_files::addresses(&args)?;
    let connections = usize::from(args.connections);
    let origins = Origins::new(allowed(settings, &addresses), connections)?;
    let sources = remote_files::find(&addresses, (target, to.into), client, &origins).await?;
    if args.checksum().is_some() && sources.len() != 1 {
        return Err(usage("a checksum is about one file").hint("import the files one by one"));
    }
    let there = there(client, target, &sources).await?;
    let mut report = ImportReport { dry_run: args.dry_run, ..ImportReport::default() };
    let compared = stream::iter(sources)
        .map(|source| async {
            let done = compare(&source, there.get(&source.path), &origins, args.refresh).await;
            (source, done)
        })
        .buffered(FILES_AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let mut files = Vec::new();
    for (RemoteFile { uri, path }, done) in compared {
        match done {
            Ok(Compared::Unchanged) => report.unchanged += 1,
            Ok(Compared::ToImport(path, found)) => files.push((path, found)),
            Err(error) => report.failed.push(FailedImport { uri, path, error }),
        }
    }
    if args.dry_run {
        for (path, FoundOrigin { origin, .. }) in files {
            report.files += 1;
            report.bytes += origin.size;
            report.imported.push(ImportedFile { path, origin, version: None });
        }
        return finish(report, output);
    }
    if !files.is_empty() {
        let bytes = files.iter().map(|(_, found)| found.origin.size).sum();
        let progress = progress_bar::resumable(client, shown, bytes);
        let client = client.watched(progress.clone());
        let policy = policy_override(&args.policy)?;
        let options = PutOptions { bytes: Some(bytes), policy, ..PutOptions::default() };
        let root = if files.len() == 1 { &files[0].0 } else { target };
        let session = client.session(root, &options).await?;
        let fetching =
            Fetching { client: &client, origins: &origins, connections, progress: &*progress };
        let mut fetched = stream::iter(files)
            .map(|(path, found)| {
                let file = FetchedFile { path, found, checksum: args.checksum() };
                fetching.file(&session, file)
            })
            .buffer_unordered(connections.min(FILES_AT_ONCE));
        while let Some((path, origin, done)) = fetched.next().await {
            match done {
                Ok(version) => {
                    report.files += 1;
                    report.bytes += origin.size;
                    report.imported.push(ImportedFile { path, origin, version: Some(version.0) });
                }
                Err(error) => report.failed.push(FailedImport { uri: origin.uri, path, error }),
            }
        }
        drop(fetched);
        session.finish().await?;
    }
    let took = client.now() - started;
    report.seconds = took.as_secs_f64();
    report.mib_s = report.bytes as f64 / f64::from(1 << 20) / report.seconds.max(1e-9);
    finish(report, output)
}

/// Returns the hosts that may be asked whatever their addresses: those that the user named here or in the settings.
/// Others, to which these lead, must have public addresses.
fn allowed(settings: &CommandSettings, addresses: &[String]) -> AllowedHosts {
    let mut allowed = AllowedHosts::new(settings.origins_allow.iter().cloned());
    for url in addresses.iter().filter_map(|uri| parse(uri).ok()) {
        if let Some(host) = url.host_str().filter(|_| url.scheme() != "s3") {
            allowed.add(host);
        }
        let endpoint = url.query_pairs().find(|(key, _)| key == "endpoint");
        let endpoint = endpoint.and_then(|(_, value)| parse(&value).ok());
        if let Some(host) = endpoint.as_ref().and_then(|url| url.host_str()) {
            allowed.add(host);
        }
    }
    allowed
}

/// Returns what the pool has at the paths of the sources: by one listing where there are several.
async fn there(
    client: &Pool,
    target: &PoolPath,
    sources: &[RemoteFile],
) -> Result<HashMap<PoolPath, ListedEntry>, Failure> {
    let absent = |failure: &Failure| failure.code == code::NO_ENTRY;
    if let [only] = sources {
        return match client.stat_unjudged(&only.path).await {
            Ok(stated) => Ok(HashMap::from([(only.path.clone(), stated.entry)])),
            Err(failure) if absent(&failure) => Ok(HashMap::new()),
            Err(failure) => Err(failure),
        };
    }
    let listed = match client.list(target, true).await {
        Err(failure) if absent(&failure) => Vec::new(),
        listed => listed?,
    };
    let entry = |entry: ListedEntry| Some((target.join_all(entry.path.split('/')).ok()?, entry));
    Ok(listed.into_iter().filter_map(entry).collect())
}

async fn compare(
    source: &RemoteFile,
    there: Option<&ListedEntry>,
    origins: &Origins,
    refresh: bool,
) -> Result<Compared, Failure> {
    let found = origins.stat(&source.uri).await?;
    let Some(there) = there else { return Ok(Compared::ToImport(source.path.clone(), found)) };
    let before = there.origin.as_deref();
    if before.is_some_and(|before| before.is_unchanged(&found.origin)) {
        return Ok(Compared::Unchanged);
    }
    match before {
        _ if refresh => Ok(Compared::ToImport(source.path.clone(), found)),
        Some(before) if before.uri == found.origin.uri => {
            let what = format!("{} has changed at its origin, {}", source.path, source.uri);
            Err(Failure::new(ErrorKind::Conflict, code::ORIGIN_CHANGED, what)
                .hint("--refresh takes over what is there now"))
        }
        _ => {
            let what = format!("{} is there, and did not come from {}", source.path, source.uri);
            Err(Failure::new(ErrorKind::Conflict, code::EXISTS, what)
                .hint("name another target, or have it replaced with --refresh"))
        }
    }
}

fn finish(report: ImportReport, output: &Output) -> Result<Ending, Failure> {
    if report.files + report.unchanged == 0 && report.failed.len() == 1 {
        return Err(report.failed[0].error.clone());
    }
    for failed in &report.failed {
        output.complain(&failed.error);
    }
    output.result(&report, |report| {
        let size = format_size(report.bytes);
        let mut text = match report.dry_run {
            true => {
                let line = |it: &ImportedFile| {
                    let size = format_size(it.origin.size);
                    format!("{size:>9}  {}  {}\n", told(&it.origin.uri), told(&it.path.to_string()))
                };
                let lines: String = report.imported.iter().map(line).collect();
                format!("{lines}would import {}, {size}", count(report.files, "file"))
            }
            false => format!(
                "imported {}, {size}, {:.0} MiB/s",
                count(report.files, "file"),
                report.mib_s
            ),
        };
        if report.unchanged > 0 {
            text.push_str(&format!("; {} unchanged", count(report.unchanged, "file")));
        }
        text
    });
    Ok(if report.failed.is_empty() { Ending::Done } else { Ending::Partial })
}

fn usage(what: &str) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
}
