//! Decides when a frame comes out of a line, or that it is lost.

use std::time::Duration;

use super::{FRAME, SlowLine};

/// The frames that may wait for a line, however slow it is.
const FRAMES: u64 = 32;
/// The time that a frame may wait for a line which is fast enough to carry many meanwhile.
const WAIT: Duration = Duration::from_millis(100);

/// One direction of a line. Times are since the line began.
pub struct FrameQueue {
    line: SlowLine,
    /// The time at which the last frame that was taken has gone in.
    busy_until: Duration,
    /// The longest time that a frame waits before it goes in: with more before it, it is lost.
    longest: Duration,
    chance: fastrand::Rng,
}

impl FrameQueue {
    /// Makes a direction whose losses follow from `seed`.
    pub fn new(line: SlowLine, seed: u64) -> Self {
        let longest = time_of(FRAMES * FRAME as u64, line.rate).max(WAIT);
        Self { line, busy_until: Duration::ZERO, longest, chance: fastrand::Rng::with_seed(seed) }
    }

    /// Takes a frame of so many bytes and returns when it comes out, or `None` if it is lost.
    pub fn take(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        let begins = self.busy_until.max(now);
        if begins - now > self.longest {
            return None;
        }
        self.busy_until = begins + time_of(bytes as u64, self.line.rate);
        // A frame that is lost on its way has taken the line's time all the same.
        let is_lost = self.chance.f64() < self.line.loss;
        (!is_lost).then(|| self.busy_until + self.line.delay)
    }
}

fn time_of(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs_f64((bytes * 8) as f64 / rate as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn line(rate: u64, loss: f64) -> SlowLine {
        SlowLine { rate, delay: 100 * MS, loss }
    }

    #[test]
    fn frames_come_out_at_the_rate_after_the_delay() {
        let mut queue = FrameQueue::new(line(100_000, 0.0), 0);
        // 1250 bytes are 100 ms of 100 kb/s.
        assert_eq!(queue.take(Duration::ZERO, 1250), Some(200 * MS));
        assert_eq!(queue.take(Duration::ZERO, 1250), Some(300 * MS));
        assert_eq!(queue.take(1000 * MS, 1250), Some(1200 * MS), "the line was idle meanwhile");
    }

    #[test]
    fn frames_beyond_the_queue_are_lost() {
        let mut queue = FrameQueue::new(line(100_000, 0.0), 0);
        let taken = (0..1000).filter(|_| queue.take(Duration::ZERO, FRAME).is_some()).count();
        assert_eq!(taken as u64, FRAMES + 1, "one is on its way, and the others wait");
        assert!(queue.take(queue.longest, FRAME).is_some(), "the first of them are out");
    }

    #[test]
    fn losses_follow_from_the_seed() {
        let lost = |seed| {
            let mut queue = FrameQueue::new(line(1_000_000_000, 0.1), seed);
            (0..1000).map(|at| queue.take(at * MS, 100).is_none()).collect::<Vec<_>>()
        };
        let count = lost(1).into_iter().filter(|lost| *lost).count();
        assert!((50..150).contains(&count), "{count} of 1000 at a loss of a tenth");
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
    }
}
