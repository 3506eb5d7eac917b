//! Which machines reach each other, from which follows which reads and writes must succeed.

use crate::cast::Who;
use std::collections::BTreeSet;
use std::time::Duration;

/// The time after which a fault no longer excuses a failure: a call that hangs is given up after its deadline
/// of usually 15 s, the next is made after a short pause, and then a donor registers and lists its store.
const SETTLED: Duration = Duration::from_secs(35);

/// The faults of the moment.
#[derive(Debug, Default)]
pub struct Health {
    /// The machines that do not run.
    pub down: BTreeSet<Who>,
    /// The pairs of machines between which messages are lost in at least one direction.
    pub cut: BTreeSet<(Who, Who)>,
    /// The donors whose disks may have lost something.
    pub damaged: BTreeSet<u8>,
    /// The donors whose disks a fault has filled.
    pub full: BTreeSet<u8>,
    /// The number of donors that a write needs by policy.
    pub needs: usize,
    /// The number of donors that suffice for a write while others are down.
    pub least: usize,
    /// The number of donors that the policy lets be away or damaged.
    pub tolerates: usize,
    /// Whether any write was stored below policy, or may have been.
    pub below_policy: bool,
    changed: Duration,
}

impl Health {
    /// Notes that a fault began or ended at `now`.
    pub fn change(&mut self, now: Duration) {
        self.changed = now;
    }

    fn connected(&self, a: Who, b: Who) -> bool {
        !self.down.contains(&a)
            && !self.down.contains(&b)
            && !self.cut.contains(&(a, b))
            && !self.cut.contains(&(b, a))
    }

    /// Returns how many donors may be away or damaged while all files can still be read: as many as the policy
    /// tolerates, but at most one if anything was stored below policy.
    pub fn survives(&self) -> usize {
        if self.below_policy { self.tolerates.min(1) } else { self.tolerates }
    }

    /// Returns whether a read that began at `begun` must succeed: no fault began or ended since shortly before,
    /// the manager is reached, and no more donors than tolerated are away or damaged (D1, A1).
    pub fn must_read(&self, client: Who, begun: Duration) -> bool {
        let away = Who::donors().filter(|donor| {
            let damaged = matches!(donor, Who::Donor(number) if self.damaged.contains(number));
            damaged || !self.connected(client, *donor) || !self.connected(Who::Manager, *donor)
        });
        begun >= self.changed + SETTLED
            && self.connected(client, Who::Manager)
            && away.count() <= self.survives()
    }

    /// Returns whether a write that began at `begun` must succeed: no fault began or ended since shortly before,
    /// no connection is cut, the manager is reached, and enough donors with room and sound disks are up. If no
    /// disk is full or damaged, as many suffice as a write below policy takes.
    pub fn must_write(&self, client: Who, begun: Duration) -> bool {
        let unfit = self.full.union(&self.damaged).count();
        let down = Who::donors().filter(|donor| self.down.contains(donor)).count();
        let needs = if unfit == 0 { self.least } else { self.needs };
        let enough = Who::donors().count().saturating_sub(unfit + down) >= needs;
        let settled = begun >= self.changed + SETTLED && self.cut.is_empty();
        settled && enough && self.connected(client, Who::Manager)
    }
}
