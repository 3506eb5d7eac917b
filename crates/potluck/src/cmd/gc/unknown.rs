//! `potluck gc unknown`: lists and gives up chunks on donors that the catalog does not know.

use crate::args::GcUnknownArgs;
use crate::cmd::Ending;
use crate::confirm::confirm;
use crate::output::{Output, count, table};
use potluck_client::Pool;
use potluck_core::ids::DonorId;
use potluck_wire::control::{DonorStatus, PoolStatus, ReclaimUnknown, Status};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::time::Duration;

/// The time without progress after which donors that have not listed what they hold are waited for no longer.
const STANDSTILL: Duration = Duration::from_secs(600);

/// The chunks that the catalog does not know, and the donors that hold them.
#[derive(Serialize)]
struct Unknown {
    /// The number of unknown chunks on all donors together.
    chunks: u64,
    donors: Vec<At>,
}

#[derive(Serialize)]
struct At {
    donor: DonorId,
    name: String,
    chunks: u64,
    /// Whether the chunks are being given up, for which the donor lists them.
    reclaiming: bool,
}

#[derive(Serialize)]
struct Reclaimed {
    /// Whether anything was given up; with `-n` nothing is.
    reclaimed: bool,
    /// The number of chunks that were unknown before the command.
    chunks: u64,
    /// The number of chunks that are still unknown, because their donors are not there or they arrived since.
    left: u64,
    /// The names of donors that are not there, whose chunks stay.
    absent: Vec<String>,
}

pub async fn run(args: GcUnknownArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let status = client.call(&Status {}).await?;
    let unknown = unknown(&status);
    let caution = match args {
        GcUnknownArgs::Ls => {
            output.result(&unknown, listed);
            return Ok(Ending::Done);
        }
        GcUnknownArgs::Reclaim(caution) => caution,
    };
    if let Some(why) = &status.gc_frozen {
        let what = format!("nothing may be reclaimed now: {why}");
        return Err(Failure::new(ErrorKind::Conflict, code::GC_FROZEN, what).hint(
            "see that all files are where they should be; then `potluck gc resume`, and this again",
        ));
    }
    let nothing = Reclaimed {
        reclaimed: false,
        chunks: unknown.chunks,
        left: unknown.chunks,
        absent: Vec::new(),
    };
    if unknown.chunks == 0 {
        output.result(&nothing, |_| "no donor has chunks that this catalog does not know".into());
        return Ok(Ending::Done);
    }
    let chunks = count(unknown.chunks, "chunk");
    if caution.dry_run {
        output.result(&nothing, |_| {
            format!("{}would be given up: {chunks}; {CONSEQUENCE}", listed(&unknown))
        });
        return Ok(Ending::Done);
    }
    if !caution.yes {
        output.note(&format!("{chunks} on donors are unknown to this catalog; {CONSEQUENCE}"));
        let question = format!("give up {chunks} for ever?");
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    let reclaiming = client.call(&ReclaimUnknown {}).await?;
    let (mut before, mut moved) = (0, client.now());
    let after = loop {
        let status = client.call(&Status {}).await?;
        let left = status.donors.iter().map(|it| u64::from(it.reclaiming) + it.unclaimed).sum();
        if left != before {
            (before, moved) = (left, client.now());
        }
        let is_over = status.donors.iter().all(|donor| !donor.reclaiming);
        if is_over || client.now() - moved > STANDSTILL {
            break status;
        }
        tokio::time::sleep(crate::cmd::waiting::ASK_AGAIN).await;
    };
    let name = |absent: &DonorId| {
        let donor = status.donors.iter().find(|donor| donor.donor == *absent);
        donor.map_or_else(|| absent.to_string(), |donor| donor.name.clone())
    };
    let absent: Vec<_> = reclaiming.absent.iter().map(name).collect();
    let left = after.donors.iter().map(|donor| donor.unclaimed).sum();
    let done = Reclaimed { reclaimed: true, chunks: unknown.chunks, left, absent };
    output.result(&done, reclaimed);
    Ok(if done.absent.is_empty() && done.left == 0 { Ending::Done } else { Ending::Partial })
}

/// The consequence of giving chunks up, as text for people.
const CONSEQUENCE: &str = "files that this catalog knows and uploads under way keep all they need, but \
    what only a lost catalog knew (its newest files and its metadata log) cannot be brought \
    back after this";

fn unknown(status: &PoolStatus) -> Unknown {
    let holds = |donor: &&DonorStatus| donor.unclaimed > 0 || donor.reclaiming;
    let at = |donor: &DonorStatus| At {
        donor: donor.donor,
        name: donor.name.clone(),
        chunks: donor.unclaimed,
        reclaiming: donor.reclaiming,
    };
    Unknown {
        chunks: status.donors.iter().map(|donor| donor.unclaimed).sum(),
        donors: status.donors.iter().filter(holds).map(at).collect(),
    }
}

fn listed(unknown: &Unknown) -> String {
    if unknown.donors.is_empty() {
        return "no donor has chunks that this catalog does not know\n".into();
    }
    let row = |at: &At| {
        let state = if at.reclaiming { "being given up" } else { "kept" };
        vec![at.donor.to_string(), at.name.clone(), at.chunks.to_string(), state.into()]
    };
    let rows: Vec<_> = unknown.donors.iter().map(row).collect();
    table(&["no", "donor", "chunks", "state"], &[0, 2], &rows)
}

fn reclaimed(done: &Reclaimed) -> String {
    let mut text = format!(
        "given up: {}; donors delete them after the GC delay, a minute unless `manager.gc-delay` says otherwise\n",
        count(done.chunks.saturating_sub(done.left), "chunk")
    );
    if done.left > 0 && done.absent.is_empty() {
        text += &format!(
            "still unknown: {}; run this again when donors have deleted the others\n",
            count(done.left, "chunk")
        );
    }
    if !done.absent.is_empty() {
        text += &format!(
            "not there: {}; what they hold stays until this is run again\n",
            done.absent.join(", ")
        );
    }
    text
}
