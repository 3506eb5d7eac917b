//! The calls about names, and about the files, directories and links that names lead to.

use super::{Call, Callers, Condition, Done, DonorState, QuotaUse, call};
use crate::error::{Failure, code};
use potluck_core::attributes::{
    AttributesToSet, EntryAttributes, FileOwner, FileTime, Permissions,
};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::erasure::Ec;
use potluck_core::file_metadata::FileMetadata;
use potluck_core::ids::DonorId;
use potluck_core::ids::SessionId;
use potluck_core::ids::VersionId;
use potluck_core::link_target::LinkTarget;
use potluck_core::origin::{CacheState, Origin};
use potluck_core::path::PoolPath;
use potluck_core::policy::{Policy, Redundancy, SeriesRule};
use potluck_core::traffic::BothWays;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The kind of an entry that a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// The path names a file.
    File,
    /// The path names a directory, or a space.
    Dir,
    /// The path names a symbolic link.
    Link,
}

/// One entry of a listing, with everything there is to know without another call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedEntry {
    /// The path of the entry, relative to the listed path.
    pub path: String,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// The size in plaintext bytes; 0 for a directory, and for a link the bytes of its target.
    #[serde(default)]
    pub size: u64,
    /// The bytes of a file that are in holes, which are stored nowhere.
    #[serde(default, skip_serializing_if = "is_none")]
    pub holes: u64,
    /// The modification time, nanoseconds since 1970.
    #[serde(default, rename = "mtime_ns")]
    pub mtime: FileTime,
    /// The version of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionId>,
    /// The digest of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The number of copies that a file's policy asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// The erasure code of a file, instead of copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// True if a file lives in the catalog alone and nothing of it is on donors, whatever its policy asks for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_catalog: bool,
    /// The permissions of the entry.
    #[serde(default)]
    pub permissions: Permissions,
    /// The owner of the entry, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
    /// The time of the last change of content, name or attributes, nanoseconds since 1970.
    #[serde(default, rename = "ctime_ns")]
    pub changed: FileTime,
    /// The access time that a program set, if one did, nanoseconds since 1970.
    #[serde(default, rename = "atime_ns", skip_serializing_if = "Option::is_none")]
    pub accessed: Option<FileTime>,
    /// What the writer noted of the file for other programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FileMetadata>,
    /// The path to which a link leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<LinkTarget>,
    /// The place that a file was imported from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
    /// Whether a file is kept, cached or evicted.
    #[serde(default, skip_serializing_if = "CacheState::is_kept")]
    pub cache: CacheState,
}

impl ListedEntry {
    /// Returns the number of bytes of a file that are in no hole.
    pub fn data(&self) -> u64 {
        self.size.saturating_sub(self.holes)
    }

    /// Returns the attributes of the entry.
    pub fn attributes(&self) -> EntryAttributes {
        let Self { mtime, permissions, owner, changed, accessed, .. } = *self;
        EntryAttributes { mtime, permissions, owner, changed, accessed }
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
call!(List => Listing, "list", Users, "looking at files");

/// A page of a listing: entries in order of their names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Listing {
    /// The entries of this page.
    pub entries: Vec<ListedEntry>,
    /// The place after which the next page begins; set when there is more.
    #[serde(default)]
    pub next: Option<String>,
}

/// Asks for everything that is known of one path; of a file of very many chunks, page by page.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stat {
    /// The path that is asked about.
    pub path: PoolPath,
    /// True if every chunk of a file is described, up to [`MOST_DESCRIBED`].
    #[serde(default)]
    pub chunks: bool,
    /// True if nobody asks which donors hold a file and how safe it is: to look at all chunks of a very large file
    /// takes many pages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unjudged: bool,
    /// True if [`Stated::free`] is asked for, which takes a look at all donors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub room: bool,
    /// The page continues after this [`Stated::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
call!(Stat => Stated, "stat", Users, "looking at files");

/// The most chunks of one file that are described.
pub const MOST_DESCRIBED: usize = 100_000;

/// The facts about a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stated {
    /// The entry as a listing shows it, with the path "".
    pub entry: ListedEntry,
    /// The policy that holds at the path.
    pub policy: Policy,
    /// The rule by which steps are purged, where the path is a directory that is a series.
    #[serde(default, skip_serializing_if = "SeriesRule::is_unset")]
    pub series: SeriesRule,
    /// True if the content lives in the catalog.
    #[serde(default)]
    pub inline: bool,
    /// The number of chunks of a file.
    #[serde(default)]
    pub chunks: u64,
    /// The bytes per chunk of a file.
    #[serde(default)]
    pub chunk_size: u32,
    /// The fewest live copies that any data chunk of the file has. 0 means that the file cannot be read whole now,
    /// unless its erasure code can rebuild the chunk; other entries than chunked files have 0, too.
    #[serde(default)]
    pub live_copies: u32,
    /// The donors that hold chunks of the file, each with its share.
    #[serde(default)]
    pub donors: Vec<Share>,
    /// The health of a file at this moment, unless it was asked about [unjudged](Stat::unjudged).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// The chunks of the file, data before parity, when asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunk_list: Vec<ChunkFacts>,
    /// The bytes of files that can be stored now by the policy that holds at the path, in files of a few chunks or more,
    /// when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// The place to pass as [`Stat::after`] for the next page; set when there is more. A page tells only of some of the
    /// file's chunks; all else is in each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Stated {
    /// Adds the page that follows this one, of the same version of the file.
    pub fn add(&mut self, next: Self) {
        self.live_copies = self.live_copies.min(next.live_copies);
        self.add_shares(next.donors);
        if let Some(health) = next.health {
            self.add_health(health);
        }
        self.describe(next.chunk_list);
        self.next = next.next;
    }

