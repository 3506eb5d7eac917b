//! The control plane's messages: each call's request and reply together.
//!
//! Every call is `POST /v1/NAME` with a JSON body, over mutual TLS; a refusal is a
//! [`crate::error::Failure`] with the HTTP status of its kind. Unknown fields are ignored and new
//! ones have defaults, because desktops never upgrade together.

use crate::packed::{Blob, Packed};
use crate::ticket::{Acknowledged, Secret, Ticket};
use crate::token::Role;
use potluck_core::budget::DiskState;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::{DonorId, Epoch, Incarnation, MemberId, SessionId, SpaceId, VersionId};
use potluck_core::load::Load;
use potluck_core::path::PoolPath;
use potluck_core::placement::Plan;
use potluck_core::policy::{Override, Policy};
use potluck_core::seal::SpaceKey;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The largest body either side reads: a commit of about a million chunks.
pub const MAX_MESSAGE: usize = 96 << 20;

/// One call: its request type names the path and the reply.
pub trait Call: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The last part of the path, after `/v1/`.
    const NAME: &'static str;
    /// How long the caller waits for the reply before it counts the manager as away.
    const DEADLINE: Duration = Duration::from_secs(15);
    /// What comes back.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
}

macro_rules! call {
    ($request:ident => $reply:ty, $name:literal) => {
        impl Call for $request {
            const NAME: &'static str = $name;
            type Reply = $reply;
        }
    };
}

/// Nothing to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Done {}

// ---- membership ------------------------------------------------------------------------------

/// Turns a token into a certificate. The only call without a client certificate: the caller has
/// none yet; it has verified the pool's CA by the token's pin.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Join {
    /// The token's secret.
    pub secret: Digest,
    /// A PKCS#10 request in DER, for a key that stays with the joiner.
    pub request: Blob,
    /// What people call this machine or person.
    pub name: String,
}
call!(Join => Joined, "join");

/// Membership.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Joined {
    /// The new member.
    pub member: MemberId,
    /// What it may do.
    pub role: Role,
    /// Its certificate, in DER.
    pub certificate: Blob,
    /// The pool's CA certificate, in DER; the joiner compares it with the token's pin.
    pub ca: Blob,
    /// What the pool is called.
    pub pool: String,
}

/// Makes a join token (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Invite {
    /// The role it will give.
    pub role: Role,
    /// Seconds until it expires.
    pub ttl_seconds: u64,
}
call!(Invite => Invited, "invite");

/// A fresh token's secret; the caller knows the rest of the token itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Invited {
    /// Goes into the [`crate::token::JoinToken`].
    pub secret: Digest,
}

/// Takes a member's rights away (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Revoke {
    /// Who.
    pub member: MemberId,
}
call!(Revoke => Done, "revoke");

// ---- spaces ----------------------------------------------------------------------------------

/// Makes a space (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceCreate {
    /// Its name.
    pub name: String,
    /// Its policy.
    pub policy: Policy,
}
call!(SpaceCreate => Done, "space-create");

/// Removes a space (admins); refused while it holds files unless `force`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceRemove {
    /// Its name.
    pub name: String,
    /// Remove its files too.
    #[serde(default)]
    pub force: bool,
}
call!(SpaceRemove => Done, "space-remove");

/// Lists the spaces.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceList {}
call!(SpaceList => Spaces, "space-list");

/// All spaces.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Spaces {
    /// In order of their names.
    pub spaces: Vec<SpaceInfo>,
}

/// One space.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SpaceInfo {
    /// Its name.
    pub name: String,
    /// Its policy.
    pub policy: Policy,
    /// Files in it.
    #[serde(default)]
    pub files: u64,
    /// Their sizes together, in bytes, before copies and dedup.
    #[serde(default)]
    pub bytes: u64,
}

// ---- writing ---------------------------------------------------------------------------------

/// Opens a write session in one space: promises space and says where to write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reserve {
    /// Where the file, or the tree, will be; its space and directory give the policy.
    pub path: PoolPath,
    /// Plaintext bytes, when known; more can be had by [`Grow`].
    #[serde(default)]
    pub bytes: Option<u64>,
    /// What this command sets differently from the space's policy.
    #[serde(default)]
    pub policy: Override,
    /// Checked early, so that a conflict costs no transfer, and again at commit.
    #[serde(default)]
    pub condition: Condition,
}
call!(Reserve => Reserved, "reserve");

