//! Reads files: to a stream in order, or to local files, one or a whole tree.

mod leftovers;
mod local;
mod local_dir;
mod local_tree;
mod made_dirs;
mod ownership;

use crate::fetch::{Fetched, Fetcher};
use crate::file::{File, Stretch, UNITS_AT_ONCE, Unreadable};
use crate::pool::Pool;
use crate::progress::Progress;
use crate::recipe;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use local::{LocalFile, LocalWriter};
use local_dir::LocalPlace;
use local_tree::LocalTree;
use made_dirs::MadeDirs;
use potluck_core::attributes::EntryAttributes;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::seal::SpaceKeys;
use potluck_core::size::count;
use potluck_wire::control::{Open, OpenDir, OpenFile, OpenLink, Opened};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::HashSet;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The number of files of a tree that are worked on at once: enough to hide a donor's turnaround for small ones.
const FILES_AT_ONCE: usize = 32;

/// The report of a get.
#[derive(Debug, Clone, Default)]
pub struct GetReport {
    /// The number of files that were read, or of which a range was.
    pub files: u64,
    /// The number of symbolic links that were made.
    pub links: u64,
    /// The number of plaintext bytes that were read of these files.
    pub bytes: u64,
    /// The number of these bytes that are in no hole.
    pub data: u64,
    /// The files, links and directories that could not be copied, by paths relative to the one that was asked for, and
    /// why.
    pub failed: Vec<(String, Failure)>,
    /// The number of times that another copy stood in for one that failed or hung, plus the number of chunks that were
    /// rebuilt from others of their group.
    pub failovers: u64,
}

/// A range of a file, as its reader asks for it before the size of the file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// Bytes from `start` up to, not including, `end`.
    From(u64, Option<u64>),
    /// The last bytes of the file, so many or all.
    Last(u64),
}

impl ByteRange {
    /// The range that covers a whole file.
    pub const ALL: Self = Self::From(0, None);

    /// Returns the range in a file of `size` bytes; `None` if it begins after the end of the file.
    fn resolve(self, size: u64) -> Option<Range<u64>> {
        match self {
            Self::From(start, _) if start > size => None,
            Self::From(start, end) => Some(start..end.unwrap_or(size).min(size)),
            Self::Last(bytes) => Some(size.saturating_sub(bytes)..size),
        }
    }
}

/// The options of a get. A file for which a condition does not hold is not written.
#[derive(Debug, Clone, Copy, Default)]
pub struct GetOptions {
    /// True if nothing may be at the path of the copy.
    pub if_absent: bool,
    /// The version that the file must have, if one is given.
    pub if_version: Option<VersionId>,
    /// True if the last name of the copy is its own name in the pool, below a directory that the user named. That
    /// directory is made if need be. A symbolic link at the name is replaced and not followed: an earlier copy may have
    /// made it, and whoever writes in the pool would choose which file of this machine is overwritten.
    pub own_name: bool,
    /// True if the copy gets the owner and group as far as the caller may give them, and directories their times and
    /// modes.
    pub archive: bool,
}

/// Writes a range of a file to `out`, in order.
///
/// Errors: those of [`Pool::open`]; [`code::WRONG_VERSION`]; [`code::BAD_REQUEST`] for a range that begins after the
/// end; [`code::LOCAL_IO`] where `out` cannot be written, with [`io::ErrorKind::BrokenPipe`] in the message when its
/// reader closed the pipe; [`code::UNREADABLE`], of kind [`ErrorKind::Retry`] or [`ErrorKind::Integrity`].
pub async fn cat<W: Write + Send + 'static>(
    client: &Pool,
    path: &PoolPath,
    range: ByteRange,
    if_version: Option<VersionId>,
    out: W,
    progress: Arc<dyn Progress>,
) -> Result<GetReport, Failure> {
    let opened = open_one(client, path, if_version).await;
    let file = opened.map_err(|failure| match failure.code.as_str() {
        code::NOT_RECURSIVE => {
            failure.hint("name a file in it; `potluck cp -r` copies directories")
        }
        _ => failure,
    })?;
    let size = file.size();
    let range = range.resolve(size).ok_or_else(|| {
        let bytes = count(size, "byte");
        let what = format!("the range begins after the end of {path}, which has {bytes}");
        Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("bytes are counted from 0; -COUNT names the last ones")
    })?;
    let bytes = range.end.saturating_sub(range.start);
    progress.expect(bytes);
    stream_range(client, &file, range, out, progress).await?;
    let failovers = file.failovers();
    Ok(GetReport { files: 1, bytes, data: bytes, failovers, ..GetReport::default() })
}

