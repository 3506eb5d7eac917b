//! Checkpoints of directories in a mounted pool. The mount takes requests by an extended attribute, as from any
//! program.

use potluck_core::checkpoint::CheckpointId;
use potluck_wire::control::CheckpointCommitted;
use potluck_wire::error::{ErrorKind, Failure, code};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The extended attribute of a directory by which checkpoints begin and end.
const ATTRIBUTE: &str = "user.potluck.ckpt";
/// The extended attribute that says which other mounts had files open at the last commit.
const REFUSAL: &str = "user.potluck.ckpt-refusal";

/// Begins a checkpoint, or joins the given one, for a directory that need not exist.
pub fn begin(dir: &Path, id: Option<CheckpointId>) -> Result<CheckpointId, Failure> {
    let verb = id.map_or("begin".to_owned(), |id| format!("join {id}"));
    if dir.symlink_metadata().is_ok() {
        check_mounted(dir)?;
        ask(dir, &verb)?;
    } else {
        let name = dir.file_name().and_then(|name| name.to_str()).ok_or_else(|| not_named(dir))?;
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.map_or_else(|| PathBuf::from("."), Path::to_owned);
        check_mounted(&above)?;
        ask(&above, &format!("{verb} {name}")).map_err(|mut failure| {
            failure.message = format!("{} ({})", failure.message, dir.display());
            failure
        })?;
    }
    open_in(dir)?.ok_or_else(|| failure(dir, "has no checkpoint", Errno::NODATA))
}

/// Commits the checkpoint of a directory, so that what is staged becomes visible.
pub fn commit(dir: &Path, even_if_open: bool) -> Result<CheckpointCommitted, Failure> {
    check_mounted(dir)?;
    let before = open_in(dir)?.is_none();
    let request = if even_if_open { "commit even-if-open" } else { "commit" };
    ask(dir, request).map_err(|failure| refused_by_others(dir).unwrap_or(failure))?;
    Ok(CheckpointCommitted { target: dir.display().to_string(), before })
}

/// Aborts the checkpoint of a directory, so that what is staged is removed.
pub fn abort(dir: &Path) -> Result<(), Failure> {
    check_mounted(dir)?;
    ask(dir, "abort")
}

/// Refuses a directory of another file system, which could store the attribute without acting on it. A directory of a
/// pool always has the attribute of its ack level.
fn check_mounted(dir: &Path) -> Result<(), Failure> {
    match getxattr(dir, "user.potluck.ack", &mut [0; 64]) {
        Ok(_) => Ok(()),
        Err(Errno::NODATA) => Err(failure(dir, "has no checkpoints", Errno::OPNOTSUPP)),
        Err(why) => Err(failure(dir, "has no checkpoints", why)),
    }
}

/// Returns the checkpoint that is open for a directory of a mount, if one is.
fn open_in(dir: &Path) -> Result<Option<CheckpointId>, Failure> {
    let mut id = [0; 64];
    match getxattr(dir, ATTRIBUTE, &mut id) {
        Ok(len) => Ok(std::str::from_utf8(&id[..len]).ok().and_then(|text| text.parse().ok())),
        Err(Errno::NODATA) => Ok(None),
        Err(why) => Err(failure(dir, "cannot be asked for its checkpoint", why)),
    }
}

/// Returns the failure of a commit that was refused because other mounts have files open.
fn refused_by_others(dir: &Path) -> Option<Failure> {
    let mut refusal = [0; 4096];
    let len = getxattr(dir, REFUSAL, &mut refusal).ok()?;
    let why = String::from_utf8_lossy(&refusal[..len]);
    let what = format!("{} refuses to commit: {why}", dir.display());
    Some(Failure::new(ErrorKind::Conflict, code::CLAIMED, what).hint(
        "have them closed and run the same command again, or commit without them by --even-if-open",
    ))
}

fn ask(dir: &Path, request: &str) -> Result<(), Failure> {
    let asked = setxattr(dir, ATTRIBUTE, request.as_bytes(), XattrFlags::empty());
    asked.map_err(|why| failure(dir, &format!("refuses to {request}"), why))
}

fn not_named(dir: &Path) -> Failure {
    let what = format!("{} is no name of a directory in a pool", dir.display());
    Failure::new(ErrorKind::Usage, code::BAD_PATH, what).hint("names in the pool are UTF-8")
}

/// Makes the failure that an error number of the mount stands for.
fn failure(dir: &Path, refusal: &str, why: Errno) -> Failure {
    let what = |meaning: &str| format!("{} {refusal}: {meaning}", dir.display());
    match why {
        Errno::BUSY => Failure::new(
            ErrorKind::Conflict,
            code::CLAIMED,
            what("programs have files open there that they write, or another checkpoint is open"),
        )
        .hint("close them, and run the same command again"),
        Errno::NODATA => Failure::new(
            ErrorKind::NotFound,
            code::NO_CHECKPOINT,
            what("no checkpoint was begun there in this mount"),
        )
        .hint("`potluck ckpt begin DIR` begins one; `potluck ckpt ls` lists those that are open"),
        Errno::STALE => Failure::new(
            ErrorKind::NotFound,
            code::NO_CHECKPOINT,
            what("the checkpoint was committed or aborted elsewhere, or it expired"),
        )
        .hint("look at the directory, which is what everybody sees again"),
        Errno::OPNOTSUPP | Errno::NOTTY => {
            Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what("it is in no mounted pool"))
                .hint("mount one with `potluck mount`, or name pot://SPACE/DIR")
        }
        Errno::PERM | Errno::ACCESS => {
            Failure::new(ErrorKind::Auth, code::NO_RIGHT, what("it may not be written to"))
                .hint("`potluck space who SPACE` shows who may")
        }
        Errno::NOENT => Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what("nothing is there"))
            .hint("make the directory above it first"),
        Errno::NOTDIR | Errno::EXIST => {
            Failure::new(ErrorKind::Conflict, code::WRONG_KIND, what("it is no directory"))
                .hint("name a directory, or one that is not there yet")
        }
        why => Failure::new(ErrorKind::Other, code::LOCAL_IO, what(&why.to_string()))
            .hint("the log of the mount says more"),
    }
}