/// When a file may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Whatever is there: the later commit wins whole.
    #[default]
    Always,
    /// Only if nothing is there.
    IfAbsent,
    /// Only if this version is there.
    IfVersion(VersionId),
}

/// An open write session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reserved {
    /// Names the session in every later call.
    pub session: SessionId,
    /// The session ends when none of its calls arrives for this long.
    pub lease_ms: u64,
    /// What holds for the files written.
    pub policy: Policy,
    /// The space's number.
    pub space: SpaceId,
    /// The space's secret, when it is sealed.
    #[serde(default)]
    pub space_key: Option<SpaceKey>,
    /// Where to write.
    pub plan: Plan,
    /// How to reach the plan's donors.
    pub donors: Vec<DonorAccess>,
}

/// How to reach one donor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DonorAccess {
    /// Which donor.
    pub donor: DonorId,
    /// What people call it.
    pub name: String,
    /// Its `host:port`.
    pub address: String,
    /// Heard from within the last seconds; the others are tried last.
    pub live: bool,
    /// Its load score, 0 idle to 1 full ([`Load::score`]).
    #[serde(default)]
    pub load: f32,
    /// What the bearer may do there. Absent while the donor has not told the manager its key
    /// since the manager's start.
    #[serde(default)]
    pub ticket: Option<Ticket>,
}

/// Asks which of these chunks the pool holds already; keeps the session alive, and protects the
/// chunks from garbage collection until it ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Offer {
    /// The write session.
    pub session: SessionId,
    /// Chunks that the session is going to commit, as stored.
    pub chunks: Packed<ChunkName>,
}
call!(Offer => Offered, "offer");

/// Which of the offered chunks need not be sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Offered {
    /// Committed chunks on live donors; a chunk that is not listed must be sent.
    pub held: Vec<Held>,
}

/// An offered chunk that the pool holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Held {
    /// Index in [`Offer::chunks`].
    pub index: u32,
    /// Its live copies; the writer adds what its policy asks beyond these.
    pub donors: Vec<DonorId>,
}

/// Promises more space to a session, because the size was unknown, the files grew, or donors of
/// the plan failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Grow {
    /// The write session.
    pub session: SessionId,
    /// More plaintext bytes.
    pub bytes: u64,
    /// Donors that failed this writer; not planned again.
    #[serde(default)]
    pub avoid: Vec<DonorId>,
}
call!(Grow => Grown, "grow");

/// More places to write.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Grown {
    /// In addition to the plan so far.
    pub plan: Plan,
    /// How to reach its donors.
    pub donors: Vec<DonorAccess>,
}

/// Keeps a session alive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Renew {
    /// The write session.
    pub session: SessionId,
}
call!(Renew => Done, "renew");

/// Makes written files visible, in one transaction. Repeating a batch repeats its reply, so that
/// a lost reply can be asked for again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Commit {
    /// The write session.
    pub session: SessionId,
    /// Counts the session's commits from 0.
    pub batch: u32,
    /// The files; each stands or falls alone.
    pub files: Vec<FileCommit>,
    /// Whether the session ends with this.
    pub done: bool,
}
impl Call for Commit {
    const NAME: &'static str = "commit";
    const DEADLINE: Duration = Duration::from_secs(30);
    type Reply = Committed;
}

/// One written file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileCommit {
    /// Where it becomes visible; missing directories are made.
    pub path: PoolPath,
    /// Plaintext bytes.
    pub size: u64,
    /// [`potluck_core::chunk::FileDigest`] of the plaintext.
    pub digest: Digest,
    /// Modification time at the source, milliseconds since 1970.
    pub mtime_ms: i64,
    /// Whether its owner may execute it.
    #[serde(default)]
    pub executable: bool,
    /// Plaintext bytes per chunk; the last may be shorter.
    pub chunk_size: u32,
    /// Copies that its policy asks for.
    pub copies: u32,
    /// The content itself, when it fits the catalog; sealed as [`potluck_core::seal::Meaning::Inline`]
    /// in a sealed space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Blob>,
    /// Otherwise its recipe, in packed pages ([`potluck_core::recipe`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Blob>,
    /// Who acknowledged its chunks. A chunk the pool held needs none.
    #[serde(default)]
    pub acknowledged: Packed<Acknowledged>,
    /// When it may replace what is there.
    #[serde(default)]
    pub condition: Condition,
}

