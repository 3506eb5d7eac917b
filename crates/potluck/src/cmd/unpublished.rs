//! Messages about the files that a mount did not publish before it ended.

use crate::output;
use potluck_mount::{Unpublished, UnpublishedState};
use std::path::Path;

/// The most files that are named on standard error. All of them are in the result of `umount` and in the log of a
/// daemon.
const TOLD: usize = 20;

/// Returns a sentence about the file and what happened to it.
pub fn sentence(file: &Unpublished) -> String {
    let path = &file.path;
    match &file.state {
        UnpublishedState::Open => {
            format!(
                "{path} was not closed: what was written to it since it was opened or synced last is lost, and what was there before stays"
            )
        }
        UnpublishedState::Publishing => format!(
            "{path} was being closed: it is there as it was written, or what was there before stays"
        ),
        UnpublishedState::Kept => format!(
            "{path} is on this machine alone: the next `potluck mount` of the pool stores it"
        ),
        UnpublishedState::Failed { why } => {
            format!("{path} could not be stored when it was closed: {why}")
        }
    }
}

/// Writes to standard error what a mount at `dir` did not publish, also with `--quiet`, because it is told only once.
pub fn tell(unpublished: &[Unpublished], dir: &Path) {
    if unpublished.is_empty() {
        return;
    }
    let mut text = format!("not in the pool as it was written through {}:\n", dir.display());
    for file in unpublished.iter().take(TOLD) {
        text.push_str(&format!("  {}\n", output::told(&sentence(file))));
    }
    if let Some(more) = unpublished.len().checked_sub(TOLD + 1) {
        text.push_str(&format!("  and {} more\n", more + 1));
    }
    output::say(text.trim_end());
}

/// Writes to the log what the mount that this process served did not publish.
pub fn log(unpublished: &[Unpublished]) {
    for file in unpublished {
        tracing::warn!("{}", sentence(file));
    }
}
