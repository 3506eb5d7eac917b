//! Tells an operator in the log of each change in the state of the pool, once, when it happens.
//!
//! The pool is looked at once a second and compared with what was said of it last. Therefore no line is repeated while
//! nothing changes, whatever fails however often, and a manager that starts tells of each trouble that it finds.
//! [`Alarms`] judges what is wrong, for every front; here it is told when an alarm begins and when it is over. Events
//! that single donors and members cause again and again are told here as numbers ([`RecurringNotices`]).

use crate::alarms::Alarms;
use crate::callers::KnownMembers;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::recurring_notices::RecurringNotices;
use crate::shared_pool::SharedPool;
use crate::stats_cache::StatsCache;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::size::{count, format_size};
use potluck_pool::called;
use potluck_wire::control::{Alarm, AlarmKind, DonorState, DonorStatus, RepairState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

handles! {
    /// The handles for telling events.
    pub struct Events {
        time: PoolTime,
        pool: SharedPool,
        members: Arc<KnownMembers>,
        stats: Arc<StatsCache>,
        alarms: Alarms,
        notices: Arc<RecurringNotices>,
    }
}

/// The time between two looks at the pool.
const EVERY: Duration = Duration::from_secs(1);
/// The time without work after which a repair counts as ended: the work that one change causes comes in several steps.
const REST: Duration = Duration::from_secs(10);
/// The time without an alarm after which it counts as over: an alarm that comes and goes is told once.
const OVER: Duration = Duration::from_secs(5);

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EventLine {
    /// A line about a trouble that an operator may want to act on.
    Warn(String),
    /// A line about a change that calls for no action.
    Info(String),
}

/// An alarm by its sort and the donor that it is about.
type Subject = (AlarmKind, Option<DonorId>);

/// The pool at one moment, as far as the log tells of it.
struct Look {
    now: Tick,
    donors: Vec<DonorStatus>,
    repair: RepairState,
    /// The moment at which repair last made a chunk.
    made_last: Option<Tick>,
    /// The alarms of this look.
    alarms: Vec<Alarm>,
}

/// The state of the pool as the log has told it.
#[derive(Debug, Default)]
struct EventLog {
    donors: BTreeMap<DonorId, Presence>,
    repair: Option<Repairing>,
    /// The number of chunks that repair had made at the last look, and their bytes.
    made: Option<(u64, u64)>,
    /// The alarms that were told, with the names of their donors, and the moment at which each was there last.
    alarms: BTreeMap<Subject, (String, Tick)>,
}

/// The presence of a donor as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// The donor was not heard since the manager started.
    Unheard,
    Here,
    /// The log said that the donor is silent; it has been silent for so many seconds.
    Silent(u64),
    GivenUp(u64),
}

/// A repair that the log said had begun.
#[derive(Debug, Clone, Copy)]
struct Repairing {
    began: Tick,
    made: u64,
    made_bytes: u64,
    last_busy: Tick,
}

impl Events {
    /// Tells what happens until it is dropped.
    pub async fn run(self) {
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut event_log = EventLog::default();
        let mut bad = BTreeMap::new();
        loop {
            interval.tick().await;
            if let Some(stats) = self.stats.latest() {
                bad = stats.donors.iter().map(|(donor, copies)| (*donor, copies.bad)).collect();
            }
            for line in event_log.compare(&self.look(&bad)) {
                match line {
                    EventLine::Warn(said) => tracing::warn!("{said}"),
                    EventLine::Info(said) => tracing::info!("{said}"),
                }
            }
            for (member, said) in self.notices.due(self.time.tick()) {
                let name = self.members.names(&[member]).concat();
                tracing::info!("{name} ({member}): {said}");
            }
        }
    }

    /// Looks at the pool; `bad` is the number of chunks that each donor lost or spoiled, as counted last.
    fn look(&self, bad: &BTreeMap<DonorId, u64>) -> Look {
        let now = self.time.tick();
        let (mut donors, repair, made_last) = {
            let mut pool = self.pool.lock();
            (pool.status(now), pool.repair_state(now), pool.repairs.made_last())
        };
        for donor in &mut donors {
            donor.bad = bad.get(&donor.donor).copied().unwrap_or(0);
            let (members, places) = self.pool.lock().unreached_by(donor.donor, now);
            (donor.unreached_by, donor.unreached_from) = (self.members.names(&members), places);
        }
        let alarms = self.alarms.all(&donors, &repair);
        Look { now, donors, repair, made_last, alarms }
    }
}

fn seconds(seconds: u64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(seconds))
}

