//! The turns of members who read the catalog.
//!
//! Each read holds a thread and a connection to the catalog, with a cache of its own, and a member may have a thousand
//! calls under way. Commits and the manager's own work need no turn. Heartbeats, calls about the whole pool, and calls
//! that read before they change something, wait only for calls of the same owner. The catalog itself bounds the number
//! of all reads.

use crate::callers::CallingMember;
use potluck_core::ids::MemberId;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::turns::{ServingTurn, Turns};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The number of reads at once. More of them than there are processors make none of them faster.
const ALL: usize = 32;
/// The number of reads of one member at once.
const EACH: usize = 8;
/// The number of calls of one owner at once that wait only for each other: the heartbeats of its donors, and its
/// questions about the whole pool or about the sums of a tree.
const OWN: usize = 8;
/// The longest time for which a read waits for its turn: its caller waits little longer.
const WAIT: Duration = Duration::from_secs(10);

/// The number that stands for all callers without a certificate: no member has it.
const STRANGERS: MemberId = MemberId(0);

/// The turns of all members.
#[derive(Debug)]
pub struct ReadTurns {
    reads: Turns<MemberId>,
    own: Turns<MemberId>,
    /// The turns of calls that have one until they are answered.
    calls: Turns<MemberId>,
}

impl Default for ReadTurns {
    fn default() -> Self {
        let own = Turns::new(Semaphore::MAX_PERMITS, OWN);
        let calls = Turns::new(Semaphore::MAX_PERMITS, EACH);
        Self { reads: Turns::new(ALL, EACH), own, calls }
    }
}

impl ReadTurns {
    /// Waits until a member may read, behind those who asked before; all callers without a certificate count as one
    /// member. The turn is to be held while the catalog is read, and while nothing else is waited for.
    pub async fn take(&self, caller: &CallingMember) -> Result<ServingTurn, Failure> {
        let member = caller.who.as_ref().map_or(STRANGERS, |who| who.member);
        in_time(self.reads.turn(member)).await
    }

    /// Waits for a turn that a call has until it is answered, behind such calls of the same member only: it may wait for
    /// other things meanwhile.
    pub async fn take_for_call(&self, caller: &CallingMember) -> Result<ServingTurn, Failure> {
        let member = caller.who.as_ref().map_or(STRANGERS, |who| who.member);
        in_time(self.calls.turn(member)).await
    }

    /// Waits for a turn behind calls of the same owner only: for calls whose answer is made once for all callers, or
    /// that are not to wait for other owners.
    pub async fn take_among_own(&self, owner: MemberId) -> Result<ServingTurn, Failure> {
        in_time(self.own.turn(owner)).await
    }
}

async fn in_time(turn: impl Future<Output = ServingTurn>) -> Result<ServingTurn, Failure> {
    tokio::time::timeout(WAIT, turn).await.map_err(|_| {
        let what = "the manager reads its catalog for others, or for other calls of this member";
        Failure::new(ErrorKind::Retry, code::CATALOG, what)
            .hint("try again in a moment, with fewer calls at once")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::callers::KnownMember;
    use futures_util::FutureExt;
    use potluck_wire::token::Role;

    fn calling(member: u32) -> CallingMember {
        let name = "m".to_owned();
        let who = Some(KnownMember { member: MemberId(member), role: Role::User, name });
        CallingMember { who, peer: [127, 0, 0, 1].into(), connection: 1 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_with_very_many_reads_leaves_turns_to_others() {
        let turns = ReadTurns::default();
        let (greedy, other) = (calling(1), calling(2));
        let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(turns.take(&greedy))).collect();
        let mut held = Vec::new();
        for take in &mut waiting {
            held.extend(take.now_or_never());
        }
        assert_eq!(held.len(), EACH);
        assert!(turns.take(&other).now_or_never().is_some());
        let refused = turns.take(&greedy).await.expect_err("nobody ends");
        assert_eq!((refused.kind, refused.code.as_str()), (ErrorKind::Retry, code::CATALOG));
        drop((held, waiting));
        assert!(turns.take(&greedy).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_whose_donors_report_without_end_delays_no_other() {
        let turns = ReadTurns::default();
        let mut held = Vec::new();
        for owner in [1, 2, 3] {
            let take = || turns.take_among_own(MemberId(owner)).now_or_never();
            held.extend((0..100).filter_map(|_| take()));
        }
        assert_eq!(held.len(), 3 * OWN);
        assert!(turns.take_among_own(MemberId(1)).await.is_err(), "it is told to try again");
    }
}
