//! Write sessions: their lease, their plan, what was promised to them and what they offered.

use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use potluck_core::placement::Plan;
use potluck_core::placement::striping::Striping;
use potluck_core::policy::{AskedPolicy, Policy};
use potluck_core::reserved_room::ReservedRoom;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The bytes that the sessions of one member may together store beyond what follows from what was promised to them,
/// for chunks that are sent again where no room was promised for it. It is one budget for all of them, since sessions
/// cost nothing.
pub(crate) const MEMBERS_SLACK: u64 = 64 << 20;

/// The least number of bytes that a donor is allowed more when it has taken all that it may, as far as the session has
/// so much left; a donor whose planned share is greater is allowed that share again. A donor that takes the place of a
/// full one had a small share, and each time that more is asked for takes a call.
const MORE: u64 = 8 << 20;

/// The number of names that a session may offer beyond what it may store: a client that finds a file larger than it
/// said offers what it has in memory before it asks for more room.
const FIRST_NAMES: u64 = 1024;

/// The least stored bytes of a file on donors; smaller files live in the catalog.
const SMALLEST_STORED: u64 = 4 << 10;

/// The number by which the manager itself opens sessions; no member has it.
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
    /// The policy of the session's files.
    pub policy: Policy,
    /// The policy that the session's command asks for, whatever directories say.
    pub asked: AskedPolicy,
    /// The room that the session reserves, if it is a reservation and does not write.
    pub room: Option<ReservedRoom>,
    /// The address from which the session's calls come; `None` where the manager itself writes, or nobody does.
    pub peer: Option<IpAddr>,
    /// The bytes a second that the writer's link carries, if it said so.
    pub link: Option<u64>,
}

/// The bytes of files that quotas leave to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaRoom {
    /// The bytes that quotas leave beside the files that are there already: so many count as promised to the session.
    pub left: u64,
    /// The bytes that quotas would leave if nothing were there. Which files are replaced is known only at the commit,
    /// so the session may send this much.
    pub whole: u64,
}

impl QuotaRoom {
    /// The room of a session to which no quota applies.
    pub const UNLIMITED: Self = Self { left: u64::MAX, whole: u64::MAX };
}

/// The state of a session as an earlier term of the manager left it.
#[derive(Debug, Clone)]
pub struct ResumedSession {
    /// The whole plan of the session.
    pub plan: Plan,
    /// The stored bytes asked for so far, without redundancy.
    pub bytes: u64,
    /// The bytes of the session's files that count in quotas and are not visible yet.
    pub counted: u64,
    /// The reservation whose room the session takes.
    pub draws_on: Option<SessionId>,
    /// True if the session has ended, and its offers are still to be accounted for.
    pub ending: bool,
}

#[derive(Debug)]
pub struct OpenSession {
    pub member: MemberId,
    /// The address from which the session's calls came last; `None` after a restart of the manager, until one comes.
    pub(crate) peer: Option<IpAddr>,
    /// The bytes a second that the writer's link carries, if it said so.
    pub(crate) link: Option<u64>,
    pub(crate) striping: Striping,
    pub(crate) space: SpaceId,
    pub(crate) policy: Policy,
    pub(crate) asked: AskedPolicy,
    pub plan: Plan,
    /// The stored bytes asked for so far, without redundancy.
    pub(crate) bytes: u64,
    /// The bytes of files asked for so far.
    pub(crate) asked_for: u64,
    /// The bytes of `asked_for` that quotas do not let the session have: it has places for them, and its donors do not
    /// take them.
    pub(crate) unpaid: u64,
    /// The bytes that each donor may take beyond its first budget, because it is faster than others.
    pub(crate) more: BTreeMap<DonorId, u64>,
    /// The planned bytes for which room was promised and is not any more, on all donors together.
    pub(crate) cut: u64,
    /// The bytes of its member's slack that the session has taken.
    pub(crate) slack: u64,
    /// True while the session has only what was promised to it by guess, because the size of its files was not known.
    pub(crate) guessed: bool,
    /// The time at which the session was opened; `None` for a session of an earlier term of the manager.
    pub(crate) began: Option<Tick>,
    pub(crate) heard: Tick,
    /// The number of calls being answered; the lease does not end meanwhile.
    pub(crate) busy: u32,
    /// The parked state of the session while its client is away.
    pub parked: Option<Parked>,
    pub ending: bool,
    /// The room that the session reserves, if it is a reservation.
    pub(crate) room: Option<ReservedRoom>,
    /// The reservation whose room the session takes.
    pub(crate) draws_on: Option<SessionId>,
    /// The bytes of the session's files that count for quotas as if they were there.
    pub(crate) counted: u64,
    /// The bytes of the session's files that are visible.
    pub(crate) visible: u64,
    /// The bytes of files that the session has committed.
    pub(crate) committed: u64,
    /// The stored bytes for which each donor gave receipts, of files that were committed whole.
    pub(crate) acknowledged: BTreeMap<DonorId, u64>,
}

