//! `potluck explain`: says from which donors a file is read, or was copied, how fast each is, and what limits the rate.

use super::{Ending, cp};
use crate::args::{ExplainAction, ExplainArgs};
use crate::output::{Output, count, name, table};
use potluck_client::{Pool, SeenDonor};
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_core::path::PoolPath;
use potluck_core::placement::striping::{PlannedHere, Striping, WidthReason};
use potluck_core::size::format_size;
use potluck_core::traffic::{BothWays, Direction, Traffic};
use potluck_wire::control::{DonorState, Share, Stated};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The bytes a second that are expected of a donor that nobody measured: a gigabit link.
const UNKNOWN_RATE: f64 = 125e6;
/// The share of a transfer in which a donor is busy from which it counts as what limits the rate.
const BUSY: f64 = 0.85;

pub async fn run(
    args: ExplainArgs,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    match (args.action, args.path) {
        (Some(ExplainAction::Cp(copy)), _) => {
            let began = client.now();
            let ending = cp::run(*copy, client, &output.of_step(), shown).await?;
            let took = client.now().saturating_sub(began);
            let copied = Copied {
                striping: client.latest_striping(),
                ..Copied::of(client.seen_donors(), took)
            };
            output.result(&copied, Copied::text);
            Ok(ending)
        }
        (None, Some(path)) => {
            let stated = client.stat_chunks(&path).await?;
            let expected = Expected::of(&path, &stated)?;
            output.result(&expected, Expected::text);
            Ok(Ending::Done)
        }
        (None, None) => {
            Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, "name a file in the pool"))
        }
    }
}

/// The part of one donor in a read that would begin now.
#[derive(Debug, Serialize)]
struct Part {
    donor: DonorId,
    name: String,
    state: DonorState,
    /// The stored bytes that it holds of the file, and those that it would send.
    held_bytes: u64,
    sent_bytes: u64,
    /// The bytes a second that are expected of it, if somebody measured that.
    rate: Option<u64>,
    /// The load of the donor, from 0 to 1.
    load: f32,
    /// The seconds that its part takes.
    seconds: f64,
}

/// The read of a file, as it would go now.
#[derive(Debug, Serialize)]
struct Expected {
    path: String,
    bytes: u64,
    seconds: f64,
    bytes_s: u64,
    donors: Vec<Part>,
    /// What limits the rate, and what would make it faster.
    limited_by: String,
    advice: String,
}

impl Expected {
    /// Deals the chunks of a file to the donors that are expected to end first.
    fn of(path: &PoolPath, stated: &Stated) -> Result<Self, Failure> {
        let rate = |share: &Share| share.rates.read.map_or(UNKNOWN_RATE, |rate| rate.max(1) as f64);
        let rates: BTreeMap<DonorId, f64> =
            stated.donors.iter().map(|share| (share.donor, rate(share))).collect();
        let mut sent = BTreeMap::<DonorId, u64>::new();
        let mut held_once = 0_u64;
        for chunk in stated.chunk_list.iter().filter(|chunk| !chunk.parity) {
            let end = |donor: &&DonorId| {
                let owed = sent.get(donor).copied().unwrap_or(0) + u64::from(chunk.len);
                owed as f64 / rates.get(donor).copied().unwrap_or(UNKNOWN_RATE)
            };
            let first = chunk.donors.iter().min_by(|a, b| end(a).total_cmp(&end(b))).copied();
            held_once += u64::from(chunk.donors.len() == 1);
            if let Some(donor) = first {
                *sent.entry(donor).or_default() += u64::from(chunk.len);
            }
        }
        let part = |share: &Share| {
            let sent_bytes = sent.get(&share.donor).copied().unwrap_or(0);
            let (rate, seconds) = (share.rates.read, sent_bytes as f64 / rates[&share.donor]);
            Part {
                donor: share.donor,
                name: share.name.clone(),
                state: share.state,
                held_bytes: share.bytes,
                sent_bytes,
                rate,
                load: share.load,
                seconds,
            }
        };
        let donors: Vec<Part> = stated.donors.iter().map(part).collect();
        let slowest = donors.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let bytes: u64 = sent.values().sum();
        let Some(slowest) = slowest.filter(|_| bytes > 0) else {
            let what = format!("{path} has no chunks on donors that could be read");
            return Err(Failure::new(ErrorKind::Usage, code::WRONG_KIND, what).hint(
                "small files live in the catalog; `potluck stat` says how a file is stored",
            ));
        };
        let (limited_by, advice) = verdict(&donors, slowest, held_once > 0);
        let seconds = slowest.seconds;
        let bytes_s = (bytes as f64 / seconds.max(1e-6)) as u64;
        Ok(Self { path: path.to_string(), bytes, seconds, bytes_s, donors, limited_by, advice })
    }

