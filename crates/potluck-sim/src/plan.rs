//! The plan that a seed expands to: the pool, what its clients do, and what goes wrong. Drawn whole before
//! the run, so that a failing seed can show it.

use crate::cast::{CLIENTS, DONORS, Who};
use crate::content::{CHUNK, Content};
use crate::disk::lies::Lie;
use crate::disk::trouble::Trouble;
use crate::draw::Draw;
use potluck_core::policy::{AckLevel, Redundancy};
use potluck_wire::control::Condition;
use std::fmt;
use std::time::Duration;

/// The redundancies that seeds draw from.
const REDUNDANCIES: [&str; 6] = ["2", "2", "3", "2+1", "3+1", "2+2"];

/// Steps of each client.
const STEPS: u64 = 16;
/// When the last of them begins at the latest.
const SCRIPT: Duration = Duration::from_secs(150);
/// When the last fault begins at the latest.
const LAST_FAULT: Duration = Duration::from_secs(110);
/// Contents to choose from: few enough that files share chunks.
const NUMBERS: u64 = 12;
/// How long donors may be silent: shorter than most faults, or longer than any.
const GRACES: [Duration; 4] = [
    Duration::from_secs(6),
    Duration::from_secs(6),
    Duration::from_secs(20),
    Duration::from_secs(600),
];
const DAY_MS: i64 = 86_400_000;

/// The plan of a scenario.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed, from which everything follows.
    pub seed: u64,
    /// How far the simulation goes at a time; messages arrive at its multiples.
    pub tick: Duration,
    /// The redundancy that keeps files; so many donors as it tolerates may be away or spoiled.
    pub redundancy: Redundancy,
    /// Whether clients seal chunks.
    pub sealed: bool,
    /// The ack level at which donors acknowledge.
    pub ack: AckLevel,
    /// The longest a message takes.
    pub latency: Duration,
    /// Messages a connection holds before its writer waits.
    pub window: usize,
    /// The error of each machine's wall clock, in milliseconds.
    pub skews: Vec<(Who, i64)>,
    /// The one donor whose disk may lose what was acknowledged.
    pub victim: u8,
    /// A donor silent for longer is repaired after.
    pub repair_grace: Duration,
    /// Whether, when everything is healed, it is waited until nothing is left of what was not
    /// committed, and everything is as safe as it should be.
    pub until_clean: bool,
    /// Whether donors whose reads lie must be named before they stop.
    pub name_liars: bool,
    /// The script of each client.
    pub scripts: Vec<Vec<Step>>,
    /// The faults, in order.
    pub faults: Vec<Event>,
}

/// One thing a client does.
#[derive(Debug, Clone)]
pub struct Step {
    /// The time before which the step does not begin.
    pub at: Duration,
    /// The action of the client.
    pub op: Op,
}

/// An action of a client.
#[derive(Debug, Clone)]
pub enum Op {
    /// Stores files in one session.
    Put {
        /// The path and the content of each file.
        files: Vec<(String, Content)>,
        /// The condition under which they may replace what is there.
        condition: Condition,
        /// Whether their size is told beforehand.
        known: bool,
    },
    /// Stores a file whose source breaks off.
    Torn(String, Content),
    /// Reads a file, from a byte on.
    Get(String, u64),
    /// Removes the file at a path.
    Remove(String),
    /// Lists the directory at a path.
    List(String),
    /// Notes which chunks a file has.
    Recipe(String),
}

/// Something that goes wrong for a while.
#[derive(Debug, Clone)]
pub struct Event {
    /// The time at which it begins.
    pub at: Duration,
    /// The time for which it lasts.
    pub lasts: Duration,
    /// The fault that happens.
    pub fault: Fault,
}

/// A fault of a machine, a link or a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Two machines don't hear each other.
    Cut(Who, Who),
    /// The second does not hear the first.
    OneWay(Who, Who),
    /// The process is killed and started again later.
    Kill(Who),
    /// The machine loses power.
    PowerCut(u8),
    /// All donors lose power at once, and the manager is killed.
    Blackout,
    /// Bits of some of the victim's chunks flip.
    Flip,
    /// Somebody fills a donor's disk but for so many bytes.
    Fill(u8, u64),
    /// A donor's disk gives something else than was written.
    Lie(u8, Lie),
    /// A donor's disk is copied, and at the end of the fault the copy takes its place.
    Stale(u8),
    /// Something happens at one change of a donor's disk.
    Trouble(u8, Trouble),
    /// A wall clock jumps by so many milliseconds.
    Jump(Who, i64),
    /// Every chunk on every donor is spoiled. No seed draws this: it is more than is promised, and
    /// shows that the checks see a loss.
    Ruin,
}

impl Plan {
    /// Returns the plan with a loss added that nothing can make good.
    pub fn with_ruin(mut self) -> Self {
        let ruin = Event { at: 2 * LAST_FAULT, lasts: Duration::ZERO, fault: Fault::Ruin };
        self.faults.push(ruin);
        self
    }

