//! The calls by which people look at and steer all that keeps data safe without anybody watching: policies,
//! repair, give-back, scrub, garbage collection.

use super::{Call, Done, call};
use potluck_core::chunk::Digest;
use potluck_core::ids::DonorId;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Override, Policy};
use serde::{Deserialize, Serialize};

/// Sets what differs at a space (admins) or directory from what holds above it, for new files, and
/// changes the redundancy of those that are there in the background.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicySet {
    /// A space, a directory, or a file, whose redundancy alone is changed.
    pub path: PoolPath,
    /// The parts of the policy to set; parts left out stay as they are.
    pub policy: Override,
    /// Leave files that are there as they are.
    #[serde(default)]
    pub new_files_only: bool,
    /// True to say only what would change.
    #[serde(default)]
    pub dry_run: bool,
}
call!(PolicySet => PolicyChanged, "policy-set");

/// The effects of a change of policy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicyChanged {
    /// The policy that holds there now.
    pub policy: Policy,
    /// Files whose redundancy is being changed.
    pub files: u64,
    /// Size of these files in bytes of plaintext.
    pub bytes: u64,
    /// Donors that what holds there now needs.
    pub needs_donors: u32,
    /// Donors that can be written to now.
    #[serde(default)]
    pub donors: u32,
    /// About so many bytes more lie on donors while files have the old redundancy and the new.
    #[serde(default)]
    pub needs_bytes: u64,
    /// Bytes that donors can take now.
    #[serde(default)]
    pub free_bytes: u64,
    /// What the pool has too little of now for the policy, or for the change of files to it, with advice.
    #[serde(default)]
    pub lacks: Vec<String>,
}

/// Asks for the state of repair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RepairStatus {}
call!(RepairStatus => RepairState, "repair-status");

/// Tells repair to pause, to go on or to hurry (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RepairControl {
    /// The action to take.
    pub action: RepairAction,
}
call!(RepairControl => RepairState, "repair-control");

/// An action that repair can be told to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairAction {
    /// Repair begins nothing new.
    Pause,
    /// Go on after a pause.
    Resume,
    /// Do not wait for the grace of silent donors that did not announce their absence, and look
    /// at everything now.
    Now,
}

/// Repair at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RepairState {
    /// Why nothing is repaired though something should be: an admin's pause, or too many donors
    /// dead at once.
    pub paused: Option<String>,
    /// Chunks to make, by how many more donors may die before their file is lost: index 0 is
    /// where none may.
    pub queued: Vec<u64>,
    /// Chunks among those in `queued` that wait for another look at everything: one look remembers the most urgent.
    pub more: u64,
    /// Stored bytes of all these, and of what is being made.
    pub bytes_left: u64,
    /// Chunks being made, for changes of policy too.
    pub under_way: u64,
    /// Chunks of what was promised that cannot be made now: no source, or no donor to take them.
    pub stuck: u64,
    /// The reason why those chunks are stuck.
    pub stuck_why: Option<String>,
    /// Files whose redundancy is being changed; none of their chunks is in `queued`.
    pub changing: u64,
    /// Size of these files in bytes of plaintext.
    pub changing_bytes: u64,
    /// Chunks and groups of the new redundancy that cannot be made now. Their files keep the old.
    pub changing_stuck: u64,
    /// The reason why those are stuck.
    pub changing_stuck_why: Option<String>,
    /// Copies beyond what any policy asks, waiting to be deleted.
    pub excess: u64,
    /// Chunks made since the manager's start.
    pub made: u64,
    /// Size of these chunks in stored bytes.
    pub made_bytes: u64,
    /// Bytes a second that were made lately.
    pub rate: u64,
    /// Bytes a second that all donors together may be asked for.
    pub pool_budget: u64,
    /// Bytes a second that one donor may be asked for, reading and writing counted apart.
    pub donor_budget: u64,
    /// Why it is not known yet what is to be made: something happened since everything was last
    /// looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// Donors that are silent and announced nothing: what they hold is made again when they are given
    /// up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// Seconds until the first of these donors is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins_seconds: Option<u64>,
    /// When all is made at that rate; `None` where that cannot be told, or nothing of it can be made
    /// now.
    pub eta_seconds: Option<u64>,
    /// When what files are being changed to is made, too, as far as it is known what that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changing_eta_seconds: Option<u64>,
    /// Seconds since everything was last looked at.
    pub scanned_seconds: Option<u64>,
}