    fn text(&self) -> String {
        let rows: Vec<_> = self.donors.iter().map(Part::row).collect();
        let head = ["donor", "state", "holds", "sends", "at", "load", "takes"];
        let mut text = table(&head, &[2, 3, 4, 5, 6], &rows);
        text.push_str(&format!(
            "{} in {:.1} s, {}/s, if this machine's link carries as much\nlimited by {}\n{}\n",
            format_size(self.bytes),
            self.seconds,
            format_size(self.bytes_s),
            self.limited_by,
            self.advice
        ));
        text
    }
}

impl Part {
    fn row(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.state.word().into(),
            format_size(self.held_bytes),
            format_size(self.sent_bytes),
            shown_rate(self.rate),
            format!("{:.0} %", 100.0 * self.load),
            format!("{:.1} s", self.seconds),
        ]
    }
}

/// Says what limits a read, and what would make it faster.
fn verdict(donors: &[Part], slowest: &Part, held_once: bool) -> (String, String) {
    let working = donors.iter().filter(|part| part.sent_bytes > 0);
    let seconds: f64 = working.clone().map(|part| part.seconds).sum();
    let mean = seconds / working.clone().count().max(1) as f64;
    if slowest.seconds > 1.5 * mean {
        let advice = if held_once {
            "some chunks lie on it alone: a second copy (`potluck policy set PATH --copies 2`) lets others send them"
        } else {
            "copies that others have are not enough to relieve it"
        };
        return (
            format!("{}, which holds most of what must be sent", name(&slowest.name)),
            advice.into(),
        );
    }
    let advice = "donors share the work evenly: more of them make it faster (`potluck policy set PATH --width auto`)";
    (format!("the rates of {} donors together", working.count()), advice.into())
}

/// The part of one donor in a copy.
#[derive(Debug, Serialize)]
struct Took {
    donor: DonorId,
    name: String,
    /// The traffic with it, both ways.
    traffic: BothWays<Traffic>,
    /// The bytes a second that were expected of it, and those seen while it had something to do.
    expected: BothWays<Option<u64>>,
    seen: BothWays<Option<u64>>,
    load: f32,
}

/// How a copy went.
#[derive(Debug, Serialize)]
struct Copied {
    seconds: f64,
    donors: Vec<Took>,
    /// How the files were striped, where some were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    striping: Option<Striping>,
    limited_by: String,
}

impl Copied {
    fn of(seen: Vec<SeenDonor>, took: Tick) -> Self {
        let took_one = |seen: SeenDonor| Took {
            donor: seen.access.donor,
            name: seen.access.name.clone(),
            traffic: seen.traffic,
            expected: seen.access.rates,
            seen: seen.traffic.map(|traffic| traffic.rate().map(|rate| rate as u64)),
            load: seen.access.load,
        };
        let donors: Vec<Took> = seen.into_iter().map(took_one).collect();
        let limited_by = limit(&donors, took);
        Self { seconds: took.as_secs_f64(), donors, striping: None, limited_by }
    }

