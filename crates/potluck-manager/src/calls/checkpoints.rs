//! The answers to the calls that begin, commit, abort and list checkpoints.

use super::Answer;
use super::locks::{CallLock, LockCalls};
use crate::access::Access;
use crate::call_turns::CallTurns;
use crate::callers::{CallingMember, KnownMembers};
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::session_rates::SessionRates;
use crate::settings::Settings;
use crate::shared_files::AllSharedFiles;
use crate::wakeup::Wakeup;
use potluck_catalog::{
    Catalog, CheckpointOutcome, Error, NewCheckpoint, OpenCheckpoint, SeenSpaces,
};
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::ids::{LockHolderId, MemberId};
use potluck_core::path::PoolPath;
use potluck_core::rights::Right;
use potluck_wire::control::{
    CheckpointAbort, CheckpointAbout, CheckpointBegin, CheckpointBegun, CheckpointCommit,
    CheckpointCommitted, CheckpointList, Checkpoints, Done, LOCK_LEASE, OwnCommitted,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::sync::Arc;
use std::time::Duration;

/// The most entries and chunks that are added up to tell how much is staged for one checkpoint.
const SUMMED: u64 = 20_000;
/// The time after which a list adds up no more of what is staged: for further checkpoints it only says that there is
/// more.
const SUMMING: Duration = Duration::from_secs(5);
/// The least time for which a merge's checkpoint stays open while nothing is written to it, even if interrupted uploads
/// are not to be kept: its client may be sending one large file.
const LEAST_IDLE: Duration = Duration::from_secs(600);

handles! {
    /// The handles for answering calls about checkpoints.
    pub struct CheckpointCalls {
        settings: Arc<Settings>,
        time: PoolTime,
        catalog: Catalog,
        rates: Arc<SessionRates>,
        members: Arc<KnownMembers>,
        background: Wakeup,
        call_turns: Arc<CallTurns>,
        access: Access,
        shared_files: AllSharedFiles,
        locks: LockCalls,
    }
}

impl CheckpointCalls {
    /// Waits until no mount has files of a checkpoint open for writing, and keeps them from opening any until the result
    /// is dropped. A mount has the shared authority over the staging directory while it has any open.
    ///
    /// Errors: [`code::CLAIMED`] where mounts keep files open; the message names their members.
    async fn close_files(
        &self,
        (space, id): (&str, CheckpointId),
        member: MemberId,
    ) -> Result<Option<CallLock>, Failure> {
        let open = self.catalog.open_checkpoint((space.to_owned(), id)).await?;
        // A merge belongs to one copy, which has nobody join it.
        let Some(open) = open.filter(|open| open.style == CommitStyle::Replace) else {
            return Ok(None);
        };
        let key = (member, LockHolderId(id.0));
        let lock = self.locks.lock_for_call(key, &open.staging).await?;
        let holders = lock.refused_by();
        if holders.is_empty() {
            return Ok(Some(lock));
        }
        let members: Vec<MemberId> = holders.iter().map(|(member, _)| *member).collect();
        let mounts = match members.len() {
            1 => "a mount".to_owned(),
            count => format!("{count} mounts"),
        };
        let names = self.members.names(&members).join(", ");
        let what = format!(
            "files that are staged for {} are open for writing in {mounts} of {names}",
            open.target
        );
        Err(Failure::new(ErrorKind::Conflict, code::CLAIMED, what).hint(format!(
            "have them closed and commit again, or commit without them by --even-if-open; a mount that died counts for \
             {} seconds",
            LOCK_LEASE.as_secs()
        )))
    }
}

impl Answer<CheckpointBegin> for CheckpointCalls {
    async fn answer(
        self,
        call: CheckpointBegin,
        caller: CallingMember,
    ) -> Result<CheckpointBegun, Failure> {
        let CheckpointBegin { id, target, style } = call;
        self.access.need(&caller, Right::Write, &target).await?;
        let settings = self.settings.get();
        let idle = match style {
            CommitStyle::Replace | CommitStyle::Share => settings.checkpoint_idle,
            // A merge belongs to a copy, which goes on at once or not at all.
            CommitStyle::Merge => settings.resume_window.max(LEAST_IDLE),
        };
        let (made_by, idle_ms) = (caller.member()?.member, idle.as_millis() as u64);
        let new = NewCheckpoint { id, target, style, made_by, idle_ms };
        let when = self.time.when();
        let OpenCheckpoint { staging, idle_ms, target, begun_wall_ms, .. } =
            self.catalog.begin_checkpoint(new, when).await?;
        if style == CommitStyle::Share && begun_wall_ms == when.wall_ms {
            // Claims of an earlier time of sharing do not hold in this one.
            self.shared_files.lock().expect("no holder panics").forget(&target);
        }
        Ok(CheckpointBegun { staging, idle_ms })
    }
}

impl Answer<CheckpointCommit> for CheckpointCalls {
    async fn answer(
        self,
        call: CheckpointCommit,
        caller: CallingMember,
    ) -> Result<CheckpointCommitted, Failure> {
        let CheckpointCommit { space, id, condition, spare_content, even_if_open } = call;
        self.access.need_in(&caller, Right::Write, &space).await?;
        let member = caller.member()?.member;
        let _closed = match even_if_open {
            true => None,
            false => self.close_files((&space, id), member).await?,
        };
        let when = self.time.when().made_by(member);
        let how = (condition, spare_content);
        let outcome = self.catalog.commit_checkpoint((space, id), how, when).await?;
        self.background.wake();
        Ok(match outcome {
            CheckpointOutcome::Now(target) => {
                CheckpointCommitted { target: target.to_string(), before: false }
            }
            CheckpointOutcome::Before(target) => CheckpointCommitted { target, before: true },
        })
    }
}

impl Answer<CheckpointAbort> for CheckpointCalls {
    async fn answer(self, call: CheckpointAbort, caller: CallingMember) -> Result<Done, Failure> {
        let CheckpointAbort { space, id, if_empty } = call;
        self.access.need_in(&caller, Right::Write, &space).await?;
        self.catalog.abort_checkpoint((space, id), if_empty, self.time.now_ms()).await?;
        self.background.wake();
        Ok(Done {})
    }
}

impl Answer<CheckpointList> for CheckpointCalls {
    async fn answer(
        self,
        _call: CheckpointList,
        caller: CallingMember,
    ) -> Result<Checkpoints, Failure> {
        let seen = self.access.seen(&caller).await?;
        let own = caller.member()?.member;
        let _turn = self.call_turns.take_among_own(own).await?;
        let (when, now_ms) = (self.time.when(), self.time.without_leaps_ms());
        let mut checkpoints = Vec::new();
        let began = self.time.tick();
        let known = self.catalog.checkpoints().await?;
        for open in known.open {
            let rights = seen.rights(open.target.space());
            if !rights.allow(Right::List) {
                continue;
            }
            let staging = open.staging.clone();
            let is_late = self.time.tick().saturating_sub(began) > SUMMING;
            let used = match is_late {
                true => Ok(None),
                false => self.catalog.usage(staging, None, SUMMED, SeenSpaces::ALL).await.map(Some),
            };
            let used = match used {
                Ok(used) => used,
                // A checkpoint that has just ended is left out.
                Err(Error::NoEntry(_)) => continue,
                Err(_) => None,
            };
            let is_more = used.as_ref().is_none_or(|used| used.next.is_some());
            let used = used.unwrap_or_default();
            let rates = self.rates.of(open.target.space(), open.id);
            let is_own = open.made_by == own;
            // The identifier gives access to what is staged, so only the maker and managers of the space are told it.
            let is_told = is_own || rights.allow(Right::Manage);
            checkpoints.push(CheckpointAbout {
                id: is_told.then_some(open.id),
                staging: is_told.then_some(open.staging),
                target: open.target,
                style: open.style,
                member: open.made_by,
                maker: self.members.names(&[open.made_by]).pop(),
                is_own,
                age_ms: when.wall_ms.saturating_sub(open.begun_wall_ms).max(0) as u64,
                expires_ms: (open.used_ms + open.idle_ms).saturating_sub(now_ms),
                files: used.files,
                bytes: used.bytes,
                more: is_more,
                oab_mib_s: rates.observed,
                asb_mib_s: rates.achieved,
            });
        }
        let committed = known.committed.into_iter().filter(|ended| ended.made_by == own);
        let committed = committed.map(|ended| {
            let target: Option<PoolPath> = ended.target.parse().ok();
            let space = target.as_ref().map_or("", PoolPath::space);
            let rates = self.rates.of(space, ended.id);
            OwnCommitted {
                id: ended.id,
                target: ended.target,
                oab_mib_s: rates.observed,
                asb_mib_s: rates.achieved,
            }
        });
        Ok(Checkpoints { checkpoints, committed: committed.collect() })
    }
}
