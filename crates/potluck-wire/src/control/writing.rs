//! The calls to write files.

use super::{Call, Callers, Done, DonorTraffic, MAX_MESSAGE, call};
use crate::addresses::Addresses;
use crate::error::{ErrorKind, Failure, code};
use crate::packed::Blob;
use crate::packed::Packed;
use crate::ticket::Acknowledged;
use crate::ticket::Ticket;
use potluck_core::attributes::{FileOwner, FileTime, Permissions};
use potluck_core::chunk::ChunkName;
use potluck_core::chunk::Digest;
use potluck_core::erasure::Ec;
use potluck_core::file_metadata::FileMetadata;
use potluck_core::ids::Incarnation;
use potluck_core::ids::SessionId;
use potluck_core::ids::SpaceId;
use potluck_core::ids::VersionId;
use potluck_core::ids::{Domain, DonorId};
use potluck_core::origin::Origin;
use potluck_core::path::PoolPath;
use potluck_core::placement::Plan;
use potluck_core::placement::striping::Striping;
use potluck_core::policy::AckLevel;
use potluck_core::policy::Override;
use potluck_core::policy::Policy;
use potluck_core::seal::SpaceKey;
use potluck_core::traffic::BothWays;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Opens a write session in one space: promises space and says where to write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reserve {
    /// The path at which the file, or the tree, will be; its space and directory give the policy. The policy of a
    /// tree's root holds for all files of the tree.
    pub path: PoolPath,
    /// The number of plaintext bytes to be written, when known; more can be had by [`Grow`].
    #[serde(default)]
    pub bytes: Option<u64>,
    /// The parts of the policy that this command sets differently from the space's.
    #[serde(default)]
    pub policy: Override,
    /// The condition under which files may replace others. It is checked early, so that a conflict costs no transfer,
    /// and again at commit.
    #[serde(default)]
    pub condition: Condition,
    /// What becomes of interrupted uploads where there is too little room beside them.
    #[serde(default)]
    pub interrupted: Interrupted,
    /// The bytes a second that the caller's link carries, if donors were seen to fill it. Only the caller's own stripe
    /// follows from that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u64>,
}
call!(Reserve => Reserved, "reserve", Users, "writing files");

/// What becomes of interrupted uploads where there is too little room beside them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interrupted {
    /// They are given up, the oldest first, until there is room.
    #[default]
    GiveWay,
    /// They stay, and the call is refused at once: the caller may find that it goes on with one of them.
    Stay,
    /// Those that offered a chunk which these sessions of the caller offered, too, are gone on with, and stay; others give
    /// way. An upload of the member that offered the same and is silent, as one whose process was killed, counts as
    /// interrupted.
    GoOn(Vec<SessionId>),
}

/// The condition under which a written file may replace what is at its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// The file becomes visible whatever is there: the later commit wins as a whole.
    #[default]
    Always,
    /// The file becomes visible only if nothing is there.
    IfAbsent,
    /// The file becomes visible only if this version is there.
    IfVersion(VersionId),
    /// The file becomes visible nowhere: its content, which must be the same, takes the place of that of this version,
    /// which is sealed with an earlier key of the space.
    SealsAgain(VersionId),
    /// The file becomes visible only if nothing is there, or a file without content. That is for a stream that
    /// brought nothing, which is more often a producer that failed than what somebody wants to keep.
    IfEmpty,
}

/// An open write session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reserved {
    /// The identifier of the session in every later call.
    pub session: SessionId,
    /// The time without any of its calls after which the session ends, in milliseconds.
    pub lease_ms: u64,
    /// The policy of the files written.
    pub policy: Policy,
    /// The number of the space.
    pub space: SpaceId,
    /// The space's secret, where the space is sealed.
    #[serde(default)]
    pub space_key: Option<SpaceKey>,
    /// The donors that the session writes to.
    pub plan: Plan,
    /// The ways to reach the plan's donors.
    pub donors: Vec<DonorAccess>,
    /// How the files of the session are striped, and why.
    #[serde(default)]
    pub striping: Striping,
}

/// The way to reach one donor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DonorAccess {
    /// The id of the donor.
    pub donor: DonorId,
    /// The name that people call the donor by.
    pub name: String,
    /// The addresses at which the donor is reached, the best first.
    pub addresses: Addresses,
    /// True if the donor was heard within the last seconds; other donors are tried last.
    pub live: bool,
    /// The donor's load as a score from 0 (idle) to 1 ([`potluck_core::load::Load::score`]).
    #[serde(default)]
    pub load: f32,
    /// The donor's rates in bytes a second as the pool knows them.
    #[serde(default)]
    pub rates: BothWays<Option<u64>>,
    /// The bytes a second that the donor moves for others at most now, as it says; `None` for no limit.
    #[serde(default)]
    pub limits: BothWays<Option<u64>>,
    /// The ticket for the donor. It is absent while the donor has not told the manager its key since the manager's
    /// start.
    #[serde(default)]
    pub ticket: Option<Ticket>,
    /// The incarnation of the donor; receipts of earlier ones count for nothing. It is absent whenever the ticket is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
    /// The donor's failure domain.
    pub domain: Domain,
}

