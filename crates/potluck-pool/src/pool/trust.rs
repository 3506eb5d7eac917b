//! The course of a complaint about a donor's copy. The donor looks at it; where it denies or says nothing, donors in
//! failure domains of their own fetch the copy. All of them have to find it wrong, so that neither one nor two members
//! who lie, nor a bit that flipped in somebody's memory, have a donor quarantined. Where too few donors can fetch it,
//! the manager does so itself. Everything that is remembered for that is forgotten after a while.

use super::Pool;
use crate::complaints::{Complaint, Complaints, Doubt, Inquiring, Inquiry};
use potluck_core::chunk::ChunkName;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::repair_plan::Domain;
use potluck_wire::control::{Holding, TaskFault, TaskOutcome};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The most chunks of one donor about which complaints are remembered.
const MAX_COMPLAINTS: usize = 1024;

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

/// The time in which a member's complaints about one donor have others fetch copies only once, however many
/// complaints there are.
const COUNTS_ONCE_IN: Duration = Duration::from_secs(3600);

/// The longest time that a donor may take to look at a copy before it is taken to call it sound: it looks while its
/// machine has nothing else to do.
const LOOKS_WITHIN: Duration = Duration::from_secs(3600);

/// The number of donors, in failure domains of their own, that have to find a copy wrong, unless the manager finds it
/// wrong itself. A donor that complained may be one of them.
const TESTERS: usize = 3;

/// The most donors that are asked to fetch a copy; some may not reach the donor that has it.
const MOST_ASKED: usize = 3 * TESTERS;

/// The time for which an asked donor's answer is waited for: fetching the largest chunk takes about as long.
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);

/// The number of heartbeats in which a donor may tell that it deleted or quarantined a copy while others fetched it,
/// which is no lie: the second heartbeat was composed when all had fetched it.
const TOLD_BY: u32 = 2;

/// The number of donors after which the complaints of a member count for nothing: the member complained about copies of
/// each, and others found those copies right.
const FALSE_COMPLAINTS: usize = 3;

/// The time for which complaints are remembered: bits flip now and then in the best of machines.
const REMEMBERED: Duration = Duration::from_secs(86_400);

/// The time between two searches for complaints that are too old, and for donors to be reminded of theirs.
const AGE_EVERY: Duration = Duration::from_secs(600);

impl Pool {
    /// Returns whether a report of this member is heard. Reports of unreliable members are not, and neither are reports
    /// beyond the rate that one member may make, since each costs a donor the reading of a chunk.
    pub fn hears(&mut self, witness: MemberId, now: Tick) -> bool {
        if self.is_unreliable(witness, now) {
            return false;
        }
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

    /// Notes that a member got wrong bytes of a donor's copy, or none: the donor must look at it. Other donors look too
    /// if the donor denies it, the member has not complained about this donor lately, and it is not unreliable.
    pub fn accuse(&mut self, donor: DonorId, copy: Holding, witness: MemberId, now: Tick) {
        self.order_verify(donor, copy.name, now);
        let counts = |last: &Tick| now.saturating_sub(*last) >= COUNTS_ONCE_IN;
        let counted = self.complaints.counted.get(&(witness, donor));
        if self.is_unreliable(witness, now) || !counted.is_none_or(counts) {
            return;
        }
        let open = self.complaints.open.entry(donor).or_default();
        if open.len() < MAX_COMPLAINTS || open.contains_key(&copy.name) {
            self.complaints.counted.insert((witness, donor), now);
            let new = || Complaint {
                len: copy.len,
                witnesses: BTreeSet::new(),
                since: now,
                waits_since: now,
            };
            open.entry(copy.name).or_insert_with(new).witnesses.insert(witness);
        }
    }

    /// Notes that a donor quarantined these chunks or has them no more, and says so: complaints about them were right,
    /// and are settled.
    pub(crate) fn admitted<'a>(
        &mut self,
        donor: DonorId,
        chunks: impl Iterator<Item = &'a ChunkName>,
    ) {
        let Complaints { open, inquiries, .. } = &mut self.complaints;
        if !open.contains_key(&donor) && !inquiries.contains_key(&donor) {
            return;
        }
        for chunk in chunks {
            open.get_mut(&donor).and_then(|open| open.remove(chunk));
            if inquiries.get(&donor).is_some_and(|inquiry| inquiry.copy.name == *chunk) {
                inquiries.remove(&donor);
            }
        }
    }

    /// Notes that a donor calls chunks sound. Others are to fetch the first of them that somebody complained about,
    /// unless they fetch another copy of this donor already. The complaints about the rest stay: the donor is reminded
    /// of them, and when it denies them again, others may be free to look.
    pub fn denied(&mut self, donor: DonorId, chunks: &[ChunkName]) {
        let Complaints { open, inquiries, .. } = &mut self.complaints;
        let Some(open) = open.get_mut(&donor).filter(|_| !inquiries.contains_key(&donor)) else {
            return;
        };
        let first = chunks.iter().find_map(|chunk| open.remove_entry(chunk));
        if let Some((name, complaint)) = first {
            self.begin_inquiry(donor, name, complaint);
        }
    }

