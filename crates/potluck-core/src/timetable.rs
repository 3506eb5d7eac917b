//! The timetables of an owner: which mode holds at which hours ([`Hours`]), and how much bandwidth ([`BandwidthHours`]).
//!
//! Both know only the local time of the machine, as a minute of the week. A timetable therefore means what its owner's
//! clock shows, also where that clock skips or repeats an hour.

use crate::lend_mode::LendMode;
use crate::size::{BadSize, exact_size, parse_size};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The minutes of a day and of a week.
const DAY: u16 = 24 * 60;
const WEEK: u16 = 7 * DAY;
/// The most entries of a timetable: more than anybody writes, so that a look at it costs next to nothing.
const MOST: usize = 64;
/// The least bandwidth that can be set, in bytes a second. With less, a chunk would take so long that everybody who
/// asks for it gives up.
pub const LEAST_BANDWIDTH: u64 = 64 << 10;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// A minute of the week by the local clock: 0 is the one that begins on Monday at midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeekMinute(u16);

impl WeekMinute {
    /// Returns the minute of a day of the week (0 is Monday) at this hour and minute. Values out of range, which no
    /// clock shows, are brought into it.
    pub fn new(day: u8, hour: u8, minute: u8) -> Self {
        let at = u16::from(day % 7) * DAY + u16::from(hour) * 60 + u16::from(minute);
        Self(at % WEEK)
    }

    /// Returns the minutes from this one to the next `at` of the week, 1 to 10080.
    fn minutes_to(self, at: u16) -> u16 {
        (at + WEEK - self.0 - 1) % WEEK + 1
    }
}

/// The error of a text that is no timetable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTimetable {
    /// An entry of [`Hours`] names no mode.
    #[error(
        "“{0}” names no mode: write full, polite, reads or off at its end, as in “Mon-Fri 09:00-18:00 polite”"
    )]
    NoMode(String),
    /// A word is neither a day nor a time.
    #[error(
        "“{0}” is neither days nor hours: write Mon-Fri or Sat,Sun for days, 09:00-18:00 for hours"
    )]
    NoDays(String),
    /// A time is not one of a clock.
    #[error("“{0}” is not a time of day: write 09:00, or 24:00 for the end of a day")]
    NoTime(String),
    /// A range of hours is empty.
    #[error("“{0}” begins when it ends: leave the hours out for whole days")]
    NoHours(String),
    /// An entry of [`BandwidthHours`] has no time or no rate.
    #[error("“{0}” is no entry: write TIME,RATE such as 08:00,20M or Sat-00:00,off")]
    NoRate(String),
    /// A rate is too low.
    #[error("“{0}” is too little: at least 64KiB a second; to stop all: potluck pause")]
    TooSlow(String),
    /// A rate is not a size.
    #[error(transparent)]
    Size(#[from] BadSize),
    /// There are more entries than a timetable may have.
    #[error("a timetable has at most 64 entries")]
    TooLong,
}

/// The hours at which a mode other than [`LendMode::Full`] holds. The text is entries with `;` between them, each of days,
/// hours and a mode: `Mon-Fri 09:00-18:00 polite; Sat off`. Without days an entry is for each day, without hours for
/// the whole day. Hours that end before they begin go on past midnight. Of entries that overlap the last holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hours(Vec<HoursEntry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct HoursEntry {
    /// The days on which it begins, a bit each.
    days: u8,
    /// The minutes of the day at which it begins and ends; it ends on the next day if `to` is not later.
    from: u16,
    to: u16,
    mode: LendMode,
}

impl HoursEntry {
    fn holds(&self, at: WeekMinute) -> bool {
        let (day, minute) = (at.0 / DAY, at.0 % DAY);
        let begins_on = |day: u16| self.days & (1 << (day % 7)) != 0;
        match self.from < self.to {
            true => begins_on(day) && (self.from..self.to).contains(&minute),
            false => {
                begins_on(day) && minute >= self.from || begins_on(day + 6) && minute < self.to
            }
        }
    }
}

impl Hours {
    /// Returns the mode that holds at a minute.
    pub fn mode_at(&self, at: WeekMinute) -> LendMode {
        let entry = self.0.iter().rev().find(|entry| entry.holds(at));
        entry.map_or(LendMode::Full, |entry| entry.mode)
    }

