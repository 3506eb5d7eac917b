//! Scenarios that test one thing each, beside those that seeds draw: donors that lie in every way, and
//! trouble at every change of a disk during one write and commit.

use crate::cast::{CLIENTS, DONORS, Who};
use crate::content::{CHUNK, Content};
use crate::disk::lies::Lie;
use crate::disk::trouble::{Kind, Trouble};
use crate::plan::{Event, Fault, Op, Plan, Step, redundancy};
use potluck_core::policy::{AckLevel, Redundancy};
use potluck_wire::control::Condition;
use std::time::Duration;

/// The redundancies with which liars are tried.
const REDUNDANCIES: [&str; 4] = ["2", "3", "2+1", "2+2"];
/// The time at which liars begin to lie. Everything is stored by then.
const LIES_BEGIN: Duration = Duration::from_secs(5);
/// The time at which everything is read: long enough after [`LIES_BEGIN`] that no recent change
/// allows a read to fail ([`crate::health`]).
const LIES_READ: Duration = Duration::from_secs(42);
/// How long the liars lie: until everything was read, and bad copies were reported.
const LIES_LAST: Duration = Duration::from_secs(60);

/// A scenario with a name.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of the scenario, such as `liar/BitFlip/2 copies/1`.
    pub name: String,
    /// The plan of what happens.
    pub plan: Plan,
}

/// Returns a case for every kind of lie and every number of liars from one to one more than is tolerated. While
/// no more lie than is tolerated every read must succeed; no read may ever return wrong bytes; and donors
/// whose lies harm must be named in the pool's status.
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

/// Returns two of these cases for every kind of lie: as many liars as one redundancy tolerates, and one more.
pub fn few_liars() -> Vec<Case> {
    let redundancies = REDUNDANCIES.map(redundancy).into_iter().cycle();
    let pairs = Lie::ALL.into_iter().zip(redundancies).flat_map(|(lie, redundancy)| {
        let most = redundancy.tolerates();
        (most..=most + 1).map(move |liars| format!("liar/{lie:?}/{redundancy}/{liars}"))
    });
    let named: Vec<String> = pairs.collect();
    liars().into_iter().filter(|case| named.contains(&case.name)).collect()
}

/// Returns a case for every kind of trouble at each of the first `changes` changes of a donor's disk.
pub fn sweep(changes: u64) -> Vec<Case> {
    let points = Kind::ALL.into_iter().flat_map(|kind| (1..=changes).map(move |at| (kind, at)));
    points.map(|(kind, at)| trouble(Trouble { at, kind })).collect()
}

/// Returns the sweep's scenario without trouble, which counts the changes of the disk.
pub fn sweep_without_trouble() -> Case {
    trouble(Trouble { at: 0, kind: Kind::Kill })
}

/// The name of the case in which a donor is hot while files are read that it has copies of.
pub const HOT_DONOR: &str = "hot donor";
/// The name of the same case without load.
pub const NO_HOT_DONOR: &str = "no hot donor";
/// The donor that is hot.
pub const HOT: u8 = 0;
/// The times, since the scripts began, between which files are read while it is hot. Everything is stored before, and
/// loads are known.
pub const READ_WHILE_HOT: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(30)];

/// Returns the case of this name.
pub fn find(name: &str) -> Option<Case> {
    if let Some(rest) = name.strip_prefix("sweep/") {
        let (kind, at) = rest.split_once('/')?;
        let kind = Kind::ALL.into_iter().find(|known| format!("{known:?}") == kind)?;
        return Some(trouble(Trouble { at: at.parse().ok()?, kind }));
    }
    match name {
        HOT_DONOR => Some(hot_donor(name, true)),
        NO_HOT_DONOR => Some(hot_donor(name, false)),
        _ => liars().into_iter().find(|case| case.name == name),
    }
}

/// Makes a plan without faults and without steps of clients.
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

fn hot_donor(name: &str, is_hot: bool) -> Case {
    let mut plan = quiet(11, Redundancy::Copies(2));
    let paths: Vec<String> = (0..4).map(|number| format!("own-0/{number}")).collect();
    let writes = paths.iter().zip(1..).map(|(path, number)| put(Duration::ZERO, path, number, 12));
    let [from, until] = READ_WHILE_HOT;
    let reads = paths.iter().map(|path| Step { at: from, op: Op::Get(path.clone(), 0) });
    plan.scripts[0] = writes.chain(reads).collect();
    if is_hot {
        let at = from / 2;
        plan.faults = vec![Event { at, lasts: until - at, fault: Fault::FillMemory(HOT) }];
    }
    Case { name: name.to_owned(), plan }
}

fn liar(seed: u64, redundancy: Redundancy, lie: Lie, liars: u8) -> Plan {
    let mut plan = quiet(seed, redundancy);
    // All contents have one length, so that only its name tells a chunk from another file's or an older version's.
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
    // The second write replaces the first, so that afterwards the old or the new content is there (D2).
    plan.scripts[0] =
        vec![put(Duration::ZERO, "own-0/0", 1, 6), put(Duration::from_secs(1), "own-0/0", 2, 6)];
    let lasts = Duration::from_secs(12);
    plan.faults = vec![Event { at: Duration::ZERO, lasts, fault: Fault::Trouble(0, trouble) }];
    Case { name: format!("sweep/{:?}/{}", trouble.kind, trouble.at), plan }
}
