//! `potluck away`: announces an absence, during which repair does not make copies again elsewhere.

use super::Ending;
use super::lend::OwnDonor;
use crate::args;
use crate::output::{Output, duration};
use potluck_client::Pool;
use potluck_core::ids::DonorId;
use potluck_wire::control::Away;
use potluck_wire::error::Failure;
use std::time::Duration;

/// Announces that all donors of this machine are away.
pub async fn run(
    args: args::AwayArgs,
    donors: &[(OwnDonor, Pool)],
    output: &Output,
) -> Result<Ending, Failure> {
    for (_, client) in &donors[1..] {
        say(None, args.time, client).await?;
    }
    announce(None, "this machine", args.time, &donors[0].1, output).await
}

/// Announces that a donor is away for `time` from now; with `None`, that it is not away any more.
pub async fn announce(
    donor: Option<DonorId>,
    name: &str,
    time: Option<Duration>,
    client: &Pool,
    output: &Output,
) -> Result<Ending, Failure> {
    let time = say(donor, time, client).await?;
    output.result(&serde_json::json!({ "donor": name, "away_seconds": time.as_secs() }), |_| {
        match time.is_zero() {
            true => format!("{name} is not announced as away any more"),
            false => format!(
                "{name} may be away for {}: until then nothing it holds is made again elsewhere",
                duration(time.as_secs())
            ),
        }
    });
    Ok(Ending::Done)
}

async fn say(
    donor: Option<DonorId>,
    time: Option<Duration>,
    client: &Pool,
) -> Result<Duration, Failure> {
    let time = time.unwrap_or_default();
    let for_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    client.call(&Away { donor, for_ms }).await?;
    Ok(time)
}
