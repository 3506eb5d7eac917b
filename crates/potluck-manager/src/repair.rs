//! Repair: the loop that looks at everything, hands out what is to be made, and hears what came of
//! it. What is decided stands in core's `repair_plan`, `survey` and `pool`; here it is waited.

use crate::audit;
use crate::calls;
use crate::catalog::chunks;
use crate::catalog::conversions::{self, Encoded};
use crate::catalog::{Durability, Error, notes, placements};
use crate::pool::{Changes, Purpose, Switch};
use crate::service::Service;
use crate::survey::{self, Encode, Findings, Haste};
use crate::{trial, trim};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, VersionId};
use potluck_wire::control::{OrderFault, OrderOutcome, OrderResult, SpaceHealth};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often what waits is handed out, and the donors' standing looked at.
const EVERY: Duration = Duration::from_millis(250);
/// After a change a survey waits for more of the kind: donors behind one switch go within seconds
/// of each other. Never longer than a quarter of the grace.
const SETTLE: Duration = Duration::from_secs(5);
/// After its start a manager waits so long for its donors before it first judges how safe files are:
/// all of them seem lost to one that nobody has told what is there. Never longer than the grace.
const ASSEMBLING: Duration = Duration::from_secs(15);
/// While repair goes on, everything is looked at anew this often at most.
const AGAIN: Duration = Duration::from_secs(2);
/// What found no source or no taker is tried again this often: room is made, donors are left alone
/// no longer, and nobody tells of it.
const RETRY: Duration = Duration::from_secs(15);

/// What the manager knows of the pool's safety, from survey to survey.
#[derive(Debug, Default)]
pub struct Keeper(Mutex<Kept>);

/// The last survey, and what calls for the next.
#[derive(Debug, Default)]
pub struct Kept {
    /// Each space, as of the last survey.
    pub spaces: BTreeMap<String, SpaceHealth>,
    /// What leaves each donor.
    pub moving: BTreeMap<DonorId, survey::Moving>,
    /// When the last survey began that ended.
    pub began: Option<Tick>,
    /// Since when something changed that it has not seen.
    dirty: Option<Tick>,
    /// Someone waits for it now.
    hurry: bool,
    /// Answers of the first of two donors that compute the same parity.
    encoded: BTreeMap<(VersionId, u32), (DonorId, Vec<ChunkName>)>,
    /// First answers to audits.
    pub audits: audit::Answers,
}

impl Keeper {
    /// What is kept. Never held while waiting.
    pub fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("no holder panics")
    }

    /// Something changed: a survey should look again.
    pub fn changed(&self, now: Tick) {
        self.kept().dirty.get_or_insert(now);
    }

    /// A survey should look now.
    pub fn hurry(&self, now: Tick) {
        let mut kept = self.kept();
        kept.dirty.get_or_insert(now);
        kept.hurry = true;
    }

    /// Whether a survey is due, and how it may go about it.
    fn due(&self, now: Tick, service: &Service) -> Option<Haste> {
        let settle = SETTLE.min(service.config.repair_grace / 4);
        let (stuck, assembled) = {
            let pool = service.pool();
            (pool.repairs.is_stuck(), pool.assembled(now))
        };
        let kept = self.kept();
        let patience = ASSEMBLING.min(service.config.repair_grace);
        if kept.began.is_none() && !kept.hurry && !assembled && service.time.uptime() < patience {
            return None;
        }
        let since = kept.began.map(|began| now.saturating_sub(began));
        let rested = since.is_none_or(|since| since >= AGAIN.min(settle));
        let settled = kept.dirty.is_some_and(|dirty| now.saturating_sub(dirty) >= settle);
        if rested && (kept.hurry || settled) {
            return Some(Haste::Urgent);
        }
        let every = service.config.survey_every.min(if stuck { RETRY } else { Duration::MAX });
        since.is_none_or(|since| since >= every).then_some(Haste::Routine)
    }
}

/// Works until dropped.
pub async fn run(service: Arc<Service>) {
    tokio::join!(hand_out(&service), look(&service), audit::run(&service));
}

fn log(what: &str, result: Result<(), Error>) {
    match result {
        Ok(()) | Err(Error::Closed) => {}
        Err(why) => tracing::error!(%why, "{what} failed; trying again"),
    }
}

