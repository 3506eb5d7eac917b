//! The calls of donors: their reports, and the orders for them.

use super::{Call, Callers, Done, call};
use crate::addresses::{Address, Addresses};
use crate::error::Failure;
use crate::packed::{Packed, PackedRecord};
use crate::ticket::{Secret, Ticket};
use crate::whereabouts::{Issue, SignedWhereabouts};
use potluck_core::chunk::{ChunkKind, ChunkName, Digest};
use potluck_core::erasure::Ec;
use potluck_core::ids::DonorId;
use potluck_core::ids::Epoch;
use potluck_core::ids::Incarnation;
use potluck_core::ids::SessionId;
use potluck_core::lend_mode::LendMode;
use potluck_core::load::Load;
use potluck_core::owner_limits::DiskState;
use potluck_core::policy::AckLevel;
use potluck_core::traffic::{BothWays, Traffic};
use serde::{Deserialize, Deserializer, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Registers a donor: at its start, and when the manager asks for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Register {
    /// The incarnation of the donor.
    pub incarnation: Incarnation,
    /// The secret that the donor shares with the manager alone, and that signs tickets and receipts. It is drawn once
    /// and kept with the store.
    pub key: Secret,
    /// The addresses at which others reach the donor's bulk port, as far as the donor knows.
    pub addresses: Addresses,
    /// The donor's port, where its owner did not say how others reach it: the manager adds the host that it sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The version of Potluck that the donor runs.
    pub version: String,
    /// The state of the disk that the donor lends.
    pub disk: DiskState,
    /// The bytes that the donor may still write.
    pub room: u64,
    /// The label that the donor's owner gives it: donors with one label (a room, a switch, a machine) fail together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The time, in milliseconds, for which the donor may be silent before repair begins, where its owner announced
    /// more than the pool's grace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// The highest epoch that the donor heard, and which start of a manager had it. A manager that finds a higher
    /// epoch than its own, or its own from another start, runs on an older catalog than the pool's.
    #[serde(default)]
    pub heard: (Epoch, u64),
    /// The most changes that the catalog of that start was said to have: a manager whose catalog left that term with
    /// fewer of them runs on an older copy.
    #[serde(default)]
    pub heard_changes: u64,
    /// The proof of the epoch, start and changes that the donor heard. Without it they change nothing, for any donor
    /// could make them up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_proof: Option<Digest>,
    /// The fault of the donor's disk, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_fault: Option<DiskFault>,
    /// True if the owner said that what the donor held before is lost, and it began an empty store.
    #[serde(default)]
    pub new_store: bool,
    /// True if this incarnation of the donor has registered before, with this manager or an earlier one: it still has
    /// what it has acknowledged since.
    #[serde(default)]
    pub registered_before: bool,
    /// How much the donor does now, as its owner wants it.
    #[serde(default)]
    pub does: DonorDoes,
}
call!(Register => Registered, "register", Donors, "what a donor reports");

impl Register {
    /// Returns the addresses at which others reach a donor that calls from `peer`. That address comes first, because
    /// it has just been of use, unless the donor's owner says otherwise. A loopback address is of use on this machine
    /// alone, and is taken only when there is no other.
    pub fn reached_at(&self, peer: IpAddr) -> Result<Addresses, Failure> {
        let said = &self.addresses;
        let seen = self.port.filter(|port| *port > 0).map(|port| Address::of(peer, port));
        let addresses = match seen {
            Some(seen) if !seen.is_loopback() => Addresses::from(seen).and(said),
            Some(seen) if said.is_empty() => seen.into(),
            _ => said.clone(),
        };
        if addresses.is_empty() {
            return Err(Failure::bad_request("a donor that registers says where it is"));
        }
        Ok(addresses)
    }
}

/// How much a donor does now, as its owner wants it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DonorDoes {
    /// The mode. A donor that is off sends heartbeats, and counts as away.
    pub mode: LendMode,
    /// The milliseconds from now after which the mode changes; `None` if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// True if the donor's daemon ends now, as it does when its machine is shut down.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stops: bool,
}

/// The fault of a donor's disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFault {
    /// True if the lent directory is missing, so that nothing it holds can be read until its owner brings it back.
    /// Otherwise it can be read and takes no writes.
    #[serde(default)]
    pub missing: bool,
    /// The fault as it was seen, in words.
    pub why: String,
}

