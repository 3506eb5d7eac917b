//! A year of ordinary use: a pool of desktops that sleep at night, are restarted each week and replaced now
//! and then, while files are written and removed each day.
//!
//! The aim is to find what grows. At the end the same files are written into a new pool, and the sizes of the old
//! pool are compared with those of the new one: rows of the catalog, its file, the metadata log, disks, memory.
//! Every file is read back.
//!
//! Unlike in [`crate::run`] there is no latency, and the only faults are machines that lose power or go for good.
//! Simulated time passes fast ([`time_lapse`]), and a call costs a few microseconds.

pub mod figures;
mod files;
pub mod machines;
pub mod plot;
pub mod time_lapse;
pub mod wires;

use crate::draw::Draw;
use crate::world::scratch;
use figures::Figures;
use files::Files;
use machines::{Desk, DonorMachine, ManagerMachine, World};
use potluck_core::clock::Clock;
use potluck_core::ids::DonorId;
use potluck_manager::ManagerConfig;
use potluck_recovery::backup;
use potluck_wire::control::{GiveBack, GiveBackStatus, Revoke};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use time_lapse::TimeLapse;
use wires::Wires;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The size that a pool may have, relative to a new pool with the same files.
pub const MOST: f64 = 1.2;
/// The number of backups of the catalog that the manager keeps.
const BACKUPS: u64 = 3;
/// The longest time from the replacement of a machine to its removal from the pool.
const MOST_WAITING: Duration = DAY.saturating_mul(7);
/// The rows that a single table may have beyond [`MOST`]: members who left are remembered, and a small table exceeds
/// a ratio easily.
const FEW_ROWS: u64 = 200;

/// The options of a run.
#[derive(Debug, Clone, Copy)]
pub struct YearOptions {
    /// The number of donors at all times.
    pub donors: u32,
    /// The number of files at all times.
    pub files: u64,
    /// The number of simulated days.
    pub days: u64,
    /// The seed of all random decisions.
    pub seed: u64,
    /// Simulated seconds per second of timers, while no file is written or removed.
    pub speed: u32,
    /// Days from one replacement of a machine to the next.
    pub replace_every: u64,
    /// Copies of the metadata log that the pool keeps on donors.
    pub log_copies: u32,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Year {
    /// The figures of each day, and of the end.
    pub days: Vec<Figures>,
    /// The figures of a new pool with the files of the end.
    pub fresh: Figures,
    /// The size in bytes of a backup of the catalog at the end, which is a base of the metadata log alone.
    pub base: u64,
    /// The number of tries of writes and removals that failed.
    pub tried_again: u64,
}

/// A figure at the end, compared with that of a new pool.
#[derive(Debug, Clone)]
pub struct Ratio {
    /// The name of the figure.
    pub name: String,
    /// The figure of the pool at the end.
    pub aged: u64,
    /// The figure of a new pool.
    pub fresh: u64,
    /// The largest value that is allowed at the end.
    pub most: u64,
}

impl Ratio {
    /// Returns the figure at the end divided by that of a new pool.
    pub fn ratio(&self) -> f64 {
        self.aged as f64 / self.fresh.max(1) as f64
    }
}

impl Year {
    /// Compares the pool at the end with a new one.
    pub fn ratios(&self) -> Vec<Ratio> {
        let aged = self.days.last().cloned().unwrap_or_default();
        let times = |fresh: u64, times: f64| (fresh as f64 * times) as u64;
        let of = |name: &str, aged, fresh| Ratio {
            name: name.into(),
            aged,
            fresh,
            most: times(fresh, MOST),
        };
        let fresh = &self.fresh;
        let mut ratios = vec![
            of("rows", aged.all_rows(), fresh.all_rows()),
            of("catalog", aged.catalog, fresh.catalog),
            of("log", aged.log, self.base),
            of("on donors", aged.on_donors, fresh.on_donors),
            // Nearly all of the manager's other files are backups.
            of("manager's files", aged.manager_files, BACKUPS * self.base),
            of("write-ahead log", aged.write_ahead, fresh.write_ahead),
            of("heap", aged.heap, fresh.heap),
        ];
        let rows = aged.rows.iter().map(|(table, rows)| {
            let fresh = fresh.rows.get(table).copied().unwrap_or(0);
            let name = format!("rows of {table}");
            Ratio { name, aged: *rows, fresh, most: times(fresh, MOST) + FEW_ROWS }
        });
        ratios.extend(rows);
        ratios
    }
}

/// Plays the year, and calls `each` with the figures of each day and of the end.
///
/// Errors: a file was lost, a process failed, a write or removal failed at every try, or a replaced machine could
/// not be removed.
pub fn run(options: YearOptions, mut each: impl FnMut(&Figures)) -> Result<Year, String> {
    let before = Figures::heap_now();
    let (days, base, mut files) = within_runtime(async {
        let mut pool = OldPool::found(options).await?;
        let days = pool.live(before, &mut each).await?;
        let base = pool.base()?;
        let files = pool.end().await?;
        Ok::<_, String>((days, base, files))
    })?;
    let before = Figures::heap_now();
    let fresh = within_runtime(async {
        let mut pool = OldPool::found(options).await?;
        std::mem::swap(&mut pool.files, &mut files);
        pool.files.write_all(&pool.desk).await?;
        // A day later the metadata log may begin anew, without all these changes.
        pool.world.time.run_at(options.speed);
        pool.pass(2 * DAY).await;
        pool.settle().await?;
        let fresh = pool.look(before)?;
        files = pool.end().await?;
        Ok::<_, String>(fresh)
    })?;
    Ok(Year { days, fresh, base, tried_again: files.tried_again })
}

/// Runs `work` on one thread, where time jumps to the next timer whenever nothing else is to do.
fn within_runtime<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(work)
}

