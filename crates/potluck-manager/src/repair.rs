//! Repair: the loop that looks at everything, hands out what is to be made, and hears what came of
//! it. What is decided stands in core's `repair_plan` and in [`potluck_pool`]; here it is waited.

use crate::audit;
use crate::log::adapting;
use crate::outcomes::Outcomes;
use crate::scan::{self, Priority};
use crate::service::Service;
use crate::trim::{self, Trimmed};
use crate::{calls, converting, probation};
use potluck_catalog::conversions::{Computed, Encoded};
use potluck_catalog::{Error, Learnt};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::repair_plan::Worth;
use potluck_pool::redundancy::{Blocked, Damaged, Encode, Findings, Moving};
use potluck_pool::redundancy::{Group, Purpose};
use potluck_pool::{Changes, CircuitBreaker};
use potluck_wire::control::{
    DonorState, DonorStatus, MetadataHealth, SpaceHealth, TaskFault, TaskOutcome, TaskResult,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// How often what waits is handed out, and the donors' standing looked at.
const EVERY: Duration = Duration::from_millis(250);
/// After a change a scan waits for more of the kind: donors behind one switch go within seconds
/// of each other. Never longer than a quarter of the grace.
const SETTLE: Duration = Duration::from_secs(5);
/// After its start a manager waits so long for its donors before it first judges how safe files
/// are: all of them seem lost to one that nobody has told what is there. Never longer than the
/// grace.
const ASSEMBLING: Duration = Duration::from_secs(15);
/// While repair goes on, everything is looked at anew this often at most.
const AGAIN: Duration = Duration::from_secs(2);
/// What found no source or no taker is tried again this often: room is made, donors are left alone
/// no longer, and nobody tells of it. So is a scan that failed.
const RETRY: Duration = Duration::from_secs(15);

/// What the manager knows of the pool's safety, from scan to scan.
#[derive(Debug, Default)]
pub struct ScanState(Mutex<Kept>);

/// The last scan, and what calls for the next.
#[derive(Debug, Default)]
pub struct Kept {
    /// Each space, as of the last scan.
    pub spaces: BTreeMap<String, SpaceHealth>,
    /// The pool's own metadata, as of the last scan.
    pub metadata: MetadataHealth,
    /// What leaves each donor.
    pub moving: BTreeMap<DonorId, Moving>,
    /// What of that no other donor takes.
    blocked: BTreeMap<DonorId, Blocked>,
    /// Files that donors which were given up may bring back.
    awaited: BTreeMap<DonorId, u64>,
    /// Chunks at donors that leave and are not heard, which files are less safe without.
    unreached: BTreeMap<DonorId, u64>,
    /// What it means that a donor leaves, found when it began to; a scan that began later knows.
    foreseen: BTreeMap<DonorId, (Tick, Leaving)>,
    /// When the last scan began that ended.
    pub began: Option<Tick>,
    /// When one last began, whatever came of it.
    tried: Option<Tick>,
    /// Why the last did not come to its end.
    pub failed: Option<String>,
    /// Files of which the last could not see what they are made of.
    pub damaged: Damaged,
    /// Since when something changed that it has not seen.
    dirty: Option<Tick>,
    /// Since when something got worse that it has not seen, and what.
    worse: Option<(Tick, &'static str)>,
    /// Donors whose copies it could not rely on at that moment.
    unheard: BTreeSet<DonorId>,
    /// Of these, those whose copies counted for nothing.
    lost: BTreeSet<DonorId>,
    /// Someone waits for it now.
    hurry: bool,
    /// One is under way that someone waits for, or what follows from it is.
    looking: bool,
    /// Answers of the first of two donors that compute the same parity.
    encoded: BTreeMap<Group, Encoded>,
    /// First answers to audits.
    pub audits: audit::Answers,
}

impl ScanState {
    /// What is kept. Never held while waiting.
    pub fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("no holder panics")
    }

    /// Something changed: a scan should look again.
    pub fn changed(&self, now: Tick) {
        self.kept().dirty.get_or_insert(now);
    }

    /// Files may be less safe than the last scan found, for this reason.
    pub fn worse(&self, now: Tick, why: &'static str) {
        let mut kept = self.kept();
        kept.dirty.get_or_insert(now);
        // A scan that is under way has not seen the latest.
        kept.worse = Some((now, why));
    }

    /// What the last scan does not know, by which files may be less safe than it found.
    pub fn unseen(&self, unheard: &BTreeSet<DonorId>) -> Option<Unseen> {
        let kept = self.kept();
        if kept.began.is_none() {
            return Some(Unseen::All);
        }
        let silent: BTreeSet<DonorId> = unheard.difference(&kept.unheard).copied().collect();
        if !silent.is_empty() {
            return Some(Unseen::Silent(silent));
        }
        kept.worse.map(|(_, why)| Unseen::Worse(why))
    }

    /// Whether the last scan has not seen all that is known by now, and another one soon will.
    pub fn is_behind(&self, unheard: &BTreeSet<DonorId>) -> bool {
        let kept = self.kept();
        let fresh = kept.began.is_none() || kept.worse.is_some() || kept.unheard != *unheard;
        kept.failed.is_none() && (fresh || kept.hurry || kept.looking)
    }

    /// Whether someone waits for a scan.
    pub fn is_looking(&self) -> bool {
        let kept = self.kept();
        kept.hurry || kept.looking
    }

    /// Why it is not known what the death of donors means that were given up since the last scan.
    pub fn not_seen_gone(&self, donors: &[DonorStatus]) -> Option<String> {
        let kept = self.kept();
        let gone = |donor: &&DonorStatus| donor.state == DonorState::Dead && donor.chunks > 0;
        let fresh = donors.iter().filter(gone).find(|donor| !kept.lost.contains(&donor.donor))?;
        Some(format!("{} has just been given up; what it held is being looked at", fresh.name))
    }

    /// A scan should look now.
    pub fn hurry(&self, now: Tick) {
        let mut kept = self.kept();
        kept.dirty.get_or_insert(now);
        kept.hurry = true;
    }

    /// The same once there was one: the first waits for the donors.
    pub fn look_again(&self, now: Tick) {
        if self.kept().began.is_some() {
            self.hurry(now);
        }
    }

    /// Whether a scan is due, and how it may go about it.
    fn due(&self, now: Tick, service: &Service) -> Option<Priority> {
        let settle = SETTLE.min(service.config().repair_grace / 4);
        let (stuck, assembled) = {
            let pool = service.pool();
            (pool.repairs.is_stuck(), pool.assembled(now))
        };
        let kept = self.kept();
        let patience = ASSEMBLING.min(service.config().repair_grace);
        if kept.began.is_none() && !kept.hurry && !assembled && service.time.uptime() < patience {
            return None;
        }
        kept.due(now, settle, service.config().scan_every, stuck)
    }

    /// Whether a scan is due that something waits for.
    pub fn is_urgent(&self, now: Tick, service: &Service) -> bool {
        self.due(now, service) == Some(Priority::Urgent)
    }
}

/// What a scan has not seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unseen {
    /// Anything: there was none since the manager's start.
    All,
    /// That these donors are not heard.
    Silent(BTreeSet<DonorId>),
    /// Something else.
    Worse(&'static str),
}

/// What a scan is to see, until it has.
struct Due {
    dirty: Option<Tick>,
    hurry: bool,
}

/// What is known of what leaves a donor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaving {
    /// What has to be made elsewhere first.
    pub moving: Moving,
    /// What of that no other donor takes.
    pub blocked: Blocked,
    /// Files that only its return brings back.
    pub awaited: u64,
    /// Chunks there that files are less safe without, though it is not heard.
    pub unreached: u64,
}

