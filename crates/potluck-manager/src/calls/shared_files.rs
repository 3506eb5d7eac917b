//! Files that writers share: claims of ranges, and whose turn it is to make a version.

use super::Answer;
use crate::access::Access;
use crate::callers::{CallingMember, KnownMembers};
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::shared_files::{AllSharedFiles, ClaimRefusal, SharedFiles, WriterFacts, too_many};
use potluck_core::ids::MemberId;
use potluck_core::rights::Right;
use potluck_wire::control::{
    CLAIM_LEASE, LONGEST_WRITER_NAME, MOST_CLAIMED_AT_ONCE, SharedClaim, SharedClaimed,
    SharedLeave, SharedLeft, SharedTurn, SharedTurnTaken, SharedWriterAbout, SharedWriters,
    SharedWritersHeard,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::{Arc, MutexGuard};

handles! {
    /// The handles for answering calls about files that writers share.
    pub struct SharedFileCalls {
        time: PoolTime,
        members: Arc<KnownMembers>,
        access: Access,
        shared_files: AllSharedFiles,
    }
}

impl SharedFileCalls {
    fn files(&self) -> MutexGuard<'_, SharedFiles> {
        self.shared_files.lock().expect("no holder panics")
    }

    /// Whether writers may have claims that an earlier manager granted, and have not said so yet.
    fn is_just_restarted(&self) -> bool {
        self.time.is_restarted_within(CLAIM_LEASE)
    }

    fn member_name(&self, member: MemberId) -> Option<String> {
        self.members.names(&[member]).pop()
    }

    fn refusal(&self, call: &SharedClaim, refusal: ClaimRefusal) -> Result<SharedClaimed, Failure> {
        let path = &call.path;
        let of = |member: MemberId| {
            self.member_name(member).unwrap_or_else(|| format!("member {member}"))
        };
        let (what, hint) = match refusal {
            ClaimRefusal::Unknown => return Ok(SharedClaimed::Unknown),
            ClaimRefusal::Closed => return Ok(SharedClaimed::NotYet),
            ClaimRefusal::TooMany(what, most) => return Err(too_many(what, most)),
            ClaimRefusal::Taken { range, name, member } => (
                format!(
                    "bytes {} to {} of {path} are claimed by the writer {name} of {}",
                    range.start,
                    range.end - 1,
                    of(member)
                ),
                "writers of a shared file write different bytes until its next version is made",
            ),
            ClaimRefusal::Named(member) => (
                format!("{path} has a writer called {}, of {}", call.name, of(member)),
                "choose another name, or wait until that one has finished or is 10 seconds silent",
            ),
        };
        Err(Failure::new(ErrorKind::Conflict, code::CLAIMED, what).hint(hint))
    }
}

impl Answer<SharedClaim> for SharedFileCalls {
    async fn answer(
        self,
        call: SharedClaim,
        caller: CallingMember,
    ) -> Result<SharedClaimed, Failure> {
        self.access.need_in_a_space(&caller, Right::Write, &call.path).await?;
        let is_named = !call.name.is_empty() && call.name.len() <= LONGEST_WRITER_NAME;
        if !is_named || call.ranges.len() > MOST_CLAIMED_AT_ONCE {
            return Err(Failure::bad_request("a claim has a name and not too many ranges"));
        }
        if self.is_just_restarted() && !call.is_all && (call.is_first || !call.ranges.is_empty()) {
            return Ok(SharedClaimed::NotYet);
        }
        let claimed = self.files().claim(caller.member()?.member, &call, self.time.tick());
        match claimed {
            Ok(()) => Ok(SharedClaimed::Granted),
            Err(refusal) => self.refusal(&call, refusal),
        }
    }
}

impl Answer<SharedLeave> for SharedFileCalls {
    async fn answer(self, call: SharedLeave, caller: CallingMember) -> Result<SharedLeft, Failure> {
        self.access.need_in_a_space(&caller, Right::Write, &call.path).await?;
        let left = self.files().leave(caller.member()?.member, &call, self.time.tick());
        Ok(SharedLeft { may_be_more: self.is_just_restarted(), ..left })
    }
}

impl Answer<SharedTurn> for SharedFileCalls {
    async fn answer(
        self,
        call: SharedTurn,
        caller: CallingMember,
    ) -> Result<SharedTurnTaken, Failure> {
        let SharedTurn { path, writer, is_over, is_made } = call;
        self.access.need_in_a_space(&caller, Right::Write, &path).await?;
        let key = (caller.member()?.member, writer);
        let mut files = self.files();
        if is_over {
            files.end_turn(&path, key, is_made);
            return Ok(SharedTurnTaken::Own);
        }
        Ok(match files.take_turn(&path, key, self.time.tick()) {
            true => SharedTurnTaken::Own,
            false => SharedTurnTaken::Another,
        })
    }
}

impl Answer<SharedWriters> for SharedFileCalls {
    async fn answer(
        self,
        call: SharedWriters,
        caller: CallingMember,
    ) -> Result<SharedWritersHeard, Failure> {
        self.access.need_in_a_space(&caller, Right::List, &call.path).await?;
        let writers = self.files().writers(&call.path, self.time.tick());
        let about = |facts: WriterFacts| SharedWriterAbout {
            member_name: self.member_name(facts.member),
            name: facts.name,
            member: facts.member,
            has_finished: facts.has_finished,
            claimed: facts.claimed,
        };
        Ok(SharedWritersHeard { writers: writers.into_iter().map(about).collect() })
    }
}
