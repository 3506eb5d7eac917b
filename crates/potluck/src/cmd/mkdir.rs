//! `potluck mkdir`: makes a directory.

use super::Ending;
use super::cp::{policy_override, with_retention};
use crate::args::MkdirArgs;
use crate::output::Output;
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Override, SeriesRule};
use potluck_wire::control::PolicySet;
use potluck_wire::error::Failure;

pub async fn run(args: MkdirArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let policy = with_retention(policy_override(&args.policy)?, &args.retention);
    let sets_policy = policy != Override::default();
    if sets_policy {
        may_set(&args.path, policy, client).await?;
    }
    client.make_dir(&args.path, args.parents).await?;
    if !sets_policy {
        output.result(&serde_json::json!({ "path": args.path }), |_| String::new());
        return Ok(Ending::Done);
    }
    let path = args.path.clone();
    // With --parents the directory may exist already and hold files, which keep their redundancy.
    let set = PolicySet { path, policy, new_files_only: true, dry_run: false };
    let changed = match client.call(&set).await {
        Ok(changed) => changed,
        Err(why) => {
            if !args.parents {
                // This command made the directory, so that it is usually empty. If its removal fails, the first
                // failure is still the one to report.
                let _ = client.remove(&args.path, false).await;
            }
            return Err(why);
        }
    };
    let made = serde_json::json!({ "path": args.path, "policy": changed.policy });
    output.result(&made, |_| String::new());
    changed.lacks.iter().chain(&changed.notes).for_each(|what| output.note(what));
    Ok(Ending::Done)
}

/// Refuses a policy that may not be set in the space, or cannot be kept, before anything is made.
async fn may_set(path: &PoolPath, policy: Override, client: &Pool) -> Result<(), Failure> {
    let Ok(path) = PoolPath::space_root(path.space()) else { return Ok(()) };
    // A space cannot be a series, so its rule is left out; that is checked when the directory is made.
    let policy = Override { series: SeriesRule::default(), ..policy };
    let tried = PolicySet { path, policy, new_files_only: true, dry_run: true };
    client.call(&tried).await.map(drop)
}
