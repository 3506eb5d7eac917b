//! The turns of those for whom the catalog is read.
//!
//! Each read holds a thread and a connection, with a cache of its own, and a member may have a thousand calls under way.
//! So a [`Catalog`](crate::Catalog) is always read on somebody's behalf, and each read waits for a turn of that one:
//! nobody can forget to take one, and none is held while something else is waited for.

use crate::error::Error;
use potluck_core::ids::MemberId;
use potluck_wire::turns::{ServingTurn, Turns};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The number of reads of [`ReadFor::Member`] at once. More of them than there are processors make none of them faster.
const ALL: usize = 32;
/// The number of reads of one member at once, of each kind.
const EACH: usize = 8;
/// The number of queries at once that take long: heartbeats and commits read between them.
const LONG: usize = 2;
/// The longest time for which a read waits for its turn: its caller waits little longer.
const WAIT: Duration = Duration::from_secs(10);

/// Whoever the catalog is read for, whose turns its reads take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadFor {
    /// The manager, for its own work and for what it works out once for all callers. It waits for nobody's turn.
    Manager,
    /// A member who may read much, and waits behind the reads of all such members.
    Member(MemberId),
    /// A member who waits behind reads of the same member only: before a change is made, and for reports of donors.
    MemberApart(MemberId),
}

/// The turns of all readers.
pub struct ReadTurns {
    members: Turns<MemberId>,
    apart: Turns<MemberId>,
    long: Turns<ReadFor>,
}

impl Default for ReadTurns {
    fn default() -> Self {
        let apart = Turns::new(Semaphore::MAX_PERMITS, EACH);
        Self { members: Turns::new(ALL, EACH), apart, long: Turns::new(LONG, LONG) }
    }
}

impl ReadTurns {
    /// Waits until the reader may read; `None` where it needs no turn.
    ///
    /// Errors: [`Error::Busy`] if no turn comes in time.
    pub async fn turn(&self, reader: ReadFor) -> Result<Option<ServingTurn>, Error> {
        let turn = match reader {
            ReadFor::Manager => return Ok(None),
            ReadFor::Member(member) => self.members.turn(member),
            ReadFor::MemberApart(member) => self.apart.turn(member),
        };
        in_time(turn).await.map(Some)
    }

    /// Waits until the reader may run a query that takes long. This turn is taken before that for the read, so that
    /// nobody who waits for it keeps a thread from others.
    ///
    /// Errors: as [`Self::turn`].
    pub async fn long_turn(&self, reader: ReadFor) -> Result<ServingTurn, Error> {
        in_time(self.long.turn(reader)).await
    }
}

async fn in_time(turn: impl Future<Output = ServingTurn>) -> Result<ServingTurn, Error> {
    tokio::time::timeout(WAIT, turn).await.map_err(|_| Error::Busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the turns that `readers` have at once, where each asks a hundred times.
    async fn held(turns: &ReadTurns, readers: &[ReadFor]) -> Vec<ServingTurn> {
        let mut held = Vec::new();
        for reader in readers.iter().flat_map(|reader| [*reader; 100]) {
            let turn = tokio::time::timeout(Duration::ZERO, turns.turn(reader)).await;
            held.extend(turn.ok().and_then(Result::ok).flatten());
        }
        held
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_with_very_many_reads_leaves_turns_to_others() {
        let turns = ReadTurns::default();
        let [greedy, other] = [1, 2].map(|member| ReadFor::Member(MemberId(member)));
        let greedy_has = held(&turns, &[greedy]).await;
        assert_eq!(greedy_has.len(), EACH);
        assert_eq!(held(&turns, &[other]).await.len(), EACH);
        assert_eq!(turns.turn(greedy).await.err(), Some(Error::Busy), "nobody ends");
        drop(greedy_has);
        assert!(turns.turn(greedy).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn members_who_read_much_delay_no_report_and_no_commit() {
        let turns = ReadTurns::default();
        let much: Vec<ReadFor> = (1..20).map(|member| ReadFor::Member(MemberId(member))).collect();
        let _read = held(&turns, &much).await;
        assert_eq!(_read.len(), ALL);
        let apart = [1, 2, 3].map(|member| ReadFor::MemberApart(MemberId(member)));
        assert_eq!(held(&turns, &apart).await.len(), 3 * EACH);
        assert!(matches!(turns.turn(ReadFor::Manager).await, Ok(None)));
    }
}
