//! Pools for programs without an asynchronous runtime: every call waits, and may be made from any number of threads.
//!
//! Only types of this crate and of the standard library cross this face: paths are text, moments nanoseconds since 1970, and
//! failures [`PoolError`]s. None of its calls may be made inside of an asynchronous runtime.
//!
//! ```no_run
//! use potluck_client::blocking::{BlockingPool, FileToWrite};
//!
//! let pool = BlockingPool::connect(None)?;
//! let mut writer = pool.create("pot://lab/run-7/log", &FileToWrite::default())?;
//! writer.write(b"step 1\n")?;
//! writer.finish()?; // everybody sees it
//! let file = pool.open("pot://lab/run-7/log")?;
//! let mut step = [0; 4];
//! assert_eq!((file.read_into(0, &mut step)?, &step), (4, b"step"));
//! # Ok::<(), potluck_client::PoolError>(())
//! ```

mod checkpoint;

pub use checkpoint::BlockingCheckpoint;

use crate::attributes::Attributes;
use crate::file::File;
use crate::pool::Pool;
use crate::pool_error::PoolError;
use crate::progress::Quiet;
use crate::write::options::PutOptions;
use crate::writer::Writer;
use potluck_core::attributes::FileTime;
use potluck_core::ids::VersionId;
use potluck_core::path::{BadPath, PoolPath};
use potluck_core::policy::{Override, Policy};
use potluck_wire::control::{
    Condition, EntryKind, ListedEntry, NotCopied, PolicySet, RoomRelease, RoomReserve,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The time between two looks at whether the caller still waits.
const INTERRUPTION_CHECK: Duration = Duration::from_millis(100);
/// The stack of each thread of the runtime, in bytes; only what is used takes memory.
const STACK: usize = 8 << 20;

/// Says, on the thread that made the call, whether the caller no longer waits for it.
type IsInterrupted = dyn Fn() -> bool + Send + Sync;

/// A client of one pool whose calls wait. Clones share the connections and the memory.
#[derive(Clone)]
pub struct BlockingPool {
    pool: Pool,
    runtime: Arc<Runtime>,
    is_interrupted: Arc<IsInterrupted>,
}

/// The kind of what is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolEntryKind {
    /// A file is there.
    File,
    /// A directory or a space is there.
    Directory,
    /// A symbolic link is there.
    Link,
}

/// The facts about a path, in a listing as by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolEntry {
    /// The whole path, as `pot://SPACE/NAMES`.
    pub path: String,
    /// The kind of the entry.
    pub kind: PoolEntryKind,
    /// The size of a file in bytes; 0 for a directory.
    pub size: u64,
    /// The time at which the content was modified, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// The time of the last change of content, name or attributes, in nanoseconds since 1970.
    pub changed_ns: i64,
    /// The version of a file: another number means other content.
    pub version: Option<u64>,
    /// The digest of a file's content in hexadecimal digits, which is the same for the same bytes.
    pub digest: Option<String>,
    /// The path to which a link leads.
    pub link_target: Option<String>,
}

/// The rule for a file that may be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// The file replaces whatever is there.
    #[default]
    Always,
    /// Nothing may be there.
    Never,
    /// The file must be of this version.
    OnlyVersion(u64),
}

/// The facts that a writer sets of a file, beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileToWrite {
    /// What may happen to a file that is there.
    pub overwrite: Overwrite,
    /// The bytes of the file, if they are known: they are reserved at once.
    pub size: Option<u64>,
    /// The time at which the content was modified, in nanoseconds since 1970; `None` for the time of the commit.
    pub modified_ns: Option<i64>,
}

impl BlockingPool {
    /// Connects as the user who runs this program, as [`Pool::connect`] does.
    pub fn connect(pool: Option<&str>) -> Result<Self, PoolError> {
        Self::of(Pool::connect(pool)?)
    }

