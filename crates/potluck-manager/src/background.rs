//! The work that a manager does unasked: it ends sessions, takes trash apart, collects garbage, saves the
//! pool's time.

use crate::calls::{end_session, interrupt_session};
use crate::gc::{self, Gc};
use crate::outcomes::Outcomes;
use crate::pool_time::SAVE_EVERY;
use crate::service::Service;
use potluck_catalog::Error;
use potluck_pool::Ending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often chores are looked for when nobody asks.
const EVERY: Duration = Duration::from_millis(250);
/// Garbage is collected at every so many rounds: a step a second is thousands of chunks.
const GC_ROUNDS: u64 = 2;
/// Steps of one chore in a round, so that none starves the others.
const STEPS: usize = 64;
/// Entries of thrown-away trees in one step: a transaction of some ten milliseconds.
const TRASH_ENTRIES: usize = 1000;
/// How often a disk that did not take a write is tried.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// Bytes that it must take to be well again: some hundred commits.
const PROBE_BYTES: usize = 1 << 20;
/// How long the reply of a commit can be asked for again.
const REPLIES_KEPT: Duration = Duration::from_secs(3600);

/// The outcome of a step of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It did something; there may be more.
    Busy,
    /// Nothing to do now.
    Idle,
}

/// Works until dropped.
pub async fn run(service: Arc<Service>) {
    let (mut gc, mut outcomes) = (Gc::default(), Outcomes::default());
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut saved = service.time.tick();
    let mut probed = saved;
    for round in 0_u64.. {
        tokio::select! {
            _ = interval.tick() => {}
            () = service.chores.notified() => {}
        }
        outcomes.note("ending sessions", end_expired(&service).await);
        outcomes.note("giving interrupted uploads up", end_parked(&service).await);
        outcomes.note("closing sessions", account_ended(&service).await);
        outcomes.note("emptying the trash", empty_trash(&service).await);
        if round % GC_ROUNDS == 0 {
            outcomes.note("collecting garbage", gc.step(&service).await.map(|_| ()));
        }
        let now = service.time.tick();
        if service.catalog.disk_fault().is_some() && now.saturating_sub(probed) >= PROBE_EVERY {
            probed = now;
            outcomes.note("trying the catalog's disk", probe(&service).await);
        }
        if now.saturating_sub(saved) >= SAVE_EVERY {
            saved = now;
            outcomes.note("saving the time", save_time(&service).await);
            outcomes.note("pruning", prune(&service).await);
        }
    }
}

async fn end_expired(service: &Service) -> Result<(), Error> {
    let expired = service.pool().expired(service.time.tick());
    for session in expired {
        tracing::info!(?session, "the lease of a write session ended");
        interrupt_session(service, session).await?;
    }
    Ok(())
}

/// Ends interrupted uploads that nobody has taken up again, and those that are in the way.
async fn end_parked(service: &Service) -> Result<(), Error> {
    let window = service.config().resume_window;
    let parked = service.pool().parked_too_long(window, service.time.tick());
    for session in parked {
        tracing::info!(?session, "what an interrupted upload stored is given up");
        end_session(service, session).await?;
    }
    Ok(())
}

async fn account_ended(service: &Service) -> Result<(), Error> {
    let ending = service.pool().ending();
    let grace_ms = service.config().gc_grace.as_millis() as u64;
    for Ending { id, donors, parked } in ending {
        let donors: Arc<[_]> = donors.into_iter().collect();
        for _ in 0..STEPS {
            let now_ms = service.time.now_ms();
            // Whoever needs the room is waiting for it.
            let unused_since = if parked { now_ms.saturating_sub(grace_ms) } else { now_ms };
            let donors = Arc::clone(&donors);
            if service.catalog.account_session(id, donors, unused_since).await? {
                service.pool().forget_session(&id);
                break;
            }
        }
    }
    Ok(())
}

async fn empty_trash(service: &Service) -> Result<(), Error> {
    for _ in 0..STEPS {
        if !service.catalog.reap_removed(TRASH_ENTRIES, service.time.now_ms()).await? {
            break;
        }
    }
    Ok(())
}

/// Saves the pool's time now, when donors were heard, and when members were seen.
pub async fn save_time(service: &Service) -> Result<(), Error> {
    let now_ms = service.time.now_ms();
    let silences = service.pool().silences(service.time.tick());
    let heard: Vec<_> = silences
        .into_iter()
        .map(|(donor, silent)| (donor, now_ms.saturating_sub(silent.as_millis() as u64)))
        .collect();
    // Together, so that how long a donor was silent can be told from both after a crash.
    let seen = service.members.seen();
    service.catalog.save_time(now_ms, seen, heard).await
}

/// Finds out whether a disk that did not take a write takes writes again.
pub async fn probe(service: &Arc<Service>) -> Result<(), Error> {
    let at = Arc::clone(service);
    let taken = service.env.offload.run(move || at.state.probe(PROBE_BYTES)).await;
    if let Err(why) = taken {
        tracing::debug!(%why, "the disk that holds the catalog takes no writes yet");
        return Ok(());
    }
    save_time(service).await?;
    service.catalog.disk_recovered();
    Ok(())
}

async fn prune(service: &Service) -> Result<(), Error> {
    gc::prune(service).await?;
    let before = service.time.now_ms().saturating_sub(REPLIES_KEPT.as_millis() as u64);
    service.catalog.prune_replies(before).await
}
