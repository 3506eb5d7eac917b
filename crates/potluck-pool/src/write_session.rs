//! Write sessions: their lease, their plan, what was promised to them and what they offered.

use potluck_core::chunk::sealed_len;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use potluck_core::placement::Plan;
use potluck_core::policy::{AskedPolicy, Policy};
use potluck_core::reserved_room::ReservedRoom;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;

/// A session may store this much more than three times what is promised to it: retries and small files.
const SLACK: u64 = 64 << 20;

/// A donor of the plan may take this much more than twice its share in any case: a chunk or two that others
/// were to take.
const DONOR_SLACK: u64 = 8 << 20;

/// A donor that has taken all that it may is allowed its share again, at least this.
const MORE: u64 = 8 << 20;

/// Smaller files live in the catalog.
const SMALLEST_STORED: u64 = 4 << 10;

/// The manager itself; no member has this number.
pub const MANAGER: MemberId = MemberId(0);

/// A session about to be opened.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// The id of the session.
    pub id: SessionId,
    /// The member who opens the session.
    pub member: MemberId,
    /// The space in which the session writes.
    pub space: SpaceId,
    /// The policy of its files.
    pub policy: Policy,
    /// What its command asks for, whatever directories say.
    pub asked: AskedPolicy,
    /// The room that it is, if it is no session that writes but a reservation.
    pub room: Option<ReservedRoom>,
}

/// What an earlier term of the manager left of a session.
#[derive(Debug, Clone)]
pub struct ResumedSession {
    /// The whole plan of the session.
    pub plan: Plan,
    /// Stored bytes asked for so far, without redundancy.
    pub bytes: u64,
    /// Bytes of its files that count in quotas and are not visible yet.
    pub counted: u64,
    /// The reservation of whose room it takes.
    pub draws_on: Option<SessionId>,
    /// Whether it has ended, and what it offered is to be accounted for.
    pub ending: bool,
}

#[derive(Debug)]
pub struct OpenSession {
    pub member: MemberId,
    pub(crate) space: SpaceId,
    pub(crate) policy: Policy,
    pub(crate) asked: AskedPolicy,
    pub plan: Plan,
    /// Stored bytes asked for so far, without redundancy.
    pub(crate) bytes: u64,
    /// Bytes that donors may take beyond their first budgets, because they are faster than others.
    pub(crate) more: BTreeMap<DonorId, u64>,
    /// When it was opened; `None` for one of an earlier term of the manager.
    pub(crate) began: Option<Tick>,
    pub(crate) heard: Tick,
    /// Calls being answered; the lease does not end meanwhile.
    pub(crate) busy: u32,
    /// While its client is away.
    pub parked: Option<Parked>,
    pub ending: bool,
    /// The room that it is, if it is a reservation.
    pub(crate) room: Option<ReservedRoom>,
    /// The reservation of whose room it takes.
    pub(crate) draws_on: Option<SessionId>,
    /// Bytes of its files that count as if they were there, for quotas.
    pub(crate) counted: u64,
    /// Bytes of its files that are there.
    pub(crate) visible: u64,
    /// Bytes of files that it has committed.
    pub(crate) committed: u64,
    /// Stored bytes for which donors gave receipts, of files that were committed whole.
    pub(crate) acknowledged: BTreeMap<DonorId, u64>,
}

/// A session whose client is away.
#[derive(Debug)]
pub struct Parked {
    pub(crate) since: Tick,
    /// Bytes promised to the session and not used, by donor: promised again when it goes on.
    pub(crate) promised: BTreeMap<DonorId, u64>,
}

/// The session is over, never was, or is somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSession;

impl From<NoSession> for Failure {
    fn from(_: NoSession) -> Self {
        Failure::new(
            ErrorKind::Retry,
            code::NO_SESSION,
            "the write session is over: it was closed, or nothing was heard from it for too long",
        )
        .hint("start the command again; nothing of the interrupted one is visible")
    }
}

/// The facts of a session that its tickets are made of.
#[derive(Debug, Clone)]
pub struct Ticketed {
    /// The space in which the session writes.
    pub space: SpaceId,
    /// The policy of its files.
    pub policy: Policy,
    /// What its command asks for, whatever directories say.
    pub asked: AskedPolicy,
    /// The whole plan of the session.
    pub plan: Plan,
    /// Stored bytes asked for so far, without redundancy.
    pub bytes: u64,
    /// Bytes that donors may take beyond their first budgets.
    pub(crate) more: BTreeMap<DonorId, u64>,
}

