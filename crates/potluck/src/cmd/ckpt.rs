//! `potluck ckpt`: manages checkpoints, which are directories of files that become visible at one moment.

mod mounted;
mod purge;

use super::Ending;
use super::cp::{CopyPlace, PlacedAt};
use crate::args::{CkptArgs, CkptCommitArgs, CkptDirArgs, CkptJoinArgs};
use crate::command_settings::CommandSettings;
use crate::output::{Output, count, name, table};
use potluck_client::Pool;
use potluck_core::checkpoint::{CheckpointId, CommitStyle, StagedPlace};
use potluck_core::path::PoolPath;
use potluck_core::size::{duration, format_size};
use potluck_mount::WaitingFile;
use potluck_wire::control::{
    CheckpointAbout, CheckpointCommit, CheckpointCommitted, Checkpoints, Condition,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::ffi::OsStr;
use std::path::PathBuf;

/// The most files that wait on this machine and are named to a person.
const MOST_NAMED: usize = 20;

/// A checkpoint that was begun or joined.
#[derive(Debug, Serialize)]
struct Begun {
    id: CheckpointId,
    /// The directory, as the user named it.
    dir: String,
    /// The path to write to; for a directory of a mounted pool the directory itself.
    staging: String,
}

/// What `ckpt ls` tells.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    open: Checkpoints,
    /// The files that were closed in mounts of this user on this machine and that the pool does not have yet.
    waiting: Vec<WaitingFile>,
}

/// The place of a directory: in the pool, or in a mount on this machine.
enum DirPlace {
    Pool(PoolPath),
    Mounted(PathBuf),
}

impl DirPlace {
    fn of(text: &OsStr) -> Result<Self, Failure> {
        match CopyPlace::target(text)?.at {
            PlacedAt::Pool(path) => Ok(Self::Pool(path)),
            PlacedAt::Local(dir) => Ok(Self::Mounted(dir)),
            PlacedAt::Stdio => {
                let what = "standard input is no directory";
                Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                    .hint("name a directory of a mounted pool, or pot://SPACE/DIR"))
            }
        }
    }
}

pub async fn run(
    args: CkptArgs,
    client: &Pool,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    match args {
        CkptArgs::Begin(CkptDirArgs { dir }) => begin(&dir, None, client, output).await?,
        CkptArgs::Join(CkptJoinArgs { id, dir }) => begin(&dir, Some(id), client, output).await?,
        CkptArgs::Commit(CkptCommitArgs { at: CkptDirArgs { dir }, even_if_open }) => {
            let committed = match DirPlace::of(&dir)? {
                DirPlace::Mounted(dir) => mounted::commit(&dir, even_if_open)?,
                DirPlace::Pool(path) => commit(&path, even_if_open, client).await?,
            };
            output.result(&committed, |committed| match committed.before {
                true => format!("{} was committed before", committed.target),
                false => String::new(),
            });
        }
        CkptArgs::Abort(CkptDirArgs { dir }) => {
            match DirPlace::of(&dir)? {
                DirPlace::Mounted(dir) => mounted::abort(&dir)?,
                DirPlace::Pool(path) => {
                    let checkpoints = client.checkpoints().await?;
                    let id = open_for(&path, &checkpoints)?;
                    client.abort_checkpoint(path.space(), id).await?;
                }
            }
            output.result(&serde_json::json!({ "dir": dir.display().to_string() }), |_| {
                String::new()
            });
        }
        CkptArgs::Purge(args) => purge::purge(args, client, output).await?,
        CkptArgs::Ls => {
            let mut open = client.checkpoints().await?;
            // Files that writers share are listed by `potluck write-shared ls`.
            open.checkpoints.retain(|about| about.style != CommitStyle::Share);
            let waiting = waiting(settings)?;
            output.result(&Listed { open, waiting }, text);
        }
    }
    Ok(Ending::Done)
}

async fn begin(
    dir: &OsStr,
    id: Option<CheckpointId>,
    client: &Pool,
    output: &Output,
) -> Result<(), Failure> {
    let begun = match DirPlace::of(dir)? {
        DirPlace::Mounted(local) => {
            let id = mounted::begin(&local, id)?;
            let dir = local.display().to_string();
            Begun { id, staging: dir.clone(), dir }
        }
        DirPlace::Pool(target) => {
            let style = CommitStyle::Replace;
            let begun = match id {
                Some(id) => client.join_checkpoint(id, &target, style).await?,
                None => client.begin_checkpoint(&target, style).await?,
            };
            let (dir, staging) = (target.to_string(), begun.staging().to_string());
            Begun { id: begun.id(), dir, staging }
        }
    };
    output.answer(&begun, |begun| format!("{}\n", name(&begun.staging)));
    Ok(())
}

