//! `potluck manager restore` brings a lost manager back; `potluck manager backup` writes its catalog to a file.

use super::failed;
use crate::args::{AskingArgs, ManagerBackupArgs, ManagerRestoreArgs, NewPlaceArgs};
use crate::cmd::Ending;
use crate::command_settings::CommandSettings;
use crate::output::{Output, count, name, stated_time, time};
use potluck_core::size::format_size;
use potluck_recovery::{
    Adopted, FoundChain, Gaps, ListenOptions, Replayed, Restore, RestoreExtent, Restored,
};
use potluck_wire::addresses::{Addresses, MANAGER_LISTEN};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub async fn restore(
    args: ManagerRestoreArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let ask = ask(args.kit, args.place, settings);
    let options = listen_options(args.asking);
    let env = Env::system();
    let is_pool = args.from.as_os_str() == "pool";
    let restored = if is_pool {
        potluck_recovery::restore_pool(&ask, &options, env, |said| output.note(said)).await
    } else {
        let ask = ask.clone();
        env.offload.run(move || potluck_recovery::restore_file(&ask, &args.from)).await
    };
    let restored = restored.map_err(failed)?;
    let listen = match options.listen {
        Some(listen) if is_pool => listen,
        _ => restored.addresses.manager_listen(),
    };
    told(&restored, &ask, is_pool, &listen, settings, output)
}

fn ask(kit: PathBuf, place: NewPlaceArgs, settings: &CommandSettings) -> Restore {
    let state = place.state.unwrap_or_else(|| settings.manager_dir());
    Restore { kit, state, advertise: Addresses::new(place.advertise) }
}

fn listen_options(asking: AskingArgs) -> ListenOptions {
    ListenOptions {
        listen: asking.listen,
        quiet: asking.wait,
        donors: asking.donors,
        visit: asking.donor.into_iter().collect(),
        chain: asking.chain,
    }
}

/// The time without anything new from donors after which a manager that adopts a newer catalog goes on.
const QUIET: Duration = Duration::from_secs(10);

/// Takes the newest catalog that donors keep in the place of the one in `state`, before a manager is started there that
/// listens at `listen`.
pub async fn adopt_newer(
    state: &Path,
    listen: &str,
    env: Env,
    output: &Output,
) -> Result<(), Failure> {
    let options = ListenOptions {
        listen: Some(listen.into()),
        quiet: QUIET,
        donors: None,
        visit: BTreeSet::new(),
        chain: None,
    };
    let adopted =
        potluck_recovery::adopt_newer(state, &options, env, |said| output.note(said)).await;
    match adopted.map_err(failed)? {
        Some(Adopted { restored, replaced }) => output.note(&format!(
            "{}the older catalog lies in {}; look at what is there, then `potluck gc resume`",
            text(&restored),
            replaced.display()
        )),
        None => output.note(
            "donors that answered keep no newer catalog from which nothing is missing: the one here stays. If donors are \
             off that ran with a newer one, start them, and this manager with --adopt-newer again",
        ),
    }
    Ok(())
}

