//! `potluck revert`: makes an old version of a file the current one.

use super::Ending;
use crate::args::RevertArgs;
use crate::output::{Output, name};
use potluck_client::Pool;
use potluck_core::ids::VersionId;
use potluck_wire::error::Failure;

pub async fn run(args: RevertArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let number = args.version_id.map(VersionId);
    let brought = client.bring_back(&args.path, number, false).await?;
    let shown = serde_json::json!({
        "path": args.path, "version": brought.number, "replaced": brought.replaced,
    });
    output.result(&shown, |_| {
        let kept = if brought.replaced { "; what was there is kept as a version" } else { "" };
        format!("{} is version {} again{kept}", name(&args.path.to_string()), brought.number)
    });
    Ok(Ending::Done)
}
