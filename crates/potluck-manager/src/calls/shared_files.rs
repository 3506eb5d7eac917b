//! Answers calls about files that writers share: claims of ranges, and turns to make a version.

use super::Answer;
use crate::access::Access;
use crate::callers::{CallingMember, KnownMembers};
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::shared_files::{AllSharedFiles, ClaimRefusal, SharedFiles, WriterFacts, too_many};
use potluck_catalog::Catalog;
use potluck_core::ids::MemberId;
use potluck_core::path::PoolPath;
use potluck_core::recipe::LARGEST_FILE;
use potluck_core::rights::Right;
use potluck_wire::control::{
    CLAIM_LEASE, LONGEST_WRITER_NAME, SharedClaim, SharedClaimed, SharedLeave, SharedLeft,
    SharedTurn, SharedTurnTaken, SharedWriterAbout, SharedWriters, SharedWritersHeard,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::{Arc, MutexGuard};

handles! {
    /// The handles for answering calls about files that writers share.
    pub struct SharedFileCalls {
        time: PoolTime,
        members: Arc<KnownMembers>,
        catalog: Catalog,
        access: Access,
        shared_files: AllSharedFiles,
    }
}

impl SharedFileCalls {
    fn files(&self) -> MutexGuard<'_, SharedFiles> {
        self.shared_files.lock().expect("no holder panics")
    }

    /// Returns true for [`CLAIM_LEASE`] after a restart: writers may have claims that an earlier manager granted, and
    /// may not have said so yet.
    fn is_just_restarted(&self) -> bool {
        self.time.is_restarted_within(CLAIM_LEASE)
    }

    /// Refuses a call about a file that is not shared: the manager would remember the file, and callers could name any
    /// number of files.
    async fn need_shared(&self, path: &PoolPath) -> Result<(), Failure> {
        match self.catalog.shared_file(path.clone()).await? {
            Some(_) => Ok(()),
            None => {
                let what = format!("{path} is not shared, or not any more");
                Err(Failure::new(ErrorKind::NotFound, code::NO_CHECKPOINT, what)
                    .hint("`potluck write-shared begin` shares it"))
            }
        }
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
        if call.name.is_empty() || call.name.len() > LONGEST_WRITER_NAME {
            return Err(Failure::bad_request("a claim has a name"));
        }
        if call.ranges.iter().any(|range| range.is_empty() || range.end > LARGEST_FILE) {
            return Err(Failure::bad_request("a claim is of bytes that a file may have"));
        }
        if call.is_first || call.is_all {
            self.need_shared(&call.path).await?;
        }
        let member = caller.member()?.member;
        // A writer that this manager does not know says at once what it has: others that wait would be given that.
        let is_to_wait = call.is_first
            || (!call.ranges.is_empty() && self.files().knows(&call.path, (member, call.writer)));
        if self.is_just_restarted() && !call.is_all && is_to_wait {
            return Ok(SharedClaimed::NotYet);
        }
        let claimed = self.files().claim(member, &call, self.time.tick());
        match claimed {
            Ok(()) => Ok(SharedClaimed::Granted),
            Err(refusal) => self.refusal(&call, refusal),
        }
    }
}

impl Answer<SharedLeave> for SharedFileCalls {
    async fn answer(self, call: SharedLeave, caller: CallingMember) -> Result<SharedLeft, Failure> {
        self.access.need_in_a_space(&caller, Right::Write, &call.path).await?;
        let (member, may_be_more) = (caller.member()?.member, self.is_just_restarted());
        Ok(self.files().leave(member, &call, may_be_more, self.time.tick()))
    }
}

impl Answer<SharedTurn> for SharedFileCalls {
    async fn answer(
        self,
        call: SharedTurn,
        caller: CallingMember,
    ) -> Result<SharedTurnTaken, Failure> {
        let SharedTurn { path, writer, over } = call;
        self.access.need_in_a_space(&caller, Right::Write, &path).await?;
        let key = (caller.member()?.member, writer);
        if let Some(over) = over {
            self.files().end_turn(&path, key, &over, self.time.tick());
            return Ok(SharedTurnTaken::Own);
        }
        self.need_shared(&path).await?;
        match self.files().take_turn(&path, key, self.time.tick()) {
            Ok(true) => Ok(SharedTurnTaken::Own),
            Err(ClaimRefusal::TooMany(what, most)) => Err(too_many(what, most)),
            Ok(false) | Err(_) => Ok(SharedTurnTaken::Another),
        }
    }
}

impl Answer<SharedWriters> for SharedFileCalls {
    async fn answer(
        self,
        call: SharedWriters,
        caller: CallingMember,
    ) -> Result<SharedWritersHeard, Failure> {
        self.access.need_in_a_space(&caller, Right::List, &call.path).await?;
        let staging = self.catalog.shared_file(call.path.clone()).await?.map(|open| open.staging);
        let writers = self.files().writers(&call.path, self.time.tick());
        let about = |facts: WriterFacts| SharedWriterAbout {
            member_name: self.member_name(facts.member),
            name: facts.name,
            has_finished: facts.has_finished,
            claimed: facts.claimed,
        };
        let writers = writers.into_iter().map(about).collect();
        Ok(SharedWritersHeard { staging, writers })
    }
}
