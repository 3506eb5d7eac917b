//! Making, removing and listing spaces.

use super::Answer;
use crate::callers::Caller;
use crate::failure;
use crate::service::Service;
use potluck_core::path::check_space;
use potluck_core::seal::SpaceKey;
use potluck_wire::control::{Done, SpaceCreate, SpaceList, SpaceRemove, Spaces};
use potluck_wire::error::Failure;
use std::sync::Arc;

impl Answer for SpaceCreate {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Done, Failure> {
        check_space(&self.name).map_err(|why| failure::of_path(&why))?;
        self.policy.check().map_err(|why| failure::of_policy(&why))?;
        let key = self.policy.sealed.then(|| SpaceKey::generate(&*service.env.entropy));
        let wall_ms = service.time.wall_ms();
        service.catalog.create_space(self.name, self.policy, key, wall_ms).await?;
        // So that it is known before the first file is asked about.
        service.scan_state.look_again(service.time.tick());
        Ok(Done {})
    }
}

impl Answer for SpaceRemove {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Done, Failure> {
        service.catalog.remove_space(self.name, self.recursive).await?;
        service.chores.notify_one();
        Ok(Done {})
    }
}

impl Answer for SpaceList {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Spaces, Failure> {
        Ok(Spaces { spaces: service.catalog.spaces().await? })
    }
}
