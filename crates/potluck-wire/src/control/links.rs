//! Making symbolic links.

use super::{Call, Callers, Condition};
use crate::error::Failure;
use potluck_core::attributes::{FileOwner, FileTime};
use potluck_core::link_target::{LinkTarget, MAX_TARGET};
use potluck_core::path::{MAX_PATH, PoolPath};
use serde::{Deserialize, Serialize};

/// Makes symbolic links in one space. Links that can be made are made, and the reply names the others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeLinks {
    /// The links to make, at most [`MAX_LINKS`].
    pub links: Vec<NewLink>,
    /// True if missing directories above the links are made.
    #[serde(default)]
    pub parents: bool,
    /// The condition under which a link may replace another; what is no link is never replaced.
    #[serde(default)]
    pub condition: Condition,
}
impl Call for MakeLinks {
    const NAME: &'static str = "make-links";
    const BY: Callers = Callers::Users;
    const WHAT: &'static str = "changing files";
    const MOST_BODY: usize = MAX_LINKS * 2 * (MAX_PATH + MAX_TARGET);
    type Reply = MadeLinks;
    /// Returns true where links are made whatever is there: a repeated call then replaces its own links.
    fn is_repeatable(&self) -> bool {
        self.condition == Condition::Always
    }
}

/// The most links that one call makes: they are one job of the thread that writes the catalog.
pub const MAX_LINKS: usize = 256;

/// A symbolic link to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLink {
    /// The path of the link.
    pub path: PoolPath,
    /// The target of the link.
    pub target: LinkTarget,
    /// The modification time in nanoseconds since 1970; the present time where it is left out.
    #[serde(default, rename = "mtime_ns", skip_serializing_if = "Option::is_none")]
    pub mtime: Option<FileTime>,
    /// The owner of the link, if one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
}

/// The outcome of making links.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MadeLinks {
    /// The links that were not made, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NotMade>,
    /// The time at which the directories of the links that came were modified by that, and of the links that were given
    /// no time.
    #[serde(default, rename = "modified_ns", skip_serializing_if = "Option::is_none")]
    pub modified: Option<FileTime>,
}

/// A link that was not made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NotMade {
    /// The path of the link.
    pub path: PoolPath,
    /// The reason why it was not made.
    pub failure: Failure,
}
