//! Names and what is behind them.

use super::{Call, Condition, Done, call};
use crate::error::{Failure, code};
use potluck_core::attributes::{
    AttributesToSet, EntryAttributes, FileOwner, FileTime, Permissions,
};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::erasure::Ec;
use potluck_core::ids::DonorId;
use potluck_core::ids::SessionId;
use potluck_core::ids::VersionId;
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Policy, Redundancy, SeriesRule};
use potluck_core::quota::Quota;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The kind of an entry that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// The path names a file.
    File,
    /// A directory, or a space.
    Dir,
    /// A symbolic link.
    Link,
}

/// One entry of a listing, with everything there is to know without another call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedEntry {
    /// Relative to the listed path.
    pub path: String,
    /// What the entry is.
    pub kind: EntryKind,
    /// Plaintext bytes; 0 for a directory, and for a link the bytes of its target.
    #[serde(default)]
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    #[serde(default, rename = "mtime_ns")]
    pub mtime: FileTime,
    /// The version of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionId>,
    /// The digest of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Copies that a file's policy asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// The erasure code of a file, instead of copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// Whether nothing of a file is on donors: it is in the catalog, whatever its policy asks for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_catalog: bool,
    /// Who may do what with it.
    #[serde(default)]
    pub permissions: Permissions,
    /// Whom it belongs to, if somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
    /// Where a link leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<LinkTarget>,
}

impl ListedEntry {
    /// The attributes of the entry.
    pub fn attributes(&self) -> EntryAttributes {
        let Self { mtime, permissions, owner, .. } = *self;
        EntryAttributes { mtime, permissions, owner }
    }
}

/// Lists a directory, a space, or with `pot://` the spaces.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct List {
    /// The path to list; a file lists itself, with the relative path "".
    pub path: PoolPath,
    /// True to list everything below, parents before children.
    #[serde(default)]
    pub recursive: bool,
    /// The page continues after this [`Listing::next`].
    #[serde(default)]
    pub after: Option<String>,
}
call!(List => Listing, "list");

/// Entries in order of their names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Listing {
    /// The entries of this page.
    pub entries: Vec<ListedEntry>,
    /// Set when there is more.
    #[serde(default)]
    pub next: Option<String>,
}

/// Asks for everything that is known of one path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stat {
    /// The path that is asked about.
    pub path: PoolPath,
    /// Whether every chunk of a file is described.
    #[serde(default)]
    pub chunks: bool,
}
call!(Stat => Stated, "stat");

/// The facts about a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stated {
    /// The entry as a listing shows it, with the path "".
    pub entry: ListedEntry,
    /// The policy that holds there.
    pub policy: Policy,
    /// Which of its steps are purged, of a directory.
    #[serde(default, skip_serializing_if = "SeriesRule::is_unset")]
    pub series: SeriesRule,
    /// Whether the content lives in the catalog.
    #[serde(default)]
    pub inline: bool,
    /// Chunks of a file.
    #[serde(default)]
    pub chunks: u64,
    /// Bytes per chunk of a file.
    #[serde(default)]
    pub chunk_size: u32,
    /// The fewest live copies that any chunk has; 0 means it cannot be read whole now.
    #[serde(default)]
    pub live_copies: u32,
    /// The donors that hold chunks of it, each with how much.
    #[serde(default)]
    pub donors: Vec<Share>,
    /// How safe a file is at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// The chunks of the file, data before parity, when asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunk_list: Vec<ChunkFacts>,
}

/// How safe a file is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// The manager's judgement of all that follows, which every command shows.
    pub level: HealthLevel,
    /// How many more donors may die for ever before something of it is lost; `None`: something
    /// cannot be read now, or nothing of it is on donors.
    pub tolerates: Option<u32>,
    /// How many more may die or fall silent before something of it cannot be read: less than
    /// `tolerates` while donors it relies on are silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerates_now: Option<u32>,
    /// Whether donors it relies on are silent, so that fewer may go now than may die for ever.
    pub silent: bool,
    /// The number of donors' deaths that its policy promises to survive.
    pub promised: u32,
    /// Chunks without all copies, or missing from their groups: while there are any, the file is
    /// less safe than promised.
    pub incomplete: u64,
    /// Chunks that cannot be had now, neither from a donor nor by rebuilding.
    pub unreadable: u64,
    /// When it came to have all that its policy promises, in milliseconds of wall time; `None`: its unsafe
    /// window is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_since_ms: Option<i64>,
    /// The redundancy that it is being changed to in the background; until then the present guarantee
    /// holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changing_to: Option<Redundancy>,
    /// Whether it is less safe than its policy promises, and repair is to make the rest.
    pub below_policy: bool,
    /// Whether nothing of it is on donors: it is in the catalog, and no donor's death loses it.
    pub in_catalog: bool,
}