/// Asks which of these chunks the pool holds already. The call keeps the session alive, and protects the chunks from
/// garbage collection until the session ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Offer {
    /// The write session that offers the chunks.
    pub session: SessionId,
    /// The chunks that the session is going to commit, as stored.
    pub chunks: Packed<ChunkName>,
    /// The ack level that copies must have reached to count as held.
    #[serde(default)]
    pub ack: AckLevel,
    /// The largest file of the session so far: a session that writes more than its quota allows ends with this call,
    /// and not with its commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub so_far: Option<GrowingFile>,
}
call!(Offer => Offered, "offer", Users, "writing files", at most 1 << 20);

/// The offered chunks that need not be sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Offered {
    /// The chunks on live donors; a chunk that is not listed must be sent.
    pub held: Vec<Held>,
}

/// An offered chunk that the pool holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Held {
    /// The index of the chunk in [`Offer::chunks`].
    pub index: u32,
    /// The donors with live copies; the writer makes the further copies that its policy asks for.
    pub donors: Vec<DonorId>,
    /// True if no file uses the chunk: an interrupted upload left it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unused: bool,
}

/// Promises more space to a session, because the size was unknown, the files grew, or donors of
/// the plan failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Grow {
    /// The write session that grows.
    pub session: SessionId,
    /// The number of plaintext bytes that are added. Where it is 0, the reply says how the donors of the plan so far
    /// can be reached now.
    pub bytes: u64,
    /// The donors beside those of the plan that hold what the session is to read, where no bytes are asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<DonorId>,
    /// The donors that failed this writer and are not planned again.
    #[serde(default)]
    pub avoid: Vec<DonorId>,
    /// True if only places for all redundancy are of use, as when donors failed for want of room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The one file of the session, if its size was unknown. The call is refused where a quota would refuse the
    /// file's commit even if no more came, so that a stream is not sent to its end for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<GrowingFile>,
}
call!(Grow => Grown, "grow", Users, "writing files", at most 1 << 20);

/// A file whose size is not known yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrowingFile {
    /// The path at which the file will be.
    pub path: PoolPath,
    /// The bytes of plaintext that the file has so far, without its holes.
    pub bytes: u64,
}

/// The places that a session was given in addition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Grown {
    /// The part that is added to the plan so far.
    pub plan: Plan,
    /// The ways to reach the donors of this part.
    pub donors: Vec<DonorAccess>,
}

/// Keeps a session alive, and renews its tickets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Renew {
    /// The write session that is renewed.
    pub session: SessionId,
    /// The donors that refused the session's tickets so far, because what the session may store there may be used up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<DonorId>,
    /// The traffic with donors since the caller last told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<DonorTraffic>,
}
call!(Renew => Renewed, "renew", Users, "writing files", at most 1 << 20);

/// The reply to a session that was renewed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Renewed {
    /// The ways to reach the donors of the session's plan from now on.
    pub donors: Vec<DonorAccess>,
}

/// Makes written files visible, each at one moment. A repeated batch brings the same reply, so that a lost reply can
/// be asked for again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Commit {
    /// The write session whose files become visible.
    pub session: SessionId,
    /// The number of this commit in its session, from 0.
    pub batch: u32,
    /// The files of the batch; each is stored or refused by itself.
    pub files: Vec<FileCommit>,
    /// True if the session ends with this commit.
    pub done: bool,
    /// True if the caller does not wait until a power cut of the manager undoes the change no more, where the ack level is
    /// `memory`: that takes a tenth of a second, or a [`SyncChanges`](super::SyncChanges).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soon: bool,
    /// The traffic with donors since the caller last told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<DonorTraffic>,
}
impl Call for Commit {
    const NAME: &'static str = "commit";
    const BY: Callers = Callers::Users;
    const WHAT: &'static str = "writing files";
    const MOST_BODY: usize = MAX_MESSAGE;
    const DEADLINE: Duration = Duration::from_secs(30);
    type Reply = Committed;
}

