//! The diagnostic transfer of a donor that joins: a few steps, each of more bytes than the one before, until one takes
//! long enough to tell the rate of the line (FreeLoader, §5.2.1). It ends within a second a direction on any line of 64
//! kb/s and more, and moves at most [`MOST`] bytes a direction in all steps together.
//!
//! What comes of it is a first guess, until members have measured: it is coarse, so that donors whose lines are alike count
//! as equals.

use std::time::Duration;

/// The bytes of the first step.
pub const FIRST: u32 = 8 << 10;
/// The bytes of the largest step.
pub const LARGEST: u32 = 3 << 20;
/// The bytes that all steps of a direction move at most.
pub const MOST: u32 = 4 << 20;

/// The number of times by which a step is larger than the one before.
const GROWTH: u32 = 8;
/// The longest time that the next step may be expected to take.
const EXPECTED: Duration = Duration::from_millis(500);
/// The highest rate that is told apart, as a power of two in bytes a second. It is above 1 Gb/s: beyond, the processors of
/// both ends decide as much as the line does.
const HIGHEST: u32 = 27;

/// Returns the bytes of the step after one of `bytes` that took so long; `None` if that was the last.
pub fn next_step(bytes: u32, took: Duration) -> Option<u32> {
    let next = bytes.saturating_mul(GROWTH).min(LARGEST);
    let expected = took * next.div_ceil(bytes.max(1));
    (next > bytes && expected <= EXPECTED).then_some(next)
}

/// Returns the rate, in bytes a second, of a line that carried `bytes` in a step that took so long, where a step without bytes
/// takes `round_trip`. It is the middle of a class of rates, of which the highest is twice the lowest.
pub fn rate(bytes: u32, took: Duration, round_trip: Duration) -> u64 {
    let carried = took.saturating_sub(round_trip).as_secs_f64().max(1e-6);
    let class = (f64::from(bytes) / carried).log2().floor().clamp(1.0, HIGHEST.into());
    (class.exp2() * 1.5) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures a line of so many bits a second and such a round trip. Returns the rate, and bytes and time of all steps.
    fn measure(bits_s: u64, round_trip: Duration) -> (u64, u32, Duration) {
        let mut step = FIRST;
        let (mut moved, mut spent) = (0, Duration::ZERO);
        loop {
            let took = round_trip + Duration::from_secs_f64(f64::from(step) * 8.0 / bits_s as f64);
            (moved, spent) = (moved + step, spent + took);
            match next_step(step, took) {
                Some(next) => step = next,
                None => return (rate(step, took, round_trip), moved, spent),
            }
        }
    }

    #[test]
    fn any_line_is_measured_within_its_bounds() {
        for kbit_s in [100, 1_000, 33_000, 100_000, 1_000_000, 10_000_000] {
            for round_trip in [0, 1, 200].map(Duration::from_millis) {
                let (rate, moved, spent) = measure(kbit_s * 1000, round_trip);
                let true_rate = (kbit_s * 125).min(1 << HIGHEST) as f64;
                let of_true = rate as f64 / true_rate;
                assert!(
                    (0.7..=1.55).contains(&of_true),
                    "{kbit_s} kb/s, {round_trip:?}: {of_true}"
                );
                assert!(
                    moved <= MOST && spent <= Duration::from_millis(1100),
                    "{moved} B, {spent:?}"
                );
            }
        }
    }

    #[test]
    fn lines_that_are_alike_have_one_rate() {
        let of = |kbit_s: u64| measure(kbit_s * 1000, Duration::from_millis(1)).0;
        assert_eq!(of(90_000), of(100_000));
        assert_eq!(of(900_000), of(1_000_000));
        assert!(of(33_000) * 2 <= of(100_000));
    }
}
