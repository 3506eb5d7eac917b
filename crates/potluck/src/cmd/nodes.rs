//! `potluck nodes`: lists, trusts and removes donors, for admins.

use super::Ending;
use super::{away, donors, members};
use crate::args::{NodeAwayArgs, NodeName, NodeRemoveArgs, NodesArgs, NodesLsArgs};
use crate::output::{Output, table};
use potluck_client::Pool;
use potluck_core::size::format_size;
use potluck_wire::control::{Alarm, DonorRates, DonorStatus, MemberList, Status, Trust};
use potluck_wire::error::Failure;
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
                format!(
                    "{} is trusted again once a sample of what it holds proved right",
                    donor.name
                )
            });
            Ok(Ending::Done)
        }
        NodesArgs::Rm(NodeRemoveArgs { donor, now, force, caution }) => {
            let donor = donors::named(client, &donor).await?;
            let all = client.call(&MemberList {}).await?.members;
            let named = all.iter().filter(|member| member.member.0 == donor.donor.0).collect();
            members::MemberRemoval { named, now, force, caution }.run(&all, client, output).await
        }
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
        text.push_str("rates are the median of what members measured, or a first guess of the manager; - is not known yet\n");
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
        donor.load.describe(),
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
