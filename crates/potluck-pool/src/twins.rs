//! Finds donors of which two daemons report with one identity, as after a virtual machine was cloned.
//!
//! A daemon has a new incarnation with each start, and none of before. If an incarnation that another one replaced
//! registers again, and again after that, both run, and each replaces the other with its next heartbeat.

use potluck_core::clock::Tick;
use potluck_core::ids::Incarnation;
use potluck_wire::addresses::Addresses;
use std::collections::VecDeque;
use std::time::Duration;

/// The number of replaced incarnations that are remembered: as many daemons as this, and one, are told apart.
const KEPT: usize = 4;
/// The number of returns from which two daemons are suspected: one may be a registration that was long on its way.
const RETURNS: u32 = 2;
/// The time after the last return for which two daemons are believed to run.
const BELIEVED: Duration = Duration::from_secs(60);

/// The incarnations that registered in turns with the one that counts.
#[derive(Debug, Default)]
pub struct Twins {
    replaced: VecDeque<(Incarnation, Addresses)>,
    returns: u32,
    returned: Option<Tick>,
}

impl Twins {
    /// Notes that `new` registers in the place of the incarnation `old`, which was reached at `addresses`.
    pub fn note(&mut self, old: Incarnation, addresses: &Addresses, new: Incarnation, now: Tick) {
        let is_back = self.replaced.iter().any(|(replaced, _)| *replaced == new);
        self.replaced.retain(|(replaced, _)| *replaced != new && *replaced != old);
        self.replaced.truncate(KEPT - 1);
        self.replaced.push_front((old, addresses.clone()));
        if is_back {
            self.returns = if self.is_over(now) { 1 } else { self.returns + 1 };
            self.returned = Some(now);
        }
    }

    /// Returns where the other daemon was reached last, while two seem to run.
    pub fn other(&self, now: Tick) -> Option<&Addresses> {
        let run = self.returns >= RETURNS && !self.is_over(now);
        self.replaced.front().filter(|_| run).map(|(_, addresses)| addresses)
    }

    fn is_over(&self, now: Tick) -> bool {
        self.returned.is_none_or(|returned| now.saturating_sub(returned) > BELIEVED)
    }
}

#[cfg(test)]
mod tests {
    use crate::Pool;
    use crate::tests::{at, pool, register};

    #[test]
    fn twin_daemons_are_reported_until_one_is_gone() {
        let mut pool = pool();
        let mut told = Vec::new();
        // A donor that starts again and again is one daemon, and one registration may come late.
        for (second, incarnation) in [1, 2, 3, 2, 4, 2, 4].into_iter().enumerate() {
            register(&mut pool, 1, incarnation, second as f64);
            told.push(pool.status(at(second as f64))[0].twin_at.is_some());
        }
        assert_eq!(told, [false, false, false, false, false, true, true]);
        let is_told = |pool: &Pool, second| pool.status(at(second))[0].twin_at.is_some();
        assert!(is_told(&pool, 60.0) && !is_told(&pool, 70.0));
    }
}