impl EventLog {
    /// Returns the lines that a look gives reason to tell.
    fn compare(&mut self, look: &Look) -> Vec<EventLine> {
        let mut lines = Vec::new();
        self.donors.retain(|known, _| look.donors.iter().any(|donor| donor.donor == *known));
        for donor in &look.donors {
            let before = self.donors.entry(donor.donor).or_insert(Presence::Unheard);
            let (after, line) = presence(*before, donor);
            *before = after;
            lines.extend(line);
        }
        for alarm in &look.alarms {
            let donor = look.donors.iter().find(|donor| Some(donor.donor) == alarm.donor);
            let called = |donor: &DonorStatus| called(&donor.name, donor.donor);
            let seen = (donor.map_or_else(|| "the manager".into(), called), look.now);
            if self.alarms.insert((alarm.kind, alarm.donor), seen).is_none() {
                lines.push(EventLine::Warn(alarm.what.clone()));
            }
        }
        self.alarms.retain(|(kind, _), (named, last)| {
            let lasts = look.now.saturating_sub(*last) < OVER;
            lines.extend((!lasts).then(|| EventLine::Info(kind.over(named))));
            lasts
        });
        lines.extend(self.repaired(look));
        lines
    }

    fn repaired(&mut self, look: &Look) -> Option<EventLine> {
        let RepairState { made, made_bytes, .. } = look.repair;
        let before = self.made.replace((made, made_bytes)).unwrap_or((made, made_bytes));
        let (chunks, bytes) = to_make(&look.repair);
        // A short repair may be over before anybody looks, and then what it made shows that there was one.
        let (done, done_bytes) = (made - before.0.min(made), made_bytes - before.1.min(made_bytes));
        let busy = (chunks > 0 && look.repair.paused.is_none()) || done > 0;
        match &mut self.repair {
            Some(repair) if busy => {
                repair.last_busy = look.now;
                None
            }
            None if busy => {
                let (began, last_busy) = (look.now, look.now);
                let (made, made_bytes) = before;
                self.repair = Some(Repairing { began, made, made_bytes, last_busy });
                Some(EventLine::Info(format!(
                    "repair began: {} to make, {}",
                    count(chunks + done, "chunk"),
                    format_size(bytes + done_bytes)
                )))
            }
            Some(repair) if look.now.saturating_sub(repair.last_busy) >= REST => {
                let ended = look.made_last.filter(|at| *at > repair.began);
                let took = ended.unwrap_or(repair.last_busy).saturating_sub(repair.began).as_secs();
                let done = format!(
                    "{} made, {}, in {}",
                    count(made.saturating_sub(repair.made), "chunk"),
                    format_size(made_bytes.saturating_sub(repair.made_bytes)),
                    seconds(took.max(1))
                );
                self.repair = None;
                Some(EventLine::Info(format!("repair ended: {done}")))
            }
            _ => None,
        }
    }
}

/// Returns the number of chunks that wait or are being made, and their bytes.
fn to_make(repair: &RepairState) -> (u64, u64) {
    (repair.queued.iter().sum::<u64>() + repair.under_way, repair.bytes_left)
}

/// Returns the presence of a donor after a look, and the line to tell, if it changed.
fn presence(before: Presence, donor: &DonorStatus) -> (Presence, Option<EventLine>) {
    let named = called(&donor.name, donor.donor);
    let silent = donor.silent_seconds.unwrap_or(0);
    match (before, donor.state) {
        (Presence::Silent(was) | Presence::GivenUp(was), DonorState::Live) => {
            let line = format!("{named} is back; it was silent for {}", seconds(was));
            (Presence::Here, Some(EventLine::Info(line)))
        }
        (_, DonorState::Live) => (Presence::Here, None),
        (Presence::Here, DonorState::Suspect | DonorState::Silent | DonorState::Away) => {
            let line = match donor.away_seconds {
                Some(left) => EventLine::Info(format!(
                    "{named} is away, as was announced; it is waited for {} more",
                    seconds(left)
                )),
                None => EventLine::Info(format!(
                    "{named} is silent, for {} now; it is given up when that lasts",
                    seconds(silent)
                )),
            };
            (Presence::Silent(silent), Some(line))
        }
        (Presence::Silent(_), DonorState::Suspect | DonorState::Silent | DonorState::Away) => {
            (Presence::Silent(silent), None)
        }
        (Presence::GivenUp(_), DonorState::Dead) => (Presence::GivenUp(silent), None),
        (_, DonorState::Dead) => {
            let line = format!(
                "{named} is given up, silent for {}: what it holds is made again elsewhere",
                seconds(silent)
            );
            (Presence::GivenUp(silent), Some(EventLine::Warn(line)))
        }
        (before, _) => (before, None),
    }
}

#[cfg(test)]
mod tests;
