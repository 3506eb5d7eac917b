//! `potluck find-manager`: finds a pool's manager that has moved.

use super::{Ending, lend};
use crate::args;
use crate::command_settings::CommandSettings;
use crate::output::Output;
use crate::running::{self, Told};
use potluck_config::own_pools;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::Find;
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::token::Role;
use std::collections::BTreeSet;
use std::path::PathBuf;

pub async fn run(
    args: args::FindManagerArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let mut found = Vec::new();
    for dir in dirs(&args, settings)? {
        let mut identity = own_pools::load_identity(&dir)?;
        let at = Addresses::new(args.at.iter().cloned());
        if !at.is_empty() {
            identity.about.manager = at.clone();
        }
        // The manager proves that it is this pool's before anything is written.
        let caller = match at.is_empty() {
            true => own_pools::guided(&identity, &dir)?,
            false => own_pools::caller(&identity)?,
        };
        let answer = caller.call(&Find {}).await?;
        let guide = own_pools::guided(&identity, &dir)?;
        if let Some(manager) = &answer.manager {
            guide.learn(manager);
        }
        if let Some(guide) = guide.guide() {
            guide.remember(answer.donors, Env::system().clock.wall());
        }
        let kept = own_pools::load_identity(&dir)?;
        identity.about.manager = caller.manager().and(&kept.about.manager);
        identity.save_about(&dir).map_err(|error| {
            let what = format!("cannot write the identity in {}: {error}", dir.display());
            Failure::new(ErrorKind::Other, code::LOCAL_IO, what).hint("run this as its owner")
        })?;
        found.push((dir, identity.about));
    }
    let donors = found.iter().filter(|(_, about)| about.role == Role::Donor);
    let daemons: BTreeSet<_> =
        donors.map(|(dir, _)| lend::daemon_of(dir).unwrap_or(dir).to_owned()).collect();
    for daemon in daemons {
        if let Told::Refused(why) | Told::Unheard(why) = running::reload(&daemon).await {
            output.note(&format!(
                "warning: the donor that runs on {} could not be told ({why}): start it again",
                daemon.display()
            ));
        }
    }
    let shown = found.iter().map(|(dir, about)| {
        serde_json::json!({ "pool": about.pool, "role": about.role, "identity": dir, "manager": about.manager })
    });
    output.result(&shown.collect::<Vec<_>>(), |_| {
        let line = |(_, about): &(PathBuf, potluck_wire::identity::About)| {
            let at = about.manager.first().map(ToString::to_string).unwrap_or_default();
            format!(
                "the manager of pool {} is at {at} (as {} “{}”)\n",
                about.pool, about.role, about.name
            )
        };
        found.iter().map(line).collect()
    });
    Ok(Ending::Done)
}

/// Returns the directories of the identities that are to find the manager: the named one, or this user's and that of
/// this machine's donor in the same pool, and with a donor those of further directories that its daemon lends.
fn dirs(args: &args::FindManagerArgs, settings: &CommandSettings) -> Result<Vec<PathBuf>, Failure> {
    let mut dirs = own_dirs(args, settings)?;
    for dir in dirs.clone() {
        dirs.extend(lend::states(&dir)?.into_iter().filter(|further| Identity::exists(further)));
    }
    Ok(dirs)
}

fn own_dirs(
    args: &args::FindManagerArgs,
    settings: &CommandSettings,
) -> Result<Vec<PathBuf>, Failure> {
    if let Some(state) = &args.state {
        return Ok(vec![lend::absolute(state)?]);
    }
    let (own, donor) = (settings.identity_dir(), settings.donor_dir());
    if !Identity::exists(&donor) {
        return own.map(|own| vec![own]);
    }
    let Ok(own) = own else { return Ok(vec![donor]) };
    let same = own_pools::load_identity(&own)?.pool() == own_pools::load_identity(&donor)?.pool();
    Ok(if same { vec![own, donor] } else { vec![own] })
}
