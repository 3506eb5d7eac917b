//! The plan that a seed expands to: the pool's options, the scripts of its clients, and the faults. It is drawn
//! whole before the run, so that it can be printed for a failing seed.

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

/// The number of steps of each client, without the races.
const STEPS: u64 = 16;
/// The time by which the last step is due.
const SCRIPT: Duration = Duration::from_secs(150);
/// The time by which the last fault begins; one that strikes during a write may begin a moment later.
const LAST_FAULT: Duration = Duration::from_secs(110);
/// The number of contents to choose from: few enough that files share chunks.
const NUMBERS: u64 = 12;
/// The values of [`Plan::repair_grace`] to choose from: shorter than many faults last, or longer than any does.
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
    /// The step of simulated time. Messages arrive at its multiples.
    pub tick: Duration,
    /// The redundancy of all files. As many donors as it tolerates may be away or damaged.
    pub redundancy: Redundancy,
    /// Whether clients encrypt chunks.
    pub sealed: bool,
    /// The ack level at which donors acknowledge writes.
    pub ack: AckLevel,
    /// The longest time that a message takes.
    pub latency: Duration,
    /// The number of messages that a connection holds before its writer waits.
    pub window: usize,
    /// The error of each machine's wall clock, in milliseconds.
    pub skews: Vec<(Who, i64)>,
    /// The only donor whose disk may lose acknowledged data, in plans that seeds draw.
    pub victim: u8,
    /// How long a donor may be silent before its chunks are made again elsewhere.
    pub repair_grace: Duration,
    /// Whether the run goes on after all faults are over until nothing is left of uncommitted writes, and
    /// every file is as safe as its policy promises.
    pub until_clean: bool,
    /// Whether a donor whose lies harm must be named in the pool's status before it stops lying.
    pub name_liars: bool,
    /// The script of each client.
    pub scripts: Vec<Vec<Step>>,
    /// The faults, in the order in which they begin.
    pub faults: Vec<Event>,
}

/// An action of a client with its time.
#[derive(Debug, Clone)]
pub struct Step {
    /// The earliest time at which the step begins, counted from the beginning of all scripts.
    pub at: Duration,
    /// The action of the client.
    pub op: Op,
}

/// An action of a client.
#[derive(Debug, Clone)]
pub enum Op {
    /// Stores files in one write session.
    Put {
        /// The path and the content of each file.
        files: Vec<(String, Content)>,
        /// The condition under which they may replace existing files.
        condition: Condition,
        /// Whether their total size is told beforehand.
        known: bool,
    },
    /// Stores a file whose source fails halfway.
    Torn(String, Content),
    /// Reads a file from an offset on, in bytes.
    Get(String, u64),
    /// Removes the file at a path.
    Remove(String),
    /// Lists the directory at a path.
    List(String),
    /// Notes the chunks of a file.
    Recipe(String),
}

/// A fault with its time.
#[derive(Debug, Clone)]
pub struct Event {
    /// The time at which it begins, counted from the beginning of the scripts.
    pub at: Duration,
    /// The time for which it lasts.
    pub lasts: Duration,
    /// The fault that happens.
    pub fault: Fault,
}

/// A fault of a machine, a link or a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No message passes between two machines.
    Cut(Who, Who),
    /// Messages of the first machine do not reach the second.
    OneWay(Who, Who),
    /// The process is killed and started again later.
    Kill(Who),
    /// The machine of a donor loses power, and gets it back at the end.
    PowerCut(u8),
    /// All donors lose power at once, and the manager is killed.
    Blackout,
    /// One bit flips in each of some of the victim's chunks.
    Flip,
    /// Other files fill a donor's disk, but for this number of bytes.
    Fill(u8, u64),
    /// A donor's disk returns other bytes for chunks than were written.
    Lie(u8, Lie),
    /// A donor's disk is copied, and at the end of the fault the copy takes its place.
    Stale(u8),
    /// Trouble strikes at one change of a donor's disk.
    Trouble(u8, Trouble),
    /// The owner's programs take nearly all of the memory of a donor's machine, which makes the donor hot. No seed draws
    /// this.
    FillMemory(u8),
    /// A machine's wall clock jumps by this number of milliseconds.
    Jump(Who, i64),
    /// A bit flips in every chunk on every donor. No seed draws this: it exceeds what is promised, and proves that
    /// the checks notice a loss.
    Ruin,
}

impl Plan {
    /// Adds [`Fault::Ruin`], a loss that repair cannot make good.
    pub fn with_ruin(mut self) -> Self {
        let ruin = Event { at: 2 * LAST_FAULT, lasts: Duration::ZERO, fault: Fault::Ruin };
        self.faults.push(ruin);
        self
    }

    /// Draws the plan that `seed` expands to.
    pub fn draw(seed: u64) -> Self {
        let draw = Draw::new(seed, "options");
        let ack = draw.pick(&[AckLevel::Memory, AckLevel::Disk]);
        // The tick is mostly coarse, because the time of a run grows with its ticks.
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

/// Parses a number of copies, or an erasure code such as `2+1`.
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
    // All clients write to the same path at the same time.
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

/// Drops files whose path occurs twice: the outcome of that in one session is undefined.
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

/// Draws the faults of a scenario: a partition, a crash of a donor, one of the manager or a client, and some more.
/// Together they stay within what must be survived: only the victim may lose acknowledged data. Other
/// donors lose power only with [`AckLevel::Disk`], where acknowledged data is synced.
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
    /// Draws a time for the fault that `what` draws. The fault may concern the client that `what` is given.
    fn event(&self, what: impl Fn(&Self, Who) -> Fault) -> Event {
        let (client, at) = self.moment();
        let lasts = if self.draw.chance(40) { (1, 8) } else { (8, 70) };
        let fault = what(self, client);
        Event { at, lasts: seconds(self.draw, lasts.0, lasts.1), fault }
    }

    /// Draws a client and a time, mostly in the middle of one of its writes: writes are where faults matter, and short.
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
