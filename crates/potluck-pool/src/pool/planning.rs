//! Plans for sessions: which donors a member's files go to, how wide, and how near.

use super::Pool;
use super::sessions::{LEAST_STARTING_BYTES, STARTING_BYTES, group, stored};
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId};
use potluck_core::placement::near::Near;
use potluck_core::placement::striping::{
    self, PlannedHere, SPARES, Striping, WidthReason, WidthRequest,
};
use potluck_core::placement::{self, Candidate, PlacementRequest, Plan, Refusal};
use potluck_core::policy::Policy;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Who writes, and from where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writer {
    pub member: MemberId,
    /// The address from which the writer calls, if it is known.
    pub peer: Option<IpAddr>,
    /// The bytes a second that the writer's link carries, if it said so.
    pub link: Option<u64>,
}

/// A request for a plan, or for more of one.
#[derive(Clone, Copy)]
pub(super) struct PlanRequest<'a> {
    pub writer: Writer,
    pub policy: &'a Policy,
    /// The stored bytes of one copy.
    pub bytes: u64,
    /// The stored bytes of all files that the session writes, where that is known.
    pub files: Option<u64>,
    /// The donors that are not planned.
    pub avoid: &'a [DonorId],
    /// True if only places for all redundancy are of use.
    pub whole: bool,
}

/// A plan, and the reasons for its shape.
pub(super) struct Planned {
    pub plan: Plan,
    pub striping: Striping,
}

/// Says which part of a plan is on the machine that writes.
fn planned_here(candidates: &[Candidate], plan: &Plan, near: Near) -> PlannedHere {
    let here: BTreeSet<DonorId> =
        candidates.iter().filter(|it| it.is_here).map(|it| it.donor).collect();
    let promised = plan.promised();
    let on_it: u64 = promised.iter().filter(|(id, _)| here.contains(id)).map(|(_, n)| n).sum();
    let one_copy = promised.values().sum::<u64>() / u64::from(plan.copies.max(1));
    match (here.is_empty(), near, on_it) {
        (true, ..) => PlannedHere::NoDonor,
        (_, Near::Elsewhere, 0) => PlannedHere::PassedOver,
        (_, Near::Elsewhere, _) => PlannedHere::Needed,
        _ => PlannedHere::Share((100 * on_it / one_copy.max(1)).min(100) as u8),
    }
}

impl Pool {
    /// Plans where a member writes: not at donors of which it brought false receipts, unless it could not write without
    /// these donors.
    pub(super) fn plan(&self, ask: &PlanRequest<'_>, now: Tick) -> Result<Planned, Refusal> {
        let distrusted = self.false_receipts.seen_by(ask.writer.member, now);
        let planned = self.plan_beside(ask, now);
        if distrusted.is_empty() {
            return planned;
        }
        let avoid: Vec<DonorId> = ask.avoid.iter().copied().chain(distrusted).collect();
        self.plan_beside(&PlanRequest { avoid: &avoid, ..*ask }, now).or(planned)
    }

    fn plan_beside(&self, ask: &PlanRequest<'_>, now: Tick) -> Result<Planned, Refusal> {
        let candidates = self.candidates(Some(ask.writer), ask.avoid, ask.policy.chunk_size, now);
        self.plan_on(&candidates, ask, now)
    }

    /// Plans more of a file at the donors that it has already, so that it is not spread over more while it grows; `None`
    /// where these do not take it with all the redundancy.
    pub(super) fn plan_within(
        &self,
        stripe: &BTreeSet<DonorId>,
        ask: &PlanRequest<'_>,
        now: Tick,
    ) -> Option<Planned> {
        let distrusted = self.false_receipts.seen_by(ask.writer.member, now);
        let avoid: Vec<DonorId> = ask.avoid.iter().copied().chain(distrusted).collect();
        let mut candidates = self.candidates(Some(ask.writer), &avoid, ask.policy.chunk_size, now);
        candidates.retain(|candidate| stripe.contains(&candidate.donor));
        // Donors that failed or left are replaced, or the stripe would shrink with each.
        let is_whole = !stripe.is_empty() && candidates.len() == stripe.len();
        // The file is near where its stripe is.
        let near = if ask.policy.near.is_here() { ask.policy.near } else { Near::Anywhere };
        let policy = Policy { near, ..ask.policy.clone() };
        let planned = self.plan_on(&candidates, &PlanRequest { policy: &policy, ..*ask }, now);
        planned.ok().filter(|planned| is_whole && !planned.plan.is_short())
    }

