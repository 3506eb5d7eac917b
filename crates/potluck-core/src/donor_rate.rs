//! The rate of a donor in one direction as the pool knows it: the median of what its members measured lately, and never
//! more than the donor itself says that it moved. So no member makes a slow donor look fast, and one that lies is
//! outvoted as soon as two others have measured.

use crate::clock::Tick;
use crate::ids::MemberId;
use crate::traffic::Traffic;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The least bytes by which a member's word on a rate is formed, unless they took [`LONG_US`]: less says more of the
/// line's delay than of its rate.
const LEAST_BYTES: u64 = 4 << 20;
/// The busy time, in microseconds, in which any number of bytes says enough of a rate.
const LONG_US: f64 = 1e6;
/// The time in which the weight of what a member measured falls to 1/e.
const MEMORY: Duration = Duration::from_mins(10);
/// The time after which a member that measured nothing more has no say.
const SILENT: Duration = Duration::from_hours(24);
/// The most members that have a say on one donor. Another takes the place only of one that was not heard for [`MEMORY`],
/// so that many identities of one liar do not push out those that measure.
const MOST_MEMBERS: usize = 15;
/// The time for which the best second of a donor's own word holds.
const PEAK: Duration = Duration::from_hours(1);
/// The least busy time of a second, in microseconds, in which a donor's own word says something of its rate.
const LEAST_OWN_US: u64 = 50_000;
/// What a member may measure beyond the donor's own word, which is a mean of a second: this many times as much.
const SLACK: f64 = 1.25;

/// What one member measured, with earlier traffic fading.
#[derive(Debug, Clone, Copy)]
struct Word {
    bytes: f64,
    busy_us: f64,
    heard: Tick,
}

impl Word {
    /// Returns whether it says enough, and is recent enough.
    fn counts(&self, now: Tick) -> bool {
        let enough = self.bytes >= LEAST_BYTES as f64 || self.busy_us >= LONG_US;
        enough && now.saturating_sub(self.heard) < SILENT
    }
}

/// The rate of a donor in one direction, as it is kept while no manager runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedDonorRate {
    words: Vec<SavedWord>,
    peaks: [f64; 2],
}

/// What one member measured, and how many seconds ago it was heard.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct SavedWord {
    member: MemberId,
    bytes: f64,
    busy_us: f64,
    age_s: u64,
}

/// The rate of one donor in one direction.
#[derive(Debug, Clone, Default)]
pub struct DonorRate {
    words: BTreeMap<MemberId, Word>,
    /// The best seconds of the donor's own word: in the present hour, and in the hour before.
    peaks: [f64; 2],
    /// The beginning of the present hour.
    hour: Tick,
}

impl DonorRate {
    /// Notes what a member measured since it was last heard.
    pub fn measured(&mut self, member: MemberId, traffic: Traffic, now: Tick) {
        if traffic.bytes == 0 || traffic.busy_us == 0 {
            return;
        }
        if !self.words.contains_key(&member) && self.words.len() >= MOST_MEMBERS {
            let stalest = self.words.iter().min_by_key(|(_, word)| word.heard);
            let stalest = stalest.filter(|(_, word)| now.saturating_sub(word.heard) >= MEMORY);
            let Some(stalest) = stalest.map(|(member, _)| *member) else { return };
            self.words.remove(&stalest);
        }
        let none = Word { bytes: 0.0, busy_us: 0.0, heard: now };
        let word = self.words.entry(member).or_insert(none);
        let age = now.saturating_sub(word.heard).as_secs_f64() / MEMORY.as_secs_f64();
        let kept = (-age).exp();
        word.bytes = word.bytes * kept + traffic.bytes as f64;
        word.busy_us = word.busy_us * kept + traffic.busy_us as f64;
        word.heard = now;
    }

    /// Notes what the donor says that it moved in the last second or so.
    pub fn told(&mut self, traffic: Traffic, now: Tick) {
        if now.saturating_sub(self.hour) >= PEAK {
            self.peaks = [0.0, self.peaks[0]];
            self.hour = now;
        }
        if traffic.busy_us >= LEAST_OWN_US {
            let rate = traffic.rate().unwrap_or(0.0);
            self.peaks[0] = self.peaks[0].max(rate);
        }
    }

    /// Returns what is known, without members that have no say any more.
    pub fn saved(&self, now: Tick) -> SavedDonorRate {
        let words = self.words.iter().filter(|(_, word)| word.counts(now));
        let saved = |(member, word): (&MemberId, &Word)| SavedWord {
            member: *member,
            bytes: word.bytes,
            busy_us: word.busy_us,
            age_s: now.saturating_sub(word.heard).as_secs(),
        };
        SavedDonorRate { words: words.map(saved).collect(), peaks: self.peaks }
    }

