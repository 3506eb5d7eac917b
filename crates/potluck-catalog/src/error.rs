//! The errors of the catalog: its refusals and its failures.

use potluck_core::checkpoint::CheckpointId;
use potluck_core::erasure::Ec;
use potluck_core::ids::VersionId;
use potluck_core::link_target::LinkTarget;
use potluck_core::path::{MAX_PATH, PoolPath};
use potluck_core::policy::Redundancy;
use potluck_core::quota::Quota;
use potluck_core::size::{count, format_size};

/// The reason why a catalog operation did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No space has this name.
    #[error("there is no space “{0}”")]
    NoSpaceNamed(String),
    /// A space of this name is there.
    #[error("the space “{0}” exists already")]
    SpaceExists(String),
    /// The space has files.
    #[error("the space “{name}” is not empty: it holds {}", count(*files, "file"))]
    SpaceNotEmpty {
        /// The name of the space.
        name: String,
        /// The number of files.
        files: u64,
    },
    /// Nothing is at the path.
    #[error("{0} does not exist")]
    NoEntry(PoolPath),
    /// Something is at the path.
    #[error("{0} exists already")]
    Exists(PoolPath),
    /// Another version than the expected one is at the path, or no file.
    #[error("{path} is {}, not version {expected}", found.map_or("gone".into(), |v| format!("version {v}")))]
    WrongVersion {
        /// The path at which the versions differ.
        path: PoolPath,
        /// The version that should have been there.
        expected: VersionId,
        /// The version that is there; `None` if no file is.
        found: Option<VersionId>,
    },
    /// A file or a link is where a directory is needed.
    #[error("{0} is a file, not a directory")]
    NotADirectory(PoolPath),
    /// A directory is where a file or a link is needed.
    #[error("{0} is a directory")]
    IsADirectory(PoolPath),
    /// A file stands where a link is to be.
    #[error("{0} is a file")]
    IsAFile(PoolPath),
    /// A link stands where a file is to be, or is to be read: it is not followed in the pool.
    #[error("{path} is a link to {target}")]
    IsALink {
        /// The path of the link.
        path: PoolPath,
        /// The target of the link.
        target: LinkTarget,
    },
    /// An empty file would take the place of one that has content, and the caller did not ask for that.
    #[error("{path} has {}, and what was to replace it is empty", count(*bytes, "byte"))]
    HasContent {
        /// The path of the file.
        path: PoolPath,
        /// The size of the file in bytes.
        bytes: u64,
    },
    /// A copy leads to another space, and one of the two is sealed: only a client that has the keys can copy.
    #[error("{from} is sealed with another key than {to} is to be")]
    OtherKey {
        /// The path of the file to copy.
        from: PoolPath,
        /// The path of the copy.
        to: PoolPath,
    },
    /// A directory that has entries is to be removed, or a directory is to be read or copied, and the caller did not
    /// ask for a whole tree.
    #[error("{0} is a directory")]
    NotRecursive(PoolPath),
    /// The directory has entries.
    #[error("the directory {0} is not empty")]
    NotEmpty(PoolPath),
    /// The operation does not work on the pool's root or a space itself.
    #[error("{0} is not inside a space")]
    OutsideSpaces(PoolPath),
    /// A file, directory or link was to be moved from one space to another.
    #[error("{from} and {to} lie in different spaces")]
    AcrossSpaces {
        /// The path of what was to be moved.
        from: PoolPath,
        /// The path to which it was to be moved.
        to: PoolPath,
    },
    /// A directory was to be moved into itself.
    #[error("{from} cannot be moved into itself, to {to}")]
    IntoItself {
        /// The path of the directory.
        from: PoolPath,
        /// The path below it to which it was to be moved.
        to: PoolPath,
    },
    /// A path below the target of a move, a copy or a checkpoint's commit would be longer than any may be.
    #[error("below {to} a path would have {bytes} bytes: at most {MAX_PATH} fit")]
    TooLong {
        /// The target, or the directory below it in which a path is too long.
        to: PoolPath,
        /// The length of a path that is too long, in bytes.
        bytes: usize,
    },
    /// No checkpoint of this identifier is open at the place and in the style that were named.
    #[error("no checkpoint {0} is open there: it was committed or aborted, or it expired")]
    NoCheckpoint(CheckpointId),
    /// The checkpoint is visible already.
    #[error("the checkpoint {id} was committed as {target}")]
    CheckpointCommitted {
        /// The identifier of the checkpoint.
        id: CheckpointId,
        /// The directory that the checkpoint became or was merged into.
        target: String,
    },
    /// A member has begun as many checkpoints as one may have open.
    #[error("you have {0} checkpoints open, and nobody has more")]
    TooManyCheckpoints(u64),
    /// A staging directory, or a path below one, is named where that is not allowed.
    #[error("{0} is where the files of a checkpoint are staged")]
    StagingPlace(PoolPath),
    /// A directory that looks empty to people has the staging directory of a checkpoint.
    #[error("a checkpoint is open in {0}")]
    HasCheckpoint(PoolPath),
    /// A commit would put so many files into directories that are there that it would hold up others.
    #[error(
        "more than {most} entries would have to be put one by one into directories that are there already, in {target}"
    )]
    TooManyMerged {
        /// The directory into which the checkpoint would be merged.
        target: PoolPath,
        /// The most entries that one commit puts there.
        most: usize,
    },
    /// A path leads into the place of old versions and snapshots, which only the catalog changes.
    #[error("{0} lies where old versions are kept and snapshots are read")]
    KeptPlace(PoolPath),
    /// The path under which an entry would be kept is longer than any may be.
    #[error("{0} is too long a path to be kept")]
    TooLongToKeep(PoolPath),
    /// No version of a name is kept, or not the one that was asked for.
    #[error("{}", match number {
        Some(number) => format!("version {number} of {path} is not kept"),
        None => format!("nothing is kept of {path}"),
    })]
    NotKept {
        /// The path of the name.
        path: PoolPath,
        /// The version that was asked for; `None` where any that is kept would have done.
        number: Option<VersionId>,
    },
    /// No snapshot of this name is there.
    #[error("there is no snapshot {0}")]
    NoSnapshot(PoolPath),
    /// The name of a snapshot is not a name that a directory could have.
    #[error("{0}")]
    BadSnapshotName(String),
    /// A directory has as many snapshots as one may have.
    #[error("{dir} has {most} snapshots, and no directory has more")]
    TooManySnapshots {
        /// The path of the directory.
        dir: PoolPath,
        /// The most that it may have.
        most: u64,
    },
    /// A directory that looks empty has snapshots.
    #[error("{0} has snapshots")]
    HasSnapshots(PoolPath),
    /// A directory has so many entries that its newest steps are not looked for.
    #[error("{path} has more than {most} steps, so that none is purged")]
    TooManySteps {
        /// The path of the directory.
        path: PoolPath,
        /// The most entries that are looked at.
        most: usize,
    },
    /// A space was to be a series, of which all entries are steps.
    #[error("{0} is a space, and steps are purged in directories")]
    SpaceAsSeries(PoolPath),
    /// Something was to be brought back to a directory that was removed itself.
    #[error("{removed} was removed, and {path} with it")]
    RemovedAbove {
        /// The path of what is to be brought back.
        path: PoolPath,
        /// The path of the directory that was removed.
        removed: PoolPath,
    },
    /// A cursor is one that the catalog never gave out.
    #[error("the listing cannot go on from where the cursor points")]
    BadCursor,
    /// The write session has ended or never was.
    #[error("the write session is over")]
    NoSession,
    /// No donor is known to have a chunk of a file that is stored as copies.
    #[error("no donor acknowledged chunk {index} of {path} to this session")]
    NotAcknowledged {
        /// The path of the file.
        path: PoolPath,
        /// The chunk's index in the file, from 0.
        index: usize,
    },
    /// A chunk of the file has fewer copies than a write needs under its policy.
    #[error("chunk {index} of {path} is on {have} of the {need} distinct donors asked for")]
    TooFewCopies {
        /// The path of the file.
        path: PoolPath,
        /// The chunk's index in the file, from 0.
        index: usize,
        /// The number of donors that have the chunk.
        have: usize,
        /// The number of donors that must have the chunk.
        need: usize,
    },
    /// A chunk of an erasure-coded group has no donor to itself.
    #[error("chunk {index} of {path} has no donor of its own among the chunks of its {ec} group")]
    NotApart {
        /// The path of the file.
        path: PoolPath,
        /// The chunk's index in the file; parity chunks count on after the data chunks.
        index: usize,
        /// The erasure code of the file.
        ec: Ec,
    },
    /// Donors that acknowledged enough copies of a chunk are away or dead by now.
    #[error(
        "of chunk {index} of {path} too little is left: donors that took it are away or dead since"
    )]
    HoldersAway {
        /// The path of the file.
        path: PoolPath,
        /// The first of the file's chunks that such a donor acknowledged; parity chunks count on after the data
        /// chunks.
        index: usize,
    },
    /// A file has parts that the caller of the commit must judge anew before the file becomes visible.
    #[error("parts of the file are to be judged anew")]
    PartsUnjudged,
    /// A file has so many chunks that its copy would hold up others.
    #[error("{path} has {} and is not copied without being read", count(*chunks, "chunk"))]
    TooManyChunks {
        /// The path of the copy.
        path: PoolPath,
        /// The number of chunks of the file.
        chunks: u64,
    },
    /// The parts that were committed are not those of the file.
    #[error("the parts of {0} that were committed do not make the file")]
    PartsDiffer(PoolPath),
    /// A file would have less than all its redundancy, and its directory or its command asks for all.
    #[error("{path} is to have {redundancy} from the start, and too few donors took it")]
    NotStrict {
        /// The path of the file.
        path: PoolPath,
        /// The redundancy that it is to have.
        redundancy: Redundancy,
    },
    /// A chunk is known with another length than the file says.
    #[error("chunk {index} of {path} has another length than the pool knows it by")]
    WrongLength {
        /// The path of the file.
        path: PoolPath,
        /// The chunk's index in the file, from 0.
        index: usize,
    },
    /// The pool knows no such token, or the donor that issued it was removed.
    #[error(
        "this pool knows no such join token: it was removed, or made before a restore, or for another pool"
    )]
    UnknownToken,
    /// A member joined with the token before.
    #[error("this join token has been used already")]
    UsedToken,
    /// The token's time is over.
    #[error("this join token has expired")]
    ExpiredToken,
    /// No token has this number.
    #[error("there is no invitation {0}")]
    NoToken(u32),
    /// A token that was to be removed was used already, and made a member.
    #[error("invitation {token} was used: it made member {member}")]
    TokenOfMember {
        /// The number of the token.
        token: u32,
        /// The number of the member that joined with the token.
        member: u32,
    },
    /// A certificate request cannot be certified.
    #[error("{0}")]
    BadCertificateRequest(String),
    /// No group of this name is there.
    #[error("there is no group “{0}”")]
    NoGroup(String),
    /// A group of this name is there.
    #[error("the group “{0}” exists already")]
    GroupExists(String),
    /// The name that a member or a group is to have belongs to another group or member.
    #[error("{holder} is called “{name}” already")]
    NameTaken {
        /// The name that is taken.
        name: String,
        /// The kind of its owner: a group, or a member.
        holder: &'static str,
    },
    /// A donor was to have a name with letters that look like others.
    #[error(
        "“{0}” cannot be a donor's name: it is made of letters from A to Z, digits and signs, which nobody takes for others"
    )]
    BadDonorName(String),
    /// A member has made as many spaces as a member may make.
    #[error("you have made {0} spaces, and nobody but an admin makes more")]
    TooManySpaces(u64),
    /// A member has as many access keys as a member may have.
    #[error("you have {most} access keys, and nobody may have more")]
    TooManyKeys {
        /// The most access keys of a member.
        most: u64,
    },
    /// No more directories of the space may set parts of the policy differently.
    #[error("{most} directories in the space {space} set their own policy, and no more may")]
    TooManyPolicies {
        /// The name of the space.
        space: String,
        /// The most directories that may set something differently.
        most: u64,
    },
    /// A quota would be exceeded, of a space or of all spaces that a member made.
    #[error("{of} {}", over(*quota, *files, *bytes))]
    OverQuota {
        /// The space or the member that the quota is of, in words.
        of: String,
        /// The limits of the quota.
        quota: Quota,
        /// The number of files and directories that there would be, if it is more than the quota allows.
        files: Option<u64>,
        /// The bytes that all files would have together, if they are more than the quota allows.
        bytes: Option<u64>,
    },
    /// A file would be stored with less safety than the policy of its path asks for, and its command did not ask for
    /// that, or was not given by a member who manages the space.
    #[error(
        "the policy at {0} asks for more safety than this write gives; only a command that says so, of a member with the \
         right to manage in the space {space}, may store it with less",
        space = .0.space()
    )]
    LessSafe(PoolPath),
    /// A space that is not sealed has no key.
    #[error(
        "the space {0} is not sealed: its files are stored as they are, and there is no key to change"
    )]
    NotSealed(String),
    /// The key of a space was changed after a write to it began, and nothing needs the earlier key any more.
    #[error("the key of the space was changed meanwhile")]
    KeyChanged,
    /// A version is not what a client sealed again: it was removed, changed or sealed again by another meanwhile.
    #[error("version {0} is not any more what was sealed again")]
    NotSealedAgain(VersionId),
    /// A version cannot be sealed again now, because somebody has it open.
    #[error("version {0} is open, so that it is sealed again later")]
    OpenElsewhere(VersionId),
    /// No member has this number.
    #[error("there is no member {0}")]
    NoMember(u32),
    /// The pool would be left without an admin.
    #[error("member {0} is the pool's last admin")]
    LastAdmin(u32),
    /// The disk that holds the catalog is full.
    #[error("the disk that holds the catalog is full")]
    DiskFull,
    /// The disk that holds the catalog takes no writes, or fails.
    #[error("the disk that holds the catalog fails: {0}")]
    Disk(String),
    /// The catalog is damaged: its file is not as it was written, or its rows contradict each other.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
    /// Another program keeps the catalog locked.
    #[error("another program keeps the catalog locked")]
    Contended,
    /// A read did not get its turn in time.
    #[error("the manager reads its catalog for others, or for other calls of this member")]
    Busy,
    /// Any other error of the engine.
    #[error("the catalog failed: {0}")]
    Sql(String),
    /// The manager is shutting down.
    #[error("the manager is shutting down")]
    Closed,
    /// A job broke an assumption; nothing of it happened.
    #[error("the catalog met a bug: {0}")]
    Bug(String),
}

