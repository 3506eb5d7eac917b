//! Inquiries: other donors fetch a copy of which a member got wrong bytes or none, if its donor calls it sound or does
//! not verify it in time. The pool decides who fetches and what follows (`pool/trust.rs` of `potluck-pool`); this file
//! asks the donors, and fetches a copy by itself if too few of them can.

use crate::handles::handles;
use crate::outcomes::Outcomes;
use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use crate::tasks::audit::Audit;
use crate::ticket_issuer::TicketIssuer;
use potluck_core::ids::DonorId;
use potluck_pool::Inquiring;
use potluck_wire::bulk::BulkStatus;
use potluck_wire::control::{Holding, Source};
use potluck_wire::env::Env;
use potluck_wire::peer_connection::{PeerConnection, PeerError};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

handles! {
    /// The handles for finding out whether a donor sends the copies that it claims to have.
    pub struct Inquiries {
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        tickets: TicketIssuer,
        audit: Audit,
    }
}

/// The time between two rounds of inquiries.
const EVERY: Duration = Duration::from_millis(500);

impl Inquiries {
    /// Has donors fetch the copies that are in doubt, or fetches them itself, one at a time, until it is dropped.
    /// A donor that was caught in a lie is quarantined.
    pub async fn run(&self) {
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut outcomes = Outcomes::default();
        loop {
            interval.tick().await;
            self.go_on(&mut outcomes).await;
        }
    }

    async fn go_on(&self, outcomes: &mut Outcomes) {
        let draw = || self.env.entropy.u64();
        let Inquiring { by_donors, by_manager, lies } =
            self.pool.lock().inquire(self.time.tick(), draw);
        for (tester, suspect, copy) in by_donors {
            self.audit.probe(copy.name, copy.len, suspect, &[tester]);
        }
        for (suspect, why) in lies {
            outcomes.note("quarantining a donor", self.audit.quarantine(suspect, why).await);
        }
        for (suspect, copy) in by_manager {
            self.look(suspect, copy).await;
        }
    }

    /// Has the manager fetch a copy.
    async fn look(&self, suspect: DonorId, copy: Holding) {
        let contact = self.pool.lock().contact(suspect, self.time.tick());
        let source = contact.and_then(|contact| self.tickets.source(contact));
        let right = match source {
            Some(source) => self.is_right(&source, copy).await,
            None => None,
        };
        tracing::debug!(%suspect, chunk = %copy.name, ?right, "the manager looked at a copy itself");
        self.pool.lock().looked(suspect, &copy.name, right);
    }

    /// Returns true if the donor sends the bytes of this name, and false if it sends others or says that it has none;
    /// `None` if the copy cannot be fetched for another reason.
    async fn is_right(&self, source: &Source, copy: Holding) -> Option<bool> {
        let (net, entropy) = (&*self.env.net, &*self.env.entropy);
        let (at, ticket) = (&source.addresses, &source.ticket);
        let mut connection = PeerConnection::open(net, entropy, at, ticket).await.ok()?;
        match connection.get(copy.name, copy.len).await {
            Ok(_) => Some(true),
            Err(PeerError::WrongBytes | PeerError::Refused(BulkStatus::NotFound)) => Some(false),
            Err(_) => None,
        }
    }
}
