//! Leases on versions that readers have open. A version that is replaced or removed meanwhile stays whole in the trash
//! ([`crate::history::trash`]) until the last of its leases has run out (promise A5).
//!
//! Leases are soft state: they live in memory, and readers renew them. After a restart any version may be open, until
//! readers have had as long as a lease lasts to say so.

use potluck_core::ids::{MemberId, VersionId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

/// The time for which a lease lasts unless it is renewed, in the pool's time.
pub const LEASE: Duration = Duration::from_secs(60);
const LEASE_MS: u64 = LEASE.as_millis() as u64;
/// The most leases that one member may have. A member that has so many gets no further one until some have run out.
pub const MOST_LEASES: usize = 16_384;
/// The time between two searches for leases that have run out, in milliseconds.
const SWEEP_EVERY_MS: u64 = 1_000;

/// The leases of all members.
#[derive(Debug, Default)]
pub struct Leases(Mutex<Leased>);

#[derive(Debug, Default)]
struct Leased {
    /// The leases, by the version that is open and the member that has it open.
    leases: BTreeMap<(VersionId, MemberId), Lease>,
    /// The number of leases that each member has.
    counts: BTreeMap<MemberId, usize>,
    /// The pool's time in which any version counts as open, in milliseconds: earlier leases are not known.
    unknown_ms: Range<u64>,
    swept_ms: u64,
}

#[derive(Debug)]
struct Lease {
    /// The space in which the version was opened: whoever may not read there any more renews no lease.
    space: String,
    /// The pool's time at which the lease runs out, in milliseconds.
    until_ms: u64,
}

impl Leases {
    /// Notes that leases which were given before `now_ms` are forgotten.
    pub fn are_forgotten(&self, now_ms: u64) {
        self.0.lock().expect("no holder panics").unknown_ms = now_ms..now_ms + LEASE_MS;
    }

    /// Returns whether any version may be open, because readers have not had the time to say what they have open.
    pub fn are_unknown(&self, now_ms: u64) -> bool {
        self.0.lock().expect("no holder panics").are_unknown(now_ms)
    }

    /// Notes that a member opened a version in a space. A member that has too many open already gets no lease.
    pub fn take(&self, member: MemberId, space: &str, version: VersionId, now_ms: u64) {
        self.locked(now_ms).renew(member, space, version, now_ms);
    }

    /// Renews the leases of a member that still has these versions of a space open. Returns the versions that it has no
    /// lease on: the lease has run out, is of another space, or would be one too many. While earlier leases are not
    /// known, the member is believed.
    pub fn renew(
        &self,
        member: MemberId,
        space: &str,
        versions: Vec<VersionId>,
        now_ms: u64,
    ) -> Vec<VersionId> {
        let mut leased = self.locked(now_ms);
        let is_believed = leased.are_unknown(now_ms);
        let mut gone = versions;
        gone.retain(|version| {
            let known = leased.leases.get(&(*version, member));
            let may = known.map_or(is_believed, |lease| lease.space == space);
            !(may && leased.renew(member, space, *version, now_ms))
        });
        gone
    }

    /// Returns whether anybody has a version open, or may have.
    pub fn is_leased(&self, version: VersionId, now_ms: u64) -> bool {
        let leased = self.0.lock().expect("no holder panics");
        let of = (version, MemberId(0))..=(version, MemberId(u32::MAX));
        leased.are_unknown(now_ms)
            || leased.leases.range(of).any(|(_, lease)| lease.until_ms > now_ms)
    }

    /// Returns the versions that somebody is known to have open.
    pub fn leased(&self, now_ms: u64) -> Vec<VersionId> {
        let leased = self.0.lock().expect("no holder panics");
        let live = leased.leases.iter().filter(|(_, lease)| lease.until_ms > now_ms);
        let mut versions: Vec<VersionId> = live.map(|((version, _), _)| *version).collect();
        versions.dedup();
        versions
    }

    fn locked(&self, now_ms: u64) -> std::sync::MutexGuard<'_, Leased> {
        let mut leased = self.0.lock().expect("no holder panics");
        if now_ms.saturating_sub(leased.swept_ms) >= SWEEP_EVERY_MS {
            leased.sweep(now_ms);
        }
        leased
    }
}

impl Leased {
    fn are_unknown(&self, now_ms: u64) -> bool {
        self.unknown_ms.contains(&now_ms)
    }

    /// Gives or renews a lease, and returns whether the member has it. A member with too many leases gets no further
    /// one.
    fn renew(&mut self, member: MemberId, space: &str, version: VersionId, now_ms: u64) -> bool {
        let count = self.counts.entry(member).or_default();
        let known = self.leases.contains_key(&(version, member));
        if !known && *count >= MOST_LEASES {
            return false;
        }
        *count += usize::from(!known);
        let lease = Lease { space: space.into(), until_ms: now_ms + LEASE_MS };
        self.leases.insert((version, member), lease);
        true
    }

    fn sweep(&mut self, now_ms: u64) {
        self.swept_ms = now_ms;
        let Self { leases, counts, .. } = self;
        leases.retain(|(_, member), lease| {
            let stays = lease.until_ms > now_ms;
            if !stays && let Some(count) = counts.get_mut(member) {
                *count -= 1;
            }
            stays
        });
        counts.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_leases_are_renewable_and_bounded_per_member() {
        let leases = Leases::default();
        let (one, other) = (MemberId(1), MemberId(2));
        let version = VersionId(7);
        leases.take(one, "lab", version, 0);
        assert!(leases.is_leased(version, LEASE_MS - 1) && !leases.is_leased(version, LEASE_MS));
        assert!(!leases.is_leased(VersionId(6), 0) && !leases.is_leased(VersionId(8), 0));
        let renew = |member, now_ms| leases.renew(member, "lab", vec![version], now_ms);
        assert_eq!(renew(other, 1), [version], "another's lease is no lease of its own");
        let of_another_space = leases.renew(one, "attic", vec![version], 1);
        assert_eq!(of_another_space, [version], "it was not opened there");
        assert_eq!(renew(one, LEASE_MS - 1), []);
        assert!(leases.is_leased(version, 2 * LEASE_MS - 2));
        assert_eq!(renew(one, 2 * LEASE_MS - 1), [version], "it has run out");

        let many = || (100..).map(VersionId).take(MOST_LEASES);
        many().for_each(|version| leases.take(other, "lab", version, 0));
        assert!(leases.is_leased(VersionId(100), 1));
        leases.take(other, "lab", version, 5 * LEASE_MS);
        assert!(leases.is_leased(version, 5 * LEASE_MS + 1), "those that ran out count no more");
        many().for_each(|version| leases.take(one, "lab", version, 5 * LEASE_MS));
        leases.take(one, "lab", VersionId(1), 5 * LEASE_MS);
        assert!(!leases.is_leased(VersionId(1), 5 * LEASE_MS), "one member has no more");
    }

    #[test]
    fn versions_count_as_open_after_restart_until_leases_are_renewed_a5() {
        let leases = Leases::default();
        let (open, closed) = (VersionId(7), VersionId(8));
        leases.are_forgotten(100);
        let until_ms = 100 + LEASE_MS;
        assert!(leases.is_leased(open, until_ms - 1) && leases.is_leased(closed, until_ms - 1));
        assert_eq!(leases.renew(MemberId(1), "lab", vec![open], until_ms - 1), [], "believed");
        assert!(leases.is_leased(open, until_ms) && !leases.is_leased(closed, until_ms));
        assert_eq!(leases.renew(MemberId(1), "lab", vec![closed], until_ms), [closed]);
    }
}