    /// Draws the plan that `seed` expands to.
    pub fn draw(seed: u64) -> Self {
        let draw = Draw::new(seed, "options");
        let ack = draw.pick(&[AckLevel::Memory, AckLevel::Disk]);
        // The tick is mostly coarse, for what a run costs is its ticks.
        let tick = Duration::from_millis(draw.pick(&[10, 20, 20, 20, 40, 40]));
        let skew = |who| (who, draw.between(0, 800) as i64 * DAY_MS - 400 * DAY_MS);
        let skews = Who::mortals().map(skew).collect();
        let victim = draw.below(DONORS.into()) as u8;
        let redundancy = redundancy(draw.pick(&REDUNDANCIES));
        let scripts = scripts(&Draw::new(seed, "scripts"));
        Self {
            seed,
            tick,
            redundancy,
            sealed: draw.chance(50),
            ack,
            latency: tick.max(Duration::from_millis(draw.pick(&[2, 10, 40]))),
            window: draw.pick(&[32, 64, 256]),
            skews,
            victim,
            repair_grace: Draw::new(seed, "repair").pick(&GRACES),
            until_clean: true,
            name_liars: false,
            faults: faults(&Draw::new(seed, "faults"), ack, victim, &scripts),
            scripts,
        }
    }
}

/// A number of copies, or an erasure code.
pub fn redundancy(text: &str) -> Redundancy {
    match text.parse() {
        Ok(copies) => Redundancy::Copies(copies),
        Err(_) => Redundancy::Ec(text.parse().expect("an erasure code")),
    }
}

fn seconds(draw: &Draw, first: u64, last: u64) -> Duration {
    Duration::from_millis(draw.between(1000 * first, 1000 * last))
}

// ---- what clients do

fn scripts(draw: &Draw) -> Vec<Vec<Step>> {
    let mut scripts: Vec<Vec<Step>> =
        (0..CLIENTS).map(|client| (0..STEPS).map(|_| step(draw, client)).collect()).collect();
    // All clients want the same path at the same time.
    for race in 0..3 {
        let at = seconds(draw, 0, SCRIPT.as_secs());
        for script in &mut scripts {
            let files = vec![(format!("once/{race}"), content(draw))];
            script.push(Step {
                at,
                op: Op::Put { files, condition: Condition::IfAbsent, known: draw.chance(50) },
            });
        }
    }
    for script in &mut scripts {
        script.sort_by_key(|step| step.at);
    }
    scripts
}

fn step(draw: &Draw, client: u8) -> Step {
    let at = seconds(draw, 0, SCRIPT.as_secs());
    let op = match draw.below(100) {
        0..50 => {
            let files = if draw.chance(25) {
                (0..draw.between(2, 6)).map(|_| (own(draw, client), content(draw))).collect()
            } else {
                vec![(path(draw, client), content(draw))]
            };
            Op::Put { files: distinct(files), condition: Condition::Always, known: draw.chance(50) }
        }
        50..55 => Op::Torn(path(draw, client), content(draw)),
        55..80 => {
            let of = draw.below(CLIENTS.into()) as u8;
            Op::Get(path(draw, of), if draw.chance(30) { draw.below(300_000) } else { 0 })
        }
        80..88 => Op::Remove(path(draw, client)),
        _ => Op::List(draw.pick(&["shared", "once", "own-0", "own-1", "own-2"]).to_owned()),
    };
    Step { at, op }
}

/// One path twice in a session has no defined outcome.
fn distinct(mut files: Vec<(String, Content)>) -> Vec<(String, Content)> {
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files.dedup_by(|a, b| a.0 == b.0);
    files
}

fn own(draw: &Draw, client: u8) -> String {
    format!("own-{client}/{}", draw.below(6))
}

fn path(draw: &Draw, client: u8) -> String {
    if draw.chance(30) { format!("shared/{}", draw.below(3)) } else { own(draw, client) }
}

fn content(draw: &Draw) -> Content {
    let chunk = u64::from(CHUNK);
    let len = match draw.below(10) {
        0 => draw.pick(&[0, 1, 4095, 4096, 4097]),
        1 => draw.pick(&[chunk - 1, chunk, chunk + 1, 4 * chunk]),
        2..7 => draw.between(1, 6 * chunk),
        _ => draw.between(1, 32 * chunk),
    };
    Content { number: draw.below(NUMBERS), len }
}

// ---- what goes wrong

