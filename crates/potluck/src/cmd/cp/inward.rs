//! Copies local files, trees or standard input into the pool.

use super::archived::{self, ArchivedDir};
use super::at_once::Destination;
use super::directories::Policies;
use super::place::{bad_path, cannot_read, not_utf8, own_name, same_place, target};
use super::{
    CopyPlace, CpReport, FailedFile, Landing, PlacedAt, StoredVersion, one_version,
    policy_override, usage,
};
use crate::args::CpArgs;
use crate::progress_bar;
use potluck_client::{Input, Item, PendingLinks, Pool, PutOptions, PutReport, put};
use potluck_core::attributes::FileTime;
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, EntryKind, NewLink};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeSet, HashSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use walkdir::WalkDir;

/// Everything that is to be stored, found before the first byte is sent.
#[derive(Default)]
struct Found {
    files: Vec<FileToStore>,
    empty_dirs: Vec<PoolPath>,
    links: Vec<NewLink>,
    /// All directories, if their attributes are to be kept.
    archived_dirs: Vec<ArchivedDir>,
    skipped: Vec<String>,
    failed: Vec<FailedFile>,
}

/// A file to be stored.
struct FileToStore {
    path: PoolPath,
    source: Source,
    /// The bytes that are not in holes, about: only these need room, and time. `None` for a stream of unknown length.
    data: Option<u64>,
}

/// Returns about how many bytes of a local file are not in holes.
fn data_of(about: &Metadata) -> u64 {
    about.len().min(about.blocks() * 512)
}

enum Source {
    File(PathBuf),
    Stdin,
}

