//! `potluck manager restore`: a lost manager comes back; `potluck manager backup`: a copy to keep.

use super::failed;
use crate::args::{Asking, ManagerBackup, ManagerRebuild, ManagerRestore, NewPlace};
use crate::cmd::Ending;
use crate::command_settings::Settings;
use crate::output::{Output, count, time};
use potluck_core::size::format_size;
use potluck_manager::{Gaps, Patience, Replayed, Restore, Restored, Verdict};
use potluck_wire::addresses::{Addresses, MANAGER_LISTEN};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::path::PathBuf;

pub async fn restore(
    args: ManagerRestore,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    let ask = ask(args.kit, args.place, settings);
    let patience = patience(args.asking);
    let env = Env::system();
    let is_pool = args.from.as_os_str() == "pool";
    let restored = if is_pool {
        potluck_manager::restore_pool(&ask, &patience, env, |said| output.note(said)).await
    } else {
        let ask = ask.clone();
        env.offload.run(move || potluck_manager::restore_file(&ask, &args.from)).await
    };
    let restored = restored.map_err(failed)?;
    let listen = if is_pool { patience.listen } else { with_port(&patience.listen, &restored) };
    told(&restored, &ask, &listen, settings, output)
}

pub async fn rebuild(
    args: ManagerRebuild,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    let ask = ask(args.kit, args.place, settings);
    let patience = patience(args.asking);
    let rebuilt =
        potluck_manager::rebuild(&ask, &patience, Env::system(), |said| output.note(said)).await;
    told(&rebuilt.map_err(failed)?, &ask, &patience.listen, settings, output)
}

/// Where to listen so that members who look at the restored manager's address find it there.
fn with_port(listen: &str, restored: &Restored) -> String {
    match (listen.rsplit_once(':'), restored.addresses.first()) {
        (Some((host, _)), Some(known)) => format!("{host}:{}", known.port()),
        _ => listen.to_owned(),
    }
}

fn ask(kit: PathBuf, place: NewPlace, settings: &Settings) -> Restore {
    let state = place.state.unwrap_or_else(|| settings.manager_dir());
    Restore { kit, state, advertise: Addresses::new(place.advertise) }
}

fn patience(asking: Asking) -> Patience {
    Patience {
        listen: asking.listen,
        quiet: asking.wait,
        donors: asking.donors,
        visit: asking.donor.into_iter().collect(),
    }
}

/// Tells what was restored, and what to do now: a manager that listens at `listen`.
fn told(
    restored: &Restored,
    ask: &Restore,
    listen: &str,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    output.result(restored, text);
    let mut start = "potluck manager".to_owned();
    if listen != MANAGER_LISTEN {
        start += &format!(" --listen {listen}");
    }
    if ask.state != settings.manager_dir() {
        start += &format!(" --state {}", ask.state.display());
    }
    output.note(&format!(
        "next: {start} (with the options it had), then look with `potluck status` and `potluck fsck`, then `potluck gc resume`"
    ));
    let admin = ask.state.join("admin");
    if settings.identity_dir().ok().as_ref() != Some(&admin) {
        output.note(&format!(
            "commands that only an admin may give need --pool {} here",
            admin.display()
        ));
    }
    match restored.verdict() {
        Verdict::Whole => Ok(Ending::Done),
        Verdict::Incomplete => Ok(Ending::Partial),
        Verdict::Unreadable => {
            let files = restored.unlisted.as_ref().map_or(0, |unlisted| unlisted.files);
            let what = format!("{} cannot be read now", count(files, "file"));
            Err(Failure::new(ErrorKind::Integrity, code::UNREADABLE, what)
                .hint("the pool is restored; bring back the donors that did not answer"))
        }
    }
}

fn text(restored: &Restored) -> String {
    let from = match (restored.checkpoint, restored.taken_ms, &restored.journal) {
        (Some(number), Some(taken), _) => format!("checkpoint {number} of {} UTC", time(taken)),
        (None, Some(taken), None) => format!("a copy of {} UTC", time(taken)),
        (_, _, Some(_)) => "the journal on its donors".to_owned(),
        _ => "a copy of the catalog".to_owned(),
    };
    let mut text = format!(
        "pool {} restored from {from}: {}, {} in {}, {}\n",
        restored.pool,
        count(restored.files, "file"),
        format_size(restored.bytes),
        count(restored.spaces, "space"),
        count(restored.donors, "donor"),
    );
    match &restored.journal {
        Some(journal) => text += &journal_text(journal),
        None => text += "what was written after it is not in it\n",
    }
    if restored.no_checksum {
        text += "the file has no checksum: it was looked at for damage, but not all can be seen\n";
    }
    if let Some(unlisted) = restored.unlisted.as_ref().filter(|unlisted| unlisted.files > 0) {
        text += &format!(
            "{}, {}, cannot be read from what the donors that answered have:\n",
            count(unlisted.files, "file"),
            format_size(unlisted.bytes)
        );
        unlisted.first.iter().for_each(|path| text += &format!("  {path}\n"));
    }
    text + &format!(
        "members look for its manager at {}, and follow it where it starts; nothing is reclaimed until `potluck gc resume`\n",
        restored.addresses
    )
}

fn journal_text(journal: &Replayed) -> String {
    let mut text = match journal.until_ms {
        Some(until) => format!(
            "the journal was replayed to {} UTC, {}; what changed later is lost\n",
            time(until),
            count(journal.segments, "segment")
        ),
        None => "the journal on the donors has nothing later\n".to_owned(),
    };
    let Gaps { missing, broken, base_cut } = journal.gaps;
    if missing > 0 || broken > 0 || base_cut {
        text += &format!(
            "it has gaps: {missing} segments are missing, {broken} do not follow the one before{}; {} records did not fit\n",
            if base_cut { ", and the end of its base is gone" } else { "" },
            journal.left_out
        );
    } else if journal.left_out > 0 {
        text += &format!("{} of its records did not fit\n", journal.left_out);
    }
    if journal.unread > 0 {
        text += &format!(
            "{} of its segments could not be read: no donor that answered gave them\n",
            journal.unread
        );
    }
    if journal.passed_over > 0 {
        text += &format!(
            "{} segments of another generation were passed over: its base is not whole, or a catalog that was given up wrote it; `potluck manager rebuild` shows what is in them\n",
            journal.passed_over
        );
    }
    if journal.overtaken {
        text += "it was taken alone: it is later than every checkpoint\n";
    }
    text
}

pub async fn backup(
    args: ManagerBackup,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    let state = args.state.unwrap_or_else(|| settings.manager_dir());
    let file = args.file.clone();
    let env = Env::system();
    let wall_ms = env.clock.wall();
    let copy = move || potluck_manager::backup(&state, &file, wall_ms);
    let copied = env.offload.run(copy).await;
    copied.map_err(failed)?;
    let done: PathBuf = args.file;
    output.result(&serde_json::json!({ "file": done }), |_| {
        format!("the catalog is copied to {}; it holds the keys of sealed spaces\n", done.display())
    });
    Ok(Ending::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_restored_manager_is_to_listen_where_its_members_look() {
        let at = |list: &str| {
            let addresses = list.parse().expect("addresses");
            Restored { addresses, ..Restored::default() }
        };
        assert_eq!(with_port("0.0.0.0:7700", &at("127.0.0.1:7811")), "0.0.0.0:7811");
        assert_eq!(with_port("[::]:7700", &at("[fe80::1]:7811")), "[::]:7811");
        assert_eq!(with_port("0.0.0.0:7700", &Restored::default()), "0.0.0.0:7700");
    }
}
