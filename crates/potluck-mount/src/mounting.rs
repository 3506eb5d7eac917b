//! Makes mounts, serves them, and ends them.

use crate::attaching::{AttachError, Attachment, attach, detach, is_mounted, unmount};
use crate::coherent_metadata::CoherentMetadata;
use crate::control_socket::{ControlSocket, MountQuestion, MountStatus};
use crate::file_system::FileSystem;
use crate::kernel_invalidation;
use crate::mount_point::MountPoint;
use crate::ops::KernelRequests;
use crate::record::{FoundRecord, MountRecord, RecordedMount, Unpublished};
use crate::spool::Spool;
use crate::write_limits::{WriteLimits, WriteOptions};
use fuser::{Config, Session, SessionACL};
use potluck_client::Pool;
use potluck_core::chunk::Digest;
use potluck_core::path::PoolPath;
use potluck_wire::env;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// The name of the file beside the records that is locked while a mount is attached.
const ATTACHING: &str = "attaching";
/// The number of threads that take requests from the kernel; requests that have to wait go to the runtime.
const THREADS: usize = 2;
/// The time for which programs that write may go on when the mount is asked to stop: less than service managers give a
/// daemon to end.
const CLOSING_LIMIT: Duration = Duration::from_secs(20);
/// The time between two checks whether files are being written.
const LOOK: Duration = Duration::from_millis(50);

/// The time within which the socket of a mount is removed that has ended.
const ENDED_WITHIN: Duration = Duration::from_millis(500);

/// The options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The pool, by the fingerprint of its certificate authority.
    pub pool: Digest,
    /// True if files may be mounted that this user has in another mount on this machine.
    pub again: bool,
    /// True if nothing can be changed.
    pub read_only: bool,
    /// True if other users may look into the mount, too.
    pub allow_other: bool,
    /// True if no program in the mount can be started.
    pub no_exec: bool,
    /// The directory of the spool, for files that are not written in order, and of the mounts' records.
    pub spool_dir: PathBuf,
    /// The most bytes that all files in the spool may have together.
    pub spool_limit: u64,
    /// The settings for files that are written in order.
    pub writing: WriteOptions,
}

/// A mount that is served by this process.
pub struct Mounted {
    files: Arc<FileSystem>,
    record: Arc<MountRecord>,
    dir: PathBuf,
    place: MountPoint,
    serving: JoinHandle<io::Result<()>>,
}

/// Mounts the directory `root` of a pool at the mount point `dir`. The mount is served when this returns.
pub fn mount(
    pool: Pool,
    root: &PoolPath,
    dir: &Path,
    options: &MountOptions,
) -> Result<Mounted, AttachError> {
    let about = RecordedMount {
        pid: std::process::id(),
        pool: options.pool,
        path: root.clone(),
        dir: dir.into(),
        read_only: options.read_only,
    };
    let record = MountRecord::take(&options.spool_dir, &about).map_err(|why| match why.kind() {
        io::ErrorKind::ResourceBusy => AttachError::Taken,
        _ => why.into(),
    })?;
    let served = attached_alone(&about, options)
        .and_then(|_until_attached| serve_kernel(pool, root, dir, options, &record));
    if served.is_err() {
        record.end();
    }
    let Serving { files, place, task } = served?;
    Ok(Mounted { files, record, dir: dir.into(), place, serving: task })
}

/// Makes sure that no other mount of this user shares files with this one, and returns a lock that keeps others from
/// being attached meanwhile.
///
/// Errors: [`AttachError::MountedElsewhere`], unless that is asked for.
fn attached_alone(mount: &RecordedMount, options: &MountOptions) -> Result<File, AttachError> {
    let mut lock = OpenOptions::new();
    lock.write(true).create(true).truncate(false).mode(0o600);
    let lock = lock.open(options.spool_dir.join(ATTACHING))?;
    lock.lock()?;
    if options.again {
        return Ok(lock);
    }
    for other in FoundRecord::served(&options.spool_dir)? {
        let other = other.mount;
        // One that is not mounted any more still publishes what was written.
        if other.dir != mount.dir && other.shares_files_with(mount) && is_mounted(&other.dir)? {
            return Err(AttachError::MountedElsewhere { path: other.path, dir: other.dir });
        }
    }
    Ok(lock)
}

struct Serving {
    files: Arc<FileSystem>,
    place: MountPoint,
    task: JoinHandle<io::Result<()>>,
}

fn serve_kernel(
    pool: Pool,
    root: &PoolPath,
    dir: &Path,
    options: &MountOptions,
    record: &Arc<MountRecord>,
) -> Result<Serving, AttachError> {
    let spool = Spool::new(options.spool_dir.clone(), options.spool_limit);
    let limits = WriteLimits::new(options.writing);
    let files = Arc::new(FileSystem::new(pool, root.clone(), spool, limits, Arc::clone(record)));
    env::spawn(CoherentMetadata::follow(Arc::downgrade(files.metadata())));
    env::spawn(FileSystem::give_locks_back(Arc::downgrade(&files)));
    env::spawn(FileSystem::publish_left(Arc::downgrade(&files)));
    let MountOptions { read_only, allow_other, no_exec, .. } = *options;
    let source = root.to_string();
    let device = attach(dir, &Attachment { source, read_only, allow_other, no_exec })?;
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    config.acl = if allow_other { SessionACL::All } else { SessionACL::Owner };
    let ops = KernelRequests::new(Arc::clone(&files), Handle::current());
    let served = || {
        let session = Session::from_fd(ops, device, config.acl, config)?;
        kernel_invalidation::keep_true(&files, session.notifier())?;
        let place = MountPoint::find(dir)?;
        Ok(Serving { files, place, task: spawn_blocking(move || session.run()) })
    };
    served().inspect_err(|_| {
        let _ = detach(dir);
    })
}

