//! Offering: the manager is asked which chunks the pool holds already.

use super::stages::Offer;
use super::{Event, FileState, Window};
use potluck_core::chunk::ChunkName;
use potluck_core::size::format_size;
use potluck_wire::control::Offered;

/// The bytes of waiting chunks at which an offer is made.
const OFFER_BYTES: usize = 32 << 20;
/// The number of waiting chunks at which an offer is made.
const OFFER_CHUNKS: usize = 256;
/// The bytes of waiting chunks at which an offer is made early, when no group waits for a donor and at most twice as
/// many chunks are on their way: so many are sent while the answer comes, and a fast pool is not asked about each chunk
/// by itself. An offer of any size is made when no chunk is on its way or waits for a donor, when a writer waits, and
/// when all is cut.
const NEXT_BYTES: usize = 4 << 20;

impl Window {
    pub(super) fn offer(&mut self) {
        let stage = &mut self.offering;
        let enough = stage.names.len() >= OFFER_CHUNKS || stage.bytes >= OFFER_BYTES;
        let dry = self.groups.queued() == 0;
        let next = stage.bytes >= NEXT_BYTES && 2 * stage.names.len() >= self.sending.chunks();
        let idle = dry && (next || self.sending.is_idle());
        let nothing = stage.names.is_empty() && !self.groups.has_unoffered();
        let now = enough || idle || stage.is_awaited || self.cutting.is_over();
        if stage.under_way || nothing || !now {
            return;
        }
        stage.bytes = 0;
        stage.is_awaited = false;
        let names = std::mem::take(&mut stage.names);
        let groups = self.groups.take_unoffered();
        if names.is_empty() {
            self.groups.offered(groups); // all their chunks were offered before
            return;
        }
        stage.under_way = true;
        let (calls, ack) = (self.session.calls(), self.session.reserved.policy.ack);
        let bytes = self.largest_file();
        self.events.push(Box::pin(async move {
            let offered = calls.offer(names.clone(), ack, Some(bytes)).await;
            Event::Offered(Offer { names, groups }, offered)
        }));
    }

    /// Returns the bytes so far of the largest file that is not visible yet, without its holes.
    fn largest_file(&self) -> u64 {
        let data = |state: &FileState| state.content.data_bytes();
        let bytes = |number: &u32| self.files.get(number).map_or(0, data);
        let in_parts = self.wholes.values().map(|it| it.data + bytes(&it.filling));
        self.files.keys().map(bytes).chain(in_parts).max().unwrap_or(0)
    }

    pub(super) fn take_offered(&mut self, offer: Offer, offered: Offered) {
        self.offering.under_way = false;
        for held in offered.held.iter().filter(|held| held.unused) {
            if let Some(name) = offer.names.get(held.index as usize) {
                self.count_resumed(name, held.donors.len() as u64);
            }
        }
        if offered.held.len() < offer.names.len() || self.cutting.is_over() {
            self.tell_resumed();
        }
        for held in offered.held {
            if let Some(name) = offer.names.get(held.index as usize) {
                self.groups.held(name, held.donors);
            }
        }
        self.groups.offered(offer.groups);
    }

    /// Counts a chunk of which an interrupted upload left this many copies.
    fn count_resumed(&mut self, name: &ChunkName, copies: u64) {
        let len = self.groups.body(name).map_or(0, |body| body.len() as u64);
        self.report.resumed_bytes += len;
        self.report.resumed_copies_bytes += len * copies;
    }

    /// Tells the user once how much need not be sent again, when the first chunk is found that has to be sent, or all
    /// is cut.
    fn tell_resumed(&mut self) {
        let resumed = self.report.resumed_bytes;
        if resumed == 0 || std::mem::replace(&mut self.offering.told_resumed, true) {
            return;
        }
        // The count includes parity, and the number that the user is told does not.
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
