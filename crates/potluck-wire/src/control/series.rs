//! Series of steps, such as the checkpoints of a run, of which old ones are purged.

use super::{Call, Done, call};
use potluck_core::attributes::FileTime;
use potluck_core::path::PoolPath;
use potluck_core::policy::{PurgeReason, SeriesRule};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Asks which steps of a directory its rule lets go, or has them purged at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SeriesPurge {
    /// The path of the directory.
    pub dir: PoolPath,
    /// Nothing is purged.
    #[serde(default)]
    pub dry_run: bool,
}
impl Call for SeriesPurge {
    const NAME: &'static str = "series-purge";
    const DEADLINE: Duration = Duration::from_secs(60);
    type Reply = SeriesSteps;
}

/// The steps of a series, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SeriesSteps {
    /// Which of its steps are purged.
    pub rule: SeriesRule,
    /// The steps, and what becomes of each, or became.
    pub steps: Vec<StepAbout>,
}

/// A step of a series.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepAbout {
    /// The name of the step.
    pub name: String,
    /// Whether it is a directory.
    #[serde(default)]
    pub dir: bool,
    /// When it was modified, nanoseconds since 1970.
    #[serde(rename = "mtime_ns")]
    pub mtime: FileTime,
    /// What becomes of it.
    pub fate: StepFate,
}

/// What becomes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepFate {
    /// It stays as the rule says.
    Stays,
    /// It stays because it is pinned.
    Pinned,
    /// It stays because somebody has something of it open.
    BeingRead,
    /// It stays because no newer step is known to be whole.
    LastWhole,
    /// It is purged, for this.
    Purged(PurgeReason),
}

/// Has a file or directory never be purged, or be purged as others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pin {
    /// The path of the file or directory.
    pub path: PoolPath,
    /// Whether it is never purged.
    pub pinned: bool,
}
call!(Pin => Done, "pin");
