//! The pool as the file system of the WebDAV handler: the first level are the spaces.

use crate::users::User;
use bytes::{Buf, Bytes};
use dav_server::davpath::DavPath;
use dav_server::fs::{
    DavDirEntry, DavFile, DavMetaData, FsError, FsFuture, FsResult, FsStream, GuardedFileSystem,
    OpenOptions, ReadDirMeta,
};
use potluck_client::{Attributes, File, Pool, PutOptions, Reader, Writer};
use potluck_core::attributes::{AttributesToSet, FileTime};
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_wire::control::{Condition, EntryKind, ListedEntry, SetAttributes};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::fmt;
use std::io::SeekFrom;
use std::sync::Mutex;
use std::time::SystemTime;

/// The files of the pool that each user may see.
#[derive(Debug, Clone, Copy)]
pub struct PoolFiles;

/// Returns the result code for a failure.
fn code_of(failure: Failure) -> FsError {
    tracing::debug!(%failure, "a WebDAV request failed");
    match (&*failure.code, failure.kind) {
        (code::EXISTS | code::NOT_EMPTY, _) => FsError::Exists,
        (code::BAD_PATH, _) => FsError::Forbidden,
        (_, ErrorKind::NotFound) => FsError::NotFound,
        (_, ErrorKind::Auth | ErrorKind::Usage | ErrorKind::Conflict) => FsError::Forbidden,
        (_, ErrorKind::NoSpace) => FsError::InsufficientStorage,
        _ => FsError::GeneralFailure,
    }
}

/// Returns the path of the pool that a path of the tree means.
fn pool_path(path: &DavPath) -> FsResult<PoolPath> {
    let text = path.as_bytes();
    let text = str::from_utf8(text).map_err(|_| FsError::NotFound)?;
    let names = text.split('/').filter(|name| !name.is_empty());
    PoolPath::root().join_all(names).map_err(|_| FsError::NotFound)
}

/// The facts that answers tell of a file or directory.
#[derive(Debug, Clone)]
struct Facts {
    name: String,
    kind: EntryKind,
    size: u64,
    mtime: FileTime,
    changed: FileTime,
    version: Option<VersionId>,
}

impl Facts {
    /// Returns the facts about the pool itself, of which no call tells.
    fn of_root() -> Self {
        let (mtime, changed, version) = Default::default();
        Self { name: String::new(), kind: EntryKind::Dir, size: 0, mtime, changed, version }
    }
}

impl From<ListedEntry> for Facts {
    fn from(entry: ListedEntry) -> Self {
        let ListedEntry { path: name, kind, size, mtime, changed, version, .. } = entry;
        Self { name, kind, size, mtime, changed, version }
    }
}

impl DavMetaData for Facts {
    fn len(&self) -> u64 {
        self.size
    }

    fn modified(&self) -> FsResult<SystemTime> {
        Ok(self.mtime.system())
    }

    fn is_dir(&self) -> bool {
        self.kind == EntryKind::Dir
    }

    fn is_symlink(&self) -> bool {
        self.kind == EntryKind::Link
    }

    fn status_changed(&self) -> FsResult<SystemTime> {
        Ok(self.changed.system())
    }

    fn etag(&self) -> Option<String> {
        // A version never changes, so its number says all.
        self.version.map(|version| version.to_string())
    }
}

impl DavDirEntry for Facts {
    fn name(&self) -> Vec<u8> {
        self.name.clone().into_bytes()
    }

    fn metadata(&'_ self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let facts: Box<dyn DavMetaData> = Box::new(self.clone());
        Box::pin(std::future::ready(Ok(facts)))
    }
}

async fn facts(pool: &Pool, path: &PoolPath) -> FsResult<Facts> {
    if path.space().is_empty() {
        return Ok(Facts::of_root());
    }
    Ok(pool.stat_unjudged(path).await.map_err(code_of)?.entry.into())
}

