//! `potluck du`: adds up the sizes below a path.

use super::{Ending, quota};
use crate::args::PathArgs;
use crate::output::{Output, count, table};
use potluck_client::Pool;
use potluck_core::size::format_size;
use potluck_wire::error::Failure;

pub async fn run(args: PathArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let used = client.usage(&args.path).await?;
    output.result(&used, |used| {
        let row =
            |bytes, files: u64, name: String| vec![format_size(bytes), files.to_string(), name];
        let children = used.children.iter().map(|child| {
            row(child.bytes, child.files, child.name.clone() + if child.dir { "/" } else { "" })
        });
        let rows: Vec<_> =
            children.chain([row(used.bytes, used.files, args.path.to_string())]).collect();
        let kept = (used.kept_files > 0).then(|| {
            let files = count(used.kept_files, "kept file");
            format!("{} more in {files}, replaced or removed\n", format_size(used.kept_bytes))
        });
        let stored = format_size(used.stored);
        let quota = used.quota.as_ref().map(|quota| {
            let [bytes, files] = quota::used(quota);
            format!("quota: {bytes}, files and directories: {files}\n")
        });
        table(&["size", "files", "name"], &[0, 1], &rows)
            + &kept.unwrap_or_default()
            + &format!("{stored} on donors, copies included\n")
            + &quota.unwrap_or_default()
    });
    Ok(Ending::Done)
}
