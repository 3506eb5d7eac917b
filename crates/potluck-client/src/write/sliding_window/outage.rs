//! Outages: too few donors answer in the middle of a write, because they or the link to them are away
//! for a while. What was sent stays; they are asked for again and again until one answers, for as
//! long as the client's patience lasts.

use super::{Event, Window};
use crate::patience::{Pauses, do_not_answer};
use potluck_core::ids::DonorId;
use potluck_wire::control::Grown;
use potluck_wire::error::{ErrorKind, Failure, code};

/// How the donors of a write answer.
#[derive(Default)]
pub(super) struct Outage {
    /// Whether a donor has taken anything yet.
    begun: bool,
    /// Whether donors were waited for in vain.
    given_up: bool,
    /// Pauses between the tries, while none of them is under way.
    pauses: Option<Pauses>,
    /// Whether the next try is under way.
    waiting: bool,
}

impl Outage {
    /// Whether too few donors are something to wait for.
    pub fn is_waited_for(&self, refusal: &Failure) -> bool {
        let away = refusal.kind == ErrorKind::Retry && refusal.code != code::NO_MANAGER;
        self.begun && !self.given_up && away && refusal.code != code::NO_SESSION
    }

    /// Whether a donor has taken anything yet.
    pub fn has_begun(&self) -> bool {
        self.begun
    }
}

impl Window {
    /// A donor took something.
    pub(super) fn end_outage(&mut self) {
        self.outage.begun = true;
        self.outage.given_up = false;
        self.outage.pauses = None;
    }

    /// Waits a moment before the donors that failed are tried again.
    pub(super) fn wait_for_donors(&mut self) {
        if std::mem::replace(&mut self.outage.waiting, true) {
            return;
        }
        let now = self.client.env.clock.now();
        let mut pauses =
            self.outage.pauses.take().unwrap_or_else(|| Pauses::new(&self.client, now));
        let names: Vec<String> =
            self.copies.failed().into_iter().map(|donor| self.donors.name(donor)).collect();
        let (why, limit) = (do_not_answer(&names), self.client.patience.donors);
        let calls = self.session.calls();
        self.events.push(Box::pin(async move {
            let reached = match pauses.pause(&why, limit).await {
                true => Some(calls.reach().await),
                false => None,
            };
            Event::Reached(pauses, reached)
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
                self.donors.learn(grown.donors);
                self.copies.answer_again(&live);
                self.grow_refused = None;
            }
            Some(Err(failure)) if failure.kind != ErrorKind::Retry => return Err(failure),
            Some(Err(failure)) if failure.code == code::NO_SESSION => return Err(failure),
            Some(Err(_)) => self.outage.pauses = Some(pauses),
        }
        Ok(())
    }
}