async fn commit(
    path: &PoolPath,
    even_if_open: bool,
    client: &Pool,
) -> Result<CheckpointCommitted, Failure> {
    let checkpoints = client.checkpoints().await?;
    let id = match open_for(path, &checkpoints) {
        Ok(id) => id,
        Err(none) => {
            // The command may be a repetition whose first answer was lost: then the checkpoint is committed.
            let target = path.to_string();
            let mut committed = checkpoints.committed.into_iter().rev();
            committed.find(|ended| ended.target == target).ok_or(none)?.id
        }
    };
    let (space, condition, spare_content) = (path.space().to_owned(), Condition::Always, false);
    let commit = CheckpointCommit { space, id, condition, spare_content, even_if_open };
    client.commit_checkpoint(&commit).await
}

/// Finds the checkpoint that a path means: the path is its staging directory, or the directory for which this member
/// has it open.
fn open_for(path: &PoolPath, checkpoints: &Checkpoints) -> Result<CheckpointId, Failure> {
    if let Some(place) = StagedPlace::of(path) {
        return Ok(place.id);
    }
    let own = |about: &&CheckpointAbout| {
        about.is_own && about.target == *path && about.style != CommitStyle::Share
    };
    let open: Vec<CheckpointId> =
        checkpoints.checkpoints.iter().filter(own).filter_map(|about| about.id).collect();
    match open[..] {
        [id] => Ok(id),
        [] => {
            let what = format!("you have no checkpoint open for {path}");
            Err(Failure::new(ErrorKind::NotFound, code::NO_CHECKPOINT, what).hint(
                "`potluck ckpt ls` lists those that are open; one of another is named by the path that its begin \
                 printed",
            ))
        }
        _ => {
            let what = format!("you have {} checkpoints open for {path}", open.len());
            Err(Failure::new(ErrorKind::Conflict, code::BAD_REQUEST, what)
                .hint("name the path that the begin of the one that you mean printed; `potluck ckpt ls --json` has it"))
        }
    }
}

/// Returns the files that mounts with `--close local` have closed here and that the pool does not have yet.
fn waiting(settings: &CommandSettings) -> Result<Vec<WaitingFile>, Failure> {
    let pool = settings.identity()?.pool();
    potluck_mount::waiting_files(&settings.spool_dir(), pool).map_err(|why| {
        let what = format!("cannot see which files wait on this machine: {why}");
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
    })
}

fn text(listed: &Listed) -> String {
    let Listed { open, waiting } = listed;
    let row = |about: &CheckpointAbout| {
        let at_least = if about.more { "> " } else { "" };
        let time = |ms: u64| duration(ms / 1000);
        let rate = |mib_s: Option<f64>| mib_s.map_or_else(|| "-".into(), |it| format!("{it:.1}"));
        vec![
            time(about.age_ms),
            time(about.expires_ms),
            format!("{at_least}{}", count(about.files, "file")),
            format!("{at_least}{}", format_size(about.bytes)),
            rate(about.oab_mib_s),
            rate(about.asb_mib_s),
            about.maker.clone().unwrap_or_else(|| about.member.to_string()),
            name(&about.target.to_string()).into(),
            about.id.map_or_else(|| "-".into(), |id| id.to_string()),
        ]
    };
    let rows: Vec<_> = open.checkpoints.iter().map(row).collect();
    let mut text = table(
        &["age", "expires in", "files", "size", "OAB", "ASB", "by", "directory", "identifier"],
        &[0, 1, 2, 3, 4, 5],
        &rows,
    );
    if !waiting.is_empty() {
        let bytes = waiting.iter().map(|file| file.size).sum();
        let (files, size) = (count(waiting.len() as u64, "file"), format_size(bytes));
        text.push_str(&format!(
            "closed on this machine, and not in the pool yet: {files}, {size}\n"
        ));
        for file in waiting.iter().take(MOST_NAMED) {
            text.push_str(&format!("  {}\n", name(&file.path.to_string())));
        }
        if let Some(more) = waiting.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
            text.push_str(&format!("  and {more} more (--json names all)\n"));
        }
    }
    text
}
