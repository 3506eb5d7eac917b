//! Makes rows of samples, and shows rows to a person, to a script or for docs/benchmarks.md.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::against;
use crate::contests::{CONTESTS, Contest};
use crate::floor_runs::Floor;
use crate::measure::Cost;
use crate::outcome::{Figure, Limit, Outcome, Pair};
use crate::plan::{FILE_SIZE, FILES, Plan};

const MIB: f64 = (1 << 20) as f64;
const GIB: f64 = (1 << 30) as f64;

/// One line of `--json`. Fields may be added: readers ignore those they do not know.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Row {
    Speed(Speed),
    Value(Value),
}

/// A work against its floor, by medians over the rounds. In the row of a floor itself, `ratio`, `target` and `met`
/// are null.
#[derive(Debug, Serialize)]
pub struct Speed {
    pub work: String,
    /// The measure that `floor`, `ratio` and `target` speak of: `cpu` or `wall`.
    pub measure: &'static str,
    pub mib_s: f64,
    pub cpu_s_per_gib: f64,
    pub floor_name: &'static str,
    /// CPU seconds per GiB if `measure` is `cpu`, MiB/s if it is `wall`.
    pub floor: f64,
    /// The time of the work as a multiple of the floor's.
    pub ratio: Option<f64>,
    /// The lowest and highest ratio of one round.
    pub spread: Option<(f64, f64)>,
    pub target: Option<f64>,
    pub met: Option<bool>,
}

/// A figure with a limit of its own.
#[derive(Debug, Serialize)]
pub struct Value {
    pub work: String,
    pub value: f64,
    pub unit: &'static str,
    pub target: Option<f64>,
    pub met: Option<bool>,
    #[serde(skip)]
    pub at_least: bool,
}

impl Row {
    pub fn missed(&self) -> bool {
        let met = match self {
            Self::Speed(speed) => speed.met,
            Self::Value(value) => value.met,
        };
        met == Some(false)
    }

    /// Returns work, measured value, floor, ratio, target and verdict, as a person reads them.
    fn cells(&self) -> [String; 6] {
        let verdict =
            |met: Option<bool>| met.map_or("", |met| if met { "met" } else { "MISSED" }).to_owned();
        match self {
            Self::Speed(speed) => {
                let (cpu, rate) = (
                    |value: f64| format!("{value:.3} s/GiB"),
                    |value: f64| format!("{value:.0} MiB/s"),
                );
                let (measured, floor) = match speed.measure {
                    "wall" => (rate(speed.mib_s), rate(speed.floor)),
                    _ => (
                        format!("{}, {}", cpu(speed.cpu_s_per_gib), rate(speed.mib_s)),
                        cpu(speed.floor),
                    ),
                };
                let spread = speed
                    .spread
                    .map_or(String::new(), |(low, high)| format!(" ({low:.2}–{high:.2})"));
                [
                    format!("{}, {}", speed.work, speed.measure),
                    measured,
                    speed.ratio.map_or(String::new(), |_| format!("{floor} {}", speed.floor_name)),
                    speed.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}{spread}")),
                    speed.target.map_or(String::new(), |target| format!("≤ {}", short(target))),
                    verdict(speed.met),
                ]
            }
            Self::Value(value) => {
                let sign = if value.at_least { "≥" } else { "≤" };
                let digits = match value.unit {
                    "%" => 3,
                    "×" | "s" => 2,
                    "files/s" | "IOPS" | "/s" => 0,
                    _ => 1,
                };
                let target = value
                    .target
                    .map_or(String::new(), |target| format!("{sign} {target} {}", value.unit));
                [
                    value.work.clone(),
                    format!("{:.digits$} {}", value.value, value.unit),
                    String::new(),
                    String::new(),
                    target,
                    verdict(value.met),
                ]
            }
        }
    }
}

/// Formats a number with at most two digits after the point.
fn short(number: f64) -> String {
    format!("{}", (number * 100.0).round() / 100.0)
}

const HEADINGS: [&str; 6] = ["work", "measured", "floor", "× of floor", "target", ""];

