//! The calls by which people inspect and control what keeps data safe: policies, repair, the give-back, absence and
//! trust of donors, scrub, garbage collection, and the check of files.

use super::{Call, Callers, Done, LOOK_AT_ALL, call};
use potluck_core::chunk::Digest;
use potluck_core::ids::DonorId;
use potluck_core::path::PoolPath;
use potluck_core::policy::{Override, Policy};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Sets the parts of the policy in which a space or a directory differs from what holds above it, or the redundancy of
/// a file (members who manage the space). They hold for new files, and the redundancy of existing files is changed in
/// the background.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicySet {
    /// The path of a space, a directory, or a file; only the redundancy of a file can be changed.
    pub path: PoolPath,
    /// The parts of the policy to set; parts left out stay as they are.
    pub policy: Override,
    /// True if existing files are left as they are.
    #[serde(default)]
    pub new_files_only: bool,
    /// True if the call changes nothing and only says what would change.
    #[serde(default)]
    pub dry_run: bool,
}
call!(PolicySet => PolicyChanged, "policy-set", Users, "`potluck policy set`", within LOOK_AT_ALL);

/// The effects of a change of policy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicyChanged {
    /// The policy that holds at the path now.
    pub policy: Policy,
    /// The number of files whose redundancy is being changed.
    pub files: u64,
    /// The size of these files in bytes of plaintext.
    pub bytes: u64,
    /// The number of donors that the policy at the path now needs.
    pub needs_donors: u32,
    /// The number of donors that can be written to now.
    #[serde(default)]
    pub donors: u32,
    /// The approximate number of additional bytes on donors while files have the old redundancy and the new.
    #[serde(default)]
    pub needs_bytes: u64,
    /// The bytes that donors can take now.
    #[serde(default)]
    pub free_bytes: u64,
    /// The resources of which the pool has too little now for the policy, or for the change of files to it, in words
    /// and with advice.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Other remarks on the policy, given the donors that are there now; nobody has to be asked to accept them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Asks for the state of repair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RepairStatus {}
call!(RepairStatus => RepairState, "repair-status", Users, "`potluck repair status`");

/// Tells repair to pause, to go on or to hurry (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RepairControl {
    /// The action to take.
    pub action: RepairAction,
}
call!(RepairControl => RepairState, "repair-control", Admins, "`potluck repair now`, `pause` or `resume`");

/// An action that repair can be told to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairAction {
    /// Repair begins nothing new.
    Pause,
    /// Repair goes on after a pause, and looks at everything now.
    Resume,
    /// Repair goes on as after a pause, and does not wait for the grace of silent donors that did not announce their
    /// absence.
    Now,
}

/// The state of repair at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RepairState {
    /// The reason why nothing is repaired though something should be: an admin's pause, or too many donors dead at
    /// once.
    pub paused: Option<String>,
    /// The number of chunks to make, by how many more donors may die before their file is lost: index 0 is for files
    /// that no further death may hit.
    pub queued: Vec<u64>,
    /// The number of chunks in `queued` that wait for another look at everything, because one look remembers only the
    /// most urgent.
    pub more: u64,
    /// The stored bytes of all chunks to make and of those being made.
    pub bytes_left: u64,
    /// The number of chunks being made, those for changes of policy included.
    pub under_way: u64,
    /// The number of promised chunks that cannot be made now, for lack of a source or of a donor to take them.
    pub stuck: u64,
    /// The reason why promised chunks cannot be made now.
    pub stuck_why: Option<String>,
    /// The number of files whose redundancy is being changed; none of their chunks is in `queued`.
    pub changing: u64,
    /// The size of these files in bytes of plaintext.
    pub changing_bytes: u64,
    /// The number of chunks and groups of a new redundancy that cannot be made now. Their files keep the old
    /// redundancy.
    pub changing_stuck: u64,
    /// The reason why chunks and groups of a new redundancy cannot be made now.
    pub changing_stuck_why: Option<String>,
    /// The number of copies beyond what any policy asks, which wait to be deleted.
    pub excess: u64,
    /// The number of chunks that were made since the manager's start.
    pub made: u64,
    /// The size of these chunks in stored bytes.
    pub made_bytes: u64,
    /// The bytes a second that were made lately.
    pub rate: u64,
    /// The bytes a second that all donors together may be asked for.
    pub pool_budget: u64,
    /// The bytes a second that one donor may be asked for, reading and writing counted apart.
    pub donor_budget: u64,
    /// The reason why it is not known yet what is to be made: something happened since everything was last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// The donors that are silent and announced nothing. What they hold is made again when they are given up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// The seconds until the first of the silent donors is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins_seconds: Option<u64>,
    /// The seconds until everything is made at the present rate; `None` if that cannot be told, or if nothing of it can
    /// be made now.
    pub eta_seconds: Option<u64>,
    /// The seconds until the new redundancy of changed files is made, too, as far as it is known what that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changing_eta_seconds: Option<u64>,
    /// The seconds since everything was last looked at.
    pub scanned_seconds: Option<u64>,
}

