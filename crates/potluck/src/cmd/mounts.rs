//! `potluck mounts`: lists this user's mounts on this machine, as their processes describe them.

use super::{Ending, unpublished};
use crate::command_settings::CommandSettings;
use crate::output::{Output, table, told};
use indicatif::{HumanBytes, HumanCount};
use potluck_core::path::PoolPath;
use potluck_mount::{FoundRecord, MountQuestion, MountStatus, Unpublished, UnpublishedState};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::io;
use std::path::PathBuf;

/// The most files of a mount that are named.
const TOLD: usize = 5;

/// A mount as `mounts` shows it.
#[derive(Serialize)]
struct ListedMount {
    dir: PathBuf,
    path: PoolPath,
    /// The process that serves it, or that served it.
    pid: u32,
    read_only: bool,
    /// `served`, `silent` if its process does not answer, or `dead`.
    state: &'static str,
    /// What its process says; `None` if it says nothing.
    status: Option<MountStatus>,
    /// The files that are not in the pool as they were written. Those of a mount that is served may still come there.
    unpublished: Vec<Unpublished>,
}

pub async fn run(settings: &CommandSettings, output: &Output) -> Result<Ending, Failure> {
    let spool_dir = settings.spool_dir();
    let asked = tokio::task::spawn_blocking(move || -> io::Result<Vec<ListedMount>> {
        FoundRecord::all(&spool_dir)?.into_iter().map(listed).collect()
    });
    let mounts = asked.await.map_err(io::Error::other).flatten().map_err(|why| {
        let what = format!("cannot read the records of mounts: {why}");
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
    })?;
    output.result(&serde_json::json!({ "mounts": mounts }), |_| text(&mounts));
    Ok(Ending::Done)
}

fn listed(record: FoundRecord) -> io::Result<ListedMount> {
    let is_served = record.is_served()?;
    let status = if is_served { record.ask(MountQuestion::Status).ok() } else { None };
    let state = match (is_served, &status) {
        (false, _) => "dead",
        (true, None) => "silent",
        (true, Some(_)) => "served",
    };
    // A mount that ended meanwhile has removed its record.
    let unpublished = record.unpublished().unwrap_or_default();
    let (dir, path) = (record.mount.dir.clone(), record.mount.path.clone());
    let (pid, read_only) = (record.mount.pid, record.mount.read_only);
    Ok(ListedMount { dir, path, pid, read_only, state, status, unpublished })
}

fn text(mounts: &[ListedMount]) -> String {
    if mounts.is_empty() {
        return "nothing is mounted: `potluck mount pot://SPACE DIR`".into();
    }
    let head =
        ["mounted at", "of the pool", "state", "writing", "not stored", "spool", "cache", "nearby"];
    let rows: Vec<_> = mounts.iter().map(row).collect();
    let mut text = table(&head, &[3, 4, 5, 6, 7], &rows);
    for mount in mounts {
        let waiting = |file: &&Unpublished| {
            mount.state != "served" || !matches!(file.state, UnpublishedState::Open)
        };
        let files: Vec<_> = mount.unpublished.iter().filter(waiting).collect();
        for file in files.iter().take(TOLD) {
            text.push_str(&format!("  {}\n", told(&said(mount, file))));
        }
        if files.len() > TOLD {
            text.push_str(&format!("  … and {} more: --json names all\n", files.len() - TOLD));
        }
    }
    text
}

fn said(mount: &ListedMount, file: &Unpublished) -> String {
    match (mount.state, &file.state) {
        ("served", UnpublishedState::Kept | UnpublishedState::Publishing) => {
            format!("{} is on its way to the pool", file.path)
        }
        _ => unpublished::sentence(file),
    }
}

fn row(mount: &ListedMount) -> Vec<String> {
    let of = |shown: fn(&MountStatus) -> String| mount.status.as_ref().map_or("-".into(), shown);
    vec![
        told(&mount.dir.to_string_lossy()).into_owned(),
        told(&mount.path.to_string()).into_owned(),
        mount.state.into(),
        of(|status| HumanCount(status.written).to_string()),
        of(|status| HumanCount(status.behind).to_string()),
        of(|status| HumanBytes(status.spooled).to_string()),
        of(|status| HumanBytes(status.from_cache).to_string()),
        of(|status| HumanBytes(status.from_lookaside).to_string()),
    ]
}
