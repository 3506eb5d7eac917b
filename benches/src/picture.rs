//! Shows what was measured at several settings as a picture (SVG) and a table (CSV). There is a panel for each
//! question, and in it a line for each contestant: its medians, with the range of all rounds.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::outcome::{Figure, Limit};
use crate::report::median;

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 200.0;
/// The margin around each panel, in which its words are.
const MARGIN: f64 = 48.0;
/// The height of a line of the legend below the panels.
const LEGEND_LINE: f64 = 16.0;
const COLOURS: [&str; 8] = ["#236", "#c33", "#283", "#a60", "#638", "#088", "#777", "#d5a"];

/// Panels that belong together.
pub struct Picture {
    /// The name of its files, without an ending.
    pub name: &'static str,
    /// The commands that made it, of which each becomes a line of comment in the table.
    pub commands: Vec<String>,
    pub panels: Vec<Panel>,
}

/// The contestants of one question, at several settings of one thing.
pub struct Panel {
    title: String,
    /// The thing that is set.
    axis: &'static str,
    unit: &'static str,
    settings: Vec<String>,
    series: Vec<Series>,
    /// The contestants that have no such setting, each of which is a level line.
    levels: Vec<Series>,
}

struct Series {
    name: String,
    /// A point for each setting.
    points: Vec<Point>,
}

/// The values of all rounds.
#[derive(Clone, Default)]
struct Point {
    clock: Vec<f64>,
    told: Vec<f64>,
}

/// The values of one round.
#[derive(Clone, Copy)]
pub struct Sample {
    /// The value by the clock of the bench.
    pub clock: f64,
    /// The value that the product tells.
    pub told: Option<f64>,
}

impl Point {
    fn add(&mut self, sample: Sample) {
        self.clock.push(sample.clock);
        self.told.extend(sample.told);
    }

    fn range(&self) -> (f64, f64) {
        let range = |(low, high): (f64, f64), value: &f64| (low.min(*value), high.max(*value));
        self.clock.iter().fold((f64::INFINITY, 0.0), range)
    }
}

impl Panel {
    pub fn new(
        title: impl Into<String>,
        axis: &'static str,
        unit: &'static str,
        settings: Vec<String>,
    ) -> Self {
        let (series, levels) = (Vec::new(), Vec::new());
        Self { title: title.into(), axis, unit, settings, series, levels }
    }

    /// Adds a round of a contestant at a setting.
    pub fn add(&mut self, name: &str, setting: usize, sample: Sample) {
        let settings = self.settings.len();
        series(&mut self.series, name, settings).points[setting].add(sample);
    }

    /// Adds a round of a contestant that has no setting.
    pub fn add_level(&mut self, name: &str, clock: f64) {
        series(&mut self.levels, name, 1).points[0].add(Sample { clock, told: None });
    }

    /// Returns all points that were measured, with their contestant and setting.
    fn points(&self) -> impl Iterator<Item = (&str, Option<&str>, &Point)> {
        let of_settings = self.series.iter().flat_map(move |series| {
            let points = self.settings.iter().zip(&series.points);
            points
                .map(move |(setting, point)| (series.name.as_str(), Some(setting.as_str()), point))
        });
        let levels = self.levels.iter().map(|level| (level.name.as_str(), None, &level.points[0]));
        of_settings.chain(levels).filter(|(.., point)| !point.clock.is_empty())
    }

    fn top(&self) -> f64 {
        self.points().map(|(.., point)| point.range().1).fold(1e-9, f64::max) * 1.1
    }
}

fn series<'a>(all: &'a mut Vec<Series>, name: &str, settings: usize) -> &'a mut Series {
    let at = all.iter().position(|series| series.name == name).unwrap_or_else(|| {
        let points = vec![Point::default(); settings];
        all.push(Series { name: name.to_owned(), points });
        all.len() - 1
    });
    &mut all[at]
}

impl Picture {
    /// Writes the table and the picture into a directory, and prints their paths.
    pub fn write(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        for (ending, text) in [("csv", self.csv()), ("svg", self.svg())] {
            let path = dir.join(self.name).with_extension(ending);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            eprintln!("{}", path.display());
        }
        Ok(())
    }

    /// Returns the medians, for the table of the whole run.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for panel in &self.panels {
            for (name, setting, point) in panel.points() {
                let setting = setting.map_or(String::new(), |at| format!(", {} {at}", panel.axis));
                let work = format!("{}: {name}{setting}", panel.title);
                let mut figure = |work, values: &Vec<f64>| {
                    let (value, unit, limit) = (median(values.clone()), panel.unit, Limit::None);
                    figures.push(Figure { work, value, unit, limit });
                };
                if !point.told.is_empty() {
                    figure(format!("{work}, as the mount tells it"), &point.told);
                }
                figure(work, &point.clock);
            }
        }
        figures
    }

    fn csv(&self) -> String {
        let mut csv = String::new();
        for command in &self.commands {
            writeln!(csv, "# {command}").expect("memory");
        }
        csv += "panel,contestant,setting,unit,median,lowest,highest,rounds,told_by_product\n";
        for panel in &self.panels {
            for (name, setting, point) in panel.points() {
                let (low, high) = point.range();
                let told = match point.told.is_empty() {
                    true => String::new(),
                    false => format!("{:.2}", median(point.told.clone())),
                };
                let setting = setting.map_or(String::new(), |at| format!("{} {at}", panel.axis));
                writeln!(
                    csv,
                    "\"{}\",\"{name}\",\"{setting}\",{},{:.2},{low:.2},{high:.2},{},{told}",
                    panel.title,
                    panel.unit,
                    median(point.clock.clone()),
                    point.clock.len(),
                )
                .expect("memory");
            }
        }
        csv
    }

    fn svg(&self) -> String {
        let (cell, line) = (WIDTH + 2.0 * MARGIN, HEIGHT + 2.0 * MARGIN);
        let lines = self.panels.iter().map(|panel| panel.series.len() + panel.levels.len()).max();
        let legend = lines.unwrap_or(0) as f64 * LEGEND_LINE;
        let (width, height) = (cell * self.panels.len() as f64, line + legend);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        for (number, panel) in self.panels.iter().enumerate() {
            panel.draw(&mut svg, number as f64 * cell + MARGIN, MARGIN);
        }
        svg + "</svg>\n"
    }
}