/// Copies a file to the local path `to`, which appears whole or not at all. A device or pipe is
/// written in order instead.
///
/// Errors: those of [`Pool::open`]; [`code::EXISTS`] and [`code::WRONG_VERSION`] where `options` do not hold;
/// [`code::LOCAL_IO`] and [`code::WRONG_KIND`] where `to` cannot be written; [`code::UNREADABLE`].
pub async fn get_file(
    client: &Pool,
    path: &PoolPath,
    to: &Path,
    options: GetOptions,
    progress: Arc<dyn Progress>,
) -> Result<GetReport, Failure> {
    if options.if_absent {
        check_absent(to)?;
    }
    let file = open_one(client, path, options.if_version).await?;
    let mut made = MadeDirs::default();
    let failed = |error: io::Error| local_failure(to, &error);
    if let Some(dir) = to.parent().filter(|_| options.own_name) {
        made.make(dir).map_err(|error| local_failure(dir, &error))?;
    }
    let device = match options.own_name && to.is_symlink() {
        true => None,
        false => local::open_device(to).map_err(failed)?,
    };
    if let Some(device) = device {
        progress.expect(file.size());
        stream_range(client, &file, 0..file.size(), device, progress).await?;
    } else {
        let place = if options.own_name { LocalPlace::of(to) } else { LocalPlace::named(to) };
        let place = place.map_err(failed)?;
        leftovers::remove(&place.dir);
        progress.expect(file.data());
        write_file(client, &file, place, options, &progress).await?;
    }
    made.stay(&[]);
    let (bytes, data, failovers) = (file.size(), file.data(), file.failovers());
    Ok(GetReport { files: 1, bytes, data, failovers, ..GetReport::default() })
}

/// Copies the link at `path` to the local path `to`, at which there may be nothing or another link.
///
/// Errors: those of [`Pool::stat`]; [`code::WRONG_KIND`] where no link is at `path`, or something else at `to`;
/// [`code::EXISTS`] as `options` say; [`code::LOCAL_IO`] where the link cannot be made.
pub async fn get_link(
    client: &Pool,
    path: &PoolPath,
    to: &Path,
    options: GetOptions,
) -> Result<GetReport, Failure> {
    let entry = client.stat(path).await?.entry;
    let target = entry.target.ok_or_else(|| {
        let what = format!("{path} is no link any more");
        Failure::new(ErrorKind::Conflict, code::WRONG_KIND, what).hint("copy it again")
    })?;
    let mut made = MadeDirs::default();
    if let Some(dir) = to.parent().filter(|_| options.own_name) {
        made.make(dir).map_err(|error| local_failure(dir, &error))?;
    }
    let place = LocalPlace::of(to).map_err(|error| local_failure(to, &error))?;
    let owner = entry.owner.filter(|_| options.archive);
    let link = OpenLink { path: String::new(), target, mtime: entry.mtime, owner };
    local_tree::make_link(&place, &link, options.if_absent, &*client.env.entropy)?;
    made.stay(&[]);
    Ok(GetReport { links: 1, ..GetReport::default() })
}

/// Copies everything below `path` into the local directory `to`, which is made if need be. With `options.if_absent`
/// nothing is replaced: files and links that are there already fail with [`code::EXISTS`] in the report.
///
/// Errors: those of [`Pool::call`], with [`code::NO_ENTRY`] where nothing is at `path`, and [`code::LOCAL_IO`] where
/// `to` cannot be made. Files that failed alone are in the report.
pub async fn get_tree(
    client: &Pool,
    path: &PoolPath,
    to: &Path,
    options: GetOptions,
    progress: Arc<dyn Progress>,
) -> Result<GetReport, Failure> {
    tree(client, path, Some((to, options)), &HashSet::new(), progress).await
}

