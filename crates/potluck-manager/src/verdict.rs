//! Judges the pool in one sentence: whether it is well, why not, and what to do. This is the only place that does, so
//! that every command and page tells the same.

use crate::room_advice::room_advice;
use crate::scan_state::Unseen;
use potluck_core::chunk::DEFAULT_CHUNK;
use potluck_core::lend_mode::LendMode;
use potluck_core::size::{count, duration};
use potluck_wire::control::{
    AlarmKind, DonorState, DonorStatus, PoolState, PoolStatus, RepairState, SpaceHealth, Verdict,
};

fn new(state: PoolState, reason: impl Into<String>, advice: impl Into<String>) -> Verdict {
    Verdict { state, reason: reason.into(), of_files: false, advice: advice.into() }
}

/// Marks a verdict as one about files.
fn of_files(verdict: Verdict) -> Verdict {
    Verdict { of_files: true, ..verdict }
}

/// Judges the pool, and returns the worst verdict that applies.
pub fn judge(status: &PoolStatus, unseen: Option<&Unseen>) -> Verdict {
    let verdict = unavailable(status).or_else(|| degraded(status));
    let verdict = verdict.or_else(|| fallen_silent(status, unseen));
    verdict.or_else(|| not_known(status, unseen)).unwrap_or_else(|| {
        let safe = "every file is as safe as promised";
        let reason = match (status.files, fewer_may_go(status)) {
            (0, _) => "nothing is stored yet".to_owned(),
            (_, Some(fewer)) => format!("{safe}; {fewer}"),
            (_, None) => safe.to_owned(),
        };
        new(PoolState::Healthy, reason, "")
    })
}

/// Returns the verdict for donors that fell silent since the last scan: files with copies on them are less safe at
/// once. Only the next scan tells whether some cannot be read.
fn fallen_silent(status: &PoolStatus, unseen: Option<&Unseen>) -> Option<Verdict> {
    let silent = unseen.filter(|unseen| matches!(unseen, Unseen::Silent(_)))?;
    if only_as_announced(status) {
        return None;
    }
    let reason = format!(
        "{}; how safe files are without what is there is being looked at",
        unseen_why(&status.donors, silent)?
    );
    Some(of_files(new(PoolState::Degraded, reason, wait_no_longer(status))))
}

/// Returns the verdict that it is not known yet how safe files are, if that is so.
fn not_known(status: &PoolStatus, unseen: Option<&Unseen>) -> Option<Verdict> {
    let fresh = |space: &SpaceHealth| space.files > 0 && !space.scanned;
    if status.files == 0 && !status.spaces.iter().any(fresh) {
        return None;
    }
    let not_looked_at = || {
        let spaces = named(&status.spaces, fresh);
        (!spaces.is_empty()).then(|| format!("{spaces} was not looked at yet"))
    };
    let unseen = unseen.and_then(|unseen| unseen_why(&status.donors, unseen));
    let why = unseen.or_else(not_looked_at)?;
    let reason = format!("{why}; how safe files are is being looked at");
    Some(new(
        PoolState::NotKnown,
        reason,
        "ask again in a moment; `potluck fsck` looks at every file now",
    ))
}

/// Says what happened that the last scan has not seen, if it matters to any file.
pub fn unseen_why(donors: &[DonorStatus], unseen: &Unseen) -> Option<String> {
    Some(match unseen {
        Unseen::All => "the manager has just started".into(),
        Unseen::Silent(silent) => {
            let of = |donor: &&DonorStatus| silent.contains(&donor.donor) && donor.chunks > 0;
            let names: Vec<_> = donors.iter().filter(of).map(|at| at.name.as_str()).collect();
            match names.as_slice() {
                [] => return None,
                [name] => format!("{name} is not heard since the last look"),
                names => format!("{} are not heard since the last look", names.join(", ")),
            }
        }
        Unseen::Worse(why) => (*why).to_owned(),
    })
}

