//! The course of a complaint about a donor's copy. The donor looks at it, and the manager fetches it. What the manager
//! gets decides alone, so that members who lie, however many, have no donor quarantined; it has to get the copy wrong
//! twice, for bits flip now and then in the best of machines. A donor that calls the copy sound all the same, or says
//! nothing for an hour, has lied.

use super::Pool;
use crate::complaints::{Complaints, Doubt, Inquiring, SuspectedCopy};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_wire::control::Holding;
use std::time::Duration;

/// The most reports that a member may make at once, since each makes a donor read a whole chunk; then it may make one
/// more each [`REPORT_EVERY`].
const REPORTS_AT_ONCE: u32 = 32;

/// The time that a member which has made too many reports waits for the next.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The least time between two reports of a member that put the verdict on the whole pool in doubt: otherwise one that
/// lies could keep it in doubt for ever.
const DOUBT_EVERY: Duration = Duration::from_secs(60);

/// The longest time that a doubt waits for the donor, which takes a second or two unless its machine is busy.
const DOUBT_LASTS: Duration = Duration::from_secs(10);

/// The time in which a member's complaints about one donor have the manager fetch a copy only once, however many
/// complaints there are.
const COUNTS_ONCE_IN: Duration = Duration::from_secs(3600);

/// The number of times that the manager has to get a copy wrong.
const LOOKS: u32 = 2;

/// The number of heartbeats in which a donor may tell that it deleted or quarantined a copy while the manager fetched
/// it, which is no lie: the second heartbeat was composed after that.
const TOLD_BY: u32 = 2;

/// The number of heartbeats, one a second, after which a donor that has not looked at a copy is taken to call it sound:
/// it looks while its machine has nothing else to do.
const LOOKS_WITHIN: u32 = 3600;

/// The number of heartbeats after which a donor is reminded of a copy that it has not looked at.
const REMINDED_EACH: u32 = 600;

/// The time between two searches for what is too old to be remembered.
const AGE_EVERY: Duration = Duration::from_secs(600);

impl Pool {
    /// Returns whether a report of this member is heard. Reports beyond the rate that one member may make are not, since
    /// each costs a donor the reading of a chunk.
    pub fn hears(&mut self, witness: MemberId, now: Tick) -> bool {
        let paid = self.complaints.reported.entry(witness).or_insert(now);
        *paid = (*paid).max(now) + REPORT_EVERY;
        let heard = paid.saturating_sub(now) <= REPORT_EVERY * REPORTS_AT_ONCE;
        if !heard {
            *paid -= REPORT_EVERY;
        }
        heard
    }

    /// Returns whether a report that is heard puts the verdict on the whole pool in doubt until the donor has looked at
    /// the copy: the first report of a member in a while does. Files that use the copy are in any case not known to be
    /// safe until then.
    pub fn casts_doubt(
        &mut self,
        witness: MemberId,
        donor: DonorId,
        chunk: ChunkName,
        now: Tick,
    ) -> bool {
        let doubts = &mut self.complaints.doubts;
        let last = doubts.get(&witness);
        let casts = last.is_none_or(|last| now.saturating_sub(last.since) >= DOUBT_EVERY);
        if casts {
            doubts.insert(witness, Doubt { since: now, donor, chunk });
        }
        casts
    }

    /// Returns whether a donor has not yet looked at a copy that put the verdict in doubt, for a short time at most:
    /// until the donor has looked, a scan of the catalog cannot find the damage.
    pub fn is_in_doubt(&self, now: Tick) -> bool {
        self.complaints.doubts.values().any(|doubt| {
            let young = now.saturating_sub(doubt.since) < DOUBT_LASTS;
            young && self.chunk_orders.has_verify(doubt.donor, &doubt.chunk)
        })
    }

    /// Notes that a member, or the manager itself with `None`, got wrong bytes of a donor's copy, or none: the donor must
    /// look at it. The manager looks, too, unless it looks at another copy of this donor already, or the member has
    /// complained about this donor lately.
    pub fn accuse(&mut self, donor: DonorId, copy: Holding, witness: Option<MemberId>, now: Tick) {
        self.order_verify(donor, copy.name, now);
        let Complaints { suspected, counted, .. } = &mut self.complaints;
        let last = witness.and_then(|witness| counted.get(&(witness, donor)));
        let counts = last.is_none_or(|last| now.saturating_sub(*last) >= COUNTS_ONCE_IN);
        if counts && !suspected.contains_key(&donor) {
            counted.extend(witness.map(|witness| ((witness, donor), now)));
            let suspect = SuspectedCopy { copy, wrong: 0, heartbeats: 0, denied: false };
            suspected.insert(donor, suspect);
        }
    }