pub fn rows(plan: &Plan, outcome: &Outcome) -> Vec<Row> {
    let mut floors: BTreeMap<Floor, Vec<Cost>> = BTreeMap::new();
    let mut contests = Vec::new();
    for contest in CONTESTS.iter().filter(|contest| plan.wants(contest.work)) {
        let Some(pairs) = outcome.pairs.get(&contest.work) else { continue };
        floors.entry(contest.floor).or_default().extend(pairs.iter().map(|pair| pair.floor));
        contests.extend(contest_rows(contest, pairs, bytes_of(contest.floor, plan)));
    }
    let floors = floors.iter().map(|(floor, costs)| {
        floor_row(*floor, floor.name().to_owned(), costs, bytes_of(*floor, plan))
    });
    let figures = outcome.figures.iter().map(figure_row);
    floors.chain(contests).chain(figures).collect()
}

/// Returns the row of a figure.
pub fn figure_row(figure: &Figure) -> Row {
    let (target, met) = match figure.limit {
        Limit::AtMost(most) => (Some(most), Some(figure.value <= most)),
        Limit::AtLeast(least) => (Some(least), Some(figure.value >= least)),
        Limit::None => (None, None),
    };
    Row::Value(Value {
        work: figure.work.clone(),
        value: figure.value,
        unit: figure.unit,
        target,
        met,
        at_least: matches!(figure.limit, Limit::AtLeast(_)),
    })
}

fn bytes_of(floor: Floor, plan: &Plan) -> u64 {
    if floor == Floor::Cp { FILES as u64 * FILE_SIZE } else { plan.size.0 }
}

/// Returns the row of a floor by itself.
pub fn floor_row(floor: Floor, work: String, costs: &[Cost], bytes: u64) -> Row {
    let (mib_s, cpu_s_per_gib) = (rate(wall(costs), bytes), per_gib(cpu(costs), bytes));
    let floor_name = floor.name();
    Row::Speed(Speed {
        work,
        measure: "cpu",
        mib_s,
        cpu_s_per_gib,
        floor_name,
        floor: cpu_s_per_gib,
        ratio: None,
        spread: None,
        target: None,
        met: None,
    })
}

fn contest_rows(contest: &Contest, pairs: &[Pair], bytes: u64) -> Vec<Row> {
    let floors: Vec<_> = pairs.iter().map(|pair| pair.floor).collect();
    let products: Vec<_> = pairs.iter().map(|pair| pair.product).collect();
    let (mib_s, cpu_s_per_gib) = (rate(wall(&products), bytes), per_gib(cpu(&products), bytes));
    let speed = |measure, floor, ratio: f64, spread, target: f64| {
        let met = Some(ratio <= target);
        let (work, floor_name) = (contest.name.to_owned(), contest.floor.name());
        Row::Speed(Speed {
            work,
            measure,
            mib_s,
            cpu_s_per_gib,
            floor_name,
            floor,
            ratio: Some(ratio),
            spread: Some(spread),
            target: Some(target),
            met,
        })
    };
    let floor_cpu = per_gib(cpu(&floors), bytes);
    let mut rows = vec![speed(
        "cpu",
        floor_cpu,
        cpu_s_per_gib / floor_cpu,
        spread(pairs, |cost| cost.cpu),
        contest.cpu,
    )];
    if let Some(target) = contest.wall {
        let floor_rate = rate(wall(&floors), bytes);
        rows.push(speed(
            "wall",
            floor_rate,
            floor_rate / mib_s,
            spread(pairs, |cost| cost.wall),
            target,
        ));
    }
    rows.extend(against::rows(contest.name, pairs));
    if let Some(target) = contest.files_per_second {
        let value = FILES as f64 / wall(&products);
        let met = Some(value >= target);
        rows.push(Row::Value(Value {
            work: format!("{}, rate", contest.name),
            value,
            unit: "files/s",
            target: Some(target),
            met,
            at_least: true,
        }));
    }
    rows
}

