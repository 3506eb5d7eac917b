//! `potluck nodes`: lists, trusts and removes donors, for admins.

use super::Ending;
use super::drain::{self, GiveBackPlace, weakened};
use super::{away, donors};
use crate::args::{NodeAwayArgs, NodeName, NodeRemoveArgs, NodesArgs, NodesLsArgs};
use crate::confirm::confirm;
use crate::output::{Output, count, table};
use potluck_client::Pool;
use potluck_core::ids::MemberId;
use potluck_core::size::format_size;
use potluck_wire::control::{
    Alarm, DonorRates, DonorStatus, GivingBack, Going, MayGo, RemovalNeeds, Revoke, Status, Trust,
};
use potluck_wire::error::{ErrorKind, Failure};
use serde::Serialize;

#[derive(Serialize)]
struct Donors {
    donors: Vec<DonorStatus>,
}

pub async fn run(args: NodesArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        NodesArgs::Ls(asked) => {
            list(client.call(&Status {}).await?.donors, &asked, output);
            Ok(Ending::Done)
        }
        NodesArgs::Away(NodeAwayArgs { donor, time, .. }) => {
            let donor = donors::named(client, &donor).await?;
            away::announce(Some(donor.donor), &donor.name, time, client, output).await
        }
        NodesArgs::Trust(NodeName { donor }) => {
            let donor = donors::named(client, &donor).await?;
            if donor.quarantined.is_none() {
                let mut alarms = client.call(&Status {}).await?.alarms;
                alarms.retain(|alarm| alarm.donor == Some(donor.donor));
                let result = serde_json::json!({ "trusted": donor.name });
                output.result(&result, |_| trusted(&donor, &alarms));
                return Ok(Ending::Done);
            }
            client.call(&Trust { donor: donor.donor }).await?;
            output.result(&serde_json::json!({ "trusted": donor.name }), |_| {
                format!("{} is trusted again once others have verified what it holds", donor.name)
            });
            Ok(Ending::Done)
        }
        NodesArgs::Rm(args) => remove(args, client, output).await,
    }
}

/// Says that the donor is trusted already, and which alarms there are about it.
fn trusted(donor: &DonorStatus, alarms: &[Alarm]) -> String {
    let mut text = format!("{} is trusted already: it is not quarantined", donor.name);
    alarms.iter().for_each(|alarm| text.push_str(&format!("\n{alarm}")));
    text
}

/// Shows donors with what the pool thinks of them.
pub fn list(donors: Vec<DonorStatus>, asked: &NodesLsArgs, output: &Output) {
    if asked.rates {
        return list_rates(donors, output);
    }
    output.result(&Donors { donors }, |donors| {
        let rows: Vec<_> = donors.donors.iter().map(row).collect();
        let head = ["no", "donor", "label", "state", "held", "free", "version", "address"];
        let mut text = table(&head, &[0, 4, 5], &rows);
        for DonorStatus { name, disk_fault, .. } in &donors.donors {
            if let Some(fault) = disk_fault {
                text.push_str(&format!(
                    "! {name}: {}; `potluck status` says what to do\n",
                    fault.why
                ));
            }
        }
        text
    });
}

/// Shows how fast donors are, and what they did.
fn list_rates(donors: Vec<DonorStatus>, output: &Output) {
    output.result(&Donors { donors }, |donors| {
        let rows: Vec<_> = donors.donors.iter().map(rates_row).collect();
        let head = [
            "no",
            "donor",
            "state",
            "reads at",
            "writes at",
            "load",
            "read 24h",
            "written 24h",
            "read 30d",
            "written 30d",
            "heard",
        ];
        let mut text = table(&head, &[0, 3, 4, 5, 6, 7, 8, 9, 10], &rows);
        text.push_str("rates are the median of what members measured; - is not measured yet\n");
        text
    });
}

fn rates_row(donor: &DonorStatus) -> Vec<String> {
    let DonorRates { rates, last_day, last_month, heard, .. } = &donor.rates;
    let rate =
        |rate: Option<u64>| rate.map_or("-".into(), |rate| format!("{}/s", format_size(rate)));
    vec![
        donor.donor.to_string(),
        donor.name.clone(),
        donors::state(donor),
        rate(rates.read),
        rate(rates.written),
        format!("{:.0} %", 100.0 * donor.load.score()),
        format_size(last_day.read.bytes),
        format_size(last_day.written.bytes),
        format_size(last_month.read.bytes),
        format_size(last_month.written.bytes),
        format!("{:.0} %", 100.0 * heard),
    ]
}

