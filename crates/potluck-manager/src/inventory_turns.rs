//! Turns of donors that list what they hold: after a start of the manager all of them do at once, and heartbeats,
//! commits and readers go on meanwhile.

use potluck_wire::error::{ErrorKind, Failure, code};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Pages that are compared with the catalog at once.
const AT_ONCE: usize = 4;
/// How long a page waits for its turn. Then its donor sends it again, and none of those before.
const TURN_DEADLINE: Duration = Duration::from_secs(10);

/// The turns in which donors' lists are compared with the catalog.
#[derive(Debug)]
pub struct InventoryTurns(Semaphore);

impl Default for InventoryTurns {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

impl InventoryTurns {
    /// Waits for a turn, which lasts as long as what this returns.
    pub async fn next(&self) -> Result<SemaphorePermit<'_>, Failure> {
        let turn = tokio::time::timeout(TURN_DEADLINE, self.0.acquire()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            let what = "the manager compares the inventories of other donors";
            Failure::new(ErrorKind::Retry, code::NO_MANAGER, what).hint("send this page again")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_few_inventories_are_compared_at_once_and_the_others_wait() {
        let turns = InventoryTurns::default();
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE {
            taken.push(turns.next().await.expect("a turn"));
        }
        let moment = Duration::from_millis(20);
        assert!(tokio::time::timeout(moment, turns.next()).await.is_err(), "no turn");
        taken.pop();
        assert!(turns.next().await.is_ok());
    }
}