/// Hands out what waits, in step with time.
async fn hand_out(service: &Service) {
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut switch = service.pool().switch();
    loop {
        interval.tick().await;
        let now = service.time.tick();
        let changes = service.pool().pass_time(now);
        announce(service, &changes, now);
        trial::go_on(service);
        let (after, more) = {
            let mut pool = service.pool();
            pool.hand_out(now, &|contact| calls::source(service, contact));
            (pool.switch(), pool.repairs.wants_more())
        };
        if more {
            service.keeper.changed(now);
        }
        if after != switch {
            switch = after;
            log("noting the donors that went at once", note_switch(service, &switch).await);
        }
    }
}

/// Has the next life of the manager decide as this one about donors that went at once.
pub async fn note_switch(service: &Service, switch: &Switch) -> Result<(), Error> {
    let Switch { tripped, excused } = switch.clone();
    let set = move |db: &_| {
        notes::set_donors(db, notes::REPAIR_TRIPPED, &tripped)?;
        notes::set_donors(db, notes::REPAIR_EXCUSED, &excused)
    };
    service.catalog.write(Durability::Process, set).await
}

fn announce(service: &Service, changes: &Changes, now: Tick) {
    for donor in &changes.gone {
        tracing::warn!(%donor, "a donor is gone: silent beyond its grace; what it holds is made again elsewhere");
    }
    for donor in &changes.back {
        tracing::info!(%donor, "a donor that was gone is back");
    }
    if *changes != Changes::default() {
        service.keeper.changed(now);
    }
}

/// Looks at everything whenever that is due.
async fn look(service: &Arc<Service>) {
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if let Some(haste) = service.keeper.due(service.time.tick(), service) {
            log("looking at everything", look_once(service, haste).await);
        }
    }
}

/// One survey and all that follows from it.
async fn look_once(service: &Arc<Service>, haste: Haste) -> Result<(), Error> {
    let began = service.time.tick();
    {
        let mut kept = service.keeper.kept();
        (kept.dirty, kept.hurry) = (None, false);
        // Also when it fails, so that a failing one does not run all the time.
        kept.began = Some(began);
    }
    let mut findings = survey::survey(service, haste).await?;
    let now = service.time.tick();
    {
        let mut pool = service.pool();
        pool.repairs.take_findings(&mut findings, began, now);
        for (donor, chunk) in &findings.keep {
            pool.stay(*donor, *chunk, now);
        }
    }
    {
        let mut kept = service.keeper.kept();
        kept.spaces =
            findings.spaces.iter().map(|space| (space.name.clone(), space.clone())).collect();
        kept.moving = std::mem::take(&mut findings.moving);
    }
    conclude(service, &mut findings).await?;
    let trimmed = trim::trim(service, std::mem::take(&mut findings.excess)).await?;
    service.pool().repairs.note_excess(trimmed.waiting);
    if trimmed.ordered > 0 || !findings.arrived.is_empty() || findings.more_excess {
        service.keeper.changed(now);
    }
    Ok(())
}

/// Writes down what versions have by now.
async fn conclude(service: &Service, findings: &mut Findings) -> Result<(), Error> {
    let (safe, arrived) = (std::mem::take(&mut findings.safe), findings.arrived.clone());
    if !safe.is_empty() {
        let wall_ms = service.time.wall_ms();
        let set = move |db: &_| conversions::safe(db, &safe, wall_ms);
        service.catalog.write(Durability::Process, set).await?;
    }
    for (version, goal) in arrived {
        let now_ms = service.time.now_ms();
        let arrive = move |db: &_| conversions::arrive(db, version, goal, now_ms);
        if service.catalog.write(Durability::Disk, arrive).await? {
            tracing::debug!(%version, %goal, "a version has the redundancy it was to have");
        }
    }
    Ok(())
}

