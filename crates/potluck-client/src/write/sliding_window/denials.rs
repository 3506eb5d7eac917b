//! Denials: a donor refuses a chunk because its ticket has ended or is spent. The manager is asked for another ticket,
//! and the donor is tried again with that. Nothing more is reserved for it. A donor that goes on refusing is tried less
//! and less often, and in the end counts as failed.

use super::{Event, Window};
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::Renewed;
use potluck_wire::error::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The pause before the second ticket in a row is asked for; it doubles with each ticket that is refused.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The most tickets in a row that a donor may refuse: after that its reason is one that another ticket does not cure.
const MOST: u32 = 6;

/// The donors that refused the ticket that they were shown.
#[derive(Default)]
pub(super) struct Denials {
    /// The number of tickets in a row that each donor refused.
    in_a_row: BTreeMap<DonorId, u32>,
    /// Donors that are not written to until another ticket for them is there.
    refusing: BTreeSet<DonorId>,
    /// True while the manager is being asked for tickets.
    asking: bool,
}

impl Denials {
    /// Notes that a donor took something.
    pub fn answered(&mut self, donor: DonorId) {
        self.in_a_row.remove(&donor);
    }

    /// Returns whether new tickets are being asked for, with which refusing donors can be written to again.
    pub fn are_waited_for(&self) -> bool {
        self.asking
    }

    /// Returns the pause before the next ticket is asked for; it is zero the first time, when the ticket has most
    /// likely just ended.
    fn pause(&self) -> Duration {
        let most = self.refusing.iter().filter_map(|donor| self.in_a_row.get(donor)).max();
        match most.copied().unwrap_or_default() {
            0 | 1 => Duration::ZERO,
            times => FIRST_PAUSE * (1 << (times - 2).min(MOST)),
        }
    }
}

impl Window {
    /// Handles that a donor refused the ticket with which a chunk was sent to it at `sent_at`.
    pub(super) fn denied(&mut self, donor: DonorId, sent_at: Tick) {
        // Each chunk that was sent with one ticket may be refused, the last of them after a new ticket has come.
        let replaced = self.donors.ticket_since(donor) > Some(sent_at);
        if replaced || !self.denials.refusing.insert(donor) {
            return;
        }
        self.donors.discard(donor);
        let times = self.denials.in_a_row.entry(donor).or_default();
        *times += 1;
        if *times > MOST {
            self.denials.refusing.remove(&donor);
            self.targets.give_up(donor);
            return;
        }
        self.targets.await_ticket(donor);
        self.ask_for_tickets();
    }

    fn ask_for_tickets(&mut self) {
        if std::mem::replace(&mut self.denials.asking, true) {
            return;
        }
        let (calls, pause) = (self.session.calls(), self.denials.pause());
        let refused = self.denials.refusing.iter().copied().collect();
        self.events.push(Box::pin(async move {
            tokio::time::sleep(pause).await;
            Event::Readmitted(calls.readmit(refused).await)
        }));
    }

    pub(super) fn take_readmitted(
        &mut self,
        renewed: Result<Renewed, Failure>,
    ) -> Result<(), Failure> {
        self.denials.asking = false;
        // These include donors that refused after the call was sent.
        let back: Vec<DonorId> = std::mem::take(&mut self.denials.refusing).into_iter().collect();
        match renewed {
            Ok(renewed) => {
                self.donors.learn(renewed.donors);
                self.targets.answer_again(&back);
            }
            Err(failure) if !self.committing.is_finished() => return Err(failure),
            // The last commit may have ended the session: what is not copied yet is left to repair.
            Err(_) => back.into_iter().for_each(|donor| self.targets.give_up(donor)),
        }
        Ok(())
    }
}