fn unavailable(status: &PoolStatus) -> Option<Verdict> {
    let is_live = |state| state == DonorState::Live;
    let verdict = |reason: String, advice: &str| new(PoolState::Unavailable, reason, advice);
    let disk = status.alarms.iter().find(|alarm| alarm.kind == AlarmKind::CatalogDisk);
    if let Some(disk) = disk {
        return Some(verdict(disk.what.clone(), &disk.advice));
    }
    let lends = |donor: &&DonorStatus| donor.state != DonorState::Joined;
    let lending = status.donors.iter().filter(lends).count() as u64;
    if lending == 0 {
        let advice = match status.donors.is_empty() {
            true => "`potluck invite --role donor`, then `potluck lend` there",
            false => "`potluck lend` on the machines that joined as donors",
        };
        return Some(verdict("nobody lends yet, so nothing can be stored".into(), advice));
    }
    if !status.donors.iter().any(|donor| is_live(donor.state)) {
        let what = format!("none of the {} answers", count(lending, "donor"));
        return Some(verdict(
            what,
            "start them, or look at the network between them and the manager",
        ));
    }
    let unreadable: u64 = status.spaces.iter().map(|space| space.unreadable).sum();
    if unreadable == 0 {
        return full(status);
    }
    let spaces = named(&status.spaces, |space| space.unreadable > 0);
    let away = absent(status);
    let what = format!("{} cannot be read now, in {spaces}", count(unreadable, "file"));
    let lost: u64 = status.spaces.iter().map(|space| space.lost).sum();
    Some(of_files(match (lost, away.as_str()) {
        (0, "") => verdict(
            format!("{what}, as far as donors have told what they hold"),
            "look again in a moment; `potluck fsck` lists the files",
        ),
        (0, away) => verdict(
            format!("{what}; not there: {away}"),
            "bring these donors back; `potluck fsck` lists the files",
        ),
        (lost, _) => verdict(
            format!("{what}; of {} no donor has enough any more", count(lost, "file")),
            "`potluck fsck` lists them: store what is lost again from its source",
        ),
    }))
}

/// Returns the verdict that nothing more can be stored, but for small files, if no live donor has room for a chunk.
fn full(status: &PoolStatus) -> Option<Verdict> {
    let has_room = |donor: &DonorStatus| {
        let takes = donor.state == DonorState::Live && !donor.takes_nothing;
        takes && donor.room >= u64::from(DEFAULT_CHUNK)
    };
    let is_full = !status.donors.iter().any(has_room);
    is_full.then(|| {
        let what = match absent(status).as_str() {
            "" => "no donor has room for one more chunk, so that files cannot be stored".to_owned(),
            away => format!(
                "no donor that answers has room for one more chunk, so that files cannot be stored; not there: {away}"
            ),
        };
        new(PoolState::Unavailable, what, room_advice(&status.donors))
    })
}

