//! Failures as they travel and as a person sees them: a stable code, and a kind, which decides the HTTP status and the
//! exit code of the command.

mod exit_code;

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of a failure, which decides the HTTP status and the exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request makes no sense as asked.
    Usage,
    /// The thing that was named is not there.
    NotFound,
    /// Some of the work was done.
    Partial,
    /// The request may work when it is tried again: donors are away, the manager restarts, or time ran out.
    Retry,
    /// No space, quota or reservation is left.
    NoSpace,
    /// Some bytes are not what they should be.
    Integrity,
    /// The caller may not do this.
    Auth,
    /// Somebody else was first, or the thing exists already.
    Conflict,
    /// Anything else, unknown kinds of newer versions included.
    #[serde(other)]
    Other,
}

impl ErrorKind {
    /// Returns the HTTP status that carries a failure of this kind.
    pub fn http_status(self) -> http::StatusCode {
        use http::StatusCode as S;
        match self {
            Self::Usage => S::BAD_REQUEST,
            Self::NotFound => S::NOT_FOUND,
            Self::Partial => S::MULTI_STATUS,
            Self::Retry => S::SERVICE_UNAVAILABLE,
            Self::NoSpace => S::INSUFFICIENT_STORAGE,
            Self::Integrity => S::UNPROCESSABLE_ENTITY,
            Self::Auth => S::FORBIDDEN,
            Self::Conflict => S::CONFLICT,
            Self::Other => S::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A refusal or failure as it crosses the control plane and reaches a person: what happened, to
/// what, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: ErrorKind,
    /// A stable code such as `POT-E012`; listed in docs/errors.md.
    pub code: String,
    /// The failure in words: what happened, and to what.
    pub message: String,
    /// The next step for a person; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl Failure {
    /// Makes a failure with the public `code`.
    pub fn new(kind: ErrorKind, code: &str, message: impl Into<String>) -> Self {
        Self { kind, code: code.into(), message: message.into(), hint: String::new() }
    }

    /// Makes the failure of a request that makes no sense.
    pub fn bad_request(why: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, code::BAD_REQUEST, why)
            .hint("bring both sides to releases of Potluck at most one minor version apart")
    }

    /// Adds the next step for a person to the failure.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

/// The stable codes. A code keeps its meaning for ever; new meanings get new codes.
pub mod code {
    /// A request or a command line that cannot be read, or that asks for something impossible.
    pub const BAD_REQUEST: &str = "POT-E001";
    /// A path that the pool cannot hold, or that the command cannot take.
    pub const BAD_PATH: &str = "POT-E002";
    /// A policy that cannot be kept.
    pub const BAD_POLICY: &str = "POT-E003";
    /// A setting or a settings file that cannot be used.
    pub const BAD_SETTINGS: &str = "POT-E004";
    /// Nothing has the name or number: no file, directory, member, donor or quota.
    pub const NO_ENTRY: &str = "POT-E010";
    /// No space has the name, or the caller has no right at all in it.
    pub const NO_SPACE_NAMED: &str = "POT-E011";
    /// The file changed or vanished while it was read.
    pub const CHANGED: &str = "POT-E012";
    /// No checkpoint of that identifier, or for that path, is open, or no writers share a file there.
    pub const NO_CHECKPOINT: &str = "POT-E013";
    /// Nothing, or not this version, is kept of the name.
    pub const NOT_KEPT: &str = "POT-E014";
    /// The name of a file, directory, space, group or member is taken, or a mount or a daemon is there already.
    pub const EXISTS: &str = "POT-E020";
    /// The version of the file is not the one that the caller expected.
    pub const WRONG_VERSION: &str = "POT-E021";
    /// An entry of another kind is needed: a file, a directory, or no link.
    pub const WRONG_KIND: &str = "POT-E022";
    /// The directory or space is not empty, or files need the donor that is to be removed.
    pub const NOT_EMPTY: &str = "POT-E023";
    /// More files, or others, would be lost than was agreed to.
    pub const NOT_AGREED: &str = "POT-E024";
    /// The path is a directory, and the command was not told to take whole trees.
    pub const NOT_RECURSIVE: &str = "POT-E025";
    /// An empty file or stream would replace a file that has content, or an empty stream would replace a named version.
    pub const EMPTY_INPUT: &str = "POT-E026";
    /// The source of a copy or of a new name is equal to its target, or one lies inside the other, or two sources would
    /// become one name.
    pub const OVERLAP: &str = "POT-E027";
    /// The checkpoint was committed, so that it cannot be aborted.
    pub const CHECKPOINT_COMMITTED: &str = "POT-E028";
    /// The path lies where old versions are kept and snapshots are read, and nobody may write.
    pub const READ_ONLY: &str = "POT-E029";
    /// No donor lends space, or none was found for a restore.
    pub const NO_DONORS: &str = "POT-E030";
    /// The pool has fewer donors than the redundancy needs.
    pub const TOO_FEW_DONORS: &str = "POT-E031";
    /// The bytes do not fit.
    pub const FULL: &str = "POT-E032";
    /// The pool has enough donors, and too few of them can be written to now.
    pub const DONORS_SILENT: &str = "POT-E033";
    /// A member has made as many spaces as one may.
    pub const TOO_MANY_SPACES: &str = "POT-E034";
    /// A space, or all spaces that a member made, would hold more than the quota.
    pub const OVER_QUOTA: &str = "POT-E035";
    /// The write session is over.
    pub const NO_SESSION: &str = "POT-E040";
    /// A commit names chunks that were not offered, that too few donors acknowledged, or whose donors are away or dead
    /// since or have not reported yet; or a file has too many chunks to be copied without being read.
    pub const NOT_ACKNOWLEDGED: &str = "POT-E041";
    /// A member has as many write sessions as one may have, or they are to write as many chunks as one member may.
    pub const TOO_MANY_SESSIONS: &str = "POT-E042";
    /// A user changes rights, or a donor makes invitations, too often.
    pub const TOO_MANY_CHANGES: &str = "POT-E043";
    /// A member has as many checkpoints open as one may have.
    pub const TOO_MANY_CHECKPOINTS: &str = "POT-E044";
    /// A member has as many watch streams as one may have.
    pub const TOO_MANY_WATCHES: &str = "POT-E045";
    /// A member has as many locks, mounts with locks, or writers or ranges of shared files as one may have, or a shared
    /// file has as many ranges.
    pub const TOO_MANY_LOCKS: &str = "POT-E046";
    /// A member has as many reservations, or as much room reserved, as one may.
    pub const TOO_MUCH_RESERVED: &str = "POT-E047";
    /// A member has as many access keys as one may have.
    pub const TOO_MANY_KEYS: &str = "POT-E039";
    /// Another writer of a shared file has claimed bytes that are to be written, or has the name, or writes a file that
    /// is to be renamed; or a version is being made, which new writers have to wait for; or a checkpoint in a mount
    /// cannot begin or end, because programs write there or another checkpoint is open.
    pub const CLAIMED: &str = "POT-E048";
    /// No version can be made of what the writers of a shared file wrote: some have not finished, they wrote the same
    /// bytes, a contribution is lost, or another client is making the version.
    pub const NOT_TOGETHER: &str = "POT-E049";
    /// A chunk, or something of a file, cannot be read from any donor.
    pub const UNREADABLE: &str = "POT-E050";
    /// Some bytes do not have the name, the digest or the form that they should have.
    pub const WRONG_BYTES: &str = "POT-E051";
    /// The space has another key by now, or content cannot be sealed with that yet.
    pub const OTHER_KEY: &str = "POT-E052";
    /// The origin of a file has other content than was imported.
    pub const ORIGIN_CHANGED: &str = "POT-E053";
    /// The origin of a file does not answer.
    pub const ORIGIN_AWAY: &str = "POT-E054";
    /// This machine may not ask an origin, or the origin does not give what was asked for.
    pub const ORIGIN_REFUSED: &str = "POT-E055";
    /// The token is malformed, wrong, used or expired.
    pub const BAD_TOKEN: &str = "POT-E060";
    /// There is no usable identity or certificate of this pool, or its manager does not know the certificate; for a
    /// membership that ended see [`REVOKED`].
    pub const NOT_A_MEMBER: &str = "POT-E061";
    /// The role of the member does not allow this, or a rule that protects the pool or its last admin forbids it.
    pub const NOT_ALLOWED: &str = "POT-E062";
    /// The peer is not the pool that was pinned.
    pub const WRONG_POOL: &str = "POT-E063";
    /// An identity is there already, or is being made.
    pub const ALREADY_JOINED: &str = "POT-E064";
    /// The membership has ended.
    pub const REVOKED: &str = "POT-E065";
    /// The directory is not this donor's to lend.
    pub const NOT_OURS: &str = "POT-E066";
    /// The member lacks the right that this needs in the space.
    pub const NO_RIGHT: &str = "POT-E067";
    /// The access key is unknown, has ended, or does not allow this.
    pub const BAD_KEY: &str = "POT-E068";
    /// No manager answers, or it cannot answer now, or a part of a demonstration does not come up.
    pub const NO_MANAGER: &str = "POT-E070";
    /// The catalog cannot be read or written, or the manager failed at a call or has not finished its work for it.
    pub const CATALOG: &str = "POT-E080";
    /// A local file, directory or program failed.
    pub const LOCAL_IO: &str = "POT-E081";
    /// All of several files failed, each for a reason that was told before.
    pub const SOME_FAILED: &str = "POT-E082";
    /// The work is not done, and cannot go on now.
    pub const STUCK: &str = "POT-E083";
    /// A state directory in which a restore of a pool was not finished, or that lost its catalog.
    pub const UNFINISHED_RESTORE: &str = "POT-E084";
    /// A state directory with the catalog of one pool and the authority of another.
    pub const OTHER_AUTHORITY: &str = "POT-E085";
    /// Nothing is reclaimed now.
    pub const GC_FROZEN: &str = "POT-E086";
}