    /// Makes a waiting client of another, with a runtime of its own.
    pub fn of(pool: Pool) -> Result<Self, PoolError> {
        let workers =
            std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers).thread_stack_size(STACK).thread_name("potluck");
        let runtime = builder.enable_all().build().map_err(|why| {
            Failure::new(ErrorKind::Other, code::LOCAL_IO, format!("no threads can start: {why}"))
        })?;
        Ok(Self { pool, runtime: Arc::new(runtime), is_interrupted: Arc::new(|| false) })
    }

    /// Returns this client with calls that end early, as [interrupted](crate::PoolErrorReason::Interrupted), when
    /// `is_interrupted` says so. It is asked on the thread of the call, ten times a second.
    pub fn interrupted_by(&self, is_interrupted: Arc<IsInterrupted>) -> Self {
        Self { is_interrupted, ..self.clone() }
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, PoolError> {
        self.runtime.block_on(async {
            tokio::pin!(call);
            loop {
                match tokio::time::timeout(INTERRUPTION_CHECK, &mut call).await {
                    Ok(done) => return done.map_err(PoolError::from),
                    Err(_) if (self.is_interrupted)() => return Err(PoolError::interrupted()),
                    Err(_) => {}
                }
            }
        })
    }

    /// Opens a file for reading. It stays readable as long as it is open, though it is replaced or removed.
    pub fn open(&self, path: &str) -> Result<BlockingFile, PoolError> {
        let path = parsed(path)?;
        let file = self.wait(self.pool.open_leased(&path))?;
        Ok(BlockingFile { pool: self.clone(), file })
    }

    /// Opens files side by side, for one read of each; the results are in the order of the paths.
    pub fn open_all(
        &self,
        paths: &[String],
    ) -> Result<Vec<Result<BlockingFile, PoolError>>, PoolError> {
        let opening = paths.iter().map(|path| async {
            let path = parsed(path)?;
            self.pool.open(&path).await
        });
        let opened = self.wait(async { Ok(side_by_side(opening).await) })?;
        let blocking = |file| BlockingFile { pool: self.clone(), file };
        Ok(opened.into_iter().map(|file| file.map(blocking).map_err(PoolError::from)).collect())
    }

    /// Reads ranges side by side, each from its offset into its buffer; the results say how many bytes there were.
    pub fn read_all(
        &self,
        reads: Vec<(&BlockingFile, u64, &mut [u8])>,
    ) -> Result<Vec<Result<usize, PoolError>>, PoolError> {
        let reading = reads.into_iter().map(|(file, at, into)| file.file.read_into(at, into));
        let read = self.wait(async { Ok(side_by_side(reading).await) })?;
        Ok(read.into_iter().map(|read| read.map_err(PoolError::from)).collect())
    }

    /// Begins to write a file, which becomes visible when it is finished.
    pub fn create(&self, path: &str, new: &FileToWrite) -> Result<BlockingWriter, PoolError> {
        let path = parsed(path)?;
        let condition = match new.overwrite {
            Overwrite::Always => Condition::Always,
            Overwrite::Never => Condition::IfAbsent,
            Overwrite::OnlyVersion(version) => Condition::IfVersion(VersionId(version)),
        };
        let options = PutOptions { condition, bytes: new.size, ..PutOptions::default() };
        let mtime = new.modified_ns.map(FileTime);
        let attributes = Attributes { mtime, ..Attributes::default() };
        let writer = self.wait(self.pool.create(&path, &options, attributes))?;
        Ok(BlockingWriter { pool: self.clone(), writer: Some(writer) })
    }

    /// Begins to write a file that has what is at `path` first; whole chunks of that are not moved. What is written becomes
    /// visible only if nobody else changed the file meanwhile.
    pub fn append(&self, path: &str) -> Result<BlockingWriter, PoolError> {
        let base = match self.open(path) {
            Ok(base) => base,
            Err(error) if error.code == code::NO_ENTRY => {
                let new = FileToWrite { overwrite: Overwrite::Never, ..FileToWrite::default() };
                return self.create(path, &new);
            }
            Err(error) => return Err(error),
        };
        let overwrite = Overwrite::OnlyVersion(base.version());
        let mut appended =
            self.create(path, &FileToWrite { overwrite, ..FileToWrite::default() })?;
        let writer = appended.writer.as_mut().expect("it was just begun");
        self.wait(writer.keep(&base.file, 0..base.size()))?;
        Ok(appended)
    }

    /// Returns what is known of a path, by one call to the manager.
    pub fn stat(&self, path: &str) -> Result<PoolEntry, PoolError> {
        let path = parsed(path)?;
        if path.space().is_empty() {
            return Ok(pool_root());
        }
        let stated = self.wait(self.pool.stat_unjudged(&path))?;
        Ok(found(&path, stated.entry))
    }

    /// Lists what is in a directory, a space, or with `pot://` the pool, in order of the names; with `recursive` all
    /// that is below. A file lists itself.
    pub fn list(&self, path: &str, recursive: bool) -> Result<Vec<PoolEntry>, PoolError> {
        let path = parsed(path)?;
        let listed = self.wait(self.pool.list(&path, recursive))?;
        Ok(listed.into_iter().map(|entry| found(&path, entry)).collect())
    }

    /// Makes a directory, or a space; with `parents` also the missing ones above it, and one that is there is no error.
    pub fn make_dir(&self, path: &str, parents: bool) -> Result<(), PoolError> {
        let path = parsed(path)?;
        self.wait(async {
            if path.names().is_empty() {
                let made = self.pool.create_space(path.space(), Policy::default()).await.map(drop);
                return match made {
                    Err(failure) if parents && failure.code == code::EXISTS => Ok(()),
                    made => made,
                };
            }
            self.pool.make_dir(&path, parents).await
        })
    }

    /// Removes a file, or with `recursive` a directory or space with all that is in it.
    pub fn remove(&self, path: &str, recursive: bool) -> Result<(), PoolError> {
        let path = parsed(path)?;
        self.wait(async {
            match path.names().is_empty() {
                true => self.pool.remove_space(path.space(), recursive).await,
                false => self.pool.remove(&path, recursive).await.map(drop),
            }
        })
    }

    /// Removes a directory or space that is empty.
    pub fn remove_dir(&self, path: &str) -> Result<(), PoolError> {
        let at = parsed(path)?;
        if at.names().is_empty() {
            return self.remove(path, false);
        }
        let is_dir = self.stat(path)?.kind == PoolEntryKind::Directory;
        let refused = |code, what: &str| {
            Err(Failure::new(ErrorKind::Conflict, code, format!("{path} {what}")).into())
        };
        match is_dir {
            false => refused(code::WRONG_KIND, "is no directory"),
            true if !self.wait(self.pool.list_page(&at, false, None))?.entries.is_empty() => {
                refused(code::NOT_EMPTY, "is not empty")
            }
            true => self.remove(path, true),
        }
    }

    /// Moves a file or directory inside its space, atomically and without moving its bytes. With `replace` a file takes the
    /// place of a file.
    pub fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), PoolError> {
        let (from, to) = (parsed(from)?, parsed(to)?);
        self.wait(self.pool.rename(&from, &to, !replace))
    }

    /// Copies a file or tree inside the pool. Its bytes move only where the pool cannot share them: between spaces that
    /// are sealed.
    pub fn copy(&self, from: &str, to: &str, recursive: bool) -> Result<(), PoolError> {
        let (from, to) = (parsed(from)?, parsed(to)?);
        self.wait(async {
            let copied =
                self.pool.copy_within(&from, &to, recursive, Condition::Always, None).await;
            let pairs = match copied {
                Ok(report) if report.failed.is_empty() => return Ok(()),
                Ok(report) if report.failed.iter().all(NotCopied::lacks_holders) => {
                    let source = |copy: &PoolPath| {
                        let below = &copy.names()[to.names().len()..];
                        from.join_all(below.iter().map(String::as_str))
                    };
                    let pair = |file: NotCopied| Ok((source(&file.path)?, file.path));
                    let pairs: Result<_, BadPath> = report.failed.into_iter().map(pair).collect();
                    pairs.map_err(bad_path)?
                }
                Ok(report) => {
                    return Err(report.failed.into_iter().next().expect("not empty").failure);
                }
                Err(failure) if failure.code == code::OTHER_KEY || from.space() != to.space() => {
                    vec![(from.clone(), to.clone())]
                }
                Err(failure) => return Err(failure),
            };
            let options = PutOptions::default();
            let through = self.pool.copy_through(&pairs, &to, &options, Arc::new(Quiet)).await?;
            through.failed.into_iter().next().map_or(Ok(()), |(_, failure)| Err(failure))
        })
    }

    /// Reserves room for `bytes` of files at and below a path for some time, and returns the identifier of the
    /// reservation. What is written there takes of it.
    pub fn reserve(&self, path: &str, bytes: u64, time: Duration) -> Result<String, PoolError> {
        let path = parsed(path)?;
        let for_ms = time.as_millis().try_into().unwrap_or(u64::MAX);
        let reserve = RoomReserve { path, bytes, for_ms };
        Ok(self.wait(self.pool.call(&reserve))?.id.to_string())
    }

    /// Ends a reservation; one that has ended stays so.
    pub fn release(&self, reservation: &str) -> Result<(), PoolError> {
        let id = reservation.parse().map_err(|_| {
            let what = format!("“{reservation}” is no identifier of a reservation");
            Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
        })?;
        self.wait(self.pool.call(&RoomRelease { id })).map(drop)
    }

    /// Has the pool purge all but the newest `count` steps of the directory at `path`.
    pub fn keep_last(&self, path: &str, count: u32) -> Result<(), PoolError> {
        let mut policy = Override::default();
        policy.series.keep_last = Some(count);
        let path = parsed(path)?;
        let set = PolicySet { path, policy, new_files_only: false, dry_run: false };
        self.wait(self.pool.call(&set)).map(drop)
    }

    /// Tells the manager what was measured and what was found damaged; waits at most two seconds. Call it before the
    /// program ends.
    pub fn settle(&self) {
        self.runtime.block_on(self.pool.settle());
    }
}

