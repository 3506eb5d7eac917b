//! The time that a peer may keep a connection waiting, by what is expected of it.

use potluck_core::clock::{SharedClock, Tick};
use std::io;
use std::time::Duration;

/// The time between two looks at the clock of a runtime stream that waits to receive.
pub(crate) const TICK: Duration = Duration::from_secs(5);
/// The time between two looks at the clock of a socket that waits to send. One `sendfile` may wait this long three
/// times (Linux 6.18), and the bytes that it moved first count as moved at its end.
pub(crate) const SEND_TICK: Duration = Duration::from_secs(2);

/// The time after which an idle connection is closed; clients open another when they need one.
pub(crate) const IDLE: Duration = Duration::from_secs(120);
/// The time from its first byte in which a frame's head must be complete.
const HEAD: Duration = Duration::from_secs(5);
/// The time that a peer has for each [`WINDOW_BYTES`] of a body, in either direction. With the ticks, a peer
/// that moves one byte a second, or stops after a good start, is dropped within 30 s (promise X3).
const WINDOW: Duration = Duration::from_secs(15);
/// The number of bytes for which a peer has [`WINDOW`]: what one of sixteen donors gets of a line of 100 kb/s.
const WINDOW_BYTES: u64 = 8 << 10;

/// The part of a request that is expected of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is expected, though another request may come.
    Idle,
    /// The rest of a request's head is expected.
    Head,
    /// A body is expected to move, from the peer to this donor or the other way.
    Body,
}

/// The time that was spent waiting for a peer. The time that the donor's own disk takes does not count.
pub(crate) struct StallTimeout {
    clock: SharedClock,
    phase: Phase,
    waited: Duration,
    moved: u64,
    /// The time up to which the wait under way is counted.
    since: Tick,
}

impl StallTimeout {
    /// Makes the timeout of a connection without a request.
    pub fn new(clock: SharedClock) -> Self {
        let since = clock.now();
        Self { clock, phase: Phase::Idle, waited: Duration::ZERO, moved: 0, since }
    }

    /// Sets what is expected of the peer from now on, and counts anew.
    pub fn expect(&mut self, phase: Phase) {
        (self.phase, self.waited, self.moved) = (phase, Duration::ZERO, 0);
    }

    /// Returns the phase, which says what is expected of the peer now.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Begins to count a wait for the peer.
    pub fn start(&mut self) {
        self.since = self.clock.now();
    }

    /// Notes that `bytes` moved since the wait began. The first bytes in [`Phase::Idle`] begin a head.
    ///
    /// Errors: [`io::ErrorKind::TimedOut`] if the peer took too long.
    pub fn moved(&mut self, bytes: usize) -> io::Result<()> {
        if self.phase == Phase::Idle {
            self.expect(Phase::Head);
            return Ok(());
        }
        self.moved += bytes as u64;
        self.check()
    }

    /// Notes that the wait goes on.
    ///
    /// Errors: [`io::ErrorKind::TimedOut`] if the peer takes too long.
    pub fn check(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        self.waited += now.saturating_sub(self.since);
        self.since = now;
        if self.phase == Phase::Body && self.moved >= WINDOW_BYTES {
            self.expect(Phase::Body);
        }
        let limit = match self.phase {
            Phase::Idle => IDLE,
            Phase::Head => HEAD,
            Phase::Body => WINDOW,
        };
        let late = self.waited >= limit;
        if late {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the peer is too slow"))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::clock::{Clock, UnixMillis};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Tick {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }
        fn wall(&self) -> UnixMillis {
            0
        }
    }

    /// Returns the second in which a peer that moves `bytes` every second is dropped, if that is within an hour.
    fn dropped(phase: Phase, bytes: usize) -> Option<u64> {
        let clock = Arc::new(Hand::default());
        let mut timeout = StallTimeout::new(clock.clone());
        timeout.expect(phase);
        (1..3600).find(|second| {
            clock.0.store(*second, Ordering::Relaxed);
            let judged = if bytes > 0 { timeout.moved(bytes) } else { timeout.check() };
            judged.is_err()
        })
    }

    #[test]
    fn own_disk_time_does_not_count_as_peer_stall() {
        let clock = Arc::new(Hand::default());
        let mut timeout = StallTimeout::new(clock.clone());
        timeout.expect(Phase::Body);
        for second in [100, 200, 300] {
            clock.0.store(second, Ordering::Relaxed);
            timeout.start();
            timeout.moved(1).expect("came at once");
        }
    }

    #[test]
    fn a_peer_of_one_byte_a_second_is_dropped_within_30_s() {
        assert!(dropped(Phase::Body, 1).expect("dropped") < 30);
        assert!(dropped(Phase::Head, 1).expect("dropped") < 30);
        assert!(dropped(Phase::Idle, 1).expect("dropped") < 30, "its first byte begins a head");
        assert_eq!(dropped(Phase::Idle, 0), Some(120));
        assert!(dropped(Phase::Body, 0).expect("dropped") < 30);
        assert_eq!(dropped(Phase::Body, 800), None, "a slow but honest peer stays");
    }
}
