//! `potluck scrub`: has donors read back what they hold, and shows the results.

use super::{Ending, donors};
use crate::args::{ScrubArgs, ScrubNowArgs};
use crate::output::{Output, count, table};
use potluck_client::Pool;
use potluck_core::size::format_size;
use potluck_wire::control::{self, DonorState, DonorStatus, SLOWEST_SCRUB, Scrubbed, Status};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;

#[derive(Serialize)]
struct DonorScrub {
    donor: String,
    state: String,
    #[serde(flatten)]
    scrub: Scrubbed,
    bad: u64,
}

pub async fn run(args: ScrubArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        ScrubArgs::Now(args) => now(args, client, output).await,
        ScrubArgs::Status => {
            status(&client.call(&Status {}).await?.donors, output);
            Ok(Ending::Done)
        }
    }
}

/// Shows how far the reading of donors is.
pub fn status(donors: &[DonorStatus], output: &Output) {
    let scrubs: Vec<_> = donors.iter().map(of_donor).collect();
    output.result(&serde_json::json!({ "donors": scrubs }), |_| text(&scrubs));
}

async fn now(args: ScrubNowArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    if args.rate < SLOWEST_SCRUB {
        let what = format!("--rate: no donor reads slower than {}/s", format_size(SLOWEST_SCRUB));
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("to leave the donors alone, do nothing: unasked they read in the background"));
    }
    let donor = match &args.donor {
        Some(name) => Some(donors::named(client, name).await?),
        None => None,
    };
    let which = donor.as_ref().map(|donor| donor.donor);
    let before = client.call(&Status {}).await?.donors;
    client.call(&control::ScrubNow { donor: which, rate: args.rate }).await?;
    if args.wait {
        let asked = |donor: &DonorStatus| which.is_none_or(|which| which == donor.donor);
        let live = |donor: &DonorStatus| donor.state == DonorState::Live;
        let before = before.into_iter().filter(|donor| asked(donor) && live(donor)).collect();
        return finished(before, client, output).await;
    }
    let who = donor.map_or("every live donor".into(), |donor| donor.name);
    output.result(&serde_json::json!({ "donor": which, "rate": args.rate }), |_| {
        format!(
            "{who} reads back all it holds at up to {}/s: `potluck scrub status`",
            format_size(args.rate)
        )
    });
    Ok(Ending::Done)
}

/// The findings of a donor's round.
#[derive(Serialize)]
struct Found {
    donor: String,
    /// Whether the donor read all that it holds.
    finished: bool,
    /// The number of chunks found damaged in this round.
    spoiled: u64,
}

/// Waits until each donor has finished one more round than in `before`, or is not heard any more; tells the findings.
async fn finished(
    before: Vec<DonorStatus>,
    client: &Pool,
    output: &Output,
) -> Result<Ending, Failure> {
    let mut found: Vec<Found> = Vec::new();
    let mut reading = before;
    while !reading.is_empty() {
        tokio::time::sleep(super::waiting::ASK_AGAIN).await;
        let now = client.call_retrying(&Status {}).await?.donors;
        reading.retain(|before| {
            let now = now.iter().find(|donor| donor.donor == before.donor);
            let finished = now.is_some_and(|now| now.scrub.rounds > before.scrub.rounds);
            let there =
                now.is_some_and(|now| matches!(now.state, DonorState::Live | DonorState::Suspect));
            if finished || !there {
                let spoiled =
                    now.map_or(0, |now| now.scrub.spoiled.saturating_sub(before.scrub.spoiled));
                found.push(Found { donor: before.name.clone(), finished, spoiled });
            }
            !finished && there
        });
    }
    let well = found.iter().all(|found| found.finished && found.spoiled == 0);
    output.result(&serde_json::json!({ "donors": found }), |_| {
        let line = |found: &Found| match found.finished {
            true => format!(
                "{} read back all it holds, and found {} spoiled\n",
                found.donor,
                count(found.spoiled, "chunk")
            ),
            false => format!("{} went silent before it had read all\n", found.donor),
        };
        found.iter().map(line).collect()
    });
    if found.iter().any(|found| found.spoiled > 0) {
        output.note("what is spoiled is made again from other copies: `potluck repair status`");
    }
    Ok(if well { Ending::Done } else { Ending::Partial })
}

fn of_donor(donor: &DonorStatus) -> DonorScrub {
    DonorScrub {
        donor: donor.name.clone(),
        state: donors::state(donor),
        scrub: donor.scrub,
        bad: donor.bad,
    }
}

fn text(scrubs: &[DonorScrub]) -> String {
    let rows: Vec<_> = scrubs
        .iter()
        .map(|DonorScrub { donor, state, scrub, bad }| {
            let share = match scrub.of {
                0 => "-".into(),
                of => format!("{:.0} %", scrub.done as f64 / of as f64 * 100.0),
            };
            let priority = if scrub.hurried { "by order" } else { "in the background" };
            vec![
                donor.clone(),
                state.clone(),
                share,
                priority.into(),
                scrub.rounds.to_string(),
                scrub.spoiled.to_string(),
                bad.to_string(),
            ]
        })
        .collect();
    let head = ["donor", "state", "round", "priority", "rounds", "found spoiled", "bad now"];
    table(&head, &[2, 4, 5, 6], &rows)
}
