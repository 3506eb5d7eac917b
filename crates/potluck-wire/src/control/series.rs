//! Series of steps, such as the checkpoints of a run, of which old ones are purged.

use super::{Call, Callers, Done, LOOK_AT_ALL, call};
use potluck_core::attributes::FileTime;
use potluck_core::path::PoolPath;
use potluck_core::policy::{PurgeReason, SeriesRule};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Asks which steps of a directory its rule purges, or has them purged at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SeriesPurge {
    /// The path of the directory.
    pub dir: PoolPath,
    /// True if the call only tells what would be purged, and purges nothing.
    #[serde(default)]
    pub dry_run: bool,
}
call!(SeriesPurge => SeriesSteps, "series-purge", Users, "`potluck ckpt purge`", within LOOK_AT_ALL);

/// The steps of a series, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SeriesSteps {
    /// The rule that says which steps of the directory are purged.
    pub rule: SeriesRule,
    /// The steps, with what becomes or became of each.
    pub steps: Vec<StepAbout>,
}

/// A step of a series.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepAbout {
    /// The name of the step.
    pub name: String,
    /// True if the step is a directory.
    #[serde(default)]
    pub dir: bool,
    /// The time at which the step was modified, in nanoseconds since 1970.
    #[serde(rename = "mtime_ns")]
    pub mtime: FileTime,
    /// The fate of the step under the rule.
    pub fate: StepFate,
}

/// The fate of a step under the rule of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepFate {
    /// The step stays, because the rule does not purge it.
    Stays,
    /// The step stays because it is pinned.
    Pinned,
    /// The step stays because somebody has something of it open.
    BeingRead,
    /// The step stays because no newer step is known to be whole.
    LastWhole,
    /// The step is purged, for this reason.
    Purged(PurgeReason),
}

/// Pins a file or directory, so that it is never purged, or unpins it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pin {
    /// The path of the file or directory.
    pub path: PoolPath,
    /// True if the file or directory is never purged.
    pub pinned: bool,
}
call!(Pin => Done, "pin", Users, "`potluck pin` or `unpin`");
