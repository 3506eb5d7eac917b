//! `potluck lend --remove`: finds the donor that leaves.

use super::record;
use crate::args::{Caution, LeaveArgs, LendArgs};
use crate::cmd::lend;
use crate::command_settings::CommandSettings;
use crate::keys::Daemon;
use crate::settings_file::SettingsFile;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::path::PathBuf;

/// Turns the arguments of `potluck lend --remove` into those of `potluck leave`: the donor of one directory leaves, and
/// the others stay. Returns `None` for a directory that only the settings name: no donor lends it, so none leaves.
pub fn of_directory(
    args: &LendArgs,
    settings: &CommandSettings,
) -> Result<Option<LeaveArgs>, Failure> {
    let state = lend::state_of(args, settings)?;
    let [dir] = args.dirs.as_slice() else {
        let what = "one directory is lent no more at a time";
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
            .hint("all of them: `potluck leave`"));
    };
    let dir = lend::absolute(dir)?;
    let file = SettingsFile::read(Daemon::Donor, &state)?;
    let began = |own: &PathBuf| {
        record::read(own).is_ok_and(|begun| begun.iter().any(|it| it.lent.contains(&dir)))
    };
    // An interrupted departure may have removed the directory from the settings already.
    let own = match file.lent_state(&dir) {
        Some(own) => Some(own),
        None => lend::states(&state)?.into_iter().find(began),
    };
    let Some(own) = own else {
        if file.lent().contains(&dir) && lend::own_dir(&file, &state).as_ref() != Some(&dir) {
            return Ok(None);
        }
        let lent = file.lent().contains(&dir);
        let what = match lent {
            true => format!("{} is the directory this donor began with", dir.display()),
            false => format!("{} is not lent", dir.display()),
        };
        let hint = match lent {
            true => "it ends with the donor: `potluck leave`",
            false => "`potluck set lend.max` shows the lent directories",
        };
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(hint));
    };
    let caution = Caution { dry_run: args.dry_run, yes: args.yes };
    Ok(Some(LeaveArgs { now: false, pool_is_gone: false, caution, state: Some(own) }))
}
