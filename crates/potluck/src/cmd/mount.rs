//! `potluck mount`: a directory of a pool as a file system.

use super::{Ending, lend};
use crate::args::MountArgs;
use crate::command_settings::CommandSettings;
use crate::output::Output;
use crate::signals;
use potluck_client::Pool;
use potluck_mount::MountOptions;
use potluck_wire::control::EntryKind;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::write_private;

pub async fn run(
    args: MountArgs,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let (stopped, _hangups) = signals::daemon_signals();
    let dir = lend::absolute(&args.dir)?;
    let local = |why: std::io::Error| {
        let what = format!("cannot mount {} at {}: {why}", args.path, dir.display());
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
            .hint("the directory must exist, and be yours; other users than root need fusermount3 (Debian: fuse3)")
    };
    if potluck_mount::detach_stale(&dir).map_err(local)? {
        output.note(&format!(
            "the mount at {} had died and was taken away: what was not closed then is lost",
            dir.display()
        ));
    }
    if potluck_mount::is_mounted(&dir).map_err(local)? {
        let what = format!("a pool is mounted at {} already", dir.display());
        return Err(Failure::new(ErrorKind::Conflict, code::EXISTS, what)
            .hint(format!("`potluck umount {}` first", dir.display())));
    }
    match client.kind(&args.path).await? {
        Some(EntryKind::Dir) => {}
        Some(EntryKind::File) => {
            let what = format!("{} is a file", args.path);
            return Err(Failure::new(ErrorKind::Usage, code::WRONG_KIND, what)
                .hint("mount the directory that it is in"));
        }
        None => {
            let what = format!("nothing is at {}", args.path);
            return Err(Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
                .hint(format!("make it with `potluck mkdir -p {}`", args.path)));
        }
    }
    let options = MountOptions {
        read_only: args.read_only,
        allow_other: args.allow_other,
        spool_dir: settings.cache_dir.join("spool"),
    };
    // From here on a manager that is away is waited for as in the middle of a transfer.
    let mounted =
        potluck_mount::mount(client.under_way(), &args.path, &dir, &options).map_err(local)?;
    let said = serde_json::json!({ "pid": std::process::id(), "path": args.path, "dir": dir });
    if let Some(file) = &args.ready_file {
        write_private(file, said.to_string().as_bytes()).map_err(local)?;
    }
    output.result(&said, |_| format!("{} is mounted at {}", args.path, dir.display()));
    mounted.serve(stopped).await.map_err(local)?;
    client.settle().await;
    Ok(Ending::Done)
}
