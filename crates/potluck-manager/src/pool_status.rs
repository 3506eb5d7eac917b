//! The pool at one moment, as `status`, verdicts and metrics show it.

use crate::alarms;
use crate::give_back;
use crate::scan_state::Unseen;
use crate::service::Service;
use crate::verdict;
use potluck_catalog::Error;
use potluck_catalog::log_position::Copy;
use potluck_catalog::stats::Stats;
use potluck_wire::control::{
    DonorStatus, MetadataHealth, PoolStatus, RepairState, SpaceHealth, SpaceInfo, Verdict,
};
use potluck_wire::version;

/// The pool now.
pub async fn pool_status(service: &Service) -> Result<PoolStatus, Error> {
    let stats = service.stats.get(&service.catalog, &service.time).await?;
    let now = service.time.tick();
    let policies = service.catalog.spaces().await?;
    let waiting = service.catalog.log_waiting(Copy::OnDonors).await?;
    let mut donors = donors(service, &stats);
    for donor in &mut donors {
        let unreached_by = service.pool().unreached_by(donor.donor, now);
        donor.unreached_by = service.members.names(&unreached_by);
        let giving = service.pool().giving(donor.donor).is_some();
        if giving {
            donor.giving_back = Some(give_back::progress(service, donor.donor).await?);
        }
    }
    let awaited = awaited(service, &donors);
    let (repair, sessions, parked) = {
        let mut pool = service.pool();
        (pool.repair_state(now), pool.open_sessions() as u64, pool.parked())
    };
    let repair = with_changes(repair, awaited, &stats);
    let (interrupted_uploads, interrupted_bytes) = parked;
    let mut status = PoolStatus {
        verdict: Verdict::default(),
        pool: service.pool_name.clone(),
        version: version::PRODUCT.into(),
        epoch: service.epoch(),
        uptime_seconds: service.time.uptime().as_secs(),
        sessions,
        interrupted_uploads,
        interrupted_bytes,
        files: stats.files,
        bytes: stats.bytes,
        condemned_chunks: stats.condemned,
        spaces: verdicts(service, policies),
        alarms: alarms::all(service, &donors, &repair),
        donors,
        repair,
        backup_file_seconds: service.log.file.seconds(now),
        backup_pool_seconds: service.log.donors.seconds(now),
        metadata: metadata(service),
        log_waiting: (service.config().metadata_copies > 0).then_some(waiting),
        gc_frozen: service.gc_frozen(),
    };
    if status.spaces.iter().any(|space| !space.scanned && space.files > 0) {
        service.scan_state.look_again(now); // somebody wants to know
    }
    status.verdict = verdict::judge(&status, unseen_now(service, &status.donors).as_ref());
    Ok(status)
}

/// Every donor, with what the catalog counts there.
fn donors(service: &Service, stats: &Stats) -> Vec<DonorStatus> {
    let mut donors = service.pool().status(service.time.tick());
    for donor in &mut donors {
        let copies = stats.donors.get(&donor.donor).copied().unwrap_or_default();
        (donor.chunks, donor.bad) = (copies.here, copies.bad);
    }
    donors
}

/// Returns what the last scan does not know by now.
fn unseen_now(service: &Service, donors: &[DonorStatus]) -> Option<Unseen> {
    let mut unheard = service.pool().view(service.time.tick()).unheard();
    // Who holds nothing is missed by no file.
    unheard.retain(|id| donors.iter().any(|donor| donor.donor == *id && donor.chunks > 0));
    service.scan_state.unseen(&unheard)
}

/// A state of repair that says nothing but what it waits for though nothing is to be made yet, as far as
/// anybody knows. Look at it first and at what is to be made then: a scan that ends in between has
/// handed out what it found.
fn awaited(service: &Service, donors: &[DonorStatus]) -> RepairState {
    let unseen = unseen_now(service, donors);
    let fresh = service.scan_state.not_seen_gone(donors);
    let looking = || {
        let is_due = service.scan_state.is_looking() || service.pool().repairs.is_unseen();
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

/// The state of repair as those are told who ask for it alone.
pub fn repair_state(service: &Service, state: RepairState, stats: &Stats) -> RepairState {
    with_changes(state, awaited(service, &donors(service, stats)), stats)
}

/// The state with what it waits for, and with the files whose redundancy is being changed.
fn with_changes(state: RepairState, awaited: RepairState, stats: &Stats) -> RepairState {
    let Stats { changing, changing_bytes, .. } = *stats;
    let RepairState { not_known, begins_seconds, waits_for, .. } = awaited;
    RepairState { changing, changing_bytes, not_known, begins_seconds, waits_for, ..state }
}

/// How safe each space is, as of the last scan.
fn verdicts(service: &Service, spaces: Vec<SpaceInfo>) -> Vec<SpaceHealth> {
    let kept = service.scan_state.kept();
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
    let kept = service.scan_state.kept();
    let asked = service.config().metadata_copies > 0;
    (asked && kept.began.is_some()).then(|| kept.metadata.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::probe;
    use crate::repair::tests::still;
    use potluck_catalog::Error;
    use potluck_wire::control::AlarmKind;

    async fn status(service: &Service) -> PoolStatus {
        pool_status(service).await.expect("reads work as ever")
    }

    async fn write(service: &Service, bytes: usize) -> Result<(), Error> {
        service.catalog.pause_repair(Some("x".repeat(bytes))).await
    }

    #[tokio::test]
    async fn a_full_disk_of_the_managers_own_is_said_until_it_takes_writes_again() {
        let (dir, service) = still().await;
        service.log.donors.failing("no donor took it".into());
        let disk = |status: &PoolStatus| {
            let first = status.alarms.first().filter(|alarm| alarm.kind == AlarmKind::CatalogDisk);
            first.cloned()
        };
        assert_eq!(disk(&status(&service).await), None);
        service.catalog.limit_pages(1).await.expect("set"); // no fewer than there are
        assert_eq!(write(&service, 1 << 20).await, Err(Error::DiskFull));
        assert_eq!(write(&service, 1).await, Ok(()), "a small one may fit");
        let full = status(&service).await;
        let fault = disk(&full).expect("said");
        assert!(
            fault.what.starts_with("the manager cannot write its catalog: the disk"),
            "{fault}"
        );
        let place = dir.path().join("state").display().to_string();
        assert!(fault.advice.contains("free space") && fault.advice.ends_with(&place), "{fault}");
        assert_eq!(full.alarms, [fault], "and no donor is blamed");

        // Something that cannot be overwritten: there is no room for a file either.
        std::fs::create_dir(dir.path().join("state/probe")).expect("made");
        probe(&service).await.expect("tried");
        assert!(disk(&status(&service).await).is_some());
        std::fs::remove_dir(dir.path().join("state/probe")).expect("removed");
        service.catalog.limit_pages(u32::MAX - 1).await.expect("set");
        probe(&service).await.expect("tried");
        let well = status(&service).await;
        assert_eq!(disk(&well), None);
        assert_eq!(well.alarms.len(), 1, "the log's own: {:?}", well.alarms);
        assert_eq!(write(&service, 1 << 20).await, Ok(()));
    }
}
