//! The calls about the pool as a whole: its state, its alarms, its spaces and donors.

use super::{
    Call, Callers, DiskFault, DonorRates, GivingBack, HealthLevel, QuotaUse, RepairState, Scrubbed,
    call,
};
use crate::addresses::Addresses;
use potluck_core::ids::{DonorId, Epoch};
use potluck_core::lend_mode::LendMode;
use potluck_core::load::Load;
use potluck_core::policy::Redundancy;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Asks for the state of the whole pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {}
call!(Status => PoolStatus, "status", Users, "`potluck status`");

/// Asks for the state of the pool in one sentence, as fresh as it can be had: donors whose last word is overdue are
/// waited for, until they are heard or known to be silent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {}
call!(Check => Verdict, "check", Users, "`potluck status`");

/// Asks for the state of the donor that calls: its owner is told what the pool says of it, and nothing of others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OwnStatus {}
call!(OwnStatus => OwnDonorStatus, "own-status", Donors, "`potluck lend status`");

/// The state of the donor that asks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OwnDonorStatus {
    /// The donor, as the pool sees it.
    pub donor: DonorStatus,
    /// The alarms about it, most urgent first.
    #[serde(default)]
    pub alarms: Vec<Alarm>,
}

/// The state of the pool at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The pool in one sentence, as all commands tell it.
    #[serde(default)]
    pub verdict: Verdict,
    /// The name of the pool.
    pub pool: String,
    /// The version of Potluck that the manager runs.
    pub version: String,
    /// The number of the manager's starts over this catalog.
    pub epoch: Epoch,
    /// The seconds since the manager started.
    pub uptime_seconds: u64,
    /// The number of open write sessions.
    pub sessions: u64,
    /// The number of uploads that were interrupted and can go on.
    #[serde(default)]
    pub interrupted_uploads: u64,
    /// The stored bytes that are kept for interrupted uploads, all copies counted.
    #[serde(default)]
    pub interrupted_bytes: u64,
    /// The number of files in all spaces.
    pub files: u64,
    /// The bytes of the files together that are in no hole, as plaintext.
    pub bytes: u64,
    /// The number of chunks that no file uses and that wait to be reclaimed.
    #[serde(default)]
    pub condemned_chunks: u64,
    /// The number of chunks that no file uses and that only dead donors hold. They are reclaimed when these donors are
    /// back, and forgotten when these are removed.
    #[serde(default)]
    pub condemned_at_dead: u64,
    /// The level of safety of each space.
    #[serde(default)]
    pub spaces: Vec<SpaceHealth>,
    /// The state of repair.
    #[serde(default)]
    pub repair: RepairState,
    /// The reason why nothing is reclaimed now, for example that the catalog was restored or is older than one that ran
    /// before, so that chunks which it does not know may be in use; `None` if chunks are reclaimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gc_frozen: Option<String>,
    /// The seconds since the copy of the metadata log in a file was last known to have all changes.
    #[serde(default)]
    pub backup_file_seconds: Option<u64>,
    /// The seconds since the copy of the metadata log on donors was last known to have all changes.
    #[serde(default)]
    pub backup_pool_seconds: Option<u64>,
    /// The safety of the pool's own metadata on donors, as of the last scan; `None` where none is to be there, or
    /// before the first scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataHealth>,
    /// The number of changes that are not in the metadata log on donors yet; `None` where no such log is kept.
    #[serde(default)]
    pub log_waiting: Option<u64>,
    /// The alarms that somebody should look at, most urgent first.
    #[serde(default)]
    pub alarms: Vec<Alarm>,
    /// Every donor that ever joined and was not removed.
    pub donors: Vec<DonorStatus>,
}

/// A fault that somebody should look at, with advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// The kind of the alarm, for programs.
    pub kind: AlarmKind,
    /// The donor that the alarm is about; `None` where it is about the manager or the whole pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub donor: Option<DonorId>,
    /// The fault, in words.
    pub what: String,
    /// The next step for a person.
    pub advice: String,
}

