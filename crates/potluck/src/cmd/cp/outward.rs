//! From the pool to local files, trees or standard output.

use super::{CpReport, FailedFile, kind_of, usage};
use crate::args::Cp;
use crate::output::Piped;
use crate::progress_bar;
use potluck_client::get::{self, ByteRange, GetReport};
use potluck_client::pool::Client;
use potluck_core::path::PoolPath;
use potluck_wire::control::EntryKind;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub async fn copy(args: &Cp, client: &Client, shown: bool) -> Result<CpReport, Failure> {
    let to = Path::new(&args.to);
    let into_dir = to.is_dir() || args.to.ends_with('/');
    if args.from.len() > 1 && !into_dir {
        return Err(
            usage("several files need a directory to go to").hint("end the last path with /")
        );
    }
    let mut report = CpReport { failovers: Some(0), ..CpReport::default() };
    for from in &args.from {
        let path: PoolPath = from.parse().map_err(|why: potluck_core::path::BadPath| {
            Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string())
        })?;
        match copy_one(args, client, &path, to, into_dir, shown).await {
            Ok(done) => report.add(done),
            Err(failure) if args.from.len() == 1 => return Err(failure),
            Err(error) => report.failed.push(FailedFile { path: path.to_string(), error }),
        }
    }
    Ok(report)
}

impl CpReport {
    fn add(&mut self, done: GetReport) {
        self.files += done.files;
        self.bytes += done.bytes;
        self.failovers = self.failovers.map(|so_far| so_far + done.failovers);
        let failed = done.failed.into_iter();
        self.failed.extend(failed.map(|(path, error)| FailedFile { path, error }));
    }
}

async fn copy_one(
    args: &Cp,
    client: &Client,
    path: &PoolPath,
    to: &Path,
    into_dir: bool,
    shown: bool,
) -> Result<GetReport, Failure> {
    let progress = progress_bar::transfer(shown, Some(0));
    let client = &client.watched(Arc::clone(&progress));
    if args.to == "-" {
        return get::cat(client, path, ByteRange::ALL, Piped::stdout(), progress).await;
    }
    let name = path.file_name().unwrap_or(path.space());
    let target: PathBuf = if into_dir { to.join(name) } else { to.to_path_buf() };
    if into_dir {
        std::fs::create_dir_all(to).map_err(|error| {
            let what = format!("cannot make {}: {error}", to.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        })?;
    }
    if args.recursive && kind_of(client, path).await? == Some(EntryKind::Dir) {
        return get::get_tree(client, path, &target, progress).await;
    }
    get::get_file(client, path, &target, progress).await
}