fn spread(pairs: &[Pair], of: impl Fn(&Cost) -> Duration) -> (f64, f64) {
    let ratios =
        pairs.iter().map(|pair| of(&pair.product).as_secs_f64() / of(&pair.floor).as_secs_f64());
    ratios.fold((f64::INFINITY, 0.0), |(low, high), ratio| (low.min(ratio), high.max(ratio)))
}

fn wall(costs: &[Cost]) -> f64 {
    median(costs.iter().map(|cost| cost.wall.as_secs_f64()).collect())
}

fn cpu(costs: &[Cost]) -> f64 {
    median(costs.iter().map(|cost| cost.cpu.as_secs_f64()).collect())
}

fn rate(seconds: f64, bytes: u64) -> f64 {
    bytes as f64 / MIB / seconds
}

fn per_gib(seconds: f64, bytes: u64) -> f64 {
    seconds * GIB / bytes as f64
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

pub fn print_json(rows: &[Row]) -> anyhow::Result<()> {
    for row in rows {
        println!("{}", serde_json::to_string(row)?);
    }
    Ok(())
}

pub fn print_markdown(rows: &[Row]) {
    println!("| {} |", HEADINGS.join(" | "));
    println!("|{}", "---|".repeat(HEADINGS.len()));
    for row in rows {
        println!("| {} |", row.cells().join(" | "));
    }
}

/// Prints columns for a terminal, then what was missed.
pub fn print_table(rows: &[Row]) {
    let cells: Vec<_> =
        std::iter::once(HEADINGS.map(str::to_owned)).chain(rows.iter().map(Row::cells)).collect();
    let width =
        |column: usize| cells.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    for line in &cells {
        let padded: Vec<_> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("{}", padded.join("  ").trim_end());
    }
    for row in rows.iter().filter(|row| row.missed()) {
        let [work, measured, _, ratio, target, _] = row.cells();
        let got = if ratio.is_empty() { measured } else { format!("{ratio} × of the floor") };
        println!("missed: {work}: {got}, target {target}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians_and_limits_are_inclusive() {
        let cost = |seconds: f64| Cost {
            wall: Duration::from_secs_f64(seconds),
            cpu: Duration::from_secs_f64(2.0 * seconds),
        };
        let pairs: Vec<_> = [(1.0, 1.25), (1.0, 9.0), (1.0, 1.0)]
            .map(|(floor, product)| Pair {
                floor: cost(floor),
                product: cost(product),
                other: Some(cost(2.0 * product)),
            })
            .into();
        let contest = Contest { cpu: 1.25, wall: Some(1.2), ..CONTESTS[0] };
        let rows = contest_rows(&contest, &pairs, 1 << 30);
        let missed: Vec<_> = rows.iter().map(Row::missed).collect();
        assert_eq!(missed, [false, true, false, false]);
        let Row::Value(value) = &rows[2] else { panic!("then that of the other program") };
        assert_eq!((value.value, value.target), (0.5, Some(1.05)));
        let Row::Speed(speed) = &rows[0] else { panic!("a contest's first row is its speed") };
        assert_eq!((speed.ratio, speed.spread), (Some(1.25), Some((1.0, 9.0))));
        assert_eq!((speed.mib_s, speed.cpu_s_per_gib), (1024.0 / 1.25, 2.5));
    }

    #[test]
    fn json_has_the_promised_fields() {
        let cost = Cost { wall: Duration::from_secs(1), cpu: Duration::from_secs(1) };
        let files = CONTESTS.iter().find(|contest| contest.files_per_second.is_some());
        let files = files.expect("a work over many files");
        let rows =
            contest_rows(files, &[Pair { floor: cost, product: cost, other: None }], 1 << 30);
        let lines: Vec<serde_json::Value> = rows
            .iter()
            .map(|row| serde_json::to_value(row).expect("rows are plain data"))
            .collect();
        assert!(
            ["work", "mib_s", "cpu_s_per_gib", "floor", "ratio", "target", "met"]
                .iter()
                .all(|field| lines[0].get(field).is_some())
        );
        assert!(
            ["work", "value", "unit", "target", "met"]
                .iter()
                .all(|field| lines[1].get(field).is_some())
        );
    }
}