    /// Notes that a donor quarantined these chunks or has them no more, and says so: a complaint about one of them was
    /// right, and is settled.
    pub(crate) fn admitted<'a>(
        &mut self,
        donor: DonorId,
        mut chunks: impl Iterator<Item = &'a ChunkName>,
    ) {
        let suspected = self.complaints.suspected.get(&donor).map(|suspected| suspected.copy.name);
        if suspected.is_some_and(|name| chunks.any(|chunk| *chunk == name)) {
            self.complaints.suspected.remove(&donor);
        }
    }

    /// Notes that a donor calls chunks sound.
    pub fn denied(&mut self, donor: DonorId, chunks: &[ChunkName]) {
        if let Some(suspected) = self.complaints.suspected.get_mut(&donor) {
            suspected.denied |= chunks.contains(&suspected.copy.name);
        }
    }

    /// Returns the next steps about all donors in doubt.
    pub fn inquire(&mut self, now: Tick) -> Inquiring {
        let mut due = Inquiring::default();
        self.test(now, &mut due);
        for (suspect, suspected) in std::mem::take(&mut self.complaints.suspected) {
            if !self.knows_donor(suspect) || self.is_quarantined(suspect) {
                continue;
            }
            let SuspectedCopy { copy, wrong, heartbeats, denied } = suspected;
            if wrong == LOOKS && heartbeats >= if denied { TOLD_BY } else { LOOKS_WITHIN } {
                let why = format!(
                    "the manager got other bytes of its copy of chunk {}, or none, and it does not call it bad",
                    copy.name
                );
                due.lies.push((suspect, why));
                continue;
            }
            if (wrong == 0 || wrong < LOOKS && heartbeats >= TOLD_BY) && self.is_heard(suspect, now)
            {
                due.looks.push((suspect, copy));
            }
            if !denied && heartbeats > 0 && heartbeats.is_multiple_of(REMINDED_EACH) {
                self.order_verify(suspect, copy.name, now);
            }
            self.complaints.suspected.insert(suspect, suspected);
        }
        due
    }

    /// Notes that the manager has fetched a donor's copy, and whether it was right, if it came.
    pub fn looked(&mut self, suspect: DonorId, chunk: &ChunkName, right: Option<bool>, now: Tick) {
        if self.tested(suspect, chunk, right, now) {
            return;
        }
        let Some(suspected) = self.complaints.suspected.get_mut(&suspect) else { return };
        if suspected.copy.name == *chunk && right == Some(false) {
            (suspected.wrong, suspected.heartbeats) = (suspected.wrong + 1, 0);
        } else if suspected.copy.name == *chunk {
            self.complaints.suspected.remove(&suspect);
        }
    }

    /// Notes a donor's heartbeat, which would have told of a copy that the donor deleted or quarantined.
    pub(crate) fn told_more(&mut self, donor: DonorId) {
        if let Some(suspected) = self.complaints.suspected.get_mut(&donor) {
            suspected.heartbeats += 1;
        }
    }

    /// Forgets what members said long ago.
    pub(super) fn age_complaints(&mut self, now: Tick) {
        let complaints = &mut self.complaints;
        if now.saturating_sub(complaints.aged) < AGE_EVERY {
            return;
        }
        complaints.aged = now;
        let young = |at: Tick, for_: Duration| now.saturating_sub(at) < for_;
        complaints.counted.retain(|_, at| young(*at, COUNTS_ONCE_IN));
        complaints.doubts.retain(|_, doubt| young(doubt.since, DOUBT_EVERY));
        complaints.reported.retain(|_, paid| *paid > now);
    }

    /// Forgets the complaints about a donor, and ends its probation.
    pub(super) fn settle_complaints(&mut self, donor: DonorId) {
        self.complaints.suspected.remove(&donor);
        self.complaints.probations.remove(&donor);
    }
}
