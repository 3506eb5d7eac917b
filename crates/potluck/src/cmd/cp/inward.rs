//! From local files, trees or standard input into the pool.

use super::{CpReport, FailedFile, StoredVersion, kind_of, policy_override, usage};
use crate::args::Cp;
use crate::progress_bar;
use potluck_client::pool::Client;
use potluck_client::put::{PutOptions, put};
use potluck_client::source::{Input, Item};
use potluck_core::ids::VersionId;
use potluck_core::path::{BadPath, PoolPath};
use potluck_wire::control::{Condition, EntryKind, MakeDir};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::io;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// What is to be stored, found before the first byte is sent.
#[derive(Default)]
struct Wanted {
    files: Vec<(PoolPath, Source)>,
    empty_dirs: Vec<PoolPath>,
    skipped: Vec<String>,
    failed: Vec<FailedFile>,
    /// `None` once a stream of unknown length is among them.
    bytes: Option<u64>,
}

enum Source {
    File(PathBuf),
    Stdin,
}

pub async fn copy(args: &Cp, client: &Client, shown: bool) -> Result<CpReport, Failure> {
    let to: PoolPath = args.to.parse().map_err(bad_path)?;
    if to.space().is_empty() {
        return Err(usage("files live in spaces")
            .hint("write pot://SPACE/PATH; `potluck ls` shows the spaces"));
    }
    let kind = kind_of(client, &to).await?;
    let wanted = find(args, &to, kind)?;
    let options = PutOptions {
        policy: policy_override(&args.policy)?,
        condition: match (args.if_absent, args.if_version) {
            (true, _) => Condition::IfAbsent,
            (_, Some(version)) => Condition::IfVersion(VersionId(version)),
            _ => Condition::Always,
        },
        bytes: wanted.bytes,
    };
    let root = match wanted.files.as_slice() {
        [(only, _)] => only.clone(),
        _ => to.clone(),
    };
    let mut report =
        CpReport { skipped: wanted.skipped, failed: wanted.failed, ..CpReport::default() };
    for dir in wanted.empty_dirs {
        client.call(&MakeDir { path: dir, parents: true }).await?;
    }
    if wanted.files.is_empty() {
        return Ok(report);
    }
    let items = wanted.files.into_iter().map(|(path, source)| {
        let input = match source {
            Source::File(local) => Input::File(local),
            Source::Stdin => Input::Stream(Box::new(io::stdin())),
        };
        Item { path, input }
    });
    let progress = progress_bar::transfer(shown, options.bytes);
    let done = put(client, &root, Box::new(items), &options, progress).await?;
    report.files = done.stored.len() as u64;
    report.bytes = done.bytes;
    report.sent_chunks = Some(done.sent_chunks);
    report.sent_bytes = Some(done.sent_bytes);
    report.held_chunks = Some(done.held_chunks);
    report.pending_copies = Some(done.pending_copies);
    report.versions = done
        .stored
        .into_iter()
        .map(|(path, version)| StoredVersion { path: path.to_string(), version: version.0 })
        .collect();
    let failed = done.failed.into_iter();
    report.failed.extend(failed.map(|(path, error)| FailedFile { path: path.to_string(), error }));
    Ok(report)
}

fn find(args: &Cp, to: &PoolPath, kind: Option<EntryKind>) -> Result<Wanted, Failure> {
    let is_dir = kind == Some(EntryKind::Dir) || args.to.ends_with('/');
    if args.from.len() > 1 && !is_dir {
        return Err(
            usage("several files need a directory to go to").hint("end the last path with /")
        );
    }
    let mut wanted = Wanted { bytes: Some(0), ..Wanted::default() };
    for from in &args.from {
        if from == "-" {
            if is_dir {
                return Err(
                    usage("standard input has no name").hint("name the file: pot://SPACE/PATH")
                );
            }
            wanted.files.push((to.clone(), Source::Stdin));
            wanted.bytes = None;
            continue;
        }
        let local = Path::new(from);
        let about = std::fs::metadata(local).map_err(|error| cannot_read(local, &error))?;
        let target = if is_dir { to.join(&name_of(local)?).map_err(bad_path)? } else { to.clone() };
        if about.is_dir() {
            if !args.recursive {
                return Err(
                    usage(&format!("{from} is a directory")).hint("add -r to copy directories")
                );
            }
            if kind == Some(EntryKind::File) {
                return Err(Failure::new(
                    ErrorKind::Conflict,
                    code::WRONG_KIND,
                    format!("{to} is a file"),
                )
                .hint("choose another target for the directory"));
            }
            wanted.walk(local, &target);
        } else {
            wanted.add_file(target, local.to_path_buf(), about.is_file().then_some(about.len()));
        }
    }
    Ok(wanted)
}