/// The manager's reply to a donor that registered.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Registered {
    /// The number of the donor.
    pub donor: DonorId,
    /// The manager's epoch; a donor refuses lower ones from now on.
    pub epoch: Epoch,
    /// A number that is drawn at the manager's start: two managers never share epoch and start.
    #[serde(default)]
    pub start: u64,
    /// The number of changes that the manager's catalog has and that no power cut undoes.
    #[serde(default)]
    pub changes: u64,
    /// The proof of epoch, start and changes for every manager of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Digest>,
    /// True if the donor is to forget the manager that it says it heard before: there is no proof of that manager,
    /// because none was shown, or because the donor's note of it is damaged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unproven: bool,
    /// The manager's monotonic milliseconds, against which tickets expire.
    pub now_ms: u64,
}

/// A chunk and its stored length, as a donor lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// The name of the chunk.
    pub name: ChunkName,
    /// The size of the chunk in stored bytes.
    pub len: u32,
}

impl PackedRecord for Holding {
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

/// A chunk that arrived at a donor, and the write session that brought it. There is no session where the manager had
/// the chunk stored, or where it was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// The chunk that arrived.
    pub holding: Holding,
    /// The session whose put stored it.
    pub session: Option<SessionId>,
}

impl From<Holding> for Arrived {
    fn from(holding: Holding) -> Self {
        Self { holding, session: None }
    }
}

impl PackedRecord for Arrived {
    const SIZE: usize = Holding::SIZE + SessionId::SIZE;
    fn write(&self, out: &mut Vec<u8>) {
        self.holding.write(out);
        self.session.unwrap_or(NO_SESSION).write(out);
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (holding, session) = bytes.split_at_checked(Holding::SIZE)?;
        let session = SessionId::read(session)?;
        let session = (session != NO_SESSION).then_some(session);
        Some(Self { holding: Holding::read(holding)?, session })
    }
}

/// The packed form of a missing session.
const NO_SESSION: SessionId = SessionId([0; 16]);

/// Reports all that a donor holds, in pages of up to [`INVENTORY_PAGE`]: after it registered, after each round of its
/// scrub, and when the manager asks for it. Chunks that arrive meanwhile are reported by heartbeats as well, and the
/// manager watches for them from registration or page 0 on: a donor lists nothing before the manager took an empty page
/// 0. The manager compares few inventories at once. It refuses a page 0 when it has no time, and the donor asks again
/// later.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Inventory {
    /// The incarnation that registered.
    pub incarnation: Incarnation,
    /// The number of the page, from 0; page 0 begins anew.
    pub page: u32,
    /// The chunks of this page.
    pub holdings: Packed<Holding>,
    /// True if this was the last page: what was not listed since page 0 is not there.
    pub last: bool,
}
call!(Inventory => Done, "inventory", Donors, "what a donor reports", at most 1 << 20);

/// The number of holdings of one [`Inventory`] page.
pub const INVENTORY_PAGE: usize = 16_384;

/// Reports the state of a donor each second: its load, and what changed in its store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The incarnation that registered.
    pub incarnation: Incarnation,
    /// The number of puts in this incarnation, those of chunks that were there already included. See [`Tombstone`].
    pub write_sequence: u64,
    /// The load of the last second.
    pub load: Load,
    /// The traffic with clients since the incarnation began.
    #[serde(default)]
    pub traffic: BothWays<Traffic>,
    /// The state of the disk that the donor lends.
    pub disk: DiskState,
    /// The bytes that the donor may still write.
    pub room: u64,
    /// The most bytes that the donor's owner lends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<u64>,
    /// The number of the changes below, from 1 in each incarnation. A donor that gets no answer sends the same
    /// changes under the same number until it does, and later ones under the next number, so that each change counts
    /// once.
    pub batch: u64,
    /// The chunks that were stored since the last heartbeat that was answered.
    #[serde(default)]
    pub added: Packed<Arrived>,
    /// The chunks that were deleted, or found missing when they were to be deleted or verified.
    #[serde(default)]
    pub removed: Packed<ChunkName>,
    /// The chunks that were found spoiled and are quarantined.
    #[serde(default)]
    pub spoiled: Packed<ChunkName>,
    /// The chunks that could not be read, and are quarantined until they can.
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub unreadable: Packed<ChunkName>,
    /// The chunks in quarantine whose room is needed: the donor asks whether they may be removed.
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub quarantined: Packed<ChunkName>,
    /// The chunks that the manager had verified, and that are sound.
    #[serde(default)]
    pub sound: Packed<ChunkName>,
    /// The results of tasks since the last heartbeat that was answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<TaskResult>,
    /// The bytes that the donor must free for its owner's limits to hold again
    /// ([`potluck_core::owner_limits::excess`]).
    #[serde(default)]
    pub excess: u64,
    /// The part of [`Heartbeat::excess`] that its disk lacks now ([`potluck_core::owner_limits::disk_lacks`]): the
    /// owner may need these bytes sooner than other donors can take what is there.
    #[serde(default)]
    pub disk_lacks: u64,
    /// The progress of the donor's scrub.
    #[serde(default)]
    pub scrub: Scrubbed,
    /// The fault of the donor's disk, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_fault: Option<DiskFault>,
    /// The fault of the daemon's settings, if they have one: the daemon keeps to the settings of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_fault: Option<String>,
    /// The latest statement of where the manager is that the donor knows; `None` where it follows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<Issue>,
    /// Write sessions that have stored something at this donor: it asks which of them are over.
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub sessions: Packed<SessionId>,
    /// How much the donor does now, as its owner wants it.
    #[serde(default)]
    pub does: DonorDoes,
}