/// Copies everything below `path` as [`get_tree`] does, but for files and links at the paths `unchanged`, relative to it.
pub async fn get_tree_but(
    client: &Pool,
    path: &PoolPath,
    to: &Path,
    options: GetOptions,
    unchanged: &HashSet<String>,
    progress: Arc<dyn Progress>,
) -> Result<GetReport, Failure> {
    tree(client, path, Some((to, options)), unchanged, progress).await
}

fn check_absent(to: &Path) -> Result<(), Failure> {
    match to.symlink_metadata() {
        Ok(_) => Err(local_failure(to, &io::ErrorKind::AlreadyExists.into())),
        Err(_) => Ok(()), // writing tells what else is wrong with it
    }
}

/// The outcome of reading a file to its end, whatever of it is spoiled.
#[derive(Debug, Default)]
pub struct CheckedFile {
    /// The number of bytes that were read and are right.
    pub bytes: u64,
    /// The number of bytes that cannot be read now.
    pub unreadable: u64,
    /// The reason why the first unreadable bytes cannot be read.
    pub why: Option<Failure>,
}

/// Reads and checks every byte of the file at `path`, also after one that cannot be read, and keeps none of it.
///
/// Errors: those of [`Pool::open`].
pub async fn check_file(
    client: &Pool,
    path: &PoolPath,
    progress: Arc<dyn Progress>,
) -> Result<CheckedFile, Failure> {
    let file = open_one(client, path, None).await?;
    progress.expect(file.data());
    let (mut checked, mut at) = (CheckedFile::default(), 0);
    while at < file.size() {
        let data = match file.data_from(at).await {
            Ok(data) => data.unwrap_or(file.size()..file.size()),
            Err(failure) => {
                checked.unreadable += file.size() - at;
                checked.why.get_or_insert(failure);
                break;
            }
        };
        // Of a hole there is nothing to read.
        checked.bytes += data.start - at;
        at = data.end;
        let mut reader = file.read(data);
        while let Some(next) = reader.next_or_unreadable().await {
            let bytes = match next {
                Ok(part) => {
                    checked.bytes += part.len() as u64;
                    part.len() as u64
                }
                Err(Unreadable { bytes, failure }) => {
                    checked.unreadable += bytes;
                    checked.why.get_or_insert(failure);
                    bytes
                }
            };
            progress.advance(bytes);
        }
    }
    Ok(checked)
}

/// Reads and checks every byte of everything below `path`, and keeps none of it. A file that fails is not read any
/// further; [`check_file`] reads such a file to its end.
///
/// Errors: those of [`Pool::call`], with [`code::NO_ENTRY`] where nothing is at `path`. Files that failed alone are
/// in the report.
pub async fn check_tree(
    client: &Pool,
    path: &PoolPath,
    progress: Arc<dyn Progress>,
) -> Result<GetReport, Failure> {
    tree(client, path, None, &HashSet::new(), progress).await
}

