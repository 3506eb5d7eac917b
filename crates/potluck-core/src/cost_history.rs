//! What lending costs an owner and what it did, by hours of some days and by days of a year, with who read and wrote how
//! much in a month. It is bounded, whatever happens.
//!
//! Times are local ones: an owner's day begins at midnight where the machine is. Where a clock goes back, the hour that
//! comes twice is counted as one.

use crate::ids::MemberId;
use crate::traffic::{BothWays, Direction};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

const HOUR_MS: i64 = 3_600_000;
/// The hours of a day.
const HOURS_A_DAY: i64 = 24;
/// The numbers of hours and days that are kept, and of days for which visitors are.
const HOURS: i64 = 3 * HOURS_A_DAY;
const DAYS: i64 = 366;
const VISITED_DAYS: i64 = 30;
/// The most visitors that are told apart in one period; the others count together.
const MOST_VISITORS: usize = 128;

/// A local time as the milliseconds from 1970 to what the clock shows.
pub type LocalMillis = i64;

/// What lending did and cost in some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LendingCost {
    /// The bytes that were sent to readers.
    pub served: u64,
    /// The bytes that were received and stored.
    pub received: u64,
    /// The bytes that the daemon's process had written to disks, with all that it keeps for itself.
    pub disk_written: u64,
    /// The processor time of the daemon's process, in milliseconds.
    pub cpu_ms: u64,
    /// The time in which Potluck did less for the sake of others on the machine, in milliseconds.
    pub yielded_ms: u64,
    /// The worst of all looks: the milliseconds of [`DELAY_WINDOW_MS`] in which something on the machine waited for a
    /// processor, a disk or memory while Potluck moved data. That is the most that Potluck can have caused.
    pub worst_delay_ms: u64,
    /// The time for which the daemon ran, in milliseconds.
    pub up_ms: u64,
    /// The bytes that were lent and those that were stored, at the end of the time.
    pub lent: u64,
    /// The bytes that were stored at the end of the time.
    pub stored: u64,
}

/// The time from one look at what waits on the machine to the next, in milliseconds.
pub const DELAY_WINDOW_MS: u64 = 5000;

impl LendingCost {
    /// Adds what came later.
    pub fn add(&mut self, later: &Self) {
        let sums = [
            (&mut self.served, later.served),
            (&mut self.received, later.received),
            (&mut self.disk_written, later.disk_written),
            (&mut self.cpu_ms, later.cpu_ms),
            (&mut self.yielded_ms, later.yielded_ms),
            (&mut self.up_ms, later.up_ms),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.worst_delay_ms = self.worst_delay_ms.max(later.worst_delay_ms);
        (self.lent, self.stored) = (later.lent, later.stored);
    }
}

/// Somebody who reads or writes what is stored here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visitor {
    /// The pool itself: its manager, and other donors that repair.
    Pool,
    /// A member, as the ticket names it that the manager gave it.
    Member(MemberId),
    /// All members together that were not told apart.
    Others,
}

/// The bytes that each visitor read and wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visits(Vec<(Visitor, BothWays<u64>)>);

impl Visits {
    /// Notes that a visitor moved bytes.
    pub fn note(&mut self, visitor: Visitor, direction: Direction, bytes: u64) {
        let mut moved = BothWays::default();
        *moved.of_mut(direction) = bytes;
        self.add(visitor, moved);
    }

    /// Adds all visits of `later`.
    pub fn add_all(&mut self, later: &Self) {
        later.0.iter().for_each(|(visitor, moved)| self.add(*visitor, *moved));
    }

    fn add(&mut self, visitor: Visitor, moved: BothWays<u64>) {
        let found = self.0.binary_search_by_key(&visitor, |(visitor, _)| *visitor);
        let at = match found {
            Ok(at) => at,
            Err(_) if self.0.len() >= MOST_VISITORS && visitor != Visitor::Others => {
                return self.add(Visitor::Others, moved);
            }
            Err(at) => {
                self.0.insert(at, (visitor, BothWays::default()));
                at
            }
        };
        let sum = &mut self.0[at].1;
        sum.read = sum.read.saturating_add(moved.read);
        sum.written = sum.written.saturating_add(moved.written);
    }