/// The result of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// The number of the task.
    pub task: u64,
    /// The outcome of the task.
    pub outcome: TaskOutcome,
}

/// The outcome of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOutcome {
    /// The task was done. A chunk that was stored is listed among the added ones too.
    Done,
    /// Parity was computed and stored at this donor, in the order of its positions.
    Encoded {
        /// The names of the parity chunks.
        parity: Packed<ChunkName>,
    },
    /// The chunks of other kinds than data that are at this donor were listed.
    Described {
        /// The blocks of the metadata log.
        blocks: Packed<Holding>,
    },
    /// The task was not done.
    Failed {
        /// The reason why it was not done.
        why: TaskFault,
        /// The donor at fault; `None` when it is the one that answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        donor: Option<DonorId>,
    },
}

/// The reason why a task was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskFault {
    /// No lent space is left at this donor.
    Full,
    /// The disk of this donor failed.
    Disk,
    /// The lent directory is not at this donor.
    NotHere,
    /// A source does not have the chunk, or too few chunks of a group can be had.
    SourceMissing,
    /// A source sent other bytes.
    SourceWrong,
    /// A source cannot be reached, or its disk failed.
    SourceAway,
    /// The rebuilt bytes do not have the chunk's name, because a chunk that they were made from is of another group; or
    /// the task asks for something impossible.
    WrongResult,
    /// The task met a bug of the donor's; its log says more.
    Panicked,
    /// A fault that only a newer donor knows.
    #[serde(other)]
    Unknown,
}

/// The progress of a donor's scrub, which reads back all that the donor holds, round after round.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Scrubbed {
    /// The bytes that were read in this round.
    pub done: u64,
    /// The bytes that the donor held when the round began.
    pub of: u64,
    /// The number of rounds that were finished since the store was made.
    pub rounds: u64,
    /// The number of chunks that were found spoiled in all rounds.
    pub spoiled: u64,
    /// True while the scrub reads fast, because the manager asked for a round, and not at its own rate in the
    /// background.
    pub hurried: bool,
}
impl Call for Heartbeat {
    const NAME: &'static str = "heartbeat";
    const BY: Callers = Callers::Donors;
    const WHAT: &'static str = "what a donor reports";
    const MOST_BODY: usize = 4 << 20;
    const DEADLINE: Duration = Duration::from_secs(5);
    type Reply = HeartbeatReply;
}

/// Asks where another donor is, before a client is believed about it (donors).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locate {
    /// The donor that is looked for.
    pub donor: DonorId,
}
call!(Locate => Located, "locate", Donors, "what a donor reports");

/// The addresses of a donor that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The addresses of the donor; none of one that is unknown or has not registered.
    #[serde(default)]
    pub addresses: Addresses,
}

/// The manager's reply to a heartbeat.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// The epoch of the manager.
    pub epoch: Epoch,
    /// A number that the manager drew at its start.
    #[serde(default)]
    pub start: u64,
    /// The number of changes that the manager's catalog has and that no power cut undoes.
    #[serde(default)]
    pub changes: u64,
    /// The proof of epoch, start and changes for every manager of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Digest>,
    /// The manager's monotonic milliseconds.
    pub now_ms: u64,
    /// True if the manager does not know this incarnation of the donor, which is to register and send its inventory.
    #[serde(default)]
    pub register: bool,
    /// The tasks for the donor, each repeated until a heartbeat brings its result. Tasks that only a newer manager
    /// knows are left out when the reply is read.
    #[serde(default, deserialize_with = "known_tasks", skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
    /// The orders for chunks that the donor holds, repeated until a heartbeat shows them done.
    #[serde(default, skip_serializing_if = "ChunkOrders::is_empty")]
    pub chunk_orders: ChunkOrders,
    /// The chunks in quarantine that may be removed, because they have other copies or nobody needs them, among those
    /// that the donor asked about.
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub discard: Packed<ChunkName>,
    /// True if the owner takes everything back: nothing is to be left at the donor, its quarantine included.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// The whereabouts of the manager, for a donor that knows older ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<SignedWhereabouts>,
    /// True if the donor is to list all that it holds anew, repeated until page 0 of that came.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub list: bool,
    /// The sessions whose tickets are void: those that the donor asked about and that are over, and those that were
    /// ended a moment ago because their members may not write any more.
    #[serde(default, skip_serializing_if = "Packed::is_empty")]
    pub over: Packed<SessionId>,
    /// The time on the manager's clock, in milliseconds, before which issued tickets are void
    /// ([`TicketTime`](crate::ticket::TicketTime)).
    #[serde(default)]
    pub void_before: u64,
    /// The stored bytes that are promised to write sessions at this donor, and that it had not told of yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub promised: u64,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// The orders for a donor about chunks that it holds. These orders have no numbers and no results: the