/// One version of a file that is open for reading; any number of threads may read it.
#[derive(Clone)]
pub struct BlockingFile {
    pool: BlockingPool,
    file: File,
}

impl BlockingFile {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// Returns the version that is read.
    pub fn version(&self) -> u64 {
        self.file.version().0
    }

    /// Reads from `offset` on until `into` is full or the file ends, and returns the number of bytes. They are verified.
    pub fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<usize, PoolError> {
        self.pool.wait(self.file.read_into(offset, into))
    }
}

/// A writer of one file. Nothing is visible before [`BlockingWriter::finish`]; a writer that is dropped before is aborted.
pub struct BlockingWriter {
    pool: BlockingPool,
    writer: Option<Writer>,
}

impl BlockingWriter {
    /// Adds bytes at the end. Those that fill chunks are on their way when this returns, as far as memory allows.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PoolError> {
        let writer = self.writer.as_mut().ok_or_else(over)?;
        self.pool.wait(writer.write(bytes))
    }

    /// Returns the number of bytes of the file so far.
    pub fn written(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::written)
    }

    /// Waits until donors have all that was written, as the ack level of the space says.
    pub fn flush(&mut self) -> Result<(), PoolError> {
        let writer = self.writer.as_mut().ok_or_else(over)?;
        self.pool.wait(writer.flush()).map(drop)
    }

    /// Makes the whole file visible, in place of any file at its path, and returns its version.
    pub fn finish(&mut self) -> Result<u64, PoolError> {
        let writer = self.writer.take().ok_or_else(over)?;
        self.pool.wait(writer.finish()).map(|version| version.0)
    }

    /// Gives the file up; nothing of it becomes visible.
    pub fn abort(&mut self) {
        // A writer that is dropped tells its session, which runs on.
        let _context = self.pool.runtime.enter();
        self.writer = None;
    }
}

