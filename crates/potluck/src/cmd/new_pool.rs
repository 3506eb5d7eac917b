//! Asks before a pool is made on a machine that is in one already, or on a network where others are: most who type
//! `potluck up` there want to lend to that one.

use crate::args::ManagerOptions;
use crate::command_settings::CommandSettings;
use crate::confirm::confirm;
use crate::keys::Daemon;
use crate::output::{Output, can_ask};
use crate::settings_file::SettingsFile;
use potluck_config::own_pools::{JoinedPool, joined};
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::About;
use potluck_wire::mdns;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// The files of a manager's directory that tell of no pool: its settings may be written before there is one.
const BEFORE: [&str; 2] = ["settings.toml", "daemon.json"];

/// Succeeds if the manager's directory has a pool, if neither this machine nor its network has another one, or if the
/// user wants a new one all the same.
///
/// Errors: the user does not want one; or nobody can be asked.
pub async fn agree(
    options: &ManagerOptions,
    manager_dir: &Path,
    settings: &CommandSettings,
    output: &Output,
) -> Result<(), Failure> {
    let entries = fs::read_dir(manager_dir).into_iter().flatten().flatten();
    let has_pool = entries.into_iter().any(|it| BEFORE.iter().all(|name| it.file_name() != *name));
    if options.new_pool || has_pool {
        return Ok(());
    }
    let donor = JoinedPool::load(&settings.donor_dir());
    let own: Vec<String> =
        donor.iter().chain(&joined(&settings.pools_dir())).map(membership).collect();
    let found = match own.as_slice() {
        [] => match nearby(options, manager_dir).await? {
            none if none.is_empty() => return Ok(()),
            some => format!("pools answer on this network: {}", some.join("; ")),
        },
        own => format!("this machine is in a pool already: {}", own.join("; ")),
    };
    let advice = "to lend to that pool: `potluck lend DIR`, after `potluck join -` with a token that its admin makes \
                  (`potluck invite --role donor`); for another pool beside it: --new-pool";
    if !can_ask() {
        let what = format!("no new pool is made: {found}");
        return Err(Failure::new(ErrorKind::Conflict, code::ALREADY_JOINED, what).hint(advice));
    }
    output.note(&found);
    confirm("make a new pool on this machine all the same?", advice).await
}

fn membership(own: &JoinedPool) -> String {
    let About { pool, manager, role, name, .. } = &own.about;
    let at = manager.first().map(|at| format!(", manager at {at}")).unwrap_or_default();
    format!("{role} “{name}” of pool {pool}{at}")
}

/// Returns the pools whose managers or donors answer on this machine's networks, unless the manager is to keep to
/// itself.
async fn nearby(options: &ManagerOptions, manager_dir: &Path) -> Result<Vec<String>, Failure> {
    let mut file = SettingsFile::read(Daemon::Manager, manager_dir)?;
    options.given.put_into(&mut file);
    let listen = file.text_of("manager.listen").and_then(|at| at.parse::<SocketAddr>().ok());
    if !file.is_on("manager.mdns") || listen.is_some_and(|at| at.ip().is_loopback()) {
        return Ok(Vec::new());
    }
    let told = |(pool, near): (String, mdns::Nearby)| match near.managers.first() {
        Some(at) => format!("manager at {at} ({pool})"),
        None => format!("a donor at {} ({pool})", near.donors),
    };
    Ok(mdns::pools_around().await.into_iter().map(told).collect())
}
