//! `potluck status`: shows how safe the pool is, and its donors.

use super::{Ending, donors, quota, repair};
use crate::args;
use crate::output::{Output, count, duration, table};
use potluck_client::Pool;
use potluck_core::size::format_size;
use potluck_wire::addresses::Address;
use potluck_wire::control::{
    Check, DonorState, DonorStatus, MetadataHealth, PoolState, PoolStatus, SpaceHealth, Status,
    Verdict,
};
use potluck_wire::error::{ErrorKind, Failure};

pub async fn run(
    args: args::StatusArgs,
    client: &Pool,
    output: &Output,
) -> Result<Ending, Failure> {
    // The manager answers when it knows all that happened, so that the status that follows agrees with the
    // verdict.
    let verdict = client.call(&Check {}).await?;
    if args.check {
        // For a healthy pool nothing is printed, because cron would mail it.
        output.result(&verdict, |verdict| match verdict.state {
            PoolState::Healthy => String::new(),
            _ => verdict_text(verdict),
        });
        return Ok(ending(&verdict));
    }
    let status = client.call(&Status {}).await?;
    output.result(&status, |status| format!("{}\n{}", verdict_text(&status.verdict), text(status)));
    Ok(Ending::Done)
}

/// Formats the verdict for people.
pub fn verdict_text(verdict: &Verdict) -> String {
    let state = match verdict.state {
        PoolState::Healthy => "healthy",
        PoolState::NotKnown => "not known yet",
        PoolState::Degraded => "degraded",
        PoolState::Unavailable => "unavailable",
    };
    match verdict.advice.as_str() {
        "" => format!("{state}: {}", verdict.reason),
        advice => format!("{state}: {}\n  {advice}", verdict.reason),
    }
}

/// Returns how a command ends that was asked for the verdict.
pub fn ending(verdict: &Verdict) -> Ending {
    match verdict.state {
        PoolState::Healthy => Ending::Done,
        PoolState::NotKnown => Ending::Said(ErrorKind::Retry),
        PoolState::Degraded => Ending::Partial,
        PoolState::Unavailable => Ending::Said(ErrorKind::Integrity),
    }
}

fn text(status: &PoolStatus) -> String {
    let live = || status.donors.iter().filter(|donor| donor.state == DonorState::Live);
    let room: u64 = live().map(donors::free).sum();
    let lends = |donor: &&DonorStatus| donor.state != DonorState::Joined;
    let lending = status.donors.iter().filter(lends).count();
    let mut text = format!(
        "pool {}: {}, {}; {} of {} live, with room for {}, copies and all; {}\n",
        status.pool,
        count(status.files, "file"),
        format_size(status.bytes),
        live().count(),
        count(lending as u64, "donor"),
        format_size(room),
        count(status.sessions, "open write session"),
    );
    if !status.spaces.is_empty() {
        let rows: Vec<_> = status.spaces.iter().map(space_row).collect();
        let head = ["space", "files", "kept as", "free", "more donors may die", ""];
        text.push_str(&format!("\n{}", table(&head, &[1, 3], &rows)));
        for space in &status.spaces {
            if let Some(news) = &space.default_news {
                text.push_str(&format!("space {}: {news}\n", space.name));
            }
        }
    }
    if !status.donors.is_empty() {
        let rows: Vec<_> = status.donors.iter().map(donor_row).collect();
        let head = ["donor", "state", "held", "room", "chunks", "bad", "load", "address"];
        text.push_str(&format!("\n{}", table(&head, &[2, 3, 4, 5, 6], &rows)));
    }
    text.push_str(&format!("\nrepair: {}\n", repair::summary(&status.repair)));
    if let Some(backups) = backups(status) {
        text.push_str(&format!("backup of the catalog: {backups}\n"));
    }
    if let Some(metadata) = &status.metadata {
        text.push_str(&format!("the pool's own metadata: {}\n", own_metadata(metadata)));
    }
    let in_catalog: u64 = status.spaces.iter().map(|space| space.in_catalog).sum();
    if in_catalog > 0 {
        text.push_str(&format!(
            "{} of up to 4 KiB: in the catalog, as safe as that and its copies named above\n",
            count(in_catalog, "file")
        ));
    }
    if status.interrupted_uploads > 0 {
        text.push_str(&format!(
            "{} can go on where it was: {}, all copies counted, are kept for a while\n",
            count(status.interrupted_uploads, "interrupted upload"),
            format_size(status.interrupted_bytes)
        ));
    }
    let unclaimed: u64 = status.donors.iter().map(|donor| donor.unclaimed).sum();
    if unclaimed > 0 {
        let chunks = count(unclaimed, "chunk");
        text.push_str(&format!(
            "{chunks} on donors unknown to this catalog, kept untouched: `potluck gc unknown`\n"
        ));
    }
    if let Some(why) = &status.gc_frozen {
        text.push_str(&format!("no space is reclaimed: {why}\n"));
    }
    for alarm in &status.alarms {
        text.push_str(&format!("! {alarm}\n"));
    }
    text
}

