//! Makes the alarms for everything that is wrong and does not mend itself, each with what to do. All of them are listed
//! here, the one for another manager included ([`Signpost::alarm`]). The verdict is based on this list, and `status`,
//! metrics and pages show it.

use crate::gc_freeze::GcFreeze;
use crate::handles::handles;
use crate::log_copies::copies::LogCopies;
use crate::pool_time::PoolTime;
use crate::room_advice::room_advice;
use crate::scan_state::ScanState;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::unproven_terms::UnprovenTerms;
use potluck_catalog::{Catalog, Error};
use potluck_core::size::{count, format_size};
use potluck_pool::redundancy::Damaged;
use potluck_recovery::state_dir::StateDir;
use potluck_recovery::whereabouts::Signpost;
use potluck_wire::addresses::{Address, DONOR_PORT};
use potluck_wire::control::{
    Alarm, AlarmKind as Kind, DonorState, DonorStatus, RepairState, SpaceHealth,
};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

handles! {
    /// The handles for making alarms.
    pub struct Alarms {
        catalog: Catalog,
        signpost: Arc<Signpost>,
        gc_freeze: Arc<GcFreeze>,
        log: Arc<LogCopies>,
        scan_state: Arc<ScanState>,
        state: Arc<StateDir>,
        settings: Arc<Settings>,
        unproven_terms: Arc<UnprovenTerms>,
        time: PoolTime,
        pool: SharedPool,
    }
}

/// The number of chunks lost or spoiled since they were stored from which a donor's disk is suspected. A bit flips now
/// and then, and nobody needs to look at a disk for one.
const MANY_BAD: u64 = 8;
/// The number of members that must have met false receipts of a donor before there is an alarm for it.
const SEVERAL: usize = 2;
/// The percentage of the lent space: an alarm tells that space is short when less is left.
const SHORT_PERCENT: u64 = 5;
/// The advice to an admin whose manager runs on a catalog that may be older than what donors keep.
const TAKE_NEWER: &str = "to take the newer catalog, which donors keep, stop this manager and start it once with --adopt-newer \
     (`potluck manager --adopt-newer`, or `potluck up --adopt-newer`); if this one is to count: `potluck gc resume`";

impl Alarms {
    /// Lists all alarms, the most urgent first.
    pub fn all(&self, donors: &[DonorStatus], repair: &RepairState) -> Vec<Alarm> {
        let disk = self.catalog.disk_fault();
        let donors = &*told_apart(donors);
        // A write that fails because of the catalog's disk is no fault of donors.
        let others = |failed: Option<String>| failed.filter(|_| disk.is_none());
        let mut alarms: Vec<Alarm> = Vec::new();
        alarms.extend(disk.as_ref().map(|why| self.unwritable(why)));
        alarms.extend(self.signpost.alarm());
        alarms.extend(self.unseen());
        alarms.extend(self.own_settings());
        for sort in [twins, disk_fails, unreachable, unreached_by_some, bad_settings] {
            alarms.extend(donors.iter().filter_map(|donor| Some(sort(donor)?.of(donor.donor))));
        }
        alarms.extend(others(self.log.file.failed()).map(|why| {
            let what = format!("the catalog is not backed up to a file: {why}");
            Alarm::new(Kind::Backup, what, "look at the disk of --backup-dir")
        }));
        alarms.extend(self.gc_freeze.why().map(|why| {
            let advice = match self.gc_freeze.may_lack() {
                true => TAKE_NEWER,
                false => "when all is where it should be: `potluck gc resume`",
            };
            Alarm::new(Kind::GcFrozen, format!("nothing is reclaimed: {why}"), advice)
        }));
        alarms.extend(others(self.log.donors.failed()).map(|why| {
            let what = format!("the metadata log on the donors is not written: {why}");
            Alarm::new(Kind::Log, what, "look at the donors and their room")
        }));
        alarms.extend(repair_rests(repair));
        for sort in [quarantined, bad_copies] {
            alarms.extend(donors.iter().filter_map(|donor| Some(sort(donor)?.of(donor.donor))));
        }
        alarms.extend(donors.iter().filter_map(|donor| self.unproven(donor)));
        alarms.extend(donors.iter().filter_map(|donor| self.false_receipts(donor)));
        alarms.extend(short_of_space(donors));
        alarms
    }