impl Health {
    /// The health of a file that has this part and another.
    pub fn with(self, other: Self) -> Self {
        let both = |one: Option<_>, other: Option<_>| one.zip(other);
        Self {
            level: self.level.max(other.level),
            tolerates: both(self.tolerates, other.tolerates).map(|(one, other)| one.min(other)),
            tolerates_now: both(self.tolerates_now, other.tolerates_now)
                .map(|(one, other)| one.min(other)),
            silent: self.silent || other.silent,
            promised: self.promised.max(other.promised),
            incomplete: self.incomplete + other.incomplete,
            unreadable: self.unreadable + other.unreadable,
            safe_since_ms: self
                .safe_since_ms
                .zip(other.safe_since_ms)
                .map(|(one, other)| one.max(other)),
            changing_to: self.changing_to.or(other.changing_to),
            below_policy: self.below_policy || other.below_policy,
            in_catalog: self.in_catalog && other.in_catalog,
        }
    }
}

/// The health of a file, or of the worst in a space, as one level; greater is worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthLevel {
    /// The file is as safe as promised.
    #[default]
    Safe,
    /// The file is as safe as promised when donors are back that are silent now.
    Waiting,
    /// Readable, but less safe than promised.
    Incomplete,
    /// Something of it cannot be read now.
    Unreadable,
}

/// One chunk of a file as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkFacts {
    /// The name of the chunk.
    pub name: ChunkName,
    /// Size of the chunk in stored bytes.
    pub len: u32,
    /// Whether it is parity.
    #[serde(default)]
    pub parity: bool,
    /// The group of the chunk, counted from 0, in an erasure-coded file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u64>,
    /// Live donors that hold it.
    pub donors: Vec<DonorId>,
    /// How it stands with its copies.
    pub state: MirrorState,
}

/// How it stands with the copies of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MirrorState {
    /// All copies are there.
    Complete,
    /// Some are, and the others are being made.
    Pending,
    /// No live donor has it, and its group can rebuild it.
    Rebuildable,
    /// The chunk cannot be had now.
    Unreadable,
}

/// A donor's share of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Share {
    /// The id of the donor.
    pub donor: DonorId,
    /// The name that people call it by.
    pub name: String,
    /// Heard from within the last seconds.
    pub live: bool,
    /// Chunks of the file there.
    pub chunks: u64,
    /// Size of these chunks in stored bytes.
    pub bytes: u64,
}

/// Makes a directory at a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeDir {
    /// The path of the directory.
    pub path: PoolPath,
    /// Make missing parents, and accept one that exists.
    #[serde(default)]
    pub parents: bool,
    /// The permissions of what is made; those of one that exists stay.
    #[serde(default = "dir_permissions")]
    pub permissions: Permissions,
    /// Whom what is made belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
}

fn dir_permissions() -> Permissions {
    Permissions::DIR
}

impl Call for MakeDir {
    const NAME: &'static str = "make-dir";
    type Reply = Done;
    /// A call that accepts a directory that is there accepts its own.
    fn is_repeatable(&self) -> bool {
        self.parents
    }
}

/// Sets when something was modified, whom it belongs to, and who may do what with it, without touching its content or its version; what
/// is left out stays.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetAttributes {
    /// The path of a file, a directory, a link or a space.
    pub path: PoolPath,
    /// The version of a file that is meant: where another is there by now, nothing is set. A call that is repeated
    /// because its reply was lost does so no harm to what somebody else stored in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionId>,
    /// The attributes to set.
    #[serde(flatten)]
    pub attributes: AttributesToSet,
}
call!(SetAttributes => Done, "set-attributes");

/// Moves a file or directory inside a space, atomically.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Move {
    /// The path of the file or directory to move.
    pub from: PoolPath,
    /// The new path itself; the caller has already decided whether to move *into* a directory.
    pub to: PoolPath,
    /// Refuse to replace a file.
    #[serde(default)]
    pub no_replace: bool,
    /// The version that has to be there and is replaced, if one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<VersionId>,
}
call!(Move => Done, "move", once);

/// Copies a file, or page by page a tree, inside the pool without moving its bytes: the copies are
/// versions of the same chunks. Between spaces only where neither is sealed, because each has its
/// key. Repeating a page repeats its reply, so that a lost reply can be asked for again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyFiles {
    /// The path of the file or directory to move.
    pub from: PoolPath,
    /// The path of the copy itself; the caller has already decided whether to copy *into* a
    /// directory.
    pub to: PoolPath,
    /// Directories with what is in them.
    #[serde(default)]
    pub recursive: bool,
    /// The condition under which a copy may replace a file.
    #[serde(default)]
    pub condition: Condition,
    /// The redundancy that the copies are to have, instead of what their directories ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Redundancy>,
    /// Names the whole copy; chosen by the caller at random.
    pub copy: SessionId,
    /// The number of the page in the copy, from 0.
    pub page: u32,
    /// The page continues after this [`CopiedFiles::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
impl Call for CopyFiles {
    const NAME: &'static str = "copy-files";
    const DEADLINE: Duration = Duration::from_secs(30);
    type Reply = CopiedFiles;
}

