//! Denials: a donor does not take what it is sent because of the ticket that it was shown, which has ended or
//! is spent. The manager is asked for another one, and the donor is tried again with that. Nothing is reserved
//! for it; and a donor that goes on refusing is asked less and less often, and in the end counts as failed.

use super::{Event, Window};
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::Renewed;
use potluck_wire::error::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The pause before the second ticket in a row is asked for; doubles with each that was of no use.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The number of tickets in a row that a donor may refuse: its reason is then one that another does not cure.
const MOST: u32 = 6;

/// Donors that refused the ticket that they were shown.
#[derive(Default)]
pub(super) struct Denials {
    /// Tickets in a row that a donor refused.
    in_a_row: BTreeMap<DonorId, u32>,
    /// Donors that are not written to until another ticket for them is there.
    refusing: BTreeSet<DonorId>,
    /// Whether the manager is being asked for a ticket.
    asking: bool,
}

impl Denials {
    /// Notes that a donor took something.
    pub fn answered(&mut self, donor: DonorId) {
        self.in_a_row.remove(&donor);
    }

    /// Whether donors are waited for that will be written to again.
    pub fn are_waited_for(&self) -> bool {
        self.asking
    }

    /// How long to wait before the next ticket is asked for; nothing the first time, for then it is most
    /// likely that the ticket has merely ended.
    fn pause(&self) -> Duration {
        let most = self.refusing.iter().filter_map(|donor| self.in_a_row.get(donor)).max();
        match most.copied().unwrap_or_default() {
            0 | 1 => Duration::ZERO,
            times => FIRST_PAUSE * (1 << (times - 2).min(MOST)),
        }
    }
}

impl Window {
    /// A donor refused the ticket with which it was sent something at `sent_at`.
    pub(super) fn denied(&mut self, donor: DonorId, sent_at: Tick) {
        // Each chunk that was sent with one ticket may be refused, the last when there is a new ticket
        // already.
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
        // Donors that refused after the call was sent are among these, too.
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