    /// Makes the alarm for a donor of which several members showed receipts that it did not make: a single member may
    /// have made them up.
    fn false_receipts(&self, donor: &DonorStatus) -> Option<Alarm> {
        let members = self.pool.lock().distrusting(donor.donor, self.time.tick());
        (members.len() >= SEVERAL).then(|| {
            let DonorStatus { name, .. } = donor;
            let what = format!(
                "{name} answered the writes of {} with receipts that it did not make; what they write avoids it for a day",
                count(members.len() as u64, "member")
            );
            let advice = format!(
                "its machine or its program does not do what it says: `potluck drain {name}` empties it"
            );
            Alarm::new(Kind::DonorFalseReceipts, what, advice).of(donor.donor)
        })
    }

    /// Makes the alarm for a donor that tells, without proof, of a term that this manager does not know.
    fn unproven(&self, donor: &DonorStatus) -> Option<Alarm> {
        let heard = self.unproven_terms.of(donor.donor).filter(|_| donor.quarantined.is_none())?;
        let what = format!(
            "{} says that it heard another manager, of epoch {}, and cannot prove it; it is not believed",
            donor.name, heard.epoch
        );
        let advice =
            "a disk may have spoiled its note: look at it, and start `potluck lend` there again";
        Some(Alarm::new(Kind::DonorUnproven, what, advice).of(donor.donor))
    }
}

/// Returns the donors with unique names, so that a command in an alarm's advice means one donor: a name that several
/// have gets the donor's number appended.
fn told_apart(donors: &[DonorStatus]) -> Cow<'_, [DonorStatus]> {
    let mut seen = BTreeSet::new();
    let shared: BTreeSet<&str> =
        donors.iter().map(|donor| &*donor.name).filter(|name| !seen.insert(*name)).collect();
    if shared.is_empty() {
        return donors.into();
    }
    let apart = donors.iter().map(|donor| {
        let mut donor = donor.clone();
        if shared.contains(&*donor.name) {
            donor.name = format!("{}#{}", donor.name, donor.donor);
        }
        donor
    });
    apart.collect()
}

/// Makes the alarms for spaces in which nothing can be stored. Spaces that the reader may not know of have no names, and
/// share one alarm for each reason.
pub fn unmet_policies(spaces: &[SpaceHealth]) -> Vec<Alarm> {
    let mut told = BTreeSet::new();
    let lacking =
        spaces.iter().filter_map(|space| Some((space.name.as_str(), space.lacks.as_ref()?)));
    let lacking = lacking.filter(|(name, why)| told.insert((*name, *why)));
    let alarm = |(name, why): (&str, &String)| {
        let (space, set) = match name {
            "" => ("spaces of others".to_owned(), "`potluck policy set`".to_owned()),
            name => (name.to_owned(), format!("`potluck policy set pot://{name}`")),
        };
        Alarm::new(
            Kind::PolicyUnmet,
            format!("nothing can be stored in {space}: {why}"),
            format!("lend on more machines (`potluck lend`), or ask for less redundancy ({set})"),
        )
    };
    lacking.map(alarm).collect()
}

/// Makes the alarm for little space that is left.
fn short_of_space(donors: &[DonorStatus]) -> Option<Alarm> {
    let takes = |donor: &&DonorStatus| donor.state == DonorState::Live && !donor.takes_nothing;
    let takers = || donors.iter().filter(takes);
    let room: u64 = takers().map(|donor| donor.room).sum();
    let lent = room + takers().map(|donor| donor.used).sum::<u64>();
    (lent > 0 && room < lent / 100 * SHORT_PERCENT).then(|| {
        let (room, lent) = (format_size(room), format_size(lent));
        let what = format!("space is short: {room} are left of {lent} that live donors lend");
        Alarm::new(Kind::SpaceShort, what, room_advice(donors))
    })
}

impl Alarms {
    /// Makes the alarm for the manager's own disk that takes no writes.
    fn unwritable(&self, why: &Error) -> Alarm {
        let place = self.state.root().display();
        let advice = match why {
            Error::DiskFull => format!("free space on the manager's disk, at {place}"),
            _ => format!("look at the manager's disk, at {place}"),
        };
        Alarm::new(
            Kind::CatalogDisk,
            format!("the manager cannot write its catalog: {why}"),
            advice,
        )
    }

