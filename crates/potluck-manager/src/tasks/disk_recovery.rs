//! Finds out whether the catalog's disk takes writes again after it failed to take one.

use super::saved_time::SavedTime;
use crate::handles::handles;
use potluck_catalog::{Catalog, Error};
use potluck_recovery::state_dir::StateDir;
use potluck_wire::env::Env;
use std::sync::Arc;

/// The number of bytes that the disk must take to count as well again: enough for some hundred commits.
const PROBE_BYTES: usize = 1 << 20;

handles! {
    /// The handles for trying the catalog's disk.
    pub struct DiskRecovery {
        env: Env,
        catalog: Catalog,
        state: Arc<StateDir>,
        time: SavedTime,
    }
}

impl DiskRecovery {
    /// Returns whether the disk failed to take a write since it was last well.
    pub fn is_faulty(&self) -> bool {
        self.catalog.disk_fault().is_some()
    }

    /// Tries whether the disk that holds the catalog takes writes again.
    pub async fn probe(&self) -> Result<(), Error> {
        let state = Arc::clone(&self.state);
        let taken = self.env.offload.run(move || state.probe(PROBE_BYTES)).await;
        if let Err(why) = taken {
            tracing::debug!(%why, "the disk that holds the catalog takes no writes yet");
            return Ok(());
        }
        self.time.save().await?;
        self.catalog.disk_recovered();
        Ok(())
    }
}