    /// Returns the minutes from the begin of this one until the mode changes; `None` if it never does.
    pub fn changes_in(&self, at: WeekMinute) -> Option<u16> {
        let now = self.mode_at(at);
        let ends = self.0.iter().flat_map(|entry| [entry.from, entry.to]);
        let ends = ends.flat_map(|minute| (0..7).map(move |day| (day * DAY + minute) % WEEK));
        let later = ends.filter(|end| self.mode_at(WeekMinute(*end)) != now);
        later.map(|end| at.minutes_to(end)).min()
    }
}

impl FromStr for Hours {
    type Err = BadTimetable;

    fn from_str(text: &str) -> Result<Self, BadTimetable> {
        let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
        let entries = entries.map(hours_entry).collect::<Result<Vec<_>, _>>()?;
        if entries.len() > MOST { Err(BadTimetable::TooLong) } else { Ok(Self(entries)) }
    }
}

fn hours_entry(text: &str) -> Result<HoursEntry, BadTimetable> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let mode = words.pop().and_then(|word| word.parse().ok());
    let mode = mode.ok_or_else(|| BadTimetable::NoMode(text.into()))?;
    let (mut days, mut hours) = (None, None);
    for word in words {
        match word.split_once('-') {
            Some((from, to)) if word.contains(':') && hours.is_none() => {
                hours = Some((minute_of_day(from)?, minute_of_day(to)?, word));
            }
            _ if days.is_none() && hours.is_none() => days = Some(days_of(word)?),
            _ => return Err(BadTimetable::NoDays(word.into())),
        }
    }
    let (from, to, word) = hours.unwrap_or((0, DAY, ""));
    if from == to || from == DAY {
        return Err(BadTimetable::NoHours(word.into()));
    }
    Ok(HoursEntry { days: days.unwrap_or(0x7f), from, to, mode })
}

/// Reads days such as `Mon-Fri` or `Sat,Sun`, each a bit.
fn days_of(text: &str) -> Result<u8, BadTimetable> {
    let bad = || BadTimetable::NoDays(text.into());
    let day = |name: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(name.trim()));
    text.split(',').try_fold(0, |days, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first).ok_or_else(bad)?, day(last).ok_or_else(bad)?);
        let length = (last + 7 - first) % 7;
        Ok((first..=first + length).fold(days, |days, day| days | 1 << (day % 7)))
    })
}

/// Reads a time of day as its minute, with 24:00 for the end of the day.
fn minute_of_day(text: &str) -> Result<u16, BadTimetable> {
    let number = |text: &str, most: RangeInclusive<u16>| {
        let is_short = matches!(text.len(), 1..=2) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|number| is_short && most.contains(number))
    };
    let parts = text.split_once(':');
    let minute =
        parts.and_then(|(hour, minute)| Some(number(hour, 0..=24)? * 60 + number(minute, 0..=59)?));
    minute.filter(|minute| *minute <= DAY).ok_or_else(|| BadTimetable::NoTime(text.into()))
}

/// The most bytes a second each way; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// The most bytes a second that are sent from here.
    pub up: Option<u64>,
    /// The most bytes a second that are received here.
    pub down: Option<u64>,
}

impl Bandwidth {
    /// Returns the same limit both ways.
    pub fn both(rate: u64) -> Self {
        Self { up: Some(rate), down: Some(rate) }
    }

    /// Returns the part of the limit that each of `parts` gets.
    pub fn part(self, parts: usize) -> Self {
        let part = |rate: Option<u64>| rate.map(|rate| rate / parts.max(1) as u64);
        Self { up: part(self.up), down: part(self.down) }
    }

    /// Returns the lower of two limits, each way.
    pub fn min(self, other: Self) -> Self {
        let lower = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { up: lower(self.up, other.up), down: lower(self.down, other.down) }
    }
}

impl FromStr for Bandwidth {
    type Err = BadTimetable;

    /// Reads `20M`, `20M:5M` (up and down) or `off`.
    fn from_str(text: &str) -> Result<Self, BadTimetable> {
        let rate = |text: &str| match text.trim() {
            "off" => Ok(None),
            text => match parse_size(text)? {
                rate if rate < LEAST_BANDWIDTH => Err(BadTimetable::TooSlow(text.into())),
                rate => Ok(Some(rate)),
            },
        };
        let (up, down) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { up: rate(up)?, down: rate(down)? })
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |rate: Option<u64>| rate.map_or("off".into(), exact_size);
        match self.up == self.down {
            true => f.write_str(&text(self.up)),
            false => write!(f, "{}:{}", text(self.up), text(self.down)),
        }
    }
}

