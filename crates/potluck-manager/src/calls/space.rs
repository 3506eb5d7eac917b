//! Making, removing and listing spaces.

use super::{Answer, advice};
use crate::callers::Caller;
use crate::failure;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::shared_pool::SharedPool;
use crate::wakeup::Wakeup;
use potluck_catalog::Catalog;
use potluck_core::path::check_space;
use potluck_core::seal::SpaceKey;
use potluck_wire::control::{Done, SpaceCreate, SpaceCreated, SpaceList, SpaceRemove, Spaces};
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use std::sync::Arc;

handles! {
    /// The handles for answering calls about spaces.
    pub struct SpaceCalls {
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        background: Wakeup,
        scan_state: Arc<ScanState>,
    }
}

impl Answer<SpaceCreate> for SpaceCalls {
    async fn answer(self, call: SpaceCreate, _: Caller) -> Result<SpaceCreated, Failure> {
        check_space(&call.name).map_err(|why| failure::of_path(&why))?;
        call.policy.check().map_err(|why| failure::of_policy(&why))?;
        let key = call.policy.sealed.then(|| SpaceKey::generate(&*self.env.entropy));
        let wall_ms = self.time.wall_ms();
        let takers = self.pool.lock().takers(self.time.tick()).len() as u32;
        let advice = advice::of_space(&call.name, &call.policy, takers);
        self.catalog.create_space(call.name, call.policy, key, wall_ms).await?;
        // So that it is known before the first file is asked about.
        self.scan_state.look_again(self.time.tick());
        Ok(SpaceCreated { advice })
    }
}

impl Answer<SpaceRemove> for SpaceCalls {
    async fn answer(self, call: SpaceRemove, _: Caller) -> Result<Done, Failure> {
        self.catalog.remove_space(call.name, call.recursive).await?;
        self.background.wake();
        Ok(Done {})
    }
}

impl Answer<SpaceList> for SpaceCalls {
    async fn answer(self, _call: SpaceList, _: Caller) -> Result<Spaces, Failure> {
        Ok(Spaces { spaces: self.catalog.spaces().await? })
    }
}
