//! Repair: the loops that run scans, hand out the chunks to be made, and audit donors. The decisions are made in core's
//! `repair_plan` and in [`potluck_pool`]; this file waits and applies their results.

use crate::applying_task_results::ApplyingTaskResults;
use crate::converting::Conversions;
use crate::handles::handles;
use crate::inquiries::Inquiries;
use crate::log_copies::adapting::Adapting;
use crate::outcomes::Outcomes;
use crate::pool_time::PoolTime;
use crate::scan::Scan;
use crate::scan_state::{Priority, ScanScope, ScanState};
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::tasks::audit::Audit;
use crate::ticket_issuer::TicketIssuer;
use crate::trim::Trim;
use crate::trim::Trimmed;
use potluck_catalog::{Catalog, Computed, Error};
use potluck_core::clock::Tick;
use potluck_pool::DonorChanges;
use potluck_pool::redundancy::{Damaged, Findings};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

handles! {
    /// The handles for repair.
    pub struct Repair {
        settings: Arc<Settings>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        scan_state: Arc<ScanState>,
        tickets: TicketIssuer,
        results: ApplyingTaskResults,
        scan: Scan,
        trim: Trim,
        conversions: Conversions,
        metadata: Adapting,
        audit: Audit,
        inquiries: Inquiries,
    }
}

/// The time between two rounds that look at the donors' states and hand out the repair work that waits, and between two
/// looks whether a scan is due.
const EVERY: Duration = Duration::from_millis(250);

impl Repair {
    /// Hands out repair work, runs scans, audits and inquiries until it is dropped.
    pub async fn run(self) {
        tokio::join!(self.hand_out(), self.look(), self.audit.run(), self.inquiries.run());
    }

    /// Notes every [`EVERY`] which donors left or came back, and hands out the repair work that waits.
    async fn hand_out(&self) {
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut outcomes = Outcomes::default();
        let mut circuit_breaker = self.pool.lock().circuit_breaker();
        loop {
            interval.tick().await;
            let now = self.time.tick();
            let changes = self.pool.lock().pass_time(now);
            if changes != DonorChanges::default() {
                self.scan_state.changed(now);
            }
            let (after, paused, more) = {
                let mut pool = self.pool.lock();
                pool.hand_out(now, &|contact| self.tickets.source(contact));
                (pool.circuit_breaker(), pool.repairs.paused.clone(), pool.repairs.wants_more())
            };
            if more {
                self.scan_state.changed(now);
            }
            if after != circuit_breaker {
                circuit_breaker = after;
                let noted = self.catalog.note_repair(paused, circuit_breaker.clone()).await;
                outcomes.note("noting the donors that went at once", noted);
            }
        }
    }

    /// Runs a scan whenever one is due.
    async fn look(&self) {
        let mut outcomes = Outcomes::default();
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if let Some(priority) = self.due() {
                outcomes.note("looking at everything", self.look_once(priority).await);
            }
        }
    }

    /// Returns the priority of the scan that is due; `None` where none is.
    fn due(&self) -> Option<Priority> {
        let now = self.time.tick();
        // A copy in excess may stay though its deletion was ordered: a later put makes the order void, and nothing but
        // another scan orders it again.
        let may_trim = !self.trim.is_frozen() && self.scan_state.kept().damaged.files == 0;
        let (stuck, assembled) = {
            let pool = self.pool.lock();
            let trims = may_trim && pool.repairs.has_excess();
            (pool.repairs.is_stuck() || trims, pool.assembled(now))
        };
        let assembling = (!assembled).then(|| self.time.uptime());
        self.scan_state.due(now, &self.settings.get(), stuck, assembling)
    }

    /// Runs one scan and all that follows from it.
    async fn look_once(&self, priority: Priority) -> Result<(), Error> {
        let began = self.time.tick();
        let every = self.settings.get().scan_every;
        let (due, scope) = self.scan_state.kept().begin(began, priority, every);
        let ended = self.look_at(scope, priority, began).await;
        let mut kept = self.scan_state.kept();
        kept.took = self.time.tick().saturating_sub(began);
        kept.looking = false;
        match &ended {
            Ok(true) => kept.failed = None,
            Ok(false) => kept.give_up(due),
            Err(why) => {
                kept.give_up(due);
                kept.failed = Some(why.to_string());
            }
        }
        ended.map(drop)
    }

    /// Runs one scan and applies its findings. Returns whether the scan was completed.
    async fn look_at(
        &self,
        scope: ScanScope,
        priority: Priority,
        began: Tick,
    ) -> Result<bool, Error> {
        let Some((mut findings, walked)) = self.scan.run(scope, priority).await? else {
            return Ok(false);
        };
        let now = self.time.tick();
        let kept_back = !findings.keep.is_empty();
        let awaited = {
            let mut pool = self.pool.lock();
            pool.repairs.take_findings(&mut findings, began, now);
            for (donor, chunk) in &findings.keep {
                pool.stay(*donor, *chunk, now);
            }
            // Jobs are handed out now: those that nobody can take are known before anybody is told how long
            // repair needs.
            pool.hand_out(now, &|contact| self.tickets.source(contact));
            pool.repairs.encodings.awaited()
        };
        let abandoned = {
            let mut kept = self.scan_state.kept();
            let walk = walked.then(|| self.time.tick().saturating_sub(began));
            kept.take(&mut findings, began, walk);
            kept.abandoned(&awaited)
        };
        self.results.learn(abandoned.into_iter().map(Computed::Doubtful).collect()).await?;
        let arrived = self.conclude(&mut findings).await?;
        let adapted = self.metadata.adapt(&findings.metadata).await?;
        let excess = std::mem::take(&mut findings.excess);
        let trimmed = if findings.damaged.files == 0 {
            self.trim.run(excess).await?
        } else {
            // Which copies the damaged files need is unknown.
            let Damaged { files, first } = &findings.damaged;
            tracing::error!(files, first, "records of the catalog are damaged; nothing is trimmed");
            Trimmed { ordered: 0, waiting: excess.len() as u64 }
        };
        self.pool.lock().repairs.note_excess(trimmed.waiting);
        let more_excess = findings.more_excess && findings.damaged.files == 0;
        if arrived > 0 {
            // Files that were less safe than was asked of them may be safe now, which the next scan shows.
            self.scan_state.hurry(now);
        }
        // Nobody makes a chunk that is kept back: a scan sees whether it is there when its donors have looked.
        if trimmed.ordered > 0 || adapted || more_excess || kept_back {
            self.scan_state.changed(now);
        }
        Ok(true)
    }

    /// Writes down the redundancy that versions have by now. Returns the number of versions that have reached the
    /// redundancy that they were being changed to.
    async fn conclude(&self, findings: &mut Findings) -> Result<u64, Error> {
        let safe = std::mem::take(&mut findings.safe);
        let open = std::mem::take(&mut findings.open);
        if !safe.is_empty() || !open.is_empty() {
            self.catalog.set_safe(open, safe, self.time.wall_ms()).await?;
        }
        self.conversions.arrive(std::mem::take(&mut findings.arrived)).await
    }
}

#[cfg(test)]
pub(crate) mod tests;
