//! `potluck up`: runs a pool on this machine, with manager and donor in one process.

use super::lend::{LendAsked, LendPlace};
use super::manager::ManagerStarted;
use super::{Ending, join, lend, manager, new_pool};
use crate::args::{Given, ManagerOptions, UpArgs};
use crate::command_settings::CommandSettings;
use crate::keys::{self, Daemon};
use crate::output::Output;
use crate::settings_file::SettingsFile;
use crate::{ready, signals};
use potluck_config::own_pools;
use potluck_donor::{Claiming, STATE_FILES};
use potluck_wire::addresses::{Address, Addresses, DONOR_PORT};
use potluck_wire::control::Invite;
use potluck_wire::env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::Identity;
use potluck_wire::own_addresses::from_this_machine;
use potluck_wire::token::Role;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The validity in seconds of the token that this process makes for its own donor.
const OWN_TOKEN_SECONDS: u64 = 60;

pub async fn run(
    args: UpArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let (stopped, hangups) = signals::daemon_signals();
    let (manager_dir, donor_dir) = match &args.state {
        Some(state) => (state.join("manager"), state.join("donor")),
        None => (settings.manager_dir(), settings.donor_dir()),
    };
    // Whoever names a place for the pool knows of the others.
    if args.state.is_none() {
        new_pool::agree(&args.manager, &manager_dir, settings, output).await?;
    }
    let admin_dir = manager_dir.join("admin");
    let donor_dir = lend::absolute(&donor_dir)?;
    let lent_before = SettingsFile::read(Daemon::Donor, &donor_dir)?.lent();
    let dirs = match args.dirs.is_empty() && lent_before.is_empty() {
        true => vec![settings.data_dir.join("lent")],
        false => args.dirs,
    };

    let mut terms = args.terms;
    terms.settings.extend(args.lend_listen.map(|listen| (keys::key("lend.listen"), listen)));
    if args.manager.adopt_newer {
        let own = (&*donor_dir, &*dirs, &terms);
        adopt_newer(&args.manager, &manager_dir, own, output).await?;
    }
    let ManagerStarted { mut made, manager, tuning: mut of_manager } =
        manager::start(&args.manager, manager_dir.clone(), output).await?;
    // If a new pool is removed again, so is its donor. Other state that was in the donor's directory before stays,
    // such as that of donors of another pool.
    let had_state = donor_dir.join(lend::STATES).exists()
        || STATE_FILES.iter().any(|file| donor_dir.join(file).exists());
    let is_new = made.is_new() && !Identity::exists(&donor_dir);
    let new_donor = is_new.then(|| donor_dir.clone());
    let address = manager.address();
    let place = beside(address, &SettingsFile::read(Daemon::Manager, &manager_dir)?);
    let (stop_manager, manager_stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = env::spawn(manager.run(async {
        let _ = manager_stopped.await; // a dropped sender means stop as well
    }));

    let donor = async {
        let identity = donor_identity(&admin_dir, &donor_dir, address).await?;
        let asked = LendAsked { given: &terms, dirs: &dirs, claiming: Claiming::Own, place };
        let mut lent = lend::start(asked, donor_dir, identity, output).await?;
        ready::announce(args.manager.ready_file.as_deref(), address)?;
        made.keep();
        if of_manager.pool_is_new {
            lent.say_next("next: `potluck invite --role donor` for a second machine; then `potluck space create lab` and \
                 `potluck cp FILE pot://lab/`: until two machines lend, files die with the one that holds them");
        }
        lent.run(output, stopped, hangups, || Some(of_manager.reload())).await
    };
    let ended = donor.await;
    drop(stop_manager);
    let served = serving.await.map_err(|why| {
        Failure::new(ErrorKind::Other, code::CATALOG, format!("the manager failed: {why}"))
    })?;
    if let Some(donor_dir) = new_donor.filter(|_| made.is_new()) {
        forget_donor(&donor_dir, had_state);
    }
    drop(of_manager);
    drop(made);
    ended.and(served.map_err(manager::failed))?;
    Ok(Ending::Done)
}

/// Takes the newest catalog that donors keep, one of which may be this process's own: it serves meanwhile as one that
/// runs alone.
async fn adopt_newer<O>(
    options: &ManagerOptions,
    manager_dir: &Path,
    (donor_dir, dirs, given): (&Path, &[PathBuf], &Given<O>),
    output: &Output,
) -> Result<(), Failure> {
    let adopting = manager::adopt_newer(options, manager_dir, output);
    if !Identity::exists(donor_dir) {
        return adopting.await;
    }
    let mut identity = own_pools::load_identity(donor_dir)?;
    let mut place = LendPlace::default();
    if let Ok(address) = manager::listen(options, manager_dir)?.parse() {
        let here = Addresses::from(from_this_machine(address));
        identity.about.manager = here.and(&identity.about.manager);
        place = beside(address, &SettingsFile::read(Daemon::Manager, manager_dir)?);
    }
    let asked = LendAsked { given, dirs, claiming: Claiming::Own, place };
    let silent = Output::silent();
    let lent = lend::start(asked, donor_dir.to_owned(), identity, &silent).await?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async {
        let _ = stopped.await; // a dropped sender means stop as well
    };
    let (_, hangups) = signals::daemon_signals();
    let adopting = async {
        let adopted = adopting.await;
        drop(stop);
        adopted
    };
    let (adopted, lent) = tokio::join!(adopting, lent.run(&silent, stopped, hangups, || None));
    adopted.and(lent)
}

/// Returns where the donor listens if the manager listens at `manager`: at the port of donors, or at any port if the
/// manager was given port 0. Others reach it by the hosts by which they reach the manager.
fn beside(manager: SocketAddr, settings: &SettingsFile) -> LendPlace {
    let any = settings.text_of("manager.listen").is_some_and(|listen| listen.ends_with(":0"));
    let said = settings.text_of("manager.advertise").unwrap_or_default();
    let hosts = said.split(',').filter_map(|one| Address::parse(one, DONOR_PORT).ok());
    LendPlace {
        listen: Some(SocketAddr::new(manager.ip(), if any { 0 } else { DONOR_PORT }).to_string()),
        advertise: hosts.map(|address| address.host().to_owned()).collect(),
    }
}

/// Removes the state of a donor whose new pool is removed again. If there was state before, removes only the identity.
fn forget_donor(dir: &Path, had_state: bool) {
    if let Err(why) = Identity::remove(dir) {
        tracing::warn!("what was begun in {} stays: {why}", dir.display());
    }
    if had_state {
        return;
    }
    for file in STATE_FILES.iter().chain(&["joining.json", "daemon.json", lend::TRAFFIC]) {
        let _ = std::fs::remove_file(dir.join(file)); // most do not exist yet
    }
    // The donors of further directories had joined the same pool.
    let _ = std::fs::remove_dir_all(dir.join(lend::STATES));
    let _ = std::fs::remove_dir(dir); // fails if other files are there
}

/// Loads the identity of this machine's donor. If there is none, the donor joins like any other, with a token that this
/// process makes for it.
async fn donor_identity(
    admin_dir: &Path,
    donor_dir: &Path,
    manager: SocketAddr,
) -> Result<Identity, Failure> {
    let here = Addresses::from(from_this_machine(manager));
    if Identity::exists(donor_dir) {
        let mut identity = own_pools::load_identity(donor_dir)?;
        // The admin's identity may have been moved elsewhere.
        if Identity::exists(admin_dir)
            && own_pools::load_identity(admin_dir)?.pool() != identity.pool()
        {
            return Err(another_pools(donor_dir, &identity));
        }
        identity.about.manager = here.and(&identity.about.manager);
        return Ok(identity);
    }
    let mut admin = own_pools::load_identity(admin_dir)?;
    admin.about.manager = here.and(&admin.about.manager);
    let invite = Invite { role: Role::Donor, ttl_seconds: OWN_TOKEN_SECONDS, name: None };
    let invited = own_pools::caller(&admin)?.call(&invite).await?;
    let token = admin.token(admin.about.manager.clone(), Role::Donor, invited.secret);
    join::donor(&token, None, donor_dir).await
}

/// Makes the failure that this machine is a donor of another pool already.
fn another_pools(donor_dir: &Path, identity: &Identity) -> Failure {
    let place = donor_dir.display();
    let what =
        format!("this machine is a donor of another pool, {} ({place})", identity.about.pool);
    Failure::new(ErrorKind::Conflict, code::ALREADY_JOINED, what).hint(format!(
        "to have both, start this pool with --state DIR; to end that membership first: \
         `potluck leave --state {place}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undoing_up_keeps_preexisting_files() {
        let dir = tempfile::tempdir().unwrap();
        let further = dir.path().join(lend::STATES).join("2");
        std::fs::create_dir_all(&further).unwrap();
        forget_donor(dir.path(), true);
        assert!(further.exists());
        forget_donor(dir.path(), false);
        assert!(!further.exists());
    }
}