fn row(donor: &DonorStatus) -> Vec<String> {
    vec![
        donor.donor.to_string(),
        donor.name.clone(),
        donor.label.clone().unwrap_or_else(|| "-".into()),
        donors::state(donor),
        donors::held(donor),
        format_size(donors::free(donor)),
        donor.version.clone(),
        donor.addresses.to_string(),
    ]
}

#[derive(Serialize)]
struct RemovedDonor<'a> {
    donor: &'a str,
    removed: bool,
    may_go: &'a MayGo,
    lost: &'a [String],
    lost_files: u64,
    less_safe: &'a [String],
    less_safe_files: u64,
}

/// Removes a donor. The manager refuses while a file needs it, unless the options say otherwise.
async fn remove(args: NodeRemoveArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let donor = donors::named(client, &args.donor).await?;
    let place =
        GiveBackPlace { donor: Some(donor.donor), name: &donor.name, cancel: String::new() };
    let look = client.call(&drain::look(&place)).await?;
    let report = |removed| RemovedDonor {
        donor: &donor.name,
        removed,
        may_go: &look.may_go,
        lost: &look.lost,
        lost_files: look.lost_files,
        less_safe: &look.less_safe,
        less_safe_files: look.less_safe_files,
    };
    if args.caution.dry_run {
        output.result(&report(false), |_| removable(&donor.name, &look));
        return Ok(would_end(&look, args.now, args.force));
    }
    let revoke = Revoke {
        now: args.now || args.force,
        agreed: look.listing.filter(|_| args.force),
        ..Revoke::of(MemberId(donor.donor.0))
    };
    // The user is not asked to confirm a removal that will be refused.
    let needs = look.removal.unwrap_or_default();
    let allowed = needs == RemovalNeeds::Time || needs.is_met(args.now, args.force);
    if look.may_go.verdict != Going::Now && allowed {
        output.note(&removable(&donor.name, &look));
    }
    if !args.caution.yes && allowed {
        let question = match look.lost_files {
            0 => format!("remove {} from the pool for ever?", donor.name),
            lost => format!("remove {} and lose {} for ever?", donor.name, count(lost, "file")),
        };
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    client.call(&revoke).await?;
    output.result(&report(true), |_| {
        format!(
            "{} is removed; on its machine, `potluck leave` takes away what is left there",
            donor.name
        )
    });
    Ok(Ending::Done)
}

/// Returns how the removal of donors would end, which is how a dry run ends. With `now` files may become less safe, and
/// with `force` they may be lost.
pub fn would_end(look: &GivingBack, now: bool, force: bool) -> Ending {
    match look.removal.unwrap_or_default() {
        needs if needs.is_met(now, force) => Ending::Done,
        RemovalNeeds::Time => Ending::Said(ErrorKind::Retry),
        _ => Ending::Said(ErrorKind::Conflict),
    }
}

/// Says whether a donor may be removed as it is, and what that would mean.
pub fn removable(name: &str, look: &GivingBack) -> String {
    let MayGo { verdict, why, advice } = &look.may_go;
    let may = match verdict {
        Going::Now => return format!("{name} may go: {why}"),
        Going::AfterMoving => format!("{name} may go once it is drained: {why} ({advice})"),
        Going::Stuck => format!("{name} may not go now: {why}; {advice}"),
        Going::NotKnown => format!("whether {name} may go is not known yet: {why}; {advice}"),
    };
    let means = match (look.lost_files, look.less_safe_files) {
        (0, 0) => format!("without {name} no file is lost or less safe"),
        (0, _) => {
            let less = weakened(look);
            format!("it is not removed without --now: no file would be lost by that, and {less}")
        }
        _ => format!(
            "it is not removed without --force, which loses files for ever: {}",
            only_there(name, look)
        ),
    };
    format!("{may}\n{means}")
}

/// Says how many files need chunks that only the named donors hold, and names some of them.
pub fn only_there(name: &str, loss: &GivingBack) -> String {
    let shown = loss.lost.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    let more = if loss.lost_files > 3 { ", …" } else { "" };
    let files = if loss.lost_files == 1 { "file needs" } else { "files need" };
    format!("{} {files} what only {name} holds: {shown}{more}", loss.lost_files)
}
