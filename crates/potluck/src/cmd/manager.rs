//! `potluck manager`: runs a manager alone.

mod restore;
mod rotate_authority;

use super::{Ending, new_pool};
use crate::args::{self, ManagerAction, ManagerOptions};
use crate::command_settings::{self, CommandSettings};
use crate::keys::Daemon;
use crate::output::Output;
use crate::running::{Running, tell_reloaded};
use crate::settings_file::SettingsFile;
use crate::{ready, signals};
use potluck_core::policy::PoolDefaults;
use potluck_manager::{Made, Manager, ManagerConfig, ManagerControls};
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use potluck_wire::mdns::{self, Announced, Announcing};
use std::path::{Path, PathBuf};

pub async fn run(
    args: args::ManagerArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    match args.action {
        Some(ManagerAction::Restore(args)) => {
            return restore::restore(args, settings, output).await;
        }
        Some(ManagerAction::Backup(args)) => return restore::backup(args, settings, output).await,
        Some(ManagerAction::RotateAuthority(args)) => {
            return rotate_authority::run(args, settings, output).await;
        }
        None => {}
    }
    let (stopped, hangups) = signals::daemon_signals();
    if args.state.is_none() {
        new_pool::agree(&args.options, &settings.manager_dir(), settings, output).await?;
    }
    let state = args.state.unwrap_or_else(|| settings.manager_dir());
    if args.options.adopt_newer {
        adopt_newer(&args.options, &state, output).await?;
    }
    let ManagerStarted { mut made, manager, mut tuning } =
        start(&args.options, state, output).await?;
    ready::announce(args.options.ready_file.as_deref(), manager.address())?;
    made.keep();
    let ended = tokio::select! {
        ended = manager.run(stopped) => ended,
        ended = hangups.each(async || tell_reloaded([tuning.reload()])) => ended,
    };
    ended.map_err(failed)?;
    Ok(Ending::Done)
}

/// The means by which a running manager follows its settings file.
pub struct Tuning {
    state: PathBuf,
    controls: ManagerControls,
    running: Running,
    _announcing: Option<Announcing>,
    /// Whether this start made the pool.
    pub pool_is_new: bool,
}

impl Tuning {
    /// Reads the settings again, and has the manager use them.
    pub fn reload(&mut self) -> Result<(), Failure> {
        let read = SettingsFile::read(Daemon::Manager, &self.state);
        let done = read.map(|file| self.controls.retune(config(&file, &self.state)));
        self.controls.settings_fault(done.as_ref().err().map(|why| why.message.clone()));
        self.running.reloaded(done, Vec::new())
    }
}

/// A manager that was started.
pub struct ManagerStarted {
    /// The pool's directory. A new pool is removed again when this is dropped, unless it was kept because everything
    /// that was asked for has started. Drop it last, when nothing uses the directory any more.
    pub made: Made,
    /// The manager that runs.
    pub manager: Manager,
    /// The means by which it follows its settings file.
    pub tuning: Tuning,
}

/// Takes the newest catalog that donors keep in the place of the one in `state`, before a manager is started there.
pub async fn adopt_newer(
    options: &ManagerOptions,
    state: &Path,
    output: &Output,
) -> Result<(), Failure> {
    restore::adopt_newer(state, &listen(options, state)?, Env::system(), output).await
}

/// Returns the address that a manager with these options and settings listens at.
pub fn listen(options: &ManagerOptions, state: &Path) -> Result<String, Failure> {
    let mut file = SettingsFile::read(Daemon::Manager, state)?;
    options.given.put_into(&mut file);
    Ok(config(&file, state).listen)
}

