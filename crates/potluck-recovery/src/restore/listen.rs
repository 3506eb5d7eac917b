//! Listens in the place of the lost manager, and waits until the donors have told what they have.

use super::collect::RestoreProgress;
use super::server::RestoreServer;
use super::staging::Staging;
use crate::ca::{self, Ca};
use crate::error::StateError;
use crate::log::chain::ChainId;
use futures_util::future::join_all;
use potluck_core::clock::Tick;
use potluck_core::ids::Epoch;
use potluck_core::size::count;
use potluck_wire::addresses::{Address, Addresses};
use potluck_wire::env;
use potluck_wire::env::Env;
use potluck_wire::own_addresses::{ToldAddresses, from_this_machine};
use potluck_wire::serve;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// The number of quiet periods in which a further donor must complete its answer; after them the wait ends, whatever
/// else is heard. That is long enough for a slow donor to read all its trailers, and bounds the wait for a donor that
/// lists without an end.
const LONGEST: u32 = 20;
/// The time between two looks at the number of donors that have answered.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The time between two visits to the donors that were named.
const VISIT_EVERY: Duration = Duration::from_secs(2);

/// The options that say where to listen for donors and how long to wait for them.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// The address to listen on: the lost manager's, or one to which that is forwarded. By default it has the port at
    /// which donors knew the manager.
    pub listen: Option<String>,
    /// The time without anything new from any donor after which the wait ends, unless a live donor has yet to answer.
    pub quiet: Duration,
    /// The number of donors that suffice: no more are waited for.
    pub donors: Option<usize>,
    /// The addresses of donors to visit, because these look for the manager at its old address.
    pub visit: BTreeSet<Address>,
    /// The chain to take where donors have several; by default the best.
    pub chain: Option<ChainId>,
}

/// A restore server that listens for donors.
pub struct RestoreListener {
    /// The server, with all that donors told it.
    pub server: Arc<RestoreServer>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    visiting: JoinHandle<()>,
    visits: mpsc::UnboundedReceiver<Visit>,
    /// The named donors that were not reached at the last visit, with the reasons.
    unreached: BTreeMap<Address, io::Error>,
}

/// The outcome of a visit to a donor, where it differs from that of the visit before.
struct Visit {
    at: Address,
    came: io::Result<()>,
}

