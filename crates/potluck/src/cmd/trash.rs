//! `potluck trash`: lists removed files, and purges what is kept.

use super::Ending;
use super::versions::{by, left, size};
use crate::args::{TrashArgs, TrashEmptyArgs, TrashLsArgs};
use crate::confirm::confirm;
use crate::output::{Output, count, in_zone, name, table, time};
use potluck_client::Pool;
use potluck_core::ids::VersionId;
use potluck_core::path::PoolPath;
use potluck_core::size::format_size;
use potluck_wire::control::{KeptAbout, KeptScope};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;

#[derive(Serialize)]
struct RemovedList {
    path: PoolPath,
    removed: Vec<KeptAbout>,
}

pub async fn run(args: TrashArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        TrashArgs::Ls(args) => ls(args, client, output).await,
        TrashArgs::Empty(args) => empty(args, client, output).await,
    }
}

async fn ls(args: TrashLsArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let removed = client.kept_below(&args.path, KeptScope::RemovedBelow).await?;
    let shown = RemovedList { path: args.path, removed };
    output.result(&shown, |shown| {
        let row = |about: &KeptAbout| {
            let path = about.path.to_string();
            let removed = time(about.kept_wall_ms);
            vec![size(&about.entry), removed, by(about), left(about), name(&path).into()]
        };
        let rows: Vec<_> = shown.removed.iter().map(row).collect();
        table(&["size", &in_zone("removed"), "by", "kept for", "path"], &[0], &rows)
    });
    Ok(Ending::Done)
}

async fn empty(args: TrashEmptyArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let TrashEmptyArgs { path, caution } = args;
    if path.space().is_empty() {
        // The manager refuses this as well, but is not asked with `-n`, or if nothing is kept.
        let what = "this is done in a space, and the path names none";
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("name one: `potluck space ls` lists those that you may see"));
    }
    let kept = client.kept_below(&path, KeptScope::AllBelow).await?;
    let (things, bytes) = (kept.len() as u64, kept.iter().map(|about| about.entry.data()).sum());
    let mut what = format!("{}, {}", count(things, "kept entry"), format_size(bytes));
    let dirs = kept.iter().filter(|about| about.entry.version.is_none()).count() as u64;
    if dirs > 0 {
        what.push_str(&format!(
            ", of which {} with all that is in them",
            count(dirs, "directory or link")
        ));
    }
    let report = |done: bool| serde_json::json!({ "path": path, "let_go": done, "kept": things, "bytes": bytes });
    if caution.dry_run {
        output.result(&report(false), |_| format!("would let go for good: {what}"));
        return Ok(Ending::Done);
    }
    if !caution.yes && things > 0 {
        let question = format!("let go for good what is kept at {path}: {what}?");
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    let numbers: Vec<VersionId> = kept.iter().map(|about| about.number).collect();
    client.let_go(&path, &numbers).await?;
    output.result(&report(true), |_| String::new());
    Ok(Ending::Done)
}