    /// Makes the alarms for a scan that failed, and for files whose records are damaged.
    fn unseen(&self) -> impl Iterator<Item = Alarm> {
        let kept = self.scan_state.kept();
        let failed = kept.failed.as_ref().map(|why| {
            let what = format!(
                "how safe files are could not be looked at, and nothing new is repaired: {why}"
            );
            let advice = "look at the manager's log and at the disk that holds its state directory";
            Alarm::new(Kind::ScanFailed, what, advice)
        });
        let Damaged { files, first } = &kept.damaged;
        let damaged = (*files > 0).then(|| {
        let what = format!(
            "the catalog's records of {} are damaged, first {first}. No copy in excess is deleted \
             meanwhile",
            count(*files, "file")
        );
        let advice = "`potluck fsck` lists all; stop the manager, and bring its catalog back with \
                      `potluck manager restore`";
        Alarm::new(Kind::DamagedRecords, what, advice)
    });
        failed.into_iter().chain(damaged)
    }

    fn own_settings(&self) -> Option<Alarm> {
        self.settings.fault().map(|why| settings("the manager", &why))
    }
}

/// Makes the alarm for a donor's settings that cannot be used.
fn bad_settings(donor: &DonorStatus) -> Option<Alarm> {
    let why = donor.settings_fault.as_ref()?;
    Some(settings(&format!("the daemon of {}", donor.name), why))
}

fn settings(whose: &str, why: &str) -> Alarm {
    Alarm::new(
        Kind::Settings,
        format!("{whose} cannot use its settings as they are written: {why}"),
        "mend that on its machine, and have it read them again (kill -HUP, or systemctl reload)",
    )
}

/// Makes the alarm for two daemons that report with one identity, as after a virtual machine was cloned.
fn twins(donor: &DonorStatus) -> Option<Alarm> {
    let DonorStatus { name, addresses, twin_at, .. } = donor;
    let twin = twin_at.as_ref()?;
    let what = format!(
        "two daemons report as {name}, at {addresses} and at {twin}, as after its machine was cloned: they replace each other all \
         the time, and nothing that they hold can be relied on"
    );
    let advice = "keep one of the two. On the other stop `potluck lend`, remove its state directory (potluck/donor in the state \
                  directory of its user, /var/lib/potluck/donor of the service) and the copy of what it lends, and let it join as a \
                  donor of its own: `potluck invite --role donor` here, and with that token in a file \
                  `potluck lend DIR --token-file FILE` there (for the service `potluck join --token-file FILE --state \
                  /var/lib/potluck/donor` as root)";
    Some(Alarm::new(Kind::DonorTwins, what, advice))
}

/// Makes the alarm for a donor's disk that fails.
fn disk_fails(donor: &DonorStatus) -> Option<Alarm> {
    let fault = donor.disk_fault.as_ref()?;
    let (name, why) = (&donor.name, &fault.why);
    let (what, advice) = match (fault.missing, donor.state) {
        (true, DonorState::Dead) => (
            format!(
                "the disk that {name} lends is gone ({why}), and what it held is made again elsewhere"
            ),
            format!("mount it there and it counts again; if it is lost: `potluck nodes rm {name}`"),
        ),
        (true, _) => (
            format!("the disk that {name} lends is gone ({why}): its copies are not there"),
            "mount it there, and the donor goes on by itself; `potluck repair now` does not wait \
             for it"
                .into(),
        ),
        (false, _) => (
            format!("the disk that {name} lends takes no writes ({why}): it may be failing"),
            format!("look at it, or move what it holds to others: `potluck drain {name}`"),
        ),
    };
    Some(Alarm::new(Kind::DonorDisk, what, advice))
}

/// Makes the alarm for a live donor that cannot be reached.
fn unreachable(donor: &DonorStatus) -> Option<Alarm> {
    let why = donor.unreachable.as_ref().filter(|_| donor.state == DonorState::Live)?;
    let mut what = format!(
        "{} reports, and cannot be reached, so that nobody can store or read there",
        donor.name
    );
    if !why.is_empty() {
        what.push_str(&format!(": {why}"));
    }
    let advice = format!(
        "open port {} (TCP) in the firewall of its machine, or say how others reach it with `potluck \
         lend --advertise HOST`",
        port(donor)
    );
    Some(Alarm::new(Kind::DonorUnreachable, what, advice))
}