    fn text(&self) -> String {
        let mut rows = Vec::new();
        for took in &self.donors {
            for (direction, word) in [(Direction::Read, "read"), (Direction::Write, "written")] {
                let traffic = took.traffic.of(direction);
                if !traffic.is_none() {
                    rows.push(vec![
                        took.name.clone(),
                        word.into(),
                        format_size(traffic.bytes),
                        shown_rate(*took.seen.of(direction)),
                        shown_rate(*took.expected.of(direction)),
                        format!("{:.0} %", 100.0 * busy(traffic, self.seconds)),
                        format!("{:.0} %", 100.0 * took.load),
                        traffic.failed.to_string(),
                    ]);
                }
            }
        }
        if rows.is_empty() {
            return format!("no donor took part: {}\n", self.limited_by);
        }
        let head = ["donor", "", "bytes", "seen", "expected", "busy", "load", "failed"];
        let text = table(&head, &[2, 3, 4, 5, 6, 7], &rows);
        let striped = self.striping.map(|it| format!("{}\n", striped(&it))).unwrap_or_default();
        format!("{text}{striped}limited by {}\n", self.limited_by)
    }
}

/// Says to how many donors files were written at once, why, and what of them is on this machine.
fn striped(striping: &Striping) -> String {
    let width = count(striping.width.into(), "donor");
    let why = match (striping.reason, striping.link) {
        (WidthReason::Asked, _) => "as the policy or the command asks".into(),
        (WidthReason::SmallFile, _) => "for small files are not split".into(),
        (WidthReason::Link, link) => {
            format!("which fill this machine's link ({})", shown_rate(link))
        }
        (WidthReason::Owners, link) => format!(
            "so that no owner's machine has more of this machine's link ({}) than it bears",
            shown_rate(link)
        ),
        (WidthReason::All, _) => "all that there are".into(),
        (WidthReason::Most, _) => {
            "the most that are taken unasked, for the rate of this machine's link is not known"
                .into()
        }
    };
    let here = match striping.here {
        PlannedHere::NoDonor => String::new(),
        PlannedHere::PassedOver => "; this machine's own donor was passed over (--near)".into(),
        PlannedHere::Needed => {
            "; this machine's own donor has a part, for others alone cannot keep it as well".into()
        }
        PlannedHere::Share(percent) => format!("; {percent} % of the chunks are here, too"),
    };
    format!("written to {width} at once, {why}{here}")
}

/// Says what limited a copy.
fn limit(donors: &[Took], took: Duration) -> String {
    let seconds = took.as_secs_f64();
    let working = |it: &&Took| it.traffic.read.bytes + it.traffic.written.bytes > 0;
    let all: Vec<&Took> = donors.iter().filter(working).collect();
    let share = |took: &&&Took| {
        busy(&took.traffic.read, seconds).max(busy(&took.traffic.written, seconds)) >= BUSY
    };
    let busy: Vec<_> = all.iter().filter(share).map(|took| name(&took.name)).collect();
    match (all.len(), busy.len()) {
        (0, _) => "nothing that donors do: the bytes were in the pool or in memory already".into(),
        (_, 0) => {
            "this machine (its disk, processor or the program that reads): donors waited".into()
        }
        (all, busy) if busy == all => {
            "the donors or the link between: all were busy to the end, and more donors may help"
                .into()
        }
        (_, 1..=3) => format!("{}: the others waited", busy.join(", ")),
        (all, busy) => format!("{busy} of {all} donors: the others waited"),
    }
}

/// Returns the share of the time in which a donor had something to do.
fn busy(traffic: &Traffic, seconds: f64) -> f64 {
    (traffic.busy_us as f64 / 1e6 / seconds.max(1e-6)).min(1.0)
}

fn shown_rate(rate: Option<u64>) -> String {
    rate.map_or("not measured".into(), |rate| format!("{}/s", format_size(rate)))
}