impl Ticketed {
    /// Returns how many bytes each donor of the plan may take of the session, whatever tickets it is shown: more
    /// than its planned share, because a fast donor takes over from slow ones. The donor itself guards its room.
    pub fn budgets(&self) -> BTreeMap<DonorId, u64> {
        let promised = self.plan.promised();
        let budget = |donor: &DonorId| {
            let share = promised.get(donor).copied().unwrap_or_default();
            let more = self.more.get(donor).copied().unwrap_or_default();
            share.saturating_mul(2).saturating_add(DONOR_SLACK).saturating_add(more)
        };
        self.plan.donors().into_iter().map(|donor| (donor, budget(&donor))).collect()
    }

    /// Returns how many bytes all donors together may take of the session, however often it asks for more: three
    /// times what is promised to it, with all redundancy, and a slack.
    pub fn most_stored(&self) -> u64 {
        let promised =
            self.plan.promised().values().fold(0, |sum: u64, it| sum.saturating_add(*it));
        let slack = SLACK + DONOR_SLACK * self.plan.donors().len() as u64;
        promised.saturating_mul(3).saturating_add(slack)
    }

    /// Returns how many bytes more a donor is allowed that has taken all that it may.
    fn next_allowance(&self, donor: DonorId) -> u64 {
        let budgets = self.budgets();
        let Some(_) = budgets.get(&donor) else { return 0 };
        let all = budgets.values().fold(0, |sum: u64, it| sum.saturating_add(*it));
        let share = self.plan.promised().get(&donor).copied().unwrap_or_default();
        share.max(MORE).min(self.most_stored().saturating_sub(all))
    }

    /// Returns how many chunks may be offered: as many as fit twice what was asked for and the slack, if all were
    /// the smallest files that are stored at all. Each name takes memory for as long as the session lasts.
    pub(crate) fn most_names(&self) -> u64 {
        self.bytes.saturating_mul(2).saturating_add(SLACK) / SMALLEST_STORED
    }
}

/// A session offered more chunks than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyOffered {
    /// More than it may write.
    #[error("the write session offers more chunks than it has reserved room for")]
    Reserved,
    /// More than one call may.
    #[error("the write session offers more chunks at once than one call may")]
    AtOnce,
    /// More than all sessions of its member may have offered and not committed.
    #[error("this member has offered as many chunks as one may before files of them are committed")]
    OfMember,
}

impl From<TooManyOffered> for Failure {
    fn from(why: TooManyOffered) -> Self {
        let (kind, code, hint) = match why {
            TooManyOffered::Reserved => {
                (ErrorKind::Usage, code::BAD_REQUEST, "reserve as many bytes as are to be written")
            }
            TooManyOffered::AtOnce => {
                (ErrorKind::Usage, code::BAD_REQUEST, "offer them in several calls")
            }
            TooManyOffered::OfMember => (
                ErrorKind::Retry,
                code::TOO_MANY_SESSIONS,
                "let some of its uploads end first, or join as another member",
            ),
        };
        Failure::new(kind, code, why.to_string()).hint(hint)
    }
}

/// Stored bytes of a chunk of `plain` bytes.
pub(crate) fn stored_len(policy: &Policy, plain: u32) -> u32 {
    if policy.sealed { sealed_len(plain) } else { plain }
}

impl OpenSession {
    /// A session that begins now.
    pub(crate) fn new(new: NewSession, plan: Plan, bytes: u64, now: Tick) -> Self {
        let NewSession { member, space, policy, asked, room, .. } = new;
        Self {
            member,
            space,
            policy,
            asked,
            plan,
            bytes,
            more: BTreeMap::new(),
            began: Some(now),
            heard: now,
            busy: 0,
            parked: None,
            ending: false,
            room,
            draws_on: None,
            counted: 0,
            visible: 0,
            committed: 0,
            acknowledged: BTreeMap::new(),
        }
    }

    /// A donor has taken all that it may of this session: it may take more, as long as there is any.
    pub(crate) fn allow_more(&mut self, donor: DonorId) {
        let more = self.ticketed().next_allowance(donor);
        let allowed = self.more.entry(donor).or_default();
        *allowed = allowed.saturating_add(more);
    }

    /// Bytes of its files that count in quotas and are not visible yet.
    pub(crate) fn counted(&self) -> u64 {
        self.counted.saturating_sub(self.visible)
    }

    /// What was promised to it, with all redundancy, and is not needed for what it has committed.
    pub(crate) fn not_needed(&self) -> u64 {
        let promised =
            self.plan.promised().values().fold(0, |sum: u64, it| sum.saturating_add(*it));
        let data = self.policy.ec.map_or(1, |ec| ec.data() as u64);
        let shards = u64::from(self.policy.redundancy().donors());
        promised.saturating_sub((self.committed / data).saturating_mul(shards))
    }

    pub(crate) fn ticketed(&self) -> Ticketed {
        Ticketed {
            space: self.space,
            policy: self.policy.clone(),
            asked: self.asked,
            plan: self.plan.clone(),
            bytes: self.bytes,
            more: self.more.clone(),
        }
    }
}
