//! Numbered orders: what donors were asked to make, to test or to compute, until they answer.

use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_wire::control::Order;
use std::collections::BTreeMap;
use std::time::Duration;

/// An order is lost with its donor's life, or as good as lost, when neither it nor any that was
/// given before it was answered for so long. Donors carry out their orders one after the other:
/// one that waits behind others is no later than they are.
const EXPIRES: Duration = Duration::from_secs(60);

/// Orders under way, each with what it is for.
#[derive(Debug)]
pub struct Numbered<P> {
    next: u64,
    donors: BTreeMap<DonorId, BTreeMap<u64, Flight<P>>>,
}

/// An order under way.
#[derive(Debug)]
pub struct Flight<P> {
    /// As it is sent.
    pub order: Order,
    /// When it was given, or one that was given before it was answered.
    pub since: Tick,
    /// What for.
    pub purpose: P,
}

impl<P> Default for Numbered<P> {
    fn default() -> Self {
        Self { next: 0, donors: BTreeMap::new() }
    }
}

impl<P> Numbered<P> {
    /// Numbers from here on, so that no answer to an earlier life of the manager is taken for one
    /// to this.
    pub fn begin_at(&mut self, first: u64) {
        self.next = first;
    }

    /// The number of the order that was given last, or would have been.
    pub fn last(&self) -> u64 {
        self.next
    }

    /// Gives a donor an order, made with its number.
    pub fn give(&mut self, donor: DonorId, now: Tick, purpose: P, make: impl FnOnce(u64) -> Order) {
        self.next += 1;
        let flight = Flight { order: make(self.next), since: now, purpose };
        self.donors.entry(donor).or_default().insert(self.next, flight);
    }

    /// The donor answered. What it was given later has waited for that, what it was given before
    /// has not: a donor that withholds an answer does not put it off by other answers.
    pub fn take(&mut self, donor: DonorId, order: u64, now: Tick) -> Option<Flight<P>> {
        let flights = self.donors.get_mut(&donor)?;
        let answered = flights.remove(&order)?;
        flights.range_mut(order..).for_each(|(_, flight)| flight.since = now);
        Some(answered)
    }

    /// Nothing said to the donor's earlier life holds.
    pub fn forget(&mut self, donor: DonorId) -> Vec<Flight<P>> {
        self.donors.remove(&donor).unwrap_or_default().into_values().collect()
    }

    /// Takes away what was given too long ago.
    pub fn expired(&mut self, now: Tick) -> Vec<(DonorId, Flight<P>)> {
        let mut expired = Vec::new();
        for (donor, flights) in &mut self.donors {
            let old = |flight: &Flight<P>| now.saturating_sub(flight.since) >= EXPIRES;
            let numbers: Vec<u64> =
                flights.iter().filter(|(_, flight)| old(flight)).map(|(n, _)| *n).collect();
            for number in numbers {
                expired.extend(flights.remove(&number).map(|flight| (*donor, flight)));
            }
        }
        expired
    }

    /// How many orders a donor has not answered.
    pub fn count(&self, donor: DonorId) -> usize {
        self.donors.get(&donor).map_or(0, BTreeMap::len)
    }

    /// What a donor was asked for and has not answered.
    pub fn of(&self, donor: DonorId) -> impl Iterator<Item = &Flight<P>> {
        self.donors.get(&donor).into_iter().flat_map(BTreeMap::values)
    }
}
