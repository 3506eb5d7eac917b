//! What the log tells an operator: each change in how the pool is, once, when it happens.
//!
//! The pool is looked at once a second and compared with what was said of it last. Therefore no line
//! is repeated while nothing changes, whatever fails however often, and a manager that starts tells
//! of each trouble that it finds.

use crate::service::Service;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::size::{count, format_size};
use potluck_pool::called;
use potluck_wire::control::{DonorState, DonorStatus, RepairState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// Between two looks at the pool.
const EVERY: Duration = Duration::from_secs(1);
/// Repair has ended when it had nothing to do for so long: what one change sets going comes in
/// several steps.
const REST: Duration = Duration::from_secs(10);
/// Space is short when so many percent of what is lent are left, …
const SHORT_PERCENT: u64 = 5;
/// … until so many are.
const ENOUGH_PERCENT: u64 = 8;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// Somebody may want to do something about it.
    Warn(String),
    /// All is well, or is again.
    Info(String),
}

/// Something that is wrong for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trouble {
    /// What is said when it begins, …
    begun: String,
    /// … and when it is over.
    over: String,
}

/// The pool at one moment, as far as the log tells of it.
struct Look {
    now: Tick,
    donors: Vec<DonorStatus>,
    repair: RepairState,
    /// When a chunk was made last.
    made_last: Option<Tick>,
    /// Troubles of the manager's own, by a name for each sort.
    troubles: BTreeMap<String, Trouble>,
}

/// What the log has said of the pool.
#[derive(Debug, Default)]
struct EventLog {
    donors: BTreeMap<DonorId, Presence>,
    repair: Option<Repairing>,
    /// Chunks that had been made at the last look, and their bytes.
    made: Option<(u64, u64)>,
    troubles: BTreeMap<String, Trouble>,
}

/// What was said of a donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It was not heard since the manager started.
    Unheard,
    Here,
    /// It was said to be silent, and has been for so many seconds.
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

/// Tells until dropped.
pub async fn run(service: Arc<Service>) {
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut event_log = EventLog::default();
    loop {
        interval.tick().await;
        for line in event_log.compare(&look(&service, &event_log)) {
            match line {
                Line::Warn(said) => tracing::warn!("{said}"),
                Line::Info(said) => tracing::info!("{said}"),
            }
        }
    }
}

fn look(service: &Service, event_log: &EventLog) -> Look {
    let now = service.time.tick();
    let (donors, repair, made_last) = {
        let mut pool = service.pool();
        (pool.status(now), pool.repair_state(now), pool.repairs.made_last())
    };
    let catalog = service.catalog.disk_fault();
    // What cannot be written for that reason is said of that disk alone.
    let others = |why: Option<String>| why.filter(|_| catalog.is_none());
    let mut troubles: BTreeMap<String, Trouble> = BTreeMap::new();
    let mut add = |sort: &str, begun: Option<String>, over: &str| {
        if let Some(begun) = begun {
            troubles.insert(sort.into(), Trouble { begun, over: over.into() });
        }
    };
    let why = catalog.as_ref().map(|why| format!("the catalog cannot be written: {why}"));
    add("catalog", why, "the disk that holds the catalog takes writes again");
    let why = others(service.log.file.failed());
    let why = why.map(|why| format!("the catalog is not backed up to a file: {why}"));
    add("backup", why, "the catalog is backed up to a file again");
    let why = others(service.log.donors.failed());
    let why = why.map(|why| format!("the metadata log on the donors is not written: {why}"));
    add("log", why, "the metadata log on the donors is written again");
    let held = service.gc_frozen();
    let why = held.map(|why| format!("nothing is reclaimed: {why}; `potluck gc resume` ends that"));
    add("gc", why, "chunks that no file uses are reclaimed again");
    let paused = repair.paused.as_ref().map(|why| format!("repair rests: {why}"));
    add("paused", paused, "repair may go on");
    let scan = service.scan_state.kept().failed.clone();
    let why = scan.map(|why| format!("how safe files are could not be looked at: {why}"));
    add("scan", others(why), "how safe files are can be looked at again");
    let was_short = event_log.troubles.contains_key("space");
    add("space", short_of_space(&donors, was_short), "there is enough space again");
    for donor in &donors {
        let named = called(&donor.name, donor.donor);
        let why = donor.quarantined.as_ref().map(|why| format!("{named} is not trusted: {why}"));
        add(&format!("trust {}", donor.donor), why, &format!("{named} is trusted again"));
        let fault = donor.disk_fault.as_ref();
        let why = fault.map(|fault| format!("the disk that {named} lends fails: {}", fault.why));
        add(&format!("disk {}", donor.donor), why, &format!("the disk that {named} lends is well"));
    }
    Look { now, donors, repair, made_last, troubles }
}

