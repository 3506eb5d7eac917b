//! Plays whole pools under seeded faults, and checks the promises of docs/promises.md for every seed.
//!
//! - `POTLUCK_SIM_SEEDS=200` sets how many seeds are tried; more than the default say now and then how many are done.
//! - `POTLUCK_SIM_LIARS=all` has each liar beside each redundancy, and one more of them than is tolerated.
//! - `POTLUCK_SIM_SEED=7 cargo test -p potluck-sim -- replay --nocapture` plays one seed, and prints its plan,
//!   its trace, and with `RUST_LOG=debug` the log of the product.
//! - `POTLUCK_SIM_CASE='liar/BitFlip/2 copies/1'` instead of a seed plays a case of `cases`.
//!
//! Every run is a process of its own, which starts this executable again, because libraries keep counters
//! in statics: tokio draws from one the order in which `select!` polls.

use potluck_sim::cases;
use potluck_sim::disk::Drive;
use potluck_sim::plan::Plan;
use potluck_sim::run::{Outcome, run};
use potluck_sim::year::{self, YearOptions};
use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// The environment variable with the seed to play in this process.
const SEED: &str = "POTLUCK_SIM_SEED";
/// The environment variable with the name of the case to play in this process.
const CASE: &str = "POTLUCK_SIM_CASE";
/// The environment variable with the path to which this process writes its trace.
const TRACE: &str = "POTLUCK_SIM_TRACE";
/// The environment variable that adds a loss to the scenario, which must be noticed.
const RUIN: &str = "POTLUCK_SIM_RUIN";
/// The environment variable with the number of seeds to try.
const SEEDS: &str = "POTLUCK_SIM_SEEDS";
/// The number of seeds that are tried by default: as many as the test command has time for.
const DEFAULT_SEEDS: u64 = 40;
/// Seeds that broke a promise once, and are tried always: a chunk that was told to be stored lost its last file before
/// the commit; groups were written by a user while a donor was dead.
const ONCE_BROKEN: [u64; 2] = [57, 65];
/// The environment variable with which all pools with liars are tried.
const LIARS: &str = "POTLUCK_SIM_LIARS";
/// The number of seeds after which a long run says how many are done.
const TOLD_EVERY: u64 = 100;

/// The seed of [`getrandom`] in every thread.
static CHANCE: AtomicU64 = AtomicU64::new(0);
/// Whether any thread or task has panicked, also a task that nothing joins.
static PANICKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

/// Replaces the system's source of randomness for libraries, mainly for hash maps, by one that follows from
/// the seed. Keys and certificates do not use it.
///
/// # Safety
/// As the system's: `out` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(out: *mut u8, len: usize, _flags: u32) -> isize {
    // SAFETY: the caller promises that the memory is there.
    let out = unsafe { std::slice::from_raw_parts_mut(out, len) };
    for byte in out {
        let drawn = DRAWN.get() + 1;
        DRAWN.set(drawn);
        // The bits are mixed by splitmix64.
        let mut x = CHANCE.load(Ordering::Relaxed) ^ drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        *byte = (x ^ (x >> 31)) as u8;
    }
    len as isize
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not “{text}”")))
}

/// A scenario to play: a seed's, or a case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Seed(u64),
    Case(String),
}

impl Piece {
    /// Returns the environment variable, with its value, that makes a process play it.
    fn variable(&self) -> (&'static str, String) {
        match self {
            Self::Seed(seed) => (SEED, seed.to_string()),
            Self::Case(name) => (CASE, name.clone()),
        }
    }

    /// Returns the piece that this process was started to play.
    fn wanted() -> Option<Self> {
        let case = std::env::var(CASE).ok().map(Self::Case);
        case.or_else(|| number(SEED).map(Self::Seed))
    }

    /// Returns the command that plays it again.
    fn command(&self) -> String {
        let (name, value) = self.variable();
        format!("{name}='{value}' cargo test -p potluck-sim -- replay --nocapture")
    }

    fn plan(&self) -> Plan {
        match self {
            Self::Seed(seed) => Plan::draw(*seed),
            Self::Case(name) => cases::find(name).unwrap_or_else(|| panic!("no case {name}")).plan,
        }
    }
}

/// Plays `piece` in another process, which writes its trace to `trace`.
fn play(piece: &Piece, trace: &Path) -> Output {
    player(piece, trace).output().expect("this executable starts")
}

