//! Write sessions: their lease, their plan, what was promised to them and what they offered.

use super::parking::Parked;
use potluck_core::chunk::sealed_len;
use potluck_core::clock::Tick;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use potluck_core::placement::Plan;
use potluck_core::policy::{Override, Policy};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeSet;

/// A donor may take this much more than all its session asked for: retries and small files.
const TICKET_SLACK: u64 = 64 << 20;

/// Smaller files live in the catalog.
const SMALLEST_STORED: u64 = 4 << 10;

/// The manager itself; no member has this number.
pub const MANAGER: MemberId = MemberId(0);

/// A session about to be opened.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// Who opens it.
    pub member: MemberId,
    /// Where it writes.
    pub space: SpaceId,
    /// The policy of its files.
    pub policy: Policy,
    /// The parts of the policy that its command set, whatever directories say.
    pub asked: Override,
}

#[derive(Debug)]
pub struct Session {
    pub member: MemberId,
    pub(crate) space: SpaceId,
    pub(crate) policy: Policy,
    pub(crate) asked: Override,
    pub plan: Plan,
    /// Stored bytes asked for so far, without redundancy.
    pub(crate) bytes: u64,
    pub(crate) heard: Tick,
    /// Calls being answered; the lease does not end meanwhile.
    pub(crate) busy: u32,
    /// While its client is away.
    pub parked: Option<Parked>,
    pub ending: bool,
}

/// A session that is ending.
#[derive(Debug)]
pub struct Ending {
    /// The id of the session.
    pub id: SessionId,
    /// The donors that may have its chunks.
    pub donors: BTreeSet<DonorId>,
    /// Whether it was parked before, so that its chunks have been unused for long enough.
    pub parked: bool,
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
    /// Where it writes.
    pub space: SpaceId,
    /// The policy of its files.
    pub policy: Policy,
    /// The parts of the policy that its command set, whatever directories say.
    pub asked: Override,
    /// Its whole plan.
    pub plan: Plan,
    /// Stored bytes asked for so far, without redundancy.
    pub bytes: u64,
}

impl Ticketed {
    /// Returns how many bytes a ticket lets one donor take: far more than the donor's planned share,
    /// because a fast donor takes over from slow ones. The donor itself guards its room.
    pub fn allowance(&self) -> u64 {
        self.bytes.saturating_mul(2).saturating_add(TICKET_SLACK)
    }

    /// Returns how many chunks may be offered: as many as fit what donors may take, if all were the smallest
    /// files that are stored at all. Each name takes memory for as long as the session lasts.
    pub(crate) fn most_names(&self) -> u64 {
        self.allowance() / SMALLEST_STORED
    }
}

/// A session offered more chunks than it may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the write session offers more chunks than it has reserved room for")]
pub struct TooManyOffered;

impl From<TooManyOffered> for Failure {
    fn from(why: TooManyOffered) -> Self {
        Failure::new(ErrorKind::Usage, code::BAD_REQUEST, why.to_string())
            .hint("reserve as many bytes as are to be written")
    }
}

/// Stored bytes of a chunk of `plain` bytes.
pub(crate) fn stored_len(policy: &Policy, plain: u32) -> u32 {
    if policy.sealed { sealed_len(plain) } else { plain }
}

impl Session {
    pub(crate) fn ticketed(&self) -> Ticketed {
        Ticketed {
            space: self.space,
            policy: self.policy.clone(),
            asked: self.asked,
            plan: self.plan.clone(),
            bytes: self.bytes,
        }
    }
}
