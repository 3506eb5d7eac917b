//! The diagnostic transfers of donors whose rates nobody knows yet: the manager sends a few bytes and has a few sent, once,
//! when a donor has joined or is on another line. At most one is under way in the pool, so that a thousand donors that
//! come at once cost as much in any second as one; members measure meanwhile by what they do.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_core::diagnostic_transfer::{FIRST, next_step, rate};
use potluck_core::traffic::{BothWays, Direction};
use potluck_pool::DonorContact;
use potluck_wire::env::Env;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use potluck_wire::ticket::{Caveat, Ops, Ticket};
use std::sync::Arc;
use std::time::Duration;

handles! {
    /// The handles for diagnostic transfers.
    pub struct Diagnosis {
        settings: Arc<Settings>,
        env: Env,
        time: PoolTime,
        pool: SharedPool,
    }
}

/// The pause before the next look for a donor whose rates are unknown.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest time of a whole diagnostic transfer, after which nothing is learned of a line.
const LONGEST: Duration = Duration::from_secs(10);

impl Diagnosis {
    /// Measures donors, one after the other, until dropped.
    pub async fn run(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !self.settings.get().diagnose_donors {
                continue;
            }
            let Some(donor) = self.pool.lock().choose_for_diagnosis(self.time.tick()) else {
                continue;
            };
            let measured = tokio::time::timeout(LONGEST, self.measure(&donor)).await;
            match measured.unwrap_or(Err(PeerError::Silent)) {
                Ok(rates) => self.pool.lock().diagnosed(donor.donor, &donor.addresses, rates),
                Err(PeerError::Refused(_)) => {
                    self.pool.lock().refused_diagnosis(donor.donor, self.time.tick());
                }
                Err(why) => tracing::debug!("cannot measure the line of {}: {why}", donor.name),
            }
        }
    }

    async fn measure(&self, donor: &DonorContact) -> Result<BothWays<u64>, PeerError> {
        let key = &donor.signer.as_ref().ok_or(PeerError::Silent)?.key;
        let now = self.time.now_ms();
        let caveats = [
            Caveat::Donor(donor.donor),
            Caveat::Ops(Ops::GET),
            Caveat::Issued(now),
            Caveat::Expires(now + 2 * LONGEST.as_millis() as u64),
        ];
        let (net, entropy) = (&*self.env.net, &*self.env.entropy);
        let ticket = Ticket::issue(key, entropy, &caveats);
        let mut connection = PeerConnection::open(net, entropy, &donor.addresses, &ticket).await?;
        let round_trip = self.timed(&mut connection, 0, 0).await?;
        let mut rates = BothWays::default();
        for direction in [Direction::Read, Direction::Write] {
            let mut step = FIRST;
            *rates.of_mut(direction) = loop {
                let (len, wanted) = match direction {
                    Direction::Read => (0, step),
                    Direction::Write => (step, 0),
                };
                let took = self.timed(&mut connection, len, wanted).await?;
                match next_step(step, took) {
                    Some(next) => step = next,
                    None => break rate(step, took, round_trip),
                }
            };
        }
        Ok(rates)
    }

    async fn timed(
        &self,
        connection: &mut PeerConnection,
        len: u32,
        wanted: u32,
    ) -> Result<Duration, PeerError> {
        let began = self.env.clock.now();
        connection.diagnose(len, wanted).await?;
        Ok(self.env.clock.now().saturating_sub(began))
    }
}