    fn plan_on(
        &self,
        candidates: &[Candidate],
        ask: &PlanRequest<'_>,
        now: Tick,
    ) -> Result<Planned, Refusal> {
        let PlanRequest { writer, policy, bytes, files, whole, .. } = *ask;
        let copies = policy.redundancy().donors();
        let borne = |it: &Candidate| {
            let registration = self.donors.get(it.donor)?.registration.as_ref()?;
            registration.load.borne.map(|rate| rate as f64)
        };
        let (width, reason) = striping::width(
            candidates,
            &WidthRequest {
                asked: policy.stripe_width,
                bytes: files,
                chunk_size: policy.chunk_size,
                copies,
                stored_times: if policy.mirror.is_server() { copies } else { 1 },
                link: writer.link.map(|link| link as f64),
                borne: candidates.iter().filter_map(borne).collect(),
            },
        );
        let request = PlacementRequest {
            width,
            link: writer.link.map(|link| link as f64),
            ..self.placement(policy, bytes, whole, candidates.len(), now)
        };
        let mut plan = placement::plan(candidates, &request)?;
        let here = planned_here(candidates, &plan, policy.near);
        if matches!(reason, WidthReason::SmallFile | WidthReason::Link | WidthReason::Owners) {
            let is_spare = |it: &&Candidate| !it.is_here || policy.near != Near::Elsewhere;
            let spares: Vec<Candidate> = candidates.iter().filter(is_spare).cloned().collect();
            plan.add_spares(&spares, SPARES);
        }
        let link =
            writer.link.filter(|_| matches!(reason, WidthReason::Link | WidthReason::Owners));
        Ok(Planned { plan, striping: Striping { width, reason, link, here } })
    }

    /// Returns how many bytes of files can be stored by a policy now, in files of a few chunks or more. The last bytes
    /// at donors that are less than a chunk do not count.
    pub fn storable(&self, policy: &Policy, now: Tick) -> u64 {
        let candidates = self.candidates(None, &[], policy.chunk_size, now);
        let request = self.placement(policy, 0, false, candidates.len(), now);
        let chunks = placement::room(&candidates, &request) / u64::from(request.chunk_size);
        chunks.saturating_mul(group(policy))
    }

    /// Returns what is asked of placement for `bytes` of one copy, where there are so many `candidates`.
    fn placement(
        &self,
        policy: &Policy,
        bytes: u64,
        whole: bool,
        candidates: usize,
        now: Tick,
    ) -> PlacementRequest {
        let copies = policy.redundancy().donors();
        // Donors that are away come back, and repair completes what was written without them. Donors that
        // leave or are not trusted do not, and a full donor takes nothing when it is back either.
        let expected = self.expected_donors(policy.chunk_size, now);
        let may_be_short = !whole && expected >= copies as usize;
        PlacementRequest {
            bytes,
            chunk_size: policy.chunk_size,
            width: policy.stripe_width.donors(candidates).max(copies),
            copies,
            least: if may_be_short { policy.least_donors() } else { copies },
            stripe_size: policy.stripe_size,
            near: policy.near,
            link: None,
        }
    }

    pub(super) fn starting_plan(
        &self,
        writer: Writer,
        policy: &Policy,
        now: Tick,
    ) -> Result<(Planned, u64), Refusal> {
        let mut plain = STARTING_BYTES.max(group(policy));
        loop {
            let bytes = stored(policy, plain);
            let (files, avoid, whole) = (None, &[][..], false);
            match self.plan(&PlanRequest { writer, policy, bytes, files, avoid, whole }, now) {
                Err(Refusal::NoSpace { .. }) if plain > LEAST_STARTING_BYTES => plain /= 2,
                planned => return planned.map(|plan| (plan, bytes)),
            }
        }
    }
}
