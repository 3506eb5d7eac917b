//! `potluck up`: a pool on this machine, manager and donor in one process.

use super::{Ending, join, lend, manager};
use crate::args::Up;
use crate::keys::Daemon;
use crate::output::Output;
use crate::ready;
use crate::settings::{self, Settings};
use crate::settings_file::SettingsFile;
use potluck_donor::Claiming;
use potluck_wire::control::Invite;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{Identity, fingerprint};
use potluck_wire::token::{JoinToken, Role};
use std::path::Path;

/// Seconds for which the token is good that this process makes for itself.
const OWN_TOKEN_SECONDS: u64 = 60;

pub async fn run(args: Up, settings: &Settings, output: &Output) -> Result<Ending, Failure> {
    let (stopped, hangups) = ready::daemon_signals();
    let (manager_dir, donor_dir) = match &args.state {
        Some(state) => (state.join("manager"), state.join("donor")),
        None => (settings.manager_dir(), settings.donor_dir()),
    };
    let admin_dir = manager_dir.join("admin");
    let donor_dir = lend::absolute(&donor_dir)?;
    let lent_before = SettingsFile::read(Daemon::Donor, &donor_dir)?.lent();
    let default = || lent_before.is_empty().then(|| settings.data_dir.join("lent"));
    let lent = args.lend.or_else(default);

    let (manager, mut of_manager) = manager::start(&args.manager, manager_dir, output).await?;
    let address = manager.address();
    let (stop_manager, manager_stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(manager.run(async {
        let _ = manager_stopped.await; // a sender that is gone means stop, too
    }));

    let donor = async {
        let identity = donor_identity(&admin_dir, &donor_dir, address.port()).await?;
        let (donor, mut of_donor) =
            lend::start(&args.terms, lent.as_deref(), Claiming::Own, donor_dir, &identity, output)
                .await?;
        ready::announce(args.manager.ready_file.as_deref(), address)?;
        output.note("next: potluck space create lab; potluck cp FILE pot://lab/; potluck invite --role donor");
        let reload = async || {
            of_manager.reload();
            of_donor.reload();
        };
        let ended = tokio::select! {
            ended = donor.run(stopped) => ended,
            ended = hangups.each(reload) => ended,
        };
        ended.map_err(lend::failed)
    };
    let ended = donor.await;
    drop(stop_manager);
    let served = serving.await.map_err(|why| {
        Failure::new(ErrorKind::Other, code::CATALOG, format!("the manager failed: {why}"))
    })?;
    ended.and(served.map_err(manager::failed))?;
    Ok(Ending::Done)
}

/// This machine's donor joins like any other, with a token that this process makes for it.
async fn donor_identity(
    admin_dir: &Path,
    donor_dir: &Path,
    port: u16,
) -> Result<Identity, Failure> {
    let manager = format!("127.0.0.1:{port}");
    if Identity::exists(donor_dir) {
        let mut identity = settings::load_identity(donor_dir)?;
        // The admin's identity may be kept elsewhere.
        if Identity::exists(admin_dir)
            && settings::load_identity(admin_dir)?.pool() != identity.pool()
        {
            return Err(another_pools(donor_dir, &identity));
        }
        identity.about.manager = manager;
        return Ok(identity);
    }
    let mut admin = settings::load_identity(admin_dir)?;
    admin.about.manager = manager.clone();
    let invite = Invite { role: Role::Donor, ttl_seconds: OWN_TOKEN_SECONDS };
    let invited = settings::caller(&admin)?.call(&invite).await?;
    let token = JoinToken {
        manager,
        ca: fingerprint(&admin.ca),
        role: Role::Donor,
        secret: invited.secret,
    };
    join::donor(&token.to_string(), None, donor_dir).await
}

/// This machine lends to another pool already.
fn another_pools(donor_dir: &Path, identity: &Identity) -> Failure {
    let place = donor_dir.display();
    let what =
        format!("this machine is a donor of another pool, {} ({place})", identity.about.pool);
    Failure::new(ErrorKind::Conflict, code::ALREADY_JOINED, what).hint(format!(
        "to have both, start this pool with --state DIR; to end that membership first: \
         `potluck leave --state {place}`"
    ))
}
