//! What the rules of an owner come to at a moment: a pause, the hours, the power supply, the network and the bandwidth are put
//! together to one mode and one limit. The strictest rule decides.

use crate::clock::UnixMillis;
use crate::lend_mode::LendMode;
use crate::timetable::{Bandwidth, BandwidthHours, Hours, WeekMinute};
use serde::{Deserialize, Serialize};

const MINUTE_MS: i64 = 60_000;

/// An owner's pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pause {
    /// There is none.
    #[default]
    No,
    /// The donor pauses until its owner has it resume.
    UntilResume,
    /// The donor pauses until this time of the wall clock, in milliseconds since 1970.
    Until(UnixMillis),
}

/// The rules of an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRules {
    /// The pause, if there is one.
    pub pause: Pause,
    /// The mode by hours.
    pub hours: Hours,
    /// The bandwidth by hours.
    pub bandwidth: BandwidthHours,
    /// The bandwidth each way in every mode but the full one, in bytes a second.
    pub polite_rate: u64,
    /// The mode while the machine runs on its battery.
    pub on_battery: LendMode,
    /// The mode while the machine's network is paid by the byte.
    pub on_metered: LendMode,
}

/// A moment as the owner's machine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerMoment {
    /// The time of the wall clock, in milliseconds since 1970.
    pub wall_ms: UnixMillis,
    /// The local time at that moment.
    pub local: WeekMinute,
    /// True while the machine runs on its battery.
    pub on_battery: bool,
    /// True while the machine's network is paid by the byte.
    pub on_metered: bool,
}

/// The rule that decides on the mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidingRule {
    /// No rule asks for less than all.
    #[default]
    None,
    /// The owner has paused the donor.
    Pause,
    /// The timetable of hours asks for less.
    Hours,
    /// The machine runs on its battery.
    Battery,
    /// The machine's network is paid by the byte.
    Metered,
}

/// What the rules of an owner come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// The mode that holds.
    pub mode: LendMode,
    /// The rule that decides on the mode.
    pub rule: DecidingRule,
    /// The limits that hold.
    pub bandwidth: Bandwidth,
    /// The time of the wall clock at which the deciding rule ends or its timetable says something else, in milliseconds
    /// since 1970; `None` if that is not known. It is off by an hour where the local clock is put forward or back
    /// before it.
    pub until_wall_ms: Option<UnixMillis>,
}

