//! `potluck status`: the pool and its donors.

use super::Ending;
use crate::output::{Output, table};
use potluck_client::pool::Client;
use potluck_core::size::format_size;
use potluck_wire::control::{DonorState, DonorStatus, PoolStatus, Status};
use potluck_wire::error::Failure;

pub async fn run(client: &Client, output: &Output) -> Result<Ending, Failure> {
    output.result(&client.call(&Status {}).await?, text);
    Ok(Ending::Done)
}

fn text(status: &PoolStatus) -> String {
    let live = status.donors.iter().filter(|donor| donor.state == DonorState::Live).count();
    let room: u64 = status
        .donors
        .iter()
        .filter(|donor| donor.state == DonorState::Live)
        .map(|donor| donor.room.saturating_sub(donor.promised))
        .sum();
    let mut text = format!(
        "pool {}: {} files, {}; {live} of {} donors live, {} free; {} open write sessions\n",
        status.pool,
        status.files,
        format_size(status.bytes),
        status.donors.len(),
        format_size(room),
        status.sessions,
    );
    if status.donors.is_empty() {
        text.push_str(
            "nobody lends yet: `potluck invite --role donor`, then `potluck lend` there\n",
        );
        return text;
    }
    text.push('\n');
    let rows: Vec<_> = status.donors.iter().map(row).collect();
    let head = ["donor", "state", "held", "free", "chunks", "bad", "load", "address"];
    text.push_str(&table(&head, &[2, 3, 4, 5, 6], &rows));
    let unclaimed: u64 = status.donors.iter().map(|donor| donor.unclaimed).sum();
    if unclaimed > 0 {
        text.push_str(&format!(
            "\n{unclaimed} chunks on donors are unknown to this catalog and are kept untouched\n"
        ));
    }
    text
}

fn row(donor: &DonorStatus) -> Vec<String> {
    let state = match (donor.state, donor.silent_seconds) {
        (DonorState::Live, _) => "live".into(),
        (DonorState::Suspect, Some(seconds)) => format!("silent for {seconds} s"),
        (DonorState::Suspect, None) => "silent".into(),
        (DonorState::Away | DonorState::Unknown, _) => "away".into(),
        (DonorState::Gone, _) => "gone".into(),
    };
    vec![
        donor.name.clone(),
        state,
        format_size(donor.used),
        format_size(donor.room.saturating_sub(donor.promised)),
        donor.chunks.to_string(),
        donor.bad.to_string(),
        format!("{:.0} %", donor.load.score() * 100.0),
        donor.address.clone(),
    ]
}
