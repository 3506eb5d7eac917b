//! A thing that a name led to in the past, as the metadata log tells of it.

use potluck_core::attributes::EntryAttributes;
use potluck_core::ids::SnapshotId;
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// A name that led to something else than it does now, which a snapshot shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BygoneName {
    /// The path of the name.
    pub path: PoolPath,
    /// The path, at this moment of the log, of what the name led to; that of the name itself beside a `link`.
    pub at: PoolPath,
    /// The link that the name led to, if no entry is that link any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<BygoneLink>,
    /// The lower bound of the numbers of the snapshots in which the name leads there; snapshots are numbered pool-wide.
    pub since: SnapshotId,
    /// The upper bound of these numbers, which itself is not one of them.
    pub until: SnapshotId,
    /// The newest snapshot in which the name leads there.
    pub snapshot: SnapshotId,
}

/// A symbolic link that a snapshot shows and no entry is any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BygoneLink {
    /// The target of the link.
    pub target: LinkTarget,
    /// The attributes of the link.
    #[serde(flatten)]
    pub attributes: EntryAttributes,
}