fn player(piece: &Piece, trace: &Path) -> Command {
    let mut player = Command::new(std::env::current_exe().expect("this executable"));
    let (name, value) = piece.variable();
    player
        .args(["replay", "--exact", "--nocapture", "--test-threads=1"])
        .env(name, value)
        .env(TRACE, trace);
    player
}

/// Plays all `pieces`, as many at a time as there are cores, and returns those that failed. Tells of each that fails as it
/// comes, because all seeds of a long run take hours.
fn play_all(pieces: &[Piece]) -> Vec<(Piece, Output)> {
    let (_dir, trace) = traces();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_long = matches!(pieces, [Piece::Seed(_), ..]) && pieces.len() as u64 > 4 * DEFAULT_SEEDS;
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(piece) = pieces.get(number as usize) else { return failed };
                let trace = trace(&number.to_string());
                let played = play(piece, &trace);
                if !played.status.success() {
                    let (_, value) = piece.variable();
                    say(&format!("{value} failed: {}\n  {}\n", reason(&played), piece.command()));
                    failed.push((piece.clone(), played));
                }
                // The traces of all runs together would take much space.
                let _ = std::fs::remove_file(trace);
                let count = done.fetch_add(1, Ordering::Relaxed) + 1;
                if is_long && count.is_multiple_of(TOLD_EVERY) {
                    say(&format!("{count} of {} seeds are done\n", pieces.len()));
                }
            }
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    })
}

/// Returns the first line of the reason for which a piece failed.
fn reason(played: &Output) -> String {
    let said = String::from_utf8_lossy(&played.stderr);
    // The message of a panic begins below the line that says where it happened.
    let panic = said.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
    panic.map_or_else(|| played.status.to_string(), str::to_owned)
}

/// Prints how many pieces kept every promise, and fails with the first one that failed.
fn all_kept(what: &str, pieces: &[Piece], failed: &[(Piece, Output)]) {
    let which: Vec<String> = failed.iter().map(|(piece, _)| piece.variable().1).collect();
    let kept = pieces.len() - which.len();
    say(&format!("{kept} of {} {what} kept every promise; broken by {which:?}\n", pieces.len()));
    if let Some((piece, played)) = failed.first() {
        check(piece, played);
    }
}

/// Writes to standard output past the test harness, so that it is seen at once, and although the test passes.
fn say(text: &str) {
    // A closed output must not fail the test.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn check(piece: &Piece, played: &Output) {
    if !played.status.success() {
        let said = [&played.stdout[..], &played.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let (_, value) = piece.variable();
        panic!("{value} failed; play it again with\n  {}\n{said}", piece.command());
    }
}

fn traces() -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_path_buf();
    (dir, move |name| path.join(name))
}

/// Plays the seed or case that the environment names; without one it does nothing.
#[test]
fn replay() {
    let Some(piece) = Piece::wanted() else { return };
    let plan = piece.plan();
    let seed = plan.seed;
    let ruined = std::env::var_os(RUIN).is_some();
    CHANCE.store(seed, Ordering::Relaxed);
    let earlier = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICKED.store(true, Ordering::Relaxed);
        earlier(panic);
    }));
    // The run has a new thread, on which nothing was drawn yet.
    let Outcome { options, trace, hash, took, result } = thread::spawn(move || {
        let told = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_writer(std::io::stderr)
            .without_time()
            .finish();
        let _told = tracing_subscriber::util::SubscriberInitExt::set_default(told);
        run(&if ruined { plan.with_ruin() } else { plan })
    })
    .join()
    .expect("the run ends");
    if let Some(path) = std::env::var_os(TRACE) {
        std::fs::write(path, &trace).expect("the trace is kept");
    }
    let kept = result.is_ok() && !PANICKED.load(Ordering::Relaxed);
    if !kept || std::env::var_os(TRACE).is_none() {
        println!("{options}{trace}");
    }
    println!("seed {seed}: {took:?} simulated, trace {hash}");
    if let Err(broken) = result {
        panic!("seed {seed}: {broken}");
    }
    assert!(kept, "seed {seed}: the product panicked");
}