/// One file that was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileCommit {
    /// The path at which the file becomes visible; missing directories are made.
    pub path: PoolPath,
    /// The size of the file in bytes of plaintext.
    pub size: u64,
    /// The digest of the file's plaintext.
    pub digest: Digest,
    /// The modification time at the source, nanoseconds since 1970.
    #[serde(rename = "mtime_ns")]
    pub mtime: FileTime,
    /// The permissions of the file.
    #[serde(default)]
    pub permissions: Permissions,
    /// The owner of the file; `None` where the writer named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<FileOwner>,
    /// The time of the last change by the clock of who writes the file, nanoseconds since 1970.
    #[serde(rename = "ctime_ns")]
    pub changed: FileTime,
    /// The access time that a program set, if one did, nanoseconds since 1970.
    #[serde(default, rename = "atime_ns", skip_serializing_if = "Option::is_none")]
    pub accessed: Option<FileTime>,
    /// The place that the file was imported from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
    /// The plaintext bytes of a chunk; the last may be shorter. Where the file is cut by content, the most bytes of a
    /// chunk.
    pub chunk_size: u32,
    /// The number of copies that the file's policy asks for.
    pub copies: u32,
    /// The content of the file, where it fits the catalog; in a sealed space it is sealed as
    /// [`potluck_core::seal::Meaning::Inline`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Blob>,
    /// The recipe of the file in packed pages ([`potluck_core::recipe`]), where its content is not inline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Blob>,
    /// The erasure code of the file, if it has one; `copies` is 1 then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ec: Option<Ec>,
    /// The names of the parity chunks, k for each group of m data chunks in order.
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub parity: Packed<ChunkName>,
    /// The donors that acknowledged the file's chunks; parity chunks are counted after those of the recipe. A chunk
    /// that the pool held already needs none.
    #[serde(default)]
    pub acknowledged: Packed<Acknowledged>,
    /// The condition under which the file may replace what is at its path.
    #[serde(default)]
    pub condition: Condition,
    /// What the writer noted of the file for other programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FileMetadata>,
    /// The step of the commit where the file comes in parts, because it has more chunks than fit one
    /// ([`potluck_core::recipe::part_bytes`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_parts: Option<InParts>,
}

/// A step in the commit of a file of many chunks. Its parts are committed one by one, while the rest of it is
/// still being sent; nothing of it is visible before it is committed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InParts {
    /// The commit is of a part, whose size, digest, recipe and receipts it gives. It takes the place of a part that
    /// was committed under its number before.
    Part {
        /// The number of the file in its session, chosen by the client.
        file: u32,
        /// The number of the part in the file, from 0.
        number: u32,
    },
    /// The commit is of the whole file, without any recipe: the file has this many parts, which were committed
    /// before. Those that were not are holes.
    Whole {
        /// The number of the file in its session.
        file: u32,
        /// The number of its parts.
        parts: u32,
    },
}

/// Asks for parts of a file that was refused because donors of its chunks went away since they were committed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LostParts {
    /// The write session that the file is written in.
    pub session: SessionId,
    /// The number of the file in its session.
    pub file: u32,
}
call!(LostParts => CommittedParts, "lost-parts", Users, "writing files");

/// The parts of a file, some at a time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CommittedParts {
    /// The parts as they were committed, without receipts.
    pub parts: Vec<FileCommit>,
}

/// The outcome of a batch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Committed {
    /// The outcome of each file, in the order of the batch.
    pub files: Vec<Outcome>,
}

/// The outcome of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The file is visible.
    Stored {
        /// The version that the file has.
        version: VersionId,
        /// True if the file has less redundancy than its policy asks for, because donors are away: repair makes the
        /// rest.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        below_policy: bool,
        /// True if the death of one donor may lose something of the file, until an asynchronous protocol has made its
        /// copies.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        at_risk: bool,
        /// The time at which the file's directory was modified because the file came to it; not set where the file
        /// replaced another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dir_modified: Option<FileTime>,
    },
    /// The file is not visible, for this reason.
    Refused(Failure),
}

impl Outcome {
    /// Returns true if the file is not visible because donors of its chunks went away since they took them, or since
    /// they were said to hold them. A client that sends those chunks to others commits the file again in the same
    /// session.
    pub fn is_sent_again(&self) -> bool {
        let gone =
            |why: &Failure| why.kind == ErrorKind::Retry && why.code == code::NOT_ACKNOWLEDGED;
        matches!(self, Self::Refused(why) if gone(why))
    }
}

/// Ends a session without making anything visible.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Abort {
    /// The write session that ends.
    pub session: SessionId,
    /// True if the session's chunks are kept for a while, so that a later upload of the same bytes need not send them
    /// again; they are reclaimed otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}
call!(Abort => Done, "abort", Users, "writing files");
