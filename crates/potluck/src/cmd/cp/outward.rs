//! Copies files and trees of the pool to local files, trees or standard output.

use super::{CopyPlace, CpReport, FailedFile, Landing, PlacedAt, one_version};
use crate::args::CpArgs;
use crate::output::Piped;
use crate::progress_bar;
use potluck_client::{
    ByteRange, GetOptions, GetReport, Pool, Progress, cat, get_file, get_link, get_tree_but,
};
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_wire::control::EntryKind;
use potluck_wire::error::Failure;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Copies what `from` names, but for what a directory has at the paths `unchanged`, relative to it.
pub async fn copy(
    args: &CpArgs,
    from: &[CopyPlace],
    to: &CopyPlace,
    unchanged: &HashSet<String>,
    client: &Pool,
    shown: bool,
) -> Result<CpReport, Failure> {
    let is_dir = matches!(&to.at, PlacedAt::Local(local) if local.is_dir());
    let landing = Landing { into: to.into, is_dir, several: from.len() > 1 };
    if to.at != PlacedAt::Stdio {
        landing.check()?;
    }
    let mut report = CpReport { failovers: Some(0), ..CpReport::default() };
    let mut patient = client.clone();
    for source in from {
        let PlacedAt::Pool(path) = &source.at else { continue };
        let client = &patient;
        let progress = progress_bar::transfer(client, shown, Some(0));
        let client = &client.watched(Arc::clone(&progress));
        let copied = match &to.at {
            PlacedAt::Local(local) => {
                copy_one(args, source, path, (local, landing), unchanged, client, progress).await
            }
            _ => {
                let version = args.if_version.map(VersionId);
                let path = &source_of(args, path, client).await?;
                cat(client, path, ByteRange::ALL, version, Piped::for_content(), progress).await
            }
        };
        match copied {
            Ok(done) => report.add(done),
            Err(failure) if from.len() == 1 => return Err(failure),
            Err(error) => report.failed.push(FailedFile { path: path.to_string(), error }),
        }
        patient = patient.under_way();
    }
    Ok(report)
}

impl CpReport {
    fn add(&mut self, done: GetReport) {
        self.files += done.files;
        self.links += done.links;
        self.bytes = self.bytes.saturating_add(done.bytes);
        self.data += done.data;
        self.failovers = self.failovers.map(|so_far| so_far + done.failovers);
        let failed = done.failed.into_iter();
        self.failed.extend(failed.map(|(path, error)| FailedFile { path, error }));
    }
}

/// Returns the path at which the source of a copy is read: that of an old version if one is asked for.
pub(super) async fn source_of(
    args: &CpArgs,
    path: &PoolPath,
    client: &Pool,
) -> Result<PoolPath, Failure> {
    match args.version_id {
        Some(number) => client.version_at(path, VersionId(number)).await,
        None => Ok(path.clone()),
    }
}

async fn copy_one(
    args: &CpArgs,
    source: &CopyPlace,
    path: &PoolPath,
    (to, landing): (&Path, Landing),
    unchanged: &HashSet<String>,
    client: &Pool,
    progress: Arc<dyn Progress>,
) -> Result<GetReport, Failure> {
    let named = path;
    let path = &source_of(args, path, client).await?;
    let kind = if args.recursive { client.kind(path).await? } else { None };
    let is_dir = kind == Some(EntryKind::Dir);
    let takes_in = landing.takes_in(is_dir) && !source.contents;
    let mut target = to.to_path_buf();
    if takes_in {
        target.push(named.file_name().unwrap_or(named.space()));
    }
    let options = GetOptions {
        if_absent: args.if_absent,
        if_version: args.if_version.map(VersionId),
        own_name: takes_in,
        archive: args.archive,
    };
    if !is_dir {
        if kind == Some(EntryKind::Link) {
            return get_link(client, path, &target, options).await;
        }
        return get_file(client, path, &target, options, progress).await;
    }
    if args.if_version.is_some() {
        return Err(one_version());
    }
    get_tree_but(client, path, &target, options, unchanged, progress).await
}