fn short_of_space(donors: &[DonorStatus], was_short: bool) -> Option<String> {
    let takers = || {
        let live = |donor: &&DonorStatus| donor.state == DonorState::Live && !donor.takes_nothing;
        donors.iter().filter(live)
    };
    let room: u64 = takers().map(|donor| donor.room).sum();
    let lent = room + takers().map(|donor| donor.used).sum::<u64>();
    let percent = if was_short { ENOUGH_PERCENT } else { SHORT_PERCENT };
    let short = lent > 0 && room < lent / 100 * percent;
    short.then(|| {
        let (room, lent) = (format_size(room), format_size(lent));
        format!("space is short: {room} are left of {lent} that live donors lend")
    })
}

fn seconds(seconds: u64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(seconds))
}

impl EventLog {
    /// What there is to say.
    fn compare(&mut self, look: &Look) -> Vec<Line> {
        let mut lines = Vec::new();
        self.donors.retain(|known, _| look.donors.iter().any(|donor| donor.donor == *known));
        for donor in &look.donors {
            let before = self.donors.entry(donor.donor).or_insert(Presence::Unheard);
            let (after, line) = presence(*before, donor);
            *before = after;
            lines.extend(line);
        }
        for (sort, trouble) in &look.troubles {
            if !self.troubles.contains_key(sort) {
                lines.push(Line::Warn(trouble.begun.clone()));
            }
        }
        for (sort, trouble) in &self.troubles {
            if !look.troubles.contains_key(sort) {
                lines.push(Line::Info(trouble.over.clone()));
            }
        }
        self.troubles.clone_from(&look.troubles);
        lines.extend(self.repaired(look));
        lines
    }

    fn repaired(&mut self, look: &Look) -> Option<Line> {
        let RepairState { made, made_bytes, .. } = look.repair;
        let before = self.made.replace((made, made_bytes)).unwrap_or((made, made_bytes));
        let (chunks, bytes) = to_make(&look.repair);
        // A short repair is over before anybody looks: what it made shows that it was there.
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
                Some(Line::Info(format!(
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
                let RepairState { stuck, stuck_why, .. } = &look.repair;
                Some(match stuck {
                    0 => Line::Info(format!("repair ended: {done}")),
                    _ => Line::Warn(format!(
                        "repair came to a stop: {done}; {} cannot be made now: {}",
                        count(*stuck, "chunk"),
                        stuck_why.as_deref().unwrap_or("no donor can take them")
                    )),
                })
            }
            _ => None,
        }
    }
}

/// Chunks that wait or are being made, and bytes.
fn to_make(repair: &RepairState) -> (u64, u64) {
    (repair.queued.iter().sum::<u64>() + repair.under_way, repair.bytes_left)
}

/// What becomes of what was said of a donor, and what there is to say.
fn presence(before: Presence, donor: &DonorStatus) -> (Presence, Option<Line>) {
    let named = called(&donor.name, donor.donor);
    let silent = donor.silent_seconds.unwrap_or(0);
    match (before, donor.state) {
        (Presence::Silent(was) | Presence::GivenUp(was), DonorState::Live) => {
            let line = format!("{named} is back; it was silent for {}", seconds(was));
            (Presence::Here, Some(Line::Info(line)))
        }
        (_, DonorState::Live) => (Presence::Here, None),
        (Presence::Here, DonorState::Suspect | DonorState::Silent | DonorState::Away) => {
            let line = match donor.away_seconds {
                Some(left) => Line::Info(format!(
                    "{named} is away, as was announced; it is waited for {} more",
                    seconds(left)
                )),
                None => Line::Info(format!(
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
            (Presence::GivenUp(silent), Some(Line::Warn(line)))
        }
        (before, _) => (before, None),
    }
}

#[cfg(test)]
mod tests;