/// Takes all lent space back: a donor its own, an admin any donor's (drain).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GiveBack {
    /// The donor whose space is taken back; a donor may leave it out.
    #[serde(default)]
    pub donor: Option<DonorId>,
    /// True if the give-back does not wait for files that can be read without the donor, nor for files that are lost by
    /// it. The lost files are listed before anything is deleted, and no others are lost.
    #[serde(default)]
    pub now: bool,
    /// The [`GivingBack::listing`] of the files that the caller agreed to lose, with `now`. If the list is another by
    /// now and not empty, nothing begins. `None` agrees to lose anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<Digest>,
    /// True if an earlier give-back is called off, so that the space is lent again.
    #[serde(default)]
    pub cancel: bool,
}
call!(GiveBack => GivingBack, "give-back", DonorsAndAdmins, "`potluck give-back` or `drain`", within LOOK_AT_ALL);

/// Asks what it would mean if donors left, all of them together, or if one of them held less. Nothing begins. A donor
/// may ask only for sets that it is part of, and is told the paths of files that lie on it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Departing {
    /// The donors that leave; where the list is empty, the donor that asks.
    pub donors: Vec<DonorId>,
    /// The number of bytes that leave each donor, to other donors first; `None` for all that they hold.
    pub over: Option<u64>,
}
call!(Departing => GivingBack, "departing", DonorsAndAdmins, "`potluck give-back` or `drain`", within LOOK_AT_ALL);

/// Asks for the progress of a give-back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GiveBackStatus {
    /// The donor whose give-back is asked about; a donor may leave it out.
    #[serde(default)]
    pub donor: Option<DonorId>,
}
call!(GiveBackStatus => GivingBack, "give-back-status", DonorsAndAdmins, "`potluck give-back` or `drain`");

/// The progress of a give-back at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GivingBack {
    /// True if a give-back is under way, or done and not called off.
    pub active: bool,
    /// The bytes that the donor held when the give-back began.
    pub held_at_start: u64,
    /// The bytes that the donor holds now.
    pub held: u64,
    /// The number of chunks that still have to be moved to other donors first.
    pub to_move: u64,
    /// The size of these chunks in stored bytes.
    pub to_move_bytes: u64,
    /// The number of chunks that no other donor can take, or that cannot be read.
    pub stuck: u64,
    /// The reason why chunks are stuck.
    pub stuck_why: Option<String>,
    /// The judgement of whether the donor may leave the pool.
    pub may_go: MayGo,
    /// What keeps the give-back from going on, or would, and from being done: sentences for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<String>,
    /// True if no other donor stays: the pool's own metadata is then on the manager's own disk only.
    pub last_donor: bool,
    /// The number of chunks on the donor that this pool's catalog does not know; they are deleted only if an admin has
    /// them reclaimed ([`ReclaimUnknown`]).
    pub unclaimed: u64,
    /// True if the machine may go, because nothing that the pool needs is there any more.
    pub safe_to_remove: bool,
    /// True if the goal of the give-back is reached.
    pub done: bool,
    /// The first few files that are lost, or as [`Departing`] tells would be lost, if the space is taken now.
    pub lost: Vec<String>,
    /// The number of all files that are or would be lost.
    pub lost_files: u64,
    /// The first few files that would not be lost, but less safe than promised until they are made whole again, if
    /// the space were taken now.
    pub less_safe: Vec<String>,
    /// The number of all files that would be less safe than promised.
    pub less_safe_files: u64,
    /// The digest of the whole list of files that are or would be lost, to which the caller agrees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listing: Option<Digest>,
    /// The number of files, spaces and members whose data the donor holds, as [`Departing`] tells of a whole departure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_of: Option<HeldOf>,
    /// The least that has to be said for the donor's removal not to be refused, as [`Departing`] tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<RemovalNeeds>,
}