fn space_row(space: &SpaceHealth) -> Vec<String> {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let may_die = if space.silent { space.tolerates_now } else { space.tolerates };
    let files = |number: u64, what: &str| (number > 0).then(|| format!("{number} {what}"));
    let troubles = [
        files(space.unreadable, "unreadable"),
        files(space.incomplete, "incomplete"),
        files(space.changing, "changing"),
        files(space.in_catalog, "in the catalog"),
        space
            .tolerates
            .filter(|_| space.silent)
            .map(|back| format!("{back} when silent or away donors are back")),
        (!space.scanned && space.files > 0).then(|| "not looked at yet".into()),
        space.quota.as_ref().map(|quota| {
            let [bytes, files] = quota::used(quota);
            format!("quota: {bytes}, files and directories: {files}")
        }),
    ];
    vec![
        space.name.clone(),
        space.files.to_string(),
        or_dash(space.policy.map(|policy| policy.to_string())),
        or_dash(space.free.map(format_size)),
        or_dash(match may_die.filter(|_| space.files > 0) {
            Some(may_die) => Some(may_die.to_string()),
            None => space.all_in_catalog.then(|| "any".into()),
        }),
        troubles.into_iter().flatten().collect::<Vec<_>>().join(", "),
    ]
}

fn donor_row(donor: &DonorStatus) -> Vec<String> {
    vec![
        donor.name.clone(),
        donors::state(donor),
        donors::held(donor),
        format_size(donors::free(donor)),
        donor.chunks.to_string(),
        donor.bad.to_string(),
        donor.load.describe(),
        donor.addresses.first().map(Address::to_string).unwrap_or_default(),
    ]
}

/// Says how many copies of the metadata log, which brings a lost manager back, are on donors.
fn own_metadata(metadata: &MetadataHealth) -> String {
    match metadata.copies {
        None => "on no donor, only on the manager's own disk".into(),
        Some(copies) => {
            format!("{} on donors, {} asked", count(copies.into(), "copy"), metadata.asked)
        }
    }
}

/// Says how old the copies of the catalog are, and how many changes are not on donors yet.
fn backups(status: &PoolStatus) -> Option<String> {
    let age = |place: &str, seconds: Option<u64>| {
        seconds.map(|seconds| format!("{place} as of {} ago", duration(seconds)))
    };
    let waiting = status.log_waiting.filter(|waiting| *waiting > 0);
    let ages = [
        age("on donors", status.backup_pool_seconds),
        age("in a file", status.backup_file_seconds),
        waiting.map(|waiting| format!("{} not on donors yet", count(waiting, "change"))),
    ];
    let ages: Vec<_> = ages.into_iter().flatten().collect();
    (!ages.is_empty()).then(|| ages.join(", "))
}
