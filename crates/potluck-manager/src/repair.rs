//! Repair: the loop that looks at everything, hands out what is to be made, and hears what came of
//! it. What is decided stands in core's `repair_plan` and in [`potluck_pool`]; here it is waited.

use crate::audit;
use crate::log::adapting;
use crate::outcomes::Outcomes;
use crate::scan;
use crate::scan_state::Priority;
use crate::service::Service;
use crate::task_results::learn;
use crate::ticketing::source;
use crate::trim::{self, Trimmed};
use crate::{converting, probation};
use potluck_catalog::Error;
use potluck_catalog::conversions::Computed;
use potluck_core::clock::Tick;
use potluck_pool::redundancy::{Damaged, Findings};
use potluck_pool::{Changes, CircuitBreaker};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often what waits is handed out, and how donors are is looked at.
const EVERY: Duration = Duration::from_millis(250);

/// Works until dropped.
pub async fn run(service: Arc<Service>) {
    tokio::join!(hand_out(&service), look(&service), audit::run(&service));
}

/// Hands out what waits, in step with time.
async fn hand_out(service: &Service) {
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut outcomes = Outcomes::default();
    let mut circuit_breaker = service.pool().circuit_breaker();
    loop {
        interval.tick().await;
        let now = service.time.tick();
        let changes = service.pool().pass_time(now);
        if changes != Changes::default() {
            service.scan_state.changed(now);
        }
        probation::go_on(service);
        let (after, more) = {
            let mut pool = service.pool();
            pool.hand_out(now, &|contact| source(service, contact));
            (pool.circuit_breaker(), pool.repairs.wants_more())
        };
        if more {
            service.scan_state.changed(now);
        }
        if after != circuit_breaker {
            circuit_breaker = after;
            let noted = note_circuit_breaker(service, &circuit_breaker).await;
            outcomes.note("noting the donors that went at once", noted);
        }
    }
}

/// Has the next term of the manager decide as this one about donors that went at once.
pub async fn note_circuit_breaker(
    service: &Service,
    circuit_breaker: &CircuitBreaker,
) -> Result<(), Error> {
    let CircuitBreaker { tripped, declared_dead } = circuit_breaker.clone();
    service.catalog.note_circuit_breaker(tripped, declared_dead).await
}

/// Looks at everything whenever that is due.
async fn look(service: &Arc<Service>) {
    let mut outcomes = Outcomes::default();
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if let Some(priority) = due(service) {
            outcomes.note("looking at everything", look_once(service, priority).await);
        }
    }
}

/// Whether a scan is due, and how it may go about it.
fn due(service: &Service) -> Option<Priority> {
    let now = service.time.tick();
    let (stuck, assembled) = {
        let pool = service.pool();
        (pool.repairs.is_stuck(), pool.assembled(now))
    };
    let assembling = (!assembled).then(|| service.time.uptime());
    service.scan_state.due(now, &service.config(), stuck, assembling)
}

/// One scan and all that follows from it.
async fn look_once(service: &Arc<Service>, priority: Priority) -> Result<(), Error> {
    let began = service.time.tick();
    let due = service.scan_state.kept().begin(began);
    let ended = look_at_everything(service, priority, began).await;
    let mut kept = service.scan_state.kept();
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

/// Whether it came to its end.
async fn look_at_everything(
    service: &Arc<Service>,
    priority: Priority,
    began: Tick,
) -> Result<bool, Error> {
    let Some(mut findings) = scan::scan(service, priority).await? else { return Ok(false) };
    let now = service.time.tick();
    let kept_back = !findings.keep.is_empty();
    let awaited = {
        let mut pool = service.pool();
        pool.repairs.take_findings(&mut findings, began, now);
        for (donor, chunk) in &findings.keep {
            pool.stay(*donor, *chunk, now);
        }
        // Jobs that nobody can take are known before anybody is told how long repair needs.
        pool.hand_out(now, &|contact| source(service, contact));
        pool.repairs.encodings.awaited()
    };
    let forsaken = {
        let mut kept = service.scan_state.kept();
        kept.take(&mut findings, began);
        kept.forsaken(&awaited)
    };
    learn(service, forsaken.into_iter().map(Computed::Doubtful).collect()).await?;
    let arrived = conclude(service, &mut findings).await?;
    let adapted = adapting::adapt(service, &findings.metadata).await?;
    let excess = std::mem::take(&mut findings.excess);
    let trimmed = if findings.damaged.files == 0 {
        trim::trim(service, excess).await?
    } else {
        // Which copies the damaged files need is unknown.
        let Damaged { files, first } = &findings.damaged;
        tracing::error!(files, first, "records of the catalog are damaged; nothing is trimmed");
        Trimmed { ordered: 0, waiting: excess.len() as u64 }
    };
    service.pool().repairs.note_excess(trimmed.waiting);
    let more_excess = findings.more_excess && findings.damaged.files == 0;
    if arrived > 0 {
        // Files that were less safe than was asked of them are not so any more.
        service.scan_state.hurry(now);
    }
    // A chunk that is kept back is made by nobody: whether it is there is seen when its donors have looked.
    if trimmed.ordered > 0 || adapted || more_excess || kept_back {
        service.scan_state.changed(now);
    }
    Ok(true)
}

/// Writes down what versions have by now; how many have what they were being changed to.
async fn conclude(service: &Arc<Service>, findings: &mut Findings) -> Result<u64, Error> {
    let safe = std::mem::take(&mut findings.safe);
    let open = std::mem::take(&mut findings.open);
    if !safe.is_empty() || !open.is_empty() {
        service.catalog.set_safe(open, safe, service.time.wall_ms()).await?;
    }
    converting::arrive(service, std::mem::take(&mut findings.arrived)).await
}

#[cfg(test)]
pub(crate) mod tests;