/// A donor says what came of orders.
pub async fn answered(
    service: &Service,
    donor: DonorId,
    results: Vec<OrderResult>,
) -> Result<(), Error> {
    for OrderResult { order, outcome } in results {
        let now = service.time.tick();
        let purpose = service.pool().order_answered(donor, order);
        match (purpose, outcome) {
            (Some(Purpose::Make { chunk, len, .. }), OrderOutcome::Done) => {
                service.pool().chunk_made(chunk, len, now);
                let set = move |db: &_| placements::on_disk(db, &chunk, donor);
                service.catalog.write(Durability::Process, set).await?;
                finished(service, now);
            }
            (Some(Purpose::Encode { group, asked, .. }), OrderOutcome::Encoded { parity }) => {
                encoded(service, donor, *group, asked, parity.0).await?;
            }
            (Some(Purpose::Make { chunk, .. }), OrderOutcome::Failed { why, donor: source }) => {
                failed(service, donor, chunk, why, source, now);
            }
            (Some(Purpose::Encode { group, .. }), OrderOutcome::Failed { why, donor: source }) => {
                let chunk = group.shards[0].name;
                failed(service, donor, chunk, why, source, now);
            }
            (Some(purpose), outcome) => {
                if let Purpose::Probe { chunk, suspect } = &purpose {
                    trial::heard(service, *suspect, *chunk, &outcome).await?;
                }
                audit::answered(service, donor, purpose, outcome);
            }
            (None, _) => {} // of an earlier life, or given up
        }
    }
    Ok(())
}

/// Looks again when nothing is under way any more: what was made completes versions.
fn finished(service: &Service, now: Tick) {
    if service.pool().repairs.idle() {
        service.keeper.changed(now);
    }
}

fn failed(
    service: &Service,
    donor: DonorId,
    chunk: ChunkName,
    why: OrderFault,
    source: Option<DonorId>,
    now: Tick,
) {
    tracing::warn!(%donor, %chunk, ?why, ?source, "an order of repair failed");
    let mut pool = service.pool();
    match (why, source) {
        (OrderFault::SourceMissing | OrderFault::SourceWrong, Some(source)) => {
            pool.order_verify(source, chunk, now);
            pool.leave_alone(source, now);
        }
        (OrderFault::SourceAway, Some(source)) => pool.leave_alone(source, now),
        _ => pool.leave_alone(donor, now),
    }
    if why == OrderFault::SourceWrong
        && let Some(source) = source
    {
        pool.accuse(source, chunk, MemberId(donor.0), now);
    }
    drop(pool);
    service.keeper.changed(now);
}

/// One of the donors that compute a group's parity answers. It is believed when another computed
/// the same, or when nobody else could be asked.
async fn encoded(
    service: &Service,
    donor: DonorId,
    group: Encode,
    asked: usize,
    parity: Vec<ChunkName>,
) -> Result<(), Error> {
    let now = service.time.tick();
    if parity.len() != group.ec.parity() {
        service.pool().leave_alone(donor, now);
        return Ok(());
    }
    let key = (group.version, group.group);
    let mut holders = vec![donor];
    if asked > 1 {
        let mut kept = service.keeper.kept();
        match kept.encoded.remove(&key) {
            Some((other, same)) if other != donor && same == parity => holders.push(other),
            Some((other, _)) if other != donor => {
                drop(kept);
                tracing::error!(version = %group.version, group = group.group, %donor, %other,
                    "two donors computed different parity; neither is believed");
                service.keeper.changed(now);
                return Ok(());
            }
            _ => {
                kept.encoded.insert(key, (donor, parity));
                return Ok(());
            }
        }
    }
    let len = group.shards.iter().map(|shard| shard.len).max().unwrap_or(0);
    let encoded = Encoded {
        version: group.version,
        ec: group.ec,
        group: group.group,
        parity: parity.into_iter().map(|name| (name, len)).collect(),
        holders,
    };
    let now_ms = service.time.now_ms();
    let holders = encoded.holders.clone();
    let learn = move |db: &_| {
        let mut unknown = 0;
        for (name, _) in &encoded.parity {
            unknown += u64::from(chunks::get(db, name)?.is_none());
        }
        Ok((conversions::learn(db, &encoded, now_ms)?, unknown))
    };
    let (again, unknown) = service.catalog.write(Durability::Disk, learn).await?;
    let mut pool = service.pool();
    pool.in_use_again(&again, now);
    holders.iter().for_each(|holder| pool.claimed(*holder, unknown));
    drop(pool);
    finished(service, now);
    Ok(())
}
