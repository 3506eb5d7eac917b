//! `potluck manager`: the manager alone.

mod restore;

use super::Ending;
use crate::args::{self, ManagerAction, ManagerOptions};
use crate::output::Output;
use crate::ready;
use crate::settings::Settings;
use potluck_manager::{Manager, ManagerConfig};
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use std::path::PathBuf;

pub async fn run(
    args: args::Manager,
    settings: &Settings,
    output: &Output,
) -> Result<Ending, Failure> {
    match args.action {
        Some(ManagerAction::Restore(args)) => {
            return restore::restore(args, settings, output).await;
        }
        Some(ManagerAction::Rebuild(args)) => {
            return restore::rebuild(args, settings, output).await;
        }
        Some(ManagerAction::Backup(args)) => return restore::backup(args, settings, output).await,
        None => {}
    }
    let state = args.state.unwrap_or_else(|| settings.manager_dir());
    let manager = start(&args.options, state, output).await?;
    let stopped = ready::asked_to_stop(); // before anybody takes it for ready
    ready::announce(args.options.ready_file.as_deref(), manager.address())?;
    manager.run(stopped).await.map_err(failed)?;
    Ok(Ending::Done)
}

/// Starts a manager and says where it is.
pub async fn start(
    options: &ManagerOptions,
    state: PathBuf,
    output: &Output,
) -> Result<Manager, Failure> {
    let config = ManagerConfig {
        listen: options.listen.clone(),
        pool_name: options.name.clone(),
        advertise: options.advertise.clone(),
        lease: options.lease,
        gc_grace: options.gc_grace,
        backup_every: options.backup_every,
        metadata_copies: options.metadata_copies,
        backup_dir: options.backup_dir.clone(),
        repair_grace: options.repair_grace,
        repair_rate: options.repair_rate,
        repair_donor_rate: options.repair_donor_rate,
        state: state.clone(),
        ..ManagerConfig::default()
    };
    let env = Env::system();
    let kit = state.join(potluck_manager::KIT);
    let kit_is_new = !kit.exists();
    potluck_manager::init(&config, &env).map_err(failed)?;
    let manager = Manager::start(config, env, None).await.map_err(failed)?;
    output.note(&format!(
        "manager at {}; its state and the first admin's identity are in {}",
        manager.address(),
        state.display()
    ));
    if kit_is_new {
        output.note(&format!(
            "keep a copy of {} somewhere else, as secret as a key: with it the pool survives the loss of this machine",
            kit.display()
        ));
    }
    Ok(manager)
}

/// A manager that cannot go on.
pub fn failed(error: potluck_manager::ManagerError) -> Failure {
    error.failure()
}
