//! Records of how donors were reached when the manager tried.

use potluck_core::clock::Tick;
use potluck_core::ids::MemberId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The time after which a donor that was reached is tried again.
const AGAIN: Duration = Duration::from_secs(300);
/// The time after which a donor that was not reached is tried again: somebody may be at its firewall.
const SOON: Duration = Duration::from_secs(5);
/// The number of tries in a row without an answer that are no accident.
const FAILED: u32 = 2;

/// The time for which a member's complaint that it does not reach a donor counts.
const COMPLAINT: Duration = Duration::from_secs(300);
/// The most members whose complaints are kept of one donor.
const COMPLAINANTS: usize = 64;

/// The record of how a donor was reached since it registered.
#[derive(Debug, Default)]
pub struct ReachRecord {
    /// The time at which the donor was tried last.
    pub(crate) last: Tick,
    /// The time at which the donor is to be tried next.
    pub(crate) next: Tick,
    /// The number of tries in a row that nobody answered.
    pub(crate) failures: u32,
    /// The reason why the last try that failed did so.
    pub(crate) why: String,
    /// The complaints of members that do not reach the donor.
    pub(crate) complaints: BTreeMap<MemberId, ReachComplaint>,
}

/// A member's complaint that it cannot reach a donor.
#[derive(Debug)]
pub(crate) struct ReachComplaint {
    pub(crate) until: Tick,
    /// The address that the complaint came from.
    pub(crate) from: IpAddr,
    /// True once the manager has reached the donor since: the donor is there, and this member does not get to it.
    pub(crate) stands: bool,
}

impl ReachRecord {
    /// Returns whether the donor was reached when it was tried last.
    pub fn was_reached(&self) -> bool {
        self.last > Tick::ZERO && self.failures == 0
    }

    /// Returns why the manager does not reach the donor, once enough tries in a row have failed.
    pub fn unreachable(&self) -> Option<&str> {
        (self.failures >= FAILED).then_some(self.why.as_str())
    }

    /// Returns the members who do not reach the donor, though the manager does, each with the address that it said so
    /// from.
    pub fn unreached_by(&self, now: Tick) -> impl Iterator<Item = (MemberId, IpAddr)> {
        let stands = move |complaint: &ReachComplaint| complaint.stands && now < complaint.until;
        let upheld = self.complaints.iter().filter(move |(_, complaint)| stands(complaint));
        upheld.map(|(member, complaint)| (*member, complaint.from))
    }

    /// Notes that the donor was tried and nobody answered. Returns whether that is an alarm from now on.
    pub(crate) fn failed(&mut self, why: String, now: Tick) -> bool {
        (self.failures, self.why) = (self.failures + 1, why);
        (self.last, self.next) = (now, now + SOON);
        self.complaints.clear();
        self.failures == FAILED
    }

    /// Notes that the donor was tried and answered. Returns whether that ends an alarm.
    pub(crate) fn reached(&mut self, now: Tick) -> bool {
        (self.last, self.next) = (now, now + AGAIN);
        self.complaints.values_mut().for_each(|complaint| complaint.stands = true);
        std::mem::take(&mut self.failures) >= FAILED
    }

    pub(crate) fn complain(&mut self, member: MemberId, from: IpAddr, now: Tick) {
        self.complaints.retain(|_, complaint| now < complaint.until);
        if self.complaints.len() < COMPLAINANTS || self.complaints.contains_key(&member) {
            let until = now + COMPLAINT;
            let complaint = self.complaints.entry(member);
            let complaint = complaint.or_insert(ReachComplaint { until, from, stands: false });
            (complaint.until, complaint.from) = (until, from);
            self.next = self.next.min(now.max(self.last + SOON));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ADA: MemberId = MemberId(7);
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn reach_complaint_needs_manager_contact_and_expires() {
        let mut reach = ReachRecord::default();
        reach.reached(at(100));
        reach.complain(ADA, HERE, at(101));
        assert_eq!(reach.unreached_by(at(101)).count(), 0, "it may just have died");
        assert_eq!(reach.next, at(105), "the manager looks, and not at the speed of complaints");
        reach.reached(at(105));
        reach.complain(ADA, HERE, at(106));
        assert_eq!(reach.unreached_by(at(106)).collect::<Vec<_>>(), [(ADA, HERE)], "one is one");
        reach.complain(ADA, Ipv4Addr::BROADCAST.into(), at(106));
        assert_eq!(reach.unreached_by(at(106)).count(), 1, "from wherever she says so");
        assert_eq!(reach.unreached_by(at(406)).count(), 0);
        reach.complain(ADA, HERE, at(407));
        reach.failed("no answer".into(), at(408));
        reach.reached(at(413));
        assert_eq!(reach.unreached_by(at(413)).count(), 0, "nobody reached it then");
    }

    #[test]
    fn complaints_use_bounded_memory() {
        let mut reach = ReachRecord::default();
        (0..1000).for_each(|member| reach.complain(MemberId(member), HERE, at(1)));
        assert_eq!(reach.complaints.len(), COMPLAINANTS);
        reach.complain(MemberId(5000), HERE, at(400));
        assert_eq!(reach.complaints.len(), 1, "those of before are over");
    }
}
