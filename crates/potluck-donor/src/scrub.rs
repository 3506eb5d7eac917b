//! The scrub reads back everything that is held, round after round, so that a chunk that rots is found while there are
//! others to make it from again (promise R1).
//!
//! A round is spread over weeks, so that the owner does not notice it; a round that the manager asked for is faster.
//! The place that it has reached is remembered: desktops are switched off every evening, and a round that began anew
//! each morning would never reach the end of the disk. A machine that was off reads faster while it is on.

use crate::disk::{Disk, read_small, replace_durably};
use crate::idle_thread::on_idle_thread;
use crate::service::Service;
use crate::store::{CopyHealth, Cursor, ListedAhead, Store};
use potluck_core::chunk_file::{disk_bytes, file_len};
use potluck_core::clock::{Tick, UnixMillis};
use potluck_wire::control::{SLOWEST_SCRUB, Scrubbed};
use potluck_wire::env::Env;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) const FILE: &str = "scrub.json";
const MAX_FILE: u64 = 4096;
/// The factor by which a machine that is seldom on may read faster than one that is always on. It suffices for a
/// machine that is on for three hours a day, which then reads 1 TiB at 4 MB/s.
const CATCHING_UP: u64 = 10;
/// The time from one turn of reading to the next: long enough to cost an idle machine nothing.
const TURN: Duration = Duration::from_secs(10);
/// The time from one turn of reading to the next in a round that the manager asked for.
const HURRIED_TURN: Duration = Duration::from_millis(250);
/// The time between two saves of the place in a round, which a crash may make the scrub repeat.
const SAVED_EVERY: Duration = Duration::from_secs(60);
/// The time between two saves of the state between rounds, where a crash would lose only time spent waiting.
const REST: Duration = Duration::from_secs(3600);
/// The divisor of a round's time that gives the time by which the round is planned to end early: no machine is on
/// exactly as much as it was before.
const EARLY: u64 = 30;

/// The scrub of one store.
pub(crate) struct Scrub {
    path: PathBuf,
    every: Mutex<Duration>,
    round: Mutex<Round>,
    /// Wakes the scrub when the manager asked for a round, or the time of a round was changed.
    hurried: Notify,
}

/// The progress of a round. It is kept in a file of its own beside the donor's state, because it changes often and is
/// worth little.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Round {
    /// The place of the next chunk; `None` when the round is over and the next one has not begun.
    next: Option<Cursor>,
    #[serde(skip)]
    ahead: ListedAhead,
    done: u64,
    of: u64,
    rounds: u64,
    spoiled: u64,
    /// The seconds since the round began, not counting those that the donor was down.
    age: u64,
    /// The time on the wall clock at which the round began, by which it is known how long the donor was down. A wrong
    /// clock makes a round faster or slower within bounds.
    began: Option<UnixMillis>,
    /// The rate, in bytes a second, of a round that the manager asked for.
    rate: Option<u64>,
}

impl Round {
    fn begin(&mut self, rate: Option<u64>) {
        let (rounds, spoiled) = (self.rounds, self.spoiled);
        *self = Self { next: Some(Cursor::default()), rounds, spoiled, rate, ..Self::default() };
    }

    /// Returns the seconds since the round began, including those that the donor was down.
    fn elapsed(&self, wall: UnixMillis) -> u64 {
        let by_wall = self.began.map_or(0, |began| wall.saturating_sub(began).max(0) as u64 / 1000);
        by_wall.max(self.age)
    }

    /// Returns the rate in bytes a second that ends the round after `every`, with `used` bytes held, if the donor is up
    /// for the same share of the time as so far. It lies between [`SLOWEST_SCRUB`] and [`CATCHING_UP`] times the rate
    /// of a donor that is always up.
    fn background_rate(&self, used: u64, every: Duration, wall: UnixMillis) -> u64 {
        let (every, elapsed) = (every.as_secs().max(1), self.elapsed(wall));
        let most = (used / every).saturating_mul(CATCHING_UP);
        let left = used.max(self.of).saturating_sub(self.done) as f64;
        let up = if elapsed == 0 { 1.0 } else { self.age as f64 / elapsed as f64 };
        let time = (every - every / EARLY).saturating_sub(elapsed) as f64 * up;
        // If no time is left, the quotient is infinite, and the highest rate that is allowed is taken.
        ((left / time) as u64).min(most).max(SLOWEST_SCRUB)
    }
}