    fn begin_inquiry(&mut self, donor: DonorId, name: ChunkName, complaint: Complaint) {
        let Complaint { len, witnesses, .. } = complaint;
        // A donor that complained is as good a witness as those that are drawn now, so one of them is taken.
        let domains = self.domains();
        let witness = witnesses.iter().map(|witness| DonorId(witness.0)).find(|witness| {
            domains.contains_key(witness) && domains.get(witness) != domains.get(&donor)
        });
        self.complaints.inquiries.entry(donor).or_insert_with(|| Inquiry {
            copy: Holding { name, len },
            witnesses,
            asked: witness.into_iter().map(|witness| (witness, None)).collect(),
            found: witness.into_iter().map(|witness| (witness, false)).collect(),
            manager_looks: false,
            manager_found: None,
            heartbeats_since: None,
        });
    }

    /// Reminds donors of copies that somebody complained about. Others fetch a copy that its donor has not looked at
    /// for long, for the donor may never answer; only time in which the donor is heard counts.
    fn remind(&mut self, now: Tick) {
        let mut open = std::mem::take(&mut self.complaints.open);
        for (donor, open) in &mut open {
            if !self.is_heard(*donor, now) {
                open.values_mut().for_each(|complaint| complaint.waits_since = now);
                continue;
            }
            let is_old =
                |complaint: &Complaint| now.saturating_sub(complaint.waits_since) >= LOOKS_WITHIN;
            let old = open.iter().find(|(_, complaint)| is_old(complaint)).map(|(name, _)| *name);
            let free = !self.complaints.inquiries.contains_key(donor);
            if let Some((name, complaint)) =
                old.filter(|_| free).and_then(|name| open.remove_entry(&name))
            {
                self.begin_inquiry(*donor, name, complaint);
            }
            open.keys().for_each(|name| self.order_verify(*donor, *name, now));
        }
        self.complaints.open = open;
    }

    /// Returns the next steps of all inquiries; donors that are to fetch a copy count as asked. `draw` gives random
    /// numbers, by which donors are chosen.
    pub fn inquire(&mut self, now: Tick, draw: impl Fn() -> u64) -> Inquiring {
        let mut due = Inquiring::default();
        if self.complaints.inquiries.is_empty() {
            return due;
        }
        let domains = self.domains();
        for (suspect, mut inquiry) in std::mem::take(&mut self.complaints.inquiries) {
            if !self.knows_donor(suspect) || self.is_quarantined(suspect) {
                continue;
            }
            match inquiry.heartbeats_since {
                None if inquiry.manager_looks || !self.is_heard(suspect, now) => {}
                None => self.ask(suspect, &mut inquiry, &domains, &draw, now, &mut due),
                Some(0..TOLD_BY) => {}
                Some(_) => {
                    due.lies.extend(self.conclude(suspect, inquiry, now).map(|why| (suspect, why)));
                    continue;
                }
            }
            self.complaints.inquiries.insert(suspect, inquiry);
        }
        due
    }

    /// Asks as many donors to fetch a copy as are lacking, or the manager where no donor is awaited or left to ask.
    fn ask(
        &self,
        suspect: DonorId,
        inquiry: &mut Inquiry,
        domains: &BTreeMap<DonorId, Domain>,
        draw: impl Fn() -> u64,
        now: Tick,
        due: &mut Inquiring,
    ) {
        let is_awaited =
            |at: &Option<Tick>| at.is_some_and(|at| now.saturating_sub(at) < ANSWERS_WITHIN);
        let awaited = inquiry.asked.iter().filter(|(_, at)| is_awaited(at));
        let awaited: BTreeSet<DonorId> = awaited.map(|(donor, _)| *donor).collect();
        let engaged = awaited.iter().chain(inquiry.found.keys()).chain([&suspect]);
        let engaged = engaged.filter_map(|donor| domains.get(donor).copied()).collect();
        let lacking = TESTERS.saturating_sub(inquiry.found.len() + awaited.len());
        let most = (inquiry.asked.len() + lacking).min(MOST_ASKED);
        let more = most.saturating_sub(inquiry.asked.len());
        let drawn = self.drawn(suspect, inquiry, engaged, domains, draw, now);
        if awaited.is_empty() && (more == 0 || drawn.is_empty()) {
            inquiry.manager_looks = true;
            due.by_manager.push((suspect, inquiry.copy));
        }
        for tester in drawn.into_iter().take(more) {
            inquiry.asked.insert(tester, Some(now));
            due.by_donors.push((tester, suspect, inquiry.copy));
        }
    }

    /// Returns donors in random order that may be asked about a copy, one in each failure domain that is not
    /// `engaged`.
    fn drawn(
        &self,
        suspect: DonorId,
        inquiry: &Inquiry,
        mut engaged: BTreeSet<Domain>,
        domains: &BTreeMap<DonorId, Domain>,
        draw: impl Fn() -> u64,
        now: Tick,
    ) -> Vec<DonorId> {
        let mut testers = self.testers(suspect, now);
        testers.retain(|tester| !inquiry.asked.contains_key(tester));
        testers.sort_by_cached_key(|_| draw());
        testers.retain(|tester| domains.get(tester).is_some_and(|domain| engaged.insert(*domain)));
        testers
    }