/// Every scenario has a partition, a crash of a donor, and one of the manager or a client; the rest
/// is open. All of it together stays inside what must be survived: only the victim loses what it
/// acknowledged, unless acknowledged means synced.
fn faults(draw: &Draw, ack: AckLevel, victim: u8, scripts: &[Vec<Step>]) -> Vec<Event> {
    let faults = Faults { draw, ack, victim, scripts };
    let mut events = vec![
        faults.event(|faults, client| faults.cut(client)),
        faults.event(|faults, _| {
            if faults.draw.chance(30) { faults.power_cut() } else { Fault::Kill(faults.donor()) }
        }),
        faults.event(|faults, client| {
            Fault::Kill(if faults.draw.chance(50) { Who::Manager } else { client })
        }),
    ];
    events.extend((0..draw.between(1, 5)).map(|_| faults.event(Faults::any)));
    events.sort_by_key(|event| event.at);
    events
}

struct Faults<'a> {
    draw: &'a Draw,
    ack: AckLevel,
    victim: u8,
    scripts: &'a [Vec<Step>],
}

impl Faults<'_> {
    /// A fault that `what` draws, given a client that it may concern.
    fn event(&self, what: impl Fn(&Self, Who) -> Fault) -> Event {
        let (client, at) = self.moment();
        let lasts = if self.draw.chance(40) { (1, 8) } else { (8, 70) };
        let fault = what(self, client);
        Event { at, lasts: seconds(self.draw, lasts.0, lasts.1), fault }
    }

    /// Mostly in the middle of a write: they are what can go wrong, and short.
    fn moment(&self) -> (Who, Duration) {
        let client = self.draw.below(CLIENTS.into()) as u8;
        let writes = self.scripts[usize::from(client)]
            .iter()
            .filter(|step| matches!(step.op, Op::Put { .. }) && step.at < LAST_FAULT);
        let writes: Vec<Duration> = writes.map(|step| step.at).collect();
        let at = if writes.is_empty() || self.draw.chance(20) {
            seconds(self.draw, 1, LAST_FAULT.as_secs())
        } else {
            self.draw.pick(&writes) + Duration::from_millis(self.draw.below(700))
        };
        (Who::Client(client), at)
    }

    fn donor(&self) -> Who {
        Who::Donor(self.draw.below(DONORS.into()) as u8)
    }

    fn cut(&self, client: Who) -> Fault {
        match self.draw.below(6) {
            0 | 1 => Fault::Cut(client, self.donor()),
            2 | 3 => Fault::Cut(Who::Manager, self.donor()),
            4 => Fault::Cut(Who::Manager, client),
            _ if self.draw.chance(50) => Fault::OneWay(self.donor(), client),
            _ => Fault::OneWay(client, self.donor()),
        }
    }

    fn power_cut(&self) -> Fault {
        match self.ack {
            AckLevel::Memory => Fault::PowerCut(self.victim),
            AckLevel::Disk => Fault::PowerCut(self.draw.below(DONORS.into()) as u8),
        }
    }

    fn any(&self, client: Who) -> Fault {
        let draw = self.draw;
        match draw.below(15) {
            0..3 => self.cut(client),
            3 | 4 => Fault::Kill(self.donor()),
            5 => Fault::Kill(Who::Manager),
            6 => Fault::Kill(client),
            7 => self.power_cut(),
            8 if self.ack == AckLevel::Disk => Fault::Blackout,
            8 | 9 => Fault::Flip,
            10 => Fault::Fill(draw.below(DONORS.into()) as u8, draw.below(400_000)),
            11 | 12 => Fault::Lie(self.victim, draw.pick(&Lie::ALL)),
            13 => Fault::Stale(self.victim),
            _ => Fault::Jump(
                draw.pick(&[Who::Manager, self.donor(), client]),
                draw.between(0, 20) as i64 * DAY_MS - 10 * DAY_MS,
            ),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed, tick, redundancy, sealed, ack, latency, window, victim, repair_grace, ..
        } = self;
        writeln!(
            f,
            "seed {seed}: {redundancy}, sealed {sealed}, ack {ack}, latency {latency:?}, tick {tick:?}, \
             window {window}, victim donor-{victim}, grace {repair_grace:?}"
        )?;
        for (who, skew) in &self.skews {
            writeln!(f, "  the clock of {who} is {} days wrong", skew / DAY_MS)?;
        }
        for Event { at, lasts, fault } in &self.faults {
            writeln!(f, "  at {at:?} for {lasts:?}: {fault:?}")?;
        }
        for (client, script) in self.scripts.iter().enumerate() {
            for Step { at, op } in script {
                writeln!(f, "  client-{client} at {at:?}: {op}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { files, condition, known } => {
                write!(f, "put")?;
                files.iter().try_for_each(|(path, content)| write!(f, " {path}={content}"))?;
                let size = if *known { "known" } else { "unknown" };
                write!(f, " ({condition:?}, size {size})")
            }
            Self::Torn(path, content) => write!(f, "torn put {path}={content}"),
            Self::Get(path, 0) => write!(f, "get {path}"),
            Self::Get(path, from) => write!(f, "get {path} from byte {from}"),
            Self::Remove(path) => write!(f, "remove {path}"),
            Self::List(dir) => write!(f, "list {dir}"),
            Self::Recipe(path) => write!(f, "look up {path}"),
        }
    }
}