impl GuardedFileSystem<User> for PoolFiles {
    fn open<'a>(
        &'a self,
        path: &'a DavPath,
        options: OpenOptions,
        user: &'a User,
    ) -> FsFuture<'a, Box<dyn DavFile>> {
        Box::pin(async move {
            let (pool, path) = (&user.pool, pool_path(path)?);
            if !options.write {
                let file = pool.open_leased(&path).await.map_err(code_of)?;
                return Ok(Box::new(OpenedFile::reading(pool, path, file)) as Box<dyn DavFile>);
            }
            let is_new = || async { Ok(pool.kind(&path).await.map_err(code_of)?.is_none()) };
            // A version is written from its beginning. A lock of what is not there makes an empty file.
            if options.append || !options.truncate && !is_new().await? {
                return Err(FsError::NotImplemented);
            }
            if let Some(above) = path.parent()
                && pool.kind(&above).await.map_err(code_of)? != Some(EntryKind::Dir)
            {
                return Err(FsError::NotFound);
            }
            let condition = match (options.create_new, options.create) {
                (true, _) => Condition::IfAbsent,
                (false, true) => Condition::Always,
                (false, false) => {
                    let entry = pool.stat_unjudged(&path).await.map_err(code_of)?.entry;
                    Condition::IfVersion(entry.version.ok_or(FsError::Forbidden)?)
                }
            };
            if condition == Condition::IfAbsent && !is_new().await? {
                return Err(FsError::Exists);
            }
            let put = PutOptions { condition, bytes: options.size, ..PutOptions::default() };
            let writer = pool.create(&path, &put, Attributes::default()).await.map_err(code_of)?;
            Ok(Box::new(OpenedFile::writing(pool, path, writer)) as Box<dyn DavFile>)
        })
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        _meta: ReadDirMeta,
        user: &'a User,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        Box::pin(async move {
            let (pool, path) = (user.pool.clone(), pool_path(path)?);
            let first = pool.list_page(&path, false, None).await.map_err(code_of)?;
            // A page after the other is asked for as they are told, so that a large directory is never whole in memory.
            let state = (pool, path, first.entries.into_iter(), first.next);
            let entries = futures_util::stream::unfold(Some(state), |state| async move {
                let (pool, path, mut entries, next) = state?;
                if let Some(entry) = entries.next() {
                    let entry: Box<dyn DavDirEntry> = Box::new(Facts::from(entry));
                    return Some((Ok(entry), Some((pool, path, entries, next))));
                }
                let page = pool.list_page(&path, false, Some(next?)).await;
                match page {
                    Ok(page) => {
                        let mut entries = page.entries.into_iter();
                        let entry: Box<dyn DavDirEntry> = Box::new(Facts::from(entries.next()?));
                        Some((Ok(entry), Some((pool, path, entries, page.next))))
                    }
                    Err(failure) => Some((Err(code_of(failure)), None)),
                }
            });
            Ok(Box::pin(entries) as FsStream<Box<dyn DavDirEntry>>)
        })
    }

    fn metadata<'a>(
        &'a self,
        path: &'a DavPath,
        user: &'a User,
    ) -> FsFuture<'a, Box<dyn DavMetaData>> {
        Box::pin(async move {
            let facts = facts(&user.pool, &pool_path(path)?).await?;
            Ok(Box::new(facts) as Box<dyn DavMetaData>)
        })
    }

    fn create_dir<'a>(&'a self, path: &'a DavPath, user: &'a User) -> FsFuture<'a, ()> {
        Box::pin(async move {
            let path = pool_path(path)?;
            user.pool.make_dir(&path, false).await.map_err(code_of)
        })
    }

    fn remove_dir<'a>(&'a self, path: &'a DavPath, user: &'a User) -> FsFuture<'a, ()> {
        Box::pin(async move {
            let path = pool_path(path)?;
            if path.names().is_empty() {
                return Err(FsError::Forbidden); // a space is removed by who manages it
            }
            user.pool.remove(&path, true).await.map(drop).map_err(code_of)
        })
    }

    fn remove_file<'a>(&'a self, path: &'a DavPath, user: &'a User) -> FsFuture<'a, ()> {
        Box::pin(async move {
            user.pool.remove(&pool_path(path)?, false).await.map(drop).map_err(code_of)
        })
    }

    fn rename<'a>(
        &'a self,
        from: &'a DavPath,
        to: &'a DavPath,
        user: &'a User,
    ) -> FsFuture<'a, ()> {
        Box::pin(async move {
            let (from, to) = (pool_path(from)?, pool_path(to)?);
            if from.space() != to.space() {
                return Err(FsError::IsRemote);
            }
            user.pool.rename(&from, &to, false).await.map_err(code_of)
        })
    }

    fn copy<'a>(&'a self, from: &'a DavPath, to: &'a DavPath, user: &'a User) -> FsFuture<'a, ()> {
        Box::pin(async move {
            let (pool, from, to) = (&user.pool, pool_path(from)?, pool_path(to)?);
            if from.space() == to.space() {
                let copied = pool.copy_within(&from, &to, false, Condition::Always, None).await;
                let failed = copied.map_err(code_of)?.failed.into_iter().next();
                match failed {
                    None => return Ok(()),
                    Some(failed) if failed.lacks_holders() => {}
                    Some(failed) => return Err(code_of(failed.failure)),
                }
            }
            let source = pool.open_leased(&from).await.map_err(code_of)?;
            let put = PutOptions { bytes: Some(source.size()), ..PutOptions::default() };
            let attributes =
                Attributes { mtime: Some(source.attributes().mtime), ..Attributes::default() };
            let mut writer = pool.create(&to, &put, attributes).await.map_err(code_of)?;
            writer.append(&source).await.map_err(code_of)?;
            writer.set_metadata(source.metadata().clone());
            writer.finish().await.map_err(code_of).map(drop)
        })
    }

    fn set_modified<'a>(
        &'a self,
        path: &'a DavPath,
        time: SystemTime,
        user: &'a User,
    ) -> FsFuture<'a, ()> {
        Box::pin(async move {
            let mtime = Some(FileTime::of_system(time));
            let attributes = AttributesToSet { mtime, ..AttributesToSet::default() };
            let call = SetAttributes { path: pool_path(path)?, version: None, attributes };
            user.pool.set_attributes(&call).await.map_err(code_of)
        })
    }
}

