//! Who can reach whom, and so what must work.

use crate::cast::Who;
use std::collections::BTreeSet;
use std::time::Duration;

/// The traces of a fault in connections, beliefs and deadlines are over after this long: a call that hangs
/// is given up after 15 s, the pause before the next is at most 5 s, and then a donor registers and lists
/// its store.
const SETTLED: Duration = Duration::from_secs(35);

/// The faults of the moment.
#[derive(Debug, Default)]
pub struct Health {
    /// Machines that don't run.
    pub down: BTreeSet<Who>,
    /// Pairs that don't hear each other, at least in one direction.
    pub cut: BTreeSet<(Who, Who)>,
    /// Donors whose disks may have lost something.
    pub damaged: BTreeSet<u8>,
    /// Donors whose disks somebody filled.
    pub full: BTreeSet<u8>,
    /// How many donors a write takes.
    pub needs: usize,
    /// How many donors a write is content with while others are down.
    pub least: usize,
    /// How many donors may be away or damaged.
    pub tolerates: usize,
    /// Whether a write was stored below policy, or may have been.
    pub below_policy: bool,
    changed: Duration,
}

impl Health {
    /// Notes that something changed.
    pub fn change(&mut self, now: Duration) {
        self.changed = now;
    }

    fn connected(&self, a: Who, b: Who) -> bool {
        !self.down.contains(&a)
            && !self.down.contains(&b)
            && !self.cut.contains(&(a, b))
            && !self.cut.contains(&(b, a))
    }

    /// How many donors may be away or damaged and all be there: what is below policy survives one, if
    /// the policy does.
    pub fn survives(&self) -> usize {
        if self.below_policy { self.tolerates.min(1) } else { self.tolerates }
    }

    /// Whether a client could read everything that is committed, from `begun` until now: the manager
    /// is there, and no more donors than is tolerated are away or damaged (D1, A1).
    pub fn must_read(&self, client: Who, begun: Duration) -> bool {
        let away = Who::donors().filter(|donor| {
            let damaged = matches!(donor, Who::Donor(number) if self.damaged.contains(number));
            damaged || !self.connected(client, *donor) || !self.connected(Who::Manager, *donor)
        });
        begun >= self.changed + SETTLED
            && self.connected(client, Who::Manager)
            && away.count() <= self.survives()
    }

    /// Whether a client could write, from `begun` until now: the manager is there, and as many
    /// donors with room and sound disks as it takes, or as it is content with while others are down.
    pub fn must_write(&self, client: Who, begun: Duration) -> bool {
        let unfit = self.full.union(&self.damaged).count();
        let down = Who::donors().filter(|donor| self.down.contains(donor)).count();
        let needs = if unfit == 0 { self.least } else { self.needs };
        let enough = Who::donors().count().saturating_sub(unfit + down) >= needs;
        let settled = begun >= self.changed + SETTLED && self.cut.is_empty();
        settled && enough && self.connected(client, Who::Manager)
    }
}
