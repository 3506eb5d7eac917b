//! Offering: which chunks the pool holds already.

use super::{Event, Offer, Window};
use potluck_core::ids::DonorId;
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
        if self.offering || nothing || !(enough || idle || self.all_cut()) {
            return;
        }
        self.unoffered_bytes = 0;
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
        let copies = self.session.reserved.policy.copies;
        for (index, name) in names.into_iter().enumerate() {
            let at = held.remove(&index).unwrap_or_default();
            let want = copies.saturating_sub(at.len() as u32);
            if let Some(chunk) = self.chunks.get_mut(&name) {
                chunk.spread.want = want;
                chunk.spread.held = !at.is_empty();
                chunk.spread.targets = at;
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
}
