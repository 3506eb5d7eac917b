//! The pool at one moment.

use super::Answer;
use super::held_up::all_seen;
use super::repair::with_changes;
use crate::callers::Caller;
use crate::catalog::stats::Stats;
use crate::catalog::{Error, journal};
use crate::give_back;
use crate::repair::Unseen;
use crate::service::Service;
use crate::verdict;
use potluck_core::size::count;
use potluck_pool::Pool;
use potluck_pool::redundancy::Damaged;
use potluck_wire::addresses::{Address, DONOR_PORT};
use potluck_wire::control::{
    Check, DonorState, DonorStatus, MetadataHealth, PoolStatus, RepairState, SpaceHealth,
    SpaceInfo, Status, Verdict,
};
use potluck_wire::error::Failure;
use potluck_wire::version;
use std::sync::Arc;

/// The pool now, for the manager's own metrics.
pub async fn pool_status(service: &Arc<Service>) -> Result<PoolStatus, Failure> {
    let peer = std::net::Ipv4Addr::LOCALHOST.into();
    Status {}.answer(Arc::clone(service), Caller { who: None, peer, connection: 0 }).await
}

impl Answer for Status {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<PoolStatus, Failure> {
        let stats = service.stats.get(&service.catalog, &service.time).await?;
        let now = service.time.tick();
        let held = service.gc_held();
        let policies = service.catalog.spaces().await?;
        let waiting = service.catalog.read(journal::waiting).await?;
        let mut donors = donors(&service, &stats);
        for donor in &mut donors {
            let unreached_by = service.pool().unreached_by(donor.donor, now);
            donor.unreached_by = service.members.names(&unreached_by);
            let giving = service.pool().giving(donor.donor).is_some();
            if giving {
                donor.giving_back = Some(give_back::progress(&service, donor.donor).await?);
            }
        }
        let disks = donors.iter().filter_map(disk_alarm);
        let machines: Vec<String> = disks
            .chain(donors.iter().filter_map(unreached))
            .chain(donors.iter().filter_map(unreached_by_some))
            .chain(donors.iter().filter_map(settings_alarm))
            .collect();
        let fault = service.catalog.disk_fault().map(|why| unwritable(&service, &why));
        // What cannot be written for that reason is no fault of donors.
        let others = |failed: Option<String>| failed.filter(|_| fault.is_none());
        let awaited = awaited(&service, &donors);
        let mut pool = service.pool();
        let repair = with_changes(pool.repair_state(now), awaited, &stats);
        let (interrupted_uploads, interrupted_bytes) = pool.parked();
        let mut status = PoolStatus {
            verdict: Verdict::default(),
            pool: service.pool_name.clone(),
            version: version::PRODUCT.into(),
            epoch: service.epoch(),
            uptime_seconds: service.time.uptime().as_secs(),
            sessions: pool.open_sessions() as u64,
            interrupted_uploads,
            interrupted_bytes,
            files: stats.files,
            bytes: stats.bytes,
            condemned_chunks: stats.condemned,
            donors,
            spaces: verdicts(&service, policies),
            alarms: [
                fault.iter().cloned().collect(),
                service.signpost.alarm().into_iter().collect(),
                unseen(&service),
                own_settings_alarm(&service).into_iter().collect(),
                machines,
                alarms(held.as_deref(), others(service.backups.failed()).as_deref()),
                others(service.backups.journal_failed()).map(unjournalled).into_iter().collect(),
                troubles(&pool, &repair),
            ]
            .concat(),
            repair,
            backup_file_seconds: service.backups.file_seconds(now),
            backup_pool_seconds: service.backups.pool_seconds(now),
            metadata: metadata(&service),
            journal_waiting: (service.config().metadata_copies > 0).then_some(waiting),
            gc_held: held,
            catalog_fault: fault,
        };
        drop(pool);
        if status.spaces.iter().any(|space| !space.surveyed && space.files > 0) {
            service.keeper.look_again(now); // somebody wants to know
        }
        status.verdict = verdict::judge(&status, unseen_now(&service, &status.donors).as_ref());
        Ok(status)
    }
}

impl Answer for Check {
    async fn answer(self, service: Arc<Service>, caller: Caller) -> Result<Verdict, Failure> {
        all_seen(&service).await;
        Ok(Status {}.answer(service, caller).await?.verdict)
    }
}

/// Every donor, with what the catalog counts there.
pub(super) fn donors(service: &Service, stats: &Stats) -> Vec<DonorStatus> {
    let mut donors = service.pool().status(service.time.tick());
    for donor in &mut donors {
        let copies = stats.donors.get(&donor.donor).copied().unwrap_or_default();
        (donor.chunks, donor.bad) = (copies.here, copies.bad);
    }
    donors
}

/// What the last survey does not know by now.
fn unseen_now(service: &Service, donors: &[DonorStatus]) -> Option<Unseen> {
    let mut unheard = service.pool().standings(service.time.tick()).unheard();
    // Who holds nothing is missed by no file.
    unheard.retain(|id| donors.iter().any(|donor| donor.donor == *id && donor.chunks > 0));
    service.keeper.unseen(&unheard)
}