impl Scrub {
    /// Makes a scrub that goes on at the place that an earlier incarnation saved in `dir`. If that cannot be read, a
    /// round begins anew.
    pub fn load(disk: &dyn Disk, dir: &Path, every: Duration) -> Self {
        let path = dir.join(FILE);
        let read = read_small(disk, &path, MAX_FILE)
            .and_then(|text| Ok(serde_json::from_slice::<Round>(&text)?));
        let round = read.unwrap_or_else(|why| {
            if why.kind() != io::ErrorKind::NotFound {
                tracing::warn!("cannot read {}: {why}; the scrub begins anew", path.display());
            }
            let mut round = Round::default();
            round.begin(None);
            round
        });
        Self { path, every: Mutex::new(every), round: Mutex::new(round), hurried: Notify::new() }
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().expect("no holder panics")
    }

    /// Begins a round at once, at `rate` bytes a second or [`SLOWEST_SCRUB`] if that is more.
    pub fn hurry(&self, rate: u64) {
        self.round().begin(Some(rate.max(SLOWEST_SCRUB)));
        self.hurried.notify_one();
    }

    fn every(&self) -> Duration {
        *self.every.lock().expect("no holder panics")
    }

    /// Sets how long a round takes from now on.
    pub fn take(&self, every: Duration) {
        if std::mem::replace(&mut *self.every.lock().expect("no holder panics"), every) != every {
            self.hurried.notify_one();
        }
    }

    /// Returns the progress of the round for the manager.
    pub fn report(&self) -> Scrubbed {
        let round = self.round();
        let Round { done, of, rounds, spoiled, rate, .. } = *round;
        Scrubbed { done, of, rounds, spoiled, hurried: rate.is_some() }
    }

    /// Returns the number of finished rounds.
    pub fn rounds(&self) -> u64 {
        self.round().rounds
    }

    /// Reads back what is held, round after round, until the future is dropped.
    pub async fn scrub_for_ever(&self, service: Arc<Service>, disk: Arc<dyn Disk>) {
        let clock = &service.env.clock;
        let mut pause = TURN;
        let mut saved = clock.now();
        loop {
            let began = clock.now();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.hurried.notified() => {}
            }
            if service.store.broken() || service.owner.is_off() {
                pause = TURN;
                continue;
            }
            let reading = clock.now();
            let (rate, turn) = self.rate(&service.store, clock.wall());
            let was_over = self.round().next.is_none();
            let bytes = if was_over { 0 } else { self.turn(&service, rate, turn).await };
            let over = self.round().next.is_none();
            pause = match over {
                true => self.rest(clock.wall()),
                false => {
                    let owed = Duration::from_secs_f64(bytes as f64 / rate as f64).max(turn);
                    owed.saturating_sub(clock.now().saturating_sub(reading))
                }
            };
            let now = clock.now();
            self.grow_older(began, now, clock.wall());
            if over || now.saturating_sub(saved) >= SAVED_EVERY {
                saved = now;
                self.save(&service.env, &disk).await;
            }
        }
    }

    /// Returns the rate in bytes a second, and the time from one turn of reading to the next.
    fn rate(&self, store: &Store, wall: UnixMillis) -> (u64, Duration) {
        let used = store.report().0.lent_used;
        let round = self.round();
        match round.rate {
            Some(rate) => (rate, HURRIED_TURN),
            None => (round.background_rate(used, self.every(), wall), TURN),
        }
    }

    /// Returns how long to wait before the next look whether a round is due; begins the round when it is.
    fn rest(&self, wall: UnixMillis) -> Duration {
        let mut round = self.round();
        let left = self.every().saturating_sub(Duration::from_secs(round.elapsed(wall)));
        if left.is_zero() {
            round.begin(None);
        }
        left.clamp(TURN, REST)
    }

    fn grow_older(&self, from: Tick, to: Tick, wall: UnixMillis) {
        // The age is rounded up, for a round that counts as a little older than it is comes to no harm.
        let mut round = self.round();
        round.age = round.age.saturating_add((to - from).as_millis().div_ceil(1000) as u64);
        let age_ms = round.age.saturating_mul(1000).min(i64::MAX as u64) as UnixMillis;
        round.began.get_or_insert(wall.saturating_sub(age_ms));
    }

    /// Reads what is due in one turn, and returns how many bytes that was.
    async fn turn(&self, service: &Arc<Service>, rate: u64, turn: Duration) -> u64 {
        let due = (rate as f64 * turn.as_secs_f64()) as u64;
        let mut round = self.round().clone();
        if round.done == 0 {
            round.of = service.store.report().0.lent_used;
        }
        let (begun, worker) = (round.clone(), Arc::clone(service));
        let work = move || {
            let read = read_on(&worker, &mut round, due);
            (round, read)
        };
        let Some((read_to, read)) = on_idle_thread(&service.env, work).await else { return 0 };
        let mut now = self.round();
        // If another round was begun meanwhile, that one goes on, and of this one only the spoiled chunks count.
        let newer = now.next != begun.next || now.rate != begun.rate;
        match newer {
            true => now.spoiled += read_to.spoiled - begun.spoiled,
            false => *now = Round { age: now.age, began: now.began, ..read_to },
        }
        read
    }

    /// Saves the place that the round has reached.
    pub async fn save(&self, env: &Env, disk: &Arc<dyn Disk>) {
        let (round, path, disk) = (self.round().clone(), self.path.clone(), Arc::clone(disk));
        let save = move || replace_durably(&*disk, &path, &serde_json::to_vec(&round)?);
        if let Err(why) = env.offload.run(save).await {
            tracing::warn!("cannot remember the scrub in {}: {why}", self.path.display());
        }
    }
}