/// lists of the next heartbeats show what became of each chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChunkOrders {
    /// The chunks to delete, each with the write sequence at which the manager decided it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub delete: Vec<Tombstone>,
    /// The chunks to read and to compare with their names. A spoiled one is quarantined.
    #[serde(skip_serializing_if = "Packed::is_empty")]
    pub verify: Packed<ChunkName>,
}

impl ChunkOrders {
    /// Returns true when there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.delete.is_empty() && self.verify.is_empty()
    }
}

/// An order to delete a chunk, unless it was put after `write_sequence`. The manager saw that number while no session
/// could have been writing the chunk, so a session that put it later needs it (promise D5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tombstone {
    /// The name of the chunk.
    pub chunk: ChunkName,
    /// The incarnation that counted.
    pub incarnation: Incarnation,
    /// The donor's write sequence at which nobody needed the chunk.
    pub write_sequence: u64,
}

/// Work that a donor does once, however often it is told of it, and answers under its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The number of the task. The manager that gave it never gives this number again.
    pub number: u64,
    /// The work to do.
    pub work: Work,
}

/// The work that a task asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Fetch the chunk from the first source that has it, verify it by name and store it.
    Copy {
        /// The name of the chunk.
        chunk: ChunkName,
        /// The size of the chunk in stored bytes.
        len: u32,
        /// The ack level at which the copy counts as stored.
        ack: AckLevel,
        /// The kind of the chunk.
        #[serde(default)]
        kind: ChunkKind,
        /// The donors that hold it, the best first.
        from: Vec<Source>,
    },
    /// Fetch chunks of its group, rebuild the chunk from them, verify it by name and store it.
    Rebuild {
        /// The name of the chunk.
        chunk: ChunkName,
        /// The size of the chunk in stored bytes.
        len: u32,
        /// The ack level at which the chunk counts as stored.
        ack: AckLevel,
        /// The kind of the chunk.
        #[serde(default)]
        kind: ChunkKind,
        /// The erasure code of the group.
        ec: Ec,
        /// The position of the chunk in the group: data from 0, parity from m.
        position: u8,
        /// The number of data chunks in the group; positions from here to m are zeros.
        data: u8,
        /// The group's other chunks that can be had; any m (zeros included) are enough.
        shards: Vec<Shard>,
    },
    /// Fetch the data chunks of a group, compute its parity and store it, every chunk of it.
    Encode {
        /// The erasure code of the group.
        ec: Ec,
        /// The ack level at which a chunk counts as stored.
        ack: AckLevel,
        /// All data chunks of the group.
        shards: Vec<Shard>,
    },
    /// Read back everything now, at up to this many bytes a second within the donor's own limits. The task is answered
    /// when the round has begun.
    Scrub {
        /// The rate of reading in bytes a second.
        rate: u64,
    },
    /// List all chunks of other kinds than data.
    Describe,
}

/// A donor from which a chunk is fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The id of the donor.
    pub donor: DonorId,
    /// The addresses at which the donor is reached.
    pub addresses: Addresses,
    /// The ticket for the donor, which lets the bearer get the chunk, or put chunks where it is that of a route.
    pub ticket: Ticket,
}

/// A chunk of a group, with the donors from which it can be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The position of the chunk in the group: data from 0, parity from m.
    pub position: u8,
    /// The name of the chunk.
    pub chunk: ChunkName,
    /// The size of the chunk in stored bytes.
    pub len: u32,
    /// The donors that hold it, the best first.
    pub from: Vec<Source>,
}

fn known_tasks<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Task>, D::Error> {
    let tasks = Vec::<serde_json::Value>::deserialize(d)?;
    Ok(tasks.into_iter().filter_map(|task| serde_json::from_value(task).ok()).collect())
}
