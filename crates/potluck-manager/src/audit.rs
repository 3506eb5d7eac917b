//! Audit: donors prove that they still have what they say they have, without moving it.
//!
//! Of a chunk with two copies both donors hash the same part under a key drawn that moment; who
//! has thrown the bytes away cannot answer. Of a chunk with one copy, another donor fetches it and
//! compares it with its name. Ten donors' worth of challenges a minute ask every donor some 140
//! times a day: one that lost 5 % of its chunks is found within a day but once in a thousand
//! (promise R2).

use crate::outcomes::Outcomes;
use crate::service::Service;
use crate::ticketing::source;
use potluck_catalog::Error;
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::{DonorId, MemberId};
use potluck_pool::redundancy::Purpose;
use potluck_wire::control::{TaskFault, TaskOutcome, Work};
use std::sync::Arc;
use tokio::time::MissedTickBehavior;

/// One donor in so many is challenged each time.
const SHARE: usize = 10;
/// Bytes hashed at most.
const PART: u32 = 64 << 10;

/// Challenges some donors again and again.
pub async fn run(service: &Arc<Service>) {
    let mut interval = tokio::time::interval(service.config().audit_every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut turn, mut outcomes) = (0, Outcomes::default());
    loop {
        interval.tick().await;
        let live = service.pool().live_donors(service.time.tick());
        service.scan_state.kept().audits.clear();
        for _ in 0..live.len().div_ceil(SHARE) {
            let donor = live[turn % live.len()];
            turn += 1;
            outcomes.note("auditing", challenge(service, donor, &live).await);
        }
    }
}

/// Challenges a donor about one of its chunks, drawn at random.
async fn challenge(service: &Service, donor: DonorId, live: &[DonorId]) -> Result<(), Error> {
    let at = service.env.entropy.u64();
    let drawn = service.catalog.drawn(donor, at).await?;
    let Some(drawn) = drawn else { return Ok(()) };
    let other = drawn.holders.iter().copied().find(|other| *other != donor && live.contains(other));
    match other {
        Some(other) => compare(service, drawn.name, drawn.len, [donor, other]),
        None => probe(service, drawn.name, drawn.len, donor, live),
    }
    Ok(())
}

/// Has two donors hash the same part of their copies.
fn compare(service: &Service, chunk: ChunkName, len: u32, holders: [DonorId; 2]) {
    let key = Digest(service.env.entropy.bytes());
    let part = PART.min(len);
    let offset = (service.env.entropy.u64() % u64::from(len - part + 1)) as u32;
    let now = service.time.tick();
    let mut pool = service.pool();
    for holder in holders {
        let purpose = Purpose::Audit { chunk, len, key };
        let work = Work::Audit { chunk, key, offset, len: part };
        pool.repairs.tasks.give(holder, now, purpose, work);
    }
}

/// Has another donor fetch a chunk from `suspect`.
pub fn probe(service: &Service, chunk: ChunkName, len: u32, suspect: DonorId, live: &[DonorId]) {
    let others: Vec<DonorId> = live.iter().copied().filter(|other| *other != suspect).collect();
    if others.is_empty() {
        return;
    }
    let by = others[(service.env.entropy.u64() % others.len() as u64) as usize];
    let now = service.time.tick();
    let contact = service.pool().contact(suspect, now);
    let source = contact.and_then(|contact| source(service, contact));
    let Some(from) = source else { return };
    let purpose = Purpose::Probe { chunk, suspect };
    service.pool().repairs.tasks.give(by, now, purpose, Work::Probe { chunk, len, from });
}

/// A donor answers a challenge.
pub fn answered(service: &Service, donor: DonorId, purpose: Purpose, outcome: TaskOutcome) {
    let now = service.time.tick();
    match (purpose, outcome) {
        (Purpose::Audit { chunk, len, key }, TaskOutcome::Audited { hash }) => {
            let first = {
                let mut kept = service.scan_state.kept();
                match kept.audits.remove(&(chunk, key.0)) {
                    Some(first) => first,
                    None => {
                        kept.audits.insert((chunk, key.0), (donor, hash));
                        return;
                    }
                }
            };
            let (other, expected) = first;
            if expected == hash || other == donor {
                return;
            }
            tracing::warn!(%chunk, %donor, %other, "two copies of a chunk differ; both are looked at");
            let live = service.pool().live_donors(now);
            for suspect in [donor, other] {
                service.pool().order_verify(suspect, chunk, now);
                let third: Vec<_> =
                    live.iter().copied().filter(|id| *id != donor && *id != other).collect();
                probe(service, chunk, len, suspect, &third);
            }
        }
        (Purpose::Audit { chunk, .. }, TaskOutcome::Failed { .. }) => {
            service.pool().order_verify(donor, chunk, now);
        }
        (Purpose::Probe { chunk, suspect }, TaskOutcome::Failed { why, .. }) => match why {
            TaskFault::SourceWrong => {
                service.pool().accuse(suspect, chunk, MemberId(donor.0), now);
            }
            TaskFault::SourceMissing => service.pool().order_verify(suspect, chunk, now),
            _ => {}
        },
        _ => {}
    }
}

/// Stops to trust a donor, for a reason that is kept.
pub async fn quarantine(service: &Service, donor: DonorId, why: String) -> Result<(), Error> {
    service.pool().quarantine(donor, Some(why.clone()));
    service.scan_state.hurry(service.time.tick());
    service.catalog.quarantine(donor, Some(why)).await
}
