//! `potluck mount`: mounts a directory of a pool as a file system.

mod background;

use super::{Ending, lookaside, unpublished};
use crate::args::MountArgs;
use crate::command_settings::CommandSettings;
use crate::output::{Output, name};
use crate::signals;
use potluck_client::{ChunkCache, Pool};
use potluck_core::path::PoolPath;
use potluck_lookaside::LookasideTrees;
use potluck_mount::{AttachError, FoundRecord, MountOptions, MountQuestion, Mounted, WriteOptions};
use potluck_wire::control::EntryKind;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::write_private;
use potluck_wire::private_dir;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The size in bytes of a mount's cache in memory, which holds segments that were read at random.
const CACHE_IN_MEMORY: usize = 32 << 20;

/// The facts about a mount that are reported when it serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MountServes {
    /// The number of the process that serves it.
    pub pid: u32,
    /// The directory of the pool.
    pub path: String,
    /// The directory at which it is mounted.
    pub dir: PathBuf,
    /// The file to which its daemon logs; `None` if that is standard error.
    pub log: Option<PathBuf>,
}

pub async fn run(
    args: MountArgs,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let dir = mount_point(&args.dir)?;
    if args.reports_start {
        return background::serve(args, client, settings, &dir).await;
    }
    // Signals are handled from before the mount is reported as ready.
    let (stopped, _hangups) = signals::daemon_signals();
    let mut stopped = Box::pin(stopped);
    tokio::select! {
        prepared = prepare(&args, client, settings, output, &dir) => prepared?,
        () = &mut stopped => return Ok(Ending::Interrupted),
    }
    if !args.foreground {
        return super::until_stopped_alone(background::start(settings, output, &dir)).await;
    }
    let mounted = attach(&args, client, settings, &dir)?;
    let serves = announce(&args, &dir, None)?;
    output.result(&serves, |serves| {
        let [path, dir] = [serves.path.to_string(), dir.display().to_string()];
        format!("{} is mounted at {}", name(&path), name(&dir))
    });
    serve(mounted, client, settings, stopped, &dir).await
}

/// Checks whether the directory can be mounted. Removes what a dead mount left there, and tells the user what it had
/// not published.
async fn prepare(
    args: &MountArgs,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
    dir: &Path,
) -> Result<(), Failure> {
    let failed = |why: io::Error| cannot_mount(args, dir, &AttachError::Local(why));
    let record = FoundRecord::find(&settings.spool_dir(), dir).map_err(failed)?;
    let is_served = match &record {
        Some(record) => record.is_served().map_err(failed)?,
        None => false,
    };
    if !is_served && potluck_mount::detach_dead(dir).map_err(failed)? {
        output.note(&format!("the mount at {} had died and was taken away", dir.display()));
    }
    if potluck_mount::is_mounted(dir).map_err(failed)? {
        let what = format!("a pool is mounted at {} already", dir.display());
        return Err(Failure::new(ErrorKind::Conflict, code::EXISTS, what)
            .hint(format!("`potluck umount {}` first", dir.display())));
    }
    let is_empty = fs::read_dir(dir).map_err(failed)?.next().is_none();
    if !is_empty {
        let what = format!("{} is not empty: what is in it would be hidden", dir.display());
        return Err(Failure::new(ErrorKind::Conflict, code::EXISTS, what)
            .hint("mount at an empty directory"));
    }
    match client.kind(&args.path).await? {
        Some(EntryKind::Dir) => {}
        Some(EntryKind::File | EntryKind::Link) => {
            let what = format!("{} is no directory", args.path);
            return Err(Failure::new(ErrorKind::Usage, code::WRONG_KIND, what)
                .hint("mount the directory that it is in"));
        }
        None => {
            let what = format!("nothing is at {}", args.path);
            return Err(Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
                .hint(format!("make it with `potluck mkdir -p {}`", args.path)));
        }
    }
    if let Some(record) = record.filter(|_| !is_served) {
        unpublished::tell(&record.take_unpublished().map_err(failed)?, dir);
    }
    Ok(())
}