/// A machine that was replaced and is to be removed from the pool.
struct Going {
    machine: DonorMachine,
    gives_back: bool,
    since: Duration,
}

/// A pool with its machines and files.
struct OldPool {
    options: YearOptions,
    world: World,
    state: TempDir,
    manager: ManagerMachine,
    desk: Desk,
    donors: Vec<DonorMachine>,
    /// The number of donors that ever joined.
    joined: u32,
    going: Vec<Going>,
    files: Files,
    draw: Draw,
}

/// An event at a time of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wakes(DonorId),
    Sleeps(DonorId),
    Restarts(DonorId),
    Work,
    Replacement,
    Look,
}

impl OldPool {
    /// Makes a new pool with its donors, without files.
    async fn found(options: YearOptions) -> Result<Self, String> {
        let world = World { time: TimeLapse::start(), wires: Wires::default(), seed: options.seed };
        let state = scratch();
        let root = state.path().join("manager");
        let limits = ManagerConfig {
            metadata_copies: options.log_copies,
            ..machines::limits(options.speed)
        };
        let manager = ManagerMachine::start(&world, &root, limits).await?;
        let desk = Desk::sit_down(&world, &root)?;
        Files::make_spaces(&desk).await?;
        let mut pool = Self {
            options,
            world,
            state,
            manager,
            desk,
            donors: Vec::new(),
            joined: 0,
            going: Vec::new(),
            files: Files::none(options.seed),
            draw: Draw::new(options.seed, "the year"),
        };
        for _ in 0..options.donors {
            pool.join().await?;
        }
        pool.pass(Duration::from_secs(10)).await;
        Ok(pool)
    }

    fn root(&self) -> std::path::PathBuf {
        self.state.path().join("manager")
    }

    async fn join(&mut self) -> Result<(), String> {
        let mut machine = DonorMachine::join(&self.world, &self.desk, self.joined).await?;
        // One in ten machines is a server, which does not sleep.
        machine.sleeps = !self.joined.is_multiple_of(10);
        self.joined += 1;
        self.donors.push(machine);
        Ok(())
    }

    async fn pass(&self, time: Duration) {
        self.world.time.sleep_until(self.world.time.now() + time).await;
    }