    /// Returns whether nobody came.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the visitors, whoever moved most first.
    pub fn by_bytes(&self) -> Vec<(Visitor, BothWays<u64>)> {
        let mut all = self.0.clone();
        all.sort_by_key(|(_, moved)| std::cmp::Reverse(moved.read.saturating_add(moved.written)));
        all
    }
}

/// An hour that is not over yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenHour {
    /// The number of the hour since 1970, in local time.
    pub number: i64,
    /// What it cost so far.
    pub cost: LendingCost,
    /// Who came so far.
    pub visits: Visits,
}

impl OpenHour {
    /// Makes the hour of a time, in which nothing was noted.
    pub fn at(now: LocalMillis) -> Self {
        Self { number: now.div_euclid(HOUR_MS), ..Self::default() }
    }

    /// Adds what was noted until `now`. If that is in a later hour, this one is over: it is returned, and what was noted
    /// belongs to the next.
    pub fn note(&mut self, cost: &LendingCost, visits: &Visits, now: LocalMillis) -> Option<Self> {
        let later = now.div_euclid(HOUR_MS) > self.number; // a clock that goes back stays in the hour
        let over = later.then(|| std::mem::replace(self, Self::at(now)));
        self.cost.add(cost);
        self.visits.add_all(visits);
        over
    }
}

/// What lending did and cost on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostPeriod {
    /// The number of the hour or day since 1970, in local time.
    pub number: i64,
    /// What it did and cost.
    #[serde(flatten)]
    pub cost: LendingCost,
}

/// The hours that are over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CostHistory {
    hours: VecDeque<CostPeriod>,
    days: VecDeque<CostPeriod>,
    visits: VecDeque<(i64, Visits)>,
}

impl CostHistory {
    /// Adds an hour that is over. An hour that was added before, as when a daemon was killed between two writes, changes
    /// nothing.
    pub fn close(&mut self, hour: &OpenHour) {
        if self.hours.back().is_some_and(|last| last.number >= hour.number) {
            return;
        }
        let day = hour.number.div_euclid(HOURS_A_DAY);
        for (periods, number, most) in
            [(&mut self.hours, hour.number, HOURS), (&mut self.days, day, DAYS)]
        {
            if periods.back().is_none_or(|last| last.number < number) {
                periods.push_back(CostPeriod { number, cost: LendingCost::default() });
            }
            periods.retain(|period| number - period.number < most);
            if let Some(last) = periods.back_mut() {
                last.cost.add(&hour.cost);
            }
        }
        if self.visits.back().is_none_or(|(last, _)| *last < day) && !hour.visits.is_empty() {
            self.visits.push_back((day, Visits::default()));
        }
        self.visits.retain(|(visited, _)| day - visited < VISITED_DAYS);
        if let Some((_, visits)) = self.visits.back_mut() {
            visits.add_all(&hour.visits);
        }
    }

    /// Returns this history with an hour that is not over yet as if it were.
    pub fn with(mut self, open: &OpenHour) -> Self {
        self.close(open);
        self
    }

    /// Returns the hours of the last three days, the latest last.
    pub fn hours(&self) -> impl DoubleEndedIterator<Item = &CostPeriod> {
        self.hours.iter()
    }

    /// Returns the days of the last year, the latest last.
    pub fn days(&self) -> impl DoubleEndedIterator<Item = &CostPeriod> {
        self.days.iter()
    }

    /// Returns the sum of the days from the day `first` (since 1970, local) on, and how many days these are, counted from
    /// the first of them on which the daemon ran to the day `last`.
    pub fn since(&self, first: i64, last: i64) -> (LendingCost, i64) {
        let mut sum = LendingCost::default();
        let days = || self.days.iter().filter(|day| day.number >= first);
        days().for_each(|day| sum.add(&day.cost));
        (sum, days().next().map_or(0, |day| last - day.number + 1))
    }

    /// Returns who came on the days that are kept, up to thirty.
    pub fn visits(&self) -> Visits {
        let mut all = Visits::default();
        self.visits.iter().for_each(|(_, visits)| all.add_all(visits));
        all
    }
}

