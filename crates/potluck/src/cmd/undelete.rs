//! `potluck undelete`: brings removed files and directories back.

use super::Ending;
use super::several::Several;
use crate::args::UndeleteArgs;
use crate::output::{Output, count};
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_wire::control::{EntryKind, KeptScope};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Serialize)]
struct UndeleteReport<'a> {
    /// The paths that were brought back.
    brought_back: &'a [PoolPath],
    #[serde(flatten)]
    several: &'a Several,
}

pub async fn run(args: UndeleteArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let (mut brought, mut several) = (Vec::new(), Several::default());
    for path in &args.paths {
        let done = match bring_back(path, client).await {
            // The directory itself exists, and the user means what was removed inside it.
            Err(why) if args.recursive && why.code == code::EXISTS => Ok(()),
            Ok(()) => {
                brought.push(path.clone());
                Ok(())
            }
            Err(why) => Err(why),
        };
        let done = match done {
            Ok(()) if args.recursive => inside(path, client, &mut brought).await,
            done => done,
        };
        several.note(path, done);
    }
    let ending = several.end(output)?;
    let report = UndeleteReport { brought_back: &brought, several: &several };
    output.result(&report, |report| {
        format!("brought back {}", count(report.brought_back.len() as u64, "entry"))
    });
    Ok(ending)
}

/// Brings one path back. If nothing is kept but something exists there, the failure says that it exists.
async fn bring_back(path: &PoolPath, client: &Pool) -> Result<(), Failure> {
    match client.bring_back(path, None, true).await {
        Ok(_) => Ok(()),
        Err(why) if why.code == code::NOT_KEPT && client.kind(path).await?.is_some() => {
            let what = format!("{path} is there, and nothing else of that name was removed");
            Err(Failure::new(ErrorKind::Conflict, code::EXISTS, what).hint(
                "add -r to bring back what was removed inside it; `potluck trash ls` lists that",
            ))
        }
        Err(why) => Err(why),
    }
}

/// Brings back what was removed inside a directory, and then inside what came back.
async fn inside(
    path: &PoolPath,
    client: &Pool,
    brought: &mut Vec<PoolPath>,
) -> Result<(), Failure> {
    if client.kind(path).await? != Some(EntryKind::Dir) {
        return Ok(());
    }
    let mut tried = BTreeSet::new();
    loop {
        let removed = client.kept_below(path, KeptScope::RemovedBelow).await?.into_iter();
        let new: BTreeSet<PoolPath> =
            removed.map(|about| about.path).filter(|path| tried.insert(path.clone())).collect();
        if new.is_empty() {
            return Ok(());
        }
        for path in new {
            match client.bring_back(&path, None, true).await {
                Ok(_) => brought.push(path),
                // Something else exists there by now, and stays, or the entry is not kept any more.
                Err(why) if [code::EXISTS, code::NOT_KEPT].contains(&why.code.as_str()) => {}
                Err(why) => return Err(why),
            }
        }
    }
}