impl Wanted {
    fn add_file(&mut self, path: PoolPath, local: PathBuf, len: Option<u64>) {
        self.bytes = self.bytes.zip(len).map(|(sum, len)| sum + len);
        self.files.push((path, Source::File(local)));
    }

    fn fail(&mut self, path: &Path, error: Failure) {
        self.failed.push(FailedFile { path: path.display().to_string(), error });
    }

    /// Links to files count as the files; links to directories could lead in circles.
    fn walk(&mut self, local: &Path, target: &PoolPath) {
        let mut last_dir: Option<PoolPath> = None;
        for entry in WalkDir::new(local).sort_by_file_name() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let at = error.path().unwrap_or(local).to_path_buf();
                    self.fail(&at.clone(), cannot_read(&at, &error.into()));
                    continue;
                }
            };
            let path = match pool_path(target, entry.path(), local) {
                Ok(path) => path,
                Err(error) => {
                    self.fail(entry.path(), error);
                    continue;
                }
            };
            // A directory is empty if what follows it is not inside it.
            if let Some(dir) = last_dir.take().filter(|dir| !path.is_inside(dir)) {
                self.empty_dirs.push(dir);
            }
            if entry.file_type().is_dir() {
                last_dir = Some(path);
                continue;
            }
            match std::fs::metadata(entry.path()) {
                Ok(about) if about.is_file() => {
                    self.add_file(path, entry.into_path(), Some(about.len()));
                }
                Ok(about) if about.is_dir() => {
                    self.skipped.push(format!("{}: a link to a directory", entry.path().display()));
                }
                Ok(_) => {
                    self.skipped.push(format!("{}: not a regular file", entry.path().display()));
                }
                Err(_) if entry.path_is_symlink() => {
                    self.skipped.push(format!("{}: a link to nothing", entry.path().display()));
                }
                Err(error) => self.fail(entry.path(), cannot_read(entry.path(), &error)),
            }
        }
        self.empty_dirs.extend(last_dir);
    }
}

fn pool_path(target: &PoolPath, local: &Path, base: &Path) -> Result<PoolPath, Failure> {
    let relative = local.strip_prefix(base).unwrap_or(local);
    let mut path = target.clone();
    for name in relative {
        let name = name.to_str().ok_or_else(|| not_utf8(local))?;
        path = path.join(name).map_err(bad_path)?;
    }
    Ok(path)
}

fn name_of(local: &Path) -> Result<String, Failure> {
    let whole = local.canonicalize().map_err(|error| cannot_read(local, &error))?;
    // The name as the caller wrote it, unless that is “.” or “..”.
    let name = local.file_name().or(whole.file_name()).unwrap_or_default();
    name.to_str().map(str::to_string).ok_or_else(|| not_utf8(local))
}

fn not_utf8(local: &Path) -> Failure {
    let what = format!("the name of {} is not UTF-8", local.display());
    Failure::new(ErrorKind::Usage, code::BAD_PATH, what)
        .hint("rename it: the pool's names are UTF-8")
}

fn bad_path(why: BadPath) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string())
}

fn cannot_read(local: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot read {}: {error}", local.display());
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Other,
    };
    Failure::new(kind, code::LOCAL_IO, what).hint("check that it exists and that you may read it")
}
