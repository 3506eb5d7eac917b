//! Scenarios with one question each, beside those that seeds draw: liars of every kind, and trouble at
//! every change of a disk during one write and commit.

use crate::cast::{CLIENTS, DONORS, Who};
use crate::content::{CHUNK, Content};
use crate::disk::lies::Lie;
use crate::disk::trouble::{Kind, Trouble};
use crate::plan::{Event, Fault, Op, Plan, Step, redundancy};
use potluck_core::policy::{AckLevel, Redundancy};
use potluck_wire::control::Condition;
use std::time::Duration;

/// The redundancies that liars are tried with.
const REDUNDANCIES: [&str; 4] = ["2", "3", "2+1", "2+2"];
/// When liars begin to lie: everything is stored.
const LIES_BEGIN: Duration = Duration::from_secs(5);
/// When everything is read: what the change may excuse is over.
const LIES_READ: Duration = Duration::from_secs(42);
/// How long they lie: until everything was read, and reported.
const LIES_LAST: Duration = Duration::from_secs(60);

/// A scenario by its name.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of the scenario, such as `liar/BitFlip/2 copies/1`.
    pub name: String,
    /// The plan of what happens.
    pub plan: Plan,
}

/// Every kind of lie, told by as many donors as are tolerated, and by one more. Of the former every
/// read must succeed; of the latter none may give wrong bytes; either way the liars are named.
pub fn liars() -> Vec<Case> {
    let mut cases = Vec::new();
    for redundancy in REDUNDANCIES.map(redundancy) {
        let most = redundancy.tolerates() as u8;
        for (lie, liars) in
            Lie::ALL.into_iter().flat_map(|lie| (1..=most + 1).map(move |n| (lie, n)))
        {
            let name = format!("liar/{lie:?}/{redundancy}/{liars}");
            cases.push(Case { plan: liar(cases.len() as u64, redundancy, lie, liars), name });
        }
    }
    cases
}

/// Trouble at each of so many changes of a donor's disk, of every kind.
pub fn sweep(changes: u64) -> Vec<Case> {
    let points = Kind::ALL.into_iter().flat_map(|kind| (1..=changes).map(move |at| (kind, at)));
    points.map(|(kind, at)| trouble(Trouble { at, kind })).collect()
}

/// The sweep's scenario without trouble: it tells how many changes there are.
pub fn sweep_without_trouble() -> Case {
    trouble(Trouble { at: 0, kind: Kind::Kill })
}

/// The case of this name.
pub fn find(name: &str) -> Option<Case> {
    if let Some(rest) = name.strip_prefix("sweep/") {
        let (kind, at) = rest.split_once('/')?;
        let kind = Kind::ALL.into_iter().find(|known| format!("{known:?}") == kind)?;
        return Some(trouble(Trouble { at: at.parse().ok()?, kind }));
    }
    liars().into_iter().find(|case| case.name == name)
}

/// Makes a plan in which nothing goes wrong, and nobody does anything.
fn quiet(seed: u64, redundancy: Redundancy) -> Plan {
    Plan {
        seed,
        tick: Duration::from_millis(20),
        redundancy,
        sealed: seed.is_multiple_of(2),
        ack: AckLevel::Disk,
        latency: Duration::from_millis(20),
        window: 64,
        skews: Who::mortals().map(|who| (who, 0)).collect(),
        victim: 0,
        repair_grace: Duration::from_secs(600),
        until_clean: false,
        name_liars: false,
        scripts: (0..CLIENTS).map(|_| Vec::new()).collect(),
        faults: Vec::new(),
    }
}

fn put(at: Duration, path: &str, number: u64, chunks: u64) -> Step {
    let content = Content { number, len: chunks * u64::from(CHUNK) };
    let files = vec![(path.to_owned(), content)];
    Step { at, op: Op::Put { files, condition: Condition::Always, known: true } }
}

fn liar(seed: u64, redundancy: Redundancy, lie: Lie, liars: u8) -> Plan {
    let mut plan = quiet(seed, redundancy);
    // All contents have one length, so that another chunk and an older version are only told by their names.
    let writes = [("own-0/0", 1), ("own-0/1", 2), ("own-0/0", 3)];
    let writes = writes.map(|(path, number)| put(Duration::ZERO, path, number, 12));
    let reads = ["own-0/0", "own-0/1"].map(|path| Op::Get(path.to_owned(), 0));
    let reads = reads.map(|op| Step { at: LIES_READ, op });
    plan.scripts[0] = writes.into_iter().chain(reads).collect();
    plan.name_liars = true;
    plan.faults = (0..liars)
        .map(|donor| (donor + seed as u8) % DONORS)
        .map(|donor| Event { at: LIES_BEGIN, lasts: LIES_LAST, fault: Fault::Lie(donor, lie) })
        .collect();
    plan
}

fn trouble(trouble: Trouble) -> Case {
    let mut plan = quiet(7, Redundancy::Copies(2));
    // The second write replaces the first: the old or the new content is there afterwards (D2).
    plan.scripts[0] =
        vec![put(Duration::ZERO, "own-0/0", 1, 6), put(Duration::from_secs(1), "own-0/0", 2, 6)];
    let lasts = Duration::from_secs(12);
    plan.faults = vec![Event { at: Duration::ZERO, lasts, fault: Fault::Trouble(0, trouble) }];
    Case { name: format!("sweep/{:?}/{}", trouble.kind, trouble.at), plan }
}