/// A state of repair that says nothing but what it waits for though nothing is to be made yet, as far as
/// anybody knows. Look at it first and at what is to be made then: a survey that ends in between has
/// handed out what it found.
pub(super) fn awaited(service: &Service, donors: &[DonorStatus]) -> RepairState {
    let unseen = unseen_now(service, donors);
    let fresh = service.keeper.not_seen_gone(donors);
    let looking = || {
        let is_due = service.keeper.is_looking() || service.pool().repairs.is_unseen();
        is_due.then(|| "something was made or changed just now".to_owned())
    };
    let waiting = donors.iter().filter(|donor| donor.chunks > 0);
    let waiting = waiting.filter_map(|donor| Some((donor.given_up_seconds?, &donor.name)));
    RepairState {
        not_known: unseen
            .and_then(|unseen| verdict::unseen_why(donors, &unseen))
            .or(fresh)
            .or_else(looking),
        begins_seconds: waiting.clone().map(|(seconds, _)| seconds).min(),
        waits_for: waiting.map(|(_, name)| name.clone()).collect(),
        ..RepairState::default()
    }
}

/// How safe each space is, as of the last survey.
fn verdicts(service: &Service, spaces: Vec<SpaceInfo>) -> Vec<SpaceHealth> {
    let kept = service.keeper.kept();
    let health = |space: SpaceInfo| {
        let policy = Some(space.policy.redundancy());
        match kept.spaces.get(&space.name) {
            Some(found) => SpaceHealth { policy, files: space.files, ..found.clone() },
            None => SpaceHealth {
                name: space.name,
                policy,
                files: space.files,
                ..SpaceHealth::default()
            },
        }
    };
    spaces.into_iter().map(health).collect()
}

/// The pool's own metadata on donors, if any is to be there.
fn metadata(service: &Service) -> Option<MetadataHealth> {
    let kept = service.keeper.kept();
    let asked = service.config().metadata_copies > 0;
    (asked && kept.began.is_some()).then(|| kept.metadata.clone())
}

/// What surveys could not see.
fn unseen(service: &Service) -> Vec<String> {
    let kept = service.keeper.kept();
    let failed = kept.failed.as_ref().map(|why| {
        format!(
            "how safe files are could not be looked at, and nothing new is repaired: {why}. Look at \
             the manager's log and at the disk that holds its state directory"
        )
    });
    let Damaged { files, first } = &kept.damaged;
    let damaged = (*files > 0).then(|| {
        format!(
            "the catalog's records of {} are damaged, first {first}; `potluck fsck` lists \
             all. No copy in excess is deleted meanwhile. Stop the manager and bring its catalog \
             back with `potluck manager restore`",
            count(*files, "file")
        )
    });
    failed.into_iter().chain(damaged).collect()
}

/// A donor that nobody can reach.
fn unreached(donor: &DonorStatus) -> Option<String> {
    let why = donor.unreachable.as_ref().filter(|_| donor.state == DonorState::Live)?;
    let port = donor.addresses.first().map_or(DONOR_PORT, Address::port);
    Some(format!(
        "{} reports, and cannot be reached, so that nobody can store or read there: {why}. Open port \
         {port} (TCP) in the firewall of its machine, or say how others reach it with `potluck lend \
         --advertise HOST`",
        donor.name
    ))
}

/// A donor that some members cannot reach, and the manager can.
fn unreached_by_some(donor: &DonorStatus) -> Option<String> {
    let DonorStatus { name, addresses, unreached_by: members, .. } = donor;
    let (who, more) = members.split_at(members.len().min(3));
    let who = match (who, more.len()) {
        ([], _) => return None,
        (who, 0) => who.join(", "),
        (who, more) => format!("{} and {more} more", who.join(", ")),
    };
    let (count, port) = (
        count(members.len() as u64, "member"),
        addresses.first().map_or(DONOR_PORT, Address::port),
    );
    Some(format!(
        "{count} ({who}) said within the last five minutes that they cannot reach {name}, which the \
         manager reaches: tried at {addresses}. Look for a firewall on the way from their machines to \
         port {port} (TCP) there, or say how they reach it with `potluck lend --advertise HOST`"
    ))
}

/// What repair and the donors give to worry about.
fn troubles(pool: &Pool, repair: &RepairState) -> Vec<String> {
    let paused = repair.paused.iter().map(|why| format!("repair rests: {why}"));
    let quarantined = pool.quarantined().into_iter().map(|(donor, why)| {
        format!("donor {donor} is not trusted: {why}. After its machine was looked at: `potluck nodes trust`")
    });
    let stuck = (repair.stuck > 0).then(|| {
        let why = repair.stuck_why.as_deref().unwrap_or("no donor can take them");
        let chunks = count(repair.stuck, "chunk");
        format!("{chunks} cannot be repaired: {why}; `potluck fsck` lists the files")
    });
    let changing = (repair.changing_stuck > 0).then(|| {
        let why = repair.changing_stuck_why.as_deref().unwrap_or("no donor can take them");
        format!(
            "a change of policy is stuck: {why}. Its files keep what they have: lend more with \
             `potluck lend`, or set the policy back with `potluck policy set`"
        )
    });
    paused.chain(quarantined).chain(stuck).chain(changing).collect()
}