impl Drop for BlockingWriter {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Runs work side by side and returns what comes of it in order.
async fn side_by_side<T>(work: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    use futures_util::StreamExt;
    futures_util::stream::iter(work).buffered(crate::file::UNITS_AT_ONCE).collect().await
}

fn over() -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, "the file was finished or given up")
}

fn bad_path(why: BadPath) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string())
}

fn parsed(path: &str) -> Result<PoolPath, Failure> {
    path.parse().map_err(bad_path)
}

fn pool_root() -> PoolEntry {
    PoolEntry {
        path: potluck_core::path::SCHEME.into(),
        kind: PoolEntryKind::Directory,
        size: 0,
        modified_ns: 0,
        changed_ns: 0,
        version: None,
        digest: None,
        link_target: None,
    }
}

fn found(root: &PoolPath, entry: ListedEntry) -> PoolEntry {
    let path = match (entry.path.as_str(), root.space()) {
        ("", _) => root.to_string(),
        (below, "") => format!("{root}{below}"),
        (below, _) => format!("{root}/{below}"),
    };
    PoolEntry {
        path,
        kind: match entry.kind {
            EntryKind::File => PoolEntryKind::File,
            EntryKind::Dir => PoolEntryKind::Directory,
            EntryKind::Link => PoolEntryKind::Link,
        },
        size: entry.size,
        modified_ns: entry.mtime.0,
        changed_ns: entry.changed.0,
        version: entry.version.map(|version| version.0),
        digest: entry.digest.map(|digest| digest.to_string()),
        link_target: entry.target.map(|target| target.as_str().to_owned()),
    }
}