/// Copies what `from` names, but for what is to come to the paths `unchanged`.
pub async fn copy(
    args: &CpArgs,
    from: &[CopyPlace],
    (to, into): (&PoolPath, bool),
    unchanged: &HashSet<PoolPath>,
    destination: &Destination,
    client: &Pool,
    shown: bool,
) -> Result<CpReport, Failure> {
    let kind = client.kind(to).await?;
    let mut found = find(args, from, to, into, kind)?;
    found.files.retain(|file| !unchanged.contains(&file.path));
    found.links.retain(|link| !unchanged.contains(&link.path));
    found.empty_dirs.retain(|dir| !unchanged.contains(dir));
    let mut options = PutOptions {
        policy: policy_override(&args.policy)?,
        condition: destination.replacing().condition,
        bytes: data_of_all(&found.files),
        spare_content: destination.replacing().spare_content,
        allow_changing: args.allow_changing,
        ..PutOptions::default()
    };
    let mut report =
        CpReport { skipped: found.skipped, failed: found.failed, ..CpReport::default() };
    let mut client = client.clone();
    for dir in found.empty_dirs {
        client.make_dir(&destination.place(&dir)?, true).await?;
        client = client.under_way();
    }
    let mut links = found.links;
    for link in &mut links {
        link.path = destination.place(&link.path)?;
    }
    let mut archived_dirs = found.archived_dirs;
    if destination.is_staged() {
        report.archived_dirs.clone_from(&archived_dirs);
    }
    for (dir, _) in &mut archived_dirs {
        *dir = destination.place(dir)?;
    }
    if found.files.is_empty() {
        report.link(&client, links, options.condition).await?;
        report.add_failed(archived::set_attributes(&client, archived_dirs).await);
        return Ok(report);
    }
    let progress = progress_bar::upload(&client, shown, options.bytes);
    let mut client = client.watched(Arc::clone(&progress));
    let parts = by_policy(&client, to, found.files).await?;
    let several = parts.len() > 1;
    let mut ended = None;
    for (root, files) in parts {
        options.bytes = data_of_all(&files);
        let paths = files.iter().filter(|_| several).map(|file| file.path.to_string());
        let paths: Vec<String> = paths.collect();
        let items = files.into_iter().map(|FileToStore { path, source, .. }| {
            let input = match source {
                Source::File(local) if args.archive => Input::Archived(local),
                Source::File(local) => Input::File(local),
                Source::Stdin => Input::Stream(Box::new(io::stdin())),
            };
            Ok(Item { path: destination.place(&path)?, input })
        });
        let items = items.collect::<Result<Vec<_>, Failure>>()?.into_iter();
        let progress = Arc::clone(&progress);
        let root = destination.place(&root)?;
        let put = put(&client, &root, Box::new(items), &options, progress).await;
        client = client.under_way();
        match put {
            Ok(done) => report.stored(done),
            // The report must also tell of the files of other sessions, which may be stored.
            Err(failure) if several => {
                report.failed.extend(
                    paths.into_iter().map(|path| FailedFile { path, error: failure.clone() }),
                );
                ended.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    if let Some(failure) = ended.filter(|_| report.files == 0) {
        return Err(failure);
    }
    // Links are made last, so that they do not lead to files that are not stored yet.
    report.link(&client, links, options.condition).await?;
    report.add_failed(archived::set_attributes(&client, archived_dirs).await);
    Ok(report)
}

/// Returns the bytes of all files that are not in holes, about; `None` if the length of one is unknown.
fn data_of_all(files: &[FileToStore]) -> Option<u64> {
    files.iter().map(|file| file.data).sum()
}

/// Groups the files by their policies, because a session writes all its files by one policy. Each group has a path at
/// which its policy holds.
async fn by_policy(
    client: &Pool,
    to: &PoolPath,
    files: Vec<FileToStore>,
) -> Result<Vec<(PoolPath, Vec<FileToStore>)>, Failure> {
    let above = |file: &FileToStore| file.path.parent().unwrap_or_else(|| file.path.clone());
    let dirs: BTreeSet<PoolPath> = files.iter().map(above).collect();
    if let [only] = files.as_slice() {
        return Ok(vec![(only.path.clone(), files)]);
    }
    if let (Some(dir), 1) = (dirs.first(), dirs.len()) {
        return Ok(vec![(dir.clone(), files)]);
    }
    let policies = Policies::of(client, to, &dirs).await?;
    let mut parts: Vec<(PoolPath, Vec<FileToStore>)> = Vec::new();
    for file in files {
        let dir = above(&file);
        let same = |(root, _): &&mut (PoolPath, _)| policies.at(root) == policies.at(&dir);
        match parts.iter_mut().find(same) {
            Some((_, files)) => files.push(file),
            None => parts.push((dir, vec![file])),
        }
    }
    Ok(parts)
}

impl CpReport {
    /// Makes links, and adds the results. After a call that failed as a whole no more are made, and all that were not
    /// made have failed as it did.
    ///
    /// Errors: the failure of that call, if the report has nothing that was stored or made.
    pub(super) async fn link(
        &mut self,
        client: &Pool,
        links: Vec<NewLink>,
        condition: Condition,
    ) -> Result<(), Failure> {
        let paths: Vec<PoolPath> = links.iter().map(|link| link.path.clone()).collect();
        let mut pending = PendingLinks::new(client, condition);
        let made = make_all(&mut pending, links).await;
        let answered = pending.made as usize + pending.failed.len();
        self.links += pending.made;
        self.add_failed(pending.failed);
        match made {
            Err(failure) if self.files + self.links > 0 => {
                let others = paths.into_iter().skip(answered);
                self.add_failed(others.map(|path| (path, failure.clone())).collect());
                Ok(())
            }
            made => made,
        }
    }

    /// Adds the report of a write session.
    pub(super) fn stored(&mut self, done: PutReport) {
        let add = |sum: &mut Option<u64>, more| *sum = Some(sum.unwrap_or(0) + more);
        self.files += done.stored.len() as u64;
        self.links += done.links;
        self.bytes = self.bytes.saturating_add(done.bytes);
        self.data += done.data;
        add(&mut self.sent_chunks, done.sent_chunks);
        add(&mut self.sent_bytes, done.sent_bytes);
        add(&mut self.held_chunks, done.held_chunks);
        add(&mut self.held_bytes, done.held_bytes);
        self.session_times.until_visible += done.visible_after;
        self.session_times.until_stored += done.stored_after;
        add(&mut self.resumed_bytes, done.resumed_bytes);
        add(&mut self.resumed_copies_bytes, done.resumed_copies_bytes);
        add(&mut self.pending_copies, done.pending_copies);
        add(&mut self.at_risk, done.at_risk);
        add(&mut self.below_policy, done.below_policy);
        let stored = done.stored.into_iter();
        self.versions.extend(
            stored.map(|(path, version)| StoredVersion {
                path: path.to_string(),
                version: version.0,
            }),
        );
        self.add_failed(done.failed);
    }

    pub(super) fn add_failed(&mut self, failed: Vec<(PoolPath, Failure)>) {
        let failed = failed.into_iter();
        self.failed
            .extend(failed.map(|(path, error)| FailedFile { path: path.to_string(), error }));
    }
}

async fn make_all(pending: &mut PendingLinks, links: Vec<NewLink>) -> Result<(), Failure> {
    for link in links {
        pending.add(link).await?;
    }
    pending.make().await
}

fn find(
    args: &CpArgs,
    from: &[CopyPlace],
    to: &PoolPath,
    into: bool,
    kind: Option<EntryKind>,
) -> Result<Found, Failure> {
    let is_dir = kind == Some(EntryKind::Dir);
    let landing = Landing { into, is_dir, several: from.len() > 1 };
    landing.check()?;
    let mut found = Found::default();
    for source in from {
        let PlacedAt::Local(local) = &source.at else {
            if landing.takes_in(false) {
                return Err(
                    usage("standard input has no name").hint("name the file: pot://SPACE/PATH")
                );
            }
            found.files.push(FileToStore { path: to.clone(), source: Source::Stdin, data: None });
            continue;
        };
        let about = std::fs::metadata(local).map_err(|error| cannot_read(local, &error))?;
        let takes_in = landing.takes_in(about.is_dir()) && !source.contents;
        let name = takes_in.then(|| own_name(local)).transpose()?;
        let path = target(to, name.as_deref())?;
        if !about.is_dir() {
            let data = about.is_file().then(|| data_of(&about));
            found.add_file(path, local.clone(), data);
            continue;
        }
        if !args.recursive {
            let what = format!("{} is a directory", local.display());
            return Err(Failure::new(ErrorKind::Usage, code::NOT_RECURSIVE, what)
                .hint("add -r to copy directories"));
        }
        if args.if_version.is_some() {
            return Err(one_version());
        }
        if kind == Some(EntryKind::File) {
            let what = format!("{to} is a file");
            return Err(Failure::new(ErrorKind::Conflict, code::WRONG_KIND, what)
                .hint("choose another target for the directory"));
        }
        found.walk(local, &path, args);
    }
    if from.len() > 1 {
        found.check_merged()?;
    }
    Ok(found)
}

impl Found {
    fn add_file(&mut self, path: PoolPath, local: PathBuf, data: Option<u64>) {
        self.files.push(FileToStore { path, source: Source::File(local), data });
    }

    /// Refuses sources whose merged contents (`A/. B/.`) would put two files at one path.
    fn check_merged(&self) -> Result<(), Failure> {
        let files = self.files.iter().map(|file| &file.path);
        let mut seen = HashSet::new();
        match files.chain(self.links.iter().map(|link| &link.path)).find(|path| !seen.insert(*path))
        {
            Some(twice) => Err(same_place("one source", "another", &twice.to_string())),
            None => Ok(()),
        }
    }

    fn fail(&mut self, path: &Path, error: Failure) {
        self.failed.push(FailedFile { path: path.display().to_string(), error });
    }

    /// Finds everything in a tree. Links are stored as links, and with `-L` as what they lead to. Then one that
    /// leads to nothing, or back to a directory above it, is a failure.
    fn walk(&mut self, local: &Path, target: &PoolPath, args: &CpArgs) {
        let mut last_dir: Option<PoolPath> = None;
        for entry in WalkDir::new(local).follow_links(args.dereference).sort_by_file_name() {
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
                match entry.metadata() {
                    Ok(about) if args.archive => {
                        let attributes = archived::attributes_of(&about);
                        self.archived_dirs.push((path.clone(), attributes));
                    }
                    _ => {} // without `-a`, or the walk reports that the directory cannot be read
                }
                last_dir = Some(path);
                continue;
            }
            if entry.path_is_symlink() && !args.dereference {
                match new_link(path, entry.path(), args.archive) {
                    Ok(link) => self.links.push(link),
                    Err(error) => self.fail(entry.path(), error),
                }
                continue;
            }
            match std::fs::metadata(entry.path()) {
                Ok(about) if about.is_file() => {
                    self.add_file(path, entry.into_path(), Some(data_of(&about)));
                }
                Ok(_) => {
                    self.skipped.push(format!("{}: not a regular file", entry.path().display()));
                }
                Err(error) => self.fail(entry.path(), cannot_read(entry.path(), &error)),
            }
        }
        self.empty_dirs.extend(last_dir);
    }
}

/// Reads a local link into the form in which the pool keeps it.
fn new_link(path: PoolPath, local: &Path, archive: bool) -> Result<NewLink, Failure> {
    let unreadable = |error| cannot_read(local, &error);
    let about = local.symlink_metadata().map_err(unreadable)?;
    let mtime = about.modified().map_err(unreadable)?;
    let owner = archive.then(|| archived::owner_of(&about));
    let target = std::fs::read_link(local).map_err(unreadable)?.into_os_string();
    let kept = target.into_string().map_err(|_| "its target is not UTF-8".to_owned());
    let kept = kept.and_then(|text| LinkTarget::try_from(text).map_err(|why| why.to_string()));
    let target = kept.map_err(|why| {
        let what = format!("the link {} cannot be kept: {why}", local.display());
        Failure::new(ErrorKind::Usage, code::BAD_PATH, what)
            .hint("-L stores the files that links lead to")
    })?;
    Ok(NewLink { path, target, mtime: Some(FileTime::of_system(mtime)), owner })
}

fn pool_path(target: &PoolPath, local: &Path, base: &Path) -> Result<PoolPath, Failure> {
    let relative = local.strip_prefix(base).unwrap_or(local);
    let names = relative.iter().map(|name| name.to_str().ok_or_else(|| not_utf8(local)));
    target.join_all(names.collect::<Result<Vec<_>, _>>()?).map_err(bad_path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_client::RetryLimits;
    use potluck_wire::addresses::Addresses;
    use potluck_wire::call::Caller;
    use potluck_wire::env::Env;
    use potluck_wire::net::{BoxFuture, BoxStream, SystemNet};
    use potluck_wire::tls::Dial;
    use std::time::Duration;

    /// A dialer that reaches no manager.
    struct NoManager;

    impl Dial for NoManager {
        fn secure(&self, _: BoxStream) -> BoxFuture<'_, io::Result<BoxStream>> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
    }

    #[tokio::test]
    async fn upload_report_survives_a_failed_symlink() {
        let caller = Caller::new(Arc::new(SystemNet), Arc::new(NoManager), Addresses::default());
        let limits = RetryLimits { under_way: Duration::ZERO, ..RetryLimits::default() };
        let client = Pool::new(Env::system(), caller).with_retry_limits(limits);
        let link = |number: u32| {
            let path = format!("pot://lab/{number}").parse().expect("a path");
            let target = LinkTarget::try_from("f".to_owned()).expect("a target");
            NewLink { path, target, mtime: None, owner: None }
        };
        let links = || (0..300).map(link).collect::<Vec<_>>();
        let mut report = CpReport { files: 2, ..CpReport::default() };
        report.link(&client, links(), Condition::Always).await.expect("files are stored");
        let failed = report.failed.iter().map(|failed| failed.path.clone());
        assert_eq!((report.files, report.links), (2, 0));
        assert!(failed.eq(links().into_iter().map(|link| link.path.to_string())));
        let mut report = CpReport::default();
        let failure = report.link(&client, links(), Condition::Always).await;
        assert_eq!(failure.expect_err("nothing is there").kind, ErrorKind::Retry);
        assert!(report.failed.is_empty());
    }
}