/// Makes the alarm for a donor that some members cannot reach, and the manager can.
fn unreached_by_some(donor: &DonorStatus) -> Option<Alarm> {
    let DonorStatus { name, addresses, unreached_by: members, .. } = donor;
    let (who, more) = members.split_at(members.len().min(3));
    let who = match (who, more.len()) {
        ([], _) => return None,
        (who, 0) => who.join(", "),
        (who, more) => format!("{} and {more} more", who.join(", ")),
    };
    let what = format!(
        "{} ({who}) said within the last five minutes that they cannot reach {name}, which the manager \
         reaches: tried at {addresses}",
        count(members.len() as u64, "member")
    );
    let advice = format!(
        "look for a firewall on the way from their machines to port {} (TCP) there, or say how they \
         reach it with `potluck lend --advertise HOST`",
        port(donor)
    );
    let kind = match donor.unreached_from {
        2.. => Kind::DonorUnreachedBySome,
        _ => Kind::DonorUnreachedFromOnePlace,
    };
    Some(Alarm::new(kind, what, advice))
}

fn port(donor: &DonorStatus) -> u16 {
    donor.addresses.first().map_or(DONOR_PORT, Address::port)
}

/// Makes the alarms for repair that is paused or stuck, and for a change of policy that is stuck.
pub fn repair_rests(repair: &RepairState) -> impl Iterator<Item = Alarm> {
    let paused = repair.paused.as_ref().map(|why| {
        let advice = "`potluck repair resume` when that is as it should be";
        Alarm::new(Kind::RepairPaused, format!("repair rests: {why}"), advice)
    });
    let stuck = (repair.stuck > 0).then(|| {
        let why = repair.stuck_why.as_deref().unwrap_or("no donor can take them");
        let what = format!("{} cannot be repaired: {why}", count(repair.stuck, "chunk"));
        Alarm::new(Kind::RepairStuck, what, "`potluck fsck` lists the files")
    });
    let changing = (repair.changing_stuck > 0).then(|| {
        let why = repair.changing_stuck_why.as_deref().unwrap_or("nowhere to put it");
        let what = format!(
            "a change of policy is stuck, with {} to go: {why}; every file is as safe as it was",
            count(repair.changing, "file")
        );
        let advice =
            "lend more with `potluck lend`, or set the policy back with `potluck policy set`";
        Alarm::new(Kind::PolicyStuck, what, advice)
    });
    paused.into_iter().chain(stuck).chain(changing)
}

fn quarantined(donor: &DonorStatus) -> Option<Alarm> {
    let why = donor.quarantined.as_ref()?;
    let name = &donor.name;
    Some(Alarm::new(
        Kind::DonorQuarantined,
        format!("{name} is not trusted: {why}"),
        format!(
            "look at its disk, then `potluck nodes trust {name}`, or `potluck nodes rm {name}`"
        ),
    ))
}

