//! Ends write sessions whose lease ran out and reservations that are over, gives interrupted uploads up, and accounts
//! for the chunks that ended sessions stored.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::recurring_notices::Notice;
use crate::sessions::WriteSessions;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error, ToldCopies, Upkeep};
use potluck_core::ids::DonorId;
use potluck_wire::control::Holding;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most steps for one session in a round, so that no session starves the others.
const STEPS: usize = 64;

handles! {
    /// The handles for ending sessions.
    pub struct SessionEnds {
        settings: Arc<Settings>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        sessions: WriteSessions,
    }
}

impl SessionEnds {
    /// Interrupts the sessions whose lease ran out, and ends the reservations that are over.
    pub async fn end_expired(&self) -> Result<(), Error> {
        let expired = self.pool.lock().expired(self.time.tick());
        for session in expired {
            if self.sessions.tells(Notice::LeaseEnded, session) {
                tracing::info!(?session, "the lease of a write session ended");
            }
            self.sessions.interrupt(session).await?;
        }
        let over = self.pool.lock().reservations_over(self.time.without_leaps_ms());
        for reservation in over {
            if self.sessions.tells(Notice::ReservationOver, reservation) {
                tracing::info!(?reservation, "reserved room is free for all again");
            }
            self.sessions.end(reservation).await?;
        }
        Ok(())
    }

    /// Ends the interrupted uploads that were not resumed in time, and those whose room is needed.
    pub async fn end_parked(&self) -> Result<(), Error> {
        let window = self.settings.get().resume_window;
        let parked = self.pool.lock().parked_too_long(window, self.time.tick());
        for session in parked {
            if self.sessions.tells(Notice::UploadGivenUp, session) {
                tracing::info!(?session, "what an interrupted upload stored is given up");
            }
            self.sessions.end(session).await?;
        }
        Ok(())
    }

    /// Accounts for the chunks of sessions that have ended. A chunk that no file has used counts as unused for the
    /// whole GC delay already: the delay protects readers, such a chunk has none, and a writer may be waiting for its
    /// room (promise D2).
    pub async fn account_ended(&self) -> Result<(), Error> {
        let ending = self.pool.lock().ending();
        let gc_delay_ms = self.settings.get().gc_delay.as_millis() as u64;
        for id in ending {
            for _ in 0..STEPS {
                let now_ms = self.time.now_ms();
                let unused_since_ms = now_ms.saturating_sub(gc_delay_ms);
                let ended = Upkeep::EndedSession { id, unused_since_ms };
                if !self.catalog.upkeep(ended, now_ms).await? {
                    let copies = self.pool.lock().forget_session(&id);
                    self.count(copies).await?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Counts copies that donors told of while their chunks belonged to a session. Copies that donors tell of from now
    /// on are counted at once, for the chunks have rows by now.
    async fn count(&self, copies: BTreeMap<DonorId, Vec<Holding>>) -> Result<(), Error> {
        for (donor, holdings) in copies {
            let told = ToldCopies { added: holdings, ..ToldCopies::default() };
            self.catalog.tell(donor, told, self.time.now_ms()).await?;
        }
        Ok(())
    }
}