fn degraded(status: &PoolStatus) -> Option<Verdict> {
    let verdict = |reason: String, advice: &str| Some(new(PoolState::Degraded, reason, advice));
    let repair = &status.repair;
    let incomplete: u64 = status.spaces.iter().map(|space| space.incomplete).sum();
    let files = count(incomplete, "file");
    if let Some(why) = repair.paused.as_ref().filter(|_| incomplete > 0 || left(repair) > 0) {
        let what =
            format!("{files} below policy, less safe than promised, and repair is paused: {why}");
        let paused = verdict(what, "`potluck repair resume` when that is as it should be");
        return paused.map(of_files);
    }
    if repair.stuck > 0 {
        let why = repair.stuck_why.as_deref().unwrap_or("no source, or nowhere to put them");
        let chunks = count(repair.stuck, "chunk");
        let what = match incomplete {
            0 => format!("{chunks} cannot be made on other donors now: {why}"),
            _ => {
                format!(
                    "{files} below policy, less safe than promised; {chunks} cannot be made now: {why}"
                )
            }
        };
        let stuck = verdict(what, &unstick(status));
        return if incomplete == 0 { stuck } else { stuck.map(of_files) };
    }
    if incomplete > 0 {
        let spaces = named(&status.spaces, |space| space.incomplete > 0);
        let eta = match repair.eta_seconds {
            Some(0) => "; what repair made is being looked at".into(),
            Some(seconds) => format!("; repair needs about {}", duration(seconds)),
            None => String::new(),
        };
        return verdict(
            format!("{files} in {spaces} below policy, less safe than promised{eta}"),
            "nothing to do while repair goes on: `potluck repair status`",
        )
        .map(of_files);
    }
    let stuck = status.alarms.iter().find(|alarm| alarm.kind == AlarmKind::PolicyStuck);
    if let Some(stuck) = stuck {
        return verdict(stuck.what.clone(), &stuck.advice);
    }
    if let Some(metadata) = status.metadata.as_ref().filter(|at| at.unreadable + at.incomplete > 0)
    {
        let files = count(metadata.unreadable + metadata.incomplete, "file");
        return verdict(
            format!("the pool's own metadata lacks copies: {files}"),
            "nothing to do: repair makes them again, or the next backup does",
        );
    }
    if let Some(what) = fewer_may_go(status).filter(|_| !only_as_announced(status)) {
        return verdict(what, &wait_no_longer(status)).map(of_files);
    }
    if let Some(alarm) = status.alarms.iter().find(|alarm| alarm.kind.degrades()) {
        return verdict(alarm.what.clone(), &alarm.advice);
    }
    None
}

/// Says in which spaces fewer donors may go now than is promised. If the loss of one more makes files unreadable, only
/// the spaces of these files are named: others tolerate more.
fn fewer_may_go(status: &PoolStatus) -> Option<String> {
    // Even live donors may be of no use, in quarantine or without their disk.
    let while_so = match absent(status).as_str() {
        "" => "as the donors stand now".to_owned(),
        names if only_as_announced(status) => {
            format!("while {names} stays away as announced")
        }
        names => format!("while {names} cannot be reached"),
    };
    let spaces = |which: fn(&SpaceHealth) -> bool| {
        Some(named(&status.spaces, which)).filter(|names| !names.is_empty())
    };
    let none = spaces(|space| space.silent && space.tolerates_now == Some(0));
    if let Some(none) = none {
        return Some(format!("{while_so}, one more makes files in {none} unreadable"));
    }
    let fewer = spaces(|space| space.silent)?;
    Some(format!("{while_so}, fewer others may go than is promised in {fewer}"))
}

/// Advises what to do when chunks cannot be made: a give-back may be in the way.
fn unstick(status: &PoolStatus) -> String {
    let gives = |donor: &&DonorStatus| donor.giving_back.as_ref().is_some_and(|back| !back.done);
    match status.donors.iter().find(gives) {
        None => "bring back donors that do not answer, or lend more with `potluck lend`".into(),
        Some(donor) => format!(
            "lend more with `potluck lend`, or have {0} lend again: `potluck drain {0} --cancel`",
            donor.name
        ),
    }
}

/// Returns the number of chunks that repair is to make.
fn left(repair: &RepairState) -> u64 {
    repair.queued.iter().sum::<u64>() + repair.under_way
}

/// Lists the names of spaces. Those that the reader may not know of, whose names are empty, are listed as "spaces of
/// others".
fn named(spaces: &[SpaceHealth], which: impl Fn(&SpaceHealth) -> bool) -> String {
    let names = spaces.iter().filter(|space| which(space)).map(|space| space.name.as_str());
    let (hidden, mut names): (Vec<_>, Vec<_>) = names.partition(|name| name.is_empty());
    if !hidden.is_empty() {
        names.push("spaces of others");
    }
    names.join(", ")
}

