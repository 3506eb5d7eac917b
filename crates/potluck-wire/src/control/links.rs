//! Making symbolic links.

use super::{Call, Condition};
use crate::error::Failure;
use potluck_core::attributes::{FileOwner, FileTime};
use potluck_core::link_target::{LinkTarget, MAX_TARGET};
use potluck_core::path::{MAX_PATH, PoolPath};
use serde::{Deserialize, Serialize};

/// Makes symbolic links in one space. Those that can be made are, and the others are told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeLinks {
    /// The links; at most [`MAX_LINKS`].
    pub links: Vec<NewLink>,
    /// Make missing directories above them.
    #[serde(default)]
    pub parents: bool,
    /// The condition under which a link may replace another; what is no link is never replaced.
    #[serde(default)]
    pub condition: Condition,
}
impl Call for MakeLinks {
    const NAME: &'static str = "make-links";
    const MOST_BODY: usize = MAX_LINKS * 2 * (MAX_PATH + MAX_TARGET);
    type Reply = MadeLinks;
    /// A call that replaces links replaces its own.
    fn is_repeatable(&self) -> bool {
        self.condition == Condition::Always
    }
}

/// Links that one call makes at most: they are one job of the catalog's writer.
pub const MAX_LINKS: usize = 256;

/// A symbolic link to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLink {
    /// The path of the link.
    pub path: PoolPath,
    /// Where it leads.
    pub target: LinkTarget,
    /// The modification time, nanoseconds since 1970; now without.
    #[serde(default, rename = "mtime_ns", skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
    /// Whom it belongs to, if somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
}

/// The outcome of making links.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MadeLinks {
    /// The links that were not made, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NotMade>,
}

/// A link that was not made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NotMade {
    /// The path of the link.
    pub path: PoolPath,
    /// The reason why it was not made.
    pub failure: Failure,
}