    /// Notes whether a donor could fetch a chunk of `suspect`. Returns whether it was asked because of a complaint.
    pub fn inquired(
        &mut self,
        suspect: DonorId,
        chunk: &ChunkName,
        by: DonorId,
        outcome: &TaskOutcome,
    ) -> bool {
        let inquiry = self.complaints.inquiries.get_mut(&suspect);
        let Some(inquiry) = inquiry.filter(|inquiry| inquiry.copy.name == *chunk) else {
            return false;
        };
        if inquiry.asked.get_mut(&by).and_then(Option::take).is_none() {
            return false;
        }
        let right = match outcome {
            TaskOutcome::Done => true,
            TaskOutcome::Failed {
                why: TaskFault::SourceWrong | TaskFault::SourceMissing,
                donor: Some(_),
            } => false,
            _ => return true, // this says more of the network
        };
        inquiry.found.insert(by, right);
        if inquiry.found.len() == TESTERS {
            inquiry.heartbeats_since = Some(0);
        }
        true
    }

    /// Notes that the manager has fetched a donor's copy itself, and whether it was right, if it came.
    pub fn looked(&mut self, suspect: DonorId, chunk: &ChunkName, right: Option<bool>) {
        let inquiry = self.complaints.inquiries.get_mut(&suspect);
        if let Some(inquiry) = inquiry.filter(|inquiry| inquiry.copy.name == *chunk) {
            (inquiry.manager_found, inquiry.heartbeats_since) = (right, Some(0));
        }
    }

    /// Notes a donor's heartbeat, which would have told of a copy that the donor deleted or quarantined.
    pub(crate) fn told_more(&mut self, donor: DonorId) {
        let inquiry = self.complaints.inquiries.get_mut(&donor);
        if let Some(told) = inquiry.and_then(|inquiry| inquiry.heartbeats_since.as_mut()) {
            *told += 1;
        }
    }

    /// Concludes an inquiry. Returns why the donor is not to be trusted any more, if so.
    fn conclude(&mut self, suspect: DonorId, inquiry: Inquiry, now: Tick) -> Option<String> {
        let (right, wrong) = inquiry.tally();
        let is_enough = wrong >= TESTERS || inquiry.manager_found == Some(false);
        if right == 0 && is_enough {
            let chunk = inquiry.copy.name;
            return Some(format!(
                "all who fetched its copy of chunk {chunk}, {wrong} in all, got other bytes or none, and it does not \
                 call it bad"
            ));
        }
        if right > wrong {
            for witness in inquiry.witnesses {
                self.complaints.refuted.entry(witness).or_default().insert(suspect, now);
            }
        }
        None
    }

    /// Returns whether what a member says of donors' copies counts for nothing, because others found too many of the
    /// copies right that it complained about.
    pub fn is_unreliable(&self, member: MemberId, now: Tick) -> bool {
        let lately = |at: &&Tick| now.saturating_sub(**at) < REMEMBERED;
        let refuted = self.complaints.refuted.get(&member);
        refuted.is_some_and(|about| about.values().filter(lately).count() >= FALSE_COMPLAINTS)
    }

    /// Returns all members whose complaints count for nothing ([`Self::is_unreliable`]).
    pub fn unreliable(&self, now: Tick) -> Vec<MemberId> {
        let members = self.complaints.refuted.keys().copied();
        members.filter(|member| self.is_unreliable(*member, now)).collect()
    }

    /// Forgets what members said long ago.
    pub(super) fn age_complaints(&mut self, now: Tick) {
        let complaints = &mut self.complaints;
        if now.saturating_sub(complaints.aged) < AGE_EVERY {
            return;
        }
        complaints.aged = now;
        self.remind(now);
        let complaints = &mut self.complaints;
        let young = |at: Tick, for_: Duration| now.saturating_sub(at) < for_;
        complaints.open.retain(|_, open| {
            open.retain(|_, complaint| young(complaint.since, REMEMBERED));
            !open.is_empty()
        });
        complaints.refuted.retain(|_, about| {
            about.retain(|_, at| young(*at, REMEMBERED));
            !about.is_empty()
        });
        complaints.counted.retain(|_, at| young(*at, COUNTS_ONCE_IN));
        complaints.doubts.retain(|_, doubt| young(doubt.since, DOUBT_EVERY));
        complaints.reported.retain(|_, paid| *paid > now);
    }

    /// Forgets the complaints about a donor.
    pub(super) fn settle_complaints(&mut self, donor: DonorId) {
        self.complaints.open.remove(&donor);
        self.complaints.inquiries.remove(&donor);
    }

    /// Forgives a donor that is trusted again.
    pub fn forgive(&mut self, donor: DonorId) {
        self.settle_complaints(donor);
        self.quarantine(donor, None);
    }
}