/// Mounts the directory.
fn attach(
    args: &MountArgs,
    client: &Pool,
    settings: &CommandSettings,
    dir: &Path,
) -> Result<(Mounted, Arc<LookasideTrees>), Failure> {
    let spool_dir = settings.spool_dir();
    let spool_limit = match args.spool_max.or(settings.spool_max) {
        Some(most) => most,
        None => half_of_what_is_free(&spool_dir)
            .map_err(|why| cannot_mount(args, dir, &AttachError::Local(why)))?,
    };
    let pool = settings.identity()?.pool();
    let MountArgs { again, read_only, allow_other, no_exec, .. } = *args;
    let asked = settings.writing;
    let writing = WriteOptions {
        protocol: args.write_protocol.unwrap_or(asked.protocol),
        window: args.write_window.unwrap_or(asked.window),
        temporary_size: args.temporary_size.unwrap_or(asked.temporary_size),
        close: args.close.unwrap_or(asked.close),
    };
    let options = MountOptions {
        pool,
        again,
        read_only,
        allow_other,
        no_exec,
        spool_dir,
        spool_limit,
        writing,
    };
    let mut cache = ChunkCache::in_memory(CACHE_IN_MEMORY);
    let cache_max = args.cache_max.or(settings.cache_max).filter(|most| *most > 0);
    if let Some(most) = cache_max {
        let and_in = cache.and_in(&settings.chunk_cache_dir(), most);
        cache = and_in.map_err(|why| cannot_mount(args, dir, &AttachError::Local(why)))?;
    }
    // From here on the mount waits for a manager that is away as long as in the middle of a transfer.
    let (client, trees) = lookaside::looking(client.under_way().with_cache(cache), settings);
    let mounted = potluck_mount::mount(client, &args.path, dir, &options)
        .map_err(|why| cannot_mount(args, dir, &why))?;
    let (counted, list) = (Arc::clone(&trees), lookaside::list(settings));
    mounted.answer(move |question| {
        if question == MountQuestion::LookAgain {
            lookaside::count(&counted, &list);
            lookaside::look_again(&counted, &list);
        }
        counted.found()
    });
    Ok((mounted, trees))
}

fn half_of_what_is_free(dir: &Path) -> io::Result<u64> {
    private_dir::make(dir)?;
    let disk = rustix::fs::statvfs(dir)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize) / 2)
}

/// Returns the facts about the mount, and writes them to the ready file if one was asked for.
fn announce(args: &MountArgs, dir: &Path, log: Option<PathBuf>) -> Result<MountServes, Failure> {
    let (pid, path, dir) = (std::process::id(), args.path.to_string(), dir.to_owned());
    let serves = MountServes { pid, path, dir, log };
    if let Some(file) = &args.ready_file {
        let text = serde_json::to_vec(&serves).expect("plain data");
        write_private(file, &text).map_err(|why| {
            let what = format!("cannot write {}: {why}", file.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        })?;
    }
    Ok(serves)
}

/// Serves the mount until it ends, and logs which files are not in the pool as they were written.
async fn serve(
    (mounted, trees): (Mounted, Arc<LookasideTrees>),
    client: &Pool,
    settings: &CommandSettings,
    stopped: impl Future<Output = ()>,
    dir: &Path,
) -> Result<Ending, Failure> {
    let served = mounted.serve(stopped, || signals::daemon_signals().0).await;
    client.settle().await;
    lookaside::count(&trees, &lookaside::list(settings));
    let lost = served.map_err(|why| {
        let what = format!("the mount at {} failed: {why}", dir.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
    })?;
    unpublished::log(&lost);
    Ok(if lost.is_empty() { Ending::Done } else { Ending::Partial })
}

/// Returns a directory's path as lists of mounts name it.
pub fn mount_point(dir: &Path) -> Result<PathBuf, Failure> {
    potluck_mount::mount_point(dir).map_err(|why| {
        let what = format!("“{}” is no directory to mount at: {why}", dir.display());
        let kind = match why.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Other,
        };
        let hint = match dir.to_str().is_some_and(PoolPath::is_pool_path) {
            true => {
                "name the directory that it is mounted at: `findmnt -t fuse.potluck` lists them"
            }
            false => "make it first, with `mkdir`",
        };
        Failure::new(kind, code::LOCAL_IO, what).hint(hint)
    })
}

fn cannot_mount(args: &MountArgs, dir: &Path, why: &AttachError) -> Failure {
    let what = format!("cannot mount {} at {}: {why}", args.path, dir.display());
    let (kind, hint) = match why {
        AttachError::MountedElsewhere { dir, .. } => {
            let hint = format!(
                "use that, or `potluck umount {}` first; with --again it is mounted twice, and a file that is moved from \
                 one mount to itself in the other is lost",
                dir.display()
            );
            return Failure::new(ErrorKind::Conflict, code::EXISTS, what).hint(hint);
        }
        AttachError::NoDevice => (ErrorKind::Other, "load the kernel's module: sudo modprobe fuse"),
        AttachError::DeviceNotAllowed => {
            (ErrorKind::Auth, "root may let all users do so: sudo chmod 666 /dev/fuse")
        }
        AttachError::NoHelper(_) => {
            (ErrorKind::Auth, "other users than root need fusermount3 (Debian: fuse3)")
        }
        AttachError::DirNotAllowed(_) => (ErrorKind::Auth, "the directory must be yours"),
        AttachError::OthersNotAllowed => (
            ErrorKind::Auth,
            "root may add a line `user_allow_other` to /etc/fuse.conf; without --allow-other only you look in",
        ),
        AttachError::Taken => (ErrorKind::Retry, "`potluck umount` waits for its end"),
        AttachError::Local(why) if why.kind() == io::ErrorKind::NotFound => {
            (ErrorKind::NotFound, "make the directory first, with `mkdir`")
        }
        AttachError::Local(_) | AttachError::Refused(_) => {
            (ErrorKind::Other, "the directory must be yours, and empty")
        }
    };
    Failure::new(kind, code::LOCAL_IO, what).hint(hint)
}