impl Kept {
    /// What leaves a donor.
    pub fn of(&self, donor: DonorId) -> Leaving {
        let awaited = self.awaited.get(&donor).copied().unwrap_or_default();
        if let Some((_, leaving)) = self.foreseen.get(&donor) {
            return Leaving { awaited, ..*leaving };
        }
        Leaving {
            moving: self.moving.get(&donor).copied().unwrap_or_default(),
            blocked: self.blocked.get(&donor).copied().unwrap_or_default(),
            unreached: self.unreached.get(&donor).copied().unwrap_or_default(),
            awaited,
        }
    }

    /// Whether it is known what leaves a donor that began to at `since`.
    pub fn knows(&self, donor: DonorId, since: Tick) -> bool {
        self.began.is_some_and(|began| began >= since) || self.foreseen.contains_key(&donor)
    }

    /// What was found before a donor began to leave at `since`.
    pub fn foresee(&mut self, donor: DonorId, since: Tick, found: Leaving) {
        self.foreseen.insert(donor, (since, found));
    }

    fn due(&self, now: Tick, settle: Duration, every: Duration, stuck: bool) -> Option<Priority> {
        let failed = self.failed.is_some();
        let since = self.tried.map(|tried| now.saturating_sub(tried));
        // A failing one does not run all the time.
        let again = if failed { RETRY } else { AGAIN.min(settle) };
        let rested = since.is_none_or(|since| since >= again);
        let settled = self.dirty.is_some_and(|dirty| now.saturating_sub(dirty) >= settle);
        if rested && (self.hurry || settled) {
            return Some(Priority::Urgent);
        }
        let every = every.min(if stuck || failed { RETRY } else { Duration::MAX });
        since.is_none_or(|since| since >= every).then_some(Priority::Routine)
    }

