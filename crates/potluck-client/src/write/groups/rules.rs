//! The rules by which the chunks of a session's groups are given to donors, and forwarded.

use super::{Shard, Slot};
use crate::link::Forwarding;
use crate::write::targets::Targets;
use potluck_core::ids::DonorId;
use potluck_core::policy::{AckLevel, Mirror, Policy};
use potluck_wire::bulk::MAX_ROUTES;

/// The rules of a session's policy for each group.
pub(super) struct Rules {
    /// The number of copies of each chunk, which is one with an erasure code.
    pub copies: usize,
    /// The number of slots of a group that may be left to repair while donors are away.
    pub spare: usize,
    pub mirror: Mirror,
    pub ack: AckLevel,
}

impl Rules {
    /// Makes the rules of a session with this policy.
    pub fn new(policy: &Policy) -> Self {
        let redundancy = policy.redundancy();
        let copies = policy.ec.map_or(policy.copies as usize, |_| 1);
        let mirror = match policy.mirror {
            _ if copies < 2 => Mirror::ClientSync,
            // A donor forwards to few others, so the client itself sends more copies than that.
            Mirror::ServerSync if copies > MAX_ROUTES + 1 => Mirror::ClientSync,
            Mirror::ServerAsync if copies > MAX_ROUTES + 1 => Mirror::ClientAsync,
            mirror => mirror,
        };
        let spare = (redundancy.donors() - policy.least_donors()) as usize;
        Self { copies, spare, mirror, ack: policy.ack }
    }

    /// Gives the `slots` after a chunk's first copy donors to which the donor of the first copy forwards the chunk;
    /// returns that order, if any slot got a donor.
    pub fn forward(
        &self,
        targets: &Targets,
        planned: &[DonorId],
        slots: &mut [Slot],
        taken: &mut Vec<DonorId>,
        shard: &mut Shard,
    ) -> Option<Forwarding> {
        let mut to = Vec::new();
        for slot in slots.iter_mut().filter(|slot| !slot.done && slot.at.is_empty()) {
            let Some(donor) = shard.pick(targets, planned, taken) else { break };
            let Some(route) = targets.route(donor) else { continue };
            taken.push(donor);
            slot.send_to(donor, shard);
            to.push(route);
        }
        let wait = self.mirror == Mirror::ServerSync;
        (!to.is_empty()).then_some(Forwarding { to, wait })
    }
}