/// What the owner of a donor's disk should do about it.
fn disk_alarm(donor: &DonorStatus) -> Option<String> {
    let fault = donor.disk_fault.as_ref()?;
    let DonorStatus { name, .. } = donor;
    Some(match (fault.missing, donor.state) {
        (true, DonorState::Gone) => format!(
            "the disk that {name} lends is gone ({}), and what it held is made again elsewhere. \
             Mount it there and it counts again; if it is lost: `potluck nodes rm {name}`",
            fault.why
        ),
        (true, _) => format!(
            "the disk that {name} lends is gone ({}): its copies are not there. Mount it there, \
             and the donor goes on by itself; `potluck repair now` does not wait for it",
            fault.why
        ),
        (false, _) => format!(
            "the disk that {name} lends takes no writes ({}): it may be failing. Look at it, or \
             move what it holds to others: `potluck nodes drain {name}`",
            fault.why
        ),
    })
}

/// What an owner should do about a donor's settings.
fn settings_alarm(donor: &DonorStatus) -> Option<String> {
    let why = donor.settings_fault.as_ref()?;
    Some(bad_settings(&format!("the daemon of {}", donor.name), why))
}

fn own_settings_alarm(service: &Service) -> Option<String> {
    let why = service.settings_fault.lock().expect("no panic holds it");
    why.as_ref().map(|why| bad_settings("the manager", why))
}

fn bad_settings(whose: &str, why: &str) -> String {
    format!(
        "{whose} cannot use its settings as they are written: {why}. Mend that on its machine, and have it \
         read them again (kill -HUP, or systemctl reload)"
    )
}

/// What is wrong with the manager's own disk, and what to do.
fn unwritable(service: &Service, why: &Error) -> String {
    let place = service.state.root().display();
    let cure = match why {
        Error::DiskFull => format!("free space on the manager's disk, at {place}"),
        _ => format!("look at the manager's disk, at {place}"),
    };
    format!("the manager cannot write its catalog: {why}; {cure}")
}

fn unjournalled(why: String) -> String {
    format!("the journal on the donors is not written: {why}. Look at the donors and their room")
}

/// What somebody should look at, with what to do.
fn alarms(held: Option<&str>, backup: Option<&str>) -> Vec<String> {
    let held = held.map(|why| {
        format!("nothing is reclaimed: {why}. When all is where it should be: `potluck gc resume`")
    });
    let backup = backup.map(|why| {
        format!("the catalog is not checkpointed: {why}. Look at the disk of --backup-dir and at the donors")
    });
    backup.into_iter().chain(held).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::probe;
    use crate::catalog::{Durability, notes};
    use crate::repair::tests::still;

    async fn status(service: &Arc<Service>) -> PoolStatus {
        let anybody =
            Caller { who: None, peer: std::net::Ipv4Addr::LOCALHOST.into(), connection: 0 };
        Status {}.answer(Arc::clone(service), anybody).await.expect("reads work as ever")
    }

    /// The pages that the catalog may have, as if the disk had no more.
    async fn limit(service: &Service, pages: u32) {
        let set =
            move |db: &rusqlite::Connection| Ok(db.pragma_update(None, "max_page_count", pages)?);
        service.catalog.write(Durability::Process, set).await.expect("set");
    }

    async fn write(service: &Service, bytes: usize) -> Result<(), Error> {
        let set = move |db: &_| notes::set(db, "large", &"x".repeat(bytes));
        service.catalog.write(Durability::Disk, set).await
    }

    #[tokio::test]
    async fn a_full_disk_of_the_managers_own_is_said_until_it_takes_writes_again() {
        let (dir, service) = still().await;
        service.backups.journal(Some("no donor took it".into()));
        assert_eq!(status(&service).await.catalog_fault, None);
        limit(&service, 1).await; // no fewer than there are
        assert_eq!(write(&service, 1 << 20).await, Err(Error::DiskFull));
        assert_eq!(write(&service, 1).await, Ok(()), "a small one may fit");
        let full = status(&service).await;
        let fault = full.catalog_fault.expect("said");
        assert!(fault.starts_with("the manager cannot write its catalog: the disk"), "{fault}");
        let place = dir.path().join("state").display().to_string();
        assert!(fault.contains("free space") && fault.ends_with(&place), "{fault}");
        assert_eq!(full.alarms, [fault], "and no donor is blamed");

        // Something that cannot be overwritten: there is no room for a file either.
        std::fs::create_dir(dir.path().join("state/probe")).expect("made");
        probe(&service).await.expect("tried");
        assert!(status(&service).await.catalog_fault.is_some());
        std::fs::remove_dir(dir.path().join("state/probe")).expect("removed");
        limit(&service, u32::MAX - 1).await;
        probe(&service).await.expect("tried");
        let well = status(&service).await;
        assert_eq!(well.catalog_fault, None);
        assert_eq!(well.alarms.len(), 1, "the journal's own: {:?}", well.alarms);
        assert_eq!(write(&service, 1 << 20).await, Ok(()));
    }
}