    /// Adds the shares of donors in further chunks of the file. The donors stay in order.
    pub fn add_shares(&mut self, more: Vec<Share>) {
        for share in more {
            match self.donors.binary_search_by_key(&share.donor, |known| known.donor) {
                Ok(at) => {
                    self.donors[at].chunks += share.chunks;
                    self.donors[at].bytes += share.bytes;
                }
                Err(at) => self.donors.insert(at, share),
            }
        }
    }

    /// Adds the health of further chunks of the file.
    pub fn add_health(&mut self, more: Health) {
        self.health = Some(match self.health.take() {
            Some(before) => before.with(more),
            None => more,
        });
    }

    /// Adds descriptions of further chunks of the file, up to [`MOST_DESCRIBED`] in all.
    pub fn describe(&mut self, more: Vec<ChunkFacts>) {
        let room = MOST_DESCRIBED.saturating_sub(self.chunk_list.len());
        self.chunk_list.extend(more.into_iter().take(room));
    }
}

/// The health of a file: how safe it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// The manager's judgement of the file's health as a whole, which every command shows.
    pub level: HealthLevel,
    /// The number of donors that may still die for ever before something of the file is lost; `None` where something
    /// cannot be read now, or nothing of the file is on donors.
    pub tolerates: Option<u32>,
    /// The number of donors that may still die or fall silent before something of the file cannot be read: less than
    /// `tolerates` while donors that the file relies on are silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerates_now: Option<u32>,
    /// True if donors that the file relies on are silent, so that fewer may go now than may die for ever.
    pub silent: bool,
    /// The number of donors that may die without loss, as the file's policy promises.
    pub promised: u32,
    /// The number of chunks without all copies, or missing from their groups: while there are any, the file is less
    /// safe than promised.
    pub incomplete: u64,
    /// The number of chunks that cannot be had now, neither from a donor nor by rebuilding.
    pub unreadable: u64,
    /// The time at which the file came to have all that its policy promises, in milliseconds of wall time; `None`
    /// while its unsafe window is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_since_ms: Option<i64>,
    /// The redundancy that the file is being changed to in the background; until then the present guarantee holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changing_to: Option<Redundancy>,
    /// True if the file is less safe than its policy promises, and repair is to make the rest.
    pub below_policy: bool,
    /// True if the file is in the catalog and nothing of it is on donors, so that no donor's death loses it.
    pub in_catalog: bool,
}

impl Health {
    /// Returns the health of a file that consists of a part with this health and a part with the other.
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

/// The level of safety of a file, or of the worst file in a space; a greater level is worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthLevel {
    /// The file is as safe as promised.
    #[default]
    Safe,
    /// The file will be as safe as promised when donors are back that are silent now.
    Waiting,
    /// The file can be read, but is less safe than promised.
    Incomplete,
    /// Something of the file cannot be read now.
    Unreadable,
}

/// One chunk of a file as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkFacts {
    /// The name of the chunk.
    pub name: ChunkName,
    /// The size of the chunk in stored bytes.
    pub len: u32,
    /// True if the chunk is parity.
    #[serde(default)]
    pub parity: bool,
    /// The group of the chunk, counted from 0, in an erasure-coded file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u64>,
    /// The live donors that hold the chunk.
    pub donors: Vec<DonorId>,
    /// The state of the chunk's copies.
    pub state: MirrorState,
}

/// The state of the copies of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MirrorState {
    /// All copies of the chunk are there.
    Complete,
    /// Some copies of the chunk are there, and the others are being made.
    Pending,
    /// No live donor has the chunk, and its group can rebuild it.
    Rebuildable,
    /// The chunk cannot be had now.
    Unreadable,
}

