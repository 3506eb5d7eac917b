//! `potluck mkdir`: make a directory.

use super::Ending;
use super::cp::{policy_override, with_retention};
use crate::args::MkdirArgs;
use crate::output::Output;
use potluck_client::Pool;
use potluck_core::policy::Override;
use potluck_wire::control::PolicySet;
use potluck_wire::error::Failure;

pub async fn run(args: MkdirArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let policy = with_retention(policy_override(&args.policy)?, &args.retention);
    client.make_dir(&args.path, args.parents).await?;
    if policy == Override::default() {
        output.result(&serde_json::json!({ "path": args.path }), |_| String::new());
        return Ok(Ending::Done);
    }
    let path = args.path.clone();
    // With --parents it may have been there, with files in it.
    let set = PolicySet { path, policy, new_files_only: true, dry_run: false };
    let changed = client.call(&set).await?;
    let made = serde_json::json!({ "path": args.path, "policy": changed.policy });
    output.result(&made, |_| String::new());
    changed.lacks.iter().for_each(|what| output.note(what));
    Ok(Ending::Done)
}
