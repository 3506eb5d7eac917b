//! The run of a donor: all that it does by itself until it is told to stop, and how it stops.

use crate::disk::Disk;
use crate::mirror::Deferred;
use crate::quarantine_timer::look_again_for_ever;
use crate::service::Service;
use crate::{Donor, DonorError};
use std::sync::Arc;
use std::time::Duration;

/// The time that requests in progress may take to finish when the donor shuts down.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);

impl Donor {
    /// Serves until `shutdown` completes, then lets requests in progress finish, and saves the state of the scrub and
    /// the heartbeats.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), DonorError> {
        tokio::select! {
            () = self.controls.follow_addresses(self.address) => {}
            () = Arc::clone(&self.server).accept(self.listener) => {}
            () = self.server.cut_while_off() => {}
            () = self.heartbeats.run_for_ever() => {}
            () = self.service.chunk_orders.carry_out_for_ever(&self.service) => {}
            () = self.service.scrub.scrub_for_ever(Arc::clone(&self.service), Arc::clone(&self.disk)) => {}
            () = Deferred::copy_for_ever(Arc::clone(&self.service)) => {}
            () = self.service.throttle.hand_out_for_ever() => {}
            () = govern(&self.service, &*self.disk) => {}
            () = look_again_for_ever(Arc::clone(&self.service)) => {}
            () = shutdown => {}
        }
        // The pool hears it first, so that it sends nobody here any more while requests in progress finish.
        self.heartbeats.say_goodbye().await;
        self.server.close(CLOSING_TIMEOUT).await;
        self.service.scrub.save(&self.service.env, &self.disk).await;
        self.heartbeats.note().await;
        tracing::info!("the donor has stopped");
        Ok(())
    }
}

async fn govern(service: &Service, disk: &dyn Disk) {
    let Service { governor, throttle, env, .. } = service;
    governor.govern_for_ever(throttle, &*env.clock, disk).await;
}
