//! `potluck lend --calibrate`: measures how much serving slows programs of this machine's owner, has the donor go by it, and
//! draws it.

use super::measured_impact::{keep, word};
use super::{absolute, disk_of, limits, slowdown};
use crate::args::LendArgs;
use crate::cmd::Ending;
use crate::command_settings::CommandSettings;
use crate::keys::Daemon;
use crate::output::{self, Output, table};
use crate::running::{self, Told};
use crate::settings_file::SettingsFile;
use indicatif::{ProgressBar, ProgressStyle};
use potluck_core::governor::OwnerResource;
use potluck_core::impact::{ImpactCurve, ImpactPoint, MEASURED, MachineImpact, plan};
use potluck_core::size::format_size;
use potluck_donor::calibration::{self, ImpactBed, full_rate};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The share by which the runs without service may differ before the owner is told that the figures are rough.
const RESTLESS: f64 = 0.1;

/// What was measured, and what the donor makes of it.
#[derive(Debug, Serialize)]
struct Calibrated {
    #[serde(flatten)]
    impact: MachineImpact,
    /// The share of its speed that an owner's program may lose; absent if the donor never yields.
    slowdown: Option<f64>,
    /// The most bytes a second that the donor serves while others want the resource, where that is less than all.
    ceilings: Vec<Ceiling>,
}

#[derive(Debug, Serialize)]
struct Ceiling {
    resource: OwnerResource,
    bytes_s: Option<u64>,
}

pub async fn run(
    args: LendArgs,
    settings: &CommandSettings,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let state = absolute(&args.state.unwrap_or_else(|| settings.donor_dir()))?;
    CommandSettings::donor_identity(&state)?;
    let file = SettingsFile::read(Daemon::Donor, &state)?;
    let Some(dir) = file.lent().into_iter().next() else {
        let what = "this machine lends nothing yet, so there is nothing to measure";
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("lend a directory first: potluck lend DIR"));
    };
    check_room(&file, &dir)?;
    output.note(&format!(
        "measures for {} how much serving slows programs of this machine, on the disk of {}",
        output::duration(args.calibrate_for.as_secs()),
        output::name(&dir.display().to_string()),
    ));
    let bar = if shown { ProgressBar::new(1) } else { ProgressBar::hidden() };
    let template = "{bar:30} {percent} %  {eta} left  {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("a fixed template"));
    let told = bar.clone();
    let work = tokio::task::spawn_blocking(move || measure(&dir, args.calibrate_for, &told));
    let curves = work.await.map_err(io::Error::other).flatten().map_err(|why| local(&why))?;
    bar.finish_and_clear();
    let impact = MachineImpact { measured_wall_ms: Env::system().clock.wall(), curves };
    keep(&state, &impact).map_err(|why| local(&why))?;
    let slowdown = slowdown(&file);
    if let Some(picture) = &args.svg {
        fs::write(picture, drawn(&impact, slowdown)).map_err(|why| {
            let what = format!("cannot write {}: {why}", picture.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
        })?;
    }
    let ceilings = impact.ceilings(slowdown.unwrap_or(f64::INFINITY));
    let ceilings = MEASURED.map(|resource| Ceiling {
        resource,
        bytes_s: ceilings.of(resource).map(|rate| rate as u64),
    });
    output.result(&Calibrated { impact, slowdown, ceilings: ceilings.into() }, Calibrated::text);
    match running::reload(&state).await {
        Told::Took(_) => output.note("the donor goes by it from now on"),
        Told::Nobody => output.note("the donor goes by it when it runs"),
        Told::Refused(why) | Told::Unheard(why) => {
            output.note(&format!("warning: the donor goes by it from its next start on: {why}"));
        }
    }
    Ok(Ending::Done)
}

fn local(why: &io::Error) -> Failure {
    let what = format!("cannot measure: {why}");
    Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
}

/// Refuses where the files that are read would take what the owner keeps free.
fn check_room(file: &SettingsFile, dir: &Path) -> Result<(), Failure> {
    let disk = disk_of(dir)?;
    let wanted = 2 * calibration::FILE;
    if disk.free < wanted + limits(file, dir, 0)?.keep_free.floor(disk.total) {
        let what = format!(
            "it takes {} for a moment, and the disk of {} has no more free than you keep free",
            format_size(wanted),
            dir.display()
        );
        return Err(Failure::new(ErrorKind::NoSpace, code::LOCAL_IO, what)
            .hint("make room, or keep less free: potluck set lend.keep-free"));
    }
    Ok(())
}

fn measure(dir: &Path, total: Duration, told: &ProgressBar) -> io::Result<Vec<ImpactCurve>> {
    told.set_message("prepares");
    // The files have no name, so that nothing is left behind however this ends.
    let bed = ImpactBed::new(tempfile::tempfile_in(dir)?, tempfile::tempfile_in(dir)?)?;
    let (planned, each) = plan(full_rate(), total);
    told.set_length(planned.len() as u64);
    let mut pairs = Vec::with_capacity(planned.len());
    for pair in planned {
        told.set_message(format!("a {} job", word(pair.resource)));
        pairs.push(bed.measure(pair, each)?);
        told.inc(1);
    }
    Ok(MEASURED.map(|resource| ImpactCurve::of(resource, &pairs)).into())
}

