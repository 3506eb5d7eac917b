//! Offering: which chunks the pool holds already.

use super::{Event, Offer, Window};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_core::size::format_size;
use potluck_wire::control::Offered;
use std::collections::HashMap;

/// Offer once this many bytes wait, or …
const OFFER_BYTES: usize = 32 << 20;
/// … this many chunks; sooner only when nothing else is under way.
const OFFER_CHUNKS: usize = 256;

impl Window {
    pub(super) fn offer(&mut self) {
        let enough = self.unoffered.len() >= OFFER_CHUNKS || self.unoffered_bytes >= OFFER_BYTES;
        let idle = self.under_way.is_empty() && self.queue.is_empty() && self.groups.queued() == 0;
        let nothing = self.unoffered.is_empty() && !self.groups.has_unoffered();
        if self.offering || nothing || !(enough || idle || self.is_awaited || self.all_cut()) {
            return;
        }
        self.unoffered_bytes = 0;
        self.is_awaited = false;
        let names = std::mem::take(&mut self.unoffered);
        let groups = self.groups.take_unoffered();
        if names.is_empty() {
            self.groups.offered(groups); // of chunks that were offered before
            return;
        }
        self.offering = true;
        let (calls, ack) = (self.session.calls(), self.session.reserved.policy.ack);
        self.events.push(Box::pin(async move {
            let offered = calls.offer(names.clone(), ack).await;
            Event::Offered(Offer { names, groups }, offered)
        }));
    }

    pub(super) fn take_offered(&mut self, offer: Offer, offered: Offered) {
        self.offering = false;
        for held in offered.held.iter().filter(|held| held.unused) {
            if let Some(name) = offer.names.get(held.index as usize) {
                self.count_resumed(name, held.donors.len() as u64);
            }
        }
        if offered.held.len() < offer.names.len() || self.all_cut() {
            self.tell_resumed();
        }
        let held = offered.held.into_iter().map(|held| (held.index as usize, held.donors));
        let mut held: HashMap<usize, Vec<DonorId>> = held.collect();
        let Offer { names, groups } = offer;
        if self.session.reserved.policy.ec.is_some() {
            for (index, donors) in held {
                self.groups.held(&names[index], donors);
            }
            self.groups.offered(groups);
            return;
        }
        let policy = &self.session.reserved.policy;
        let (copies, least) = (policy.copies, policy.least_donors());
        for (index, name) in names.into_iter().enumerate() {
            let at = held.remove(&index).unwrap_or_default();
            let want = copies.saturating_sub(at.len() as u32);
            if let Some(chunk) = self.chunks.get_mut(&name) {
                chunk.replicas.want = want;
                chunk.replicas.least = least.saturating_sub(at.len() as u32);
                chunk.replicas.held = !at.is_empty();
                chunk.replicas.targets = at;
                if want == 0 {
                    self.report.held_chunks += 1;
                } else {
                    self.report.sent_chunks += 1;
                    self.report.sent_bytes += u64::from(chunk.len);
                    self.queue.push_back(name);
                }
                self.count_copies(name);
            }
        }
    }

    /// A chunk that an interrupted upload left, in so many copies.
    fn count_resumed(&mut self, name: &ChunkName, copies: u64) {
        let len = match self.chunks.get(name) {
            Some(chunk) => u64::from(chunk.len),
            None => self.groups.body(name).map_or(0, |body| body.len() as u64),
        };
        self.report.resumed_bytes += len;
        self.report.resumed_copies_bytes += len * copies;
    }

    /// Says once how much need not be sent again: when the first chunk is found that has to be.
    fn tell_resumed(&mut self) {
        let resumed = self.report.resumed_bytes;
        if resumed == 0 || std::mem::replace(&mut self.told_resumed, true) {
            return;
        }
        // Parity is not among the bytes that its reader counts.
        let plain = match self.session.reserved.policy.ec {
            Some(ec) => resumed * ec.data() as u64 / (ec.data() + ec.parity()) as u64,
            None => resumed,
        };
        let text = match self.session.bytes {
            Some(all) => format!(
                "continuing: {} of {} are already there",
                format_size(plain.min(all)),
                format_size(all)
            ),
            None => format!("continuing: {} are already there", format_size(plain)),
        };
        self.progress.warn(&text);
    }
}