    /// Returns the figures of this moment. `before` is the memory in bytes that the process used before there was a
    /// pool.
    fn look(&self, before: u64) -> Result<Figures, String> {
        let mut figures = Figures::look(&self.root())?;
        let going = self.going.iter().map(|going| &going.machine);
        let all: u64 = self.donors.iter().chain(going).map(DonorMachine::disk_bytes).sum();
        figures.heap = figures.heap.saturating_sub(before).saturating_sub(all);
        figures.on_donors = self.donors.iter().map(DonorMachine::disk_bytes).sum();
        figures.day = (self.world.time.now().as_secs_f64() / DAY.as_secs_f64()) as u64;
        figures.files = self.files.count();
        figures.file_bytes = self.files.bytes();
        figures.needed_on_donors = self.files.needed_on_donors();
        Ok(figures)
    }

    /// Writes a backup of the catalog, and returns its size in bytes.
    fn base(&self) -> Result<u64, String> {
        let to = self.state.path().join("backup.log");
        backup(&self.root(), &to, self.world.time.wall()).map_err(|why| why.to_string())?;
        let file = std::fs::metadata(&to).map_err(|why| why.to_string())?;
        Ok(file.len())
    }

    async fn live(
        &mut self,
        before: u64,
        each: &mut impl FnMut(&Figures),
    ) -> Result<Vec<Figures>, String> {
        let mut all = Vec::new();
        self.files.write(&self.desk, self.options.files).await?;
        for day in 0..self.options.days {
            let begins = DAY * day as u32;
            self.world.time.run_at(self.options.speed);
            for (at, event) in self.plan(day) {
                self.world.time.sleep_until(begins + at).await;
                if event == Event::Look {
                    let figures = self.look(before)?;
                    each(&figures);
                    all.push(figures);
                } else {
                    self.happens(event).await?;
                }
            }
        }
        self.settle().await?;
        let figures = self.look(before)?;
        each(&figures);
        all.push(figures);
        self.files.compare(&self.desk).await?;
        Ok(all)
    }

    /// Draws the events of a day, in order.
    fn plan(&mut self, day: u64) -> Vec<(Duration, Event)> {
        let mut events = vec![(11 * HOUR, Event::Work)];
        if day % self.options.replace_every == self.options.replace_every - 1 {
            events.push((13 * HOUR, Event::Replacement));
        }
        for machine in &self.donors {
            let DonorMachine { donor, sleeps, .. } = machine;
            if *sleeps {
                // Machines sleep and wake in groups, as people come and go.
                events.push((self.draw.between(7, 9) as u32 * HOUR, Event::Wakes(*donor)));
                events.push((self.draw.between(18, 20) as u32 * HOUR, Event::Sleeps(*donor)));
            }
            if (day + u64::from(donor.0)).is_multiple_of(7) {
                events.push((14 * HOUR, Event::Restarts(*donor)));
            }
        }
        events.push((17 * HOUR, Event::Look));
        events.sort_unstable();
        events
    }