impl Panel {
    /// Draws the panel with its upper left corner at `x` and `y`.
    fn draw(&self, svg: &mut String, x: f64, y: f64) {
        let top = self.top();
        let height = |value: f64| y + HEIGHT * (1.0 - value / top);
        let place = |at: usize| x + WIDTH * (at as f64 + 0.5) / self.settings.len() as f64;
        let mut put = |line: String| writeln!(svg, "{line}").expect("memory");
        put(format!(
            "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#bbb\"/>"
        ));
        put(format!(
            "<text x=\"{x:.0}\" y=\"{:.0}\">{}, {}</text>",
            y - 8.0,
            self.title,
            self.unit
        ));
        for quarter in 0..=4 {
            let value = top * f64::from(quarter) / 4.0;
            put(format!(
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#777\">{}</text>",
                x - 4.0,
                height(value) + 4.0,
                short(value)
            ));
        }
        for (at, setting) in self.settings.iter().enumerate() {
            put(format!(
                "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#777\">{setting}</text>",
                place(at),
                y + HEIGHT + 14.0
            ));
        }
        put(format!(
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            x + WIDTH / 2.0,
            y + HEIGHT + 28.0,
            self.axis
        ));
        for (number, series) in self.series.iter().chain(&self.levels).enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let is_level = number >= self.series.len();
            let dashes = if is_level { " stroke-dasharray=\"4 3\"" } else { "" };
            let legend = y + HEIGHT + MARGIN + LEGEND_LINE * number as f64;
            put(format!(
                "<path d=\"M{x:.0} {:.0}h24\" stroke=\"{colour}\" stroke-width=\"1.5\"{dashes}/>\
                 <text x=\"{:.0}\" y=\"{legend:.0}\">{}</text>",
                legend - 4.0,
                x + 30.0,
                series.name
            ));
            if is_level {
                let at = height(median(series.points[0].clock.clone()));
                put(format!("<path d=\"M{x:.0} {at:.1}h{WIDTH}\" stroke=\"{colour}\"{dashes}/>"));
                continue;
            }
            let known = || series.points.iter().enumerate().filter(|(_, it)| !it.clock.is_empty());
            let medians = known().map(|(at, point)| {
                format!("{:.1},{:.1}", place(at), height(median(point.clock.clone())))
            });
            put(format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
                medians.collect::<Vec<_>>().join(" ")
            ));
            for (at, point) in known() {
                let ((low, high), x) = (point.range(), place(at));
                put(format!(
                    "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"{colour}\"/>\
                     <circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{colour}\"/>",
                    height(low),
                    height(high),
                    height(median(point.clock.clone()))
                ));
            }
        }
    }
}

/// Returns a number as an axis shows it.
fn short(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_and_picture_show_medians_only() {
        let mut panel = Panel::new("OAB", "donors", "MiB/s", vec!["1".into(), "2".into()]);
        for (clock, told) in [(10.0, 11.0), (30.0, 31.0), (20.0, 21.0)] {
            panel.add("sliding-window", 1, Sample { clock, told: Some(told) });
        }
        panel.add_level("local disk", 40.0);
        let commands = vec!["cargo xtask bench".to_owned()];
        let picture = Picture { name: "oab", commands, panels: vec![panel] };
        assert_eq!(
            picture.csv(),
            "# cargo xtask bench\n\
             panel,contestant,setting,unit,median,lowest,highest,rounds,told_by_product\n\
             \"OAB\",\"sliding-window\",\"donors 2\",MiB/s,20.00,10.00,30.00,3,21.00\n\
             \"OAB\",\"local disk\",\"\",MiB/s,40.00,40.00,40.00,1,\n"
        );
        let svg = picture.svg();
        // On an axis that ends at 44, the value 20 is this far below the upper edge of the picture.
        let height = MARGIN + HEIGHT * (1.0 - 20.0 / 44.0);
        assert!(svg.contains(&format!("points=\"288.0,{height:.1}\"")), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 1, "one setting was measured");
        let works: Vec<_> = picture.figures().into_iter().map(|it| (it.work, it.value)).collect();
        let work = |text: &str, value| (text.to_owned(), value);
        assert_eq!(
            works,
            [
                work("OAB: sliding-window, donors 2, as the mount tells it", 21.0),
                work("OAB: sliding-window, donors 2", 20.0),
                work("OAB: local disk", 40.0)
            ]
        );
    }
}
