//! `potluck du`: adds up the sizes below paths.

use super::several::Several;
use super::{Ending, patterns, quota};
use crate::args::DuArgs;
use crate::output::{Output, count, table};
use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_core::size::format_size;
use potluck_wire::control::Used;
use potluck_wire::error::Failure;
use serde::Serialize;

/// What lies below one of several paths.
#[derive(Serialize)]
struct UsedAt {
    path: PoolPath,
    #[serde(flatten)]
    used: Used,
}

/// What lies below several paths.
#[derive(Serialize)]
struct UsedAtAll {
    paths: Vec<UsedAt>,
    #[serde(flatten)]
    several: Several,
}

pub async fn run(args: DuArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let paths = patterns::expand(&args.paths, client).await?;
    if let [path] = paths.as_slice() {
        let used = client.usage(path).await?;
        output.result(&used, |used| text(path, used, args.summarize));
        return Ok(Ending::Done);
    }
    let mut all = UsedAtAll { paths: Vec::new(), several: Several::default() };
    for path in paths {
        let used = client.usage(&path).await;
        all.several.note(path.clone(), used.map(|used| all.paths.push(UsedAt { path, used })));
    }
    output.result(&all, |all| {
        if args.summarize {
            let rows: Vec<_> = all.paths.iter().map(|one| total(&one.path, &one.used)).collect();
            return table(&HEAD, &[0, 1], &rows);
        }
        let one = |one: &UsedAt| text(&one.path, &one.used, false);
        all.paths.iter().map(one).collect::<Vec<_>>().join("\n")
    });
    all.several.end(output)
}

/// The head of the columns of sizes.
const HEAD: [&str; 3] = ["size", "files", "name"];

fn row(bytes: u64, files: u64, name: String) -> Vec<String> {
    vec![format_size(bytes), files.to_string(), name]
}

fn total(path: &PoolPath, used: &Used) -> Vec<String> {
    row(used.bytes, used.files, path.to_string())
}

fn text(path: &PoolPath, used: &Used, summarize: bool) -> String {
    if summarize {
        return table(&HEAD, &[0, 1], &[total(path, used)]);
    }
    let children = used.children.iter().map(|child| {
        row(child.bytes, child.files, child.name.clone() + if child.dir { "/" } else { "" })
    });
    let rows: Vec<_> = children.chain([total(path, used)]).collect();
    let kept = (used.kept_files > 0).then(|| {
        let files = count(used.kept_files, "kept file");
        format!("{} more in {files}, replaced or removed\n", format_size(used.kept_bytes))
    });
    let stored = format_size(used.stored);
    let quota = used.quota.as_ref().map(|quota| {
        let [bytes, files] = quota::used(quota);
        format!("quota: {bytes}, files and directories: {files}\n")
    });
    table(&HEAD, &[0, 1], &rows)
        + &kept.unwrap_or_default()
        + &format!("{stored} on donors, copies included\n")
        + &quota.unwrap_or_default()
}
