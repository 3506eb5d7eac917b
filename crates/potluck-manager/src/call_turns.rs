//! The turns of calls of which a member has only a few at once, however many it makes: others wait for nothing that they
//! hold meanwhile. Each read of the catalog waits for a turn of its own besides ([`potluck_catalog::ReadFor`]).

use crate::callers::CallingMember;
use potluck_core::ids::MemberId;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::turns::{ServingTurn, Turns};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The number of such calls of one member at once, of each kind.
const EACH: usize = 8;
/// The longest time for which a call waits for its turn: its caller waits little longer.
const WAIT: Duration = Duration::from_secs(10);

/// The turns of all members.
#[derive(Debug)]
pub struct CallTurns {
    /// The turns of donors' reports, and of questions about the whole pool.
    own: Turns<MemberId>,
    /// The turns of calls that have one until they are answered.
    calls: Turns<MemberId>,
}

impl Default for CallTurns {
    fn default() -> Self {
        let [own, calls] = [(); 2].map(|()| Turns::new(Semaphore::MAX_PERMITS, EACH));
        Self { own, calls }
    }
}

impl CallTurns {
    /// Waits for a turn that a call has until it is answered, behind such calls of the same member: it may wait for
    /// other things meanwhile.
    pub async fn take_for_call(&self, caller: &CallingMember) -> Result<ServingTurn, Failure> {
        in_time(self.calls.turn(caller.number())).await
    }

    /// Waits for a turn behind reports and questions of the same owner.
    pub async fn take_among_own(&self, owner: MemberId) -> Result<ServingTurn, Failure> {
        in_time(self.own.turn(owner)).await
    }
}

async fn in_time(turn: impl Future<Output = ServingTurn>) -> Result<ServingTurn, Failure> {
    tokio::time::timeout(WAIT, turn).await.map_err(|_| {
        let what = "the manager answers other calls of this member";
        Failure::new(ErrorKind::Retry, code::CATALOG, what)
            .hint("try again in a moment, with fewer calls at once")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test(start_paused = true)]
    async fn an_owner_whose_donors_report_without_end_delays_no_other() {
        let turns = CallTurns::default();
        let mut held = Vec::new();
        for owner in [1, 2, 3] {
            let take = || turns.take_among_own(MemberId(owner)).now_or_never();
            held.extend((0..100).filter_map(|_| take()));
        }
        assert_eq!(held.len(), 3 * EACH);
        assert!(turns.take_among_own(MemberId(1)).await.is_err(), "it is told to try again");
    }
}