/// Tells what was restored, and what to do next, such as starting a manager that listens at `listen`.
fn told(
    restored: &Restored,
    ask: &Restore,
    is_pool: bool,
    listen: &str,
    settings: &CommandSettings,
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
    if is_pool && restored.extent() != RestoreExtent::Whole {
        output.note(&format!(
            "before you start it: donors that did not answer may have what is missing. Move {} away, and restore again with \
             all that run (`--donor HOST` for each that does not find this machine, `--donors N` for how many there are, \
             or a longer `--wait`)",
            ask.state.display()
        ));
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
    match restored.extent() {
        RestoreExtent::Whole => Ok(Ending::Done),
        RestoreExtent::Incomplete => Ok(Ending::Partial),
        RestoreExtent::Unreadable => {
            let files = restored.unlisted.as_ref().map_or(0, |unlisted| unlisted.files);
            let what = format!("{} cannot be read now", count(files, "file"));
            Err(Failure::new(ErrorKind::Integrity, code::UNREADABLE, what)
                .hint("bring back the donors that did not answer: as long as the manager has not been started, restore again; \
                        later their chunks are read where they are"))
        }
    }
}

fn text(restored: &Restored) -> String {
    let mut text = format!(
        "pool {} restored: {}, {} in {}, {}\n",
        restored.pool,
        count(restored.files, "file"),
        format_size(restored.bytes),
        count(restored.spaces, "space"),
        count(restored.donors, "donor"),
    );
    text += &log_text(&restored.log);
    if restored.chains.len() > 1 {
        text += "donors have these chains of the log (restore into a new directory with --chain to take another):\n";
        restored.chains.iter().for_each(|chain| text += &chain_text(chain));
    }
    if let Some(unlisted) = restored.unlisted.as_ref().filter(|unlisted| unlisted.files > 0) {
        text += &format!(
            "{}, {}, cannot be read from what the donors that answered have:\n",
            count(unlisted.files, "file"),
            format_size(unlisted.bytes)
        );
        unlisted.first.iter().for_each(|path| text += &format!("  {}\n", name(&path.to_string())));
    }
    text + &format!(
        "members look for its manager at {}, and follow it where it starts; nothing is reclaimed until `potluck gc resume`\n",
        restored.addresses
    )
}

fn chain_text(chain: &FoundChain) -> String {
    let FoundChain { chain, from_ms, until_ms, files, gaps, taken } = chain;
    let is_cut = gaps.missing > 0 || gaps.broken > 0 || gaps.base_cut;
    format!(
        "  {chain}: {} to {}, {}{}{}{}\n",
        time(*from_ms),
        stated_time(*until_ms),
        count(*files, "file"),
        if is_cut { ", with gaps" } else { "" },
        if gaps.inherited { ", of a manager that may have lacked changes" } else { "" },
        if *taken { "; this one was taken" } else { "" },
    )
}

fn log_text(log: &Replayed) -> String {
    let mut text = match log.until_ms {
        Some(until) => format!(
            "the metadata log was replayed to {}, {}; what changed later is not in it\n",
            stated_time(until),
            count(log.blocks, "block")
        ),
        None => String::new(),
    };
    let Gaps { missing, broken, base_cut, inherited } = log.gaps;
    if inherited {
        text += "the manager that wrote it may itself have lacked changes: it was restored from a file or from a log with gaps, or on an \
                 old copy of its directory\n";
    }
    if missing > 0 || broken > 0 || base_cut {
        text += &format!(
            "it has gaps: {missing} blocks are missing, {broken} do not follow the one before{}; {} records did not fit\n",
            if base_cut { ", and the end of its base is gone" } else { "" },
            log.left_out
        );
    } else if log.left_out > 0 {
        text += &format!("{} of its records did not fit, or are missing\n", log.left_out);
    }
    if log.unread > 0 {
        text += &format!(
            "{} of its blocks could not be read: no donor that answered gave them\n",
            log.unread
        );
    }
    if log.unread_bytes > 0 {
        text += &format!(
            "the last {} of the file are damaged, and the changes in them are lost\n",
            format_size(log.unread_bytes)
        );
    }
    if log.passed_over > 0 {
        text += &format!(
            "{} blocks of another generation were passed over: its base is not whole, a catalog that was given up wrote it, or a \
             manager that lacked changes itself (`--chain` takes that one)\n",
            log.passed_over
        );
    }
    text
}

pub async fn backup(
    args: ManagerBackupArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let state = args.state.unwrap_or_else(|| settings.manager_dir());
    let file = args.file.clone();
    let env = Env::system();
    let wall_ms = env.clock.wall();
    let copy = move || potluck_recovery::backup(&state, &file, wall_ms);
    let copied = env.offload.run(copy).await;
    copied.map_err(failed)?;
    let done: PathBuf = args.file;
    output.result(&serde_json::json!({ "file": done }), |_| {
        format!("the catalog is backed up to {}; the recovery kit opens it\n", done.display())
    });
    Ok(Ending::Done)
}
