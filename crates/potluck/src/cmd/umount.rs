//! `potluck umount`: end a mount.

use super::{Ending, lend};
use crate::args::UmountArgs;
use crate::output::Output;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::io;

pub fn run(args: &UmountArgs, output: &Output) -> Result<Ending, Failure> {
    let dir = lend::absolute(&args.dir)?;
    let failed = |why: io::Error| {
        let what = format!("cannot unmount {}: {why}", dir.display());
        match why.kind() {
            io::ErrorKind::ResourceBusy => Failure::new(ErrorKind::Retry, code::LOCAL_IO, what)
                .hint("a program has something open in it, or works in it"),
            _ => Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
                .hint("it takes fusermount3 (Debian: fuse3)"),
        }
    };
    let mounted = potluck_mount::is_mounted(&dir).map_err(failed)?;
    if mounted && !potluck_mount::detach_stale(&dir).map_err(failed)? {
        potluck_mount::unmount(&dir).map_err(failed)?;
    }
    output.result(&serde_json::json!({ "dir": dir, "was_mounted": mounted }), |_| match mounted {
        true => String::new(),
        false => format!("no pool is mounted at {}", dir.display()),
    });
    Ok(Ending::Done)
}