    async fn happens(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Wakes(donor) | Event::Sleeps(donor) | Event::Restarts(donor) => {
                // Machines that were replaced are not in this list: they are dead, or stay awake until they have
                // given back what they lend.
                let machine = self.donors.iter_mut().find(|machine| machine.donor == donor);
                let Some(machine) = machine else { return Ok(()) };
                // One restart in ten is a power cut.
                if matches!(event, Event::Restarts(_)) && self.draw.chance(10) {
                    machine.lose_power(&self.draw);
                } else if !matches!(event, Event::Wakes(_)) {
                    machine.sleep().await?;
                }
                if !matches!(event, Event::Sleeps(_)) {
                    machine.wake().await?;
                }
            }
            Event::Work => self.work().await?,
            Event::Replacement => self.replace().await?,
            Event::Look => {}
        }
        Ok(())
    }

    /// Writes, replaces and removes the files of a day, while clocks run as fast as timers, and waits until what was
    /// removed is gone from the donors.
    async fn work(&mut self) -> Result<(), String> {
        self.world.time.run_at(1);
        // The manager must have heard of all machines that are awake.
        self.pass(Duration::from_secs(3)).await;
        let (all, some) = (self.options.files, self.options.files.div_ceil(100));
        self.files.replace(&self.desk, some / 5).await?;
        self.files.write(&self.desk, some - some / 5).await?;
        self.files.remove(&self.desk, all).await?;
        self.pass(machines::GC_DELAY + Duration::from_secs(10)).await;
        self.removals().await?;
        self.world.time.run_at(self.options.speed);
        Ok(())
    }

    /// Replaces a machine: it begins to give back what it lends, or loses power for good, and another one joins.
    async fn replace(&mut self) -> Result<(), String> {
        let at = self.draw.below(self.donors.len() as u64) as usize;
        let mut machine = self.donors.swap_remove(at);
        let gives_back = self.draw.chance(50);
        if gives_back {
            machine.sleeps = false;
            machine.wake().await?;
            let request =
                GiveBack { donor: Some(machine.donor), now: false, agreed: None, cancel: false };
            self.desk.pool.call(&request).await.map_err(|why| why.to_string())?;
        } else {
            machine.lose_power(&self.draw);
        }
        self.going.push(Going { machine, gives_back, since: self.world.time.now() });
        self.join().await
    }

    /// Removes donors that gave back everything, or have been dead for days.
    ///
    /// Errors: a donor could not be removed within [`MOST_WAITING`].
    async fn removals(&mut self) -> Result<(), String> {
        let mut left = Vec::new();
        let now = self.world.time.now();
        for mut going in std::mem::take(&mut self.going) {
            match self.remove(&going, now).await? {
                None => going.machine.lose_power(&self.draw),
                Some(why) if now > going.since + MOST_WAITING => {
                    let donor = going.machine.donor;
                    return Err(format!("donor {donor} cannot be removed: {why}"));
                }
                Some(_) => left.push(going),
            }
        }
        self.going = left;
        Ok(())
    }

    /// Removes a donor if it may go; otherwise returns the reason why it may not.
    async fn remove(&self, going: &Going, now: Duration) -> Result<Option<String>, String> {
        let donor = going.machine.donor;
        if going.gives_back {
            let asked = GiveBackStatus { donor: Some(donor) };
            let given = self.desk.pool.call(&asked).await.map_err(|why| why.to_string())?;
            // Its disk is not empty even then: the files that mark its store stay.
            if !given.done {
                return Ok(Some(given.may_go.why));
            }
        } else if now <= going.since + 3 * DAY {
            return Ok(Some("it may come back".into()));
        }
        let revoked = self.desk.pool.call(&Revoke::of(going.machine.member())).await;
        Ok(revoked.err().map(|why| why.to_string()))
    }

    /// Wakes all machines, and waits long enough for background work to end: what is not needed any more is gone
    /// from the disks and from the catalog.
    async fn settle(&mut self) -> Result<(), String> {
        for machine in &mut self.donors {
            machine.wake().await?;
        }
        self.world.time.run_at(1);
        self.pass(5 * MINUTE).await;
        self.world.time.run_at(60);
        self.pass(6 * HOUR).await;
        self.world.time.run_at(1);
        self.pass(2 * MINUTE).await;
        Ok(())
    }

    /// Stops all machines, and returns the files.
    async fn end(mut self) -> Result<Files, String> {
        for machine in &mut self.donors {
            machine.sleep().await?;
        }
        for going in &mut self.going {
            going.machine.sleep().await?;
        }
        self.manager.stop().await?;
        Ok(self.files)
    }
}

/// Writes the figures into `dir`, as a table in CSV and as a picture in SVG.
///
/// Errors: a file cannot be written.
pub fn save(year: &Year, dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut table = String::new();
    for (number, figures) in year.days.iter().chain([&year.fresh]).enumerate() {
        let (names, values) = figures.csv();
        if number == 0 {
            table += &format!("{names}\n");
        }
        table += &format!("{values}\n");
    }
    std::fs::write(dir.join("year.csv"), table)?;
    std::fs::write(dir.join("year.svg"), plot::svg(year))
}
