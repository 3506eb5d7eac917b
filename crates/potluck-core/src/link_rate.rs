//! The rate of a client's own link, as far as it was seen: the most that it moved in some seconds in which the donors
//! at work could have moved more. What a driver says of a link is not asked, for many say the same of every link.

use crate::clock::Tick;
use std::time::Duration;

/// The time over which a rate is taken.
pub const WINDOW: Duration = Duration::from_secs(2);
/// The part of a window for which requests must have been under way, or the client itself was what limited it.
const BUSY: f64 = 0.9;
/// How much more than was moved the donors at work could have moved, at least, where the link was full.
const FULL: f64 = 1.25;
/// The part of the most that was moved from which a window says as much of the link as that one.
const NEARLY: f64 = 0.9;
/// The time after which the most that was moved says nothing any more: a laptop is elsewhere then.
const LASTS: Duration = Duration::from_hours(1);

/// What was seen in one window.
#[derive(Debug, Clone, Copy)]
pub struct SeenWindow {
    /// The bytes a second that were moved.
    pub moved: f64,
    /// The bytes a second that the donors which were at work would move alone, each for the time for which it was;
    /// `None` where that is not known of all of them.
    pub capable: Option<f64>,
    /// The part of the window for which requests were under way, from 0 to 1.
    pub busy: f64,
}

/// The rate of a link in one direction.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkRate {
    most: f64,
    /// True if the link was what limited it.
    is_full: bool,
    seen: Tick,
}

impl LinkRate {
    /// Notes a window that ends now.
    pub fn note(&mut self, window: SeenWindow, now: Tick) {
        if window.busy < BUSY || window.moved <= 0.0 {
            return;
        }
        let is_full = window.capable.is_some_and(|capable| capable >= FULL * window.moved);
        let is_stale = now.saturating_sub(self.seen) >= LASTS;
        if window.moved > self.most || is_stale {
            *self = Self { most: window.moved, is_full, seen: now };
        } else if window.moved >= NEARLY * self.most {
            (self.is_full, self.seen) = (is_full, now);
        }
    }

    /// Returns the bytes a second that the link carries; `None` where it was not seen to be full lately.
    pub fn rate(&self, now: Tick) -> Option<f64> {
        (self.is_full && now.saturating_sub(self.seen) < LASTS).then_some(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(moved: f64, capable: f64) -> SeenWindow {
        SeenWindow { moved, capable: Some(capable), busy: 1.0 }
    }

    #[test]
    fn link_is_known_once_donors_could_do_more() {
        let (mut link, now) = (LinkRate::default(), Tick::from_secs(1));
        link.note(window(40e6, 40e6), now);
        assert_eq!(link.rate(now), None, "the donors were the limit");
        link.note(window(110e6, 400e6), now);
        assert_eq!(link.rate(now), Some(110e6));
        link.note(window(50e6, 400e6), now);
        assert_eq!(link.rate(now), Some(110e6), "others used the link, or the file came slowly");
        link.note(SeenWindow { busy: 0.5, ..window(200e6, 900e6) }, now);
        assert_eq!(link.rate(now), Some(110e6), "the client was idle in between");
        link.note(window(150e6, 160e6), now);
        assert_eq!(link.rate(now), None, "it carries more than was known");
    }

    #[test]
    fn link_rate_that_was_not_seen_for_long_counts_no_more() {
        let (mut link, now) = (LinkRate::default(), Tick::from_secs(1));
        link.note(window(110e6, 400e6), now);
        assert_eq!(link.rate(now + LASTS), None);
        link.note(window(10e6, 400e6), now + LASTS);
        assert_eq!(link.rate(now + LASTS), Some(10e6), "it is another link");
        let unknown = SeenWindow { capable: None, ..window(10e6, 0.0) };
        link.note(unknown, now + LASTS);
        assert_eq!(link.rate(now + LASTS), None);
    }
}
