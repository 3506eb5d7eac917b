//! The calls about old versions, and about files, directories and links that were removed and are kept; also those
//! about snapshots of directories.

use super::{Call, Callers, Done, ListedEntry, call};
use potluck_core::ids::{MemberId, VersionId};
use potluck_core::path::PoolPath;
use serde::{Deserialize, Serialize};

/// The choice of kept things that a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptScope {
    /// Things that had exactly the path that was asked for.
    OfName,
    /// Entries that were removed at or below the path.
    RemovedBelow,
    /// All that was replaced or removed at or below the path.
    AllBelow,
}

/// Asks for a page of the old versions and the removed entries that are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptList {
    /// The path that is asked about; something may be there now or not.
    pub path: PoolPath,
    /// The choice of kept things that is asked for.
    pub scope: KeptScope,
    /// The page continues after this [`KeptListed::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
call!(KeptList => KeptListed, "kept-list", Users, "`potluck versions` or `trash ls`");

/// A page of old versions and removed entries that are kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct KeptListed {
    /// The entry that is at the path now, with the path ""; set only where the call was about exactly this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<ListedEntry>,
    /// The things that are kept; those of one name begin with the latest.
    pub kept: Vec<KeptAbout>,
    /// The place after which the next page begins; set when there may be more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A kept version, directory or link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptAbout {
    /// The path that the thing had.
    pub path: PoolPath,
    /// The path by which the thing is read now; nothing can be changed there.
    pub at: PoolPath,
    /// The entry that is kept, as a listing shows it, with the path "".
    pub entry: ListedEntry,
    /// The number of the version of a file, or the number that a kept directory or link was given.
    pub number: VersionId,
    /// True if the thing was removed; otherwise something else took its place.
    pub removed: bool,
    /// The time at which it was removed or replaced, in milliseconds of wall time.
    pub kept_wall_ms: i64,
    /// The member who removed or replaced it; `None` where the pool itself did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// The name of the member who removed or replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The milliseconds for which it will still be kept; `None` where it is kept until enough newer versions are
    /// kept, or until no snapshot shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// True if it is kept only because a snapshot shows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shown: bool,
}

/// Brings something that is kept back under its name. What has the name meanwhile is kept in turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BringBack {
    /// The path that the thing had.
    pub path: PoolPath,
    /// The number of the kept thing that is brought back; `None` for the one that was kept last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<VersionId>,
    /// True if the call is refused unless the thing was removed and nothing has its name now.
    #[serde(default)]
    pub removed: bool,
}
call!(BringBack => BroughtBackAs, "bring-back", Users, "`potluck revert` or `undelete`", once);

/// The reply to a call that brought something back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroughtBackAs {
    /// The number of the version that is current now, or of the directory or link.
    pub number: VersionId,
    /// True if another entry had the name; that entry is kept now.
    pub replaced: bool,
}

/// Lets kept things go for good before their time is over. Things that are gone already are no error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LetGo {
    /// The path that the things had, or a directory above it.
    pub path: PoolPath,
    /// The numbers of the things that are let go, at most [`MOST_LET_GO`].
    pub numbers: Vec<VersionId>,
}
call!(LetGo => Done, "let-go", Users, "`potluck trash empty`");

/// Takes a snapshot of a directory, which is read below it from then on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotTake {
    /// The path of the directory.
    pub dir: PoolPath,
    /// The name of the snapshot.
    pub name: String,
}
call!(SnapshotTake => SnapshotAbout, "snapshot-take", Users, "`potluck snapshot`", once);

/// Removes a snapshot of a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotRemove {
    /// The path of the directory.
    pub dir: PoolPath,
    /// The name of the snapshot.
    pub name: String,
}
call!(SnapshotRemove => Done, "snapshot-remove", Users, "`potluck snapshot`", once);

/// Asks for the snapshots of a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotList {
    /// The path of the directory.
    pub dir: PoolPath,
}
call!(SnapshotList => Snapshots, "snapshot-list", Users, "`potluck snapshot`");

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
    /// The path by which the snapshot is read; nothing can be changed there.
    pub at: PoolPath,
    /// The time at which the snapshot was taken, in milliseconds of wall time.
    pub made_wall_ms: i64,
    /// The member who took the snapshot; `None` where the pool itself did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// The name of the member who took the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The most things that one call lets go: so many take a few transactions.
pub const MOST_LET_GO: usize = 512;
