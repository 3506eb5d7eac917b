//! Adds and removes single lent directories, for `potluck lend --add` and `--remove`. The settings list the lent
//! directories, and a running daemon follows them at once.

use super::absolute;
use super::lent::{STATES, own_dir};
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
            let what = format!("in the settings and not lent yet: {named}: {why}");
            return Err(Failure::new(ErrorKind::Other, code::BAD_SETTINGS, what).hint(
                "mend what is said and send the donor a hangup, or take it out again with --remove",
            ));
        }
    }
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

/// Has the daemon whose state is in `state` lend `dirs` no more.
pub async fn lend_no_more(state: &Path, dirs: &[PathBuf]) -> Result<(), Failure> {
    SettingsFile::edit(Daemon::Donor, state, |file| {
        dirs.iter().for_each(|dir| file.lend_no_more(dir));
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