impl Mounted {
    /// Answers commands that ask about the mount, until it ends. `looked` returns the bytes that were found in lookaside
    /// trees, after it has looked at the list of them again where that is asked for. A mount that cannot be spoken to
    /// serves all the same.
    pub fn answer(&self, looked: impl Fn(MountQuestion) -> u64 + Send + Sync + 'static) {
        let socket = match ControlSocket::bind(&self.record.socket()) {
            Ok(socket) => socket,
            Err(why) => return tracing::warn!("commands cannot speak to this mount: {why}"),
        };
        let (files, ended) = (Arc::downgrade(&self.files), Arc::downgrade(&self.files));
        let answer = move |question| {
            let from_lookaside = looked(question);
            files.upgrade().map(|files| MountStatus { from_lookaside, ..files.status() })
        };
        env::spawn(async move {
            let is_over = async {
                while ended.upgrade().is_some_and(|files| !files.has_ended()) {
                    tokio::time::sleep(ENDED_WITHIN).await;
                }
            };
            tokio::select! {
                () = socket.serve(answer) => {}
                () = is_over => {}
            }
        });
    }

    /// Serves until somebody unmounts the directory or `stopped` completes, and then publishes the files that were
    /// closed. Returns the files that are not in the pool as they were written; the mount's record names them, too.
    ///
    /// When `stopped` completes the directory is unmounted. Programs that write may go on with their open files for
    /// [`CLOSING_LIMIT`], or until the future that `stopped_again` makes completes. So may those that have the mount in
    /// another mount namespace when it is unmounted in that of this process.
    pub async fn serve<F: Future<Output = ()>>(
        mut self,
        stopped: impl Future<Output = ()>,
        stopped_again: impl FnOnce() -> F,
    ) -> io::Result<Vec<Unpublished>> {
        let mut stopped = std::pin::pin!(stopped);
        let served = tokio::select! {
            ended = &mut self.serving => ended.map_err(io::Error::other)?,
            () = is_left(&self.place, &self.record) => {
                tracing::info!("unmounted here: copies of the mount in other namespaces are answered no more");
                tokio::select! {
                    () = self.publish_for_good() => {}
                    () = &mut stopped => {}
                }
                return Ok(self.record.end());
            }
            () = &mut stopped => {
                let ended_well = async {
                    self.unmount_for_good().await;
                    self.publish_for_good().await;
                };
                tokio::select! {
                    () = ended_well => {}
                    () = stopped_again() => {}
                }
                return Ok(self.record.end());
            }
        };
        if let Err(why) = &served {
            tracing::error!("the kernel's requests cannot be taken any more: {why}");
        }
        // A connection that was cut leaves a dead mount, with files that programs have not closed. A mount that is
        // there is this one, for another process could only mount there with the record, which this process has locked.
        let dir = self.dir.clone();
        let cut = spawn_blocking(move || match is_mounted(&dir)? {
            true => detach(&dir).map(|()| true),
            false => Ok(false),
        });
        let is_cut = cut.await.map_err(io::Error::other).flatten().unwrap_or_else(|why| {
            tracing::error!("cannot take the mount away: {why}");
            true
        });
        tokio::select! {
            () = self.files.publish_closed(!is_cut) => {}
            () = &mut stopped => {}
        }
        let unpublished = self.record.end();
        served.map(|()| unpublished)
    }

    /// Unmounts the directory, whether programs have something open in it or not.
    async fn unmount_for_good(&self) {
        let dir = self.dir.clone();
        let unmounted = spawn_blocking(move || match unmount(&dir) {
            Err(why) if why.kind() == io::ErrorKind::ResourceBusy => detach(&dir),
            // Somebody else detached it first.
            Err(_) if !is_mounted(&dir)? => Ok(()),
            done => done,
        });
        if let Err(why) = unmounted.await.map_err(io::Error::other).flatten() {
            tracing::error!("cannot unmount {}: {why}", self.dir.display());
        }
    }

    /// Waits for programs that write, and publishes what was closed.
    async fn publish_for_good(&self) {
        let has_ended = || self.serving.is_finished() || !self.files.is_written();
        if !has_ended() {
            tracing::warn!(
                "files are being written: {} seconds are left to close them; a second signal ends the mount at once",
                CLOSING_LIMIT.as_secs()
            );
        }
        let all_closed = async {
            while !has_ended() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(CLOSING_LIMIT, all_closed).await;
        self.files.publish_closed(self.serving.is_finished()).await;
    }
}

/// Waits until the mount is left to other namespaces; never ends where that cannot be seen.
async fn is_left(place: &MountPoint, record: &MountRecord) {
    if let Err(why) = place.is_left(record).await {
        tracing::warn!("whether the mount is unmounted cannot be seen: {why}");
        std::future::pending().await
    }
}