/// What became of a batch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Committed {
    /// In the order of the batch's files.
    pub files: Vec<Outcome>,
}

/// What became of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Visible as this version.
    Version(VersionId),
    /// Not visible, and why.
    Refused(crate::error::Failure),
}

/// Ends a session without making anything visible; its chunks are reclaimed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Abort {
    /// The write session.
    pub session: SessionId,
}
call!(Abort => Done, "abort");

// ---- reading ---------------------------------------------------------------------------------

/// Opens a file, or page by page all files of a tree, for reading.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Open {
    /// A file or directory.
    pub path: PoolPath,
    /// Whether a directory's files are opened; otherwise a directory is refused.
    #[serde(default)]
    pub recursive: bool,
    /// Continues after [`Opened::next`].
    #[serde(default)]
    pub after: Option<String>,
}
call!(Open => Opened, "open");

/// Open files and what is needed to read them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Opened {
    /// Directories below the path, relative to it, parents first; empty ones included.
    #[serde(default)]
    pub dirs: Vec<String>,
    /// The files; a single file has the relative path "".
    pub files: Vec<OpenFile>,
    /// Every donor that holds a chunk of these files.
    pub donors: Vec<DonorAccess>,
    /// The space's secret, when it is sealed.
    #[serde(default)]
    pub space_key: Option<SpaceKey>,
    /// Set when there is more: pass it as [`Open::after`].
    #[serde(default)]
    pub next: Option<String>,
}

/// One open file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenFile {
    /// Relative to the opened path.
    pub path: String,
    /// The version that is read, whatever is committed meanwhile.
    pub version: VersionId,
    /// Plaintext bytes.
    pub size: u64,
    /// Digest of the plaintext.
    pub digest: Digest,
    /// Modification time, milliseconds since 1970.
    pub mtime_ms: i64,
    /// Whether its owner may execute it.
    #[serde(default)]
    pub executable: bool,
    /// The content, when it lives in the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Blob>,
    /// Otherwise its recipe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Blob>,
    /// Who holds each chunk of the recipe, live donors first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Vec<DonorId>>,
}

/// Tells the manager that a donor's copy cannot be read (users). The donor looks itself before
/// anything is believed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Which chunk.
    pub chunk: ChunkName,
    /// On which donor.
    pub donor: DonorId,
    /// What was wrong.
    pub fault: CopyFault,
}
call!(Report => Done, "report");

/// How a copy failed its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyFault {
    /// The donor says it does not have it.
    Missing,
    /// The bytes are not the chunk.
    WrongBytes,
    /// The donor's disk failed.
    Unreadable,
}

// ---- names -----------------------------------------------------------------------------------

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory, or a space.
    Dir,
}

/// One entry of a listing, with everything there is to know without another call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the listed path.
    pub path: String,
    /// File or directory.
    pub kind: EntryKind,
    /// Plaintext bytes; 0 for a directory.
    #[serde(default)]
    pub size: u64,
    /// Modification time, milliseconds since 1970.
    #[serde(default)]
    pub mtime_ms: i64,
    /// A file's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionId>,
    /// A file's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Copies that a file's policy asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Whether a file's owner may execute it.
    #[serde(default)]
    pub executable: bool,
}

/// Lists a directory, a space, or with `pot://` the spaces.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct List {
    /// What to list; a file lists itself, with the relative path "".
    pub path: PoolPath,
    /// Everything below, parents before children.
    #[serde(default)]
    pub recursive: bool,
    /// Continues after [`Listing::next`].
    #[serde(default)]
    pub after: Option<String>,
}
call!(List => Listing, "list");

/// Entries in order of their names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Listing {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Set when there is more.
    #[serde(default)]
    pub next: Option<String>,
}

/// Everything known of one path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stat {
    /// Which path.
    pub path: PoolPath,
}
call!(Stat => Stated, "stat");

