//! Reservations: bytes promised to write sessions, donor by donor.
//!
//! A donor can promise its room less all that the ledger already promised on it, so that no session runs
//! out of space in the middle because another was admitted.

use crate::ids::{DonorId, SessionId};
use std::collections::BTreeMap;

/// The ledger of all open promises of a pool, with the sum over the sessions for each donor.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    sessions: BTreeMap<SessionId, BTreeMap<DonorId, u64>>,
    // The sums are wider than one promise, so that none is cut off and then paid back whole.
    promised: BTreeMap<DonorId, u128>,
}

impl Ledger {
    /// Promises `bytes` to `session` in place of what it had: a repeated request costs nothing.
    pub fn reserve(&mut self, session: SessionId, bytes: BTreeMap<DonorId, u64>) {
        self.release(session);
        self.sessions.insert(session, BTreeMap::new());
        self.grow(session, bytes);
    }

    /// Promises `bytes` to `session` on top of what it has.
    pub fn grow(&mut self, session: SessionId, bytes: BTreeMap<DonorId, u64>) {
        let held = self.sessions.entry(session).or_default();
        for (donor, more) in bytes {
            let promise = held.entry(donor).or_default();
            let before = *promise;
            *promise = before.saturating_add(more);
            *self.promised.entry(donor).or_default() += u128::from(*promise - before);
        }
    }

    /// Turns up to `bytes` of a promise into stored bytes: the donor's own room shows them from
    /// now on. Returns how many were promised; the rest was never reserved.
    pub fn used(&mut self, session: SessionId, donor: DonorId, bytes: u64) -> u64 {
        let promise = self.sessions.get_mut(&session).and_then(|held| held.get_mut(&donor));
        let Some(promise) = promise else { return 0 };
        let paid = bytes.min(*promise);
        *promise -= paid;
        self.forget(donor, paid);
        paid
    }

    /// Ends a session; what it had not used is free again and is returned.
    pub fn release(&mut self, session: SessionId) -> BTreeMap<DonorId, u64> {
        let held = self.sessions.remove(&session).unwrap_or_default();
        held.iter().for_each(|(donor, bytes)| self.forget(*donor, *bytes));
        held
    }

    /// Takes `bytes` of a session's promise back, of each donor in proportion. Rounding may take a few bytes more.
    pub fn cut(&mut self, session: SessionId, bytes: u64) {
        let mut held = self.release(session);
        let all = held.values().fold(0_u128, |sum, it| sum + u128::from(*it));
        let left = all.saturating_sub(bytes.into());
        for promise in held.values_mut() {
            *promise = (u128::from(*promise) * left / all.max(1)) as u64;
        }
        self.reserve(session, held);
    }

    /// Returns the bytes that are promised to a session and not stored yet, on all donors together.
    pub fn held_in_all(&self, session: &SessionId) -> u64 {
        let held = self.sessions.get(session).into_iter().flat_map(BTreeMap::values);
        held.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
    }

    /// Returns the bytes that are promised to a session and not stored yet, donor by donor.
    pub fn held(&self, session: SessionId) -> BTreeMap<DonorId, u64> {
        self.sessions.get(&session).cloned().unwrap_or_default()
    }

    /// Returns the bytes that are promised on `donor` and not stored yet; at most `u64::MAX`.
    pub fn promised(&self, donor: DonorId) -> u64 {
        let promised = self.promised.get(&donor).copied().unwrap_or(0);
        promised.try_into().unwrap_or(u64::MAX)
    }

    fn forget(&mut self, donor: DonorId, bytes: u64) {
        let Some(promised) = self.promised.get_mut(&donor) else { return };
        *promised -= u128::from(bytes);
        if *promised == 0 {
            self.promised.remove(&donor);
        }
    }
}