/// Returns a text with all limits of a quota, and with what there would be of `files` and `bytes`, of which only those
/// above their limit are given. Bytes are exact where the rounded sizes would read the same.
fn over(quota: Quota, files: Option<u64>, bytes: Option<u64>) -> String {
    let held = |files: Option<u64>, bytes: Option<u64>, size: fn(u64) -> String| {
        let files = files.map(|files| match files {
            1 => "1 file or directory".to_owned(),
            _ => format!("{files} files and directories"),
        });
        let parts: Vec<_> = files.into_iter().chain(bytes.map(size)).collect();
        parts.join(", ")
    };
    let said = |size| {
        let (may, would) = (held(quota.files, quota.bytes, size), held(files, bytes, size));
        format!("may hold {may}, and would hold {would}")
    };
    let alike = bytes.map(format_size) == quota.bytes.map(format_size);
    said(if alike { |bytes| count(bytes, "byte") } else { format_size })
}

impl Error {
    /// Returns whether this error is the fault of the disk that holds the catalog.
    pub fn is_disks(&self) -> bool {
        matches!(self, Self::DiskFull | Self::Disk(_))
    }

    /// Returns whether the catalog as a whole fails, so that other operations would fail, too.
    pub fn is_of_catalog(&self) -> bool {
        self.is_disks() || matches!(self, Self::Contended | Self::Sql(_) | Self::Closed)
    }
}
