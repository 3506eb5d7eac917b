//! `potluck cost`: the bill of this machine's owner: what is lent, what that does for others, and what it costs.

use super::Ending;
use super::lend::bill::{local_now, read, sentence};
use super::lend::{measured_impact, slowdown};
use crate::args::CostArgs;
use crate::keys::Daemon;
use crate::output::{Output, duration, table};
use crate::settings_file::SettingsFile;
use potluck_core::cost_history::{CostPeriod, DELAY_WINDOW_MS, LendingCost, day_of};
use potluck_core::impact::MachineImpact;
use potluck_core::size::format_size;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

const DAY_MS: u64 = 24 * 3_600_000;
const DAYS_A_YEAR: i64 = 365;
/// The days of which the mean is told.
const LATELY: i64 = 30;

/// The bill as the command tells it.
#[derive(Debug, Serialize)]
struct Bill {
    /// What was done and used today, in local time.
    today: LendingCost,
    /// The mean of a day, of the last thirty days that are known.
    a_day: LendingCost,
    /// The number of days that the mean is of.
    days: i64,
    /// The year, by months.
    months: Vec<Month>,
    /// The bytes written in a year as a share of what the disk endures, 0 to 1, if that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    endurance_share_a_year: Option<f64>,
    /// How much serving slows programs of this machine, if that was measured.
    impact: Option<MachineImpact>,
    /// The share of its speed that an owner's program may lose; absent if the donor never yields.
    slowdown: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Month {
    /// The month, such as 2026-11.
    month: String,
    #[serde(flatten)]
    cost: LendingCost,
}

pub fn run(args: CostArgs, state: &Path, output: &Output) -> Result<Ending, Failure> {
    let history = read(state);
    let today = day_of(local_now());
    let year: Vec<CostPeriod> = history.days().copied().collect();
    let (lately, days) = history.since(today - LATELY + 1, today);
    let a_day = mean(&lately, days.max(1) as u64);
    let a_year = a_day.disk_written.saturating_mul(DAYS_A_YEAR as u64);
    let share = args.endurance.map(|endures| a_year as f64 / endures.max(1) as f64);
    let bill = Bill {
        today: history.since(today, today).0,
        a_day,
        days,
        months: months(&year),
        endurance_share_a_year: share,
        impact: measured_impact::read(state),
        slowdown: slowdown(&SettingsFile::read(Daemon::Donor, state)?),
    };
    if let Some(file) = &args.svg {
        fs::write(file, drawn(&year, today)).map_err(|why| {
            let what = format!("cannot write {}: {why}", file.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        })?;
    }
    output.result(&bill, Bill::text);
    Ok(Ending::Done)
}

/// Returns what each of `days` had of a sum on the mean; what is no sum stays.
fn mean(sum: &LendingCost, days: u64) -> LendingCost {
    LendingCost {
        served: sum.served / days,
        received: sum.received / days,
        disk_written: sum.disk_written / days,
        cpu_ms: sum.cpu_ms / days,
        yielded_ms: sum.yielded_ms / days,
        up_ms: sum.up_ms / days,
        ..*sum
    }
}

/// Returns the month of a day since 1970, such as 2026-11.
fn month_of(day: i64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(day.max(0) as u64 * DAY_MS);
    humantime::format_rfc3339_seconds(time).to_string()[..7].to_owned()
}

fn months(days: &[CostPeriod]) -> Vec<Month> {
    let mut months: Vec<Month> = Vec::new();
    for day in days {
        let month = month_of(day.number);
        match months.last_mut().filter(|last| last.month == month) {
            Some(last) => last.cost.add(&day.cost),
            None => months.push(Month { month, cost: day.cost }),
        }
    }
    months
}

/// Says how much anybody on the machine can have been delayed at worst.
fn delay(cost: &LendingCost) -> String {
    let worst = cost.worst_delay_ms as f64 / 1000.0;
    let window = DELAY_WINDOW_MS / 1000;
    format!("{worst:.1} s of {window} s")
}

impl Bill {
    fn text(&self) -> String {
        let Self { today, a_day, days, months, endurance_share_a_year, impact, slowdown } = self;
        let (lent, stored) = (format_size(today.lent.max(a_day.lent)), format_size(a_day.stored));
        let mut text = format!("lent:     {lent}, of which {stored} are stored\n");
        let _ = writeln!(text, "today:    {}", sentence(today));
        let _ = writeln!(text, "a day:    {} (the mean of {days} days)", sentence(a_day));
        let _ = writeln!(
            text,
            "delay:    at most {} today, {} in that time: for so long something here waited while data moved, \
             whoever caused it",
            delay(today),
            delay(a_day)
        );
        let a_year = a_day.disk_written.saturating_mul(DAYS_A_YEAR as u64);
        let share = match endurance_share_a_year {
            Some(share) => format!(", {:.3} % of what the disk endures", share * 100.0),
            None => "; --endurance 600TB tells the share of what an SSD endures".into(),
        };
        let _ = writeln!(text, "a year:   {} are written to disk{share}", format_size(a_year));
        let _ =
            writeln!(text, "impact:   {}", measured_impact::sentence(impact.as_ref(), *slowdown));
        if months.is_empty() {
            text.push_str("nothing was noted yet: a bill begins when `potluck lend` runs\n");
            return text;
        }
        let row = |Month { month, cost }: &Month| {
            vec![
                month.clone(),
                format_size(cost.served),
                format_size(cost.received),
                format_size(cost.disk_written),
                duration(cost.cpu_ms / 1000),
                duration(cost.yielded_ms / 1000),
                delay(cost),
                duration(cost.up_ms / 1000),
                format_size(cost.stored),
            ]
        };
        let rows: Vec<_> = months.iter().map(row).collect();
        let head =
            ["month", "sent", "received", "written", "cpu", "yielded", "delay", "up", "stored"];
        text.push('\n');
        text + &table(&head, &[1, 2, 3, 4, 5, 6, 7, 8], &rows)
    }
}

/// The size of the drawing, the width of its labels, and the distance of its bars.
const WIDTH: i64 = 880;
const HEIGHT: i64 = 300;
const LEFT: i64 = 70;
const STEP: f64 = 2.2;

/// Draws the year up to `today`: what was sent upwards and what was received downwards, a bar a day.
fn drawn(days: &[CostPeriod], today: i64) -> String {
    let middle = HEIGHT / 2;
    let most = days.iter().map(|day| day.cost.served.max(day.cost.received)).max().unwrap_or(0);
    let scale = (middle - 30) as f64 / most.max(1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<title>What this machine sent and received in a year</title>\n<rect width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    let mut month = String::new();
    for day in today - DAYS_A_YEAR + 1..=today {
        let at = LEFT as f64 + (day - today + DAYS_A_YEAR - 1) as f64 * STEP;
        let now = month_of(day);
        if now != month {
            if !month.is_empty() {
                let _ = writeln!(
                    svg,
                    "<text x=\"{at:.1}\" y=\"{}\" fill=\"#555\">{}</text>",
                    HEIGHT - 6,
                    &now[2..]
                );
            }
            month = now;
        }
        let Ok(found) = days.binary_search_by_key(&day, |one| one.number) else { continue };
        let LendingCost { served, received, .. } = days[found].cost;
        let (up, down) = (served as f64 * scale, received as f64 * scale);
        let top = middle as f64 - up;
        let _ = writeln!(
            svg,
            "<rect x=\"{at:.1}\" y=\"{top:.1}\" width=\"1.8\" height=\"{up:.1}\" fill=\"#0072b2\"/><rect \
             x=\"{at:.1}\" y=\"{middle}\" width=\"1.8\" height=\"{down:.1}\" fill=\"#e69f00\"/>"
        );
    }
    let (top, bottom) = (40, HEIGHT - 24);
    let _ = writeln!(
        svg,
        "<line x1=\"{LEFT}\" y1=\"{middle}\" x2=\"{WIDTH}\" y2=\"{middle}\" stroke=\"#555\"/>\n<text x=\"4\" \
         y=\"{top}\" fill=\"#0072b2\">sent</text>\n<text x=\"4\" y=\"{bottom}\" fill=\"#e69f00\">received</text>\n\
         <text x=\"4\" y=\"14\" fill=\"#555\">{} a day at most</text>\n</svg>",
        format_size(most)
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: i64, served: u64) -> CostPeriod {
        CostPeriod { number, cost: LendingCost { served, ..LendingCost::default() } }
    }

    #[test]
    fn days_add_up_to_calendar_months() {
        let days: Vec<_> = (20_000..20_090).map(|number| day(number, 1)).collect();
        let all = months(&days);
        let said: Vec<_> = all.iter().map(|one| (one.month.as_str(), one.cost.served)).collect();
        assert_eq!(said, [("2024-10", 28), ("2024-11", 30), ("2024-12", 31), ("2025-01", 1)]);
    }

    #[test]
    fn a_drawn_year_has_a_bar_for_each_day_that_is_known() {
        let days = [day(20_000, 5), day(20_001, 0), day(20_002, 10)];
        let svg = drawn(&days, 20_002);
        assert_eq!(svg.matches("#0072b2\"/>").count(), days.len());
        assert!(svg.contains("10 B a day at most") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(drawn(&[], 20_002).contains("0 B a day at most"));
    }
}