/// Says what becomes of the chunks that silent donors have, and what to do to have that at once: an announced absence
/// has to be ended first.
fn wait_no_longer(status: &PoolStatus) -> String {
    // Only its owner ends a pause.
    let announced =
        missed(status).filter(|donor| donor.away_seconds.is_some() && donor.mode != LendMode::Off);
    let ends: Vec<_> =
        announced.map(|donor| format!("`potluck nodes away {} --end`", donor.name)).collect();
    match ends.as_slice() {
        [] => "nothing is lost: what they have is made again elsewhere when their grace is over, or at once by `potluck repair now`".into(),
        ends => format!(
            "nothing is lost: what they have is made again elsewhere when their grace and announced absences are over, or at once by {}, then `potluck repair now`",
            ends.join(", ")
        ),
    }
}

/// Returns the donors that are not live and hold chunks. A donor that holds nothing makes no file unreadable.
fn missed(status: &PoolStatus) -> impl Iterator<Item = &DonorStatus> {
    status.donors.iter().filter(|donor| donor.state != DonorState::Live && donor.chunks > 0)
}

/// Returns whether donors are missed, and each of them announced its absence. Nobody has to be called for that, as long
/// as every file has what its policy asks for.
fn only_as_announced(status: &PoolStatus) -> bool {
    let mut missed = missed(status).peekable();
    missed.peek().is_some() && missed.all(|donor| donor.state == DonorState::Away)
}

