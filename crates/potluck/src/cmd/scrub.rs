//! `potluck scrub`: donors read back what they hold.

use super::{Ending, donors};
use crate::args::{Scrub, ScrubNow};
use crate::output::{Output, table};
use potluck_client::pool::Client;
use potluck_core::size::format_size;
use potluck_wire::control::{self, DonorStatus, SLOWEST_SCRUB, Scrubbed, Status};
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

pub async fn run(args: Scrub, client: &Client, output: &Output) -> Result<Ending, Failure> {
    match args {
        Scrub::Now(args) => now(args, client, output).await,
        Scrub::Status => {
            let donors = client.call(&Status {}).await?.donors;
            let scrubs: Vec<_> = donors.iter().map(of_donor).collect();
            output.result(&serde_json::json!({ "donors": scrubs }), |_| text(&scrubs));
            Ok(Ending::Done)
        }
    }
}

async fn now(args: ScrubNow, client: &Client, output: &Output) -> Result<Ending, Failure> {
    if args.rate < SLOWEST_SCRUB {
        let what = format!("--rate: no donor reads slower than {}/s", format_size(SLOWEST_SCRUB));
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("to leave the donors alone, do nothing: unasked they read politely"));
    }
    let donor = match &args.donor {
        Some(name) => Some(donors::named(client, name).await?),
        None => None,
    };
    let which = donor.as_ref().map(|donor| donor.donor);
    client.call(&control::ScrubNow { donor: which, rate: args.rate }).await?;
    let who = donor.map_or("every live donor".into(), |donor| donor.name);
    output.result(&serde_json::json!({ "donor": which, "rate": args.rate }), |_| {
        format!(
            "{who} reads back all it holds at up to {}/s: `potluck scrub status`",
            format_size(args.rate)
        )
    });
    Ok(Ending::Done)
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
            let pace = if scrub.hurried { "by order" } else { "polite" };
            vec![
                donor.clone(),
                state.clone(),
                share,
                pace.into(),
                scrub.rounds.to_string(),
                scrub.spoiled.to_string(),
                bad.to_string(),
            ]
        })
        .collect();
    let head = ["donor", "state", "round", "pace", "rounds", "found spoiled", "bad now"];
    table(&head, &[2, 4, 5, 6], &rows)
}