/// The bandwidth by hours, written as for rclone: one limit (`20M`, `20M:5M` for up and down, `off` for none), or
/// entries of a time and a limit, each of which holds until the next: `08:00,20M 19:00,off`, or with days
/// `Mon-00:00,20M Sat-00:00,off`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BandwidthHours {
    /// The minutes of the week from which the limits hold, in order.
    from: Vec<(u16, Bandwidth)>,
}

impl BandwidthHours {
    /// Returns the limit that holds at a minute.
    pub fn at(&self, at: WeekMinute) -> Bandwidth {
        // Before the first entry of the week the last one still holds.
        let before = self.from.iter().rev().find(|(from, _)| *from <= at.0);
        before.or(self.from.last()).map(|(_, limit)| *limit).unwrap_or_default()
    }

    /// Returns the minutes from the begin of this one until the limit changes; `None` if it never does.
    pub fn changes_in(&self, at: WeekMinute) -> Option<u16> {
        let now = self.at(at);
        let later = self.from.iter().filter(|(_, limit)| *limit != now);
        later.map(|(from, _)| at.minutes_to(*from)).min()
    }
}

impl FromStr for BandwidthHours {
    type Err = BadTimetable;

    fn from_str(text: &str) -> Result<Self, BadTimetable> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut from = Vec::new();
        match words.as_slice() {
            [] => {}
            [one] if !one.contains(',') => from.push((0, one.parse()?)),
            entries => {
                for entry in entries {
                    let (time, limit) = entry
                        .split_once(',')
                        .ok_or_else(|| BadTimetable::NoRate((*entry).into()))?;
                    let (days, time) = match time.split_once('-') {
                        Some((day, time)) => (days_of(day)?, time),
                        None => (0x7f, time),
                    };
                    let (minute, limit) = (minute_of_day(time)?, limit.parse()?);
                    let days = (0..7).filter(|day| days & (1 << day) != 0);
                    from.extend(days.map(|day| ((day * DAY + minute) % WEEK, limit)));
                }
            }
        }
        if from.len() > 7 * MOST {
            return Err(BadTimetable::TooLong);
        }
        // The sort keeps the order of what was written for one minute, so that the last of it holds.
        from.sort_by_key(|(minute, _)| *minute);
        Ok(Self { from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(day: u8, hour: u8, minute: u8) -> WeekMinute {
        WeekMinute::new(day, hour, minute)
    }

    fn hours(text: &str) -> Hours {
        text.parse().expect(text)
    }

    #[test]
    fn office_hours_hold_on_their_days_alone() {
        let office = hours("Mon-Fri 09:00-18:00 polite");
        assert_eq!(office.mode_at(at(0, 8, 59)), LendMode::Full);
        assert_eq!(office.changes_in(at(0, 8, 59)), Some(1));
        assert_eq!(office.mode_at(at(0, 9, 0)), LendMode::Polite);
        assert_eq!(office.changes_in(at(0, 9, 0)), Some(9 * 60));
        assert_eq!(office.mode_at(at(4, 18, 0)), LendMode::Full);
        assert_eq!(office.changes_in(at(4, 18, 0)), Some(2 * DAY + 15 * 60), "until Monday");
        assert_eq!(office.mode_at(at(5, 12, 0)), LendMode::Full);
    }

    #[test]
    fn hours_go_on_past_midnight() {
        let nights = hours("Fri 22:00-06:00 off");
        assert_eq!(nights.mode_at(at(4, 23, 0)), LendMode::Off);
        assert_eq!(nights.mode_at(at(5, 5, 59)), LendMode::Off);
        assert_eq!(nights.changes_in(at(4, 23, 0)), Some(7 * 60));
        assert_eq!(nights.mode_at(at(4, 5, 0)), LendMode::Full, "Thursday's night is none");
        let week_end = hours("Sun 22:00-06:00 off");
        assert_eq!(week_end.mode_at(at(0, 5, 0)), LendMode::Off, "into Monday");
        assert_eq!(week_end.changes_in(at(6, 22, 0)), Some(8 * 60));
    }

    #[test]
    fn the_last_of_overlapping_entries_holds() {
        let nights_only = hours("off; 20:00-08:00 full; Sat,Sun full");
        assert_eq!(nights_only.mode_at(at(2, 12, 0)), LendMode::Off);
        assert_eq!(nights_only.mode_at(at(2, 20, 0)), LendMode::Full);
        assert_eq!(nights_only.mode_at(at(6, 12, 0)), LendMode::Full);
        assert_eq!(nights_only.changes_in(at(4, 20, 0)), Some(2 * DAY + 12 * 60), "Monday at 8");
        assert_eq!(hours("").changes_in(at(0, 0, 0)), None);
        assert_eq!(hours("polite").changes_in(at(3, 1, 1)), None, "it never ends");
    }

    #[test]
    fn a_bad_timetable_is_refused_with_what_to_write() {
        for (text, said) in [
            ("Mon-Fri 09:00-18:00", "names no mode"),
            ("Mon-Fri 09:00-18:00 nice", "full, polite, reads or off"),
            ("Mo-Fr 09:00-18:00 off", "Mon-Fri"),
            ("Mon-Fri 9-18 off", "neither days nor hours"),
            ("Mon-Fri 09:00-25:00 off", "24:00"),
            ("09:60-10:00 off", "09:60"),
            ("09:00-09:00 off", "begins when it ends"),
            ("24:00-06:00 off", "begins when it ends"),
            ("09:00-10:00 Mon off", "“Mon” is neither"),
        ] {
            let why = text.parse::<Hours>().expect_err(text).to_string();
            assert!(why.contains(said), "{text}: {why}");
        }
        assert_eq!(";off".repeat(65).parse::<Hours>(), Err(BadTimetable::TooLong));
        for (text, said) in [
            ("08:00", "at least 64KiB"),
            ("08:00,20M 19:00", "TIME,RATE"),
            ("20M 5M", "TIME,RATE"),
            ("1k", "64KiB"),
            ("20X", "not a unit"),
            ("fast", "not a size"),
            ("Tod-08:00,20M", "Mon-Fri"),
        ] {
            let why = text.parse::<BandwidthHours>().expect_err(text).to_string();
            assert!(why.contains(said), "{text}: {why}");
        }
    }

    #[test]
    fn bandwidth_follows_its_timetable() {
        let limits: BandwidthHours = "08:00,20M:5M 19:00,off".parse().expect("as for rclone");
        let day = Bandwidth { up: Some(20 << 20), down: Some(5 << 20) };
        assert_eq!(limits.at(at(0, 7, 59)), Bandwidth::default(), "since Sunday evening");
        assert_eq!(limits.changes_in(at(0, 7, 59)), Some(1));
        assert_eq!(limits.at(at(3, 8, 0)), day);
        assert_eq!(limits.changes_in(at(3, 8, 0)), Some(11 * 60));
        assert_eq!(limits.at(at(3, 19, 0)), Bandwidth::default());
        let always: BandwidthHours = "10M".parse().expect("one limit");
        assert_eq!(always.at(at(6, 23, 59)), Bandwidth::both(10 << 20));
        assert_eq!(always.changes_in(at(0, 0, 0)), None);
        let weekly: BandwidthHours = "Mon-00:00,1M Sat-00:00,off".parse().expect("with days");
        assert_eq!(weekly.at(at(4, 23, 59)), Bandwidth::both(1 << 20));
        assert_eq!(weekly.at(at(5, 0, 0)), Bandwidth::default());
        assert_eq!(Bandwidth::both(9).min(day), Bandwidth::both(9));
        assert_eq!(day.to_string(), "20MiB:5MiB");
    }

    proptest! {
        #[test]
        fn a_change_is_told_for_the_minute_it_comes(
            all in prop::collection::vec((1_u8..0x80, 0..DAY, 1..=DAY, 0_u8..4), 0..9),
            minute in 0..WEEK,
        ) {
            let modes = [LendMode::Full, LendMode::Polite, LendMode::Reads, LendMode::Off];
            let entry = |(days, from, to, mode): (u8, u16, u16, u8)| {
                HoursEntry { days, from, to, mode: modes[usize::from(mode)] }
            };
            let entries = all.into_iter().filter(|(_, from, to, _)| from != to).map(entry);
            let hours = Hours(entries.collect());
            let at = WeekMinute(minute);
            let changes = hours.changes_in(at);
            let now = hours.mode_at(at);
            let first = (1..=WEEK).find(|in_| hours.mode_at(WeekMinute((minute + in_) % WEEK)) != now);
            prop_assert_eq!(changes, first);
        }
    }
}