/// The outcome of a page.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CopiedFiles {
    /// The files that were copied.
    pub files: Vec<CopiedFile>,
    /// How many links were copied.
    #[serde(default, skip_serializing_if = "is_none")]
    pub links: u64,
    /// The files, directories and links that were not copied, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NotCopied>,
    /// Set when there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// One file that was copied.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopiedFile {
    /// The path of the copy.
    pub path: PoolPath,
    /// The version of the copy.
    pub version: VersionId,
    /// Size of the file in bytes of plaintext.
    pub bytes: u64,
    /// The redundancy that it is being changed to in the background, because its directory or the command
    /// asks for another than its source has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changing_to: Option<Redundancy>,
    /// Whether it has less redundancy than its source should have, because donors are away.
    pub below_policy: bool,
}

/// One file, directory or link that was not copied.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NotCopied {
    /// The path at which the copy was to be.
    pub path: PoolPath,
    /// The reason why it was not copied.
    pub failure: Failure,
}

impl NotCopied {
    /// Whether too few of the donors that hold it are there: stored anew, what is missing goes to others.
    pub fn lacks_holders(&self) -> bool {
        [code::NOT_ACKNOWLEDGED, code::DONORS_SILENT].contains(&self.failure.code.as_str())
    }
}

/// Removes a file, or with `recursive` a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remove {
    /// The path of the file or directory to remove.
    pub path: PoolPath,
    /// Directories with what is in them.
    #[serde(default)]
    pub recursive: bool,
    /// Nothing of it is kept, whatever the policy says, nor what was kept of its name before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forever: bool,
    /// What has to be there for anything to be removed.
    #[serde(default, skip_serializing_if = "OnlyIf::is_anything")]
    pub only_if: OnlyIf,
}
call!(Remove => Removed, "remove", once);

/// What is meant by a name that is to be removed: whoever asks may not know that somebody else has put something else
/// there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnlyIf {
    /// Whatever is there.
    #[default]
    Anything,
    /// A directory, and no file.
    Directory,
    /// A file or a link.
    NoDirectory,
    /// A file of this version.
    Version(VersionId),
}

impl OnlyIf {
    fn is_anything(&self) -> bool {
        *self == Self::Anything
    }
}

/// Sums over the files that were removed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Removed {
    /// The number of files and links.
    pub files: u64,
    /// Size of the files together, in bytes of plaintext.
    pub bytes: u64,
    /// Whether there were more than these: those of a large tree are not all counted.
    #[serde(default)]
    pub more: bool,
}

/// Adds up a part of a file or tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Usage {
    /// The path of the file or tree.
    pub path: PoolPath,
    /// Where the part before ended; from the start without.
    #[serde(default)]
    pub after: Option<UsedUpTo>,
}
call!(Usage => Used, "usage");

/// A place in a tree up to which it is added up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedUpTo {
    /// The last entry, relative to the tree; empty for a file by itself.
    pub path: String,
    /// How many of its chunks, if it has more.
    pub chunks: Option<u64>,
}

/// Sums over a part of a tree, and over each of its direct children.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Used {
    /// The number of files, and of links, which have no bytes.
    pub files: u64,
    /// The number of directories.
    pub dirs: u64,
    /// Sizes together, in bytes.
    pub bytes: u64,
    /// Bytes on donors, with copies. Of a chunk that several files have, each counts an equal part.
    pub stored: u64,
    /// The number of old versions, and of files and links that were removed, that are kept.
    #[serde(default, skip_serializing_if = "is_none")]
    pub kept_files: u64,
    /// Sizes of these together, in bytes.
    #[serde(default, skip_serializing_if = "is_none")]
    pub kept_bytes: u64,
    /// The sums of the direct children, in order of their names.
    #[serde(default)]
    pub children: Vec<ChildUse>,
    /// The quota of a space, if it was asked about as a whole and has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// Where this part ends, if it is not the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<UsedUpTo>,
}

impl Used {
    /// Adds the part that follows.
    pub fn add(&mut self, next: Self) {
        self.files += next.files;
        self.dirs += next.dirs;
        self.bytes += next.bytes;
        self.stored += next.stored;
        self.kept_files += next.kept_files;
        self.kept_bytes += next.kept_bytes;
        let mut children = next.children.into_iter().peekable();
        if let Some(last) = self.children.last_mut()
            && let Some(same) = children.next_if(|child| child.name == last.name)
        {
            last.files += same.files;
            last.bytes += same.bytes;
        }
        self.children.extend(children);
        self.next = next.next;
    }
}

/// A direct child's part of a [`Used`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChildUse {
    /// The name of the child.
    pub name: String,
    /// Whether it is a directory.
    pub dir: bool,
    /// Number of files in the child, itself included.
    pub files: u64,
    /// Size of these files together, in bytes of plaintext.
    pub bytes: u64,
}