/// Takes all lent space back: a donor its own, an admin any donor's (drain).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GiveBack {
    /// Which donor; a donor may leave it out.
    #[serde(default)]
    pub donor: Option<DonorId>,
    /// Wait for nothing where a file can be read without the donor, nor for files that are lost by
    /// that: they are listed before anything is deleted, and no other is lost.
    #[serde(default)]
    pub now: bool,
    /// The [`GivingBack::listing`] of what its caller agreed to lose, with `now`. When it is another by now and
    /// not empty, nothing begins. `None`: whatever is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<Digest>,
    /// Call an earlier give-back off; the space is lent again.
    #[serde(default)]
    pub cancel: bool,
}
call!(GiveBack => GivingBack, "give-back");

/// Asks what it means that donors leave, all of them together, or that one of them holds less: nothing
/// begins. A donor asks for sets that it is of; it is told the paths of files that lie on it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Departing {
    /// The donors that leave; empty: the donor that asks.
    pub donors: Vec<DonorId>,
    /// Bytes that leave each donor, to other donors first; `None`: all that they hold.
    pub over: Option<u64>,
}
call!(Departing => GivingBack, "departing");

/// How far a give-back is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GiveBackStatus {
    /// Which donor; a donor may leave it out.
    #[serde(default)]
    pub donor: Option<DonorId>,
}
call!(GiveBackStatus => GivingBack, "give-back-status");

/// A give-back at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GivingBack {
    /// Whether one is under way or done and not called off.
    pub active: bool,
    /// Bytes the donor held when it began.
    pub held_at_start: u64,
    /// Bytes it holds now.
    pub held: u64,
    /// Chunks that still have to be moved to other donors first.
    pub to_move: u64,
    /// Size of these chunks in stored bytes.
    pub to_move_bytes: u64,
    /// Chunks that no other donor can take, or that cannot be read.
    pub stuck: u64,
    /// The reason why they are stuck.
    pub stuck_why: Option<String>,
    /// Bytes that other donors can take now, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room_elsewhere: Option<u64>,
    /// Whether the donor may leave the pool.
    pub may_go: MayGo,
    /// Whether the donor is not heard now: nothing moves until it is.
    pub silent: bool,
    /// Whether no other donor stays: the pool's own metadata is then on the manager's own disk only.
    pub last_donor: bool,
    /// Chunks there that this pool's catalog does not know; never deleted for that.
    pub unclaimed: u64,
    /// Nothing that the pool needs is there any more: the machine may go. Only said when true.
    pub safe_to_remove: bool,
    /// The goal is reached.
    pub done: bool,
    /// Files that are lost, or as [`Departing`] tells would be, if the space is taken now; the first
    /// few.
    pub lost: Vec<String>,
    /// How many files that are in all.
    pub lost_files: u64,
    /// Files that are not lost, and would be less safe than promised until they are made whole again,
    /// if the space were taken now; the first few.
    pub less_safe: Vec<String>,
    /// How many files that are in all.
    pub less_safe_files: u64,
    /// The digest that names the whole list of these, to be agreed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listing: Option<Digest>,
    /// Whether, as [`Departing`] tells, anybody needs what is there: something has to move first, or files would be
    /// lost or less safe if the space were taken now.
    pub needed: bool,
    /// What, as [`Departing`] tells, the donor's removal would be refused without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalNeeds>,
}

/// The least that who removes a donor has to say so that the manager does it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovalNeeds {
    /// Nothing: no file is lost or less safe.
    Nothing,
    /// Nobody can tell yet. It is asked for again in a moment, or done now, whatever it means.
    #[default]
    Time,
    /// That it is done now: files would be less safe.
    Now,
    /// Which files may be lost.
    Force,
}

impl RemovalNeeds {
    /// Whether the manager removes a donor for who says so much.
    pub fn is_met(self, now: bool, force: bool) -> bool {
        match self {
            Self::Nothing => true,
            Self::Time | Self::Now => now || force,
            Self::Force => force,
        }
    }
}

/// Whether a donor may leave the pool: one judgement, which `status`, `nodes rm`, `nodes drain` and
/// `give-back` show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MayGo {
    /// Whether the donor may leave.
    pub verdict: Going,
    /// The reason why the donor may leave, or may not.
    pub why: String,
    /// The next step for a person; empty where nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