async fn tree(
    client: &Pool,
    path: &PoolPath,
    to: Option<(&Path, GetOptions)>,
    unchanged: &HashSet<String>,
    progress: Arc<dyn Progress>,
) -> Result<GetReport, Failure> {
    let mut report = GetReport::default();
    let mut made = MadeDirs::default();
    let mut local: Option<LocalTree> = None;
    let mut after = None;
    let mut fetcher: Option<Fetcher> = None;
    loop {
        let open = Open { path: path.clone(), recursive: true, after: after.take(), leased: false };
        let mut page: Opened = client.call_retrying(&open).await?;
        page.files.retain(|file| !unchanged.contains(&file.path));
        page.links.retain(|link| !unchanged.contains(&link.path));
        progress.expect(page.files.iter().map(OpenFile::data).sum());
        if let (Some((root, options)), None) = (to, &local) {
            local = Some(LocalTree::begin(root, options, &mut made)?);
        }
        if let Some(to) = &mut local {
            for OpenDir { path, attributes } in page.dirs {
                // The files below it fail, each by itself, and all others are copied.
                match to.make_dir(&path, &mut made) {
                    Ok(()) => to.is_dir(path, attributes),
                    Err(failure) => report.failed.push((path, failure)),
                }
            }
            for link in page.links {
                match to.link(&link, &*client.env.entropy) {
                    Ok(()) => report.links += 1,
                    Err(failure) => report.failed.push((link.path, failure)),
                }
            }
        }
        let largest = page.files.iter().map(recipe::largest);
        let (chunk, unit) = largest.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))).unwrap_or_default();
        if let Some(small) = fetcher.take_if(|fetcher| !fetcher.memory.has_room_for(unit)) {
            report.failovers += small.failovers();
        }
        let fetcher = fetcher.get_or_insert_with(|| {
            let memory = client.memory_for_reading(chunk, unit, page.donors.len());
            Fetcher::new(client, memory)
        });
        fetcher.learn(page.donors);
        fetcher.reads_below(open.path);
        let keys = &page.space_keys;
        let mut files = stream::iter(page.files)
            .map(|file| {
                let place = local.as_mut().map(|to| Ok((to.file(&file.path)?, to.options())));
                get_one(client, fetcher, path, file, keys, place.transpose(), &progress)
            })
            .buffer_unordered(FILES_AT_ONCE);
        while let Some((name, result)) = files.next().await {
            match result {
                Ok(file) => {
                    report.files += 1;
                    report.bytes = report.bytes.saturating_add(file.size());
                    report.data += file.data();
                }
                Err(failure) => report.failed.push((name, failure)),
            }
        }
        drop(files);
        after = page.next;
        if after.is_none() {
            report.failovers += fetcher.failovers();
            let root = local.as_ref().map(LocalTree::root);
            let failed = report.failed.iter().filter_map(|(name, _)| Some(root?.join(name)));
            made.stay(&failed.collect::<Vec<_>>());
            if let Some(to) = &mut local
                && to.options().archive
            {
                let root = client.stat(path).await?.entry;
                report.failed.extend(to.set_attributes_of_dirs(root.attributes()));
            }
            return Ok(report);
        }
    }
}

async fn get_one(
    client: &Pool,
    fetcher: &Fetcher,
    root: &PoolPath,
    file: OpenFile,
    keys: &SpaceKeys,
    local: Result<Option<(LocalPlace, GetOptions)>, Failure>,
    progress: &Arc<dyn Progress>,
) -> (String, Result<File, Failure>) {
    let name = file.path.clone();
    let copied = async {
        let local = local?;
        let file = File::new(client, root, file, keys, fetcher.clone(), None)?;
        match local {
            Some((local, options)) => {
                write_file(client, &file, local, options, progress).await?;
            }
            None => {
                let mut at = 0;
                while at < file.size() {
                    // Of a hole there is nothing to read.
                    let data = file.data_from(at).await?.unwrap_or(file.size()..file.size());
                    at = data.end;
                    let progress = Arc::clone(progress);
                    stream_range(client, &file, data, io::sink(), progress).await?;
                }
            }
        }
        Ok(file)
    };
    let result = copied.await;
    (name, result)
}

async fn open_one(
    client: &Pool,
    path: &PoolPath,
    if_version: Option<VersionId>,
) -> Result<File, Failure> {
    let file = client.open(path).await?;
    match if_version.filter(|expected| *expected != file.version()) {
        Some(expected) => {
            let what = format!("{path} is at version {}, not {expected}", file.version());
            Err(Failure::new(ErrorKind::Conflict, code::WRONG_VERSION, what)
                .hint("somebody wrote it meanwhile: look with `potluck stat` and decide anew"))
        }
        None => Ok(file),
    }
}

pub(crate) async fn stream_range<W: Write + Send + 'static>(
    client: &Pool,
    file: &File,
    range: Range<u64>,
    mut out: W,
    progress: Arc<dyn Progress>,
) -> Result<(), Failure> {
    let unwritable = |error: io::Error| {
        Failure::new(ErrorKind::Other, code::LOCAL_IO, format!("cannot write the output: {error}"))
    };
    let mut reader = file.read(range);
    while let Some(part) = reader.next().await {
        // Parts that came together are written in one turn of another thread.
        let mut parts = vec![part?];
        parts.extend(std::iter::from_fn(|| reader.at_hand()));
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let written = client.env.offload.run(move || {
            // Each part gives its memory back as soon as it is written.
            let result = parts.into_iter().try_for_each(|part| out.write_all(&part));
            (out, result)
        });
        let result;
        (out, result) = written.await;
        result.map_err(unwritable)?;
        progress.advance(bytes);
    }
    out.flush().map_err(unwritable)
}