impl Calibrated {
    fn text(&self) -> String {
        let Self { impact, slowdown, ceilings } = self;
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut rows = Vec::new();
        for (ImpactCurve { resource, points, .. }, ceiling) in impact.curves.iter().zip(ceilings) {
            let said = points.iter().map(|ImpactPoint { rate, slowdown }| {
                format!("{} at {}/s", percent(*slowdown), format_size(*rate as u64))
            });
            let most = match (slowdown, ceiling.bytes_s) {
                (None, _) => "never yields".into(),
                (_, None) => "all".into(),
                (_, Some(rate)) => format!("{}/s", format_size(rate)),
            };
            rows.push(vec![word(*resource), said.collect::<Vec<_>>().join(", "), most]);
        }
        let may = slowdown
            .map_or("(lend.slowdown off)".into(), |share| format!("served for {}", percent(share)));
        let mut text = table(&["job of yours", "slower by", &may], &[], &rows);
        for ImpactCurve { resource, unrest, .. } in &impact.curves {
            if *unrest > RESTLESS {
                let _ = writeln!(
                    text,
                    "other programs disturbed the {} job by {}: its figures are rough, and better ones come while \
                     nobody works here",
                    word(*resource),
                    percent(*unrest)
                );
            }
        }
        text
    }
}

/// The size of the drawing, and its margins.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 40.0;
const RIGHT: f64 = 110.0;
const COLOURS: [&str; MEASURED.len()] = ["#0072b2", "#009e73", "#d55e00", "#cc79a7"];

/// Draws the slowdown of each job by the served rate, and what the owner allows.
fn drawn(impact: &MachineImpact, slowdown: Option<f64>) -> String {
    let points = || impact.curves.iter().flat_map(|curve| &curve.points);
    let most_rate = points().map(|point| point.rate).fold(1e6, f64::max);
    let most_slowdown = points().map(|point| point.slowdown).fold(0.1, f64::max);
    let x = |rate: f64| LEFT + rate / most_rate * (WIDTH - LEFT - RIGHT);
    let y = |slowdown: f64| HEIGHT - BOTTOM - slowdown / most_slowdown * (HEIGHT - TOP - BOTTOM);
    let (right, bottom) = (x(most_rate), y(0.0));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<title>How much serving slows programs of this machine</title>\n<rect width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" fill=\"#fff\"/>\n<path d=\"M{LEFT} {TOP} V{bottom} H{right:.1}\" fill=\"none\" \
         stroke=\"#555\"/>\n"
    );
    let mut label = |x: f64, y: f64, colour: &str, text: &str| {
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{text}</text>");
    };
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let (slower, rate) = (share * most_slowdown, share * most_rate);
        label(8.0, y(slower) + 4.0, "#555", &format!("{:.1} %", slower * 100.0));
        label(x(rate) - 10.0, bottom + 16.0, "#555", &format!("{:.0}", rate / 1e6));
    }
    label(LEFT, HEIGHT - 8.0, "#555", "served meanwhile, MB/s");
    label(8.0, 14.0, "#555", "slower by");
    for ((number, ImpactCurve { resource, .. }), colour) in
        impact.curves.iter().enumerate().zip(COLOURS)
    {
        label(
            right + 12.0,
            TOP + 10.0 + 18.0 * number as f64,
            colour,
            &format!("{} job", word(*resource)),
        );
    }
    for (ImpactCurve { points, .. }, colour) in impact.curves.iter().zip(COLOURS) {
        let mut line = format!("M{:.1} {:.1}", x(0.0), y(0.0));
        for ImpactPoint { rate, slowdown } in points {
            let _ = write!(line, " L{:.1} {:.1}", x(*rate), y(*slowdown));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
    }
    if let Some(allowed) = slowdown.filter(|allowed| *allowed <= most_slowdown) {
        let at = y(allowed);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1} H{right:.1}\" stroke=\"#555\" stroke-dasharray=\"4 3\"/>\n<text x=\"{:.1}\" \
             y=\"{:.1}\" fill=\"#555\">you allow</text>",
            right + 12.0,
            at + 4.0
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn impact(slowdown: f64) -> MachineImpact {
        let curve = |resource| ImpactCurve {
            resource,
            points: vec![ImpactPoint { rate: 100e6, slowdown }],
            unrest: 0.0,
        };
        MachineImpact { measured_wall_ms: 0, curves: MEASURED.map(curve).into() }
    }

    #[test]
    fn drawing_has_a_curve_for_each_job_and_what_is_allowed() {
        let svg = drawn(&impact(0.5), Some(0.05));
        assert_eq!(svg.matches("stroke-width").count(), MEASURED.len());
        assert!(svg.contains("you allow") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(!drawn(&impact(0.0), Some(0.5)).contains("you allow"), "it is above the picture");
    }
}
