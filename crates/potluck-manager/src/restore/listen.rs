//! A manager over an empty catalog that listens to every donor of the pool.

use super::collect::{Collecting, Progress};
use super::journal::clear;
use super::{Restore, Site};
use crate::backup::kit;
use crate::ca::Ca;
use crate::catalog::schema;
use crate::config::ManagerConfig;
use crate::error::ManagerError;
use crate::manager::Manager;
use crate::service::Service;
use crate::state_dir::{CATALOG, StateDir};
use potluck_core::ids::Epoch;
use potluck_wire::env::Env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Between two looks at who has answered.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The listening manager's directory, inside the new state directory.
pub const SCRATCH: &str = "collecting";

/// How long donors are waited for.
#[derive(Debug, Clone)]
pub struct Patience {
    /// Where to listen: the lost manager's address, or what is forwarded to here.
    pub listen: String,
    /// How long nothing new must have been said.
    pub quiet: Duration,
    /// Do not wait for more than so many.
    pub donors: Option<usize>,
}

/// The listening manager.
pub struct Listening {
    /// Its parts.
    pub service: Arc<Service>,
    /// What donors said.
    pub collecting: Arc<Collecting>,
    /// Where it may keep what it is told; gone with it.
    pub scratch: PathBuf,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ManagerError>>,
}

impl Listening {
    /// Begins to listen.
    pub async fn begin(
        site: &Site,
        ask: &Restore,
        patience: &Patience,
        env: Env,
    ) -> Result<Self, ManagerError> {
        let scratch = ask.state.join(SCRATCH);
        clear(&scratch)?;
        let state = StateDir::take(&scratch)?;
        Ca::restore(&state.ca(), &site.kit.ca_certificate, &site.kit.ca_key)?;
        kit::keep_key(&state, &site.kit.recovery_key())?;
        schema::create(&scratch.join(CATALOG), &site.kit.pool)?;
        drop(state);
        let config = ManagerConfig {
            listen: patience.listen.clone(),
            state: scratch.clone(),
            pool_name: site.kit.pool.clone(),
            metadata_copies: 0,
            ..ManagerConfig::default()
        };
        let manager = Manager::start_collecting(config, env).await?;
        let (service, collecting) = manager.parts();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(manager.run(async {
            let _ = stopped.await; // a sender that is gone means stop, too
        }));
        Ok(Self { service, collecting, scratch, stop, serving })
    }

    /// Waits until the donors asked for have said all, or nothing new was said for a while. `tell`
    /// hears of progress.
    pub async fn wait(&self, patience: &Patience, tell: &impl Fn(&str)) {
        let mut known = Progress { answered: 0, listed: 0 };
        let mut since = self.service.time.tick();
        loop {
            let progress = self.collecting.progress();
            let now = self.service.time.tick();
            if progress.answered > known.answered {
                tell(&format!("{} donors have answered", progress.answered));
            }
            if progress != known {
                (known, since) = (progress, now);
            }
            let enough = patience.donors.is_some_and(|wanted| progress.answered >= wanted);
            if enough || now.saturating_sub(since) > patience.quiet {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Stops; gives an epoch that no donor has heard a later one than.
    pub async fn end(self) -> Result<Epoch, ManagerError> {
        let epoch = self.service.epoch();
        drop((self.stop, self.service));
        let ended = self.serving.await;
        clear(&self.scratch)?;
        ended.unwrap_or(Err(ManagerError::Closing))?;
        Ok(epoch)
    }
}
