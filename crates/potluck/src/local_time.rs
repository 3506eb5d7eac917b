//! The time of day where this machine is, by its C library, which knows the zone.

use potluck_core::clock::UnixMillis;
use potluck_core::timetable::WeekMinute;

/// A time as a clock and a calendar on the wall show it.
#[derive(Debug, Clone, Copy)]
pub struct LocalTime(libc::tm);

impl LocalTime {
    /// Returns the local time of milliseconds since 1970; `None` where the C library cannot tell it.
    pub fn of(wall_ms: UnixMillis) -> Option<Self> {
        let seconds: libc::time_t = wall_ms.div_euclid(1000);
        // SAFETY: `localtime_r` reads `seconds` and fills `parts`, both of which are there while it runs; all zeros are
        // a value of this plain structure.
        let parts = unsafe {
            let mut parts: libc::tm = std::mem::zeroed();
            (!libc::localtime_r(&seconds, &mut parts).is_null()).then_some(parts)
        };
        parts.map(Self)
    }

    /// Returns the date and the time of day.
    pub fn text(&self) -> String {
        let libc::tm { tm_year, tm_mon, tm_mday, tm_hour, tm_min, tm_sec, .. } = self.0;
        let (year, month) = (tm_year + 1900, tm_mon + 1);
        format!("{year:04}-{month:02}-{tm_mday:02} {tm_hour:02}:{tm_min:02}:{tm_sec:02}")
    }

    /// Returns how much the clock shows more than in UTC, in milliseconds.
    pub fn offset_ms(&self) -> i64 {
        self.0.tm_gmtoff * 1000
    }

    /// Returns the minute of the week.
    pub fn week_minute(&self) -> WeekMinute {
        let libc::tm { tm_wday, tm_hour, tm_min, .. } = self.0;
        // The C library begins a week on Sunday.
        WeekMinute::new(((tm_wday + 6) % 7) as u8, tm_hour as u8, tm_min as u8)
    }

    /// Returns the next time at which the clock shows `hour:minute`, in milliseconds since 1970; `None` where the C
    /// library cannot tell it.
    pub fn next(&self, hour: u8, minute: u8) -> Option<UnixMillis> {
        let (hour, minute) = (i32::from(hour), i32::from(minute));
        let mut parts = self.0;
        let is_over = (hour, minute) <= (parts.tm_hour, parts.tm_min);
        parts.tm_mday += i32::from(is_over);
        (parts.tm_hour, parts.tm_min, parts.tm_sec) = (hour, minute, 0);
        parts.tm_isdst = -1; // the C library finds out whether it is summer then
        // SAFETY: `mktime` reads and normalises `parts`, which is there while it runs.
        let seconds = unsafe { libc::mktime(&mut parts) };
        (seconds != -1).then_some(seconds * 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_time_of_day_is_today_or_tomorrow() {
        let now = 1_700_000_000_000;
        let here = LocalTime::of(now).expect("a time");
        for hour in 0..24 {
            let next = here.next(hour, 30).expect("a time");
            // A day has 25 hours where a summer ends.
            assert!(next > now && next - now <= 25 * 3_600_000, "{hour}:30 in {} ms", next - now);
            let shown = LocalTime::of(next).expect("a time").text();
            assert!(shown.ends_with(&format!(" {hour:02}:30:00")), "{shown}");
        }
    }
}