/// A path's facts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stated {
    /// As in a listing; its path is "".
    pub entry: Entry,
    /// The policy that holds there.
    pub policy: Policy,
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
    /// Who holds how much of it.
    #[serde(default)]
    pub donors: Vec<Share>,
}

/// A donor's share of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Share {
    /// Which donor.
    pub donor: DonorId,
    /// What people call it.
    pub name: String,
    /// Heard from within the last seconds.
    pub live: bool,
    /// Chunks of the file there.
    pub chunks: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

/// Makes a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeDir {
    /// Where.
    pub path: PoolPath,
    /// Make missing parents, and accept one that exists.
    #[serde(default)]
    pub parents: bool,
}
call!(MakeDir => Done, "make-dir");

/// Moves a file or directory inside a space, atomically.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Move {
    /// What.
    pub from: PoolPath,
    /// The new path itself; the caller has already decided whether to move *into* a directory.
    pub to: PoolPath,
    /// Refuse to replace a file.
    #[serde(default)]
    pub no_replace: bool,
}
call!(Move => Done, "move");

/// Removes a file, or with `recursive` a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Remove {
    /// What.
    pub path: PoolPath,
    /// Directories with what is in them.
    #[serde(default)]
    pub recursive: bool,
}
call!(Remove => Removed, "remove");

/// What was removed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Removed {
    /// Files.
    pub files: u64,
    /// Their sizes together, in bytes.
    pub bytes: u64,
}

/// Adds up a file or tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Usage {
    /// Which.
    pub path: PoolPath,
}
call!(Usage => Used, "usage");

/// Sums over a tree, and over each of its direct children.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Used {
    /// Files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Sizes together, in bytes.
    pub bytes: u64,
    /// Bytes on donors: after dedup inside the tree, with copies.
    pub stored: u64,
    /// The same for direct children, in order of their names.
    #[serde(default)]
    pub children: Vec<ChildUse>,
}

/// A direct child's part of a [`Used`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChildUse {
    /// Its name.
    pub name: String,
    /// Whether it is a directory.
    pub dir: bool,
    /// Files in it.
    pub files: u64,
    /// Their sizes together, in bytes.
    pub bytes: u64,
}

// ---- the pool as a whole ---------------------------------------------------------------------

/// How the pool is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {}
call!(Status => PoolStatus, "status");

/// The pool at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PoolStatus {
    /// What the pool is called.
    pub pool: String,
    /// The manager's version.
    pub version: String,
    /// Starts of a manager over this catalog.
    pub epoch: Epoch,
    /// Seconds since the manager started.
    pub uptime_seconds: u64,
    /// Open write sessions.
    pub sessions: u64,
    /// Files in all spaces.
    pub files: u64,
    /// Their sizes together, in bytes.
    pub bytes: u64,
    /// Chunks no file uses, waiting to be reclaimed.
    #[serde(default)]
    pub condemned_chunks: u64,
    /// Every donor that ever joined and was not removed.
    pub donors: Vec<DonorStatus>,
}

/// What the manager thinks of a donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DonorState {
    /// Heard from lately.
    Live,
    /// Silent for some seconds; nobody waits on it.
    Suspect,
    /// Not heard from since the manager started, or for long.
    #[default]
    Away,
}

/// One donor at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DonorStatus {
    /// Which donor.
    pub donor: DonorId,
    /// What people call it.
    pub name: String,
    /// Its `host:port`.
    pub address: String,
    /// What the manager thinks of it.
    pub state: DonorState,
    /// Seconds since it was heard, if ever.
    #[serde(default)]
    pub silent_seconds: Option<u64>,
    /// Its product version.
    #[serde(default)]
    pub version: String,
    /// Bytes Potluck holds there.
    pub used: u64,
    /// Bytes Potluck may still write there, before promises.
    pub room: u64,
    /// Of these, promised to open sessions.
    pub promised: u64,
    /// Chunks it holds that files use.
    pub chunks: u64,
    /// Chunks it holds that this catalog does not know; never deleted for that.
    pub unclaimed: u64,
    /// Chunks it lost or spoiled since they were committed.
    pub bad: u64,
    /// Its last sample.
    pub load: Load,
}