#[test]
fn the_same_seed_gives_the_same_trace_twice() {
    if Piece::wanted().is_some() {
        return; // this process plays one piece, and nothing else
    }
    let (_dir, trace) = traces();
    let seed = Piece::Seed(1);
    let paths = [trace("first"), trace("second")];
    let runs = paths.clone().map(|path| {
        let seed = seed.clone();
        thread::spawn(move || play(&seed, &path))
    });
    for run in runs {
        check(&seed, &run.join().expect("a run"));
    }
    let [first, second] = paths.map(|path| std::fs::read_to_string(path).expect("a trace"));
    assert!(first.lines().count() > 100, "something happened");
    let differ = first.lines().zip(second.lines()).enumerate().find(|(_, (a, b))| a != b);
    if let Some((line, (one, other))) = differ {
        panic!("the traces of {seed:?} part at line {line}:\n{one}\n{other}");
    }
    assert_eq!(first.len(), second.len());
}

#[test]
fn every_seed_keeps_its_promises_through_faults_d1_d2_i1_a1_a2_c1() {
    if Piece::wanted().is_some() {
        return; // this process plays one piece, and nothing else
    }
    let seeds = number(SEEDS).unwrap_or(DEFAULT_SEEDS);
    let once_broken = ONCE_BROKEN.into_iter().filter(|seed| *seed > seeds);
    let pieces: Vec<Piece> = (1..=seeds).chain(once_broken).map(Piece::Seed).collect();
    all_kept("seeds", &pieces, &play_all(&pieces));
}

#[test]
fn a_donor_that_lies_is_read_around_and_named_i1_i3_l1() {
    if Piece::wanted().is_some() {
        return; // this process plays one piece, and nothing else
    }
    let all = std::env::var_os(LIARS).is_some_and(|which| which == "all");
    let cases = if all { cases::liars() } else { cases::few_liars() };
    let pieces: Vec<Piece> = cases.into_iter().map(|case| Piece::Case(case.name)).collect();
    all_kept("pools with liars", &pieces, &play_all(&pieces));
}

#[test]
fn a_write_survives_trouble_at_every_change_of_a_disk_d1_d2_s1() {
    if Piece::wanted().is_some() {
        return; // this process plays one piece, and nothing else
    }
    let (_dir, trace) = traces();
    let (count, trace) = (Piece::Case(cases::sweep_without_trouble().name), trace("count"));
    check(&count, &play(&count, &trace));
    let told = std::fs::read_to_string(trace).expect("a trace");
    let changes = told.lines().find_map(|line| line.strip_suffix(" changes of the disk"));
    let changes = changes.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a count");
    assert!(changes >= 20, "the write changed the disk {changes} times only");
    let pieces: Vec<Piece> =
        cases::sweep(changes).into_iter().map(|case| Piece::Case(case.name)).collect();
    all_kept("points of a write", &pieces, &play_all(&pieces));
}

/// Plays a case and returns the bytes that the donor which may be hot sent while files were read.
fn sent_while_read(case: &str) -> u64 {
    let (_dir, trace) = traces();
    let (piece, path) = (Piece::Case(case.to_owned()), trace("trace"));
    check(&piece, &play(&piece, &path));
    let trace = std::fs::read_to_string(path).expect("a trace");
    // A line is the time in seconds, who, and what happened.
    let lines: Vec<(f64, &str)> = trace
        .lines()
        .filter_map(|line| line.trim_start().split_once(' '))
        .map(|(time, what)| (time.parse().expect("a time"), what.trim_start()))
        .collect();
    let read = "client-0  get ";
    let mut reads = lines.iter().filter(|(_, what)| what.starts_with(read)).map(|(time, _)| *time);
    let began = reads.next().unwrap_or_else(|| panic!("no `{read}` in\n{trace}"));
    let donor = format!("donor-{}", cases::HOT);
    let sent_until = |until: f64| {
        let notes = lines.iter().take_while(|(time, _)| *time <= until);
        let sent =
            notes.filter_map(|(_, what)| what.strip_prefix(&donor)?.trim().strip_prefix("sent "));
        let last = sent.last().and_then(|bytes| bytes.split(' ').next()?.parse::<u64>().ok());
        last.unwrap_or_else(|| panic!("no bytes of {donor} in\n{trace}"))
    };
    let [from, until] = cases::READ_WHILE_HOT;
    sent_until(began + (until - from).as_secs_f64()) - sent_until(began)
}

