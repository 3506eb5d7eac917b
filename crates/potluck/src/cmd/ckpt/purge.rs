//! `potluck ckpt purge`: purges old steps of a series, or shows which would be.

use crate::args::CkptPurgeArgs;
use crate::output::{Output, in_zone, name, table, time};
use potluck_client::Pool;
use potluck_core::policy::PurgeReason;
use potluck_wire::control::{SeriesPurge, SeriesSteps, StepAbout, StepFate};
use potluck_wire::error::Failure;

pub async fn purge(args: CkptPurgeArgs, client: &Pool, output: &Output) -> Result<(), Failure> {
    let CkptPurgeArgs { dir, dry_run } = args;
    let told = client.call(&SeriesPurge { dir, dry_run }).await?;
    output.result(&told, |told| text(told, dry_run));
    if told.rule.is_none() {
        output.note(
            "no rule says which of its steps are purged: set one with `potluck policy set --keep-last`, `--purge-after` or \
             `--purge-unused`",
        );
    }
    Ok(())
}

fn text(told: &SeriesSteps, dry_run: bool) -> String {
    let row = |step: &StepAbout| {
        let fate = match (step.fate, dry_run) {
            (StepFate::Stays, _) => "stays".into(),
            (StepFate::Pinned, _) => "stays: it is pinned".into(),
            (StepFate::BeingRead, _) => "stays: it is being read".into(),
            (StepFate::LastWhole, _) => "stays: no newer step is known to be whole".into(),
            (StepFate::Purged(reason), true) => format!("would be purged: {}", why(reason)),
            (StepFate::Purged(reason), false) => format!("purged: {}", why(reason)),
        };
        let slash = if step.dir { "/" } else { "" };
        vec![time(step.mtime.ms()), fate, format!("{}{slash}", name(&step.name))]
    };
    let rows: Vec<_> = told.steps.iter().map(row).collect();
    table(&[&in_zone("modified"), "fate", "step"], &[], &rows)
}

fn why(reason: PurgeReason) -> &'static str {
    match reason {
        PurgeReason::BeyondLast => "enough newer ones are there",
        PurgeReason::Age => "it is too old",
        PurgeReason::Unused => "nobody has used it for too long",
    }
}