    /// A scan begins.
    fn begin(&mut self, now: Tick) -> Due {
        self.tried = Some(now);
        self.looking = self.hurry;
        Due { dirty: self.dirty.take(), hurry: std::mem::take(&mut self.hurry) }
    }

    /// A scan did not come to its end: what it was to see is still to be seen.
    fn give_up(&mut self, due: Due) {
        self.dirty = due.dirty.into_iter().chain(self.dirty).min();
        self.hurry |= due.hurry;
    }

    /// A scan that began at `began` has seen everything.
    fn take(&mut self, findings: &mut Findings, began: Tick) {
        let spaces = findings.spaces.iter().map(|space| (space.name.clone(), space.clone()));
        self.spaces = spaces.collect();
        self.moving = std::mem::take(&mut findings.moving);
        self.blocked = std::mem::take(&mut findings.blocked);
        self.awaited = std::mem::take(&mut findings.awaited);
        self.unreached = std::mem::take(&mut findings.unreached);
        self.foreseen.retain(|_, (since, _)| *since > began);
        self.damaged = findings.damaged.clone();
        self.metadata = findings.metadata.health.clone();
        self.worse = self.worse.filter(|(since, _)| *since > began);
        self.unheard = findings.view.unheard();
        let lost = findings.view.iter().filter(|(_, at)| at.worth == Worth::Lost);
        self.lost = lost.map(|(donor, _)| donor).collect();
        self.began = Some(began);
    }

    /// First answers whose second will not come.
    fn forsaken(&mut self, awaited: &BTreeSet<Group>) -> Vec<Encoded> {
        self.encoded.extract_if(.., |group, _| !awaited.contains(group)).map(|(_, e)| e).collect()
    }
}

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
            pool.hand_out(now, &|contact| calls::source(service, contact));
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

/// Has the next life of the manager decide as this one about donors that went at once.
pub async fn note_circuit_breaker(
    service: &Service,
    circuit_breaker: &CircuitBreaker,
) -> Result<(), Error> {
    let CircuitBreaker { tripped, excused } = circuit_breaker.clone();
    service.catalog.note_circuit_breaker(tripped, excused).await
}

/// Looks at everything whenever that is due.
async fn look(service: &Arc<Service>) {
    let mut outcomes = Outcomes::default();
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if let Some(priority) = service.scan_state.due(service.time.tick(), service) {
            outcomes.note("looking at everything", look_once(service, priority).await);
        }
    }
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
        // What nobody can take is known before anybody is told how long repair needs.
        pool.hand_out(now, &|contact| calls::source(service, contact));
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
    // What is kept back is made by nobody: whether it is there is seen when its donors have looked.
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

