//! `potluck gc`: shows what is reclaimed, and whether garbage collection is frozen.

mod unknown;

use super::Ending;
use crate::args::GcArgs;
use crate::output::{Output, count};
use potluck_client::Pool;
use potluck_wire::control::{GcResume, Status};
use potluck_wire::error::Failure;
use serde::Serialize;

#[derive(Serialize)]
struct GcState {
    /// The reason why garbage collection is frozen, if it is.
    frozen: Option<String>,
    condemned_chunks: u64,
    condemned_at_dead: u64,
    unclaimed_chunks: u64,
}

pub async fn run(args: GcArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        GcArgs::Unknown(args) => return unknown::run(args, client, output).await,
        GcArgs::Resume => drop(client.call(&GcResume {}).await?),
        GcArgs::Status => {}
    }
    let status = client.call(&Status {}).await?;
    let state = GcState {
        frozen: status.gc_frozen,
        condemned_chunks: status.condemned_chunks,
        condemned_at_dead: status.condemned_at_dead,
        unclaimed_chunks: status.donors.iter().map(|donor| donor.unclaimed).sum(),
    };
    output.result(&state, text);
    Ok(Ending::Done)
}

fn text(state: &GcState) -> String {
    let mut text = match &state.frozen {
        Some(why) => format!(
            "frozen: {why}\nnothing is reclaimed until `potluck gc resume`; run it when all files are where they should be\n"
        ),
        None => "chunks that no file uses are reclaimed\n".to_owned(),
    };
    text += &format!("to be reclaimed: {}\n", count(state.condemned_chunks, "chunk"));
    if state.condemned_at_dead > 0 {
        text += &format!(
            "only at dead donors: {}; reclaimed when these are back, forgotten when they are removed (`potluck nodes rm`)\n",
            count(state.condemned_at_dead, "chunk")
        );
    }
    if state.unclaimed_chunks > 0 {
        text += &format!(
            "on donors, unknown to this catalog and kept: {}; `potluck gc unknown` shows where and gives their space back\n",
            count(state.unclaimed_chunks, "chunk")
        );
    }
    text
}
