//! `potluck policy`: how files are stored and kept safe.

use super::Ending;
use super::cp::policy_override;
use super::health;
use crate::args::{Policy, PolicySet, PolicyShow};
use crate::confirm::confirm;
use crate::output::{Output, count};
use potluck_client::Pool;
use potluck_core::policy::{self, Redundancy};
use potluck_core::size::format_size;
use potluck_wire::control::{self, PolicyChanged};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::fmt::Write;

pub async fn run(args: Policy, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        Policy::Show(args) => show(args, client, output).await,
        Policy::Set(args) => set(args, client, output).await,
    }
}

async fn show(args: PolicyShow, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let stated = client.stat(&args.path).await?;
    let shown = serde_json::json!({ "path": args.path, "policy": stated.policy });
    output.result(&shown, |_| text(&args.path.to_string(), &stated.policy));
    Ok(Ending::Done)
}

fn text(path: &str, policy: &policy::Policy) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {value}"); // writing to a string cannot fail
    };
    line("path", path.into());
    line("kept as", health::redundancy(policy.redundancy()));
    line("mirror", policy.mirror.to_string());
    line("race", policy.race.to_string());
    line("width", health::width(policy.stripe_width));
    line("chunks", format_size(policy.chunk_size.into()));
    line("ack", policy.ack.to_string());
    let strict = match policy.strict {
        true => "yes: refused unless all redundancy is there",
        false => "no: while donors are away, one more may die",
    };
    line("strict", strict.into());
    line("sealed", if policy.sealed { "yes" } else { "no" }.into());
    text
}

async fn set(args: PolicySet, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let over = policy_override(&args.policy)?;
    if over == policy::Override::default() {
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, "nothing to set is named")
            .hint(
                "give --copies, --ec, --mirror, --race, --width, --chunk-size, --ack or --strict",
            ));
    }
    let before = client.stat(&args.path).await?.policy;
    let mut set = control::PolicySet {
        path: args.path.clone(),
        policy: over,
        new_files_only: args.new_files_only,
        dry_run: true,
    };
    let planned = client.call(&set).await?;
    let change = |will: &str, changed: &PolicyChanged| {
        let mut text = format!("{}: {}", args.path, health::policy(&before));
        let _ = write!(text, "\n{will}: {}", health::policy(&changed.policy));
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
        lacking(changed).into_iter().for_each(|what| text.push_str(&format!("\n! {what}")));
        text
    };
    if args.caution.dry_run {
        output.result(&planned, |planned| change("would become", planned));
        return Ok(Ending::Done);
    }
    let lacks = !lacking(&planned).is_empty();
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
            args.path
        ));
    }
    Ok(Ending::Done)
}

/// Says what the pool has too little of now for a policy, and for the change of files to it.
pub fn lacking(changed: &PolicyChanged) -> Vec<String> {
    let donors = changed.lacks_donors().then(|| {
        let redundancy = changed.policy.redundancy();
        too_few(redundancy, changed.donors)
    });
    let room = (changed.files > 0 && changed.lacks_room()).then(|| {
        format!(
            "about {} more are needed on the donors while files are changed, and {} are free: \
             lend more, or it gets stuck and what finds no room keeps what it has",
            format_size(changed.needs_bytes),
            format_size(changed.free_bytes)
        )
    });
    donors.into_iter().chain(room).collect()
}

/// That only so many donors can be written to, and what that is too little for.
pub fn too_few(redundancy: Redundancy, have: u32) -> String {
    let needs = match redundancy {
        Redundancy::Copies(copies) if copies > 1 => "need",
        _ => "needs",
    };
    format!(
        "{redundancy} {needs} {}, and {have} can be written to now: lend on more machines, or make \
         room on them, before you store something",
        count(redundancy.donors().into(), "donor"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(donors: u32, free_bytes: u64) -> PolicyChanged {
        let policy = policy::Policy { copies: 3, ..policy::Policy::default() };
        let (files, bytes, needs_bytes) = (2, 10 << 20, 20 << 20);
        PolicyChanged { policy, files, bytes, needs_donors: 3, donors, needs_bytes, free_bytes }
    }

    #[test]
    fn what_the_pool_has_too_little_of_is_said() {
        assert!(lacking(&changed(3, 20 << 20)).is_empty());
        let few = lacking(&changed(2, 20 << 20));
        assert!(few[0].starts_with("3 copies need 3 donors, and 2 can be written to"), "{few:?}");
        let full = lacking(&changed(3, 1 << 20));
        assert_eq!(full.len(), 1);
        assert!(
            full[0].contains("20.0 MiB more") && full[0].contains("1.0 MiB are free"),
            "{full:?}"
        );
        let none = PolicyChanged { files: 0, ..changed(3, 0) };
        assert!(lacking(&none).is_empty(), "nothing is there to be changed");
    }
}
