//! Complaints about donors add up until one is trusted no more.

use super::Pool;
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use std::collections::BTreeSet;
use std::time::Duration;

/// Chunks of one donor about which complaints are remembered.
const MAX_COMPLAINTS: usize = 1024;

/// Reports that a member may make at once, for each makes a donor read a whole chunk; then it may make
/// one more each [`REPORT_EVERY`].
const REPORTS_AT_ONCE: u32 = 32;

/// How long a member that has made too many reports waits for the next.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// A member's reports put the verdict on the whole pool in doubt no more often than this: else one
/// that lies could keep it so for ever.
const DOUBT_EVERY: Duration = Duration::from_secs(60);

/// So many different witnesses are believed against a donor's own word.
const WITNESSES: usize = 2;

impl Pool {
    /// Whether a report of this member is heard; those it makes faster than a person's disks rot
    /// are not, for each costs a donor the reading of a chunk.
    pub fn hears(&mut self, witness: MemberId, now: Tick) -> bool {
        let paid = self.complaints.reported.entry(witness).or_insert(now);
        *paid = (*paid).max(now) + REPORT_EVERY;
        let heard = paid.saturating_sub(now) <= REPORT_EVERY * REPORTS_AT_ONCE;
        if !heard {
            *paid -= REPORT_EVERY;
        }
        heard
    }

    /// Whether a report that is heard puts the verdict on the pool in doubt until all is looked at: the
    /// first of a member in a while does. What files use the copy is not known to be safe in any case
    /// until its donor has looked.
    pub fn casts_doubt(&mut self, witness: MemberId, now: Tick) -> bool {
        let doubted = &mut self.complaints.doubted;
        let last = doubted.get(&witness);
        let casts = last.is_none_or(|last| now.saturating_sub(*last) >= DOUBT_EVERY);
        if casts {
            doubted.insert(witness, now);
        }
        casts
    }

    /// A member saw wrong bytes of a chunk from a donor: the donor must look at it.
    pub fn accuse(&mut self, donor: DonorId, chunk: ChunkName, witness: MemberId, now: Tick) {
        self.order_verify(donor, chunk, now);
        let open = self.complaints.open.entry(donor).or_default();
        if open.len() < MAX_COMPLAINTS || open.contains_key(&chunk) {
            open.entry(chunk).or_default().insert(witness);
        }
    }

    /// A donor looked at chunks and quarantined these: complaints about them were right, and it is
    /// honest.
    pub(super) fn admitted<'a>(
        &mut self,
        donor: DonorId,
        chunks: impl Iterator<Item = &'a ChunkName>,
    ) {
        if let Some(open) = self.complaints.open.get_mut(&donor) {
            chunks.for_each(|chunk| drop(open.remove(chunk)));
        }
    }

    /// A donor calls chunks sound. Why it is not to be trusted any more, if so.
    pub fn denied(&mut self, donor: DonorId, chunks: &[ChunkName]) -> Option<String> {
        let open = self.complaints.open.get_mut(&donor)?;
        let witnesses: BTreeSet<MemberId> =
            chunks.iter().filter_map(|chunk| open.remove(chunk)).flatten().collect();
        if witnesses.is_empty() {
            return None;
        }
        let denied = self.complaints.denied.entry(donor).or_default();
        denied.extend(witnesses);
        (denied.len() >= WITNESSES).then(|| {
            format!("{} members got wrong bytes of chunks that it calls sound", denied.len())
        })
    }

    /// Forgets the complaints about a donor.
    pub(super) fn settle_complaints(&mut self, donor: DonorId) {
        self.complaints.open.remove(&donor);
        self.complaints.denied.remove(&donor);
    }

    /// A donor is trusted again.
    pub fn forgive(&mut self, donor: DonorId) {
        self.settle_complaints(donor);
        self.quarantine(donor, None);
    }
}