#[test]
fn reads_ask_other_copies_than_a_hot_donors() {
    if Piece::wanted().is_some() {
        return;
    }
    let [hot, calm] = [cases::HOT_DONOR, cases::NO_HOT_DONOR].map(sent_while_read);
    assert!(calm > 300_000, "without load it sends its part of the files: {calm} bytes");
    assert!(hot < calm / 4, "heartbeats and nothing else: {hot} bytes, and {calm} without load");
}

#[test]
fn a_loss_beyond_what_is_promised_is_noticed_l1() {
    if Piece::wanted().is_some() {
        return; // this process plays one piece, and nothing else
    }
    let (_dir, trace) = traces();
    let played = player(&Piece::Seed(1), &trace("ruin"))
        .env(RUIN, "1")
        .output()
        .expect("this executable starts");
    let said = String::from_utf8_lossy(&played.stderr).into_owned();
    assert!(!played.status.success() && said.contains("cannot be read"), "{said}");
}

#[test]
fn the_memory_disk_keeps_the_contract_of_disks() {
    let root = Path::new("/root");
    let drive = Drive::new(1 << 30, &[root]);
    potluck_donor::disk::conformance::check(&drive.process(), root);
}

#[test]
fn a_power_cut_leaves_what_was_synced_d1() {
    use potluck_donor::disk::{Disk, NewFile, read_small, replace_durably};
    use potluck_sim::draw::Draw;
    let dir = Path::new("/dir");
    for seed in 0..200 {
        let drive = Drive::new(1 << 20, &[dir]);
        let disk = drive.process();
        let path = dir.join("state.json");
        replace_durably(&disk, &path, b"one").expect("durable");
        let mut loose: Box<dyn NewFile> = disk.create(&dir.join("loose")).expect("a file");
        loose.append(b"never synced").expect("appended");
        disk.rename(&dir.join("loose"), &path).expect("renamed");
        drive.cut_power(&Draw::new(seed, "power"));
        assert!(disk.len(&path).is_err() && loose.append(b"x").is_err(), "dead men write nothing");
        let after = read_small(&drive.process(), &path, 100).expect("the old or the new");
        assert!(after == b"one" || after.len() <= b"never synced".len(), "{after:?}");
    }
}

#[test]
fn a_full_disk_says_so_s1() {
    use potluck_donor::disk::{Disk, is_full};
    let dir = Path::new("/dir");
    let drive = Drive::new(1000, &[dir]);
    drive.fill(Some(10));
    let disk = drive.process();
    let mut file = disk.create(&dir.join("file")).expect("a file");
    let full = file.append(&[7; 11]).expect_err("too much");
    assert!(is_full(&full) && full.raw_os_error().is_some());
    assert_eq!(disk.space(dir).expect("space").available, 0);
    drive.fill(None);
    file.append(&[7; 11]).expect("room again");
}

/// Plays two weeks: removed files leave nothing behind, although machines come and go, and the others can be read.
/// Memory is not compared, because other tests of this process use it as well.
#[test]
fn weeks_of_use_leak_no_resources() {
    let options = YearOptions {
        donors: 6,
        files: 200,
        days: 14,
        // With this seed one of the replaced machines gives back what it lends.
        seed: 3,
        speed: 3600,
        // The last replacement is early enough that the machine has been removed by the end.
        replace_every: 5,
        log_copies: 2,
    };
    let lived = year::run(options, |_| {}).expect("nothing is lost");
    assert_eq!(lived.days.len(), 15, "a line for each day, and one for the end");
    // Other tables, such as that of changes in the metadata log, may have more rows; the log itself is checked below.
    let (aged, fresh) = (&lived.days[14].rows, &lived.fresh.rows);
    for table in ["entries", "versions", "recipe_pages", "chunks", "placements", "donors", "trash"]
    {
        let (aged, fresh) = (aged[table], fresh[table]);
        assert!(5 * aged <= 6 * fresh, "{table} has {aged} rows, and {fresh} in a new pool");
    }
    let log = lived.ratios().into_iter().find(|ratio| ratio.name == "log").expect("a log");
    assert!(log.aged <= log.most, "the log has {} bytes, and {} anew", log.aged, log.fresh);
    let on_donors = |figures: &year::figures::Figures| figures.on_donors;
    let (aged, fresh) = (lived.days.last().map_or(0, on_donors), on_donors(&lived.fresh));
    assert!(5 * aged <= 6 * fresh, "donors keep {aged} bytes for what needs {fresh}");
}
