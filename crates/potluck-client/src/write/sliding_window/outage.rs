//! Outages: too few donors answer for a write, because they or the link to them are away for a while. The chunks that
//! were sent stay; the manager is asked for the donors again and again until one answers, for as long as the client's
//! retry limits say. The wait is short for donors that this client has never reached, in this or an earlier write or
//! read: perhaps this machine cannot reach them at all, even if the manager hears them.

use super::{Event, Window};
use crate::link::LinkError;
use crate::retry_limits::{Pauses, STRANGERS, do_not_answer};
use potluck_core::ids::DonorId;
use potluck_wire::control::Grown;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The advice for a write that failed after donors took some of it, and that may work later.
const GOES_ON: &str = "what was sent is kept for a while: run the same command again when they can be \
    reached, and it goes on from there";

/// The state of a write whose donors may be away.
#[derive(Default)]
pub(super) struct Outage {
    /// True once any donor has taken a chunk.
    has_taken_some: bool,
    /// The last failure of each donor.
    faults: BTreeMap<DonorId, LinkError>,
    /// The donors that are waited for.
    waited_for: Vec<DonorId>,
    /// True once the wait for donors was given up.
    given_up: bool,
    /// The pauses between the tries; `None` before the first, and while a try or the pause before it is under way.
    pauses: Option<Pauses>,
    /// True while the next try, or the pause before it, is under way.
    waiting: bool,
}

impl Outage {
    /// Returns whether a write that the manager refused in this way waits for donors.
    pub fn is_waited_for(&self, refusal: &Failure) -> bool {
        let away = refusal.kind == ErrorKind::Retry && refusal.code != code::NO_MANAGER;
        !self.given_up && away && refusal.code != code::NO_SESSION
    }

    /// Notes that a donor took something.
    pub fn answered(&mut self, donor: DonorId) {
        self.has_taken_some = true;
        if self.waited_for.contains(&donor) {
            self.end();
        }
    }

    /// Notes that a donor did not take what it was sent.
    pub fn failed(&mut self, donor: DonorId, why: &LinkError) {
        self.faults.insert(donor, why.clone());
    }

    /// Ends the outage, as there are enough donors; a later outage has the whole time to wait again.
    pub fn end(&mut self) {
        self.waited_for.clear();
        self.given_up = false;
        self.pauses = None;
    }
}

/// Returns how long `donors` are waited for: `limit`, but no longer than [`STRANGERS`] if the client has reached none
/// of them, or, where `donors` is empty, no donor at all.
fn limit_for(donors: &[DonorId], reached: &BTreeSet<DonorId>, limit: Duration) -> Duration {
    let is_known = match donors {
        [] => !reached.is_empty(),
        donors => donors.iter().any(|donor| reached.contains(donor)),
    };
    if is_known { limit } else { limit.min(STRANGERS) }
}

impl Window {
    /// Waits a moment before the donors that failed are tried again.
    pub(super) fn wait_for_donors(&mut self) {
        if std::mem::replace(&mut self.outage.waiting, true) {
            return;
        }
        let clock = self.client.env.clock.clone();
        let mut pauses =
            self.outage.pauses.take().unwrap_or_else(|| Pauses::new(&self.client, clock.now()));
        let failed = self.targets.failed();
        let names: Vec<String> = failed.iter().map(|donor| self.donors.name(*donor)).collect();
        let why = do_not_answer(&names);
        let limit = self.client.retry_limits.donors;
        let limit = limit_for(&failed, &self.client.reached(), limit);
        self.outage.waited_for = failed;
        let calls = self.session.calls();
        self.events.push(Box::pin(async move {
            if !pauses.pause(&why, limit).await {
                return Event::Reached(Box::new(pauses), None);
            }
            let asked = clock.now();
            let reached = calls.reach(Vec::new()).await;
            pauses.leave_out(clock.now().saturating_sub(asked)); // waiting for a manager has its own limit
            Event::Reached(Box::new(pauses), Some(reached))
        }));
    }

    pub(super) fn take_reached(
        &mut self,
        pauses: Pauses,
        reached: Option<Result<Grown, Failure>>,
    ) -> Result<(), Failure> {
        self.outage.waiting = false;
        match reached {
            // The refusal stands, and is what the write fails with.
            None => self.outage.given_up = true,
            Some(Ok(grown)) => {
                let live = grown.donors.iter().filter(|donor| donor.live);
                let live: Vec<DonorId> = live.map(|donor| donor.donor).collect();
                self.outage.pauses = Some(pauses);
                self.targets.failed().into_iter().for_each(|donor| self.donors.discard(donor));
                self.donors.learn(grown.donors);
                self.targets.answer_again(&live);
                self.room.ask_again();
            }
            Some(Err(failure)) => return Err(failure),
        }
        Ok(())
    }

    /// Adds to the failure the names of the donors that failed, with the reasons.
    pub(super) fn with_faults(&self, failure: Failure) -> Failure {
        let fault = |donor: &DonorId| {
            let name = self.donors.name(*donor);
            let why = self.outage.faults.get(donor);
            why.map_or_else(|| name.clone(), |why| format!("{name} ({why})"))
        };
        let faults: Vec<_> = self.targets.failed().iter().map(fault).collect();
        match faults.is_empty() {
            true => failure,
            false => Failure {
                message: format!(
                    "{}; failed while writing: {}",
                    failure.message,
                    faults.join(", ")
                ),
                ..failure
            },
        }
    }

    /// Adds advice to the failure of a write that may work later.
    pub(super) fn with_advice(&self, failure: Failure) -> Failure {
        let reached = self.client.reached();
        let is_stranger = |donor: &DonorId| {
            matches!(self.outage.faults.get(donor), Some(LinkError::Away(_)))
                && !reached.contains(donor)
        };
        let strangers = self.targets.failed().into_iter().filter(is_stranger);
        let unreached = match failure.code == code::DONORS_SILENT {
            true => self.donors.unreached_advice(strangers),
            false => None,
        };
        let goes_on = self.outage.has_taken_some.then(|| GOES_ON.to_owned());
        let advice: Vec<_> = unreached.into_iter().chain(goes_on).collect();
        match advice.is_empty() {
            true => failure,
            false => failure.hint(advice.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_donors_are_awaited_longer_than_unreached_ones() {
        let (long, reached) = (Duration::from_secs(600), BTreeSet::from([DonorId(1)]));
        let limit = |donors: &[u32], reached| {
            let donors: Vec<_> = donors.iter().map(|donor| DonorId(*donor)).collect();
            limit_for(&donors, reached, long)
        };
        assert_eq!(limit(&[1], &reached), long);
        assert_eq!(limit(&[2, 1], &reached), long, "the link to all of them may be away");
        assert_eq!(limit(&[], &reached), long, "whoever it is that the manager misses");
        assert_eq!(limit(&[2], &reached), STRANGERS);
        assert_eq!(limit(&[], &BTreeSet::new()), STRANGERS);
        assert_eq!(limit_for(&[DonorId(2)], &reached, Duration::from_secs(1)).as_secs(), 1);
    }
}
