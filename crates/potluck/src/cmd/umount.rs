//! `potluck umount`: ends a mount, and waits until files that were closed in it are in the pool.

use super::{Ending, mount, unpublished};
use crate::args::UmountArgs;
use crate::command_settings::CommandSettings;
use crate::output::{Output, name};
use potluck_mount::FoundRecord;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// How long the command waits for the end of the daemon before it tells the user so.
const SILENT: Duration = Duration::from_secs(2);
/// How long a mount that is busy is tried again: a program that is just ending, or between fork and exec, has files
/// open for a moment, and the kernel tells nobody when that is over.
const BUSY: Duration = Duration::from_secs(1);
/// The pause between two tries.
const AGAIN: Duration = Duration::from_millis(50);
/// What the command says when it waits.
const WAITS: &str = "waiting until what was closed is in the pool; programs in other mount namespaces may have 20 \
    seconds to close what they write";
const WAITS_FOR_PROGRAMS: &str = "waiting until programs that still have something open there have closed it, and what \
    was closed is in the pool";

pub async fn run(
    args: &UmountArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let dir = mount::mount_point(&args.dir)?;
    let failed = |why: io::Error| {
        let what = format!("cannot unmount {}: {why}", dir.display());
        match why.kind() {
            io::ErrorKind::ResourceBusy => Failure::new(ErrorKind::Retry, code::LOCAL_IO, what)
                .hint("a program has something open in it, or works in it"),
            _ => Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
                .hint("it takes fusermount3 (Debian: fuse3), and to be who mounted it"),
        }
    };
    // There are records of this user's mounts only.
    let record = FoundRecord::find(&settings.spool_dir(), &dir).map_err(failed)?;
    let was_mounted = potluck_mount::is_mounted(&dir).map_err(failed)?;
    if was_mounted {
        let began = Instant::now();
        loop {
            match end_mount(&dir, record.as_ref()) {
                Err(why) if why.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < BUSY => {
                    tokio::time::sleep(AGAIN).await;
                }
                ended => break ended.map_err(failed)?,
            }
        }
        if let Some(record) = &record {
            record.tell_unmounted().map_err(failed)?;
        }
    }
    let lost = match record {
        Some(record) => {
            // This call blocks until the daemon has ended.
            let taken = tokio::task::spawn_blocking(move || record.take_unpublished());
            let mut taken = std::pin::pin!(taken);
            let taken = match tokio::time::timeout(SILENT, &mut taken).await {
                Ok(taken) => taken,
                Err(_) => {
                    output.note(match was_mounted {
                        true => WAITS,
                        false => WAITS_FOR_PROGRAMS,
                    });
                    taken.await
                }
            };
            taken.map_err(io::Error::other).flatten().map_err(failed)?
        }
        None => Vec::new(),
    };
    unpublished::tell(&lost, &dir);
    let result = serde_json::json!({ "dir": dir, "was_mounted": was_mounted, "unpublished": lost });
    output.result(&result, |_| match was_mounted {
        true => String::new(),
        false => format!("no pool is mounted at {}", name(&dir.display().to_string())),
    });
    Ok(if lost.is_empty() { Ending::Done } else { Ending::Partial })
}

/// Unmounts the directory. A mount whose daemon is dead is detached even if programs have files open in it.
fn end_mount(dir: &Path, record: Option<&FoundRecord>) -> io::Result<()> {
    match potluck_mount::unmount(dir) {
        Err(why) if why.kind() == io::ErrorKind::ResourceBusy => {
            let is_served = record.map_or(Ok(false), FoundRecord::is_served)?;
            match !is_served && potluck_mount::detach_dead(dir)? {
                true => Ok(()),
                false => Err(why),
            }
        }
        done => done,
    }
}