/// Lists the names of the donors that are not live and hold chunks.
fn absent(status: &PoolStatus) -> String {
    missed(status).map(|donor| donor.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alarms::repair_rests;
    use potluck_core::ids::DonorId;
    use potluck_wire::control::Alarm;
    use std::collections::BTreeSet;

    fn judged(status: &PoolStatus) -> Verdict {
        judge(status, None)
    }

    fn pool(states: &[DonorState], space: SpaceHealth) -> PoolStatus {
        let donors = states.iter().enumerate().map(|(number, state)| DonorStatus {
            name: format!("donor-{}", number + 1),
            state: *state,
            chunks: 1,
            room: 1 << 40,
            ..DonorStatus::default()
        });
        PoolStatus {
            files: 3,
            donors: donors.collect(),
            spaces: vec![SpaceHealth { name: "lab".into(), files: 3, scanned: true, ..space }],
            ..PoolStatus::default()
        }
    }

    #[test]
    fn a_pool_in_which_nothing_more_can_be_stored_is_not_healthy() {
        let mut status = pool(&[DonorState::Live, DonorState::Dead], SpaceHealth::default());
        assert_ne!(judged(&status).state, PoolState::Unavailable);
        status.donors[0].room = 1 << 20;
        let full = judged(&status);
        assert_eq!(full.state, PoolState::Unavailable, "{full:?}");
        assert!(full.reason.contains("no donor that answers has room"), "{full:?}");
        status.donors[1].state = DonorState::Live;
        assert_ne!(judged(&status).state, PoolState::Unavailable);
        status.donors[1].takes_nothing = true;
        assert!(judged(&status).reason.starts_with("no donor has room for one more chunk"));
    }

    #[test]
    fn the_worst_is_said_first_with_what_to_do() {
        use DonorState::{Dead, Live, Suspect};
        let well = pool(&[Live, Suspect], SpaceHealth::default());
        assert_eq!(judged(&well).reason, "every file is as safe as promised");

        let silent = SpaceHealth { tolerates_now: Some(0), silent: true, ..SpaceHealth::default() };
        let mut silent_pool = pool(&[Live, Suspect], silent);
        let silent = judged(&silent_pool);
        assert!(silent.advice.ends_with("or at once by `potluck repair now`"), "{silent:?}");
        silent_pool.donors[1].away_seconds = Some(3600);
        let announced = judged(&silent_pool).advice;
        let works = "at once by `potluck nodes away donor-2 --end`, then `potluck repair now`";
        assert!(announced.ends_with(works), "{announced}");
        assert_eq!(silent.state, PoolState::Degraded);
        assert_eq!(
            silent.reason,
            "while donor-2 cannot be reached, one more makes files in lab unreadable"
        );

        let nobody = pool(&[Live, Live], SpaceHealth { ..silent_pool.spaces[0].clone() });
        let reason = judged(&nobody).reason;
        assert_eq!(reason, "as the donors stand now, one more makes files in lab unreadable");

        let mut worse =
            pool(&[Live, Dead], SpaceHealth { incomplete: 2, ..SpaceHealth::default() });
        worse.repair = RepairState { eta_seconds: Some(90), ..RepairState::default() };
        let verdict = judged(&worse);
        assert_eq!(verdict.state, PoolState::Degraded);
        assert_eq!(
            verdict.reason,
            "2 files in lab below policy, less safe than promised; repair needs about 1m 30s"
        );

        worse.repair.paused = Some("an admin said so".into());
        assert!(judged(&worse).advice.contains("repair resume"), "{:?}", judged(&worse));

        let disk = Alarm::new(AlarmKind::CatalogDisk, "no room", "make some");
        let full = PoolStatus { alarms: vec![disk], ..worse.clone() };
        let unwritable = judged(&full);
        let said = (unwritable.state, unwritable.reason.as_str());
        assert_eq!(said, (PoolState::Unavailable, "no room"), "nothing is made again either");

        worse.spaces[0].unreadable = 1;
        let verdict = judged(&worse);
        assert_eq!(verdict.state, PoolState::Unavailable);
        assert_eq!(verdict.reason, "1 file cannot be read now, in lab; not there: donor-2");
        assert!(!verdict.advice.contains("source"), "{verdict:?}");
        worse.donors[0] = DonorStatus { state: Dead, chunks: 0, ..worse.donors[0].clone() };
        worse.donors.push(DonorStatus { state: Live, ..DonorStatus::default() });
        assert!(judged(&worse).reason.ends_with("not there: donor-2"), "{:?}", judged(&worse));
        worse.donors[1].state = Live;
        assert!(!judged(&worse).advice.contains("source"), "{:?}", judged(&worse));
        worse.spaces[0].lost = 1;
        assert!(judged(&worse).advice.contains("source"), "{:?}", judged(&worse));

        let dead = pool(&[Dead, Dead], SpaceHealth::default());
        assert_eq!(judged(&dead).reason, "none of the 2 donors answers");
        assert_eq!(judged(&PoolStatus::default()).state, PoolState::Unavailable);
    }

    #[test]
    fn an_announced_absence_is_no_page_as_long_as_the_policy_holds() {
        use DonorState::{Away, Live, Silent};
        let silent = SpaceHealth { tolerates_now: Some(0), silent: true, ..SpaceHealth::default() };
        let mut away = pool(&[Live, Away], silent);
        let verdict = judged(&away);
        let said = "every file is as safe as promised; while donor-2 stays away as announced, one more makes files in lab unreadable";
        assert_eq!((verdict.state, verdict.reason.as_str()), (PoolState::Healthy, said));
        let gone = Unseen::Silent(BTreeSet::from([DonorId(0)]));
        assert_eq!(judge(&away, Some(&gone)).state, PoolState::NotKnown, "for a moment");
        away.spaces[0].incomplete = 1;
        assert_eq!(judged(&away).state, PoolState::Degraded, "the policy does not hold");
        away.spaces[0] = SpaceHealth { incomplete: 0, unreadable: 1, ..away.spaces[0].clone() };
        assert_eq!(judged(&away).state, PoolState::Unavailable);
        away.spaces[0].unreadable = 0;
        away.donors.push(DonorStatus { state: Silent, ..away.donors[1].clone() });
        assert_eq!(judged(&away).state, PoolState::Degraded, "nobody announced that");
    }

    #[test]
    fn verdict_names_the_least_safe_space_only() {
        let silent = |name: &str, tolerates_now| SpaceHealth {
            name: name.into(),
            files: 3,
            scanned: true,
            silent: true,
            tolerates_now: Some(tolerates_now),
            ..SpaceHealth::default()
        };
        let mut status = pool(&[DonorState::Live, DonorState::Silent], silent("ec", 1));
        status.spaces = vec![silent("ec", 1), silent("two", 0)];
        let named = judged(&status).reason;
        assert_eq!(
            named,
            "while donor-2 cannot be reached, one more makes files in two unreadable"
        );
        status.spaces = vec![silent("ec", 1), silent("more", 2)];
        let named = judged(&status).reason;
        assert_eq!(
            named,
            "while donor-2 cannot be reached, fewer others may go than is promised in ec, more"
        );
    }

    #[test]
    fn a_change_of_policy_that_is_stuck_is_not_called_lost_safety() {
        let mut status = pool(&[DonorState::Live], SpaceHealth::default());
        let why = Some("no donor has room for them".into());
        status.repair = RepairState {
            changing: 3,
            changing_stuck: 7,
            changing_stuck_why: why,
            ..RepairState::default()
        };
        status.alarms.extend(repair_rests(&status.repair));
        let verdict = judged(&status);
        assert!(!verdict.reason.contains("less safe"), "{verdict:?}");
        assert!(verdict.reason.contains("change of policy is stuck, with 3 files"), "{verdict:?}");
        assert!(verdict.advice.contains("policy set"), "{verdict:?}");
    }

    #[test]
    fn verdict_is_not_healthy_while_an_alarm_needs_attention() {
        let mut status = pool(&[DonorState::Live], SpaceHealth::default());
        let lost = Alarm::new(AlarmKind::DonorBadCopies, "it lost chunks", "look at its disk");
        status.alarms.push(lost);
        assert_eq!(judged(&status).state, PoolState::Healthy, "they are there again");
        let one = AlarmKind::DonorUnreachedFromOnePlace;
        status.alarms.push(Alarm::new(one, "ada does not reach it", "look for a firewall"));
        assert_eq!(judged(&status).state, PoolState::Healthy, "one member's word");
        let some = AlarmKind::DonorUnreachedBySome;
        status.alarms.push(Alarm::new(some, "ada and bo do not reach it", "look for a firewall"));
        assert_eq!(judged(&status).state, PoolState::Degraded);
        status.alarms.pop();
        let backup = Alarm::new(AlarmKind::Backup, "no backup for a day", "look at the disk");
        status.alarms.push(backup);
        let verdict = judged(&status);
        assert_eq!(
            (verdict.reason.as_str(), verdict.advice.as_str()),
            ("no backup for a day", "look at the disk")
        );
    }

    #[test]
    fn verdict_is_not_healthy_before_the_first_scan() {
        let mut status = pool(&[DonorState::Live, DonorState::Suspect], SpaceHealth::default());
        for (number, donor) in (1..).zip(&mut status.donors) {
            donor.donor = DonorId(number);
        }
        let started = judge(&status, Some(&Unseen::All));
        assert_eq!(started.state, PoolState::NotKnown);
        assert!(started.reason.contains("just started"), "{started:?}");
        let silent = Unseen::Silent(BTreeSet::from([DonorId(2)]));
        let verdict = judge(&status, Some(&silent));
        assert_eq!((verdict.state, verdict.of_files), (PoolState::Degraded, true));
        assert!(verdict.reason.starts_with("donor-2 is not heard"), "{verdict:?}");
        status.donors[1].chunks = 0;
        assert_eq!(judge(&status, Some(&silent)).state, PoolState::Healthy, "nobody misses it");
        assert_eq!(
            judge(&status, Some(&Unseen::Worse("a copy is bad"))).state,
            PoolState::NotKnown
        );
        status.alarms.push(Alarm::new(AlarmKind::Backup, "no backup for a day", ""));
        assert_eq!(judge(&status, Some(&Unseen::All)).state, PoolState::Degraded, "known is worse");
        let empty = PoolStatus { files: 0, alarms: Vec::new(), ..status };
        assert_eq!(judge(&empty, Some(&Unseen::All)).state, PoolState::Healthy);
    }
}