/// Declares the kinds of alarms, each with whether the pool is degraded while there is one, and with the line that tells
/// that it is over, in which `{}` stands for whom it is about.
macro_rules! alarm_kinds {
    ($($(#[$about:meta])* $kind:ident: $degrades:literal, $over:literal;)*) => {
        /// The subject of an alarm.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum AlarmKind {
            $($(#[$about])* $kind,)*
        }

        impl AlarmKind {
            /// Returns whether the pool is not well while there is such an alarm.
            pub fn degrades(self) -> bool {
                match self {
                    $(Self::$kind => $degrades,)*
                }
            }

            /// Returns the line that tells that such an alarm about `whom` is over.
            pub fn over(self, whom: &str) -> String {
                let line = match self {
                    $(Self::$kind => $over,)*
                };
                line.replace("{}", whom)
            }
        }
    };
}

alarm_kinds! {
    /// The disk that holds the catalog takes no writes.
    CatalogDisk: true, "the disk that holds the catalog takes writes again";
    /// Another manager has taken this one's place.
    OtherManager: true, "no other manager has this one's place any more";
    /// The scan that judges how safe files are has failed.
    ScanFailed: true, "how safe files are can be looked at again";
    /// Records of files in the catalog are damaged.
    DamagedRecords: true, "no records of files are found damaged any more";
    /// Settings of a daemon cannot be used.
    Settings: true, "the settings of {} can be used";
    /// The disk that a donor lends fails, or is gone.
    DonorDisk: true, "the disk that {} lends is well";
    /// A donor reports, and the manager reaches it at none of its addresses.
    DonorUnreachable: true, "{} is reached again";
    /// Members in several places do not reach a donor.
    DonorUnreachedBySome: true, "no member misses {} any more";
    /// Members in one place, or a single member, do not reach a donor, or say so: the pool is well.
    DonorUnreachedFromOnePlace: false, "no member misses {} any more";
    /// A donor lost or spoiled many chunks, which are made again elsewhere.
    DonorBadCopies: false, "{} lacks few chunks again";
    /// A donor is not trusted.
    DonorQuarantined: true, "{} is trusted again";
    /// Two daemons report with the identity of one donor.
    DonorTwins: true, "{} is one daemon again";
    /// A donor tells of a manager that cannot have existed, and is not believed.
    DonorUnproven: false, "{} tells of no unknown manager any more";
    /// Members got receipts of a donor that are not its own, or made them up together.
    DonorFalseReceipts: false, "the receipts of {} are its own again";
    /// The catalog is not backed up.
    Backup: true, "the catalog is backed up to a file again";
    /// The log of the catalog is not written to donors.
    Log: true, "the metadata log on the donors is written again";
    /// No chunk is reclaimed.
    GcFrozen: true, "chunks that no file uses are reclaimed again";
    /// Repair rests until it is told to go on.
    RepairPaused: true, "repair may go on";
    /// Some chunks cannot be made again.
    RepairStuck: true, "nothing keeps repair any more";
    /// A change of policy cannot be finished.
    PolicyStuck: true, "changes of policy go on";
    /// Little of the lent space is left.
    SpaceShort: false, "there is enough space again";
    /// Nothing can be stored in a space: its policy needs more donors than there are, or room at more of them.
    PolicyUnmet: true, "files can be stored in every space again";
    /// An alarm of a newer manager, whose words say what it is about.
    #[serde(other)]
    Unknown: true, "an alarm of another release is over";
}

impl Alarm {
    /// Makes an alarm of this kind about the manager, or the whole pool.
    pub fn new(kind: AlarmKind, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { kind, donor: None, what: what.into(), advice: advice.into() }
    }

    /// Returns this alarm as one about a donor.
    pub fn of(self, donor: DonorId) -> Self {
        Self { donor: Some(donor), ..self }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.advice.as_str() {
            "" => write!(f, "{}", self.what),
            advice => write!(f, "{}\n  {advice}", self.what),
        }
    }
}

/// The pool in one sentence: whether it is well, why not, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// The state of the pool.
    pub state: PoolState,
    /// The reason of the state.
    pub reason: String,
    /// True if the state comes from files that are less safe than promised, or cannot be read. A pool may be degraded
    /// for another reason though every file is as safe as promised.
    pub of_files: bool,
    /// The next step for a person; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

/// The state of the pool, from well to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// Everything is as safe as promised.
    Healthy,
    /// It is not known yet how safe files are: something happened, or the manager has just started, and this is still
    /// being looked at.
    #[default]
    NotKnown,
    /// Everything can be read, and something is less safe than promised.
    Degraded,
    /// Something cannot be read or stored now.
    Unavailable,
}

/// The safety of a space, as of the last scan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SpaceHealth {
    /// The name of the space.
    pub name: String,
    /// The level of the worst file in the space; `None` before the first scan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<HealthLevel>,
    /// The number of files in the space.
    pub files: u64,
    /// The redundancy that the space's policy promises for new files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Redundancy>,
    /// The bytes of files that can be stored in the space now by its policy, in files of a few chunks or more; quotas
    /// are not looked at. `None` from a manager that does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// The reason why nothing can be stored in the space by its policy, where more donors or more room on them would
    /// be needed; `None` where something can, or could if donors were back that are merely silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// The number of donors that may still die for ever before anything in the space is lost; `None` while something
    /// cannot be read, before the first scan, or where all files are in the catalog.
    pub tolerates: Option<u32>,
    /// The number of donors that may still die or fall silent before something in the space cannot be read: less than
    /// `tolerates` while donors that it relies on are silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerates_now: Option<u32>,
    /// True if donors that the space relies on are silent, so that fewer may go now than may die for ever.
    pub silent: bool,
    /// The quota of the space and what is used of it, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaUse>,
    /// The number of files that cannot be read now.
    pub unreadable: u64,
    /// The number of files that cannot be read and of which something has no copy left anywhere: no donor's return
    /// brings them back.
    pub lost: u64,
    /// The number of files with fewer copies or chunks than promised.
    pub incomplete: u64,
    /// The number of files whose redundancy is being changed.
    pub changing: u64,
    /// The number of files of up to 4 KiB, which live in the catalog: no donor's death loses them.
    pub in_catalog: u64,
    /// True if all files of the space live in the catalog, so that no donor's death concerns any.
    pub all_in_catalog: bool,
    /// True if the space was scanned since the manager's start.
    pub scanned: bool,
    /// What became of the space because it follows the pool's defaults, or why it does not have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_news: Option<String>,
}

/// The safety of the pool's own metadata: the log of its catalog on donors, from which a lost manager is brought
/// back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MetadataHealth {
    /// The number of copies that were asked for. There are fewer where too few donors can hold one.
    pub asked: u32,
    /// The least number of copies that any part of the metadata has; `None` where it is on no donor.
    pub copies: Option<u32>,
    /// The number of files that the metadata consists of.
    pub files: u64,
    /// The number of files of the metadata that lack copies which donors could hold.
    pub incomplete: u64,
    /// The number of files of the metadata that cannot be read now.
    pub unreadable: u64,
}