/// Starts a manager, and tells the user its address. Options that were given are kept in its settings file.
pub async fn start(
    options: &ManagerOptions,
    state: PathBuf,
    output: &Output,
) -> Result<ManagerStarted, Failure> {
    let mut file = SettingsFile::read(Daemon::Manager, &state)?;
    options.given.put_into(&mut file);
    if !file.is_on("manager.mdns") {
        mdns::switch_off();
    }
    let config = ManagerConfig { pool_name: options.name.clone(), ..config(&file, &state) };
    let env = Env::system();
    let kit = state.join(potluck_recovery::state_dir::KIT);
    let pool_is_new = !kit.exists();
    let made = potluck_manager::init(&config, &env).map_err(failed)?;
    let manager = Manager::start(config, env, None).await.map_err(failed)?;
    let mut running = Running::take(Daemon::Manager, &state).await?;
    let kept = SettingsFile::edit(Daemon::Manager, &state, |file| {
        options.given.put_into(file);
        Ok(())
    });
    if let Err(why) = kept {
        tracing::warn!("what was given on the command line holds for this start only: {why}");
    }
    running.serves(manager.address());
    output.note(&format!(
        "manager at {}; its state and the first admin's identity are in {}",
        manager.told(),
        state.display()
    ));
    if pool_is_new {
        output.note(&format!(
            "keep a copy of {} somewhere else, as secret as a key: with it the pool survives the loss of this machine",
            kit.display()
        ));
    }
    if let Some(why) = manager.may_lack() {
        output.note(&format!(
            "{why}. Donors keep the newer catalog: to take it, stop this manager and start it once with --adopt-newer; if this \
             one is to count: `potluck gc resume`"
        ));
    }
    let controls = manager.controls();
    let _announcing = mdns::announce(Announced::Manager, manager.pool(), manager.address());
    let tuning = Tuning { state, controls, running, _announcing, pool_is_new };
    Ok(ManagerStarted { made, manager, tuning })
}

/// Returns the configuration of a manager with these settings.
fn config(file: &SettingsFile, state: &Path) -> ManagerConfig {
    let default = ManagerConfig::default();
    ManagerConfig {
        state: state.to_owned(),
        listen: file.text_of("manager.listen").unwrap_or(default.listen),
        advertise: command_settings::list(file.text_of("manager.advertise")),
        metrics_listen: file.text_of("manager.metrics-listen"),
        lease: file.time("manager.lease").unwrap_or(default.lease),
        gc_delay: file.time("manager.gc-delay").unwrap_or(default.gc_delay),
        resume_window: file.time("manager.resume-window").unwrap_or(default.resume_window),
        checkpoint_idle: file.time("manager.checkpoint-idle").unwrap_or(default.checkpoint_idle),
        backup_every: file.time("manager.backup-every").unwrap_or(default.backup_every),
        backup_dir: file.text_of("manager.backup-dir").map(PathBuf::from),
        metadata_copies: file.parsed("manager.metadata-copies").unwrap_or(default.metadata_copies),
        repair_grace: file.time("manager.repair-grace").unwrap_or(default.repair_grace),
        longest_absence: file.time("manager.longest-absence").unwrap_or(default.longest_absence),
        repair_rate: file.size("manager.repair-rate").unwrap_or(default.repair_rate),
        repair_donor_rate: file
            .size("manager.repair-donor-rate")
            .unwrap_or(default.repair_donor_rate),
        defaults: PoolDefaults {
            redundancy: file.parsed("pool.copies").unwrap_or(default.defaults.redundancy),
            trash: file.parsed("pool.trash").unwrap_or(default.defaults.trash),
        },
        diagnose_donors: file.is_on("manager.diagnose-donors"),
        ..ManagerConfig::default()
    }
}

/// Makes the failure of a manager that cannot start or go on.
pub fn failed(error: potluck_recovery::StateError) -> Failure {
    error.failure()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_table_are_those_of_the_manager() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = SettingsFile::read(Daemon::Manager, dir.path()).expect("none");
        let plain = ManagerConfig { state: dir.path().to_owned(), ..ManagerConfig::default() };
        assert_eq!(format!("{:?}", config(&file, dir.path())), format!("{plain:?}"));
    }
}