/// Reads chunks until `due` bytes were read, the round is over, or the donor is to stop or its disk fails; returns the
/// bytes that were read.
fn read_on(service: &Service, round: &mut Round, due: u64) -> u64 {
    let store = &service.store;
    let mut read = 0;
    loop {
        let holding = match round.ahead.next(store, &mut round.next) {
            Ok(Some(holding)) => holding,
            Ok(None) => break,
            Err(why) => {
                tracing::warn!("cannot list the store: {why}");
                return read;
            }
        };
        if read >= due || service.stopped() || store.broken() {
            return read;
        }
        let health = store.scrub(&holding.name);
        if matches!(health, Ok(CopyHealth::Spoiled | CopyHealth::Unreadable)) {
            round.spoiled += 1;
        }
        let bytes = disk_bytes(file_len(holding.len));
        (read, round.done) = (read + bytes, round.done + bytes);
        round.next = Some(Cursor::after(holding.name));
    }
    if let Err(why) = store.recount() {
        tracing::warn!("cannot count what the store holds: {why}");
    }
    // Chunks came and went since the round began, so the size of the round is set to the bytes that it has read.
    (round.rounds, round.rate, round.of) = (round.rounds + 1, None, round.done);
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;
    const MONTH: Duration = Duration::from_secs(30 * DAY);
    const USED: u64 = 1 << 40;

    /// Returns the days until a round is over on a machine that is up for the first `hours` of each day.
    fn days(hours: u64) -> u64 {
        let mut round = Round { of: USED, began: Some(0), ..Round::default() };
        for hour in 0..200 * 24 {
            if hour % 24 < hours {
                let rate = round.background_rate(USED, MONTH, (hour * 3_600_000) as UnixMillis);
                assert!(
                    rate <= CATCHING_UP * USED / (30 * DAY),
                    "{rate}: too fast for a disk that others use"
                );
                (round.done, round.age) = (round.done + rate * 3600, round.age + 3600);
                if round.done >= USED {
                    return hour / 24 + 1;
                }
            }
        }
        200
    }

    #[test]
    fn scrub_round_keeps_its_period_on_part_time_machines_r1() {
        for hours in [24, 16, 8, 4, 3] {
            assert!((28..=30).contains(&days(hours)), "{hours} hours a day: {} days", days(hours));
        }
        assert!(days(1) < 100, "as fast as is allowed in the background");
        // The machine was off for most of the month, and what is left is caught up with.
        let late = Round { of: USED, age: 3 * DAY, began: Some(0), ..Round::default() };
        let wall = (27 * DAY * 1000) as UnixMillis;
        assert_eq!(late.background_rate(USED, MONTH, wall), USED / (30 * DAY) * CATCHING_UP);
    }

    #[test]
    fn a_wrong_clock_makes_no_round_rude_or_endless_c1() {
        let round = Round { of: USED, age: DAY, began: Some(0), ..Round::default() };
        let year = (365 * DAY * 1000) as UnixMillis;
        let rate = USED / (30 * DAY);
        assert_eq!(round.background_rate(USED, MONTH, year), rate * CATCHING_UP);
        let back = round.background_rate(USED, MONTH, -year);
        assert!((rate..=rate * 30 / 27).contains(&back), "{back}");
        assert_eq!(Round::default().background_rate(0, MONTH, 0), SLOWEST_SCRUB);
    }
}
