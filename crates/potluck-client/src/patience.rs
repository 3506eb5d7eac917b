//! Patience: how long work waits for a manager or for donors that are away, and who is told.

use crate::pool::Client;
use potluck_core::clock::Tick;
use std::time::Duration;

/// How long work waits for those who do not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Before anything was moved.
    pub at_first: Duration,
    /// Once work has begun: for the manager.
    pub under_way: Duration,
    /// Once something was moved: for donors, counted from the last byte. Before, and where this is
    /// nothing, too few donors are an error as soon as they are known to be (promise A2).
    pub donors: Duration,
}

impl Default for Patience {
    /// For programs that decide themselves what to do about a pool that does not answer.
    fn default() -> Self {
        Self {
            at_first: Duration::ZERO,
            under_way: Duration::from_secs(60),
            donors: Duration::ZERO,
        }
    }
}

/// Somebody is waited for.
#[derive(Debug, Clone)]
pub struct Wait {
    /// Why, such as `the manager at lab-head:7700 does not answer`.
    pub why: String,
    /// For how long.
    pub waited: Duration,
    /// How long it is waited for at most.
    pub limit: Duration,
}

/// Between two words about one wait: what is told counts seconds.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The first pause between two tries; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Whoever comes back is noticed this soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Pauses between the tries of one piece of work, told to the client's
/// [`Progress`](crate::progress::Progress) until it is dropped.
pub struct Pauses {
    client: Client,
    since: Tick,
    next: Duration,
    told: bool,
}

impl Pauses {
    /// Begins: the first try was made at `since`.
    pub fn new(client: &Client, since: Tick) -> Self {
        Self { client: client.clone(), since, next: FIRST_PAUSE, told: false }
    }

    /// Lets some time pass before the next try; `false` at once if `limit` is over.
    pub async fn pause(&mut self, why: &str, limit: Duration) -> bool {
        let mut left = self.next;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        while !left.is_zero() {
            let waited = self.client.env.clock.now().saturating_sub(self.since);
            if waited >= limit {
                return false;
            }
            if waited >= TELL_EVERY {
                self.told = true;
                let wait = Wait { why: why.to_owned(), waited, limit };
                self.client.watcher.waits(Some(&wait));
            }
            let part = left.min(TELL_EVERY).min(limit - waited);
            tokio::time::sleep(part).await;
            left = left.saturating_sub(part);
        }
        true
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        if self.told {
            self.client.watcher.waits(None);
        }
    }
}

/// `donor-3 does not answer`, `donor-1 and 2 others do not answer`.
pub fn do_not_answer(names: &[String]) -> String {
    match names {
        [] => "no donor answers".into(),
        [one] => format!("{one} does not answer"),
        [one, other] => format!("{one} and {other} do not answer"),
        [one, others @ ..] => format!("{one} and {} others do not answer", others.len()),
    }
}