impl OwnerRules {
    /// Decides what holds at a moment.
    pub fn in_force(&self, now: OwnerMoment) -> InForce {
        let minute_began = now.wall_ms.div_euclid(MINUTE_MS) * MINUTE_MS;
        let at = |minutes: Option<u16>| {
            minutes.map(|minutes| minute_began + i64::from(minutes) * MINUTE_MS)
        };
        let hours = (self.hours.mode_at(now.local), at(self.hours.changes_in(now.local)));
        let battery = if now.on_battery { self.on_battery } else { LendMode::Full };
        let metered = if now.on_metered { self.on_metered } else { LendMode::Full };
        let (mode, rule, until_wall_ms) = match self.pause {
            Pause::UntilResume => (LendMode::Off, DecidingRule::Pause, None),
            Pause::Until(end) if now.wall_ms < end => {
                (LendMode::Off, DecidingRule::Pause, Some(end))
            }
            _ if metered > hours.0.max(battery) => (metered, DecidingRule::Metered, None),
            _ if battery > hours.0 => (battery, DecidingRule::Battery, None),
            _ if hours.0 > LendMode::Full => (hours.0, DecidingRule::Hours, hours.1),
            _ => {
                let changes = [hours.1, at(self.bandwidth.changes_in(now.local))];
                (LendMode::Full, DecidingRule::None, changes.into_iter().flatten().min())
            }
        };
        let own = match mode {
            LendMode::Full => Bandwidth::default(),
            _ => Bandwidth::both(self.polite_rate),
        };
        InForce { mode, rule, bandwidth: own.min(self.bandwidth.at(now.local)), until_wall_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> OwnerRules {
        OwnerRules {
            pause: Pause::No,
            hours: "Mon-Fri 09:00-18:00 polite".parse().expect("hours"),
            bandwidth: "08:00,10M 20:00,off".parse().expect("bandwidth"),
            polite_rate: 20 << 20,
            on_battery: LendMode::Reads,
            on_metered: LendMode::Polite,
        }
    }

    /// A Thursday of which the first second was 0 on the wall clock: the local zone is UTC.
    fn moment(hour: u8, minute: u8) -> OwnerMoment {
        let wall_ms = (i64::from(hour) * 60 + i64::from(minute)) * MINUTE_MS + 30_000;
        let local = WeekMinute::new(3, hour, minute);
        OwnerMoment { wall_ms, local, on_battery: false, on_metered: false }
    }

    #[test]
    fn the_strictest_rule_decides_and_tells_its_end() {
        let now = rules().in_force(moment(9, 30));
        assert_eq!((now.mode, now.rule), (LendMode::Polite, DecidingRule::Hours));
        assert_eq!(now.until_wall_ms, Some(18 * 60 * MINUTE_MS));
        assert_eq!(now.bandwidth, Bandwidth::both(10 << 20), "the lower of the two limits");
        let now = rules().in_force(OwnerMoment { on_battery: true, ..moment(9, 30) });
        assert_eq!((now.mode, now.rule), (LendMode::Reads, DecidingRule::Battery));
        assert_eq!(now.until_wall_ms, None);
        let evening = rules().in_force(moment(18, 30));
        assert_eq!((evening.mode, evening.rule), (LendMode::Full, DecidingRule::None));
        assert_eq!(evening.until_wall_ms, Some(20 * 60 * MINUTE_MS), "the bandwidth changes");
        assert_eq!(rules().in_force(moment(21, 0)).bandwidth, Bandwidth::default());
    }

    #[test]
    fn a_pause_ends_at_its_time_or_by_resume_alone() {
        let end = (9 * 60 + 31) * MINUTE_MS;
        let paused = OwnerRules { pause: Pause::Until(end), ..rules() };
        let now = paused.in_force(moment(9, 30));
        assert_eq!((now.mode, now.rule), (LendMode::Off, DecidingRule::Pause));
        assert_eq!(now.until_wall_ms, Some(end));
        assert_eq!(paused.in_force(moment(9, 31)).mode, LendMode::Polite, "then the hours hold");
        let paused = OwnerRules { pause: Pause::UntilResume, ..rules() };
        let year = OwnerMoment { wall_ms: 365 * 24 * 60 * MINUTE_MS, ..moment(0, 0) };
        assert_eq!(paused.in_force(year).mode, LendMode::Off);
    }

    #[test]
    fn battery_that_asks_for_less_than_the_hours_decides() {
        let on_battery = |mode| OwnerRules { on_battery: mode, ..rules() };
        let now = OwnerMoment { on_battery: true, ..moment(9, 30) };
        assert_eq!(on_battery(LendMode::Full).in_force(now).rule, DecidingRule::Hours);
        assert_eq!(on_battery(LendMode::Off).in_force(now).mode, LendMode::Off);
    }

    #[test]
    fn metered_network_decides_where_it_asks_for_the_least() {
        let now = OwnerMoment { on_metered: true, ..moment(18, 30) };
        let in_force = rules().in_force(now);
        assert_eq!((in_force.mode, in_force.rule), (LendMode::Polite, DecidingRule::Metered));
        let both = OwnerMoment { on_battery: true, ..now };
        assert_eq!(rules().in_force(both).rule, DecidingRule::Battery, "it allows less");
        let off = OwnerRules { on_metered: LendMode::Off, ..rules() };
        assert_eq!(off.in_force(both).mode, LendMode::Off);
    }
}
