//! Mirroring protocols (CEFT-PVFS §3): who makes the further copies of a chunk, and which of them a
//! write waits for.

use super::Window;
use crate::link::{Forwarding, Stored};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_core::policy::{Mirror, Policy};
use potluck_wire::bulk::MAX_ROUTES;
use potluck_wire::control::Source;

/// The protocol that a policy's copies are made by.
pub fn protocol(policy: &Policy) -> Mirror {
    let copies = policy.copies as usize;
    match policy.mirror {
        _ if policy.ec.is_some() || copies < 2 => Mirror::ClientSync,
        // More than a donor forwards to are sent by the client.
        Mirror::ServerSync if copies > MAX_ROUTES + 1 => Mirror::ClientSync,
        Mirror::ServerAsync if copies > MAX_ROUTES + 1 => Mirror::ClientAsync,
        mirror => mirror,
    }
}

impl Window {
    /// Copies of visible chunks that are still to be made by this client.
    pub(super) fn pending_copies(&self) -> u64 {
        let open = self.chunks.values().filter(|chunk| chunk.told && chunk.body.is_some());
        open.map(|chunk| u64::from(chunk.replicas.want) - chunk.replicas.acks.len() as u64).sum()
    }

    /// Gives up the copies of a chunk that are still to be made.
    pub(super) fn abandon(&mut self, name: ChunkName) {
        if let Some(chunk) = self.chunks.get(&name) {
            self.abandoned += u64::from(chunk.replicas.want) - chunk.replicas.acks.len() as u64;
            self.release(name);
        }
    }

    /// To whom `by`, the donor of a chunk's first copy, is to forward it; those donors are counted as
    /// under way.
    pub(super) fn forward(&mut self, name: ChunkName, by: DonorId) -> Option<Forwarding> {
        let wait = match self.mirror {
            Mirror::ServerSync => true,
            Mirror::ServerAsync => false,
            Mirror::ClientSync | Mirror::ClientAsync => return None,
        };
        let chunk = self.chunks.get_mut(&name).filter(|chunk| chunk.may_forward)?;
        chunk.may_forward = false;
        let planned = self.copies.planned(chunk.replicas.slot);
        let mut to = Vec::new();
        for _ in 1..chunk.replicas.want {
            let taken = &chunk.replicas.targets;
            let free = |donor: &_| !taken.contains(donor);
            let Some(donor) = self.copies.pick_of(&planned, taken, free, chunk.len) else { break };
            let Some(access) = self.donors.access(donor) else { continue };
            let Some(ticket) = access.ticket else { continue };
            chunk.replicas.targets.push(donor);
            to.push(Source { donor, addresses: access.addresses, ticket });
        }
        if to.is_empty() {
            return None;
        }
        chunk.forwarded = Some((by, to.iter().map(|source| source.donor).collect()));
        Some(Forwarding { to, wait })
    }

    /// Counts what became of the copies that `by`, which has answered, was to forward.
    pub(super) fn take_forwarded(&mut self, name: ChunkName, by: DonorId, stored: &Stored) {
        let Some(chunk) = self.chunks.get_mut(&name) else { return };
        let Some((_, forwarded)) = chunk.forwarded.take_if(|(donor, _)| *donor == by) else {
            return;
        };
        if self.mirror == Mirror::ServerAsync && stored.forwarded.is_empty() {
            // Its donor has taken them on; what it fails to make is left to repair.
            self.forwarded_later += forwarded.len() as u64;
            chunk.replicas.want -= forwarded.len() as u32;
            chunk.replicas.least = chunk.replicas.least.min(chunk.replicas.want);
            return;
        }
        let ack = self.session.reserved.policy.ack;
        let mut missing = false;
        for (at, donor) in forwarded.into_iter().enumerate() {
            match stored.forwarded.get(at).copied().flatten() {
                Some(receipt) => chunk.replicas.acks.push((donor, ack, receipt)),
                None => {
                    chunk.replicas.targets.retain(|target| *target != donor);
                    missing = true;
                }
            }
        }
        if missing {
            self.queue.push_front(name);
        }
    }
}