/// A session whose client is away.
#[derive(Debug)]
pub struct Parked {
    pub(crate) since: Tick,
    /// The bytes promised to the session and not used, by donor: they are promised again when it goes on.
    pub(crate) promised: BTreeMap<DonorId, u64>,
}

/// A session that may still write at a donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionAtDonor {
    /// The member who opened the session.
    pub member: MemberId,
    /// The time since it was opened; `None` for a session of an earlier term of the manager.
    pub age: Option<Duration>,
    /// The time since its last call.
    pub silent: Duration,
}

/// The error that a session is over, never was, is somebody else's, or is a reservation, which does not write.
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
    /// The member who opened the session.
    pub member: MemberId,
    /// The space in which the session writes.
    pub space: SpaceId,
    /// The policy of the session's files.
    pub policy: Policy,
    /// The policy that the session's command asks for, whatever directories say.
    pub asked: AskedPolicy,
    /// The whole plan of the session.
    pub plan: Plan,
    /// How the first part of the plan is striped, and why.
    pub striping: Striping,
    /// The stored bytes asked for so far, without redundancy.
    pub bytes: u64,
    /// The bytes of files asked for so far.
    pub(crate) asked_for: u64,
    /// The bytes of `asked_for` that quotas do not let the session have.
    pub(crate) unpaid: u64,
    /// The bytes that each donor may take beyond its first budget.
    pub(crate) more: BTreeMap<DonorId, u64>,
    /// The planned bytes for which no room is promised any more.
    pub(crate) cut: u64,
    /// The bytes of its member's slack that the session has taken.
    pub(crate) slack: u64,
}

impl Ticketed {
    /// Returns how many bytes each donor of the plan may take of the session, whatever tickets the donor is shown: more
    /// than its planned share, because a fast donor takes over from slow ones. The donor itself guards its room.
    pub fn budgets(&self) -> BTreeMap<DonorId, u64> {
        let promised = self.plan.promised();
        let budget = |donor: &DonorId| {
            let share = self.paid(promised.get(donor).copied().unwrap_or_default());
            let more = self.more.get(donor).copied().unwrap_or_default();
            share.saturating_mul(self.times_planned()).saturating_add(more)
        };
        self.plan.donors().into_iter().map(|donor| (donor, budget(&donor))).collect()
    }

    /// Returns the planned bytes at each donor for which room was promised. The session may store more than these, in
    /// room that is promised to nobody.
    pub fn promises(&self) -> BTreeMap<DonorId, u64> {
        let mut planned = self.plan.promised();
        let all = u128::from(self.promised());
        let left = all.saturating_sub(self.cut.into());
        for bytes in planned.values_mut() {
            *bytes = (u128::from(*bytes) * left / all.max(1)) as u64;
        }
        planned
    }

    /// Returns how many bytes all donors together may take of the session, however often it asks for more: the first
    /// budgets, once more the bytes promised with all redundancy, and the session's part of its member's slack.
    pub fn most_stored(&self) -> u64 {
        let times = self.times_planned().saturating_add(1);
        self.paid(self.promised()).saturating_mul(times).saturating_add(self.slack)
    }

    /// Returns how many times its planned share a donor may take at first. A plan is made for one long file. The
    /// smallest files of an erasure code have two chunks of data, whatever the code, and all the parity, and no chunk
    /// is shorter than the smallest file that donors store.
    fn times_planned(&self) -> u64 {
        let Some(ec) = self.policy.ec else { return 2 };
        let (data, parity) = (ec.data() as u64, ec.parity() as u64);
        ((2 + parity) * data).div_ceil(data + parity).max(2)
    }

    fn promised(&self) -> u64 {
        self.plan.promised().values().fold(0, |sum: u64, it| sum.saturating_add(*it))
    }

    /// Returns the part of `planned` bytes that quotas let the session have.
    fn paid(&self, planned: u64) -> u64 {
        let paid = self.asked_for.saturating_sub(self.unpaid);
        let part = u128::from(planned) * u128::from(paid) / u128::from(self.asked_for.max(1));
        part.try_into().unwrap_or(u64::MAX)
    }

