//! `potluck nodes`: donors, as admins see and steer them.

use super::Ending;
use super::give_back::{self, Place};
use super::{away, donors};
use crate::args::{Drain, NodeAway, NodeName, NodeRemove, Nodes};
use crate::confirm::confirm;
use crate::output::{Output, count, table};
use potluck_client::pool::Client;
use potluck_core::ids::MemberId;
use potluck_core::size::format_size;
use potluck_wire::control::{DonorStatus, GivingBack, Revoke, Status, Trust};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;

#[derive(Serialize)]
struct Donors {
    donors: Vec<DonorStatus>,
}

pub async fn run(
    args: Nodes,
    client: &Client,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    match args {
        Nodes::Ls => list(client, output).await,
        Nodes::Drain(args) => drain(args, client, output, shown).await,
        Nodes::Away(NodeAway { donor, time, .. }) => {
            let donor = donors::named(client, &donor).await?;
            away::announce(Some(donor.donor), &donor.name, time, client, output).await
        }
        Nodes::Trust(NodeName { donor }) => {
            let donor = donors::named(client, &donor).await?;
            if donor.quarantined.is_none() {
                output.result(&serde_json::json!({ "trusted": donor.name }), |_| trusted(&donor));
                return Ok(Ending::Done);
            }
            client.call(&Trust { donor: donor.donor }).await?;
            output.result(&serde_json::json!({ "trusted": donor.name }), |_| {
                format!("{} is trusted again once others have verified what it holds", donor.name)
            });
            Ok(Ending::Done)
        }
        Nodes::Rm(args) => remove(args, client, output).await,
    }
}

/// Nothing was in the way of trusting this one.
fn trusted(donor: &DonorStatus) -> String {
    let mut text = format!("{} is trusted already: it is not quarantined", donor.name);
    if let Some(advice) = donors::ailing(donor) {
        text.push_str(&format!("\n{advice}"));
    }
    text
}

async fn list(client: &Client, output: &Output) -> Result<Ending, Failure> {
    let donors = Donors { donors: client.call(&Status {}).await?.donors };
    output.result(&donors, |donors| {
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
    Ok(Ending::Done)
}

fn row(donor: &DonorStatus) -> Vec<String> {
    vec![
        donor.donor.to_string(),
        donor.name.clone(),
        donor.label.clone().unwrap_or_else(|| "-".into()),
        donors::state(donor),
        format_size(donor.used),
        format_size(donors::free(donor)),
        donor.version.clone(),
        donor.address.clone(),
    ]
}

async fn drain(
    args: Drain,
    client: &Client,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let donor = donors::named(client, &args.donor).await?;
    let place = Place {
        donor: Some(donor.donor),
        name: &donor.name,
        cancel: format!("potluck nodes drain {} --cancel", donor.name),
    };
    if args.cancel {
        return give_back::cancel(&place, client, output).await;
    }
    give_back::empty(&place, None, args.pace, client, output, shown).await
}

#[derive(Serialize)]
struct RemovedDonor<'a> {
    donor: &'a str,
    removed: bool,
    lost: &'a [String],
    lost_files: u64,
}

/// Removes a donor. What it alone has is asked for first, as if its space were taken now.
async fn remove(args: NodeRemove, client: &Client, output: &Output) -> Result<Ending, Failure> {
    let donor = donors::named(client, &args.donor).await?;
    let place = Place { donor: Some(donor.donor), name: &donor.name, cancel: String::new() };
    let loss = client.call(&give_back::look(&place)).await?;
    let report = |removed| RemovedDonor {
        donor: &donor.name,
        removed,
        lost: &loss.lost,
        lost_files: loss.lost_files,
    };
    if args.caution.dry_run {
        output.result(&report(false), |_| match loss.lost_files {
            0 => format!("{} can be removed: no file is lost with it", donor.name),
            _ => only_there(&donor.name, &loss),
        });
        return Ok(Ending::Done);
    }
    if loss.lost_files > 0 {
        if !args.force {
            return Err(Failure::new(
                ErrorKind::Conflict,
                code::NOT_EMPTY,
                only_there(&donor.name, &loss),
            )
            .hint(format!(
                "empty it first: `potluck nodes drain {}`; --force loses these files",
                donor.name
            )));
        }
        output.note(&only_there(&donor.name, &loss));
    }
    if !args.caution.yes {
        let question = match loss.lost_files {
            0 => format!("remove {} from the pool for ever?", donor.name),
            lost => format!("remove {} and lose {} for ever?", donor.name, count(lost, "file")),
        };
        confirm(&question, "add -y to do it without asking, or -n to only look").await?;
    }
    client.call(&Revoke { member: MemberId(donor.donor.0) }).await?;
    output.result(&report(true), |_| {
        format!(
            "{} is removed; on its machine, `potluck leave` takes away what is left there",
            donor.name
        )
    });
    Ok(Ending::Done)
}

/// What nobody but one donor has.
pub fn only_there(name: &str, loss: &GivingBack) -> String {
    let shown = loss.lost.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    let more = if loss.lost_files > 3 { ", …" } else { "" };
    let files = if loss.lost_files == 1 { "file needs" } else { "files need" };
    format!("{} {files} what only {name} holds: {shown}{more}", loss.lost_files)
}