/// A donor says what came of tasks. However many they are, its heartbeat waits for the writer
/// once for each sort: else donors that do much would seem silent while others commit.
pub async fn answered(
    service: &Service,
    donor: DonorId,
    results: Vec<TaskResult>,
) -> Result<(), Error> {
    let now = service.time.tick();
    let (mut made, mut computed, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for TaskResult { task, outcome } in results {
        let purpose = service.pool().task_answered(donor, task, now);
        match (purpose, outcome) {
            (Some(Purpose::Make { chunk, len, .. }), TaskOutcome::Done) => {
                service.pool().chunk_made(chunk, len, now);
                made.push(chunk);
            }
            (Some(Purpose::Encode { group, asked, .. }), TaskOutcome::Encoded { parity }) => {
                service.pool().parity_made(&group, now);
                computed.extend(compared(service, donor, &group, asked, parity.0));
            }
            (Some(Purpose::Make { chunk, .. }), TaskOutcome::Failed { why, donor: source }) => {
                failed(service, (donor, task), chunk, why, source, now);
            }
            (Some(Purpose::Encode { group, .. }), TaskOutcome::Failed { why, donor: source }) => {
                let chunk = group.shards[0].name;
                failed(service, (donor, task), chunk, why, source, now);
            }
            (Some(purpose), outcome) => others.push((purpose, outcome)),
            (None, _) => {} // of an earlier life, or given up
        }
    }
    if !made.is_empty() {
        service.catalog.on_disk(donor, made).await?;
        finished(service, now);
    }
    if !computed.is_empty() {
        learn(service, computed).await?;
        finished(service, now);
    }
    for (purpose, outcome) in others {
        if let Purpose::Probe { chunk, suspect } = &purpose {
            probation::heard(service, *suspect, *chunk, &outcome).await?;
        }
        audit::answered(service, donor, purpose, outcome);
    }
    Ok(())
}

/// Looks again when nothing is under way any more: what was made completes versions. Where nothing is
/// left either, that all is well again is known as soon as it is so.
fn finished(service: &Service, now: Tick) {
    let (idle, done) = {
        let pool = service.pool();
        (pool.repairs.idle(), pool.repairs.is_unseen())
    };
    match (idle, done) {
        (_, true) => service.scan_state.hurry(now),
        (true, false) => service.scan_state.changed(now),
        (false, false) => {}
    }
}

fn failed(
    service: &Service,
    (donor, task): (DonorId, u64),
    chunk: ChunkName,
    why: TaskFault,
    source: Option<DonorId>,
    now: Tick,
) {
    tracing::debug!(%donor, %chunk, ?why, ?source, "a task of repair failed");
    let mut pool = service.pool();
    match (why, source) {
        (TaskFault::SourceMissing | TaskFault::SourceWrong, Some(source)) => {
            pool.order_verify(source, chunk, now);
            pool.leave_alone(source, now);
        }
        (TaskFault::SourceAway, Some(source)) => pool.source_is_away(source, task, now),
        _ => pool.leave_alone(donor, now),
    }
    if why == TaskFault::SourceWrong
        && let Some(source) = source
    {
        pool.accuse(source, chunk, MemberId(donor.0), now);
    }
    drop(pool);
    service.scan_state.changed(now);
}

/// One of the donors that compute a group's parity answers. It is believed when another computed
/// the same, or when nobody else could be asked.
fn compared(
    service: &Service,
    donor: DonorId,
    group: &Encode,
    asked: usize,
    parity: Vec<ChunkName>,
) -> Vec<Computed> {
    let now = service.time.tick();
    if parity.len() != group.ec.parity() {
        service.pool().leave_alone(donor, now);
        return Vec::new();
    }
    let len = group.longest();
    let mut encoded = Encoded {
        version: group.version,
        ec: group.ec,
        group: group.group,
        parity: parity.into_iter().map(|name| (name, len)).collect(),
        holders: vec![donor],
    };
    if asked == 1 {
        return vec![Computed::Believed(encoded)];
    }
    let key = group.key();
    let mut kept = service.scan_state.kept();
    let Some(first) = kept.encoded.remove(&key) else {
        kept.encoded.insert(key, encoded);
        return Vec::new();
    };
    let other = first.holders[0];
    if other == donor {
        kept.encoded.insert(key, encoded);
        return vec![Computed::Doubtful(first)];
    }
    drop(kept);
    if first.parity == encoded.parity {
        encoded.holders.push(other);
        return vec![Computed::Believed(encoded)];
    }
    tracing::error!(version = %group.version, group = group.group, %donor, %other,
        "two donors computed different parity; neither is believed");
    service.pool().parity_differs(key, [donor, other], now);
    service.scan_state.changed(now);
    vec![Computed::Doubtful(first), Computed::Doubtful(encoded)]
}

/// Writes down what donors computed: as some version's, or for garbage collection to find.
async fn learn(service: &Service, computed: Vec<Computed>) -> Result<(), Error> {
    if computed.is_empty() {
        return Ok(());
    }
    let Learnt { again, claimed } =
        service.catalog.learn_parity(computed, service.time.now_ms()).await?;
    let now = service.time.tick();
    let mut pool = service.pool();
    again.iter().for_each(|again| pool.in_use_again(again, now));
    claimed.into_iter().for_each(|(donor, chunks)| pool.claimed(donor, chunks));
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