/// The state of a donor as the manager sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DonorState {
    /// The donor is heard from, and its lent directory is there.
    Live,
    /// The donor has been silent for some seconds, or lacks its lent directory; nobody waits for it.
    Suspect,
    /// The donor was not heard from since the manager started, or for long, and nobody announced that.
    #[default]
    Silent,
    /// The donor is not there, as its owner or an admin announced.
    Away,
    /// The donor has been silent beyond its grace, or an admin did not want to wait so long: what it holds is made
    /// again elsewhere.
    Dead,
    /// The donor joined, and has lent nothing yet.
    Joined,
    /// A state that only a newer manager knows.
    #[serde(other)]
    Unknown,
}

impl DonorState {
    /// Returns the word of the glossary for this state.
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Suspect => "suspect",
            Self::Silent => "silent",
            Self::Away => "away",
            Self::Dead => "dead",
            Self::Joined => "joined",
            Self::Unknown => "unknown",
        }
    }
}

/// The state of one donor at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DonorStatus {
    /// The id of the donor.
    pub donor: DonorId,
    /// The name that people call the donor by.
    pub name: String,
    /// The addresses at which the donor is reached, the best first.
    pub addresses: Addresses,
    /// The addresses of another daemon that reports with the identity of this donor, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twin_at: Option<Addresses>,
    /// True if its daemon took the place of one that was still heard so lately that the two may both run, which is not
    /// known yet. The manager alone uses it.
    #[serde(skip)]
    pub may_be_twins: bool,
    /// The reason why the manager reaches the donor at none of its addresses though it reports, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// The members who said lately that they reach the donor at none of its addresses, though the manager does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached_by: Vec<String>,
    /// The number of addresses of the members who said that they do not reach the donor.
    #[serde(default)]
    pub unreached_from: u64,
    /// The state of the donor, as the manager sees it.
    pub state: DonorState,
    /// The seconds since the donor was heard, if ever.
    #[serde(default)]
    pub silent_seconds: Option<u64>,
    /// The seconds until the donor is given up, while it is silent and announced nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up_seconds: Option<u64>,
    /// The version of Potluck that the donor runs.
    #[serde(default)]
    pub version: String,
    /// The bytes that Potluck holds on the donor.
    pub used: u64,
    /// The most bytes that the donor's owner lends, once the donor was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lends: Option<u64>,
    /// The bytes that Potluck may still write on the donor, before promises.
    pub room: u64,
    /// The bytes of `room` that are promised to open sessions.
    pub promised: u64,
    /// The number of chunks on the donor that files use.
    pub chunks: u64,
    /// The number of chunks on the donor that this catalog does not know; they are deleted only if an admin has them
    /// reclaimed ([`super::ReclaimUnknown`]).
    pub unclaimed: u64,
    /// True if the donor lists its unknown chunks, or is going to, because an admin had them reclaimed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reclaiming: bool,
    /// The number of chunks that the donor lost or spoiled since they were committed.
    pub bad: u64,
    /// The last sample of the donor's load.
    pub load: Load,
    /// The donor's rates as the pool knows them.
    #[serde(default)]
    pub rates: DonorRates,
    /// The label of its failure domain: donors with one label fail together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The seconds for which the donor's absence is announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_seconds: Option<u64>,
    /// How much the donor does now, as its owner wants it.
    #[serde(default)]
    pub mode: LendMode,
    /// True if the donor said that it was shut down.
    #[serde(default)]
    pub stopped: bool,
    /// The reason why the donor is not trusted, if so: its copies do not count and are not read first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// The give-back of the donor, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub giving_back: Option<GivingBack>,
    /// True if nothing new goes to the donor: it gives back, is not trusted, or is over its limits.
    #[serde(default)]
    pub takes_nothing: bool,
    /// The progress of the donor's scrub.
    #[serde(default)]
    pub scrub: Scrubbed,
    /// The fault of the donor's disk, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_fault: Option<DiskFault>,
    /// The reason why the donor's daemon keeps to its settings of before, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_fault: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::{Alarm, AlarmKind};

    #[test]
    fn an_alarm_of_a_newer_manager_is_read_by_its_words() {
        let text = r#"{"kind": "moon_phase", "what": "the moon is full", "advice": "wait"}"#;
        let alarm: Alarm = serde_json::from_str(text).expect("read");
        assert_eq!((alarm.kind, alarm.what.as_str()), (AlarmKind::Unknown, "the moon is full"));
    }
}
