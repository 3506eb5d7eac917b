//! Inquiries: the manager fetches copies of a donor that somebody complained about, and a sample of the copies of one that
//! is to be trusted again. The pool decides which, and what follows (`pool/trust.rs` and `pool/probation.rs` of
//! `potluck-pool`); this file fetches them.

use crate::handles::handles;
use crate::outcomes::Outcomes;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::shared_pool::SharedPool;
use crate::ticket_issuer::TicketIssuer;
use futures_util::{StreamExt, stream};
use potluck_catalog::{Catalog, DonorNote, Error};
use potluck_core::ids::DonorId;
use potluck_core::merkle::segment_count;
use potluck_pool::Inquiring;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::control::Holding;
use potluck_wire::env::Env;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

handles! {
    /// The handles for finding out whether a donor sends the copies that it claims to have.
    pub struct Inquiries {
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        scan_state: Arc<ScanState>,
        tickets: TicketIssuer,
    }
}

/// The time between two rounds of inquiries.
const EVERY: Duration = Duration::from_millis(500);

/// The most copies that are fetched at once, so that a donor which sends slowly does not hold up all others.
const AT_ONCE: usize = 8;

/// The number of chunks that are fetched from a donor on probation, spread over all it holds. A donor that lost or
/// changed a quarter of its chunks passes once in a hundred probations.
const SAMPLE: usize = 16;

impl Inquiries {
    /// Fetches the copies that are in doubt until it is dropped. A donor that was caught in a lie is quarantined, and one
    /// whose sample proved right is trusted again.
    pub async fn run(&self) {
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut outcomes = Outcomes::default();
        loop {
            interval.tick().await;
            let Inquiring { looks, lies, right } = self.pool.lock().inquire(self.time.tick());
            for (suspect, why) in lies {
                outcomes.note("quarantining a donor", self.quarantine(suspect, why).await);
            }
            for donor in right {
                outcomes.note("trusting a donor again", self.release(donor).await);
            }
            let look = async |(suspect, copy): (DonorId, Holding)| {
                let right = self.is_right(suspect, copy, false).await;
                tracing::debug!(%suspect, chunk = %copy.name, ?right, "looked at a copy in doubt");
                self.pool.lock().looked(suspect, &copy.name, right, self.time.tick());
            };
            stream::iter(looks).for_each_concurrent(AT_ONCE, look).await;
        }
    }

    /// Fetches a donor's copy, or only one segment of it that is drawn at random. Returns true if the donor sends the
    /// bytes of this name, and false if it sends others or says that it has none; `None` if they cannot be fetched for
    /// another reason.
    pub async fn is_right(&self, donor: DonorId, copy: Holding, one_segment: bool) -> Option<bool> {
        let contact = self.pool.lock().contact(donor, self.time.tick())?;
        let source = self.tickets.source(contact)?;
        let (net, entropy) = (&*self.env.net, &*self.env.entropy);
        let (at, ticket) = (&source.addresses, &source.ticket);
        let mut connection = PeerConnection::open(net, entropy, at, ticket).await.ok()?;
        let Holding { name, len } = copy;
        let checked = if one_segment {
            let segment = entropy.u64() % segment_count(len.into());
            connection.check_segment(name, len, segment as usize).await
        } else {
            connection.check(name, len, |_| ()).await
        };
        match checked {
            Ok(()) => Some(true),
            Err(PeerError::WrongBytes | PeerError::Refused(BulkStatus::NotFound)) => Some(false),
            Err(PeerError::Refused(BulkStatus::DiskFailed)) => {
                self.pool.lock().order_verify(donor, name, self.time.tick());
                None
            }
            Err(_) => None,
        }
    }

    /// Begins to test a donor that an admin trusts again; it stays in quarantine until all of the sample proved right. A
    /// donor that holds nothing is trusted on the admin's word.
    pub async fn begin_probation(&self, donor: DonorId) -> Result<(), Error> {
        let Some(why) = self.pool.lock().why_quarantined(donor) else { return Ok(()) };
        let sample = self.catalog.sample(donor, SAMPLE, self.env.entropy.u64()).await?;
        if sample.is_empty() {
            return self.release(donor).await;
        }
        self.pool.lock().try_again(donor, why, sample);
        Ok(())
    }

    /// Quarantines a donor: it is not trusted any more. The catalog keeps the reason.
    pub async fn quarantine(&self, donor: DonorId, why: String) -> Result<(), Error> {
        self.pool.lock().quarantine(donor, Some(why.clone()));
        self.scan_state.hurry(self.time.tick());
        self.catalog.note_donor(donor, DonorNote::Quarantined(Some(why))).await
    }

    async fn release(&self, donor: DonorId) -> Result<(), Error> {
        self.catalog.note_donor(donor, DonorNote::Quarantined(None)).await?;
        self.pool.lock().quarantine(donor, None);
        self.scan_state.hurry(self.time.tick());
        Ok(())
    }
}