/// A donor's share of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Share {
    /// The id of the donor.
    pub donor: DonorId,
    /// The name that people call the donor by.
    pub name: String,
    /// The state of the donor.
    pub state: DonorState,
    /// The number of the file's chunks that the donor holds.
    pub chunks: u64,
    /// The size of these chunks in stored bytes.
    pub bytes: u64,
    /// The donor's rates in bytes a second, as the pool knows them.
    #[serde(default)]
    pub rates: BothWays<Option<u64>>,
    /// The donor's load as a score from 0 (idle) to 1 ([`potluck_core::load::Load::score`]).
    #[serde(default)]
    pub load: f32,
}

/// Makes a directory at a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeDir {
    /// The path of the directory.
    pub path: PoolPath,
    /// True if missing parents are made, and a directory that exists already is accepted.
    #[serde(default)]
    pub parents: bool,
    /// The permissions of the directories that are made; those of one that exists stay.
    #[serde(default = "dir_permissions")]
    pub permissions: Permissions,
    /// The owner of the directories that are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
}

fn dir_permissions() -> Permissions {
    Permissions::DIR
}

impl Call for MakeDir {
    const NAME: &'static str = "make-dir";
    const BY: Callers = Callers::Users;
    const WHAT: &'static str = "changing files";
    type Reply = NamesChanged;
    /// Returns true where a directory that is there is accepted: a repeated call then accepts its own.
    fn is_repeatable(&self) -> bool {
        self.parents
    }
}

/// Names came to directories or went.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct NamesChanged {
    /// The time at which the directories of these names were modified by that, so that nobody has to ask for it.
    #[serde(rename = "modified_ns")]
    pub modified: FileTime,
}

/// Sets attributes of an entry (times, owner, permissions) without touching its content or its version.
/// Attributes that are left out stay.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetAttributes {
    /// The path of a file, a directory, a link or a space.
    pub path: PoolPath,
    /// The version of the file that is meant: where another version is there by now, nothing is set. So a call that
    /// is repeated because its reply was lost does no harm to what somebody else stored in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionId>,
    /// The attributes to set.
    #[serde(flatten)]
    pub attributes: AttributesToSet,
}
call!(SetAttributes => Done, "set-attributes", Users, "changing files");

/// Moves a file, directory or link inside a space, atomically. It replaces a file or link by a file or link, and an
/// empty directory by a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Move {
    /// The path of the entry to move.
    pub from: PoolPath,
    /// The new path itself; the caller has already decided whether to move *into* a directory.
    pub to: PoolPath,
    /// True if the move is refused where it would replace anything.
    #[serde(default)]
    pub no_replace: bool,
    /// The version that has to be there and is replaced, if one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<VersionId>,
    /// True if the caller does not wait until a power cut of the manager undoes the change no more, where the ack level is
    /// `memory`: that takes a tenth of a second, or a [`SyncChanges`](super::SyncChanges).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soon: bool,
}
call!(Move => NamesChanged, "move", Users, "changing files", once);

/// Copies a file, or page by page a tree, inside the pool without moving its bytes: the copies are versions of the
/// same chunks. A copy between spaces is possible only where neither is sealed, because each has its own key. A
/// repeated page brings the same reply, so that a lost reply can be asked for again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyFiles {
    /// The path of the file or directory to copy.
    pub from: PoolPath,
    /// The path of the copy itself; the caller has already decided whether to copy *into* a
    /// directory.
    pub to: PoolPath,
    /// True if directories are copied with everything in them.
    #[serde(default)]
    pub recursive: bool,
    /// The condition under which a copy may replace a file.
    #[serde(default)]
    pub condition: Condition,
    /// The redundancy that the copies are to have, instead of what their directories ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Redundancy>,
    /// The identifier of the whole copy, chosen by the caller at random.
    pub copy: SessionId,
    /// The number of the page in the copy, from 0.
    pub page: u32,
    /// The page continues after this [`CopiedFiles::next`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
impl Call for CopyFiles {
    const NAME: &'static str = "copy-files";
    const BY: Callers = Callers::Users;
    const WHAT: &'static str = "changing files";
    const DEADLINE: Duration = Duration::from_secs(30);
    type Reply = CopiedFiles;
}

/// The outcome of one page of a copy.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CopiedFiles {
    /// The files that were copied.
    pub files: Vec<CopiedFile>,
    /// The number of links that were copied.
    #[serde(default, skip_serializing_if = "is_none")]
    pub links: u64,
    /// The files, directories and links that were not copied, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NotCopied>,
    /// The place after which the next page begins; set when there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

pub(super) fn is_none(count: &u64) -> bool {
    *count == 0
}