impl GivingBack {
    /// Returns whether anybody needs what the donor holds, as [`Departing`] tells: something has to move first, or files
    /// would be lost or less safe if the space were taken now.
    pub fn is_needed(&self) -> bool {
        self.to_move > 0 || self.lost_files > 0 || self.less_safe_files > 0
    }
}

/// The numbers of files, spaces and members whose data a donor holds: its owner may know that much of other people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldOf {
    /// The number of files, kept versions included, of which it holds a part.
    pub files: u64,
    /// The number of spaces that these files are in.
    pub spaces: u64,
    /// The number of members who made these spaces.
    pub members: u64,
    /// The first of these spaces, without their names, the largest first: at most [`MOST_HELD_SPACES`].
    pub by_space: Vec<HeldSpace>,
}

/// The most spaces of which a donor is told how much it holds.
pub const MOST_HELD_SPACES: usize = 32;

/// The part of a space that a donor holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldSpace {
    /// The number of files of which it holds a part.
    pub files: u64,
    /// The size of these parts in stored bytes. Chunks that several files share count for each.
    pub bytes: u64,
    /// True if all that the space holds is encrypted before it leaves its writer's machine.
    pub sealed: bool,
}

/// The least that a caller has to say so that the manager removes a donor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovalNeeds {
    /// Nothing has to be said: no file is lost or less safe.
    Nothing,
    /// It cannot be told yet. The caller asks again in a moment, or says that it is to be done now, whatever it
    /// means.
    #[default]
    Time,
    /// The caller has to say that it is to be done now, because files would be less safe.
    Now,
    /// The caller has to say which files may be lost.
    Force,
}

impl RemovalNeeds {
    /// Returns whether the manager removes a donor for a caller that says this.
    pub fn is_met(self, now: bool, force: bool) -> bool {
        match self {
            Self::Nothing => true,
            Self::Time | Self::Now => now || force,
            Self::Force => force,
        }
    }
}

/// The judgement of whether a donor may leave the pool, which `status`, `nodes rm`, `drain` and `give-back` show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MayGo {
    /// The verdict on whether the donor may leave.
    pub verdict: Going,
    /// The reason why the donor may leave, or may not.
    pub why: String,
    /// The next step for a person; empty where nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

/// The verdict on whether a donor may leave the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Going {
    /// The verdict cannot be told yet.
    #[default]
    NotKnown,
    /// The donor may go now: nothing is less safe without it.
    Now,
    /// The donor may go when what it holds has been moved to others, which take it.
    AfterMoving,
    /// The chunks that it holds cannot be moved in the pool as it is.
    Stuck,
}

/// Announces a donor's absence, by itself or by an admin: repair waits that long.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Away {
    /// The donor that is away; a donor may leave it out.
    #[serde(default)]
    pub donor: Option<DonorId>,
    /// The milliseconds from now for which the donor is away; 0 ends its absence.
    pub for_ms: u64,
}
call!(Away => Done, "away", DonorsAndAdmins, "`potluck away` or `nodes away`");

/// Trusts a donor again that was quarantined (admins). A sample of what it holds has to prove right first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Trust {
    /// The donor that is to be trusted.
    pub donor: DonorId,
}
call!(Trust => Done, "trust", Admins, "`potluck nodes trust`");