// ---- donors ----------------------------------------------------------------------------------

/// A donor reports for duty: at its start, and when the manager asks it to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Register {
    /// This life of the donor.
    pub incarnation: Incarnation,
    /// Shared with the manager alone; signs tickets and receipts. Drawn once, kept with the store.
    pub key: Secret,
    /// Its bulk port, as others may reach it; an unspecified host stands for the address the
    /// manager sees.
    pub address: String,
    /// Its product version.
    pub version: String,
    /// Its disk.
    pub disk: DiskState,
    /// Bytes it may still write.
    pub room: u64,
}
call!(Register => Registered, "register");

/// A donor's orders of the day.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Registered {
    /// Its number.
    pub donor: DonorId,
    /// The manager's epoch; a donor refuses lower ones from now on.
    pub epoch: Epoch,
    /// The manager's monotonic milliseconds, against which tickets expire.
    pub now_ms: u64,
}

/// A chunk and its stored length, as a donor lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// The chunk.
    pub name: ChunkName,
    /// Stored bytes.
    pub len: u32,
}

impl crate::packed::Record for Holding {
    const SIZE: usize = 36;
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.name.0);
        out.extend_from_slice(&self.len.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (name, len) = bytes.split_at_checked(32)?;
        Some(Self {
            name: ChunkName(name.try_into().ok()?),
            len: u32::from_le_bytes(len.try_into().ok()?),
        })
    }
}

/// All that a donor holds, in pages of up to [`INVENTORY_PAGE`], after it registered. Chunks that
/// arrive meanwhile are reported by heartbeats as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Inventory {
    /// The life that registered.
    pub incarnation: Incarnation,
    /// Counts the pages from 0; page 0 begins anew.
    pub page: u32,
    /// Some of what it holds.
    pub holdings: Packed<Holding>,
    /// Whether this was the last page: what was not listed since page 0 is not there.
    pub last: bool,
}
call!(Inventory => Done, "inventory");

/// Holdings per [`Inventory`] page.
pub const INVENTORY_PAGE: usize = 16_384;

/// A donor's second: its sample, what changed, and in return its orders.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The life that registered.
    pub incarnation: Incarnation,
    /// Touches so far: every put counts one, also of a chunk that was there. See [`Order::Delete`].
    pub touches: u64,
    /// The last second.
    pub load: Load,
    /// Its disk.
    pub disk: DiskState,
    /// Bytes it may still write.
    pub room: u64,
    /// Chunks stored since the last heartbeat that was answered.
    #[serde(default)]
    pub added: Packed<Holding>,
    /// Chunks deleted, or found missing when ordered to delete them.
    #[serde(default)]
    pub removed: Packed<ChunkName>,
    /// Chunks found spoiled and set aside.
    #[serde(default)]
    pub spoiled: Packed<ChunkName>,
    /// Chunks looked at by order and found sound.
    #[serde(default)]
    pub sound: Packed<ChunkName>,
}
impl Call for Heartbeat {
    const NAME: &'static str = "heartbeat";
    const DEADLINE: Duration = Duration::from_secs(5);
    type Reply = Beat;
}

/// The manager's answer to a heartbeat.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Beat {
    /// The manager's epoch.
    pub epoch: Epoch,
    /// The manager's monotonic milliseconds.
    pub now_ms: u64,
    /// The manager does not know this life: register and send the inventory.
    #[serde(default)]
    pub register: bool,
    /// What to do now. Repeated until a heartbeat shows it done.
    #[serde(default)]
    pub orders: Vec<Order>,
}

/// What the manager asks a donor to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A tombstone: delete the chunk, unless it was touched after `touches`. The manager saw that
    /// count while no session could have been writing the chunk, so a later touch is somebody's
    /// who needs it (PROMISES D5).
    Delete {
        /// Which chunk.
        chunk: ChunkName,
        /// The life that counted.
        incarnation: Incarnation,
        /// The count.
        touches: u64,
    },
    /// Read the chunk and compare it with its name; set it aside if it is spoiled.
    Verify {
        /// Which chunk.
        chunk: ChunkName,
    },
    /// Of a newer version; ignored.
    #[serde(other)]
    Unknown,
}
