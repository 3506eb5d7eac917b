//! Donors list what they hold, a page at a time.

use super::Pool;
use crate::inventory_progress::{InventoryProgress, OutOfOrder, PageDone, UnlistedCopies};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{ChunkId, DonorId, Incarnation};
use std::sync::Arc;

impl Pool {
    /// Takes a page of a donor's inventory, in order from page 0, which begins the inventory anew.
    pub fn inventory_page(
        &mut self,
        donor: DonorId,
        incarnation: Incarnation,
        page: u32,
    ) -> Result<PageDone, OutOfOrder> {
        let registration = self.donors.registration_of(donor, incarnation).ok_or(OutOfOrder)?;
        if page == 0 {
            // Chunks that arrived since the donor registered may be in no page, whenever it looked.
            let taking = registration.taking.get_or_insert_default();
            taking.listed.clear();
            taking.next_page = 1;
            (registration.unclaimed, registration.computed) = (0, 0);
            self.begins_list(donor);
            return Ok(PageDone::Next);
        }
        let Some(taking) = registration.taking.as_mut() else {
            return if registration.compared { Ok(PageDone::Repeated) } else { Err(OutOfOrder) };
        };
        if page == taking.next_page {
            taking.next_page += 1;
            Ok(PageDone::Next)
        } else if page + 1 == taking.next_page {
            Ok(PageDone::Repeated)
        } else {
            Err(OutOfOrder)
        }
    }

    /// Notes the known chunks that a page of an inventory listed.
    pub fn inventory_listed(
        &mut self,
        donor: DonorId,
        incarnation: Incarnation,
        chunks: &[ChunkId],
    ) {
        if let Some(taking) = self.taking(donor, incarnation) {
            taking.list(chunks);
        }
    }

    /// Returns the known chunks listed by all pages of an inventory, in order.
    pub fn inventoried(&mut self, donor: DonorId, incarnation: Incarnation) -> Vec<ChunkId> {
        let mut chunks =
            self.taking(donor, incarnation).map(|taking| taking.listed.clone()).unwrap_or_default();
        chunks.sort_unstable();
        chunks.dedup();
        chunks
    }

    /// Picks from `names`, which were counted at the donor and not listed, the chunks that did not arrive during the
    /// inventory. They are watched until this is called again.
    pub fn unlisted(
        &mut self,
        donor: DonorId,
        incarnation: Incarnation,
        names: &[ChunkName],
    ) -> UnlistedCopies {
        let new_store = self.begins_anew(donor, incarnation);
        // If no inventory is under way, nothing is known to be missing.
        let Some(taking) = self.taking(donor, incarnation) else {
            return UnlistedCopies::default();
        };
        if !taking.knows_arrivals() {
            return UnlistedCopies::default();
        }
        let missing = names.iter().filter(|name| !taking.arrived.contains(*name));
        let names: Vec<ChunkName> = missing.copied().collect();
        taking.suspected = names.iter().copied().collect();
        taking.refuted = Arc::default();
        UnlistedCopies { names, new_store, refuted: Arc::downgrade(&taking.refuted) }
    }

    /// Notes that a donor's inventory is complete: from now on copies there count.
    pub fn inventory_done(&mut self, donor: DonorId, incarnation: Incarnation) {
        if let Some(registration) = self.donors.registration_of(donor, incarnation) {
            registration.taking = None;
            registration.compared = true;
            self.expected.compared(donor);
            self.ends_list(donor);
            if let Some(donor) = self.donors.get_mut(donor) {
                donor.record.stale = false;
            }
        }
    }

    /// Notes that a donor acknowledged, in this incarnation, chunks that a session is about to commit. What an
    /// earlier incarnation acknowledged did not arrive during the inventory of this one.
    pub fn acknowledged<'a>(
        &mut self,
        copies: impl Iterator<Item = (DonorId, Incarnation, &'a ChunkName)>,
    ) {
        for (donor, incarnation, name) in copies {
            if let Some(taking) = self.taking(donor, incarnation) {
                taking.arrived(std::iter::once(*name));
            }
        }
    }

    fn taking(
        &mut self,
        donor: DonorId,
        incarnation: Incarnation,
    ) -> Option<&mut InventoryProgress> {
        self.donors.registration_of(donor, incarnation)?.taking.as_mut()
    }
}
