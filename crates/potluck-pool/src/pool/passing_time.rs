//! The passing of time: donors fall silent, are dead when their grace is over, and come back. Where so many are dead at
//! once that a switch must have died, the circuit breaker makes repair wait (promise A4).

use super::Pool;
use crate::circuit_breaker::{CircuitBreaker, DonorChanges};
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::DonorState;
use std::collections::BTreeSet;
use std::time::Duration;

/// The share of the machines, in percent, whose death within [`TOGETHER`] means that a switch died rather than the
/// machines (promise A4).
const TOO_MANY_PERCENT: usize = 30;
/// The number of machines below which one alone is that share already.
const TOO_MANY_OF: usize = 4;
/// The time within which losses of donors are taken to have one cause.
const TOGETHER: Duration = Duration::from_secs(600);

impl Pool {
    /// Returns whether a donor is silent beyond its grace, or was declared dead.
    pub fn is_dead(&self, donor: DonorId, now: Tick) -> bool {
        self.donors.state(donor, now, &self.limits) == DonorState::Dead
    }

    /// Returns the donors that are silent beyond their grace, or were declared dead.
    pub fn dead(&self, now: Tick) -> BTreeSet<DonorId> {
        self.donors.iter().map(|(id, _)| id).filter(|id| self.is_dead(*id, now)).collect()
    }

    /// Notes which donors died, came back or fell silent as time passed, and judges the circuit breaker. Forgets what
    /// counts no more at this time.
    pub fn pass_time(&mut self, now: Tick) -> DonorChanges {
        self.age_complaints(now);
        self.left_names.retain(|_, left| left.count(now) > 0);
        let mut changes = DonorChanges::default();
        let state = |pool: &Self, id| pool.donors.state(id, now, &pool.limits);
        let all: Vec<_> = self.donors.iter().map(|(id, _)| (id, state(self, id))).collect();
        for (id, state) in all {
            let silent = !self.vouches(id, now);
            let Some(donor) = self.donors.get_mut(id) else { continue };
            let record = &mut donor.record;
            changes.silence |= std::mem::replace(&mut record.silent, silent) != silent;
            match (record.dead, state == DonorState::Dead) {
                (false, true) => {
                    (record.dead, record.stale) = (true, true);
                    changes.dead.push(id);
                }
                (true, false) => {
                    record.dead = false;
                    // A donor that is heard again without a restart lists nothing, and counts from now on. A donor that
                    // restarted has to list what it holds first.
                    record.stale &= !donor
                        .registration
                        .as_ref()
                        .is_some_and(|registration| registration.compared);
                    changes.back.push(id);
                }
                _ => {}
            }
        }
        // The tasks of dead donors are not waited for: others get them now.
        changes.dead.iter().for_each(|donor| self.forget_tasks(*donor));
        changes.dead.iter().for_each(|donor| self.losses.note(*donor));
        self.judge_circuit_breaker(now);
        changes
    }

    fn judge_circuit_breaker(&mut self, now: Tick) {
        let state = |id| self.donors.state(id, now, &self.limits);
        let dead: BTreeSet<DonorId> = self
            .donors
            .iter()
            .map(|(id, _)| id)
            .filter(|id| state(*id) == DonorState::Dead)
            .collect();
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
        let dead = self.donors.iter().map(|(id, _)| id).filter(|id| self.is_dead(*id, now));
        self.circuit_breaker.declared_dead = dead.collect();
        self.circuit_breaker.tripped.clear();
    }

    /// Declares all donors dead that are not live and announced no absence, because an admin does not wait for them.
    pub fn declare_silent_dead(&mut self, now: Tick) {
        let limits = self.limits;
        let silent: Vec<DonorId> = self
            .donors
            .iter()
            .filter(|(id, donor)| {
                let announced = donor.record.away_until.is_some_and(|until| now < until);
                !announced && !self.donors.is_live(*id, now, &limits)
            })
            .map(|(id, _)| id)
            .collect();
        for id in silent {
            if let Some(donor) = self.donors.get_mut(id) {
                donor.record.declared_dead = true;
            }
        }
    }

    /// Announces a donor's absence until a time; `None` ends it.
    pub fn announce(&mut self, donor: DonorId, until: Option<Tick>) {
        if let Some(donor) = self.donors.get_mut(donor) {
            donor.record.away_until = until;
        }
    }

    /// Returns how long each donor has been silent, without those that were never heard.
    pub fn silences(&self, now: Tick) -> Vec<(DonorId, Duration)> {
        let ids = self.donors.iter().map(|(id, _)| id);
        ids.filter_map(|id| Some((id, self.donors.silence(id, now)?))).collect()
    }

    /// Returns how long a donor has been silent; `None` if it was never heard.
    pub fn silence(&self, donor: DonorId, now: Tick) -> Option<Duration> {
        self.donors.silence(donor, now)
    }

    /// Returns the longest silence of any donor that is not given up.
    pub fn longest_silence(&self, now: Tick) -> Duration {
        let awaited = self.donors.iter().filter(|(id, _)| !self.has_nothing(*id, now));
        awaited.filter_map(|(id, _)| self.donors.silence(id, now)).max().unwrap_or_default()
    }

    /// Returns the longest absence that a donor may claim for itself.
    pub fn longest_absence(&self) -> Duration {
        self.limits.longest_absence
    }
}

fn too_many(dead: usize, of: usize) -> bool {
    of >= TOO_MANY_OF && dead * 100 > of * TOO_MANY_PERCENT
}
