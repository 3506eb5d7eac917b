//! `potluck audit`: shows what was refused to whom, and who changed the rights of others.

use super::Ending;
use crate::args;
use crate::output::{Output, in_zone, name, table, time};
use potluck_client::Pool;
use potluck_wire::control::{AuditEntry, AuditKind, AuditPage, AuditRead};
use potluck_wire::error::Failure;

pub async fn run(args: args::AuditArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let since_wall_ms = client.wall_ms() - args.since.as_millis() as i64;
    let mut log = AuditPage::default();
    let mut after = None;
    loop {
        let call = AuditRead { since_wall_ms: Some(since_wall_ms), after };
        let page = client.call(&call).await?;
        log.entries.extend(page.entries);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    output.result(&log, |log| {
        let rows: Vec<_> = log.entries.iter().map(row).collect();
        table(&[&in_zone("when"), "who", "from", "", "times", "what"], &[4], &rows)
    });
    Ok(Ending::Done)
}

fn row(entry: &AuditEntry) -> Vec<String> {
    let who = match (&entry.name, entry.member) {
        (Some(called), Some(member)) => format!("{} ({member})", name(called)),
        _ => "no member".into(),
    };
    let who = match &entry.through {
        Some(gateway) => format!("{who} through {}", name(gateway)),
        None => who,
    };
    let kind = match entry.kind {
        AuditKind::Refused => "refused",
        AuditKind::Changed => "changed",
        AuditKind::Unknown => "-",
    };
    vec![
        time(entry.at_wall_ms),
        who,
        entry.from.clone(),
        kind.into(),
        entry.times.to_string(),
        name(&entry.what).into_owned(),
    ]
}
