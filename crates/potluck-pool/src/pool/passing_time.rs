//! The passing of time: donors fall silent, are dead when their grace is over, and come back.

use super::Pool;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::DonorState;
use std::collections::BTreeSet;
use std::time::Duration;

/// The donors that became dead, came back or fell silent as time passed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DonorChanges {
    /// The donors that became dead: their grace ended, or an admin declared them dead.
    pub dead: Vec<DonorId>,
    /// The donors that came back after they had been dead.
    pub back: Vec<DonorId>,
    /// True if the copies of some donor began or ceased to be readable, which changes how safe files are now.
    pub silence: bool,
}

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

    /// Declares all donors dead that are not live and announced no absence, because an admin does not wait for them.
    pub fn declare_silent_dead(&mut self, now: Tick) {
        let limits = self.limits;
        let silent: Vec<DonorId> = self
            .donors
            .iter()
            .filter(|(id, donor)| {
                !donor.is_announced(now) && !self.donors.is_live(*id, now, &limits)
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