/// One file that was copied.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopiedFile {
    /// The path of the copy.
    pub path: PoolPath,
    /// The version of the copy.
    pub version: VersionId,
    /// The size of the file in bytes of plaintext.
    pub bytes: u64,
    /// The redundancy that the copy is being changed to in the background, because its directory or the command asks
    /// for another than its source has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changing_to: Option<Redundancy>,
    /// True if the copy has less redundancy than its source should have, because donors are away.
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
    /// Returns whether the file was not copied because too few of the donors that hold it are there. When it is stored
    /// anew, the missing chunks go to other donors.
    pub fn lacks_holders(&self) -> bool {
        [code::NOT_ACKNOWLEDGED, code::DONORS_SILENT].contains(&self.failure.code.as_str())
    }
}

/// Removes a file, a link or an empty directory, or with `recursive` any directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remove {
    /// The path of the entry to remove.
    pub path: PoolPath,
    /// True if directories are removed with everything in them.
    #[serde(default)]
    pub recursive: bool,
    /// True if nothing of the removed entry is kept, nor what was kept of its name before, whatever the policy says,
    /// except what a snapshot shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forever: bool,
    /// The entry that has to be there for anything to be removed.
    #[serde(default, skip_serializing_if = "OnlyIf::is_anything")]
    pub only_if: OnlyIf,
    /// True if the caller does not wait until a power cut of the manager undoes the change no more, where the ack level is
    /// `memory`: that takes a tenth of a second, or a [`SyncChanges`](super::SyncChanges).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soon: bool,
}
call!(Remove => Removed, "remove", Users, "changing files", once);

/// The entry that a name which is to be removed must lead to, because somebody may have put something else there
/// without the caller's knowing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnlyIf {
    /// Any entry is removed, whatever it is.
    #[default]
    Anything,
    /// Only a directory is removed.
    Directory,
    /// Only a file or a link is removed.
    NoDirectory,
    /// Only a file of this version is removed.
    Version(VersionId),
}

impl OnlyIf {
    fn is_anything(&self) -> bool {
        *self == Self::Anything
    }
}

/// The sums over the files that were removed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Removed {
    /// The number of files and links.
    pub files: u64,
    /// The bytes of the files together that are in no hole, as plaintext.
    pub bytes: u64,
    /// True if more was removed than these sums say: the entries of a large tree are not all counted.
    #[serde(default)]
    pub more: bool,
    /// The time at which the directory of the removed name was modified by that.
    #[serde(default, rename = "dir_modified_ns", skip_serializing_if = "Option::is_none")]
    pub dir_modified: Option<FileTime>,
}

/// Waits until no power cut undoes what was changed before, by whoever.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SyncChanges {}
call!(SyncChanges => Done, "sync", Users, "writing files");

/// Adds up the sizes of a part of a file or tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Usage {
    /// The path of the file or tree.
    pub path: PoolPath,
    /// The place where the part before ended; the start where it is left out.
    #[serde(default)]
    pub after: Option<UsedUpTo>,
}
call!(Usage => Used, "usage", Users, "looking at files");

/// A place in a tree up to which it is added up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedUpTo {
    /// The last entry, relative to the tree; empty for a file by itself.
    pub path: String,
    /// The number of the next chunk of this entry that is added up, as a reply gave it; `None` where none is left.
    pub chunks: Option<u64>,
}

/// The sums over a part of a tree, and over each of its direct children.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Used {
    /// The number of files, and of links, which have no bytes.
    pub files: u64,
    /// The number of directories.
    pub dirs: u64,
    /// The bytes of the files together that are in no hole.
    pub bytes: u64,
    /// The bytes on donors, with all copies. A chunk that several files share counts for each with an equal part.
    pub stored: u64,
    /// The number of kept versions: old versions, and files and links that were removed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub kept_files: u64,
    /// The bytes of the kept versions together that are in no hole.
    #[serde(default, skip_serializing_if = "is_none")]
    pub kept_bytes: u64,
    /// The sums of the direct children, in order of their names.
    #[serde(default)]
    pub children: Vec<ChildUse>,
    /// The limits of a space and what is used of them, if it was asked about as a whole and has a quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaUse>,
    /// The place where this part ends, if it is not the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<UsedUpTo>,
}

impl Used {
    /// Adds the sums of the part that follows this one.
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

/// The share of a direct child in a [`Used`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChildUse {
    /// The name of the child.
    pub name: String,
    /// True if the child is a directory.
    pub dir: bool,
    /// The number of files in the child, itself included.
    pub files: u64,
    /// The bytes of these files together that are in no hole, as plaintext.
    pub bytes: u64,
}
