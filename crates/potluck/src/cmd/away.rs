//! `potluck away`: an announced absence, during which nothing is made again elsewhere.

use super::Ending;
use crate::args;
use crate::output::{Output, duration};
use potluck_client::pool::Client;
use potluck_core::ids::DonorId;
use potluck_wire::control::Away;
use potluck_wire::error::Failure;
use std::time::Duration;

pub async fn run(args: args::Away, client: &Client, output: &Output) -> Result<Ending, Failure> {
    announce(None, "this machine", args.time, client, output).await
}

/// Announces that a donor is away for `time` from now; `None`: that it is not.
pub async fn announce(
    donor: Option<DonorId>,
    name: &str,
    time: Option<Duration>,
    client: &Client,
    output: &Output,
) -> Result<Ending, Failure> {
    let time = time.unwrap_or_default();
    let for_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    client.call(&Away { donor, for_ms }).await?;
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
