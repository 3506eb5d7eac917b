//! Audit: donors prove that they still have the chunks that they say they have.
//!
//! If a chunk has two live copies, both donors hash the same part of it under a key drawn that moment; a donor that has
//! thrown the bytes away cannot answer. Otherwise another donor fetches the chunk and compares it with its name. A
//! challenge a minute to a tenth of the donors asks every donor some 140 times a day: a donor that lost 5 % of its
//! chunks is overlooked for a day less than once in a thousand times (promise R2).

use crate::handles::handles;
use crate::outcomes::Outcomes;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::ticket_issuer::TicketIssuer;
use potluck_catalog::{Catalog, DonorNote, Error};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::ids::{DonorId, MemberId};
use potluck_pool::redundancy::Purpose;
use potluck_wire::control::{Holding, TaskFault, TaskOutcome, Work};
use potluck_wire::env::Env;
use std::sync::Arc;
use tokio::time::MissedTickBehavior;

handles! {
    /// The handles for challenging donors.
    pub struct Audit {
        settings: Arc<Settings>,
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        scan_state: Arc<ScanState>,
        tickets: TicketIssuer,
    }
}

/// The divisor for the share of donors that are challenged each time: one donor in so many.
const SHARE: usize = 10;
/// The most bytes of a chunk that are hashed.
const PART: u32 = 64 << 10;

impl Audit {
    /// Challenges a share of the donors in turn at each interval, until it is dropped.
    pub async fn run(&self) {
        let mut interval = tokio::time::interval(self.settings.get().audit_every);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut turn, mut outcomes) = (0, Outcomes::default());
        loop {
            interval.tick().await;
            let live = self.pool.lock().live_donors(self.time.tick());
            self.scan_state.kept().audits.clear();
            for _ in 0..live.len().div_ceil(SHARE) {
                let donor = live[turn % live.len()];
                turn += 1;
                outcomes.note("auditing", self.challenge(donor, &live).await);
            }
        }
    }

    /// Challenges a donor about one of its chunks, drawn at random.
    async fn challenge(&self, donor: DonorId, live: &[DonorId]) -> Result<(), Error> {
        let at = self.env.entropy.u64();
        let drawn = self.catalog.sample(donor, 1, at).await?.pop();
        let Some(drawn) = drawn else { return Ok(()) };
        let other =
            drawn.holders.iter().copied().find(|other| *other != donor && live.contains(other));
        match other {
            Some(other) => self.compare(drawn.name, drawn.len, [donor, other]),
            None => self.probe(drawn.name, drawn.len, donor, live),
        }
        Ok(())
    }

    /// Has two donors hash the same part of their copies.
    fn compare(&self, chunk: ChunkName, len: u32, holders: [DonorId; 2]) {
        let key = Digest(self.env.entropy.bytes());
        let part = PART.min(len);
        let offset = (self.env.entropy.u64() % u64::from(len - part + 1)) as u32;
        let now = self.time.tick();
        let mut pool = self.pool.lock();
        for holder in holders {
            let purpose = Purpose::Audit { chunk, len, key };
            let work = Work::Audit { chunk, key, offset, len: part };
            pool.repairs.tasks.give(holder, now, purpose, work);
        }
    }

    /// Has another donor fetch a chunk from `suspect`.
    pub fn probe(&self, chunk: ChunkName, len: u32, suspect: DonorId, live: &[DonorId]) {
        let others: Vec<DonorId> = live.iter().copied().filter(|other| *other != suspect).collect();
        if others.is_empty() {
            return;
        }
        let by = others[(self.env.entropy.u64() % others.len() as u64) as usize];
        let now = self.time.tick();
        let contact = self.pool.lock().contact(suspect, now);
        let source = contact.and_then(|contact| self.tickets.source(contact));
        let Some(from) = source else { return };
        let purpose = Purpose::Probe { chunk, len, suspect };
        self.pool.lock().repairs.tasks.give(by, now, purpose, Work::Probe { chunk, len, from });
    }

    /// Takes a donor's answer to a challenge.
    pub fn answered(&self, donor: DonorId, purpose: Purpose, outcome: TaskOutcome) {
        let now = self.time.tick();
        match (purpose, outcome) {
            (Purpose::Audit { chunk, len, key }, TaskOutcome::Audited { hash }) => {
                let first = {
                    let mut kept = self.scan_state.kept();
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
                let live = self.pool.lock().live_donors(now);
                for suspect in [donor, other] {
                    self.pool.lock().order_verify(suspect, chunk, now);
                    let third: Vec<_> =
                        live.iter().copied().filter(|id| *id != donor && *id != other).collect();
                    self.probe(chunk, len, suspect, &third);
                }
            }
            (Purpose::Audit { chunk, .. }, TaskOutcome::Failed { .. }) => {
                self.pool.lock().order_verify(donor, chunk, now);
            }
            (
                Purpose::Probe { chunk, len, suspect },
                TaskOutcome::Failed {
                    why: TaskFault::SourceWrong | TaskFault::SourceMissing, ..
                },
            ) => {
                let copy = Holding { name: chunk, len };
                self.pool.lock().accuse(suspect, copy, MemberId(donor.0), now);
            }
            _ => {}
        }
    }

    /// Quarantines a donor: it is not trusted any more. The catalog keeps the reason.
    pub async fn quarantine(&self, donor: DonorId, why: String) -> Result<(), Error> {
        self.pool.lock().quarantine(donor, Some(why.clone()));
        self.scan_state.hurry(self.time.tick());
        self.catalog.note_donor(donor, DonorNote::Quarantined(Some(why))).await
    }
}
