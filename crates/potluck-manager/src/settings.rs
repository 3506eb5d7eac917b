//! The manager's settings, which its owner may change while it runs.

use crate::config::ManagerConfig;
use crate::pool_time::PoolTime;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::sync::watch;

/// The settings that are in force.
#[derive(Debug)]
pub struct Settings {
    config: RwLock<Arc<ManagerConfig>>,
    fault: Mutex<Option<String>>,
    /// Wakes the tasks that sleep for a time which the settings say.
    changed: watch::Sender<()>,
}

impl Settings {
    /// Makes the settings that a manager starts with.
    pub fn new(config: ManagerConfig) -> Self {
        Self {
            config: RwLock::new(Arc::new(config)),
            fault: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Returns the settings in force.
    pub fn get(&self) -> Arc<ManagerConfig> {
        Arc::clone(&self.config.read().expect("no holder panics"))
    }

    /// Puts `config` into force; what is fixed at the start stays as it is.
    pub fn change(&self, config: ManagerConfig) {
        let now = self.get();
        let config = ManagerConfig {
            listen: now.listen.clone(),
            state: now.state.clone(),
            pool_name: now.pool_name.clone(),
            advertise: now.advertise.clone(),
            ..config
        };
        *self.config.write().expect("no holder panics") = Arc::new(config);
        self.changed.send_replace(());
    }

    /// Returns the reason why new settings cannot be used, so that earlier ones stay in force.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().expect("no holder panics").clone()
    }

    /// Notes why new settings cannot be used; `None` if they can.
    pub fn set_fault(&self, why: Option<String>) {
        *self.fault.lock().expect("no holder panics") = why;
    }

    /// Sleeps for the `length` that the settings give, counted from the call. A change of the settings meanwhile
    /// counts.
    pub async fn pause(&self, time: &PoolTime, length: impl Fn(&ManagerConfig) -> Duration) {
        let (began, mut changed) = (time.tick(), self.changed.subscribe());
        loop {
            let left = length(&self.get()).saturating_sub(time.tick().saturating_sub(began));
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                _ = changed.changed() => {}
            }
        }
    }
}
