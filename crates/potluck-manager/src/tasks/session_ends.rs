//! Ends write sessions whose lease ran out, gives interrupted uploads up, and accounts for what ended sessions
//! stored.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error};
use potluck_pool::Ending;
use std::sync::Arc;

/// Steps for one session in a round, so that none starves the others.
const STEPS: usize = 64;

handles! {
    /// The handles for ending sessions.
    pub struct SessionEnds {
        settings: Arc<Settings>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        sessions: Sessions,
    }
}

impl SessionEnds {
    /// Ends sessions whose lease ran out.
    pub async fn end_expired(&self) -> Result<(), Error> {
        let expired = self.pool.lock().expired(self.time.tick());
        for session in expired {
            tracing::info!(?session, "the lease of a write session ended");
            self.sessions.interrupt(session).await?;
        }
        Ok(())
    }

    /// Ends interrupted uploads that nobody has taken up again, and those that are in the way.
    pub async fn end_parked(&self) -> Result<(), Error> {
        let window = self.settings.get().resume_window;
        let parked = self.pool.lock().parked_too_long(window, self.time.tick());
        for session in parked {
            tracing::info!(?session, "what an interrupted upload stored is given up");
            self.sessions.end(session).await?;
        }
        Ok(())
    }

    /// Accounts for the chunks of sessions that have ended.
    pub async fn account_ended(&self) -> Result<(), Error> {
        let ending = self.pool.lock().ending();
        let gc_delay_ms = self.settings.get().gc_delay.as_millis() as u64;
        for Ending { id, donors, parked } in ending {
            let donors: Arc<[_]> = donors.into_iter().collect();
            for _ in 0..STEPS {
                let now_ms = self.time.now_ms();
                // Whoever needs the room is waiting for it.
                let unused_since = if parked { now_ms.saturating_sub(gc_delay_ms) } else { now_ms };
                if self.catalog.account_session(id, Arc::clone(&donors), unused_since).await? {
                    self.pool.lock().forget_session(&id);
                    break;
                }
            }
        }
        Ok(())
    }
}