/// Returns the number of the day since 1970 of a time.
pub fn day_of(now: LocalMillis) -> i64 {
    now.div_euclid(HOUR_MS * HOURS_A_DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(bytes: u64) -> LendingCost {
        LendingCost { served: bytes, worst_delay_ms: bytes, stored: bytes, ..Default::default() }
    }

    fn visit(member: u32, bytes: u64) -> Visits {
        let mut visits = Visits::default();
        visits.note(Visitor::Member(MemberId(member)), Direction::Read, bytes);
        visits
    }

    #[test]
    fn hours_add_up_to_days_and_what_is_old_goes() {
        let (mut history, mut open) = (CostHistory::default(), OpenHour::at(0));
        for hour in 0..400 * HOURS_A_DAY {
            for half in 0..2 {
                let now = hour * HOUR_MS + half * HOUR_MS / 2;
                let over = open.note(&served(1), &visit(hour as u32 % 7, 1), now);
                over.iter().for_each(|over| history.close(over));
            }
        }
        let day = day_of((400 * HOURS_A_DAY - 1) * HOUR_MS);
        let all = history.clone().with(&open);
        assert_eq!(all.days().count() as i64, DAYS);
        assert_eq!(all.hours().count() as i64, HOURS);
        assert!(all.days().all(|day| day.cost.served == 48), "two each hour");
        let (week, days) = all.since(day - 6, day);
        assert_eq!((week.served, days), (7 * 48, 7));
        assert_eq!((week.worst_delay_ms, week.stored), (1, 1), "the worst, and the last");
        let visits = all.visits().by_bytes();
        assert_eq!(visits.iter().map(|(_, moved)| moved.read).sum::<u64>(), 30 * 48);
        assert_eq!(visits.len(), 7);
    }

    #[test]
    fn an_hour_counts_once_though_it_was_written_twice() {
        let mut open = OpenHour::at(HOUR_MS);
        assert_eq!(open.note(&served(5), &Visits::default(), HOUR_MS + 1), None);
        let over = open.note(&served(7), &Visits::default(), 2 * HOUR_MS).expect("it is over");
        let mut history = CostHistory::default();
        history.close(&over);
        let killed = history.clone().with(&over); // the file of the open hour was not written anew
        assert_eq!(killed, history);
        assert_eq!(history.with(&open).since(0, 0).0.served, 12);
        assert_eq!(open.note(&served(1), &Visits::default(), 0), None, "a clock that goes back");
    }

    #[test]
    fn a_year_at_its_fullest_takes_less_than_a_mebibyte() {
        let most = u64::MAX / 1000;
        let cost = LendingCost {
            served: most,
            received: most,
            disk_written: most,
            cpu_ms: most,
            yielded_ms: most,
            worst_delay_ms: most,
            up_ms: most,
            lent: most,
            stored: most,
        };
        let mut visits = Visits::default();
        for member in 0..1000 {
            let visitor = Visitor::Member(MemberId(u32::MAX - member));
            visits.note(visitor, Direction::Read, 1 << 50);
            visits.note(visitor, Direction::Write, 1 << 50);
        }
        assert_eq!(visits.by_bytes().len(), MOST_VISITORS + 1);
        assert_eq!(visits.by_bytes()[0].0, Visitor::Others);
        let (mut history, mut open) = (CostHistory::default(), OpenHour::at(0));
        for hour in 0..370 * HOURS_A_DAY {
            let over = open.note(&cost, &visits, hour * HOUR_MS);
            over.iter().for_each(|over| history.close(over));
        }
        // The text of the values, and generously that of the names and brackets around each.
        let period = 9 * (20 + 20) + 40;
        let text = (HOURS + DAYS) * period + VISITED_DAYS * (MOST_VISITORS as i64 + 1) * 100;
        assert!(text < 1 << 20, "{text}");
        assert_eq!(
            history.visits.iter().map(|(_, day)| day.0.len()).max(),
            Some(MOST_VISITORS + 1)
        );
        assert_eq!((history.hours.len(), history.days.len()), (HOURS as usize, DAYS as usize));
        assert_eq!(history.visits.len(), VISITED_DAYS as usize);
    }
}