/// Whether a donor may go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Going {
    /// The verdict cannot be told yet.
    #[default]
    NotKnown,
    /// It may: nothing is less safe without it.
    Now,
    /// When what it holds has been moved to others, which take it.
    AfterMoving,
    /// The chunks that it holds cannot be moved in the pool as it is.
    Stuck,
}

/// A donor announces its absence, or an admin does for it: repair waits that long.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Away {
    /// Which donor; a donor may leave it out.
    #[serde(default)]
    pub donor: Option<DonorId>,
    /// Milliseconds from now for which the donor is away; 0 ends its absence.
    pub for_ms: u64,
}
call!(Away => Done, "away");

/// Trusts a donor again that was quarantined (admins). What it holds is verified by others first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Trust {
    /// The donor that is to be trusted.
    pub donor: DonorId,
}
call!(Trust => Done, "trust");

/// Bytes a second below which no donor reads back what it holds: a small store is done in hours.
pub const SLOWEST_SCRUB: u64 = 64 << 10;

/// Has donors read back all they hold, now (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScrubNow {
    /// The donor that reads back what it holds; `None`: all donors.
    #[serde(default)]
    pub donor: Option<DonorId>,
    /// Bytes a second each, and at least [`SLOWEST_SCRUB`].
    pub rate: u64,
}
call!(ScrubNow => Done, "scrub-now");

/// Lets garbage collection go on after a catalog was restored (admins): what a newer catalog may
/// have known is given up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GcResume {}
call!(GcResume => Done, "gc-resume");

/// Has the chunks reclaimed that donors hold and the catalog does not know (admins): the donors that
/// are there list what they hold anew, and what no file uses and no session has offered is deleted
/// like everything that is not used. Refused while reclaiming is held.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReclaimUnknown {}
call!(ReclaimUnknown => ReclaimingUnknown, "reclaim-unknown");

/// The donors whose unknown chunks are going to be reclaimed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimingUnknown {
    /// Donors that list what they hold for it, a few at a time: [`super::DonorStatus::reclaiming`].
    #[serde(default)]
    pub asked: Vec<DonorId>,
    /// Donors that are not there; what they hold stays.
    #[serde(default)]
    pub absent: Vec<DonorId>,
}

/// Lists files that are not as safe as they should be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fsck {
    /// The path below which files are looked at; `pot://` is everywhere.
    pub path: PoolPath,
    /// True to list also files that are merely incomplete.
    #[serde(default)]
    pub incomplete: bool,
    /// The page continues after this [`FsckReport::next`].
    #[serde(default)]
    pub after: Option<String>,
}
call!(Fsck => FsckReport, "fsck");

/// Files that are not as safe as they should be.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FsckReport {
    /// Files looked at for this page, without the pool's own metadata.
    pub files: u64,
    /// Files of the pool's own metadata that are not as safe as they should be.
    pub metadata: u64,
    /// Files that are as safe as promised when donors are back that are silent now; none of them is
    /// in `found`.
    pub waiting: u64,
    /// Files with copies that readers called bad, and that their donors have not looked at yet: how safe
    /// these are is not known for a moment.
    pub in_doubt: u64,
    /// The files that are not as safe as they should be.
    pub found: Vec<Damage>,
    /// Set when there is more.
    pub next: Option<String>,
    /// How the files of this page are together. The greatest of all pages holds for all.
    pub outcome: FsckOutcome,
    /// The next step for a person where files cannot be read, else empty.
    pub advice: String,
}

/// How files are together, from well to worst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsckOutcome {
    /// All are as safe as promised.
    #[default]
    Well,
    /// It is not known of some files for a moment.
    InDoubt,
    /// Some are less safe than promised, or the pool's own metadata is.
    LessSafe,
    /// Some cannot be read, and what they lack is on no donor.
    Lost,
    /// Some cannot be read while donors do not answer.
    Away,
    /// The catalog's records of some are damaged.
    Damaged,
}

/// A file that is not as safe as it should be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Damage {
    /// The path of the file, as `pot://SPACE/PATH`.
    pub path: String,
    /// The health of the file.
    pub health: super::Health,
    /// Whether what it lacks is on donors that are merely away, and may come back.
    #[serde(default)]
    pub may_return: bool,
    /// The damage of its records in the catalog, if there is any: its chunks are unknown then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}
