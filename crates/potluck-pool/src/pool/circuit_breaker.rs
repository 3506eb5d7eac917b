//! The circuit breaker of repair: where so many donors are dead at once that a switch must have died, repair waits
//! (promise A4).

use super::Pool;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use std::collections::BTreeSet;
use std::time::Duration;

/// The share of the machines, in percent, whose death within [`TOGETHER`] means that a switch died rather than the
/// machines (promise A4).
const TOO_MANY_PERCENT: usize = 30;
/// The number of machines below which one alone is that share already.
const TOO_MANY_OF: usize = 4;
/// The time within which losses of donors are taken to have one cause.
const TOGETHER: Duration = Duration::from_secs(600);

/// The state of the circuit breaker: the donors that tripped it, and those that an admin declared dead.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// The donors whose loss tripped the circuit breaker.
    pub tripped: BTreeSet<DonorId>,
    /// The dead donors whose chunks an admin said to repair nevertheless.
    pub declared_dead: BTreeSet<DonorId>,
}

impl Pool {
    /// Trips the circuit breaker where too many donors died lately, and closes it when they are few again.
    pub(super) fn judge_circuit_breaker(&mut self, now: Tick) {
        let dead = self.dead(now);
        self.circuit_breaker.declared_dead.retain(|donor| dead.contains(donor));
        let lately = |id: &&DonorId| {
            let silent = self.donors.silence(**id, now);
            let grace = self.donors.grace(**id, &self.limits);
            silent.is_some_and(|silent| silent.saturating_sub(grace) <= TOGETHER)
                && !self.circuit_breaker.declared_dead.contains(id)
        };
        let lately: BTreeSet<DonorId> = dead.iter().filter(lately).copied().collect();
        // Machines are counted: nobody stops repair by taking away the many disks of one.
        let machines = |which: &dyn Fn(&DonorId) -> bool| {
            let donors = self.donors.iter().map(|(id, _)| id).filter(which);
            donors.map(|id| self.donors.machine(id)).collect::<BTreeSet<_>>().len()
        };
        let all = machines(&|_| true);
        let were = machines(&|id| !dead.contains(id) || lately.contains(id));
        let went = machines(&|id| lately.contains(id));
        let still =
            |tripped: &BTreeSet<DonorId>| machines(&|id| tripped.contains(id) && dead.contains(id));
        let mut tripped = self.circuit_breaker.tripped.clone();
        if too_many(went, were) {
            tripped.extend(lately.iter().copied());
        }
        let still = still(&tripped);
        if !too_many(still, all) && !too_many(still, were) {
            tripped.clear();
        }
        self.circuit_breaker.tripped = tripped;
    }

    /// Says why repair rests though donors are dead: too many of them at once (promise A4).
    pub fn too_many_dead(&self) -> Option<String> {
        let dead = self.circuit_breaker.tripped.len();
        (dead > 0).then(|| {
            format!(
                "{dead} of {} donors went within minutes of each other, as if a switch had died: bring them back, or `potluck repair now` to go on without them",
                self.donor_count()
            )
        })
    }

    /// Returns the decisions about donors that went at once, to be remembered.
    pub fn circuit_breaker(&self) -> CircuitBreaker {
        self.circuit_breaker.clone()
    }

    /// Takes over what an earlier term of the manager decided about donors that went at once.
    pub fn resume_circuit_breaker(&mut self, circuit_breaker: CircuitBreaker) {
        for donor in &circuit_breaker.declared_dead {
            if let Some(donor) = self.donors.get_mut(*donor) {
                // The donor was dead then, and is until it is heard.
                donor.record.declared_dead = true;
            }
        }
        self.circuit_breaker = circuit_breaker;
    }

    /// Takes an admin's word that dead donors are to be repaired after, although the circuit breaker has tripped.
    pub fn declare_dead(&mut self, now: Tick) {
        self.circuit_breaker.declared_dead = self.dead(now);
        self.circuit_breaker.tripped.clear();
    }
}

fn too_many(dead: usize, of: usize) -> bool {
    of >= TOO_MANY_OF && dead * 100 > of * TOO_MANY_PERCENT
}