impl RestoreListener {
    /// Begins to listen for donors that look for their manager.
    pub async fn begin(
        staging: &Staging,
        advertise: &Addresses,
        options: &ListenOptions,
        env: Env,
    ) -> Result<Self, StateError> {
        let listen =
            options.listen.clone().unwrap_or_else(|| staging.kit.addresses.manager_listen());
        let unreachable = |source| StateError::Listen { address: listen.clone(), source };
        let dir = staging.ca();
        let ca = Ca::load(&dir)?;
        let admit = ca::tls(&ca, &dir, [])?;
        let listener = env.net.listen(&listen).await.map_err(unreachable)?;
        let address = listener.local_addr().map_err(unreachable)?;
        let advertise: Vec<String> = advertise.iter().map(ToString::to_string).collect();
        let mut addresses = ToldAddresses::of(&*env.net, address, &advertise).await?.addresses;
        if addresses.is_empty() {
            addresses = from_this_machine(address).into();
        }
        let server = Arc::new(RestoreServer::new(env, ca, addresses));
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await; // a sender that is gone means stop, too
        };
        let serving = env::spawn(serve::serve(Arc::clone(&server), listener, admit, stopped));
        let (tell, visits) = mpsc::unbounded_channel();
        let named = options.visit.clone();
        let visiting = env::spawn(visit_for_ever(Arc::clone(&server), named, tell));
        let unreached = BTreeMap::new();
        Ok(Self { server, stop, serving, visiting, visits, unreached })
    }

    /// Waits until as many donors have answered as were asked for, or nothing new was heard for the quiet time and
    /// every live donor has answered, or no further donor has answered for [`LONGEST`] quiet times. `tell` is given
    /// messages about progress.
    ///
    /// Errors: donors were named, none of them was reached, and no donor answered. This error comes without the wait
    /// when no name of theirs has an address.
    pub async fn wait(
        &mut self,
        options: &ListenOptions,
        tell: &impl Fn(&str),
    ) -> Result<(), StateError> {
        let mut waiting = Waiting::since(self.server.tick());
        loop {
            let (progress, now) = (self.server.collecting.progress(), self.server.tick());
            if progress.answered > waiting.known.answered {
                tell(&format!("answered so far: {}", count(progress.answered as u64, "donor")));
            }
            self.tell_visits(tell);
            let reached = self.unreached.len() < options.visit.len();
            let nobody = !reached && !options.visit.is_empty() && progress.answered == 0;
            let unknown = |why: &io::Error| why.kind() == io::ErrorKind::NotFound;
            let hopeless = nobody && self.unreached.values().all(unknown);
            if hopeless || waiting.is_over(progress, self.is_owed(), options, now) {
                return if nobody { Err(self.nobody_reached()) } else { Ok(()) };
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn tell_visits(&mut self, tell: &impl Fn(&str)) {
        while let Ok(Visit { at, came }) = self.visits.try_recv() {
            match came {
                Ok(()) => {
                    tell(&format!("donor {at} is reached"));
                    self.unreached.remove(&at);
                }
                Err(why) => {
                    tell(&format!("donor {at} is not reached: {why}"));
                    self.unreached.insert(at, why);
                }
            }
        }
    }

    fn nobody_reached(&self) -> StateError {
        let tried = self.unreached.iter().map(|(at, why)| format!("{at}: {why}"));
        StateError::NobodyReached(tried.collect::<Vec<_>>().join("; "))
    }

    /// Returns whether a live donor has not told all it has.
    fn is_owed(&self) -> bool {
        self.server.live().iter().any(|donor| !self.server.collecting.has_answered(*donor))
    }

    /// Stops listening, and returns an epoch at least as late as any that a donor proved to have heard of.
    pub async fn end(self) -> Epoch {
        self.visiting.abort();
        let _ = self.visiting.await; // it ends by being stopped
        drop(self.stop);
        let _ = self.serving.await; // what it heard is here, however it ended
        self.server.epoch()
    }
}

/// Visits all of these donors again and again, and shows them where to find this server, until the task is stopped.
/// Sends the outcome of a visit to `tell` where it differs from that of the visit before.
async fn visit_for_ever(
    server: Arc<RestoreServer>,
    donors: BTreeSet<Address>,
    tell: mpsc::UnboundedSender<Visit>,
) {
    let visit_one = async |at: &Address| {
        let mut before = None;
        loop {
            let came = server.call_in(at).await;
            let said = came.as_ref().err().map(ToString::to_string);
            if before.as_ref() != Some(&said) {
                let _ = tell.send(Visit { at: at.clone(), came }); // nobody listens at the end
                before = Some(said);
            }
            tokio::time::sleep(VISIT_EVERY).await;
        }
    };
    join_all(donors.iter().map(visit_one)).await;
}

/// The progress that is known, and the times since which there was none.
struct Waiting {
    known: RestoreProgress,
    /// The time at which something new was last heard; the start of the wait before that.
    quiet: Tick,
    /// The time at which a donor last completed its answer; the start of the wait before that.
    unanswered: Tick,
}

impl Waiting {
    fn since(now: Tick) -> Self {
        Self { known: RestoreProgress { answered: 0, listed: 0 }, quiet: now, unanswered: now }
    }

    /// Takes note of the progress, and returns whether the wait is over; `owed` says that a live donor has not told
    /// all it has.
    fn is_over(
        &mut self,
        progress: RestoreProgress,
        owed: bool,
        options: &ListenOptions,
        now: Tick,
    ) -> bool {
        if progress.answered > self.known.answered {
            self.unanswered = now;
        }
        if progress != self.known {
            (self.known, self.quiet) = (progress, now);
        }
        let enough = options.donors.is_some_and(|wanted| progress.answered >= wanted);
        let quiet = now.saturating_sub(self.quiet) > options.quiet && !owed;
        let tired = now.saturating_sub(self.unanswered) > options.quiet * LONGEST;
        enough || quiet || tired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_donors_are_waited_for_and_endless_ones_are_not() {
        let quiet = Duration::from_secs(30);
        let mut options = ListenOptions {
            listen: None,
            quiet,
            donors: None,
            visit: BTreeSet::new(),
            chain: None,
        };
        let at = Duration::from_secs;
        let mut waiting = Waiting::since(at(0));
        let mut over = |answered, listed, owed, now| {
            waiting.is_over(RestoreProgress { answered, listed }, owed, &options, at(now))
        };
        assert!(!over(0, 0, false, 30));
        assert!(!over(1, 10, true, 31));
        assert!(!over(1, 10, true, 400), "one reads its trailers still");
        assert!(!over(2, 20, false, 401));
        assert!(over(2, 20, false, 432));
        // A donor that lists without an end keeps it going only so long.
        assert!((433..1001).all(|now| !over(2, now as usize, true, now)));
        assert!(over(2, 5000, true, 1002));
        options.donors = Some(2);
        let mut waiting = Waiting::since(at(0));
        assert!(waiting.is_over(RestoreProgress { answered: 2, listed: 9 }, true, &options, at(1)));
    }
}
