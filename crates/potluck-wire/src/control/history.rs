//! Calls about old versions, and about files, directories and links that were removed and are kept; snapshots of directories.

use super::{Call, Done, ListedEntry, call};
use potluck_core::ids::{MemberId, VersionId};
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// Which kept things are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptScope {
    /// What had the very path.
    OfName,
    /// Entries that were removed at or below the path.
    RemovedBelow,
    /// All that was replaced or removed at or below the path.
    AllBelow,
}

/// Asks for what is kept, a page at a time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptList {
    /// A path, at which something may be or not.
    pub path: PoolPath,
    /// Which kept things are meant.
    pub scope: KeptScope,
    /// The page continues after this [`KeptListed::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
call!(KeptList => KeptListed, "kept-list");

/// A page of old versions and removed entries that are kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KeptListed {
    /// The entry that is at the path now, with the path ""; only where the call was about this very path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<ListedEntry>,
    /// The things that are kept; of one name the latest first.
    pub kept: Vec<KeptAbout>,
    /// Set when there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Something that is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptAbout {
    /// The path that it had.
    pub path: PoolPath,
    /// The path by which it is read now; nothing is changed there.
    pub at: PoolPath,
    /// The entry that is kept, as a listing shows it, with the path "".
    pub entry: ListedEntry,
    /// The number of the version of a file; a directory or a link has one of its own.
    pub number: VersionId,
    /// Whether it was removed; otherwise something else took its place.
    pub removed: bool,
    /// When that was, in milliseconds of wall time.
    pub kept_wall_ms: i64,
    /// Who did it; `None`: the pool itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// The name of who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The milliseconds for which it is kept yet; `None`: until enough newer ones are kept, or no snapshot shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// Whether it is kept for a snapshot that shows it, and for nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shown: bool,
}

/// Gives something that is kept its name again. What has the name meanwhile is kept in turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BringBack {
    /// The path that it had.
    pub path: PoolPath,
    /// Which one; `None`: what was kept last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<VersionId>,
    /// It must have been removed, and nothing may have the name now.
    #[serde(default)]
    pub removed: bool,
}
call!(BringBack => BroughtBackAs, "bring-back", once);

/// The reply to a call that brought something back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroughtBackAs {
    /// The number of the version that is current now, or of the directory or link.
    pub number: VersionId,
    /// Whether something had the name, which is kept now.
    pub replaced: bool,
}

/// Lets kept things go for good, before their time is over; those that are gone already are no error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LetGo {
    /// The path that they had, or a directory above that.
    pub path: PoolPath,
    /// The numbers of these things, at most [`MOST_LET_GO`].
    pub numbers: Vec<VersionId>,
}
call!(LetGo => Done, "let-go");

/// Takes a snapshot of a directory, which is read below it from then on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotTake {
    /// The path of the directory.
    pub dir: PoolPath,
    /// The name of the snapshot.
    pub name: String,
}
call!(SnapshotTake => SnapshotAbout, "snapshot-take", once);

/// Removes a snapshot of a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotRemove {
    /// The path of the directory.
    pub dir: PoolPath,
    /// The name of the snapshot.
    pub name: String,
}
call!(SnapshotRemove => Done, "snapshot-remove", once);

/// Asks for the snapshots of a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotList {
    /// The path of the directory.
    pub dir: PoolPath,
}
call!(SnapshotList => Snapshots, "snapshot-list");

/// The snapshots of a directory, the oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Snapshots {
    /// The snapshots of the directory.
    pub snapshots: Vec<SnapshotAbout>,
}

/// A snapshot of a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotAbout {
    /// The name of the snapshot.
    pub name: String,
    /// The path by which it is read; nothing is changed there.
    pub at: PoolPath,
    /// When it was taken, in milliseconds of wall time.
    pub made_wall_ms: i64,
    /// Who took it; `None`: the pool itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// The name of who took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The most that one call lets go: so many are a few transactions.
pub const MOST_LET_GO: usize = 512;
