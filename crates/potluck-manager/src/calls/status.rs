//! The pool at one moment.

use super::Answer;
use super::repair::with_changes;
use crate::catalog::{journal, spaces};
use crate::give_back;
use crate::members::Caller;
use crate::pool::Pool;
use crate::service::Service;
use crate::survey::Damaged;
use potluck_wire::control::{
    DonorState, DonorStatus, PoolStatus, RepairState, SpaceHealth, SpaceInfo, Status,
};
use potluck_wire::error::Failure;
use potluck_wire::version;
use std::sync::Arc;

impl Answer for Status {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<PoolStatus, Failure> {
        let stats = service.stats.get(&service.catalog, &service.time).await?;
        let now = service.time.tick();
        let held = service.gc_held();
        let policies = service.catalog.read(spaces::all).await?;
        let waiting = service.catalog.read(journal::waiting).await?;
        let mut donors = service.pool().status(now);
        for donor in &mut donors {
            let copies = stats.donors.get(&donor.donor).copied().unwrap_or_default();
            donor.chunks = copies.here;
            donor.bad = copies.bad;
            let giving = service.pool().giving(donor.donor).is_some();
            if giving {
                donor.giving_back = Some(give_back::progress(&service, donor.donor).await?);
            }
        }
        let disks: Vec<String> = donors.iter().filter_map(disk_alarm).collect();
        let mut pool = service.pool();
        let repair = with_changes(pool.repair_state(now), &stats);
        Ok(PoolStatus {
            pool: service.pool_name.clone(),
            version: version::PRODUCT.into(),
            epoch: service.epoch(),
            uptime_seconds: service.time.uptime().as_secs(),
            sessions: pool.open_sessions() as u64,
            files: stats.files,
            bytes: stats.bytes,
            condemned_chunks: stats.condemned,
            donors,
            spaces: verdicts(&service, policies),
            alarms: [
                unseen(&service),
                disks,
                alarms(held.as_deref(), service.backups.failed().as_deref()),
                service.backups.journal_failed().map(unjournalled).into_iter().collect(),
                troubles(&pool, &repair),
            ]
            .concat(),
            repair,
            backup_file_seconds: service.backups.file_seconds(now),
            backup_pool_seconds: service.backups.pool_seconds(now),
            journal_waiting: (service.config.metadata_copies > 0).then_some(waiting),
            gc_held: held,
        })
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
            "the catalog's records of {files} files are damaged, first {first}; `potluck fsck` lists \
             all. No copy in excess is deleted meanwhile. Stop the manager and bring its catalog \
             back with `potluck manager restore`"
        )
    });
    failed.into_iter().chain(damaged).collect()
}

/// What repair and the donors give to worry about.
fn troubles(pool: &Pool, repair: &RepairState) -> Vec<String> {
    let paused = repair.paused.iter().map(|why| format!("repair rests: {why}"));
    let quarantined = pool.quarantined().into_iter().map(|(donor, why)| {
        format!("donor {donor} is not trusted: {why}. After its machine was looked at: `potluck nodes trust`")
    });
    let stuck = (repair.stuck > 0).then(|| {
        let why = repair.stuck_why.as_deref().unwrap_or("no donor can take them");
        format!("{} chunks cannot be repaired: {why}; `potluck fsck` lists the files", repair.stuck)
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
    Some(match (fault.gone, donor.state) {
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