/// A file that a request reads or writes.
struct OpenedFile {
    pool: Pool,
    path: PoolPath,
    /// It is used by one task, so the lock is never waited for; it makes the file one that may be shared.
    state: Mutex<State>,
}

enum State {
    /// The file is read at an offset, by a reader if one was begun there.
    Reading {
        file: File,
        at: u64,
        reader: Option<Box<Reader>>,
        /// The bytes at the offset that the reader gave already.
        given: Bytes,
    },
    /// The file is written.
    Writing(Box<Writer>),
    /// The file was written and is visible, or could not be written.
    Ended,
}

impl OpenedFile {
    fn reading(pool: &Pool, path: PoolPath, file: File) -> Self {
        let state = Mutex::new(State::Reading { file, at: 0, reader: None, given: Bytes::new() });
        Self { pool: pool.clone(), path, state }
    }

    fn writing(pool: &Pool, path: PoolPath, writer: Writer) -> Self {
        Self { pool: pool.clone(), path, state: Mutex::new(State::Writing(Box::new(writer))) }
    }

    fn state(&mut self) -> &mut State {
        self.state.get_mut().expect("no holder panics")
    }

    async fn write(&mut self, bytes: &[u8]) -> FsResult<()> {
        let State::Writing(writer) = self.state() else { return Err(FsError::Forbidden) };
        writer.write(bytes).await.map_err(code_of)
    }
}

impl fmt::Debug for OpenedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenedFile({})", self.path)
    }
}

impl DavFile for OpenedFile {
    fn metadata(&'_ mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        Box::pin(async move {
            let facts = facts(&self.pool, &self.path).await?;
            Ok(Box::new(facts) as Box<dyn DavMetaData>)
        })
    }

    fn write_buf(&'_ mut self, mut buf: Box<dyn Buf + Send>) -> FsFuture<'_, ()> {
        Box::pin(async move {
            while buf.has_remaining() {
                let len = buf.chunk().len();
                let bytes = buf.copy_to_bytes(len);
                self.write(&bytes).await?;
            }
            Ok(())
        })
    }

    fn write_bytes(&'_ mut self, buf: Bytes) -> FsFuture<'_, ()> {
        Box::pin(async move { self.write(&buf).await })
    }

    fn read_bytes(&'_ mut self, count: usize) -> FsFuture<'_, Bytes> {
        Box::pin(async move {
            let State::Reading { file, at, reader, given } = self.state() else {
                return Err(FsError::Forbidden);
            };
            if given.is_empty() {
                let reader = reader.get_or_insert_with(|| Box::new(file.read(*at..file.size())));
                let Some(part) = reader.next().await else { return Ok(Bytes::new()) };
                // The part holds memory that all reads share until it is dropped.
                *given = Bytes::copy_from_slice(&part.map_err(code_of)?);
            }
            let bytes = given.split_to(given.len().min(count));
            *at += bytes.len() as u64;
            Ok(bytes)
        })
    }

    fn seek(&'_ mut self, pos: SeekFrom) -> FsFuture<'_, u64> {
        Box::pin(async move {
            match self.state() {
                State::Reading { file, at, reader, given } => {
                    let to = match pos {
                        SeekFrom::Start(to) => Some(to),
                        SeekFrom::Current(by) => at.checked_add_signed(by),
                        SeekFrom::End(by) => file.size().checked_add_signed(by),
                    };
                    *at = to.ok_or(FsError::GeneralFailure)?;
                    (*reader, *given) = (None, Bytes::new());
                    Ok(*at)
                }
                State::Writing(writer) if pos == SeekFrom::Start(writer.written()) => {
                    Ok(writer.written())
                }
                State::Writing(_) | State::Ended => Err(FsError::NotImplemented),
            }
        })
    }

    fn flush(&'_ mut self) -> FsFuture<'_, ()> {
        Box::pin(async move {
            // The handler flushes once, when all of a body came; a body that broke off leaves nothing.
            match std::mem::replace(self.state(), State::Ended) {
                State::Writing(writer) => writer.finish().await.map(drop).map_err(code_of),
                state => {
                    *self.state() = state;
                    Ok(())
                }
            }
        })
    }
}