/// Makes the alarm for a donor that lost or spoiled many chunks. Where two daemons report as the donor, each lacks what
/// the other was given, and that is no failure of a disk.
fn bad_copies(donor: &DonorStatus) -> Option<Alarm> {
    let DonorStatus { name, bad, .. } = donor;
    let may_lack = donor.twin_at.is_some() || donor.may_be_twins;
    if *bad < MANY_BAD || donor.quarantined.is_some() || may_lack {
        return None;
    }
    let what = format!(
        "{name} lost or spoiled {} since they were stored: its disk may be failing",
        count(*bad, "chunk")
    );
    let advice = format!(
        "`potluck scrub now {name}` has it read back everything; `potluck drain {name}` moves \
         what it holds to others"
    );
    Some(Alarm::new(Kind::DonorBadCopies, what, advice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::DonorId;
    use potluck_wire::addresses::Addresses;
    use potluck_wire::control::DiskFault;

    #[test]
    fn donors_of_one_name_are_told_apart_as_commands_take_them() {
        let donor = |number, name: &str| DonorStatus {
            donor: DonorId(number),
            name: name.into(),
            ..DonorStatus::default()
        };
        let all = [donor(1, "vm"), donor(2, "desk"), donor(3, "vm")];
        let apart = told_apart(&all);
        let names: Vec<&str> = apart.iter().map(|donor| &*donor.name).collect();
        assert_eq!(names, ["vm#1", "desk", "vm#3"]);
        assert!(matches!(told_apart(&all[1..]), Cow::Borrowed(_)));
    }

    #[test]
    fn a_donor_that_lost_many_chunks_is_told_with_what_to_do() {
        let mut donor = DonorStatus { name: "desk".into(), bad: 7, ..DonorStatus::default() };
        assert_eq!(bad_copies(&donor), None, "a bit flips now and then");
        donor.bad = 15;
        let alarm = bad_copies(&donor).expect("worth a word");
        assert!(alarm.what.contains("15 chunks") && !alarm.kind.degrades(), "{alarm}");
        assert!(alarm.advice.contains("scrub now desk"), "{alarm}");
        assert!(alarm.advice.contains("drain desk"), "{alarm}");
        donor.quarantined = Some("it served wrong bytes".into());
        assert_eq!(bad_copies(&donor), None, "it holds nothing that counts");
        assert!(quarantined(&donor).expect("told").advice.contains("nodes trust desk"));
    }

    #[test]
    fn duplicate_identity_alarm_names_both_addresses() {
        let at = |text: &str| text.parse::<Addresses>().expect("an address");
        let mut donor = DonorStatus {
            name: "desk".into(),
            addresses: at("10.0.0.1:7701"),
            ..DonorStatus::default()
        };
        assert_eq!(twins(&donor), None);
        donor.twin_at = Some(at("10.0.0.2:7701"));
        let alarm = twins(&donor).expect("told");
        assert!(alarm.kind.degrades());
        for said in ["desk", "10.0.0.1:7701", "10.0.0.2:7701"] {
            assert!(alarm.what.contains(said), "{alarm}");
        }
        donor.bad = MANY_BAD;
        assert_eq!(bad_copies(&donor), None, "each lacks what the other has");
    }

    #[test]
    fn space_is_short_when_live_donors_have_little_left() {
        let short = |room_percent: u64| {
            let donor = DonorStatus {
                state: DonorState::Live,
                room: room_percent << 30,
                used: (100 - room_percent) << 30,
                ..DonorStatus::default()
            };
            short_of_space(&[donor])
        };
        assert!(short(4).is_some_and(|alarm| !alarm.kind.degrades()));
        assert_eq!((short(6), short(50), short_of_space(&[])), (None, None, None));
    }

    #[test]
    fn unmet_policy_alarm_hides_names_of_others() {
        let lacks = |name: &str, why: Option<&str>| SpaceHealth {
            name: name.into(),
            lacks: why.map(Into::into),
            ..SpaceHealth::default()
        };
        let nine = Some("9 copies need 9 donors and 4 are available");
        let spaces = [lacks("well", None), lacks("lab", nine), lacks("", nine), lacks("", nine)];
        let alarms = unmet_policies(&spaces);
        let told: Vec<&str> = alarms.iter().map(|alarm| alarm.what.as_str()).collect();
        let [lab, others] = told[..] else { panic!("{told:?}") };
        assert!(lab.starts_with("nothing can be stored in lab: 9 copies"), "{lab}");
        assert!(others.starts_with("nothing can be stored in spaces of others"), "{others}");
        assert!(
            alarms[0].advice.contains("pot://lab") && alarms[0].kind.degrades(),
            "{}",
            alarms[0]
        );
    }

    #[test]
    fn a_disk_that_is_gone_is_not_called_failing() {
        let fault = |missing| Some(DiskFault { missing, why: "EIO".into() });
        let mut donor = DonorStatus { name: "desk".into(), ..DonorStatus::default() };
        assert_eq!(disk_fails(&donor), None);
        donor.disk_fault = fault(false);
        assert!(disk_fails(&donor).expect("told").what.contains("takes no writes"));
        donor.disk_fault = fault(true);
        assert!(disk_fails(&donor).expect("told").advice.starts_with("mount it"));
        donor.state = DonorState::Dead;
        assert!(disk_fails(&donor).expect("told").advice.contains("nodes rm desk"));
    }
}
