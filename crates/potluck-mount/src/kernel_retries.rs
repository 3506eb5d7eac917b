//! The calls that the kernel is going to make once more.
//!
//! A program opens a file by its path: the kernel looks the names up, and then asks by the number that it got. By then
//! the number may stand for a version that was replaced. On `ESTALE` the kernel looks all names up once more and asks
//! again, but no third time: the program would get an error that it does not expect of a file that is always there.
//! So a call that comes back has to be known, and to be answered in another way.

use crate::inodes::NamePlace;
use potluck_core::clock::Tick;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The time within which the kernel makes a call once more, also where each look-up takes its time.
const WITHIN: Duration = Duration::from_secs(10);

/// The calls that the kernel is going to make once more, by the threads that made them. A thread makes one call at a
/// time, and before that comes back the name is looked up: by the thread itself, or by another that looks for it at the
/// same time, whose answer the kernel gives both.
#[derive(Default)]
pub struct KernelRetries {
    awaited: HashMap<u32, AwaitedCall>,
}

/// A call that was answered by `ESTALE`.
struct AwaitedCall {
    /// The name by which the program made the call.
    place: NamePlace,
    /// The time of that answer.
    since: Tick,
    /// The numbers that were found at the name since. A call by a descriptor looks nothing up, and is not made once more.
    found: BTreeSet<u64>,
}

impl KernelRetries {
    /// Notes that a thread was told to look a name up again.
    pub fn answered_stale(&mut self, thread: u32, place: NamePlace, now: Tick) {
        self.awaited.retain(|_, call| now.saturating_sub(call.since) < WITHIN);
        self.awaited.insert(thread, AwaitedCall { place, since: now, found: BTreeSet::new() });
    }

    /// Notes the number that a thread found at a name, or that it found nothing. The kernel may look twice for one call:
    /// whether what it knew is still there, and if not, what is there instead.
    pub fn looked_up(&mut self, thread: u32, (parent, name): (u64, &str), found: Option<u64>) {
        for (by, call) in &mut self.awaited {
            match found {
                _ if (call.place.0, call.place.1.as_str()) != (parent, name) => {}
                Some(found) => drop(call.found.insert(found)),
                None if *by == thread => call.found.clear(),
                None => {}
            }
        }
    }

    /// Returns whether a call of a thread by a number is one that the kernel makes once more. It is awaited no longer.
    pub fn take(&mut self, thread: u32, number: u64, now: Tick) -> bool {
        let awaited = self.awaited.remove(&thread);
        awaited.is_some_and(|call| {
            call.found.contains(&number) && now.saturating_sub(call.since) < WITHIN
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_retried_once_with_a_fresh_inode() {
        const NAME: (u64, &str) = (1, "f");
        let place = || (1, "f".to_owned());
        let at = Tick::from_secs;
        let mut retries = KernelRetries::default();
        retries.looked_up(7, NAME, Some(3));
        assert!(!retries.take(7, 3, at(1)), "nobody was told to look again");

        retries.answered_stale(7, place(), at(1));
        assert!(!retries.take(7, 2, at(1)), "by a descriptor, for nothing was looked up");

        retries.answered_stale(7, place(), at(1));
        retries.answered_stale(8, place(), at(1));
        retries.looked_up(7, (1, "d"), Some(2));
        retries.looked_up(7, NAME, Some(3));
        retries.looked_up(9, NAME, Some(4));
        retries.looked_up(9, NAME, None);
        assert!(retries.take(8, 3, at(2)), "what another thread found, which looked for both");
        assert!(retries.take(7, 3, at(2)) && !retries.take(7, 3, at(2)), "once");
        retries.answered_stale(7, place(), at(1));
        retries.looked_up(7, NAME, Some(3));
        assert!(!retries.take(7, 2, at(2)), "the number that another name has");

        retries.answered_stale(7, place(), at(1));
        retries.looked_up(7, NAME, Some(3));
        retries.looked_up(7, NAME, None);
        assert!(!retries.take(7, 3, at(2)), "nothing was there");
        retries.answered_stale(7, place(), at(1));
        retries.looked_up(7, NAME, None);
        retries.looked_up(7, NAME, Some(4));
        assert!(retries.take(7, 4, at(2)), "something was there again");

        retries.answered_stale(7, place(), at(1));
        retries.looked_up(7, NAME, Some(3));
        assert!(!retries.take(7, 3, at(1) + WITHIN), "another call");
        retries.answered_stale(7, place(), at(1));
        retries.answered_stale(8, place(), at(1) + WITHIN);
        assert_eq!(retries.awaited.len(), 1, "what does not come back is forgotten");
    }
}
