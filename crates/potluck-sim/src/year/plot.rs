//! The figures of a year as a picture, with a small plot for each.

use super::Year;
use std::fmt::Write;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 130.0;
/// The space around each plot, which holds its labels.
const MARGIN: f64 = 34.0;
const PER_ROW: usize = 3;

/// Draws all figures over the days as SVG. A dashed line shows the figure of a new pool with the files of the end.
pub fn svg(year: &Year) -> String {
    let fresh = year.fresh.columns();
    let series: Vec<(&str, u64, Vec<u64>)> = fresh
        .iter()
        .enumerate()
        .filter(|(_, (name, _))| *name != "day")
        .map(|(at, (name, fresh))| {
            let days = year.days.iter().map(|figures| figures.columns()[at].1);
            (*name, *fresh, days.collect())
        })
        .collect();
    let (cell, line) = (WIDTH + 2.0 * MARGIN, HEIGHT + 2.0 * MARGIN);
    let (width, height) = (cell * PER_ROW as f64, line * series.len().div_ceil(PER_ROW) as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, (name, fresh, days)) in series.iter().enumerate() {
        let x = (number % PER_ROW) as f64 * cell + MARGIN;
        let y = (number / PER_ROW) as f64 * line + MARGIN;
        plot(&mut svg, (x, y), name, *fresh, days);
    }
    svg + "</svg>\n"
}

fn plot(svg: &mut String, (x, y): (f64, f64), name: &str, fresh: u64, days: &[u64]) {
    let top = days.iter().copied().chain([fresh, 1]).max().unwrap_or(1) as f64 * 1.1;
    let height = |value: u64| y + HEIGHT * (1.0 - value as f64 / top);
    let step = WIDTH / days.len().saturating_sub(1).max(1) as f64;
    let points: Vec<String> = days
        .iter()
        .enumerate()
        .map(|(day, value)| format!("{:.1},{:.1}", x + step * day as f64, height(*value)))
        .collect();
    let last = days.last().copied().unwrap_or(0);
    let line = height(fresh);
    let lines = [
        format!(
            "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#bbb\"/>"
        ),
        format!("<path d=\"M{x:.0} {line:.1}h{WIDTH}\" stroke=\"#c33\" stroke-dasharray=\"4 3\"/>"),
        format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"#236\" stroke-width=\"1.3\"/>",
            points.join(" ")
        ),
        format!(
            "<text x=\"{x:.0}\" y=\"{:.0}\">{name}: {} at the end, {} in a new pool</text>",
            y - 6.0,
            short(last),
            short(fresh)
        ),
        format!(
            "<text x=\"{x:.0}\" y=\"{:.0}\" fill=\"#777\">day 0 to {}</text>",
            y + HEIGHT + 14.0,
            days.len().saturating_sub(1)
        ),
    ];
    for line in lines {
        writeln!(svg, "{line}").expect("memory");
    }
}

/// Formats a number with one or two decimals and a decimal unit, such as `12.34 M`.
fn short(value: u64) -> String {
    let value = value as f64;
    match value {
        1e9.. => format!("{:.2} G", value / 1e9),
        1e6.. => format!("{:.2} M", value / 1e6),
        1e3.. => format!("{:.1} k", value / 1e3),
        _ => format!("{value}"),
    }
}
