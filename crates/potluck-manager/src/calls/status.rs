//! The pool at one moment.

use super::Answer;
use crate::members::Caller;
use crate::service::Service;
use potluck_wire::control::{PoolStatus, Status};
use potluck_wire::error::Failure;
use potluck_wire::version;
use std::sync::Arc;

impl Answer for Status {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<PoolStatus, Failure> {
        let stats = service.stats.get(&service.catalog, &service.time).await?;
        let now = service.time.tick();
        let held = service.gc_held();
        let pool = service.pool();
        let mut donors = pool.status(now);
        for donor in &mut donors {
            let copies = stats.donors.get(&donor.donor).copied().unwrap_or_default();
            donor.chunks = copies.here;
            donor.bad = copies.bad;
        }
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
            alarms: alarms(held.as_deref(), service.backups.failed().as_deref()),
            backup_file_seconds: service.backups.file_seconds(now),
            backup_pool_seconds: service.backups.pool_seconds(now),
            gc_held: held,
            ..PoolStatus::default()
        })
    }
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