    /// Returns how many bytes more a donor is allowed that has taken all that it may, and how many of these are of the
    /// member's slack, of which `left` bytes are not taken yet.
    fn next_allowance(&self, donor: DonorId, left: u64) -> (u64, u64) {
        let budgets = self.budgets();
        let Some(_) = budgets.get(&donor) else { return (0, 0) };
        let all = budgets.values().fold(0, |sum: u64, it| sum.saturating_add(*it));
        let share = self.plan.promised().get(&donor).copied().unwrap_or_default();
        let chunk = u64::from(self.plan.chunk_size);
        match share.max(MORE).min(self.most_stored().saturating_sub(all)) {
            0 => (chunk.min(left), chunk.min(left)),
            more => (more, 0),
        }
    }

    /// Returns how many chunks may be offered: [`FIRST_NAMES`], and as many as fit the bytes that donors would take for
    /// all that was promised, if all were the smallest files that donors store. Each name takes memory for as long as
    /// the session lasts.
    pub(crate) fn most_names(&self) -> u64 {
        let most = self.promised().saturating_mul(self.times_planned().saturating_add(1));
        FIRST_NAMES.saturating_add(most / SMALLEST_STORED)
    }
}

/// The error that a session offered more chunks than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyOffered {
    /// The session would have offered more chunks than it may write.
    #[error("the write session offers more chunks than it has reserved room for")]
    Reserved,
    /// One call offered more chunks than a call may.
    #[error("the write session offers more chunks at once than one call may")]
    AtOnce,
    /// The sessions of the member together would have offered more chunks than they may without committing them.
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

impl OpenSession {
    /// Makes a session that begins now.
    pub(crate) fn new(new: NewSession, plan: Plan, bytes: u64, now: Tick) -> Self {
        let NewSession { member, space, policy, asked, room, peer, link, .. } = new;
        Self {
            member,
            peer,
            link,
            striping: Striping::default(),
            space,
            policy,
            asked,
            plan,
            bytes,
            asked_for: bytes,
            unpaid: 0,
            more: BTreeMap::new(),
            cut: 0,
            slack: 0,
            guessed: false,
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

    /// Allows more to a donor that has taken all that it may of this session, as long as anything is left. Returns how
    /// much of that is the member's slack, of which `left` bytes are not taken yet.
    pub(crate) fn allow_more(&mut self, donor: DonorId, left: u64) -> u64 {
        let (more, slack) = self.ticketed().next_allowance(donor, left);
        let allowed = self.more.entry(donor).or_default();
        *allowed = allowed.saturating_add(more);
        self.slack += slack;
        slack
    }

    /// Notes that the session was given places for `asked` bytes of files. Donors take no more than `most` of them:
    /// beyond that the files would not fit their quotas.
    pub(crate) fn pay(&mut self, asked: u64, most: u64) {
        self.asked_for = self.asked_for.saturating_add(asked);
        self.unpaid = self.unpaid.saturating_add(asked.saturating_sub(most));
    }

    /// Returns the bytes that donors have stored and not yet told of, where so many are still promised on them.
    pub(crate) fn untold(
        &self,
        promised: &BTreeMap<DonorId, u64>,
    ) -> impl Iterator<Item = (DonorId, u64)> {
        let planned = self.plan.promised();
        self.acknowledged.iter().filter_map(move |(donor, bytes)| {
            let told = planned.get(donor)?.saturating_sub(*promised.get(donor)?);
            Some((*donor, bytes.saturating_sub(told)))
        })
    }

    /// Returns whether the session is open and not parked.
    pub(crate) fn goes_on(&self) -> bool {
        !self.ending && self.parked.is_none()
    }

    /// Returns the bytes that the session's donors take, or have taken, of files that are not visible yet.
    pub(crate) fn paid_and_hidden(&self) -> u64 {
        self.asked_for.saturating_sub(self.unpaid).saturating_sub(self.visible)
    }

    /// Returns the bytes of the session's files that count in quotas and are not visible yet.
    pub(crate) fn counted(&self) -> u64 {
        self.counted.saturating_sub(self.visible)
    }

    /// Returns how many of the bytes promised to the session, with all redundancy, its committed files do not need.
    pub(crate) fn not_needed(&self) -> u64 {
        let promised =
            self.plan.promised().values().fold(0, |sum: u64, it| sum.saturating_add(*it));
        let data = self.policy.ec.map_or(1, |ec| ec.data() as u64);
        let shards = u64::from(self.policy.redundancy().donors());
        promised.saturating_sub((self.committed / data).saturating_mul(shards))
    }

    pub(crate) fn ticketed(&self) -> Ticketed {
        Ticketed {
            member: self.member,
            space: self.space,
            policy: self.policy.clone(),
            asked: self.asked,
            plan: self.plan.clone(),
            striping: self.striping,
            bytes: self.bytes,
            asked_for: self.asked_for,
            unpaid: self.unpaid,
            more: self.more.clone(),
            cut: self.cut,
            slack: self.slack,
        }
    }
}