/// The least rate, in bytes a second, at which a donor reads back what it holds: a small store is done in hours.
pub const SLOWEST_SCRUB: u64 = 64 << 10;

/// Has donors read back all they hold, now (admins).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScrubNow {
    /// The donor that reads back what it holds; `None` for all donors.
    #[serde(default)]
    pub donor: Option<DonorId>,
    /// The rate of reading of each donor in bytes a second, at least [`SLOWEST_SCRUB`].
    pub rate: u64,
}
call!(ScrubNow => Done, "scrub-now", Admins, "`potluck scrub now`");

/// Lets garbage collection go on after a catalog was restored (admins): chunks that only a newer catalog may have known
/// are given up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GcResume {}
call!(GcResume => Done, "gc-resume", Admins, "`potluck gc resume`");

/// Has the chunks reclaimed that donors hold and the catalog does not know (admins). The donors that are there list
/// what they hold anew, and chunks that no file uses and no session has offered are deleted like everything that is
/// not used. The call is refused during a GC freeze.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReclaimUnknown {}
call!(ReclaimUnknown => ReclaimingUnknown, "reclaim-unknown", Admins, "`potluck gc unknown reclaim`");

/// The donors whose unknown chunks are going to be reclaimed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimingUnknown {
    /// The donors that list what they hold for the reclaiming, a few at a time ([`super::DonorStatus::reclaiming`]).
    #[serde(default)]
    pub asked: Vec<DonorId>,
    /// The donors that are not heard, or have not listed what they hold; their unknown chunks stay.
    #[serde(default)]
    pub absent: Vec<DonorId>,
}

/// Lists files that are not as safe as they should be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fsck {
    /// The path below which files are looked at; `pot://` is everywhere.
    pub path: PoolPath,
    /// True if files that are merely incomplete are listed, too.
    #[serde(default)]
    pub incomplete: bool,
    /// The page continues after this [`FsckReport::next`].
    #[serde(default)]
    pub after: Option<String>,
}
call!(Fsck => FsckReport, "fsck", Users, "`potluck fsck`");

/// The files that are not as safe as they should be.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FsckReport {
    /// The number of files that were looked at for this page, without those that are kept after they were replaced or
    /// removed, and without the pool's own metadata.
    pub files: u64,
    /// The number of files that were looked at and are kept after they were replaced or removed.
    pub kept_files: u64,
    /// The number of files of the pool's own metadata that are not as safe as they should be.
    pub metadata: u64,
    /// The number of files that are as safe as promised when donors are back that are silent now; none of them is in
    /// `found`.
    pub waiting: u64,
    /// The number of files with copies that readers called bad and that their donors have not looked at yet: how safe
    /// these files are is not known for a moment.
    pub in_doubt: u64,
    /// The files that are not as safe as they should be.
    pub found: Vec<Damage>,
    /// The place after which the next page begins; set when there is more.
    pub next: Option<String>,
    /// The state of the files of this page together. The greatest of all pages holds for all files.
    pub outcome: FsckOutcome,
    /// The next step for a person where files cannot be read, else empty.
    pub advice: String,
}

/// The state of several files together. The greatest outcome of parts holds for the whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsckOutcome {
    /// All files are as safe as promised.
    #[default]
    Well,
    /// The state of some files is not known for a moment.
    InDoubt,
    /// Some files are less safe than promised, or the pool's own metadata is.
    LessSafe,
    /// Some files cannot be read, and what they lack is on no donor.
    Lost,
    /// Some files cannot be read while donors do not answer.
    Away,
    /// The catalog's records of some files are damaged.
    Damaged,
}

/// A file that is not as safe as it should be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Damage {
    /// The path of the file, as `pot://SPACE/PATH`.
    pub path: String,
    /// The health of the file.
    pub health: super::Health,
    /// True if what the file lacks is on donors that are merely away, and may come back.
    #[serde(default)]
    pub may_return: bool,
    /// The damage of the file's records in the catalog, if there is any: its chunks are unknown then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}
