//! `potluck snapshot`: takes, lists and removes snapshots of directories.

use super::Ending;
use crate::args::{SnapshotArgs, SnapshotLsArgs, SnapshotPlaceArgs};
use crate::output::{self, Output, in_zone, name, table, time};
use potluck_client::Pool;
use potluck_wire::control::{SnapshotAbout, SnapshotList, SnapshotRemove, SnapshotTake, Snapshots};
use potluck_wire::error::Failure;

pub async fn run(args: SnapshotArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        SnapshotArgs::Create(SnapshotPlaceArgs { dir, name }) => {
            let taken = client.call(&SnapshotTake { dir, name }).await?;
            output.answer(&taken, |taken| format!("{}\n", output::name(&taken.at.to_string())));
        }
        SnapshotArgs::Ls(SnapshotLsArgs { dir }) => {
            output.result(&client.call(&SnapshotList { dir }).await?, text);
        }
        SnapshotArgs::Rm(SnapshotPlaceArgs { dir, name }) => {
            let removed = serde_json::json!({ "dir": dir, "name": name });
            client.call(&SnapshotRemove { dir, name }).await?;
            output.result(&removed, |_| String::new());
        }
    }
    Ok(Ending::Done)
}

fn text(listed: &Snapshots) -> String {
    let row = |about: &SnapshotAbout| {
        let number = || about.member.map_or_else(|| "-".into(), |member| member.to_string());
        let by = about.by.clone().unwrap_or_else(number);
        vec![
            time(about.made_wall_ms),
            by,
            name(&about.name).into(),
            name(&about.at.to_string()).into(),
        ]
    };
    let rows: Vec<_> = listed.snapshots.iter().map(row).collect();
    table(&[&in_zone("taken"), "by", "name", "path"], &[], &rows)
}