    /// Returns the rate of which so much is known. A clock that began only now makes words younger than they are; they
    /// give way to what is measured all the same.
    pub fn recalled(saved: &SavedDonorRate, now: Tick) -> Self {
        let word = |saved: &SavedWord| {
            let heard = now.saturating_sub(Duration::from_secs(saved.age_s));
            let SavedWord { member, bytes, busy_us, .. } = *saved;
            (member, Word { bytes, busy_us, heard })
        };
        let words = saved.words.iter().take(MOST_MEMBERS).map(word).collect();
        Self { words, peaks: saved.peaks, hour: now }
    }

    /// Returns the bytes a second that the pool expects of the donor; `None` where nobody measured enough.
    pub fn rate(&self, now: Tick) -> Option<f64> {
        let words = self.words_that_count(now);
        let mut rates: Vec<f64> = words.map(|word| word.bytes / word.busy_us * 1e6).collect();
        rates.sort_by(f64::total_cmp);
        let lower_median = rates.get(rates.len().saturating_sub(1) / 2)?;
        let own = self.peaks[0].max(self.peaks[1]) * SLACK;
        Some(if own > 0.0 { lower_median.min(own) } else { *lower_median })
    }

    /// Returns the bytes a second that one member measured, if it measured enough. Nobody else is to rely on that.
    pub fn measured_by(&self, member: MemberId, now: Tick) -> Option<f64> {
        let word = self.words.get(&member).filter(|word| word.counts(now))?;
        Some(word.bytes / word.busy_us * 1e6)
    }

    /// Returns the number of members whose word counts.
    pub fn members(&self, now: Tick) -> usize {
        self.words_that_count(now).count()
    }

    fn words_that_count(&self, now: Tick) -> impl Iterator<Item = &Word> {
        self.words.values().filter(move |word| word.counts(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn traffic(bytes_s: u64) -> Traffic {
        Traffic { bytes: bytes_s, busy_us: SECOND, ..Traffic::default() }
    }

    #[test]
    fn one_lying_member_does_not_move_the_rate_that_two_others_measured() {
        for lie in [1 << 40, 1 << 22] {
            let mut rate = DonorRate::default();
            rate.measured(MemberId(1), traffic(100 << 20), Tick::ZERO);
            rate.measured(MemberId(2), traffic(90 << 20), Tick::ZERO);
            rate.measured(MemberId(3), traffic(lie), Tick::ZERO);
            let told = rate.rate(Tick::ZERO).expect("measured") as u64 >> 20;
            assert!((90..=100).contains(&told), "{told}");
        }
    }

    #[test]
    fn no_member_makes_a_donor_faster_than_it_says_it_is() {
        let mut rate = DonorRate::default();
        rate.told(traffic(10 << 20), Tick::ZERO);
        rate.measured(MemberId(1), traffic(1 << 40), Tick::ZERO);
        assert_eq!(rate.rate(Tick::ZERO), Some((10 << 20) as f64 * SLACK));
    }

    #[test]
    fn small_transfers_and_members_that_left_have_no_say_and_members_are_bounded() {
        let mut rate = DonorRate::default();
        let short = Traffic { bytes: 64 << 10, busy_us: 10_000, ..Traffic::default() };
        rate.measured(MemberId(1), short, Tick::ZERO);
        assert_eq!(rate.rate(Tick::ZERO), None);
        for member in 2..100 {
            rate.measured(MemberId(member), traffic(8 << 20), Tick::from_secs(member.into()));
        }
        let now = Tick::from_secs(100);
        assert_eq!((rate.words.len(), rate.members(now)), (MOST_MEMBERS, MOST_MEMBERS - 1));
        assert!(rate.words.contains_key(&MemberId(2)), "nobody pushes out who measures");
        rate.measured(MemberId(100), traffic(8 << 20), now + MEMORY);
        assert!(rate.words.contains_key(&MemberId(100)), "who was silent gives way");
        assert!(rate.rate(now).is_some());
        assert_eq!(rate.rate(now + MEMORY + SILENT), None);
    }

    #[test]
    fn what_was_measured_long_ago_gives_way_to_what_is_measured_now() {
        let mut rate = DonorRate::default();
        rate.measured(MemberId(1), traffic(100 << 20), Tick::ZERO);
        let later = Tick::ZERO + 6 * MEMORY;
        rate.measured(MemberId(1), traffic(10 << 20), later);
        let told = rate.rate(later).expect("measured") as u64 >> 20;
        assert!((10..=11).contains(&told), "{told}");
    }
}