async fn write_file(
    client: &Pool,
    file: &File,
    to: LocalPlace,
    options: GetOptions,
    progress: &Arc<dyn Progress>,
) -> Result<(), Failure> {
    let path = to.path();
    let failed = |error: io::Error| local_failure(&path, &error);
    let local = LocalFile::create(to, file.attributes().permissions, &*client.env.entropy)
        .map_err(failed)?;
    if let Some(content) = file.inline() {
        local.writer().write_at(content, 0).map_err(failed)?;
        progress.advance(content.len() as u64);
    }
    let all = if file.inline().is_some() { 0..0 } else { 0..file.size() };
    // The file is read part by part; the next is looked up while the chunks of this one are on their way.
    let units = stream::try_unfold(all, |rest| async move {
        if rest.is_empty() {
            return Ok::<_, Failure>(None);
        }
        let Some(Stretch { recipe, at, units, rest }) = file.stretch(rest).await? else {
            return Ok(None);
        };
        let units = units.into_iter().map(move |unit| Ok((Arc::clone(&recipe), at, unit)));
        Ok(Some((stream::iter(units), rest)))
    });
    // The stream is boxed below, so that the compiler finds that it may move between threads.
    let units = units.try_flatten().map_ok(|(recipe, at, pieces)| {
        let writer = local.writer();
        async move {
            let fetched = file.unit(&recipe, &pieces).await?;
            let places = pieces.iter().map(|piece| at + piece.at);
            let fetched = places.zip(fetched).collect();
            write_unit(client, writer, fetched).await.map_err(failed)?;
            progress.advance(pieces.iter().map(|piece| u64::from(piece.take)).sum());
            Ok::<_, Failure>(())
        }
    });
    units.boxed().try_buffer_unordered(UNITS_AT_ONCE).try_collect::<()>().await?;
    if file.inline().is_none() {
        // What is not written is a hole of the local file, too.
        local.set_size(file.size()).map_err(failed)?;
    }
    let EntryAttributes { mtime, owner, .. } = file.attributes();
    let owner = owner.filter(|_| options.archive);
    local.finish(mtime, owner, !options.if_absent).map_err(failed)
}

/// Writes the pieces of a unit that was fetched, each at its place.
async fn write_unit(
    client: &Pool,
    writer: LocalWriter,
    fetched: Vec<(u64, Fetched)>,
) -> io::Result<()> {
    let bytes: usize = fetched.iter().map(|(_, fetched)| fetched.bytes.len()).sum();
    let write = move || {
        // Each unit gives its memory back as soon as it is written.
        fetched.into_iter().try_for_each(|(at, fetched)| writer.write_at(&fetched.bytes, at))
    };
    // Handing a small write to another thread costs more than the write.
    if bytes <= 256 << 10 {
        return write();
    }
    client.env.offload.run(write).await
}

fn local_failure(path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    let conflict =
        |code, what, hint: &str| Failure::new(ErrorKind::Conflict, code, what).hint(hint);
    let kind = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let what = format!("{shown} exists already");
            return conflict(code::EXISTS, what, "choose another name, or leave out --if-absent");
        }
        io::ErrorKind::IsADirectory => {
            let what = format!("{shown} is a directory");
            return conflict(code::WRONG_KIND, what, "choose another target for the file");
        }
        io::ErrorKind::NotADirectory => {
            let what = format!("{shown} is, or lies below, what is no directory");
            return conflict(code::WRONG_KIND, what, "choose another target");
        }
        io::ErrorKind::NotFound if path.parent().is_some_and(|dir| !dir.exists()) => {
            let dir = path.parent().unwrap_or(path).display();
            let what = format!("cannot write {shown}: there is no directory {dir}");
            return Failure::new(ErrorKind::NotFound, code::LOCAL_IO, what)
                .hint(format!("make it first: mkdir -p {dir}"));
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::Other,
    };
    let what = format!("cannot write {shown}: {error}");
    Failure::new(kind, code::LOCAL_IO, what).hint("check the directory's rights and free space")
}
