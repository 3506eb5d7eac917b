//! `potluck policy`: shows and changes how files are stored and kept safe.

use super::Ending;
use super::cp::{policy_override, with_retention};
use super::health;
use crate::args::{PolicyArgs, PolicySetArgs, PolicyShowArgs, SeriesOptions};
use crate::confirm::confirm;
use crate::output::{Output, count, name, told};
use potluck_client::Pool;
use potluck_core::policy::{self, Override, SeriesRule};
use potluck_core::size::format_size;
use potluck_wire::control::{self, PolicyChanged};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::fmt::Write;

pub async fn run(args: PolicyArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        PolicyArgs::Show(args) => show(args, client, output).await,
        PolicyArgs::Set(args) => set(args, client, output).await,
    }
}

async fn show(args: PolicyShowArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let stated = client.stat_unjudged(&args.path).await?;
    let mut shown = serde_json::json!({ "path": args.path, "policy": stated.policy });
    if !stated.series.is_unset() {
        shown["series"] = serde_json::json!(stated.series);
    }
    output.result(&shown, |_| {
        let text = text(&args.path.to_string(), &stated.policy);
        match stated.series.is_none() {
            true => text,
            false => format!("{text}{:<10} {}\n", "steps kept", stated.series),
        }
    });
    Ok(Ending::Done)
}

fn text(path: &str, policy: &policy::Policy) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {value}"); // writing to a string cannot fail
    };
    line("path", name(path).into());
    let default = |follows| if follows { " (the pool's default)" } else { "" };
    let kept = health::redundancy(policy.redundancy());
    line("kept as", format!("{kept}{}", default(policy.follows.redundancy)));
    line("mirror", policy.mirror.to_string());
    line("race", policy.race.to_string());
    line("width", health::width(policy.stripe_width));
    line("in a row", count(policy.stripe_size.into(), "chunk"));
    line("near", policy.near.to_string());
    line("chunks", health::chunks(policy));
    line("ack", policy.ack.to_string());
    let strict = match policy.strict {
        true => "yes: refused unless all redundancy is there",
        false => "no: while donors are away, one more may die",
    };
    line("strict", strict.into());
    line("versions", policy.keep_versions.to_string());
    line("removed", format!("{}{}", health::removed(policy), default(policy.follows.trash)));
    let cached = match policy.cache {
        true => "what was imported is cached: it may be evicted, and comes from its origin again",
        false => "no",
    };
    line("cached", cached.into());
    line("sealed", if policy.sealed { "yes" } else { "no" }.into());
    text
}

async fn set(args: PolicySetArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let over = with_retention(policy_override(&args.policy)?, &args.retention);
    let SeriesOptions { keep_last, purge_after, purge_unused } = args.series;
    let series = SeriesRule { keep_last, purge_after, purge_unused };
    let over = Override { series, ..over };
    if over == Override::default() {
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, "nothing to set is named")
            .hint(
                "give --copies, --ec, --mirror, --race, --width, --stripe-size, --near, --chunk-size, --cut, --ack, --strict, --cache, --keep-versions, --trash, --keep-last, --purge-after or --purge-unused",
            ));
    }
    let before = client.stat_unjudged(&args.path).await?.policy;
    let mut set = control::PolicySet {
        path: args.path.clone(),
        policy: over,
        new_files_only: args.new_files_only,
        dry_run: true,
    };
    let planned = client.call(&set).await?;
    let change = |will: &str, changed: &PolicyChanged| {
        let mut text = format!("{}: {}", name(&args.path.to_string()), health::policy(&before));
        let _ = write!(text, "\n{will}: {}", health::policy(&changed.policy));
        if series != SeriesRule::default() {
            let _ = write!(text, "\nsteps kept there: {series}");
        }
        let _ = match changed.files {
            0 => write!(text, "\nno file that is there changes"),
            files => write!(
                text,
                "\n{}, {}, change in the background; until then each keeps what it has (not counted: \
                 files that are kept so already, and those of up to 4 KiB, which are in the catalog)",
                count(files, "file"),
                format_size(changed.bytes)
            ),
        };
        changed.lacks.iter().for_each(|what| text.push_str(&format!("\n! {what}")));
        changed.notes.iter().for_each(|what| text.push_str(&format!("\n{what}")));
        text
    };
    if args.caution.dry_run {
        output.result(&planned, |planned| change("would become", planned));
        return Ok(Ending::Done);
    }
    let lacks = !planned.lacks.is_empty();
    if !args.caution.yes && (planned.files > 0 || lacks) {
        output.note(&change("will become", &planned));
        let advice = match lacks {
            true => "lend more first with `potluck lend`; -y sets it all the same",
            false => "add -y to do it without asking, -n to only look, or --new-files-only",
        };
        let question =
            if planned.files > 0 { "change these files?" } else { "set it all the same?" };
        confirm(question, advice).await?;
    }
    set.dry_run = false;
    let changed = client.call(&set).await?;
    output.result(&changed, |changed| change("is now", changed));
    if changed.files > 0 {
        output.note(&format!(
            "`potluck repair status --watch` follows it; see also `potluck verify -r {}`",
            told(&args.path.to_string())
        ));
    }
    Ok(Ending::Done)
}
