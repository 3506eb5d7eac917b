//! Limits of how long work waits for a manager or for donors that are away, and the pauses between its tries.

use crate::pool::Pool;
use potluck_core::clock::Tick;
use std::time::Duration;

/// Limits of how long work waits for a manager or donors that do not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryLimits {
    /// The time that a command waits for the manager before its work has begun.
    pub at_first: Duration,
    /// The time that a command waits for the manager once its work has begun.
    pub under_way: Duration,
    /// The time that a transfer waits for donors that are away now and that this client reached before, in any
    /// transfer; other donors are waited for no longer than [`STRANGERS`]. With zero, a lack of donors is an error as
    /// soon as it is known (promise A2).
    pub donors: Duration,
}

impl RetryLimits {
    /// Returns the limits for what a person waits for. A time that they `asked` for holds in all cases. By default work
    /// that cannot begin is given up much sooner than work that is under way (promise A2).
    pub fn asked(asked: Option<Duration>) -> Self {
        Self {
            at_first: asked.unwrap_or(Duration::from_secs(30)),
            under_way: asked.unwrap_or(Duration::from_secs(600)),
            donors: asked.unwrap_or(Duration::from_secs(600)),
        }
    }
}

/// The longest time that a transfer waits for donors that this client has not reached yet: those that have still to
/// report to a manager that has just started, and those that the manager hears and this machine perhaps never reaches.
pub const STRANGERS: Duration = Duration::from_secs(10);

impl Default for RetryLimits {
    /// Returns the limits for programs that decide themselves what to do about a pool that does not answer.
    fn default() -> Self {
        Self {
            at_first: Duration::ZERO,
            under_way: Duration::from_secs(60),
            donors: Duration::ZERO,
        }
    }
}

/// A wait for a manager or for donors.
#[derive(Debug, Clone)]
pub struct Wait {
    /// The reason for the wait, such as `the manager at lab-head:7700 does not answer`.
    pub why: String,
    /// The time that the wait has lasted so far.
    pub waited: Duration,
    /// The longest time that the wait may last.
    pub limit: Duration,
}

/// The moments from which the wait for a good answer of the manager counts.
pub(crate) struct Asked {
    /// The moment at which the manager was first asked.
    pub began: Tick,
    /// The beginning of the first try since which the manager has answered every time; `None` while it does not answer.
    pub answers_since: Option<Tick>,
}

impl Asked {
    /// Notes that the try that began at `tried` brought no good answer, or with `is_away` no answer at all. Returns the
    /// moment from which the wait counts: the first try for a manager that is away, otherwise the try since which the
    /// manager has answered.
    pub fn waits_since(&mut self, tried: Tick, is_away: bool) -> Tick {
        if is_away {
            self.answers_since = None;
            return self.began;
        }
        *self.answers_since.get_or_insert(tried)
    }
}

/// The time between two reports of the same wait; reports count seconds.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The first pause between two tries; each later pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two tries, after which a manager or donor that came back is noticed.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The pauses between the tries of one piece of work. The client's [`Progress`](crate::progress::Progress) is told of
/// the wait, and of its end when this is dropped.
pub struct Pauses {
    client: Pool,
    since: Tick,
    next: Duration,
    told: bool,
}

impl Pauses {
    /// Begins the pauses of a wait that counts from `since`.
    pub fn new(client: &Pool, since: Tick) -> Self {
        Self { client: client.clone(), since, next: FIRST_PAUSE, told: false }
    }

    /// Sets the moment from which the wait counts to `since`.
    pub fn count_from(&mut self, since: Tick) {
        self.since = since;
    }

    /// Leaves `time` out of the wait, such as time spent waiting for the manager in a wait for donors.
    pub fn leave_out(&mut self, time: Duration) {
        self.since += time;
    }

    /// Pauses before the next try; returns `false` as soon as the wait has lasted for `limit`.
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

/// Returns the text that says which donors do not answer, such as `donor-3 does not answer` or `donor-1 and 2 others do
/// not answer`.
pub fn do_not_answer(names: &[String]) -> String {
    match names {
        [] => "no donor answers".into(),
        [one] => format!("{one} does not answer"),
        [one, other] => format!("{one} and {other} do not answer"),
        [one, others @ ..] => format!("{one} and {} others do not answer", others.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_absence_does_not_use_up_the_donor_wait() {
        let at = Tick::from_secs;
        let mut asked = Asked { began: at(1), answers_since: None };
        assert_eq!(asked.waits_since(at(1), true), at(1));
        assert_eq!(asked.waits_since(at(40), true), at(1));
        assert_eq!(asked.waits_since(at(60), false), at(60), "now it could say whom it misses");
        assert_eq!(asked.waits_since(at(63), false), at(60));
        assert_eq!(asked.waits_since(at(65), true), at(1), "the waits for it add up, and end");
        assert_eq!(asked.waits_since(at(70), false), at(70));
    }
}
