//! Adds and removes single lent directories, for `potluck lend --add` and `--remove`. The settings list the lent
//! directories, and a running daemon follows them at once.

use super::absolute;
use super::lent::own_dir;
use super::state_files::STATES;
use crate::args::LendArgs;
use crate::cmd::Ending;
use crate::cmd::set::one_of;
use crate::command_settings::CommandSettings;
use crate::keys::Daemon;
use crate::output::Output;
use crate::running::{self, Told};
use crate::settings_file::SettingsFile;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Lends more directories (`potluck lend --add`).
pub async fn add(
    args: &LendArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let state = state_of(args, settings)?;
    CommandSettings::donor_identity(&state)?;
    let dirs = args.dirs.iter().map(|dir| absolute(dir)).collect::<Result<Vec<_>, _>>()?;
    let refused = |what: String, hint: &str| {
        Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(hint))
    };
    if let Some((key, _)) = args.given.settings.iter().find(|(key, _)| key.full == "lend.listen") {
        let what = "--listen is about all donors of this machine: those of further directories listen at the ports after \
                    that of the first"
            .to_owned();
        let hint = format!("leave it out; to move them all: `potluck set {} HOST:PORT`", key.full);
        return refused(what, &hint);
    }
    let known = SettingsFile::read(Daemon::Donor, &state)?.lent();
    if known.is_empty() {
        let what = "this donor has lent nothing yet, so there is nothing to add to".to_owned();
        return refused(what, "begin with: potluck lend DIR");
    }
    if let Some(dir) = dirs.iter().find(|dir| known.contains(dir)) {
        let what = format!("{} is lent already", dir.display());
        return refused(what, "`potluck set` shows its terms");
    }
    SettingsFile::edit(Daemon::Donor, &state, |file| {
        dirs.iter().for_each(|dir| file.lend(dir));
        args.given.put_into_of(file, &dirs);
        Ok(())
    })?;
    let named = dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ");
    match running::reload(&state).await {
        Told::Took(notes) => {
            output.note(&format!("lent now: {named}"));
            notes.iter().for_each(|note| output.note(note));
        }
        Told::Nobody => output.note(&format!("lent once `potluck lend` runs: {named}")),
        Told::Refused(why) | Told::Unheard(why) => {
            // The daemon may have refused another directory, such as one whose disk is not there.
            let lent =
                running::find(&state).ok().flatten().map(|said| said.lent).unwrap_or_default();
            let (lent, not): (Vec<_>, Vec<_>) =
                dirs.into_iter().partition(|dir| lent.contains(dir));
            lent.iter().for_each(|dir| output.note(&format!("lent now: {}", dir.display())));
            if not.is_empty() {
                output.note(&format!("warning: {why}"));
                return Ok(Ending::Done);
            }
            lend_no_more(&state, None, &not).await?;
            let named: Vec<_> = not.iter().map(|dir| dir.display().to_string()).collect();
            let what = format!("{} is not lent, and nothing is changed: {why}", named.join(", "));
            return Err(Failure::new(ErrorKind::Other, code::BAD_SETTINGS, what)
                .hint("mend what is said, and run the same command again"));
        }
    }
    Ok(Ending::Done)
}

/// Takes a directory that no donor lends out of the settings (`potluck lend --remove`).
pub async fn forget(
    args: &LendArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let state = state_of(args, settings)?;
    let dirs = args.dirs.iter().map(|dir| absolute(dir)).collect::<Result<Vec<_>, _>>()?;
    let named = dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ");
    if args.dry_run {
        output.note(&format!(
            "nothing was lent of {named} yet: it would be taken out of the settings"
        ));
        return Ok(Ending::Done);
    }
    lend_no_more(&state, None, &dirs).await?;
    output.note(&format!("{named} is lent no more; nothing was stored there"));
    Ok(Ending::Done)
}

/// A lent directory, and the state directory of the donor that lends it, which holds its identity.
pub struct OwnDonor {
    /// The lent directory; `None` if nothing was lent yet.
    pub dir: Option<PathBuf>,
    pub state: PathBuf,
}

/// Returns the donors of the daemon whose state is in `state`, or only that of the `wanted` directory; at least one.
pub fn donors_of(state: &Path, wanted: Option<&Path>) -> Result<Vec<OwnDonor>, Failure> {
    let file = SettingsFile::read(Daemon::Donor, state)?;
    let wanted = wanted.map(|dir| one_of(&file, Some(&absolute(dir)?))).transpose()?;
    let own = own_dir(&file, state);
    let mut donors = Vec::new();
    for dir in file.lent().into_iter().filter(|dir| wanted.as_ref().is_none_or(|one| one == dir)) {
        let own = (own.as_ref() == Some(&dir)).then(|| state.to_owned());
        // A directory that was just added to the settings has no donor yet.
        if let Some(state) = own.or_else(|| file.lent_state(&dir)) {
            donors.push(OwnDonor { dir: Some(dir), state });
        }
    }
    if donors.is_empty() {
        donors.push(OwnDonor { dir: None, state: state.to_owned() });
    }
    Ok(donors)
}

/// Returns the state directories of the donors of further directories, given the daemon's own state directory.
pub fn states(state: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let file = SettingsFile::read(Daemon::Donor, state)?;
    let named = file.lent().into_iter().filter_map(|dir| file.lent_state(&dir));
    let kept = std::fs::read_dir(state.join(STATES)).into_iter().flatten().flatten();
    Ok(named.chain(kept.map(|entry| entry.path())).collect())
}

/// Returns the state directory of the daemon that lends a further directory, given that of the directory's donor;
/// `None` if `state` is that of a daemon itself.
pub fn daemon_of(state: &Path) -> Option<&Path> {
    state.parent().filter(|above| above.ends_with(STATES))?.parent()
}

/// Has the daemon whose state is in `state` lend `dirs` no more, nor what the settings say of the donor whose state is
/// in `own`: a donor that never began has lent nothing, and has its directory in the settings alone.
pub async fn lend_no_more(
    state: &Path,
    own: Option<&Path>,
    dirs: &[PathBuf],
) -> Result<(), Failure> {
    SettingsFile::edit(Daemon::Donor, state, |file| {
        for dir in file.lent() {
            let of_own = own.is_some() && file.lent_state(&dir).as_deref() == own;
            if of_own || dirs.contains(&dir) {
                file.lend_no_more(&dir);
            }
        }
        Ok(())
    })?;
    match running::reload(state).await {
        Told::Took(_) | Told::Nobody => {}
        Told::Refused(why) | Told::Unheard(why) => tracing::warn!("the running donor: {why}"),
    }
    Ok(())
}

/// Returns the state directory of the daemon that a command is about.
pub fn state_of(args: &LendArgs, settings: &CommandSettings) -> Result<PathBuf, Failure> {
    absolute(&args.state.clone().unwrap_or_else(|| settings.donor_dir()))
}
